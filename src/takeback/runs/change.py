"""How a run makes changes: one after the other, each with a key of its own."""

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.engine.write import Terms, do
from takeback.errors import (
    Drifted,
    InDoubt,
    LeaseLost,
    Spent,
    Stopped,
    StoreBusy,
    Stuck,
    TakebackError,
    Unavailable,
)
from takeback.model.change import EDIT, Change, intent
from takeback.model.effect import DropReason, Effect, State
from takeback.model.ids import new_id
from takeback.model.record import canonical
from takeback.model.run import RunState
from takeback.policy.checks import Check
from takeback.runs import checkpoints
from takeback.runs.core import RunCore
from takeback.runs.selection import needed_by
from takeback.runs.workflows.durable import raise_again, unbroken
from takeback.runs.workflows.function import digest_of
from takeback.runs.workflows.replay import CHANGE, Replay, WorkflowStep, error_to_json
from takeback.storage.protocols import Query

TURN_SECONDS = 10


class Options(NamedTuple):
    """What every change may carry."""

    key: str = ""
    needs: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    expects: Callable[[], bool] | None = None
    allow_inexact: bool = False
    # In a workflow: what was asked for, as a digest and in words, where that is known before names are resolved.
    asked: str = ""
    says: str = ""
    apart: bool = False  # it calls the function of another: no lock is held during the call


class TakenStep(NamedTuple):
    """A step of a workflow that was asked for."""

    step: int
    says: str
    asked: str
    recorded: WorkflowStep | None
    change: Callable[[], Change]


def make_change(core: RunCore, build: Callable[[], Change], options: Options) -> Effect | None:
    if options.apart:
        return _change_now(core, build, options)
    with core.lock:
        return _change_now(core, build, options)


def _change_now(core: RunCore, build: Callable[[], Change], options: Options) -> Effect | None:
    core.refuse_ended()
    if core.part_of:
        return _make(core, _built(build, options), options, *core.part_of)
    if core.replay is not None:
        return make_step(core, core.replay, take_step(core, core.replay, build, options), options)
    return _make(core, _built(build, options), options)


def _built(build: Callable[[], Change], options: Options) -> Change:
    change = build()
    return (
        change._replace(facts=change.facts._replace(allow_inexact=True)) if options.allow_inexact else change
    )


def _make(
    core: RunCore, change: Change, options: Options, step: int = 0, asked: str = "", fresh: bool = False
) -> Effect | None:
    """The caller holds the lock until this is over, except for a call, which is made without it."""
    begun = ""  # the key of a call that others wait for
    try:
        with core.lock:
            core.refuse_ended()
            if earlier := core.calls.answered(change, core.now):
                return earlier
            key, own = _keys(core, change, options, step)
            if options.apart:
                core.calls.begin(own)
                begun = own
        if begun:
            core.refuse_ended()
        if key:
            _settle_its_run(core, key)
        terms = _terms(core, own, options)._replace(step=step, asked=asked, fresh=fresh and not key)
        effect = _do_in_turn(core, change, terms, options.apart)
        if effect:
            took_hold(core, effect)
        return effect
    except BaseException:
        if begun and not options.key and not step:
            core.calls.failed(change, begun)
        raise
    finally:
        if begun:
            core.calls.end(begun)


def _keys(core: RunCore, change: Change, options: Options, step: int) -> tuple[str, str]:
    """The key that was given, and the one that it gets."""
    key = options.key
    if key and core.replay is not None and core.replay.history.turns and not traits_of(change).calls:
        # What had this key was taken back when the run went back to a checkpoint, and is asked for again.
        key = f"{key}~{core.replay.history.turns}"
    if key:
        return key, key
    return "", core.calls.key_of(change) if options.apart and not step else next_key(core, change, step)


def _terms(core: RunCore, key: str, options: Options) -> Terms:
    return Terms(
        key,
        needed_by(core.calls.books.journal, options.needs),
        options.checks,
        options.expects,
        agent=core.agent,
        asked_at=core.now(),
        patience=core.settings.approval_seconds * 1_000_000,
        held_back=core.uninterrupted,
        give_way=core.give_way,
    )


def take_step(
    core: RunCore, replay: Replay, build: Callable[[], Change], options: Options, beside: bool = False
) -> TakenStep:
    """In a workflow: the next step, and what is recorded of it."""
    with core.lock:
        core.refuse_ended()
        replay.refuse_gone()
        change = None if options.asked else _built(build, options)
        asked = options.asked or digest_of(intent(change)) if change else options.asked
        says = change.summary if change else options.says
        recorded = replay.take(CHANGE, says, asked, beside)
        return TakenStep(replay.at, says, asked, recorded, lambda: change or _built(build, options))


def make_step(core: RunCore, replay: Replay, taken: TakenStep, options: Options) -> Effect | None:
    """The effect that is recorded for this step, or a new one."""
    step, says, asked, recorded, build = taken
    if recorded:
        raise_again(recorded)
        return recorded.effect
    with unbroken(replay):
        try:
            change = build()
            with core.lock:
                effect = replay.made_earlier(change)
            if effect:
                core.append(replay.draft(CHANGE, says, asked, {"effect": effect.id}, step))
                return effect
            # Its key is made of the step, and of this one the journal has nothing, or it would have been recorded.
            effect = _make(core, change, options, step, asked, step not in replay.history.unmade)
        except (Spent, Stopped, Stuck, Unavailable, InDoubt):
            raise
        except TakebackError as error:
            core.append(replay.draft(CHANGE, says, asked, {"failed": error_to_json(error)}, step))
            raise
        if effect is None or effect.step != step:
            # It changed nothing, or another run made it under the same key.
            told = {"effect": effect.id} if effect else {"nothing": True}
            core.append(replay.draft(CHANGE, says, asked, told, step))
        return effect


def hold_change(core: RunCore, change: Change, options: Options) -> Effect | None:
    """Ready and not made: it waits for a person to apply or discard it."""
    from takeback.engine.held import hold

    with core.lock:
        core.refuse_ended()
        key = options.key or next_key(core, change)
        step, asked = core.part_of or (0, "")
        needs = needed_by(core.parts.journal, options.needs)
        terms = Terms(key, needs, agent=core.agent, step=step, asked=asked)
        effect = hold(core.parts, core.lease, change, terms)
        if effect:
            core.position += 1
        return effect


def drop_change(core: RunCore, change: Change, reason: DropReason, size: int | None = None) -> Effect | None:
    """Not made; for a while it can be applied after all."""
    from takeback.engine.drop import drop

    with core.lock:
        core.refuse_ended()
        effect = drop(core.parts, core.lease, change, Terms(agent=core.agent), reason, size)
        if effect:
            core.position += 1
        return effect


def took_hold(core: RunCore, effect: Effect) -> None:
    with core.lock:
        core.position += 1
        _count(core)


def _do_in_turn(core: RunCore, change: Change, terms: Terms, apart: bool = False) -> Effect | None:
    """While another process is changing the same thing we wait for it; what a dead one left is settled."""
    until = time.monotonic() + TURN_SECONDS
    while True:
        try:
            return do(core.calls.books, core.lease, change, terms)
        except (StoreBusy, Drifted) as error:
            # Setting a key means the same whatever else is in the file; other content may rest on what was read.
            # With checks in between there was time for a person to set that very key: then it is refused.
            again = isinstance(error, StoreBusy) or (change.kind == EDIT and not terms.checks)
            if not again or time.monotonic() > until:
                raise
            needed = error.effect
        if apart and _waited_for(core, needed, terms.key):
            until = time.monotonic() + TURN_SECONDS
        elif not _settle_own(core, terms.key if apart else "") and not _settle_the_dead(core, needed):
            time.sleep(0.01)
        terms = terms._replace(fresh=False)  # of what was tried there may be something now


def _waited_for(core: RunCore, effect: str | None, key: str) -> bool:
    """For a call of another thread of this run, about the same thing; that takes as long as it may take."""
    found = next(core.calls.books.journal.effects(Query(ids=(effect,))), None) if effect else None
    if found is None or found.key == key or found.key not in core.lock.under_way:
        return False
    core.calls.flush()
    core.lock.wait_for(found.key)
    return True


def _settle_own(core: RunCore, key: str) -> bool:
    """A step left in doubt that is requested again: with this key, or one that no other thread is working on."""
    from takeback.engine.recover import open_in, settle_all

    others = core.lock.under_way
    found = open_in(core.calls.books, core.id, (State.INTENDED,))
    mine = [one for one in found if (one.key == key if key else one.key not in others)]
    return any(one.outcome != "left" for one in settle_all(core.calls.books, core.lease, mine))


def _settle_the_dead(core: RunCore, needed: str | None) -> bool:
    """What needs no functions; and the run of the effect that is needed, which is said before it calls any."""
    from takeback.engine.recover import recover

    me, lasts = core.lease.owner, core.lasts
    if recover(core.parts, me, core.now(), lasts, calls=False):
        return True
    effect = next(core.calls.books.journal.effects(Query(ids=(needed,))), None) if needed else None
    if effect is None or effect.run == core.id:
        return False
    tell = core.parts.tell
    return bool(recover(core.parts, me, core.now(), lasts, only=effect.run, tell=tell))


def _settle_its_run(core: RunCore, key: str) -> None:
    """The same was made by a run that died, and goes back when that is settled: it is no answer before."""
    earlier = next(core.calls.books.journal.effects(Query(key=key)), None)
    if earlier and earlier.run != core.id and earlier.state is State.DONE and not earlier.accepted:
        (info,) = core.parts.journal.runs((earlier.run,))
        if info.state is RunState.OPEN and core.parts.leases.free(info.id, core.now()):
            _settle_the_dead(core, earlier.id)


def next_key(core: RunCore, change: Change, step: int = 0) -> str:
    """From run, position and intent: asked again at the same place, the same change has the same key. In a workflow
    the place is the step; what it asks for after it went back to a checkpoint is something else."""
    if any(database.in_transaction for database in core.databases):
        # Which of the two takes hold first is not known, so there is no place to be asked at again.
        return new_id()
    place = str(core.position + 1)
    if core.replay is not None:
        place = f"step {step or core.replay.at} turn {core.replay.history.turns}"
    told = canonical(intent(change))
    return hashlib.sha256(f"{core.id} {place} ".encode() + told).hexdigest()[:16]


def _count(core: RunCore) -> None:
    core.since_checkpoint += 1
    if core.replay and core.replay.beside:
        return  # a point between steps that are made at the same time would be behind some of them
    if core.settings.checkpoint_every and core.since_checkpoint >= core.settings.checkpoint_every:
        try:
            core.append(checkpoints.draft(core.id, f"after {core.position} effects", automatic=True))
        except LeaseLost:
            raise
        except (Unavailable, InDoubt):
            return  # the effect was made and is recorded; after the next one it is tried again
        core.since_checkpoint = 0
