"""`unpin`: let a pinned effect be forgotten in time."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import decision_on, made_in, on_effects
from takeback.model.effect import Effect


def _unpin(asked: Asked) -> int:
    with decision_on(asked, "unpin", made_in) as decision:
        pinned = {id for id in decision.wanted if decision.tb.effect(id).pinned}

        def say(effect: Effect) -> None:
            if effect.id in pinned:
                decision.say("Unpinned", effect)
            else:
                asked.screen.say(f"Nothing to unpin: {asked.screen.effect(effect)} is not pinned.")

        return decision.tell(decision.tb.unpin(decision.wanted, dry_run=asked.options.dry_run), say)


COMMAND = Command(_unpin, on_effects("everything this run did"))
