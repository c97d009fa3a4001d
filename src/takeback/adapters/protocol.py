"""The protocol of adapters: the code for one kind of resource."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from takeback.errors import Drifted, Misuse, NoRemedy
from takeback.model.change import Change, Staged
from takeback.model.effect import Effect
from takeback.model.plan import Assessment, Bond, Sighting, Standing
from takeback.model.remedy import Offer, Remedy, Target


class Traits(NamedTuple):
    """The promises of an adapter; declared, then tested, never sniffed."""

    stages: bool = False  # has stage()
    atomic: bool = False  # readers never see a mixture, even of several targets
    exact: bool = True  # there and back is equal in every property
    # A marker made in the same step as the change tells whether it happened, whatever came later.
    marks: bool = False
    redoes: bool = True  # what was taken back can be brought back
    watches: bool = False  # has found(): someone else makes the change, and a comparison finds it
    # Has release(): it holds things outside the blobs for as long as an effect can be undone.
    holds: bool = False
    # It calls functions of the application: what it did is settled by asking, or by a person.
    calls: bool = False
    keys: bool = False  # its targets are keys of a file; the file as a whole is in the payload
    boxes: bool = False  # its targets are layers of a box
    merges: bool = False  # has whole_files(): it can take an edit of a file out from under later ones
    divides: bool = False  # has bonds(): some paths of an effect can be taken back without the others
    # Has unchanged(): what it assessed for an undo is recognised without reading it again.
    glances: bool = False
    keeps: bool = False  # has needed(): blobs that no effect names
    one_writer: bool = False  # a transaction held in it blocks every other writer
    layered: bool = False  # all that it touches is files: a layer over the world holds it back


_DATABASE = Traits(atomic=True, exact=True, marks=True, holds=True, watches=True)
_TREE = Traits(exact=True, holds=True, merges=True, divides=True, layered=True)
# Here, so that code that only has an effect need not load an adapter.
TRAITS = {
    "box": Traits(atomic=True, exact=True, boxes=True, keeps=True, layered=True),
    "call": Traits(exact=False, marks=True, redoes=False, calls=True),
    "command": _TREE,
    "config": Traits(stages=True, atomic=True, exact=True, merges=True, keys=True, layered=True),
    "file": _TREE._replace(stages=True, glances=True),
    "mariadb": _DATABASE,
    "postgres": _DATABASE,
    "redis": _DATABASE._replace(watches=False),
    "sqlite": _DATABASE._replace(one_writer=True, layered=True),
    "tree": _TREE._replace(keeps=True),
}


def traits_of(change: Change) -> Traits:
    """What its adapter promises; one that is not installed here promises nothing."""
    return TRAITS.get(change.adapter, Traits())


def demand_remedy(of: Effect | None) -> Effect:
    if of is None or of.remedy is None:
        raise Misuse(
            "There is nothing to take back: the effect has no remedy.", hint="Name an effect that was done."
        )
    return of


def demand_captured(effect: Effect) -> None:
    if effect.remedy is None:
        raise NoRemedy("The effect has no remedy.", hint="Capture comes before apply.", effect=effect.id)


def refuse_foreign(sighting: Sighting, effect: Effect) -> None:
    """Before anything is changed."""
    if sighting.standing in (Standing.FOREIGN, Standing.UNKNOWN):
        raise Drifted(f"{sighting.detail}.", hint="Nothing was changed.", effect=effect.id)


class Receipt(NamedTuple):
    """What apply learned."""

    data: dict[str, Any] = {}


class Releasing(Protocol):
    """An adapter that keeps more than blobs for undo, such as an inode with several names."""

    def release(self, effect: Effect) -> None:
        """The effect was forgotten: release what the adapter keeps for its undo. Twice is once."""
        ...


class Merging(Protocol):
    """An adapter that can take an edit of a file out from under later ones."""

    def whole_files(self, effect: Effect) -> tuple[Target, ...]:
        """The changes of the effect to whole files, even if its targets name parts of them."""
        ...


class Glancing(Protocol):
    """An adapter that recognises what it has assessed for an undo."""

    def unchanged(self, effect: Effect, seen: Assessment) -> bool:
        """Whether each target of the effect is still the same thing, by its identity and its times. Then `capture`,
        which gets the same offer, reads each once more and goes by what was planned if that is what it finds."""
        ...


class Dividing(Protocol):
    """An adapter that can take back some paths of an effect without the others."""

    def bonds(self, effect: Effect) -> Sequence[tuple[Bond, frozenset[str]]]:
        """Paths of the effect that are only taken back together."""
        ...


@runtime_checkable
class Enclosing(Protocol):
    """An adapter that changes a directory as one, and records what is in it."""

    def never_held(self, target: Target, resource: str) -> bool:
        """Whether that path was in the directory neither before nor after. False where nothing was recorded of it."""
        ...


@runtime_checkable
class Keeper(Protocol):
    """An adapter that needs blobs which no effect names."""

    def needed(self) -> Iterator[str]:
        """Their digests; a sweep leaves them."""
        ...


@runtime_checkable
class Lending(Protocol):
    """An adapter that can make a change out of files as they are, without copying them."""

    def lent(self, change: Change, sources: Mapping[str, bytes]) -> AbstractContextManager[None]:
        """In the block these files, by resource, may become part of the world: no one else can write to them, and they
        are thrown away afterwards."""
        ...


class FoundChange(NamedTuple):
    """What was changed while we watched."""

    change: Change
    receipt: dict[str, Any] = {}  # recorded with the outcome, not with the intent


@runtime_checkable
class Watcher(Protocol):
    """An adapter for changes that others make between a beginning and an end."""

    def found(self, effect: Effect, others: Sequence[Effect]) -> FoundChange | None:
        """The changes since the baseline that the proposal names, without those of other effects; None if there are
        none. Raises `Unavailable` while the processes that make the change are still running."""
        ...


@runtime_checkable
class Rester(Protocol):
    """An adapter whose effects can be left half-way in more than one way."""

    def rest(self, effect: Effect) -> None:
        """The process that applied it died, and someone else modified a target: remove scratch or put it back, so that
        nothing stays half-changed. Then each target is before, after, or someone else's."""
        ...


@runtime_checkable
class Relating(Protocol):
    """An adapter that knows itself which effects changed the same things: the journal names no rows."""

    def standing_on(self, effect: Effect) -> Sequence[str]:
        """Ids of later effects that changed the same, or that stand on it, newest first. Which of them are still in
        force the journal knows."""
        ...


@runtime_checkable
class Neighbouring(Protocol):
    """An adapter whose effects may be about one thing though the journal names none."""

    def may_be_about_one(self, effect: Effect, later: Effect) -> bool:
        """Whether undo of the first could overwrite what the later one did."""
        ...


@runtime_checkable
class Doubting(Protocol):
    """An adapter that may not know what it has done."""

    def must_be_settled(self, undo: Effect, of: Effect) -> bool:
        """Whether a person has to say what became of an undo that is stuck, before there is another."""
        ...


@runtime_checkable
class Rehearsing(Protocol):
    """An adapter that can try the undo of an effect where no layer over the files would hold it back."""

    def rehearse(self, effect: Effect) -> str:
        """Carry the undo out where it changes nothing for good, and read again what it left; in a few words where that
        was and how much. Raises what the undo would raise, and `Unavailable` for what cannot be tried."""
        ...


class Adapter(Protocol):
    """One kind of resource. Acts on the world and on nothing else."""

    name: str
    version: int
    traits: Traits

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        """Changes nothing. For an undo, `of` is the effect to take back."""
        ...

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        """Prepare the change where no one sees it. `named`: under a scratch name beside the target that carries the
        effect's id; otherwise nothing is left if the process dies now."""
        ...

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        """Save what undo needs. Changes nothing anyone can see."""
        ...

    def apply(self, effect: Effect) -> Receipt:
        """Make it visible, by compare and swap: `Drifted` if a target is not what was captured, and then nothing
        of it has changed. Twice is once. For an undo (`effect.of` set) this is the taking back."""
        ...

    def verify(self, effect: Effect) -> Sighting:
        """Where the world stands. Changes nothing."""
        ...

    def undo(self, effect: Effect) -> None:
        """From AFTER or BETWEEN to BEFORE. Twice is once."""
        ...

    def tidy(self, effect: Effect) -> None:
        """Remove scratch of this effect that is no longer needed; anything that is not ours or not in the store
        stays."""
        ...
