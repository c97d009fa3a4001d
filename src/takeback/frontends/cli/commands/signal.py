"""`signal`: send a run what it waits for."""

from takeback.frontends.cli.command import DRY_RUN, Asked, Command, positional
from takeback.frontends.cli.commands.submit import from_json
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import existing, give
from takeback.model.ids import short

_ARGUMENTS = (
    positional("run", "RUN", "a run: its name, id, or the beginning of its id"),
    positional("event", "EVENT", "the event that it waits for"),
    positional("data", "JSON", "data for the event", nargs="?", default="null"),
    DRY_RUN,
)


def _signal(asked: Asked) -> int:
    options = asked.options
    data = from_json(options.data)
    with existing(asked, lambda tb: tb.find_run(options.run)) as tb:
        info = tb.find_run(options.run)
        if options.dry_run:
            told = {"run": info.id, "event": options.event}
            return asked.would(told, f"Would send {clean(options.event)!r} to run {short(info.id)}.")
        tb.signal(info, options.event, data)
        give(asked, tb, {"run": info.id, "event": options.event})
        waits = info.awaits == options.event
        later = "" if waits else " The run does not wait for it yet; the signal is stored until then."
        asked.screen.say(f"Sent {clean(options.event)!r} to run {short(info.id)}.{later}")
    return 0


COMMAND = Command(_signal, _ARGUMENTS)
