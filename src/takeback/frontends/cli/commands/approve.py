"""`approve`: say yes to what was proposed."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from takeback.api import opened_of
from takeback.api.store import now
from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import BY, Asked, Command, flag, option, positional
from takeback.frontends.cli.commands.pending import proposal_json, say_proposal
from takeback.frontends.cli.output.screen import Screen, clean, from_here
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.api import Takeback


KEYED = (
    option("--key", "FILE", "prove it with your private key; --by is then your name in [approvers]"),
    option("--passphrase-file", "FILE", "where its passphrase is; else it is asked for"),
)
DECIDING = (
    positional("id", "ID", "a proposed call"),
    BY,
    *KEYED,
    flag("--dry-run", "only show what would be decided on"),
)
_ARGUMENTS = (
    positional("id", "ID", "a proposed call", nargs="?"),
    *DECIDING[1:],
    option("--answer", "WORDS", "the words that you are asked to type", default=""),
    flag("--show-request", "print what is to be signed, for `takeback approver sign` on another machine"),
    option("--answer-file", "FILE", "a signed answer, yes or no; - for standard input"),
)


def _approve(asked: Asked) -> int:
    from takeback.engine.approval import challenge

    options, screen = asked.options, asked.screen
    if options.answer_file:
        return _take_answer(asked)
    if not options.id:
        raise Misuse("Which one? Give its id.", hint="`takeback pending` lists what waits.")
    if options.show_request:
        return _show_request(asked)

    def approve(tb: "Takeback", effect: Effect) -> Effect:
        answer = options.answer
        if challenge(effect) and not answer and screen.terminal and sys.stdin.isatty():
            from takeback.frontends.cli.session.passphrase import hide

            hide()
            say_proposal(screen, tb, effect)
            answer = input(f'Type "{challenge(effect)}" to approve it: ')
        if options.key:
            return by_key(asked, tb, effect, True, answer)
        return tb.approve(effect, by=options.by, answer=answer)

    return decided(asked, approve, "approved; its run makes it when it asks again")


def by_key(
    asked: Asked, tb: "Takeback", effect: Effect, approved: bool, words: str = "", why: str = ""
) -> Effect:
    from takeback.api.answers import answer, load_key, request_of, signed_answer
    from takeback.frontends.cli.session.passphrase import passphrase_for

    options = asked.options
    if not options.by:
        raise Misuse(
            "--key needs --by.", hint="Your name in [approvers]; `takeback approver list` shows them."
        )
    private = load_key(options.key, passphrase_for(options.key, options.passphrase_file))
    shown = request_of(opened_of(tb), effect)
    return answer(opened_of(tb), signed_answer(shown, approved, options.by, private, words, why))


def _show_request(asked: Asked) -> int:
    from takeback.api.answers import request_of
    from takeback.engine.approval import refuse_undecidable

    with existing(asked) as tb:
        effect = tb.effect(asked.options.id)
        refuse_undecidable(opened_of(tb).parts, effect, now())
        sys.stdout.write(json.dumps(request_of(opened_of(tb), effect), indent=2) + "\n")
    return 0


def _take_answer(asked: Asked) -> int:
    from takeback.api.answers import answer
    from takeback.frontends.cli.commands.approver import read_json

    options = asked.options
    message = read_json(options.answer_file)
    with existing(asked) as tb:
        if options.id and tb.effect(options.id).id != message.get("id"):
            raise Misuse(
                "The answer is for another proposal.", hint="Leave the id away, or give the one it names."
            )
        done = answer(opened_of(tb), message)
        give(asked, tb, effect_json(done))
        word = "approved" if message["approved"] else "denied"
        asked.screen.say(f"{short(done.id)} {from_here(done.change.summary)}: {word}.")
        tell_who(asked.screen, tb, done)
    return 0


def decided(asked: Asked, decide: "Callable[[Takeback, Effect], Effect]", told: str) -> int:
    from takeback.engine.approval import refuse_undecidable

    def known(tb: "Takeback") -> None:
        refuse_undecidable(opened_of(tb).parts, tb.effect(asked.options.id), now())

    with existing(asked, known) as tb:
        effect = tb.effect(asked.options.id)
        refuse_undecidable(opened_of(tb).parts, effect, now())
        if asked.options.dry_run:
            give(asked, tb, {"dry_run": True, **proposal_json(tb, effect)})
            say_proposal(asked.screen, tb, effect)
            return 0
        decided = decide(tb, effect)
        give(asked, tb, effect_json(decided) | {"people": _said(tb, decided)})
        left = _missing(tb, decided)
        said = f"{left} more must approve it" if left and told.startswith("approved") else told
        asked.screen.say(f"{short(decided.id)} {from_here(decided.change.summary)}: {said}.")
        tell_who(asked.screen, tb, decided)
    return 0


def _missing(tb: "Takeback", effect: Effect) -> int:
    from takeback.engine.approval import as_it_stands

    one = as_it_stands(tb.store, effect, now())
    return one.people - len(one.said_yes) if one.decision is None else 0


def _said(tb: "Takeback", effect: Effect) -> list[dict[str, str]]:
    from takeback.engine.approval import decisions
    from takeback.model.person import recorded

    return [recorded(one.by) for one in decisions(tb.store, effect)]


def tell_who(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    """Who is recorded, and whether that is proven."""
    from takeback.engine.approval import decisions

    last = decisions(tb.store, effect)[-1].by
    if last.is_proven:
        screen.say(f"Recorded: {clean(last.name)}, known by {last.known_by.value} ({clean(last.detail)}).")
        return
    screen.say(f"Recorded: {clean(last.in_words())}, {clean(last.detail)}.")
    screen.hint(
        "Not proven: a process of the agent's user could have said the same. A key, another user or a login at the "
        "console prove it; `takeback approver --help`."
    )


def _only_looks(options: Namespace) -> bool:
    return options.dry_run or options.show_request


COMMAND = Command(_approve, _ARGUMENTS, only_looks=_only_looks)
