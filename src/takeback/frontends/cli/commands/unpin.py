"""`unpin`: let a pinned effect be forgotten in time."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import decision_on, made_in, on_effects


def _unpin(asked: Asked) -> int:
    with decision_on(asked, "unpin", made_in) as decision:
        effects = decision.tb.unpin(decision.wanted, dry_run=asked.options.dry_run)
        return decision.tell(effects, lambda effect: decision.say("Unpinned", effect))


COMMAND = Command(_unpin, on_effects("everything this run did"))
