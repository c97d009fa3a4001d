"""How things stand, in numbers. Costs the same for a hundred effects as for a hundred thousand."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from takeback.model.effect import Effect, State
from takeback.model.run import OnDeath, RunInfo, RunState
from takeback.model.settings import Settings
from takeback.storage.protocols import Query
from takeback.storage.store import Store


class Status(NamedTuple):
    path: str
    size: int  # bytes on disk
    records: int
    states: dict[str, int]  # effects by state
    kept: int
    forgotten: int
    unfinished: tuple[RunInfo, ...]  # runs
    settings: Settings
    suspect: bool
    read_only: bool

    @property
    def open(self) -> int:
        return self.states[State.PROPOSED] + self.states[State.INTENDED]

    @property
    def forgettable(self) -> int:
        """Kept and not yet forgotten: what `forget` may choose from when their time is over."""
        return max(0, self.kept - self.forgotten)

    def runs(self, state: RunState) -> int:
        return sum(1 for info in self.unfinished if info.state is state)


def look(store: Store, size: int) -> Status:
    tally = store.journal.tally()
    return Status(
        path=store.path,
        size=size,
        records=tally["records"],
        # An index is counted, no content is touched.
        states={state.value: tally.get(state.value, 0) for state in State},
        kept=tally.get("kept", 0),
        forgotten=tally.get("forgotten", 0),
        unfinished=tuple(store.journal.runs(unfinished=True)),
        settings=store.settings,
        suspect=store.suspect(),
        read_only=store.database.read_only,
    )


class Unsettled(NamedTuple):
    """An effect that recovery would look at."""

    effect: Effect
    what: str


def unsettled(store: Store, now: int) -> Iterator[Unsettled]:
    """What dead processes left, and what is stuck; what a living one is working on is its own business."""
    from takeback.storage.leases import may_take
    from takeback.storage.process import alive

    for info in store.journal.runs(unfinished=True):
        lease = store.leases.holder(info.id)
        if lease and not may_take(lease, now, alive):
            continue
        for effect in store.journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED))):
            yield Unsettled(effect, "would be finished or taken back, by where its target stands")
        if info.on_death is OnDeath.UNDO and info.state is RunState.OPEN:
            for effect in store.journal.effects(Query(run=info.id, states=(State.DONE,), newest=True)):
                if not effect.kept and not effect.is_undo:
                    yield Unsettled(effect, "would be taken back with its run, which died")
    for effect in store.journal.effects(Query(states=(State.STUCK,))):
        yield Unsettled(effect, "is stuck; its target would be looked at again")


def status_json(status: Status) -> dict[str, Any]:
    return {
        "store": status.path,
        "exists": True,
        "size": status.size,
        "records": status.records,
        "effects": {
            "pending": status.states[State.PROPOSED],
            "open": status.open,
            **status.states,
            "kept": status.kept,
            "forgettable": status.forgettable,
            "forgotten": status.forgotten,
        },
        "runs": {
            "open": status.runs(RunState.OPEN),
            "suspended": status.runs(RunState.SUSPENDED),
        },
        "settings": status.settings._asdict(),
        "suspect": status.suspect,
        "read_only": status.read_only,
    }
