"""`pin`: never forget the way back of an effect."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import MADE, made_in, named_effects, say_decided, tell_decided


def _pin(asked: Asked) -> int:
    with named_effects(asked, "pin", made_in) as (tb, wanted):
        effects = tb.pin(wanted, dry_run=asked.options.dry_run)
        return tell_decided(asked, tb, "pin", effects, lambda one: say_decided(asked, one, "pin", "Pinned"))


COMMAND = Command(_pin, MADE)
