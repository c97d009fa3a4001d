"""`settle`: a person says what became of a call that is in doubt."""

import json
from typing import Any

from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import BY, Asked, Command, flag, option, positional
from takeback.frontends.cli.output.screen import from_here
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect, State
from takeback.model.ids import short

_ARGUMENTS = (
    positional("id", "ID", "a call that is in doubt"),
    flag("--happened", "it did happen"),
    flag("--did-not-happen", "it did not happen and will not"),
    option("--receipt", "JSON", "the result of the call; its undo needs it"),
    flag("--accept-residue", "of a stuck effect: leave its residue as it is"),
    option("--why", "TEXT", "with --accept-residue: the reason", default=""),
    BY,
    flag("--dry-run", "only show what would be recorded"),
)


def _settle(asked: Asked) -> int:
    from takeback.engine.approval import refuse_unsettleable

    options, screen = asked.options, asked.screen
    if sum((options.happened, options.did_not_happen, options.accept_residue)) != 1:
        raise Misuse("Give one of --happened, --did-not-happen and --accept-residue.")
    if options.accept_residue:
        return _accept_residue(asked)
    if options.why:
        raise Misuse("--why is for --accept-residue.")
    receipt: Any = None
    if options.receipt is not None:
        if options.did_not_happen:
            raise Misuse("What did not happen has no receipt.", hint="Leave --receipt away.")
        try:
            receipt = json.loads(options.receipt)
        except ValueError as error:
            said = f"The receipt is not JSON: {error}."
            raise Misuse(said, hint="""For example --receipt '{"id": 7}'.""") from None
    with existing(asked, lambda tb: tb.effect(options.id)) as tb:
        effect = tb.effect(options.id)
        if options.dry_run:
            refuse_unsettleable(effect)
            word = "done" if options.happened else "one that never happened"
            said = f"{short(effect.id)} {from_here(effect.change.summary)} would be recorded as {word}."
            return asked.would(effect_json(effect), said)
        settled = tb.settle(effect, bool(options.happened), receipt=receipt, by=options.by)
        give(asked, tb, effect_json(settled))
        screen.say(
            f"{short(settled.id)} {from_here(settled.change.summary)}: {_told(settled, options.happened)}."
        )
        if options.happened and receipt is None and not settled.is_undo and settled.state is State.DONE:
            screen.hint("No --receipt was given, so its undo is called without one.")
    return 0


def _accept_residue(asked: Asked) -> int:
    options = asked.options
    if options.receipt is not None:
        raise Misuse("--receipt is for --happened.")
    with existing(asked, lambda tb: tb.effect(options.id)) as tb:
        settled = tb.accept_residue(options.id, why=options.why, by=options.by, dry_run=options.dry_run)
        what = f"{short(settled.id)} {from_here(settled.change.summary)}"
        if options.dry_run:
            return asked.would(effect_json(settled), f"The residue of {what} would be accepted.")
        give(asked, tb, effect_json(settled))
        asked.screen.say(f"{what}: its residue is accepted, and stays.")
    return 0


def _told(effect: Effect, happened: bool) -> str:
    if not happened:
        return "recorded as one that never happened"
    if effect.state is State.UNDONE:
        return f"recorded as done, and taken back with its run, by {short(effect.undone_by)}"
    return "recorded as done"


COMMAND = Command(_settle, _ARGUMENTS)
