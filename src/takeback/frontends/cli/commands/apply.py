"""`apply`: make a change that is held."""

from functools import partial
from typing import TYPE_CHECKING

from takeback.frontends.cli.command import Asked, Command, flag
from takeback.frontends.cli.session.change import decision_on, held_in, on_effects
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import RunInfo
from takeback.runs.held import built_on

if TYPE_CHECKING:
    from takeback.api import Takeback

_FORCE = flag("--force", "apply even if others changed the targets; undo restores their content")


def _apply(asked: Asked) -> int:
    options = asked.options
    with decision_on(asked, "apply", _held_or_dropped_in) as decision:
        apply = partial(decision.tb.apply, decision.wanted, force=options.force, dry_run=options.dry_run)
        effects, errors = decision.until_error(apply, State.DONE)
        later = built_on(effects) if options.dry_run else {}

        def say(effect: Effect) -> None:
            if not options.dry_run and effect.state in (State.PROPOSED, State.DROPPED):
                _say_there_already(asked, effect)
                return
            first = later.get(effect.id)
            decision.say(
                "Applied", effect, f": depends on {short(first)}, which changes the same" if first else ""
            )

        return decision.tell(effects, say, errors)


def _held_or_dropped_in(tb: "Takeback", run: RunInfo) -> list[str]:
    """Held effects; if there are none, dropped ones."""
    return held_in(tb, run) or [one.id for one in tb.effects(run=run, state=State.DROPPED)]


def _say_there_already(asked: Asked, effect: Effect) -> None:
    name, kept = short(effect.id), "dropped" if effect.dropped else "held"
    asked.screen.say(
        f"Nothing was changed: {asked.screen.effect(effect)} is already in place; it stays {kept}"
    )
    asked.screen.hint(f"`takeback discard {name} --now` erases it.")


COMMAND = Command(
    _apply, on_effects("all held changes of this run, or its dropped ones if none is held", _FORCE)
)
