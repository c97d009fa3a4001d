"""After a crash: settle every open effect, then let dead runs follow their own policy."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from takeback.adapters.protocol import Adapter
from takeback.engine.close_run import cannot_end, close, close_rolled_back
from takeback.engine.parts import Parts, adapter_of, whole
from takeback.engine.pipelined import AskedOnce
from takeback.engine.plan import Wishes
from takeback.engine.portion import meant
from takeback.engine.settle import BEGUN, abort, finish, take_back
from takeback.engine.settled import Cause, Settled, finished, functions_of, not_undone, told_of, verb_of
from takeback.engine.undo import BRINGING_BACK, bring_back, carry_out, not_accepted, roll_back
from takeback.errors import Corrupt, Failed, InDoubt, LeaseHeld, Refused, Stuck, TakebackError, Unavailable
from takeback.model.change import OnConflict
from takeback.model.effect import COMMAND, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import ONLY, Plan, Sighting, Standing, in_turn
from takeback.model.record import Draft, Kind
from takeback.model.resource import function_in
from takeback.model.run import Lease, OnDeath, Owner, RunInfo, RunState
from takeback.storage.protocols import Query

TIDY, APPLY, UNDO = "tidy", "apply", "undo"
DONE, ABORT, STICK = "done", "abort", "stick"


class Step(NamedTuple):
    act: str  # what is done to the world first: tidy alone, apply, or undo
    record: str  # how the effect is settled


# What recovery does with an open effect, by what it is and where the world stands (with respect to the effect itself:
# for an undo, AFTER means that it has taken back what it undoes). The documentation prints this table.
RECOVERY: dict[tuple[str, Standing], Step] = {
    ("proposed", Standing.BEFORE): Step(TIDY, ABORT),
    ("proposed", Standing.BETWEEN): Step(TIDY, ABORT),
    ("proposed", Standing.AFTER): Step(TIDY, ABORT),
    ("proposed", Standing.FOREIGN): Step(TIDY, ABORT),
    ("proposed", Standing.UNKNOWN): Step(TIDY, ABORT),
    ("do", Standing.BEFORE): Step(TIDY, ABORT),
    ("do", Standing.BETWEEN): Step(UNDO, ABORT),
    ("do", Standing.AFTER): Step(TIDY, DONE),
    ("do", Standing.FOREIGN): Step("", STICK),
    ("do", Standing.UNKNOWN): Step("", STICK),
    # A transaction that was held and is being applied: that is decided.
    ("apply", Standing.BEFORE): Step(TIDY, ABORT),
    ("apply", Standing.BETWEEN): Step(APPLY, DONE),
    ("apply", Standing.AFTER): Step(TIDY, DONE),
    ("apply", Standing.FOREIGN): Step("", STICK),
    ("apply", Standing.UNKNOWN): Step("", STICK),
    ("undo", Standing.BEFORE): Step(APPLY, DONE),
    ("undo", Standing.BETWEEN): Step(APPLY, DONE),
    ("undo", Standing.AFTER): Step(TIDY, DONE),
    ("undo", Standing.FOREIGN): Step("", STICK),
    ("undo", Standing.UNKNOWN): Step("", STICK),
    # Its outcome cannot be looked up, but a second call with the same key counts once.
    ("again", Standing.UNKNOWN): Step(APPLY, DONE),
    # A person had a look: what is someone else's by now stays stuck.
    ("stuck", Standing.BEFORE): Step(TIDY, ABORT),
    ("stuck", Standing.BETWEEN): Step(UNDO, ABORT),
    ("stuck", Standing.AFTER): Step(TIDY, DONE),
    # An undo was asked for and stays asked for: it is tried again, and stays stuck if it fails again.
    ("stuck undo", Standing.BEFORE): Step(APPLY, DONE),
    ("stuck undo", Standing.BETWEEN): Step(APPLY, DONE),
    ("stuck undo", Standing.AFTER): Step(TIDY, DONE),
}


RECORDED = "what was changed there until now is recorded and stays; `takeback undo` takes it back"


def recover(
    parts: Parts,
    me: Owner,
    now: int,
    lasts: int,
    *,
    stuck_too: bool = False,
    only: str = "",
    calls: bool = True,
    tell: Callable[[str], None] = lambda words: None,
) -> tuple[Settled, ...]:
    """Settle what dead processes left. What a living process is working on is left alone. Without `calls` nothing is
    settled for which a function would have to be called; with it, `tell` says which before they are."""
    parts = parts._replace(adapters=AskedOnce(parts.adapters))
    settled: list[Settled] = []
    left_alone: set[str] = set()
    states = (State.PROPOSED, State.INTENDED) + ((State.STUCK,) if stuck_too else ())
    for info in list(parts.journal.runs(unfinished=True)):
        # The worker that continues a workflow settles its open calls, and knows its functions.
        if info.on_death is OnDeath.RESUME or (only and info.id != only):
            left_alone.add(info.id)
            continue
        functions = functions_of(parts.journal, info)
        alone = bool(functions) and not calls
        if alone:
            left_alone.add(info.id)
        if not _is_left(parts, info, states, alone):
            continue
        try:
            lease = parts.leases.acquire(info.id, me, now, lasts)
        except LeaseHeld:
            continue
        try:
            if alone:
                settled += settle_all(parts, lease, _without_calls(open_in(parts, info.id, states)))
                continue
            if functions:
                tell(
                    f"Settling run {short(info.id)} ({info.name}) calls functions of {', '.join(functions)}."
                )
            settled += _settle_run(parts, lease, states)
        finally:
            parts.leases.release(lease)
    told = {one.effect for one in settled}
    # Of a run that has ended: a held effect that was being applied when its process died.
    left = (State.INTENDED, State.STUCK) if stuck_too else (State.INTENDED,)
    if not only:
        settled += _of_ended_runs(parts, me, now, lasts, told, left, left_alone, calls)
    # Told once, as it stands at the end: one that was found made may have been taken back with its run.
    return tuple({one.effect: one for one in settled}.values())


def _is_left(parts: Parts, info: RunInfo, states: tuple[State, ...], alone: bool) -> bool:
    """Whether there is something to settle; `alone`: only what needs no functions."""
    found = open_in(parts, info.id, states)
    if alone:
        return bool(_without_calls(found))
    if info.on_death is not OnDeath.LEAVE and info.state is not RunState.SUSPENDED:
        return True
    if _in_flight(found):
        return True
    # Whether a session of the run holds a transaction open; it cannot outlive its process.
    held = parts.journal.effects(Query(run=info.id, states=(State.PROPOSED,)))
    return any(one.phase.reviewed is not None and one.phase.reviewed.how == "open" for one in held)


def _settle_run(parts: Parts, lease: Lease, states: tuple[State, ...]) -> list[Settled]:
    """Settle its open effects; then end it, unless it waits for something."""
    # Looked at again under the lease: it may have ended well in between.
    (info,) = parts.journal.runs((lease.run,))
    settled = settle_open(parts, lease, states)
    # The authors of changes after its watcher died are unknown: they are recorded, and a person decides.
    unwatched = {one.effect for one in settled if one.cause is Cause.UNWATCHED}
    if info.state is RunState.OPEN:
        from takeback.engine.review import settle_reviewed

        ended = "was held by a session that has ended"
        gone = settle_reviewed(parts, lease)
        settled += [Settled(one.id, one.run, one.change.summary, "aborted", ended) for one in gone]
    if info.state is RunState.OPEN and not cannot_end(parts, info.id):
        settled += _end(parts, lease, info, unwatched)
    return settled


def settle_open(
    parts: Parts, lease: Lease, states: tuple[State, ...] = (State.PROPOSED, State.INTENDED)
) -> list[Settled]:
    """What this run left in flight, newest first."""
    return settle_all(parts, lease, open_in(parts, lease.run, states))


def open_in(
    parts: Parts, run: str, states: tuple[State, ...] = (State.PROPOSED, State.INTENDED)
) -> tuple[Effect, ...]:
    return tuple(parts.journal.effects(Query(run=run, states=states, newest=True)))


def settle_all(parts: Parts, lease: Lease, found: Iterable[Effect]) -> list[Settled]:
    return [_settle(parts, lease, effect) for effect in _in_flight(found)]


def _in_flight(found: Iterable[Effect]) -> tuple[Effect, ...]:
    """Effects that wait for a person block nothing and stay."""
    return tuple(effect for effect in found if effect.waits_for != PERSON)


def _without_calls(found: Iterable[Effect]) -> tuple[Effect, ...]:
    """Those of them that can be settled though the rest of their run needs functions to be called."""
    return tuple(one for one in _in_flight(found) if not function_in(one.change.resource))


def _settle(parts: Parts, lease: Lease, effect: Effect) -> Settled:
    odd = ""
    try:
        effect = whole(parts, effect)
        if effect.waits_for == COMMAND:
            return _settle_watched(parts, lease, effect)
        outcome, odd = _settled(parts, lease, adapter_of(parts, effect.change.adapter), effect)
        if outcome == "aborted" and effect.dropped:
            detail = (
                f"had not been completed; taken back, and `takeback apply {short(effect.id)}` tries again"
            )
            return Settled(effect.id, effect.run, effect.change.summary, "aborted", detail)
        if outcome == "aborted" and effect.phase.was_held:
            return _held_again(parts, effect)
    except Stuck:
        outcome = "stuck"
    except (Unavailable, InDoubt) as error:
        # What tells whether it happened cannot be asked now; nothing is decided until it can.
        return Settled(effect.id, effect.run, effect.change.summary, "left", str(error), Cause.IN_DOUBT)
    except Corrupt as damage:
        # One damaged record must not keep every other run from being settled.
        outcome = _stuck(parts, lease, effect, str(damage))
    settled = Settled(effect.id, effect.run, effect.change.summary, outcome)
    if effect.is_undo and outcome == "done":
        return finished(settled, effect.of)
    if effect.is_undo and outcome == "aborted":
        return settled._replace(detail=f"the {verb_of(effect.of)} had not begun")
    return settled._replace(detail=f"needs a person: {odd}") if outcome == "stuck" and odd else settled


def _held_again(parts: Parts, effect: Effect) -> Settled:
    from takeback.engine.held import held_again

    again = held_again(parts, effect)
    detail = f"had not been completed; taken back, and held again as {short(again.id)}"
    return Settled(effect.id, effect.run, effect.change.summary, "aborted", detail)


def _settle_watched(parts: Parts, lease: Lease, effect: Effect) -> Settled:
    from takeback.engine.watch import NOTHING, settle

    told = Settled(effect.id, effect.run, effect.change.summary, "")
    try:
        parts.refuse_without_room(0)
        found = settle(parts, lease, effect)
    except (Unavailable, InDoubt, Refused) as error:
        parts.blobs.disown()  # else the next record of any process would fail because of the loss
        return told._replace(outcome="left", detail=str(error))
    if found is None:
        return told._replace(outcome="aborted", detail=NOTHING)
    return told._replace(outcome="done", detail=RECORDED, cause=Cause.UNWATCHED)


def _settled(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect) -> tuple[str, str]:
    """The outcome; and what is someone else's, if that is why it is stuck."""
    sighting = adapter.verify(effect) if effect.remedy else None
    standing = sighting.standing if sighting else Standing.BEFORE
    stuck = "stuck undo" if effect.is_undo else "stuck"
    row = {State.PROPOSED: "proposed", State.STUCK: stuck}.get(effect.state)
    making = "undo" if effect.is_undo else "apply" if effect.phase.reviewed else "do"
    if sighting and sighting.again and row != "proposed":
        row = "again"
    step = RECOVERY.get((row or making, standing))
    detail = sighting.detail if sighting else ""
    if effect.begun and standing is not Standing.BEFORE:
        return "stuck", detail or BEGUN  # that it is visible does not mean that it was not compensated
    if step is None:
        return "stuck", detail
    why = f"Its process ended in the middle; the target was found {standing.value}."
    if step.record == STICK:
        return _stuck(parts, lease, effect, f"{why} {detail[:1].upper()}{detail[1:]}".strip()), detail
    if step.act == UNDO:
        take_back(parts, lease, adapter, effect, why)
        return "aborted", ""
    if step.act == APPLY:
        try:
            effect = effect._replace(receipt=adapter.apply(effect).data)
            if (seen := adapter.verify(effect)).standing is not Standing.AFTER:
                why = f"{why} It could not be completed: {seen.detail}"
                return _stuck(parts, lease, effect, why), seen.detail
        except (OSError, TakebackError) as error:
            if adapter.traits.marks and isinstance(error, (Unavailable, InDoubt)):
                raise
            return _stuck(parts, lease, effect, f"{why} It could not be completed: {error}"), str(error)
    if step.record == DONE:
        finish(parts, lease, adapter, effect, _receipt(adapter, effect, sighting))
        return "done", ""
    abort(parts, lease, adapter, effect, why)
    return "aborted", ""


def _receipt(adapter: Adapter, effect: Effect, first: Sighting | None) -> dict[str, Any]:
    """What its process did not live to tell; it may have come about only now."""
    if first and first.standing is Standing.AFTER:
        return first.receipt
    if effect.receipt:
        return effect.receipt
    return adapter.verify(effect).receipt if adapter.traits.marks else {}


def _stuck(parts: Parts, lease: Lease, effect: Effect, why: str) -> str:
    if effect.state is not State.STUCK:
        parts.journal.append(lease, [Draft(Kind.STICK, effect.run, effect.id, {"why": why})])
    return "stuck"


def _end(parts: Parts, lease: Lease, info: RunInfo, unwatched: Collection[str] = ()) -> list[Settled]:
    """A dead run follows its own policy."""
    if info.on_death is OnDeath.LEAVE:
        return []
    if info.on_death is OnDeath.ACCEPT:
        close(parts, lease, RunState.ACCEPTED)
        return []
    if info.on_death is OnDeath.FINISH:
        return _finish_undo(parts, lease, info)
    going = tuple(one for one in not_accepted(parts, info.id) if one.id not in unwatched)
    result = roll_back(parts, lease, going, info.agent)
    stays = (RunState.PARTLY if going else RunState.ACCEPTED) if unwatched else RunState.UNDONE
    close_rolled_back(parts, lease, result, stays.value)
    return told_of(parts, result, info)


def end_undo(parts: Parts, lease: Lease, info: RunInfo) -> None:
    """An undo that met an error, in the process that met it: as recovery would."""
    settle_open(parts, lease)
    if not cannot_end(parts, info.id):
        _finish_undo(parts, lease, info)


def _finish_undo(parts: Parts, lease: Lease, info: RunInfo) -> list[Settled]:
    """Continue an undo of several effects where it stopped; the first record of the run says what was asked for. If it
    was on its way back because not everything could be undone, continue with that."""
    opened, *more = parts.journal.records(kinds=(Kind.OPEN,), run=info.id)
    wanted = tuple(opened.body.get("undoing", ()))
    if any(record.body.get(BRINGING_BACK) for record in more):
        return _bring_all_back(parts, lease, info, wanted)
    only = frozenset(opened.body[ONLY]) if ONLY in opened.body else None
    on_conflict = OnConflict(opened.body.get("on_conflict", OnConflict.SKIP))
    wishes = Wishes(on_conflict=on_conflict, only=only)
    found = parts.journal.effects(Query(ids=wanted, newest=True)) if wanted else ()
    over = _decided(parts, info.id)
    todo = (one for one in found if one.state is State.DONE and one.id not in over)
    left = in_turn(whole(parts, meant(parts, one, only)) for one in todo)
    try:
        result = carry_out(parts, lease, Plan(tuple(left), ()), wishes, info.agent)
    except (Refused, Failed, Corrupt) as error:
        # All or nothing was asked for, and by now it cannot be all.
        return _bring_all_back(parts, lease, info, wanted, str(error))
    close_rolled_back(parts, lease, result, RunState.ACCEPTED.value)
    return told_of(parts, result, info)


def _decided(parts: Parts, run: str) -> set[str]:
    """What this undo has taken back before, or a person took in hand when it got stuck: that is not done again."""
    made = parts.journal.effects(Query(run=run, undos=True, states=(State.DONE, State.UNDONE, State.ABORTED)))
    return {one.undoes for one in made if one.state is not State.ABORTED or one.given_up}


def _bring_all_back(
    parts: Parts, lease: Lease, info: RunInfo, wanted: tuple[str, ...], why: str = ""
) -> list[Settled]:
    done = parts.journal.effects(Query(run=info.id, states=(State.DONE,)))
    made = [effect for effect in done if effect.undoes in wanted]
    bring_back(parts, lease, made, info.agent)
    close(parts, lease, RunState.UNDONE)
    left = parts.journal.effects(Query(ids=wanted, newest=True, damaged_too=True)) if wanted else ()
    why = f"all or nothing was asked for, and it could not be all. {why}".strip()
    return [not_undone(effect, info, why) for effect in left]


def _of_ended_runs(
    parts: Parts,
    me: Owner,
    now: int,
    lasts: int,
    told: set[str],
    states: tuple[State, ...],
    but: set[str],
    calls: bool,
) -> list[Settled]:
    settled: list[Settled] = []
    for effect in list(parts.journal.effects(Query(states=states))):
        if effect.id in told or effect.run in but or (not calls and function_in(effect.change.resource)):
            continue
        try:
            lease = parts.leases.acquire(effect.run, me, now, lasts)
        except LeaseHeld:
            continue
        try:
            # Looked at again under the lease: it may have been settled in between.
            fresh = next(parts.journal.effects(Query(ids=(effect.id,), damaged_too=True)), effect)
            if fresh.state in states:
                settled.append(_settle(parts, lease, fresh))
        finally:
            parts.leases.release(lease)
    return settled
