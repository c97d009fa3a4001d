"""A journal, leases and blobs in memory: a third implementation, which keeps the protocols honest, and quick tests."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import RLock
from typing import Any, NamedTuple

from takeback.errors import KeyReused
from takeback.model.content import name_of
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.lifecycle import (
    BIRTHS,
    KEYLESS,
    OF_EFFECTS,
    Life,
    consequences,
    in_the_way,
    outlives_its_run,
    refuse_unfit_run,
    stands_aside,
    taken_over,
    told,
    touched,
    waits_for_a_person,
)
from takeback.model.progress import SILENT, Progress
from takeback.model.record import GENESIS, Draft, Flaw, Kind, Record, canonical, chained
from takeback.model.resource import (
    Project,
    Scope,
    in_scope,
    made_markers,
    overlaps,
    touched_projects,
    without_fragment,
)
from takeback.model.run import OF_RUNS, UNFINISHED, Lease, OnDeath, Owner, RunInfo, RunState, run_after
from takeback.model.stop import Stop
from takeback.storage.blobs.codec import cut
from takeback.storage.blobs.reader import damaged, missing
from takeback.storage.leases import Alive, held, may_take, refuse_unheld, refuse_unheld_opening
from takeback.storage.protocols import BlobInfo, Query


class MemoryLeases:
    def __init__(self, alive: Alive) -> None:
        self._alive = alive
        self._leases: dict[str, Lease] = {}
        self._lock = RLock()
        self.runs: dict[str, RunInfo] = {}  # as the journal has them, which sets it

    def acquire(self, run: str, owner: Owner, now: int, lasts: int, *, expired: bool = False) -> Lease:
        with self._lock:
            current = self._leases.get(run)
            if current and not may_take(current, current.expires_at < now, self._alive, expired):
                raise held(current)
            self._leases[run] = Lease(run, current.generation + 1 if current else 1, owner, now + lasts)
            return self._leases[run]

    def claim(
        self, owner: Owner, now: int, lasts: int, workflows: Sequence[str], stops: Sequence[Stop] = ()
    ) -> Lease | None:
        with self._lock:
            due = [
                (info.due_at or info.opened_at, number, info.id)
                for number, info in enumerate(self.runs.values())
                if info.workflow in workflows
                and info.on_death is OnDeath.RESUME
                and info.state in UNFINISHED
                and info.due_at <= now
                and not any(stop.concerns(info.agent, info.id) for stop in stops)
                and self._is_free(info.id, now, expired=True)
            ]
            return self.acquire(min(due)[2], owner, now, lasts, expired=True) if due else None

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        with self._lock:
            if not self.holds(lease):
                raise taken_over(lease.run)
            self._leases[lease.run] = lease._replace(expires_at=now + lasts)
            return self._leases[lease.run]

    def release(self, lease: Lease) -> None:
        with self._lock:
            if self.holds(lease):
                self._leases[lease.run] = lease._replace(owner=Owner("", "", 0, ""), expires_at=0)

    def holder(self, run: str) -> Lease | None:
        return self._leases.get(run)

    def free(self, run: str, now: int) -> bool:
        return self._is_free(run, now, expired=False)

    def _is_free(self, run: str, now: int, expired: bool) -> bool:
        current = self._leases.get(run)
        return current is None or may_take(current, current.expires_at < now, self._alive, expired)

    def holds(self, lease: Lease) -> bool:
        current = self._leases.get(lease.run)
        return bool(current and current.generation == lease.generation and current.owner.pid)


class MemoryJournal:
    def __init__(self, leases: MemoryLeases, now: Callable[[], int]) -> None:
        self._leases = leases
        self._now = now
        self._records: list[Record] = []
        self._lives: dict[str, Life] = {}
        self._runs = leases.runs
        self._lock = RLock()

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        with self._lock:
            refuse_unheld(lease, drafts)
            if lease and not self._leases.holds(lease):
                raise taken_over(lease.run)
            records, lives, runs = list(self._records), dict(self._lives), dict(self._runs)
            try:
                return tuple(self._append(lease, draft) for draft in drafts)
            except BaseException:
                self._records, self._lives, self._runs = records, lives, runs
                self._leases.runs = runs
                raise

    def _append(self, lease: Lease | None, draft: Draft) -> Record:
        previous = self._records[-1].hash if self._records else GENESIS
        seq, at = len(self._records) + 1, self._now()
        body = canonical(draft.body)
        hash = chained(previous, seq, at, draft.kind, draft.run, draft.effect, body)
        record = Record(seq, draft.kind, draft.run, draft.effect, at, draft.body, hash)
        info = self._runs.get(record.run)
        own = self._lives.get(record.effect)
        proposed = outlives_its_run(own.state if own else None)
        refuse_unfit_run(record, info.state if info else None, self._in_flight(record.run), proposed)
        if record.kind in BIRTHS:
            self._refuse_reuse(record)
            self._refuse_overlap(record)
        self._records.append(record)
        if record.kind in OF_EFFECTS:
            for life in consequences(record, self._lives.get):
                if life.seq == seq and life.run in self._runs:
                    info = self._runs[life.run]
                    self._runs[life.run] = info._replace(effects=info.effects + 1)
                self._lives[life.id] = life
        elif record.kind in OF_RUNS:
            refuse_unheld_opening(lease, record.kind, record.run, info is not None)
            self._project_run(record)
        return record

    def _in_flight(self, run: str) -> bool:
        in_hand = (State.PROPOSED, State.INTENDED)
        return any(
            life.run == run and life.state in in_hand and not waits_for_a_person(life.state, self._body(life))
            for life in self._lives.values()
        )

    def _project_run(self, record: Record) -> None:
        def unread(name: str, after: int) -> bool:
            signals = self.records(after, (Kind.SIGNAL,), record.run)
            return any(signal.body["name"] == name for signal in signals)

        info = run_after(self._runs.get(record.run), record, unread)
        if info.key and any(other.key == info.key and other.id != info.id for other in self._runs.values()):
            raise KeyReused(f"The key {info.key!r} already belongs to another run.")
        self._runs[record.run] = info
        if record.kind is Kind.CLOSE and info.state is RunState.ACCEPTED:
            for life in list(self._lives.values()):
                if life.run == record.run and life.state is State.DONE and not life.accepted_by:
                    self._lives[life.id] = life._replace(accepted_by="run")

    def _refuse_reuse(self, record: Record) -> None:
        key = record.body["key"]
        for life in self._lives.values():
            same = key and life.id != record.effect and self._body(life)["key"] == key
            if same and life.state not in KEYLESS:
                raise KeyReused(f"The key {key!r} already belongs to another effect.")

    def _refuse_overlap(self, record: Record) -> None:
        wanted = [without_fragment(resource) for resource in touched(record.body)]
        for life in self._lives.values():
            if life.state not in OPEN_STATES or life.id == record.effect:
                continue
            if stands_aside(life.state, self._body(life)):
                continue
            for resource in touched(self._body(life)):
                if any(overlaps(without_fragment(resource), one) for one in wanted):
                    raise in_the_way(life.id, life.state, resource)

    def records(
        self, after: int = 0, kinds: tuple[Kind, ...] = (), run: str = "", effect: str = ""
    ) -> Iterator[Record]:
        for record in self._records[after:]:
            if kinds and record.kind not in kinds:
                continue
            if (not run or record.run == run) and (not effect or record.effect == effect):
                yield record

    def effects(self, query: Query) -> Iterator[Effect]:
        found = [life for life in self._lives.values() if self._matches(life, query)]
        found.sort(key=lambda life: life.seq, reverse=query.newest)
        for life in found[: query.limit or None]:
            outcome = self._records[life.ended - 1] if life.ended else None
            yield told(life, self._records[life.told - 1], outcome, self._agent(life))

    def _matches(self, life: Life, query: Query) -> bool:
        body = self._body(life)
        return (
            (not query.ids or life.id in query.ids)
            and (not query.run or life.run == query.run)
            and (not query.agent or self._agent(life) == query.agent)
            and (not query.states or life.state in query.states)
            and (not query.key or (body["key"] == query.key and life.state not in KEYLESS))
            and (not query.resource or any(overlaps(query.resource, one) for one in touched(body)))
            and (not query.needing or query.needing in body.get("needs", ()))
            and (not query.undos or bool(life.undoes))
            and (not query.undoing or life.undoes in query.undoing)
            and (not query.made or not life.undoes)
            and (not query.forgettable or (bool(life.accepted_by) and not life.forgotten))
            and (not query.pinned or life.pinned)
            and (not query.remembered or not life.forgotten)
            and (query.scope is None or self._belongs(life, query.scope))
            and life.seq > query.after
            and life.told > query.told_after
            and (not query.before or life.seq < query.before)
        )

    def _belongs(self, life: Life, scope: Scope) -> bool:
        known = self._known_projects()
        began = self._runs[life.run].project if life.run in self._runs else ""
        roots = (began, *(one.root for one in touched_projects(self._body(life))))
        return any(root in known and in_scope(known[root], scope) for root in roots)

    def _known_projects(self) -> dict[str, Project]:
        found: dict[str, Project] = {}
        for record in self._records:
            seen: tuple[Project, ...] = ()
            if record.kind is Kind.OPEN and record.body.get("project"):
                seen = (Project(record.body["project"], bool(record.body.get("marked")), began=True),)
            elif record.kind in BIRTHS:
                seen = (*touched_projects(record.body), *made_markers(record.body))
            for new in seen:
                old = found.get(new.root, Project(new.root))
                flags = (one or other for one, other in zip(old[1:], new[1:], strict=True))
                found[new.root] = Project(new.root, *flags)
        return found

    def projects(self, roots: Sequence[str]) -> Iterator[Project]:
        known = self._known_projects()
        return (known[root] for root in roots if root in known)

    def runs(
        self,
        ids: tuple[str, ...] = (),
        unfinished: bool = False,
        key: str = "",
        scope: Scope | None = None,
    ) -> Iterator[RunInfo]:
        touching = {one.run for one in self.effects(Query(scope=scope))} if scope else set[str]()
        known = self._known_projects() if scope else {}
        for info in list(self._runs.values()):
            if unfinished and info.state not in UNFINISHED:
                continue
            began = known.get(info.project)
            if scope and info.id not in touching and not (began and in_scope(began, scope)):
                continue
            if (not ids or info.id in ids) and (not key or info.key == key):
                yield info

    def resolve(self, prefix: str) -> tuple[str, ...]:
        return tuple(id for id in [*self._lives, *self._runs] if id.startswith(prefix))[:9]

    def count(self, query: Query) -> int:
        return sum(1 for _ in self.effects(query))

    def tally(self) -> dict[str, int]:
        counts: dict[str, int] = {"records": len(self._records)}
        for life in self._lives.values():
            flags = {"accepted": bool(life.accepted_by), "forgotten": life.forgotten, "pinned": life.pinned}
            for name in (life.state.value, *(name for name, is_so in flags.items() if is_so)):
                counts[name] = counts.get(name, 0) + 1
        return counts

    def newest(self) -> int:
        return len(self._records)

    def any_dropped(self) -> bool:
        return any(life.state is State.DROPPED for life in self._lives.values())

    def any_since(self, effect: Effect) -> bool:
        later = self._records[effect.seq :]
        return any(one.kind in BIRTHS and one.effect != effect.id for one in later)

    def check(self) -> Iterator[Flaw]:
        previous = GENESIS
        for record in self._records:
            body = canonical(record.body)
            expected = chained(previous, record.seq, record.at, record.kind, record.run, record.effect, body)
            if expected != record.hash:
                text = f"Record {record.seq} is not what was written: its hash does not fit."
                yield Flaw(text, effect=record.effect, run=record.run)
            previous = record.hash

    def _body(self, life: Life) -> dict[str, Any]:
        return self._records[life.told - 1].body

    def _agent(self, life: Life) -> str:
        info = self._runs.get(life.run)
        return info.agent if info else ""


class MemoryBlob(NamedTuple):
    content: bytes
    refs: tuple[str, ...]
    created_at: int


class MemoryBlobs:
    def __init__(self, now: Callable[[], int] | None = None) -> None:
        """`now` is in microseconds since 1970."""
        self._now = now or (lambda: time.time_ns() // 1000)
        self._lock = threading.RLock()
        self.kept: dict[str, MemoryBlob] = {}

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        whole = b"".join(cut(content))
        digest = name_of(whole).hex()
        with self._lock:
            for ref in refs:
                if ref not in self.kept:
                    raise missing(ref)
            before = self.kept.get(digest)
            union = tuple(dict.fromkeys((*(before.refs if before else ()), *refs)))
            self.kept[digest] = MemoryBlob(whole, union, self._now() // 1_000_000)
        return digest

    def read(self, digest: str) -> Iterator[bytes]:
        with self._lock:
            kept = self._get(digest)
        if name_of(kept.content).hex() != digest:
            raise damaged(bytes.fromhex(digest), "its bytes do not have its hash")
        return cut(kept.content)

    def _get(self, digest: str) -> MemoryBlob:
        kept = self.kept.get(digest)
        if kept is None:
            raise missing(digest)
        return kept

    def has(self, digest: str) -> bool:
        return digest in self.kept

    def refs(self, digest: str) -> tuple[str, ...]:
        with self._lock:
            return self._get(digest).refs

    def sync(self) -> None:
        """Memory is as durable as it gets."""

    def disown(self, threads: Collection[int] = ()) -> None:
        """A sweep takes it when it is old."""

    def info(self, digests: Sequence[str] | None = None) -> Iterator[BlobInfo]:
        with self._lock:
            names = list(self.kept) if digests is None else [one for one in digests if one in self.kept]
            found = [BlobInfo(one, len(self.kept[one].content), len(self.kept[one].content)) for one in names]
        yield from found

    def check(self, read_data: bool, progress: Progress = SILENT) -> Iterator[Flaw]:
        with self._lock:
            kept = dict(self.kept)
        for digest, one in kept.items():
            progress.moved(len(one.content), 1)
            if read_data and name_of(one.content).hex() != digest:
                error = damaged(bytes.fromhex(digest), "its bytes do not have its hash")
                yield Flaw(str(error), blob=digest)
            for ref in one.refs:
                if ref not in kept:
                    text = f"Blob {digest} refers to blob {ref}, which is not in the store."
                    yield Flaw(text, blob=digest)

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
        with self._lock:
            now = self._now() // 1_000_000
            young = [
                digest
                for digest, kept in self.kept.items()
                if grace
                and now - kept.created_at <= grace
                and (digest not in erase or kept.created_at > put_until)
            ]
            waiting = [digest for digest in live() if digest in self.kept] + young
            needed: set[str] = set()
            while waiting:
                digest = waiting.pop()
                if digest not in needed:
                    needed.add(digest)
                    waiting += self._get(digest).refs
            dead = [digest for digest in self.kept if digest not in needed]
            freed = sum(len(self.kept[digest].content) for digest in dead)
            for digest in () if dry_run else dead:
                del self.kept[digest]
            return freed
