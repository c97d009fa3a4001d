"""`accept`: say that effects stay, even if their run fails."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import decision_on, made_in, on_effects


def _accept(asked: Asked) -> int:
    with decision_on(asked, "accept", made_in) as decision:
        effects = decision.tb.accept(decision.wanted, dry_run=asked.options.dry_run)
        return decision.tell(effects, lambda effect: decision.say("Accepted", effect))


COMMAND = Command(_accept, on_effects("everything this run did"))
