"""Decisions of a running run: undo an effect, some of its paths or all after a checkpoint; accept, apply and
discard."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial

from takeback.engine.drop import Final, refusal
from takeback.engine.held import apply_held, discard_held
from takeback.engine.plan import Wishes
from takeback.engine.stop import refuse_stopped
from takeback.engine.stuck import Taker
from takeback.engine.undo import Undoer, not_accepted
from takeback.engine.undo import undo as take_back
from takeback.engine.write import Terms
from takeback.errors import Failed, Misuse, Refused, ResourceUnreachable
from takeback.model.effect import PERSON, DropReason, Effect, State
from takeback.model.plan import Plan, UndoResult
from takeback.model.record import Draft, Kind
from takeback.model.run import Checkpoint
from takeback.runs import checkpoints
from takeback.runs.change import Options, drop_change, hold_change
from takeback.runs.core import RunCore
from takeback.runs.held import as_undo, held_error, made_again, refuse_unmade
from takeback.runs.scope import effects_with_paths, resources_named
from takeback.runs.selection import name_of, standing_again
from takeback.runs.verbs import Path
from takeback.runs.workflows.durable import undo_once
from takeback.storage.owners import myself


def undo(
    core: RunCore,
    effect: "Effect | str | None",
    to: "str | Checkpoint | None",
    paths: "Sequence[Path] | None",
    wishes: Wishes,
    dry_run: bool,
) -> UndoResult:
    """In a workflow an undo is a step."""
    if paths is None:
        what = (
            name_of(effect) if effect is not None else name_of(to, "checkpoint") if to is not None else "all"
        )
    elif effect is None:
        raise Misuse("Paths are chosen of one effect.", hint="Give the effect: run.undo(effect, paths=[…]).")
    else:
        named = " ".join(sorted(names[0] for names in resources_named(paths)))
        what = f"{name_of(effect)} {named}"

    def now() -> UndoResult:
        with core.lock:
            if paths is not None and effect is not None:
                return _undo_paths(core, effect, paths, wishes, dry_run)
            return _undo_now(core, effect, to, wishes, dry_run)

    if dry_run or core.replay is None:
        return now()
    return undo_once(core, core.replay, what, wishes, now)


def _undo_paths(
    core: RunCore, effect: "Effect | str", paths: "Sequence[Path]", wishes: Wishes, dry_run: bool
) -> UndoResult:
    core.refuse_ended()
    more = wishes.cascade or wishes.with_needs
    chosen = effects_with_paths(core.parts, effect, paths, None, more)
    core.refuse_in_transaction(chosen.effects)
    result = undo_all(core, chosen.effects, wishes._replace(only=chosen.only), dry_run)
    return result._replace(along=chosen.along)


def _undo_now(
    core: RunCore, effect: "Effect | str | None", to: "str | Checkpoint | None", wishes: Wishes, dry_run: bool
) -> UndoResult:
    core.calls.quiet()
    core.refuse_ended()
    point = checkpoints.find(core.parts.journal, to, core.id) if to is not None else None
    if effect is not None:
        found = (core.effect(effect),)
    else:
        after = point.seq if point else 0
        found = tuple(one for one in not_accepted(core.parts, core.id) if one.order > after)
    wanted = tuple(each for one in found for each in standing_again(core.parts.journal, one))
    core.refuse_in_transaction(one for one in wanted if not one.waits_for)
    if wanted and wanted[0].waits_for == PERSON:
        raise held_error(wanted[0], "undone")
    state = checkpoints.state_of(core.parts.blobs, point)
    return undo_all(core, wanted, wishes, dry_run, point)._replace(state=state)


def undo_all(
    core: RunCore, wanted: Sequence[Effect], wishes: Wishes, dry_run: bool, point: Checkpoint | None = None
) -> UndoResult:
    with core.lock:
        core.refuse_ended()
        if any(one.is_undo for one in wanted):
            refuse_stopped(core.parts, core.agent, core.id)
        to_a_point = point is not None
        begin = partial(_begin, core, point)
        return take_back(
            core.parts, wanted, wishes, begin, dry_run=dry_run, to_a_point=to_a_point, always_begins=True
        )


@contextmanager
def _begin(core: RunCore, point: Checkpoint | None, plan: Plan) -> Generator[Undoer, None, None]:
    if point and (said := core.calls.go_back(point.seq)):
        core.append(said)
    with core.uninterrupted():
        yield Undoer(core.lease, core.agent, Taker(myself(), core.now(), core.lasts))


# What it says of single effects.


def accept(core: RunCore, effect: "Effect | str") -> None:
    with core.lock:
        core.refuse_ended()
        found = core.effect(effect)
        refuse_unmade(found, "accepted")
        if not _said_before(core, found):
            core.append(Draft(Kind.ACCEPT, core.id, found.id))


def apply(core: RunCore, effect: "Effect | str") -> None:
    with core.lock:
        core.refuse_ended()
        found = core.effect(effect)
        if _said_before(core, found):
            return
        terms = Terms(found.key, agent=core.agent, held_back=core.uninterrupted)
        if apply_held(core.parts, core.lease, found, found.change, terms).state is State.DONE:
            core.append(Draft(Kind.ACCEPT, core.id, found.id))


def _said_before(core: RunCore, effect: Effect) -> bool:
    """When the function of the workflow was called before."""
    return core.replay is not None and effect.accepted_by == "person"


def discard(core: RunCore, effect: "Effect | str") -> UndoResult:
    with core.lock:
        core.refuse_ended()
        found = core.effect(effect)
        if core.replay is not None and found.state in (State.ABORTED, State.DROPPED):
            return UndoResult("done", (found,), ())  # when it was called before
        return as_undo([discard_held(core.parts, core.lease, found)])


def drop_undone(
    core: RunCore,
    effect: Effect,
    result: UndoResult,
    hold: bool = False,
    reason: DropReason = DropReason.FAILED,
) -> tuple[Effect | None, Final | None]:
    """A command that was watched failed, and an undo took back what it had changed: for a while that can be
    applied after all, or until someone decides (`hold`). What comes of it, or why the store cannot hold it."""
    undo = next((one for one in result.undo if one.undoes == effect.id), None)
    if undo is None:
        return None, None
    size = sum(target.before.get("size", 0) for target in undo.targets)
    if not hold and (final := refusal(core.parts.drops, size)):
        return None, final
    try:
        change = made_again(core.parts, effect, undo)
        dropped = hold_change(core, change, Options()) if hold else drop_change(core, change, reason)
        return dropped, None
    except (Refused, Failed, ResourceUnreachable):
        core.parts.blobs.disown()
        return None, Final.UNREADABLE
