"""`signal`: send a run what it waits for."""

from argparse import ArgumentParser

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.commands.submit import from_json
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import existing, give
from takeback.model.ids import short


def _signal_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run: its name, id, or the beginning of its id")
    parser.add_argument("event", metavar="EVENT", help="what it waits for")
    parser.add_argument("data", metavar="JSON", nargs="?", default="null", help="what comes with it")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")


def _signal(asked: Asked) -> int:
    options = asked.options
    data = from_json(options.data)
    with existing(asked, lambda tb: tb.find_run(options.run)) as tb:
        info = tb.find_run(options.run)
        if options.dry_run:
            give(asked, tb, {"dry_run": True, "run": info.id, "event": options.event})
            asked.screen.say(f"Would send {clean(options.event)!r} to run {short(info.id)}.")
            return 0
        tb.signal(info, options.event, data)
        give(asked, tb, {"run": info.id, "event": options.event})
        waits = info.awaits == options.event
        later = "" if waits else " It does not wait for it yet; the signal is kept until it does."
        asked.screen.say(f"Sent {clean(options.event)!r} to run {short(info.id)}.{later}")
    return 0


COMMAND = Command(_signal_arguments, _signal)
