"""`pending`: what waits for an approval."""

import time
from typing import TYPE_CHECKING, Any

from takeback.api import opened_of
from takeback.api.store import now
from takeback.audit.views import effect_json
from takeback.frontends.cli.command import SECRETS, Asked, Command, Does, flag, number_of, option
from takeback.frontends.cli.output.screen import Screen, ahead, clean, from_here, when
from takeback.frontends.cli.session.store import nothing_yet, opened, tell_nothing
from takeback.model.effect import Effect
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.api.notices import Notice


def _pending(asked: Asked) -> int:
    screen = asked.screen
    if asked.options.send:
        return _send(asked)
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


def _send(asked: Asked) -> int:
    """Send what is due; what does not arrive is tried again, as long as `--wait` says."""
    from takeback.api.notices import next_try, tell_people

    until = time.monotonic() + asked.options.wait
    sent: list[Notice] = []
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        while True:
            sent += tell_people(opened_of(tb))
            due = next_try(opened_of(tb))
            left = until - time.monotonic()
            if due is None or left <= 0:
                break
            time.sleep(min(left, max(0.2, (due - now()) / 1_000_000), 5))
    asked.screen.give([one._asdict() for one in sent])
    for one in sent:
        how = f"not sent: {one.trouble}" if one.trouble else "answered" if one.answered else "sent"
        what = clean(one.alert) if one.alert else short(one.effect)
        asked.screen.say(f"{what} to {clean(one.receiver)}: {clean(how)}")
    if not sent:
        asked.screen.say("There is nothing to send now.")
    return 5 if any(one.trouble for one in sent) and due is not None else 0


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


_ARGUMENTS = (
    SECRETS,
    flag(
        "--send", "send what waits to the receivers of [notify] in the configuration, and take their answers"
    ),
    option("--wait", "S", "with --send: try again for so many seconds", type=number_of, default=0),
)
COMMAND = Command(_pending, _ARGUMENTS, does=Does.LOOKS)
