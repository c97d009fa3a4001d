"""The state of a store in numbers. The cost grows with the number of undos, not of effects."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.audit.alerts import Alert, alert_json, alerts
from takeback.audit.rehearsals import Unfit, unfit
from takeback.audit.runs import DeadRun, RunNow, as_they_stand, dead_json, dead_runs
from takeback.audit.views import climb_json, dropped_json, iso, stop_json
from takeback.engine.stop import stops
from takeback.model.effect import PERSON, Effect, State, waits_for_approval
from takeback.model.lifecycle import ACCEPTS
from takeback.model.run import RunInfo, RunState, is_due, needs_attention
from takeback.model.settings import Limits, Settings
from takeback.model.stop import Stop
from takeback.storage.disk import is_full
from takeback.storage.notes import GivenUp, untold
from takeback.storage.protocols import Query
from takeback.storage.sqlite.store import Store

if TYPE_CHECKING:
    from takeback.engine.approval import Proposal
    from takeback.engine.ladder import Climb

_LOOKED_AT = 50
# Of an undo that is stuck or in the making a person must hear all the same.
UNDOS_BY_STATE = """
SELECT state, accepted_by <> '', forgotten, count(*) FROM effects
WHERE undoes <> '' AND state IN ('done', 'undone', 'aborted')
GROUP BY 1, 2, 3
"""


_PARTLY = """
SELECT count(DISTINCT u.undoes) FROM effects u JOIN effects e ON e.id = u.undoes
WHERE u.undoes <> '' AND u.partial = 1 AND u.state = 'done' AND e.undoes = '' AND e.state = 'done'
"""
# Of those that are undone: by several undos of some paths, one of which was taken back since.
_MAYBE_BACK = """
SELECT DISTINCT u.undoes FROM effects u JOIN effects e ON e.id = u.undoes
WHERE u.undoes <> '' AND u.partial = 1 AND u.state = 'undone' AND e.undoes = '' AND e.state = 'undone'
"""


class Status(NamedTuple):
    path: str
    size: int  # bytes on disk
    records: int
    states: dict[str, int]  # effects by state; undos are counted on their own
    partly: int  # of those that are done: partly undone
    partly_back: int  # of those that are undone: a part was brought back
    undos: int  # in force
    accepted: int
    pinned: int
    forgotten: int
    forgettable: int  # accepted and not yet forgotten, undos too: what `forget` may choose from when their time is over
    unfinished: tuple[RunNow, ...]  # runs
    held: tuple[Effect, ...]  # ready, and waiting for a person
    drops: tuple[Effect, ...]  # dropped, and can still be applied
    proposals: "tuple[Proposal, ...]"  # what needs an approval, decided on or not
    in_doubt: tuple[Effect, ...]  # calls whose outcome is unknown
    settings: Settings
    limits: Limits
    pinned_bytes: int
    baseline_bytes: int  # of copies of watched directories; ways back may need some of the same bytes
    goes_next: "tuple[Effect, int] | None"  # the oldest that is accepted, and when its time is over
    given_up: tuple[GivenUp, ...]  # ways back that were given up, not reported yet
    suspect: bool
    retired: str  # what became of a store that takes nothing new
    read_only: bool
    full: bool  # there is no room on its disk for the few pages that a change needs
    attention: tuple[RunInfo, ...]  # runs of workflows that cannot continue without a person
    unclaimed: tuple[RunInfo, ...]  # those that are due, and no worker has taken
    dead: tuple[DeadRun, ...] = ()  # whose process is gone
    alerts: tuple[Alert, ...] = ()
    stops: tuple[Stop, ...] = ()  # in force
    unfit: tuple[Unfit, ...] = ()  # ways back that failed when they were tried or looked at last
    climbed: "tuple[Climb, ...]" = ()  # what was tried for those that are stuck now

    @property
    def approvals(self) -> tuple[Effect, ...]:
        """What waits for someone to say yes or no."""
        return tuple(one.effect for one in self.proposals if not one.decision and not one.never)

    @property
    def open(self) -> int:
        return self.states[State.PROPOSED] + self.states[State.INTENDED]

    def runs(self, state: RunState) -> int:
        return sum(1 for run in self.unfinished if run.state is state)


def look(store: Store, size: int, now: int) -> Status:
    tally = store.journal.tally()
    proposed = tuple(store.journal.effects(Query(states=(State.PROPOSED,))))
    states = {state.value: tally.get(state.value, 0) for state in State}
    accepted, forgotten = tally.get("accepted", 0), tally.get("forgotten", 0)
    forgettable, undos = max(0, accepted - forgotten), 0
    unfinished = tuple(store.journal.runs(unfinished=True))
    for state, was_accepted, was_forgotten, count in store.read(UNDOS_BY_STATE):
        states[state] -= count
        undos += count if state == State.DONE else 0
        accepted -= count if was_accepted else 0
        forgotten -= count if was_forgotten else 0
    return Status(
        path=store.name,
        size=size,
        records=tally["records"],
        states=states,
        partly=store.read(_PARTLY)[0][0] if undos else 0,
        partly_back=_partly_back(store) if undos else 0,
        undos=undos,
        accepted=accepted,
        pinned=tally.get("pinned", 0),
        forgotten=forgotten,
        forgettable=forgettable,
        held=tuple(one for one in proposed if one.waits_for == PERSON and not waits_for_approval(one)),
        drops=tuple(store.journal.effects(Query(states=(State.DROPPED,)))) if tally.get("dropped") else (),
        proposals=_proposals(store, now) if any(map(waits_for_approval, proposed)) else (),
        in_doubt=tuple(in_doubt_now(store, now)),
        unfinished=as_they_stand(store, unfinished),
        settings=store.settings,
        limits=store.limits(),
        pinned_bytes=_pinned_bytes(store) if tally.get("pinned") else 0,
        baseline_bytes=_baseline_bytes(store),
        goes_next=_goes_next(store),
        given_up=_given_up(store),
        suspect=store.suspect(),
        retired=store.retired,
        read_only=store.read_only,
        full=is_full(store.path),
        attention=tuple(info for info in unfinished if needs_attention(info)),
        unclaimed=tuple(info for info in unfinished if is_due(info, now) and store.leases.free(info.id, now)),
        dead=dead_runs(store, now),
        alerts=alerts(store, now),
        stops=stops(store.journal),
        unfit=unfit(store.journal),
        climbed=_climbed(store) if tally.get(State.STUCK.value) else (),
    )


def _climbed(store: Store) -> "tuple[Climb, ...]":
    from takeback.engine.ladder import climbs, stuck_now

    return climbs(store.journal, stuck_now(store.journal))


def _partly_back(store: Store) -> int:
    ids = tuple(id for (id,) in store.read(_MAYBE_BACK))
    if not ids:
        return 0
    from takeback.engine.portion import brought_back

    return sum(bool(brought_back(store.journal, one)) for one in store.journal.effects(Query(ids=ids)))


def _pinned_bytes(store: Store) -> int:
    effects = store.journal.effects(Query(pinned=True, remembered=True))
    blobs = {blob for one in effects for blob in (one.remedy.blobs if one.remedy else ())}
    return sum(info.stored for info in store.blobs.info(tuple(blobs))) if blobs else 0


def _baseline_bytes(store: Store) -> int:
    directory = os.path.join(store.path, "watch")
    if store.read_only or not os.path.isdir(directory):
        return 0
    from takeback.adapters.watch.index import digests_in

    kept = set(digests_in(directory))
    return sum(info.stored for info in store.blobs.info() if info.digest in kept) if kept else 0


def _goes_next(store: Store) -> tuple[Effect, int] | None:
    """It may stay longer, for the sake of an earlier one; and go earlier, when there is no room."""
    found = store.journal.effects(Query(forgettable=True, made=True, limit=_LOOKED_AT))
    effect = next((one for one in found if not one.pinned), None)
    if effect is None:
        return None
    began = max((info.closed_at for info in store.journal.runs((effect.run,))), default=0)
    if effect.accepted_by == "person":
        said = store.journal.records(kinds=ACCEPTS, effect=effect.id)
        began = max((record.at for record in said), default=began)
    return effect, (began or effect.at) + store.settings.accepted_seconds * 1_000_000


def _given_up(store: Store) -> tuple[GivenUp, ...]:
    """As noted; what is not forgotten after all is left out."""
    noted = untold(store.path)
    ids = tuple(one.effect for one in noted)
    found = store.journal.effects(Query(ids=ids, damaged_too=True)) if ids else ()
    forgotten = {one.id for one in found if one.forgotten or one.state is State.ABORTED}
    return tuple(one for one in noted if one.effect in forgotten)


def _proposals(store: Store, now: int) -> "tuple[Proposal, ...]":
    from takeback.engine.approval import proposals

    return proposals(store, now)


def in_doubt_now(store: Store, now: int) -> Iterator[Effect]:
    """An effect that a live process is making is not in doubt."""
    for effect in store.journal.effects(Query(states=(State.INTENDED, State.STUCK))):
        if not traits_of(effect.change).calls:
            continue
        if effect.state is State.STUCK or store.leases.free(effect.run, now):
            yield effect


def status_json(status: Status) -> dict[str, Any]:
    return {
        "store": status.path,
        "exists": True,
        "size": status.size,
        "records": status.records,
        "effects": {
            "pending": status.states[State.PROPOSED],
            "held": len(status.held),
            "open": status.open,
            **status.states,
            "partly_undone": status.partly + status.partly_back,
            "undos": status.undos,
            "accepted": status.accepted,
            "pinned": status.pinned,
            "forgettable": status.forgettable,
            "forgotten": status.forgotten,
        },
        "held": [effect.id for effect in status.held],
        "drops": [
            {"effect": one.id, "summary": one.change.summary, **(dropped_json(one) or {})}
            for one in status.drops
        ],
        "approvals": [effect.id for effect in status.approvals],
        "decided": [one.effect.id for one in status.proposals if one.decision],
        "in_doubt": [effect.id for effect in status.in_doubt],
        "runs": {
            "open": status.runs(RunState.OPEN),
            "suspended": status.runs(RunState.SUSPENDED),
        },
        "attention": [
            *(info.id for info in (*status.attention, *(one.info for one in status.dead))),
            *(one.effect for one in status.given_up),
        ],
        "ladder": [climb_json(one) for one in status.climbed],
        "stops": [stop_json(one) for one in status.stops],
        "dead": [dead_json(one) for one in status.dead],
        "unfit": [{"effect": one.effect.id, "at": iso(one.at), "detail": one.why} for one in status.unfit],
        "unclaimed": [info.id for info in status.unclaimed],
        "alerts": [alert_json(one) for one in status.alerts],
        "settings": status.settings._asdict(),
        "limits": {"store_bytes": status.limits.store, "free_bytes": status.limits.free},
        "pinned_bytes": status.pinned_bytes,
        "baseline_bytes": status.baseline_bytes,
        "goes_next": {"effect": status.goes_next[0].id, "at": iso(status.goes_next[1])}
        if status.goes_next
        else None,
        "given_up": [
            {"effect": one.effect, "bound": one.bound.value, "setting": one.bound.setting, "limit": one.limit}
            for one in status.given_up
        ],
        "suspect": status.suspect,
        "retired": status.retired,
        "read_only": status.read_only,
        "full": status.full,
    }
