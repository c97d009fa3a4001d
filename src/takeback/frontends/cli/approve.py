"""`pending approve deny`: what waits for a person to say yes."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.commands import Asked, Command, Does
from takeback.frontends.cli.output.screen import Screen, clean, when
from takeback.frontends.cli.session.store import existing, give, nothing_yet, opened, tell_nothing
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.upkeep import now

if TYPE_CHECKING:
    from takeback.api import Takeback


def _pending_arguments(parser: ArgumentParser) -> None:
    del parser  # nothing but the options that every command has


def _pending(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        found = tb.pending()
        screen.give([_proposal_json(one) for one in found])
        for one in found:
            _say(screen, one)
        if not found:
            screen.say("Nothing waits for an approval.")
        else:
            screen.hint("`takeback approve ID` or `takeback deny ID`.")
    return 0


def _proposal_json(effect: Effect) -> dict[str, Any]:
    from takeback.engine.approval import challenge

    return {
        **effect_json(effect),
        "arguments": effect.change.args.get("arguments"),
        "plan": effect.plan,
        "challenge": challenge(effect),
    }


def _say(screen: Screen, effect: Effect) -> None:
    who = f" by {clean(effect.agent)}" if effect.agent else ""
    screen.say(f"{screen.paint(short(effect.id), 'cyan')}  {clean(effect.change.summary)}")
    screen.say(f"          asked for{who} {when(effect.at, now())}")
    screen.say(f"          with {clean(effect.change.args.get('arguments', ''))}")
    screen.say(f"          way back: {screen.paint(clean(effect.plan), 'red')}")


def _deciding_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="what waits for an approval")
    parser.add_argument("--by", default="", metavar="NAME", help="who decides; else USER")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be decided on")


def _approve_arguments(parser: ArgumentParser) -> None:
    _deciding_arguments(parser)
    parser.add_argument("--answer", default="", metavar="WORDS", help="what you are asked to type")


def _approve(asked: Asked) -> int:
    from takeback.engine.approval import challenge

    options, screen = asked.options, asked.screen

    def approve(tb: "Takeback", effect: Effect) -> Effect:
        answer = options.answer
        if not answer and screen.terminal and sys.stdin.isatty():
            _say(screen, effect)
            answer = input(f'Type "{challenge(effect)}" to approve it: ')
        return tb.approve(effect, by=_who(options.by), answer=answer)

    return _decide(asked, approve, "approved; its run makes it when it asks again")


def _deny_arguments(parser: ArgumentParser) -> None:
    _deciding_arguments(parser)
    parser.add_argument("--why", default="", metavar="WORDS", help="the reason; its run sees it")


def _deny(asked: Asked) -> int:
    options = asked.options
    return _decide(
        asked,
        lambda tb, effect: tb.deny(effect, by=_who(options.by), why=options.why),
        "denied; nothing is called",
    )


def _decide(asked: Asked, decide: "Callable[[Takeback, Effect], Effect]", told: str) -> int:
    from takeback.engine.approval import refuse_undecidable

    def known(tb: "Takeback") -> None:
        refuse_undecidable(tb.parts, tb.effect(asked.options.id), now())

    with existing(asked, known) as tb:
        effect = tb.effect(asked.options.id)
        refuse_undecidable(tb.parts, effect, now())
        if asked.options.dry_run:
            give(asked, tb, {"dry_run": True, **_proposal_json(effect)})
            _say(asked.screen, effect)
            return 0
        decided = decide(tb, effect)
        give(asked, tb, effect_json(decided))
        asked.screen.say(f"{short(decided.id)} {clean(decided.change.summary)}: {told}.")
    return 0


def _who(given: str) -> str:
    who = given or os.environ.get("USER", "") or os.environ.get("LOGNAME", "")
    if not who:
        raise Misuse("Nothing tells who you are.", hint="Say it: --by NAME.")
    return who


COMMANDS = {
    "pending": Command(_pending_arguments, _pending, does=Does.LOOKS),
    "approve": Command(_approve_arguments, _approve),
    "deny": Command(_deny_arguments, _deny),
}
