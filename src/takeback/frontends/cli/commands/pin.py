"""`pin`: never forget the way back of an effect."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import decision_on, made_in, on_effects


def _pin(asked: Asked) -> int:
    with decision_on(asked, "pin", made_in) as decision:
        effects = decision.tb.pin(decision.wanted, dry_run=asked.options.dry_run)
        return decision.tell(effects, lambda effect: decision.say("Pinned", effect))


COMMAND = Command(_pin, on_effects("everything this run did"))
