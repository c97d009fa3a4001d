"""`log` and `runs`: lists, newest first."""

from argparse import ArgumentParser, ArgumentTypeError

from takeback.api import Takeback, now
from takeback.audit.runs import RunNow, as_they_stand
from takeback.frontends.cli.commands import Asked, Command
from takeback.frontends.cli.opening import give, nothing_yet, opened, tell_nothing
from takeback.frontends.cli.output import clean, counted, local_time
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import RunInfo

_HAPPENED = tuple(state for state in State if state is not State.ABORTED)


def _log_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-n", type=_number, default=20, metavar="N", dest="number", help="at most N (20; 0: all)"
    )
    parser.add_argument("--run", metavar="R", help="of this run: its name, id, or the beginning of its id")
    parser.add_argument(
        "--path", metavar="P", help="that touch this path, something in it, or a directory around it"
    )
    parser.add_argument("--agent", metavar="A", default="", help="of this agent")
    parser.add_argument("--all", action="store_true", help="also what was aborted and never happened")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text.lstrip("0")[:9] or "0")  # more than there can ever be


def _log(asked: Asked) -> int:
    options, screen = asked.options, asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        effects = tb.effects(
            run=options.run,
            path=options.path,
            agent=options.agent,
            state=None if options.all else _HAPPENED,
            limit=options.number,
            newest=True,
        )
        if screen.json:
            from takeback.audit.views import effect_json

            give(asked, tb, [effect_json(effect) for effect in effects])
            return 0
        _show_effects(asked, tb, effects)
    return 0


def _show_effects(asked: Asked, tb: Takeback, effects: tuple[Effect, ...]) -> None:
    screen = asked.screen
    if not effects:
        screen.say("No effects match." if _narrowed(asked) else "No effects yet.")
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
        listed = set(State if asked.options.all else _HAPPENED)
        total = sum(count for name, count in tb.store.journal.tally().items() if name in listed)
        if total > len(effects) and not _narrowed(asked):
            screen.hint(f"{counted(total, 'effect')} in all; -n 0 lists them.")


def _narrowed(asked: Asked) -> bool:
    options = asked.options
    return bool(options.run or options.path or options.agent)


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


def _runs(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        infos = tuple(reversed(tb.runs()))
        if asked.options.number > 0:
            infos = infos[: asked.options.number]
        runs = as_they_stand(tb.store, infos)
        if screen.json:
            from takeback.audit.views import run_json

            give(asked, tb, [run_json(run) for run in runs])
            return 0
        if not infos:
            screen.say("No runs yet.")
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
