"""`stop`: an agent, a run or everything does nothing more, until a person lifts it."""

from typing import TYPE_CHECKING

from takeback.api import now
from takeback.audit.views import stop_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import BY, DRY_RUN, Asked, Command, Does, flag, option
from takeback.frontends.cli.output.screen import Screen, clean, from_here, when
from takeback.frontends.cli.session.store import nothing_yet, opened, tell_nothing
from takeback.model.stop import Stop

if TYPE_CHECKING:
    from takeback.api import Takeback

_ARGUMENTS = (
    option("--agent", "A", "stop this agent: all its runs, and those that it begins", default=""),
    option("--run", "R", "stop this run; of a coding agent, its whole conversation", default=""),
    flag("--all", "stop everything"),
    option("--why", "TEXT", "the reason, which the agent reads too", default=""),
    flag("--lift", "end a stop; for a person"),
    flag("--list", "only list the stops in force"),
    BY,
    DRY_RUN,
)


def _stop(asked: Asked) -> int:
    options, screen = asked.options, asked.screen
    named = sum(map(bool, (options.agent, options.run, options.all)))
    if options.list and (named or options.lift or options.why):
        raise Misuse("--list stands alone.", hint="`takeback stop --list` lists the stops in force.")
    if named > 1:
        raise Misuse("Give one of --agent, --run and --all.")
    if options.list or (options.lift and nothing_yet(asked)):
        return _list(asked)
    if not (named or options.lift):
        raise Misuse(
            "Say what to stop: --agent A, --run R or --all.",
            hint="Nothing was stopped. `takeback status` shows who is at work; `takeback stop --list` lists the stops.",
        )
    if options.lift:
        from takeback.frontends.cli.session.for_a_person import refuse_of_agent

        refuse_of_agent("stop --lift", (), options)
    # Nothing is settled first: a stop must not wait, and the functions of others need not be called for it.
    with opened(asked._replace(looking=True)) as tb:
        return _lift(asked, tb) if options.lift else _stopped(screen, asked, tb)


def _list(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked._replace(looking=True)) as tb:
        found = tb.stops()
    screen.give([stop_json(one) for one in found])
    for one in found:
        say_stop(screen, one)
    if not found:
        screen.say("Nothing is stopped.")
    return 0


def _stopped(screen: Screen, asked: Asked, tb: "Takeback") -> int:
    from takeback.engine.stop import way_out, what

    options = asked.options
    before = {one.seq for one in tb.stops()}
    stop = tb.stop(
        agent=options.agent, run=options.run, everything=options.all, why=options.why, by=options.by,
        dry_run=options.dry_run,
    )  # fmt: skip
    named = clean(what(stop))
    if options.dry_run:
        return asked.would({**stop_json(stop), "stopped": False}, f"{named} would be stopped.")
    again = stop.seq in before
    screen.give({**stop_json(stop), "stopped": True, "was_stopped": again})
    if again:
        say_stop(screen, stop)
        screen.hint("It was stopped already; nothing was recorded.")
        return 0
    screen.say(f"{named} is stopped: from now on every change that it asks for is refused.")
    screen.say("Changes under way are finished or taken back; `takeback undo` and looking still work.")
    screen.hint(way_out(stop))
    return 0


def _lift(asked: Asked, tb: "Takeback") -> int:
    from takeback.engine.stop import what

    options, screen = asked.options, asked.screen
    lifted = tb.lift(
        agent=options.agent, run=options.run, everything=options.all, why=options.why, by=options.by,
        dry_run=options.dry_run,
    )  # fmt: skip
    told = {"lifted": [stop_json(one) for one in lifted]}
    if options.dry_run:
        names = ", ".join(clean(what(one)) for one in lifted)
        return asked.would(told, f"The stop would be lifted of: {names}.")
    screen.give(told)
    for one in lifted:
        screen.say(f"{clean(what(one))} may work again; it was stopped by {clean(one.who)}.")
    left = tb.stops()
    for one in left:
        say_stop(screen, one)
    return 0


def say_stop(screen: Screen, stop: Stop) -> None:
    from takeback.engine.stop import what

    why = f": {from_here(stop.why)}" if stop.why.strip() else ""
    said = f"Stopped  {clean(what(stop))}, by {clean(stop.who)} {when(stop.at, now())}{why}"
    screen.say(screen.paint(said, "red"))


COMMAND = Command(_stop, _ARGUMENTS, does=Does.CHANGES)
