"""`accept`: say that effects stay, even if their run fails."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import MADE, made_in, named_effects, say_decided, tell_decided


def _accept(asked: Asked) -> int:
    with named_effects(asked, "accept", made_in) as (tb, wanted):
        effects = tb.accept(wanted, dry_run=asked.options.dry_run)
        return tell_decided(
            asked, tb, "accept", effects, lambda one: say_decided(asked, one, "accept", "Accepted")
        )


COMMAND = Command(_accept, MADE)
