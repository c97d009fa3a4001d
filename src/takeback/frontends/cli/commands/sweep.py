"""`sweep`: delete the bytes that nothing needs any more."""

import time

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, flag, option
from takeback.frontends.cli.output.screen import seconds_in_words, took
from takeback.frontends.cli.session.store import done_with_nothing, give, nothing_yet, opened
from takeback.model.settings import MOST_SECONDS, bytes_in_words

_ARGUMENTS = (
    option("--grace", "S", "leave what is younger than S seconds (else the setting grace_seconds)", type=int),
    flag(
        "--baselines",
        "also drop the copies of directories that were watched; the next watch reads them again",
    ),
    flag("--dry-run", "only say how much it would delete at least: boxes and watches are not counted"),
)


def _sweep(asked: Asked) -> int:
    screen = asked.screen
    if asked.options.grace is not None and not 0 <= asked.options.grace <= MOST_SECONDS:
        raise Misuse(
            "The grace period cannot be negative or longer than a hundred years.",
            hint="Give a number of seconds from 0.",
        )
    dry = {"dry_run": True} if asked.options.dry_run else {}
    if nothing_yet(asked):
        return done_with_nothing(asked, {**dry, "freed": 0, "size": 0})
    started = time.perf_counter()
    with opened(asked) as tb:
        if asked.options.dry_run:
            least = tb.sweep(asked.options.grace, dry_run=True)
            asked.would(
                {"freed": least, "size": tb.size()}, f"Would delete at least {bytes_in_words(least)}."
            )
            screen.hint(
                "What boxes and copies of watched directories do not need is not counted; it goes too."
            )
            return 0
        freed = tb.sweep(asked.options.grace, baselines=asked.options.baselines)
        size = tb.size()
        give(asked, tb, {"freed": freed, "size": size})
        screen.say(
            f"Freed {bytes_in_words(freed)} in {took(started)}; the store takes {bytes_in_words(size)}."
        )
        if asked.options.baselines and asked.options.grace is None:
            screen.hint(
                f"Bytes younger than {seconds_in_words(tb.store.settings.grace_seconds)} stay; `--grace 0` deletes "
                "them too, when no other takeback is at work."
            )
    return 0


COMMAND = Command(_sweep, _ARGUMENTS)
