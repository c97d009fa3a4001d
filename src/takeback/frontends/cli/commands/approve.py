"""`approve`: say yes to what was proposed."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TYPE_CHECKING

from takeback.api.store import now
from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.commands.pending import proposal_json, say_proposal
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.api import Takeback


def deciding_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="what waits for an approval")
    parser.add_argument("--by", default="", metavar="NAME", help="who decides; else USER")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be decided on")


def _approve_arguments(parser: ArgumentParser) -> None:
    deciding_arguments(parser)
    parser.add_argument("--answer", default="", metavar="WORDS", help="what you are asked to type")


def _approve(asked: Asked) -> int:
    from takeback.engine.approval import challenge

    options, screen = asked.options, asked.screen

    def approve(tb: "Takeback", effect: Effect) -> Effect:
        answer = options.answer
        if not answer and screen.terminal and sys.stdin.isatty():
            say_proposal(screen, effect)
            answer = input(f'Type "{challenge(effect)}" to approve it: ')
        return tb.approve(effect, by=who_decides(options.by), answer=answer)

    return decided(asked, approve, "approved; its run makes it when it asks again")


def decided(asked: Asked, decide: "Callable[[Takeback, Effect], Effect]", told: str) -> int:
    from takeback.engine.approval import refuse_undecidable

    def known(tb: "Takeback") -> None:
        refuse_undecidable(tb.parts, tb.effect(asked.options.id), now())

    with existing(asked, known) as tb:
        effect = tb.effect(asked.options.id)
        refuse_undecidable(tb.parts, effect, now())
        if asked.options.dry_run:
            give(asked, tb, {"dry_run": True, **proposal_json(effect)})
            say_proposal(asked.screen, effect)
            return 0
        decided = decide(tb, effect)
        give(asked, tb, effect_json(decided))
        asked.screen.say(f"{short(decided.id)} {clean(decided.change.summary)}: {told}.")
    return 0


def who_decides(given: str) -> str:
    who = given or os.environ.get("USER", "") or os.environ.get("LOGNAME", "")
    if not who:
        raise Misuse("Nothing tells who you are.", hint="Say it: --by NAME.")
    return who


COMMAND = Command(_approve_arguments, _approve)
