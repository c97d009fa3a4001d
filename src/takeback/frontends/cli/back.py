"""`undo redo keep`: take back, bring back, keep."""

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from takeback.api import now
from takeback.audit.views import effect_json, undo_json
from takeback.errors import Blocked, Conflict, Misuse, Refused, StoreBusy, Stuck, TakebackError
from takeback.frontends.cli.commands import Asked, Command
from takeback.frontends.cli.opening import (
    agent_of,
    existing,
    give,
    made_since,
    nothing_recorded,
    nothing_yet,
)
from takeback.frontends.cli.output import clean, counted, error_json, took
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.resource import display
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.run import RunInfo

EXIT_CODES = {"done": 0, "planned": 0, "partial": 1, "refused": 3, "stuck": 4}
_MOST_LISTED = 10


def _conflict_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what someone changed since").add_mutually_exclusive_group()
    names = {"merge": "--merge", "skip": "--skip-conflicts", "force": "--force"}
    helps = {
        "merge": "keep both where the text can be merged",
        "skip": "leave it and do the rest",
        "force": "overwrite it; it is captured first, redo brings it back",
    }
    for value, option in names.items():
        group.add_argument(
            option, action="store_const", const=value, dest="on_conflict", default="refuse", help=helps[value]
        )


def _undo_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="effects, or runs by id or name; none: the newest effect that is done",
    )
    parser.add_argument("--run", metavar="R", help="everything of this run that is not kept by name")
    parser.add_argument("--to", metavar="CHECKPOINT", help="what its run did after this point")
    parser.add_argument("--cascade", action="store_true", help="also later effects that stand on these")
    parser.add_argument("--with-needs", action="store_true", help="also what these were built on")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--agent", metavar="A", help="who does it (else TAKEBACK_AGENT, else cli)")
    _conflict_arguments(parser)


def _undo(asked: Asked) -> int:
    options = asked.options
    if bool(options.ids) + bool(options.run) + bool(options.to) > 1:
        raise Misuse(
            "Only one of ID, --run and --to can be given.", hint="`takeback undo --help` shows an example."
        )
    if nothing_yet(asked) and not (options.ids or options.run or options.to):
        raise Refused(nothing_recorded(asked), hint="There is nothing to undo.")
    wishes: dict[str, Any] = {
        "dry_run": options.dry_run,
        "cascade": options.cascade,
        "with_needs": options.with_needs,
        "on_conflict": options.on_conflict,
        "agent": agent_of(asked),
    }
    with existing(asked) as tb:
        started = time.perf_counter()
        try:
            with _told_if_interrupted(asked, tb):
                if options.to:
                    result = tb.undo_to(options.to, **wishes)
                elif options.run:
                    result = tb.undo(tb.find_run(options.run), **wishes)
                else:
                    named: list[Any] = [_named(tb, name) for name in options.ids]
                    result = tb.undo(named or [_newest_done(tb)], **wishes)
        except (Refused, Stuck, StoreBusy) as error:
            return _refused(asked, tb, error)
        return _tell(asked, tb, result, started, ("Took back", "take back", "undone"))


@contextmanager
def _told_if_interrupted(asked: Asked, tb: "Takeback") -> Iterator[None]:
    """A signal is heard when the undo is finished: then it is too late to return a result, not to tell of it."""
    started = now()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        asked.made[:] = made_since(tb, started)
        raise


def _named(tb: "Takeback", name: str) -> "str | RunInfo":
    """An effect or a run by its id, or a run by its name."""
    if name.startswith("@") or tb.store.journal.resolve(name.lower()):
        return name
    return next((info for info in reversed(tb.runs()) if name and info.name == name), name)


def _newest_done(tb: "Takeback") -> Effect:
    """What was done last. It must not be passed over because it is still being made, or stuck."""
    limit, states = 20, (State.DONE, *OPEN_STATES)
    unsettled: Effect | None = None
    while True:
        newest = tuple(tb.store.journal.effects(Query(states=states, newest=True, limit=limit)))
        for effect in newest:
            if effect.state is not State.DONE:
                unsettled = unsettled or effect
            elif not effect.is_undo:
                _refuse_unsettled(
                    unsettled, f"An earlier one can be named: `takeback undo {short(effect.id)}`."
                )
                return effect
        if len(newest) < limit:
            _refuse_unsettled(unsettled, "")
            raise Refused("There is nothing to undo.", hint="`takeback log` shows what happened.")
        limit *= 8


def _refuse_unsettled(effect: Effect | None, other: str) -> None:
    if effect is None:
        return
    what = f"The newest effect, {short(effect.id)} ({effect.change.summary}),"
    if effect.state is State.STUCK:
        raise Stuck(
            f"{what} is stuck: {effect.note or 'it waits for a person.'}",
            hint=f"`takeback show {short(effect.id)}` tells what is known; put it right, then run "
            f"`takeback recover`. {other}".strip(),
            effect=effect.id,
        )
    raise StoreBusy(
        f"{what} is still being made.",
        hint=f"Wait until it is done, then try again. {other}".strip(),
        effect=effect.id,
    )


def _redo_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="what was undone, or the undo; none: what was undone last"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--agent", metavar="A", help="who does it (else TAKEBACK_AGENT, else cli)")
    _conflict_arguments(parser)


def _redo(asked: Asked) -> int:
    options = asked.options
    if nothing_yet(asked) and not options.id:
        raise Refused(nothing_recorded(asked), hint="There is nothing to redo.")
    with existing(asked) as tb:
        started = time.perf_counter()
        try:
            with _told_if_interrupted(asked, tb):
                result = tb.redo(
                    options.id,
                    dry_run=options.dry_run,
                    on_conflict=options.on_conflict,
                    agent=agent_of(asked),
                )
        except (Refused, Stuck, StoreBusy) as error:
            return _refused(asked, tb, error)
        return _tell(asked, tb, result, started, ("Brought back", "bring back", "redone"))


def _refused(asked: Asked, tb: "Takeback", error: TakebackError) -> int:
    """As an undo result too, so that a script need not know two shapes."""
    if not asked.screen.json:
        raise error
    resources = error.resources if isinstance(error, Conflict) else ()
    told: dict[str, Any] = {
        "outcome": "stuck" if isinstance(error, Stuck) else "refused",
        "effects": [],
        "targets": [
            {"resource": one, "outcome": Outcome.CONFLICT.value, "detail": str(error), "effect": error.effect}
            for one in resources
        ],
        "undo": [],
        "error": error_json(error),
    }
    if isinstance(error, Blocked):
        told["blocked_by"] = list(error.blockers)
    give(asked, tb, told)
    return error.exit_code


def _tell(
    asked: Asked, tb: "Takeback", result: UndoResult, started: float, words: tuple[str, str, str]
) -> int:
    asked.made.extend(effect.id for effect in result.undo)
    give(asked, tb, undo_json(result))
    screen = asked.screen
    if not result.targets and result.outcome == "done":
        screen.say("Nothing to take back: nothing has happened since.")
    elif result.outcome == "planned":
        screen.say(f"Would {words[1]} {_amount(result, 'effect')}:")
        for effect in result.effects:
            screen.say(f"  {screen.paint(short(effect.id), 'cyan')}  {clean(effect.change.summary)}")
        _list_targets(asked, result, words[2])
    else:
        screen.say(f"{words[0]} {_amount(result, '')} in {took(started)}.")
        _list_targets(asked, result, words[2])
    if result.state is not None:
        import json

        screen.say(f"The agent's state at that point: {clean(json.dumps(result.state))}")
    if result.outcome == "done" and result.undo:
        screen.hint(_way_on(result, words[0]))
    return EXIT_CODES[result.outcome]


def _way_on(result: UndoResult, verb: str) -> str:
    several = len(result.undo) > 1
    if verb == "Took back":
        return (
            "`takeback redo` brings them back."
            if several
            else f"`takeback redo {short(result.undo[0].id)}` brings it back."
        )
    # What was overwritten or merged when it was undone is there again, so that undo would be a conflict again.
    how = {str(effect.change.args.get("on_conflict")) for effect in result.effects} & {"force", "merge"}
    names = " ".join(short(effect.undoes) for effect in result.effects[:_MOST_LISTED])
    if len(result.effects) > _MOST_LISTED:
        return "`takeback log` lists them; `takeback undo ID…` takes them back again."
    options = "".join(f" --{one}" for one in sorted(how)[:1])
    return f"`takeback undo {names}{options}` takes {'them' if several else 'it'} back again."


def _amount(result: UndoResult, noun: str) -> str:
    if noun:
        return counted(len(result.effects), noun)
    good = [one for one in result.targets if one.outcome in (Outcome.UNDONE, Outcome.ALREADY)]
    kind = "key" if all("#" in one.resource for one in result.targets) else "path"
    if kind == "path" and all(_is_file(target) for effect in result.effects for target in effect.targets):
        kind = "file"
    all_of_it = "" if len(good) == len(result.targets) else f" of {len(result.targets):,}"
    return f"{len(good):,}{all_of_it} {kind}{'' if len(good) == 1 and not all_of_it else 's'}"


def _is_file(target: Any) -> bool:
    return {target.before.get("type"), target.after.get("type")} <= {"file", "absent"}


def _list_targets(asked: Asked, result: UndoResult, word: str) -> None:
    screen = asked.screen
    styles = {"undone": "green", "already": "dim", "conflict": "red", "failed": "red", "excluded": "yellow"}
    listed = result.targets
    if len(listed) > _MOST_LISTED:
        listed = tuple(one for one in listed if one.outcome is not Outcome.UNDONE)
    for one in listed:
        detail = f"  {clean(one.detail)}" if one.detail else ""
        outcome = word if one.outcome is Outcome.UNDONE else one.outcome.value
        screen.say(f"  {screen.paint(f'{outcome:<8}', styles[one.outcome])}  {display(one.resource)}{detail}")
    if len(listed) < len(result.targets):
        screen.say(f"  and {len(result.targets) - len(listed):,} more, all {word}")


def _keep_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="effects")
    parser.add_argument("--run", metavar="R", help="everything this run did")


def _keep(asked: Asked) -> int:
    options = asked.options
    if bool(options.ids) == bool(options.run):
        raise Misuse(
            "Name the effects to keep, or a run with --run.", hint="`takeback keep @` keeps the newest."
        )
    with existing(asked) as tb:
        wanted = options.ids or [
            one for one in tb.effects(run=options.run, state=State.DONE) if not one.is_undo
        ]
        kept = tb.keep(wanted) if wanted else ()
        give(asked, tb, [effect_json(effect) for effect in kept])
        for effect in kept[:_MOST_LISTED]:
            asked.screen.say(
                f"Kept {asked.screen.paint(short(effect.id), 'cyan')}  {clean(effect.change.summary)}"
            )
        if len(kept) > _MOST_LISTED:
            asked.screen.say(f"and {len(kept) - _MOST_LISTED:,} more")
        if not kept:
            asked.screen.say("There was nothing to keep.")
    return 0


COMMANDS = {
    "undo": Command(_undo_arguments, _undo),
    "redo": Command(_redo_arguments, _redo),
    "keep": Command(_keep_arguments, _keep),
}
