"""`pending`: what waits for an approval."""

from typing import Any

from takeback.api.store import now
from takeback.audit.views import effect_json
from takeback.frontends.cli.command import SECRETS, Asked, Command, Does
from takeback.frontends.cli.output.screen import Screen, clean, from_here, when
from takeback.frontends.cli.session.store import nothing_yet, opened, tell_nothing
from takeback.model.effect import Effect


def _pending(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        found = tb.pending()
        screen.give([proposal_json(one) for one in found])
        for one in found:
            say_proposal(screen, one)
        if not found:
            screen.say("Nothing waits for an approval.")
        else:
            screen.hint("`takeback approve ID` or `takeback deny ID`.")
    return 0


def proposal_json(effect: Effect) -> dict[str, Any]:
    from takeback.engine.approval import challenge

    return {
        **effect_json(effect),
        "arguments": effect.change.args.get("arguments"),
        "plan": effect.plan,
        "challenge": challenge(effect),
    }


def say_proposal(screen: Screen, effect: Effect) -> None:
    who = f" by {clean(effect.agent)}" if effect.agent else ""
    screen.say(screen.effect(effect))
    screen.say(f"          asked for{who} {when(effect.at, now())}")
    screen.say(f"          with {clean(effect.change.args.get('arguments', ''))}")
    screen.say(f"          way back: {screen.paint(from_here(effect.plan), 'red')}")


COMMAND = Command(_pending, (SECRETS,), does=Does.LOOKS)
