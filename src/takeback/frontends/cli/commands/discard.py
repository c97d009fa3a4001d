"""`discard`: drop a change that is held."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.api import opened_of
from takeback.api.store import now
from takeback.frontends.cli.command import Asked, Command, flag
from takeback.frontends.cli.output.screen import local_time
from takeback.frontends.cli.session.change import decision_on, held_in, on_effects
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import RunInfo

if TYPE_CHECKING:
    from takeback.api import Takeback

_NOW = flag("--now", "erase it at once; also what was dropped before")


def _discard(asked: Asked) -> int:
    options = asked.options

    def meant(tb: "Takeback", run: RunInfo) -> list[str]:
        dropped = tb.effects(run=run, state=State.DROPPED) if options.now else ()
        return held_in(tb, run) + [one.id for one in dropped]

    with decision_on(asked, "discard", meant) as decision:
        tb, wanted = decision.tb, decision.wanted

        def discard() -> tuple[Effect, ...]:
            try:
                return tb.discard(wanted, now=options.now, dry_run=options.dry_run)
            except (KeyboardInterrupt, SystemExit) as signal:
                signal.add_note(_became([tb.effect(id).state for id in wanted], options.now))
                raise

        def say(effect: Effect) -> None:
            how = _would(tb, effect, options.now) if options.dry_run else _how(effect, options.now)
            decision.say("Discarded", effect, how)

        effects, errors = decision.until_error(discard, State.DROPPED, State.ABORTED)
        return decision.tell(effects, say, errors)


def _became(states: Sequence[State], now: bool) -> str:
    """What an interrupt left."""
    if len(states) == 1:
        became = {State.ABORTED: "it was erased", State.DROPPED: "it was dropped"}
        return became.get(states[0], "nothing was dropped")
    erased, dropped = states.count(State.ABORTED), states.count(State.DROPPED)
    if now:
        return f"{erased:,} of {len(states):,} were erased"
    return f"{erased + dropped:,} of {len(states):,} were dropped"


def _would(tb: "Takeback", effect: Effect, now: bool) -> str:
    """What a discard would leave of it."""
    from takeback.engine.held import is_final

    if now:
        return ": it would be erased, with its bytes"
    if is_final(opened_of(tb).parts, effect):
        return ": this drop would be final"
    return f": `takeback apply {short(effect.id)}` could make it after all, for a while"


def _how(effect: Effect, at_once: bool) -> str:
    """Whether the drop can be taken back, and until when."""
    if effect.state is State.DROPPED and effect.dropped:
        until = local_time(effect.dropped.until, now())
        return f": `takeback apply {short(effect.id)}` makes it after all, until {until}"
    if effect.state is State.ABORTED:
        return ": erased" if at_once else ": this drop is final"
    return ""


COMMAND = Command(_discard, on_effects("all held changes of this run", _NOW))
