"""`settle`: a person says what became of a call that is in doubt."""

from argparse import ArgumentParser
from typing import Any

from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect, State
from takeback.model.ids import short


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a call that is in doubt")
    said = parser.add_mutually_exclusive_group(required=True)
    said.add_argument("--happened", action="store_true", help="it did happen")
    said.add_argument("--did-not", action="store_true", help="it did not, and will not any more")
    parser.add_argument(
        "--receipt", metavar="JSON", help="what it returned, or would have; its undo needs that"
    )
    parser.add_argument("--by", default="", metavar="NAME", help="who says so")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be recorded")


def _settle(asked: Asked) -> int:
    from takeback.engine.approval import receipt_from, refuse_unsettleable

    options, screen = asked.options, asked.screen
    receipt: Any = None
    if options.receipt is not None:
        if options.did_not:
            raise Misuse("What did not happen has no receipt.", hint="Leave --receipt away.")
        receipt = receipt_from(options.receipt)
    with existing(asked, lambda tb: tb.effect(options.id)) as tb:
        effect = tb.effect(options.id)
        if options.dry_run:
            refuse_unsettleable(effect)
            give(asked, tb, {"dry_run": True, **effect_json(effect)})
            word = "done" if options.happened else "one that never happened"
            screen.say(f"{short(effect.id)} {clean(effect.change.summary)} would be recorded as {word}.")
            return 0
        settled = tb.settle(effect, bool(options.happened), receipt=receipt, by=options.by)
        give(asked, tb, effect_json(settled))
        screen.say(
            f"{short(settled.id)} {clean(settled.change.summary)}: {_told(settled, options.happened)}."
        )
        if options.happened and receipt is None and not settled.is_undo and settled.state is State.DONE:
            screen.hint("It has no receipt: its undo is called with none. --receipt gives one.")
    return 0


def _told(effect: Effect, happened: bool) -> str:
    if not happened:
        return "recorded as one that never happened"
    if effect.state is State.UNDONE:
        return f"recorded as done, and taken back with its run, by {short(effect.undone_by)}"
    return "recorded as done"


COMMAND = Command(_arguments, _settle)
