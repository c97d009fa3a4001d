"""The protocols of a store. Every implementation must pass the suites in `takeback.testing`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from takeback.model.effect import Effect, State
from takeback.model.progress import SILENT, Progress
from takeback.model.record import Draft, Flaw, Kind, Record
from takeback.model.resource import Project, Scope
from takeback.model.run import Lease, Owner, RunInfo
from takeback.model.stop import Stop


class Query(NamedTuple):
    """Which effects; every field narrows. Newest first when `newest`, else oldest first."""

    ids: tuple[str, ...] = ()
    run: str = ""
    agent: str = ""
    states: tuple[State, ...] = ()
    key: str = ""
    resource: str = ""  # effects that touch it, something in it, or something around it
    needing: str = ""  # effects that declared they need this one
    damaged_too: bool = (
        False  # by id: hand out a stand-in for one whose record is damaged, instead of raising
    )
    undos: bool = False  # only those that take another one back
    undoing: tuple[str, ...] = ()  # only those that take back one of these
    made: bool = False  # only those that do not
    pinned: bool = False
    forgettable: bool = False  # accepted, and not forgotten yet
    remembered: bool = False  # not forgotten
    after: int = 0  # only those with a greater seq
    before: int = 0  # only those with a smaller one
    told_after: int = 0  # only those that took hold later (Effect.order)
    scope: Scope | None = None  # only those that belong to these projects
    limit: int = 0  # 0: all
    newest: bool = False


class Projects(Protocol):
    """Which directories the records know as projects."""

    def projects(self, roots: Sequence[str]) -> Iterator[Project]:
        """Those of these that are known."""
        ...


class Journal(Projects, Protocol):
    """The append-only truth."""

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        """All of them or none; durable when this returns, together with every blob put before.

        In the same transaction: the lease must be the newest of its run (`LeaseLost`), a key must have no other
        effect that is not aborted (`KeyReused`), an intent must not overlap another effect in flight
        (`StoreBusy`), and each record must fit the state it finds (`RecordInvalid`). `lease=None` is for records
        about settled things, which need no run to be held (accept, pin, forget), for a signal, and for the first open
        of a durable workflow, which waits for a worker. A run's key belongs to no other run (`KeyReused`).

        A signal makes a run that awaits it due; so does the close of a run that is about to wait for a signal which was
        recorded after the one it read last (`read`). An ended run takes no signal (`Refused`).
        """
        ...

    def records(
        self, after: int = 0, kinds: tuple[Kind, ...] = (), run: str = "", effect: str = ""
    ) -> Iterator[Record]: ...

    def effects(self, query: Query) -> Iterator[Effect]: ...

    def runs(
        self, ids: tuple[str, ...] = (), unfinished: bool = False, key: str = "", scope: Scope | None = None
    ) -> Iterator[RunInfo]:
        """Oldest first. With `scope` those that began in one of these projects, or touched one."""
        ...

    def resolve(self, prefix: str) -> tuple[str, ...]:
        """Ids of effects and runs that begin so; at most a handful."""
        ...

    def count(self, query: Query) -> int:
        """How many effects these are, without reading them."""
        ...

    def tally(self) -> dict[str, int]:
        """How many effects are in each state, in constant time; and `accepted`, `pinned`, `forgotten`, `records`."""
        ...

    def newest(self) -> int:
        """The position of the newest record."""
        ...

    def any_dropped(self) -> bool:
        """Whether a dropped effect can still be applied."""
        ...

    def any_since(self, effect: Effect) -> bool:
        """Whether another effect was proposed or announced since this one was."""
        ...

    def check(self) -> Iterator[Flaw]:
        """Everything that is wrong with it, one sentence each; nothing if it is sound."""
        ...


class Leases(Protocol):
    """Which process may write for a run.

    Leases expire by a monotonic clock that all users of the store share; `now`, the caller's own, is for a store
    without one. In microseconds, like `lasts`.
    """

    def acquire(self, run: str, owner: Owner, now: int, lasts: int, *, expired: bool = False) -> Lease:
        """The next generation; `LeaseHeld` while another owner holds it and may be alive. `expired`: one that is past
        its time is taken though its owner lives, which is for runs whose effects are fenced (durable workflows)."""
        ...

    def claim(
        self, owner: Owner, now: int, lasts: int, workflows: Sequence[str], stops: Sequence[Stop] = ()
    ) -> Lease | None:
        """The durable run of one of these workflows that is due the longest by `now` (since it was submitted, if no
        time was set) and that no process holds: released, its owner dead, or expired. None if there is none. What one
        of the `stops` concerns is passed over."""
        ...

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        """It lasts that long from now; `LeaseLost` when it is not the newest or was released."""
        ...

    def release(self, lease: Lease) -> None: ...

    def holder(self, run: str) -> Lease | None:
        """The newest lease; one with process 0 was released."""
        ...

    def free(self, run: str, now: int) -> bool:
        """Whether `acquire` would be given it."""
        ...


class BlobInfo(NamedTuple):
    digest: str
    size: int  # of the content
    stored: int  # bytes it takes in the store
    base: str = ""  # the blob it is a difference to


class Blobs(Protocol):
    """Immutable bytes, named by their hash in hex (`takeback.model.content`)."""

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        """Keep these bytes. `like` names what they are a version of (a resource), so that only the difference to
        the last version need be kept. `refs` are blobs that must live as long as this one. A put may be held in
        memory until `sync` or the next `Journal.append` of the same store."""
        ...

    def read(self, digest: str) -> Iterator[bytes]:
        """The bytes in pieces, checked: `BlobMissing`, or `BlobDamaged` before the last piece is handed out."""
        ...

    def has(self, digest: str) -> bool: ...

    def sync(self) -> None:
        """Everything put so far is durable when this returns, and was read back and found right."""
        ...

    def disown(self, threads: Collection[int] = ()) -> None:
        """What this thread, or these, have put, and no commit has written yet, was for nothing: no record will name
        it."""
        ...

    def info(self, digests: Sequence[str] | None = None) -> Iterator[BlobInfo]:
        """The size of each of these blobs; of all if none is named."""
        ...

    def check(self, read_data: bool, progress: Progress = SILENT) -> Iterator[Flaw]:
        """Everything that is wrong, one sentence each."""
        ...

    def sweep(
        self,
        live: Callable[[], Iterable[str]],
        grace: int,
        erase: Sequence[str] = (),
        put_until: int = 0,
        progress: Progress = SILENT,
        dry_run: bool = False,
        for_good: bool = False,
    ) -> int:
        """Remove what is not reachable from `live` (asked inside the transaction) and older than `grace` seconds;
        the number of bytes freed. What `erase` names goes however young it is, unless it was put again after
        `put_until` (seconds since 1970). Never needs more than a tenth of the store as extra space. A dry run only
        counts. `for_good`: not a byte of what goes may be left."""
        ...
