"""Decide on held or dropped effects of any run: apply, drop or erase them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from takeback.engine.held import apply_held, discard_held, judged
from takeback.engine.parts import Parts
from takeback.engine.write import Terms
from takeback.errors import Conflict, Drifted, Refused
from takeback.model.change import Change, Phase
from takeback.model.effect import PERSON, Effect, State, waits_for_approval
from takeback.model.ids import short
from takeback.model.plan import Outcome, TargetOutcome, UndoResult
from takeback.model.remedy import Target
from takeback.model.resource import Ground, display
from takeback.model.run import Lease
from takeback.runs.lease import held_back
from takeback.storage.protocols import Query

_OF_COMMANDS = ("argv", "cwd", "exit_code", "coverage")
# Of a run, by its id: so that two who decide at once do not both.
Leased = Callable[[str], AbstractContextManager[Lease]]


def renewed(parts: Parts, change: Change) -> Change:
    """The same over the present content; that is captured, so undo brings it back."""
    from takeback.adapters.tree.rebase import renewed
    from takeback.adapters.tree.targets import put_targets, read_targets

    targets = renewed(parts.blobs, read_targets(parts.blobs, change.args["targets"]))
    return change._replace(
        args=change.args | {"targets": put_targets(parts.blobs, targets)},
        phase=change.phase._replace(first_targets=change.args["targets"]),
        facts=change.facts._replace(conflicts=()),
    )


def make_held(parts: Parts, effect: Effect, force: bool, leased: Leased, dry_run: bool = False) -> None:
    try:
        with nullcontext() if dry_run else leased(effect.run) as lease:
            (fresh,) = parts.journal.effects(Query(ids=(effect.id,)))
            change = fresh.change
            paths = "targets" in change.args  # else there is nothing to be overwritten path by path
            if paths:
                _refuse_hindered(parts, fresh, force)
            if dry_run and not change.phase.reviewed and not (force and paths):
                judged(parts, fresh, change)
            if force and paths and not dry_run:
                change = renewed(parts, change)
            if lease is not None:
                apply_held(parts, lease, fresh, change, Terms(fresh.key, held_back=held_back))
    except Drifted as error:
        if error.effect is None:  # else it got further, and that is reported
            error.hint = f"Nothing was changed. {_way_on(effect, error, force)}{_or_drop(effect)}."
        raise


def built_on(effects: Sequence[Effect]) -> dict[str, str]:
    """By effect: an earlier one of these that changes the same, so what it would find cannot be known yet; or ""."""
    ground, found = Ground(), dict[str, str]()
    for effect in effects:
        resources = [one.resource for one in effect.targets] or [effect.change.resource]
        found[effect.id] = ground.touched_by(resources)
        ground.add(resources, effect.id)
    return found


def _way_on(effect: Effect, error: Drifted, forced: bool) -> str:
    """Force overwrites paths; it changes nothing about the way to them, nor about where a box stands."""
    if forced or isinstance(error.__cause__, OSError) or "targets" not in effect.change.args:
        return error.way_on.rstrip(".")
    return f"`takeback apply --force {short(effect.id)}` captures the present content and overwrites it"


def _or_drop(effect: Effect) -> str:
    return "" if effect.dropped else f"; `takeback discard {short(effect.id)}` drops the held change"


def _refuse_hindered(parts: Parts, effect: Effect, force: bool) -> None:
    """Where even force would not help, before anything is recorded."""
    from takeback.adapters.tree.rebase import hindrance
    from takeback.adapters.tree.targets import read_targets

    if found := hindrance(read_targets(parts.blobs, effect.change.args["targets"])):
        again = f"`takeback apply {'--force ' if force else ''}{short(effect.id)}`"
        raise Conflict(
            f"{display(found.resource)} {found.why}.",
            hint=f"Nothing was changed. {found.by_hand}, then {again}{_or_drop(effect)}.",
            effect=effect.id,
            resources=(found.resource,),
        )


def refuse_unmade(effect: Effect, verb: str) -> None:
    """Only what happened can be accepted or pinned."""
    if effect.state in (State.DONE, State.UNDONE):
        return
    name = short(effect.id)
    hint = "Run `takeback recover` first."
    if effect.waits_for == PERSON:
        raise held_error(effect, verb)
    if effect.state is State.DROPPED:
        hint = f"It was dropped: `takeback apply {name}` makes it after all."
    elif effect.state is State.ABORTED:
        hint = f"It never happened: {effect.note or 'it was not completed.'}"
    elif effect.state is State.STUCK:
        hint = f"`takeback show {name}` shows what is known; `takeback undo {name}` takes it back."
    raise Refused(
        f"Effect {name} is {effect.state.value}; only a change that was made can be {verb}.",
        hint=hint,
        effect=effect.id,
    )


def held_error(effect: Effect, verb: str) -> Refused:
    """For a word that means a change that was made, said of one that is held."""
    name = short(effect.id)
    stands, ways = "is held", f"`takeback apply {name}` makes it, `takeback discard {name}` drops it."
    if waits_for_approval(effect):
        stands, ways = "waits for an approval", f"`takeback approve {name}` or `takeback deny {name}`."
    return Refused(
        f"Effect {name} {stands} and was not made, so it cannot be {verb}.",
        hint=ways,
        effect=effect.id,
    )


def refuse_unheld(effect: Effect, dropped: bool = True) -> None:
    """Held effects can be discarded or applied; dropped effects can be applied, unless `dropped` is False."""
    if effect.waits_for == PERSON or (dropped and effect.state is State.DROPPED):
        return
    name = short(effect.id)
    ways = f"`takeback show {name}` shows its state."
    if effect.state is State.DROPPED:
        ways = f"`takeback apply {name}` makes it after all, `takeback discard {name} --now` erases it."
    elif effect.state is State.ABORTED and effect.dropped:
        ways = "It was dropped, and what it would have changed is erased by now."
    elif effect.state is State.UNDONE:
        ways = f"It was made and then taken back: `takeback redo {name}` brings it back."
    elif effect.state is State.DONE:
        ways = (
            f"It was made: `takeback accept {name}` says that it stays, `takeback undo {name}` takes it back."
        )
    raise Refused(f"Effect {name} is {effect.state.value}, not held.", hint=ways, effect=effect.id)


def made_again(parts: Parts, effect: Effect, undo: Effect) -> Change:
    """The undone effect as a change that makes it again. The undo has saved all of it."""
    from takeback.adapters.tree.targets import command_change

    targets = [Target(one.resource, _plain(one.after), _plain(one.before)) for one in undo.targets]
    told = {name: effect.change.args[name] for name in _OF_COMMANDS if name in effect.change.args}
    where = display(effect.change.args.get("cwd", effect.change.resource))
    change = command_change(parts.blobs, where, effect.change.summary, targets, told)
    return change._replace(phase=Phase(taken_back_by=undo.id))


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """Without the name under which an inode is held: that goes with the undo."""
    return {name: value for name, value in state.items() if name != "held"}


def discard_all(parts: Parts, effects: Sequence[Effect], dry_run: bool, leased: Leased) -> UndoResult:
    gone = list(effects)
    for place, effect in enumerate(() if dry_run else effects):
        with leased(effect.run) as lease:
            (fresh,) = parts.journal.effects(Query(ids=(effect.id,)))
            gone[place] = discard_held(parts, lease, fresh)
    return as_undo(gone)


def as_undo(effects: Sequence[Effect]) -> UndoResult:
    """As the result of an undo: it had not been made, so all of it is as it was."""
    targets = tuple(
        TargetOutcome(target.resource, Outcome.UNDONE, "was held and is dropped", effect.id)
        for effect in effects
        for target in effect.targets
    )
    return UndoResult("done", tuple(effects), targets)
