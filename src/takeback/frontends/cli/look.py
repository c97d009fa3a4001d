"""`log` and `runs`: lists, newest first."""

from argparse import ArgumentParser, ArgumentTypeError

from takeback.api import Takeback, now
from takeback.audit.runs import RunNow, as_they_stand
from takeback.errors import Misuse
from takeback.frontends.cli.commands import Asked, Command
from takeback.frontends.cli.opening import give, nothing_yet, opened, tell_nothing
from takeback.frontends.cli.output import clean, counted, local_time
from takeback.frontends.cli.project import HAPPENED, effects_listed, hint_elsewhere, runs_listed
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import RunInfo
from takeback.storage.protocols import Query


def _log_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path_only", nargs="?", metavar="PATH", help="only what touches this path, in any project"
    )
    parser.add_argument(
        "-n", type=_number, default=20, metavar="N", dest="number", help="at most N (20; 0: all)"
    )
    parser.add_argument("--run", metavar="R", help="of this run: its name, id, or the beginning of its id")
    parser.add_argument(
        "--path", metavar="P", help="the same as PATH: it, something in it, or a directory around it"
    )
    parser.add_argument("--agent", metavar="A", default="", help="of this agent")
    parser.add_argument("--since", metavar="TIME", help="since then: 10m, 2h, 3d, 09:30, 2026-11-18")
    parser.add_argument("--aborted", action="store_true", help="also what was aborted and never happened")
    parser.add_argument("--all", action="store_true", help="of all projects, and what was aborted")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text.lstrip("0")[:9] or "0")  # more than there can ever be


def _log(asked: Asked) -> int:
    options, screen = asked.options, asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        if options.path_only and options.path:
            raise Misuse("The path was given twice.", hint="Give PATH or --path.")
        effects = effects_listed(asked, tb)
        if screen.json:
            from takeback.audit.views import effect_json

            give(asked, tb, [effect_json(effect) for effect in effects])
            return 0
        _show_effects(asked, tb, effects)
    return 0


def _show_effects(asked: Asked, tb: Takeback, effects: tuple[Effect, ...]) -> None:
    screen = asked.screen
    if not effects:
        here = "" if _everywhere(asked) else " in this project"
        screen.say(f"No effects match{here}." if _narrowed(asked) else f"No effects yet{here}.")
        _hint_elsewhere(asked, tb)
        return
    runs = {info.id: info for info in tb.store.journal.runs(tuple({effect.run for effect in effects}))}
    today = now()
    rows = [(local_time(effect.at, today), _doer(effect, runs.get(effect.run)), effect) for effect in effects]
    time_width = max(len(row[0]) for row in rows)
    doer_width = min(32, max(len(row[1]) for row in rows))
    for when, doer, effect in rows:
        screen.say(
            f"{screen.paint(short(effect.id), 'cyan')}  {when:<{time_width}}  {screen.state(effect.state.value, 8)}  "
            f"{doer:<{doer_width}}  {clean(effect.change.summary)}{screen.paint(_marks(effect), 'dim')}"
        )
    if len(effects) == asked.options.number:
        listed = State if asked.options.all or asked.options.aborted else HAPPENED
        total = tb.store.journal.count(Query(states=tuple(listed), scope=tb.here()))
        if total > len(effects) and not _narrowed(asked):
            screen.hint(f"{counted(total, 'effect')} in all; -n 0 lists them.")
    _hint_elsewhere(asked, tb)


def _hint_elsewhere(asked: Asked, tb: Takeback) -> None:
    if not _everywhere(asked):
        hint_elsewhere(asked, tb)


def _everywhere(asked: Asked) -> bool:
    options = asked.options
    return bool(options.run or options.path or options.path_only or options.all)


def _narrowed(asked: Asked) -> bool:
    options = asked.options
    return bool(options.run or options.path or options.path_only or options.agent or options.since)


def _doer(effect: Effect, run: RunInfo | None) -> str:
    """Who did it, and in which run."""
    name = clean(run.name) if run else short(effect.run)
    whole = f"{clean(effect.agent)}/{name}" if effect.agent else name
    return whole if len(whole) <= 32 else whole[:31] + "…"


def _marks(effect: Effect) -> str:
    marks = [
        "accepted" if effect.accepted else "",
        "pinned" if effect.pinned else "",
        "forgotten" if effect.forgotten else "",
        "no way back" if "database" in effect.change.args and effect.receipt.get("lost") else "",
        f"by {short(effect.undone_by)}" if effect.undone_by else "",
        clean(effect.note) if effect.state in (State.STUCK, State.ABORTED) else "",
    ]
    told = ", ".join(mark for mark in marks if mark)
    return f"  ({told})" if told else ""


def _runs_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-n", type=_number, default=20, metavar="N", dest="number", help="at most N (20; 0: all)"
    )
    parser.add_argument("--all", action="store_true", help="of all projects, not only of this one")


def _runs(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        infos = runs_listed(asked, tb)
        runs = as_they_stand(tb.store, infos)
        if screen.json:
            from takeback.audit.views import run_json

            give(asked, tb, [run_json(run) for run in runs])
            return 0
        if not infos:
            screen.say("No runs yet." if asked.options.all else "No runs yet in this project.")
        today = now()
        agent_width = max((len(clean(info.agent)) for info in infos), default=0)
        for run in runs:
            info = run.info
            screen.say(
                f"{screen.paint(short(info.id), 'cyan')}  {local_time(info.opened_at, today):<12}  "
                f"{screen.state(run.state.value, 13)}  {clean(info.agent):<{agent_width}}  "
                f"{done_in(run):>11}  {clean(info.name)}"
            )
    return 0


def done_in(run: RunNow) -> str:
    """How much a run did; one that only took back tells how much of that."""
    return counted(run.undos, "undo") if run.undos and not run.effects else counted(run.effects, "effect")


COMMANDS = {
    "log": Command(_log_arguments, _log, long=True),
    "runs": Command(_runs_arguments, _runs, long=True),
}
