"""`pending`: what waits for an approval."""

from typing import TYPE_CHECKING, Any

from takeback.api import opened_of
from takeback.api.store import now
from takeback.audit.views import effect_json
from takeback.frontends.cli.command import SECRETS, Asked, Command, Does
from takeback.frontends.cli.output.screen import Screen, ahead, clean, from_here, when
from takeback.frontends.cli.session.store import nothing_yet, opened, tell_nothing
from takeback.model.effect import Effect

if TYPE_CHECKING:
    from takeback.api import Takeback


def _pending(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        found = tb.pending()
        screen.give([proposal_json(tb, one) for one in found])
        for one in found:
            say_proposal(screen, tb, one)
        if not found:
            screen.say("Nothing waits for an approval.")
        else:
            screen.hint("`takeback approve ID` or `takeback deny ID`.")
    return 0


def proposal_json(tb: "Takeback", effect: Effect) -> dict[str, Any]:
    from takeback.audit.views import iso
    from takeback.engine.approval import as_it_stands
    from takeback.model.person import recorded

    one = as_it_stands(opened_of(tb).parts, effect, now())
    gate = effect.phase.gate
    return {
        **effect_json(effect),
        "arguments": effect.change.args.get("arguments"),
        "plan": effect.plan,
        "challenge": one.challenge,
        "digest": one.digest,
        "rule": gate.rule if gate else "",
        "people": one.people,
        "of": list(gate.of) if gate else [],
        "until": iso(one.until) if one.until else None,
        "said_yes": [recorded(said.by) for said in one.said_yes],
    }


def say_proposal(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    from takeback.engine.approval import as_it_stands

    one = as_it_stands(opened_of(tb).parts, effect, now())
    who = f" by {clean(effect.agent)}" if effect.agent else ""
    until = f", expires {ahead(one.until, now())}" if one.until else ""
    screen.say(screen.effect(effect))
    screen.say(f"          asked for{who} {when(effect.at, now())}{until}, of {clean(one.asked)}")
    if "arguments" in effect.change.args:
        screen.say(f"          with {clean(effect.change.args['arguments'])}")
    if effect.phase.gate and effect.phase.gate.rule:
        screen.say(f"          by rule {clean(effect.phase.gate.rule)}")
    screen.say(f"          way back: {screen.paint(from_here(effect.plan), 'red')}")
    for said in one.said_yes:
        screen.say(f"          yes from {clean(said.by.in_words())}")


COMMAND = Command(_pending, (SECRETS,), does=Does.LOOKS)
