"""What an effect changed, before to after, for a person or for `patch`."""

import os
import sys
from typing import TYPE_CHECKING

from takeback.adapters.protocol import traits_of
from takeback.audit.diff import DiffPart, difference, quoted
from takeback.frontends.cli.output.screen import (
    Here,
    Screen,
    clean,
    clean_line,
    here,
    printing,
    put,
    shown,
)
from takeback.model.effect import Effect
from takeback.model.resource import path_of

if TYPE_CHECKING:
    from takeback.api import Takeback


def say_rows(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    from takeback.audit.rows import as_parts, changed_rows

    say_parts(screen, as_parts(effect, changed_rows(tb.parts, effect)))


def parts_of(tb: "Takeback", effect: Effect, only: str) -> tuple[DiffPart, ...]:
    if not traits_of(effect.change).boxes:
        return difference(tb.store.blobs, effect, only)
    from takeback.audit.diff import step_difference
    from takeback.model.resource import overlaps

    found = step_difference(tb.store.layers(), tb.store.blobs, effect)
    return tuple(part for part in found if not only or overlaps(only, part.resource))


def say_changed(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    """Of any effect, for `log -p`."""
    if "database" in effect.change.args:
        say_rows(screen, tb, effect)
    elif effect.targets:
        say_parts(screen, parts_of(tb, effect, ""))


def say_difference(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    say_parts(screen, difference(tb.store.blobs, effect))


def say_parts(screen: Screen, parts: tuple[DiffPart, ...]) -> None:
    if not parts:
        screen.say("It touched nothing that can be compared.")
    place = here()
    below = os.fsencode(place.directory) + b"/"
    # For `patch`, the paths of one answer all begin in the current directory or all at the root.
    if screen.terminal or all(path_of(part.resource).startswith(below) for part in parts):
        parts = tuple(_from_here(part, below) for part in parts)
    for part in parts:
        _say_part(screen, part, place)


def _from_here(part: DiffPart, below: bytes) -> DiffPart:
    """With the names above its lines as they are seen from the current directory."""
    path = path_of(part.resource)
    if not part.lines or not path.startswith(below):
        return part
    names = {
        sign + quoted(side + path): sign + quoted(side + b"/" + path[len(below) :])
        for sign, side in ((b"--- ", b"a"), (b"+++ ", b"b"))
    }
    return part._replace(lines=(*(names.get(one, one) for one in part.lines[:2]), *part.lines[2:]))


def _say_part(screen: Screen, part: DiffPart, place: Here) -> None:
    for words in part.words:
        screen.say(f"{screen.paint(shown(part.resource, place), 'bold')}: {clean(words)}")
    if screen.json or screen.quiet:
        return
    if not (screen.terminal or screen.colour):
        # For a program: the bytes as they are, so that `patch` can use them.
        with printing():
            put("", end="")
            sys.stdout.flush()
            sys.stdout.buffer.writelines(line + b"\n" for line in part.lines)
        return
    styles = {b"+": "green", b"-": "red", b"@": "cyan"}
    for number, line in enumerate(part.lines):
        style = "bold" if number < 2 else styles.get(line[:1], "")
        screen.say(screen.paint(clean_line(line), style))
