"""`approve`: say yes to what was proposed."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from takeback.api import opened_of
from takeback.api.store import now
from takeback.audit.views import effect_json
from takeback.frontends.cli.command import BY, Asked, Command, flag, option, positional
from takeback.frontends.cli.commands.pending import proposal_json, say_proposal
from takeback.frontends.cli.output.screen import from_here
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.api import Takeback


DECIDING = (
    positional("id", "ID", "a proposed call"),
    BY,
    flag("--dry-run", "only show what would be decided on"),
)
_ARGUMENTS = (*DECIDING, option("--answer", "WORDS", "the words that you are asked to type", default=""))


def _approve(asked: Asked) -> int:
    from takeback.engine.approval import challenge

    options, screen = asked.options, asked.screen

    def approve(tb: "Takeback", effect: Effect) -> Effect:
        answer = options.answer
        if not answer and screen.terminal and sys.stdin.isatty():
            say_proposal(screen, effect)
            answer = input(f'Type "{challenge(effect)}" to approve it: ')
        return tb.approve(effect, by=options.by, answer=answer)

    return decided(asked, approve, "approved; its run makes it when it asks again")


def decided(asked: Asked, decide: "Callable[[Takeback, Effect], Effect]", told: str) -> int:
    from takeback.engine.approval import refuse_undecidable

    def known(tb: "Takeback") -> None:
        refuse_undecidable(opened_of(tb).parts, tb.effect(asked.options.id), now())

    with existing(asked, known) as tb:
        effect = tb.effect(asked.options.id)
        refuse_undecidable(opened_of(tb).parts, effect, now())
        if asked.options.dry_run:
            give(asked, tb, {"dry_run": True, **proposal_json(effect)})
            say_proposal(asked.screen, effect)
            return 0
        decided = decide(tb, effect)
        give(asked, tb, effect_json(decided))
        asked.screen.say(f"{short(decided.id)} {from_here(decided.change.summary)}: {told}.")
    return 0


COMMAND = Command(_approve, _ARGUMENTS)
