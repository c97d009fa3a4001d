"""`redact`: erase content and words for good."""

import sys
from typing import TYPE_CHECKING

from takeback.errors import Misuse, Refused
from takeback.frontends.cli.command import BY, DRY_RUN, YES, Asked, Command, flag, option, positional
from takeback.frontends.cli.output.screen import clean, counted
from takeback.frontends.cli.session.project import at_terminal, confirmed
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.retention.redact import Redaction

_ARGUMENTS = (
    positional("ids", "ID", "effects and runs whose content goes", nargs="*"),
    option(
        "--match",
        "TEXT",
        "whatever holds this text; `-` reads it from standard input, where no list of processes shows it",
        default="",
    ),
    flag("--with-shared", "also other effects that need the same content"),
    option("--why", "WORDS", "the reason; it is recorded", default=""),
    BY,
    YES,
    DRY_RUN,
)


def _redact(asked: Asked) -> int:
    options, screen = asked.options, asked.screen
    match = _text(options.match)
    if bool(options.ids) == bool(match):
        raise Misuse("Give effects and runs, or --match.", hint="`takeback redact --help` shows an example.")

    def plan(tb: "Takeback") -> "Redaction":
        return tb.redact(
            options.ids or None,
            match=match,
            why=options.why,
            by=options.by,
            with_shared=options.with_shared,
            dry_run=True,
        )

    with existing(asked, plan) as tb:
        found = plan(tb)
        if not found.records and not found.blobs:
            give(asked, tb, _told(found, options.dry_run))
            screen.say("Nothing in the store holds that.")
            return 0
        _show(asked, found)
        if options.dry_run:
            give(asked, tb, _told(found, True))
            screen.say(f"Would erase {_counts(found)}. Nothing was changed.")
            return 0
        if not options.yes:
            _refuse_unasked(asked, found)
        done = tb.redact(
            options.ids or None, match=match, why=options.why, by=options.by, with_shared=options.with_shared
        )
        give(asked, tb, _told(done, False))
        screen.say(f"Erased {_counts(done)}.")
        for sentence in done.left:
            screen.say(clean(sentence))
        if match and not done.left:
            screen.say("A search of every file of the store found nothing of the text.")
        screen.hint("Copies elsewhere are not reached: the files themselves, backups, and what was exported.")
    return 0


def _refuse_unasked(asked: Asked, found: "Redaction") -> None:
    dry = "`--dry-run` shows what would go."
    if not at_terminal(asked):
        raise Refused(f"This erases {_counts(found)} for good.", hint=f"{dry} Add --yes to do it.")
    if not confirmed("Erase this for good?"):
        raise Refused("Nothing was changed.", hint=dry)


def _text(given: str) -> str:
    if given != "-":
        return given
    return sys.stdin.read().rstrip("\n")


def _show(asked: Asked, found: "Redaction") -> None:
    screen = asked.screen
    if found.lost:
        screen.say("These can no longer be undone, redone or applied:")
        for one in found.lost:
            screen.say(f"  {_line(one)}")
    if found.shared:
        others = [short(one) for one in found.shared if not one.startswith("#")]
        count = counted(len(found.shared), "other record" if not others else "other effect")
        screen.say(f"{count} name the same content, which stays for them: {', '.join(others[:8])}")
        screen.hint("--with-shared redacts them, too.")


def _line(effect: Effect) -> str:
    """Without its summary, which may hold what must not be shown."""
    return f"{short(effect.id)}  {effect.change.adapter} {effect.change.kind}, {effect.state.value}"


def _counts(found: "Redaction") -> str:
    return (
        f"the content of {counted(len(found.effects), 'effect')}, in {counted(len(found.records), 'record')}, and"
        f" {counted(len(found.blobs), 'blob')}"
    )


def _told(found: "Redaction", dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "effects": [one.id for one in found.effects],
        "lost": [one.id for one in found.lost],
        "records": list(found.records),
        "blobs": len(found.blobs),
        "shared": [one for one in found.shared if not one.startswith("#")],
        "left": list(found.left),
    }


COMMAND = Command(_redact, _ARGUMENTS)
