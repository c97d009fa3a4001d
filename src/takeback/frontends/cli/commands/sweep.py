"""`sweep`: delete the bytes that nothing needs any more."""

import time
from argparse import ArgumentParser

from takeback.errors import (
    Misuse,
)
from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.output.screen import seconds_in_words, took
from takeback.frontends.cli.session.store import (
    give,
    nothing_recorded,
    nothing_yet,
    opened,
)
from takeback.model.settings import MOST_SECONDS, bytes_in_words


def _sweep_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--grace",
        type=int,
        metavar="S",
        help="leave what is younger than S seconds (else the setting grace_seconds)",
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also drop the copies of directories that were watched; the next watch reads them again",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say how much it would delete at least")


def _sweep(asked: Asked) -> int:
    screen = asked.screen
    if asked.options.grace is not None and not 0 <= asked.options.grace <= MOST_SECONDS:
        raise Misuse(
            "The grace period cannot be negative or longer than a hundred years.",
            hint="Give a number of seconds from 0.",
        )
    if nothing_yet(asked):
        screen.say(nothing_recorded(asked))
        screen.give({"freed": 0, "size": 0})
        return 0
    started = time.perf_counter()
    with opened(asked) as tb:
        if asked.options.dry_run:
            least = tb.sweep(asked.options.grace, dry_run=True)
            give(asked, tb, {"dry_run": True, "freed": least, "size": tb.size()})
            screen.say(
                f"Would delete {bytes_in_words(least)} at least, and what boxes and watches do not need."
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


COMMAND = Command(_sweep_arguments, _sweep)
