"""The difference of an effect for a page: text side by side, everything else in words."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.api import opened_of
from takeback.audit.diff import DiffPart, difference, file_targets, step_difference
from takeback.audit.rows import as_parts, changed_rows
from takeback.errors import TakebackError
from takeback.frontends.console.paper import text_of
from takeback.model.effect import Effect
from takeback.model.resource import display
from takeback.policy.secrets import masked_lines

if TYPE_CHECKING:
    from takeback.api import Takeback

MOST_PARTS = 20  # shown on one page
_MOST_LINES = 400  # of one part
_LONGEST_LINE = 500
_AT_ONCE = 2 << 20  # bytes of content that a page compares before it asks
_RANGE = re.compile(rb"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


class DiffRow(NamedTuple):
    """One line of both sides; a side without a line has no number."""

    kind: str  # same, changed, gone, come, gap
    old_number: int
    old: str
    new_number: int
    new: str


class ShownPart(NamedTuple):
    resource: str
    name: str
    words: tuple[str, ...]
    rows: tuple[DiffRow, ...]
    lines: tuple[str, ...]  # of a table of rows
    more: int  # rows that are not shown
    is_asked_for: bool = False  # too much to compare unasked


def parts(tb: "Takeback", effect: Effect, only: str = "") -> tuple[list[ShownPart], int]:
    """Those that fit on a page, and how many more there are. `only`: a target of the effect, whole."""
    if "database" in effect.change.args:
        changed = changed_rows(opened_of(tb).parts, effect)
        return [_of_rows(one) for one in as_parts(effect, changed)], 0
    if traits_of(effect.change).boxes:
        found = step_difference(tb.store.layers(), tb.store.blobs, effect)
        return [shown(one) for one in found[:MOST_PARTS]], max(0, len(found) - MOST_PARTS)
    targets = file_targets(effect)
    if only:
        return [shown(one, whole=True) for one in difference(tb.store.blobs, effect, only)], 0
    if len(targets) <= MOST_PARTS and _size(effect) <= _AT_ONCE:
        return [shown(one) for one in difference(tb.store.blobs, effect)], 0
    few = [_to_be_asked(one.resource, effect, one.before, one.after) for one in targets[:MOST_PARTS]]
    return few, max(0, len(targets) - MOST_PARTS)


def _size(effect: Effect) -> int:
    return sum(
        int(state.get("size", 0) or 0) for one in file_targets(effect) for state in (one.before, one.after)
    )


def _to_be_asked(
    resource: str, effect: Effect, before: dict[str, object], after: dict[str, object]
) -> ShownPart:
    from takeback.audit.diff import in_words

    words = f"{in_words(effect, before)} → {in_words(effect, after)}"
    return ShownPart(resource, display(resource), (words,), (), (), 0, is_asked_for=True)


def _of_rows(part: DiffPart) -> ShownPart:
    lines = tuple(text_of(one) for one in part.lines)
    most = 2 * _MOST_LINES
    return ShownPart(
        part.resource, display(part.resource), part.words, (), lines[:most], max(0, len(lines) - most)
    )


def shown(part: DiffPart, whole: bool = False) -> ShownPart:
    most = 25 * _MOST_LINES if whole else _MOST_LINES
    rows = tuple(islice(side_by_side(without_secrets(part.lines[: 2 * most])), most))
    more = (
        max(0, len(part.lines) - len(rows)) if len(rows) == most else 0
    )  # about: two lines may stand in one row
    return ShownPart(part.resource, display(part.resource), part.words, rows, (), more)


def without_secrets(lines: Sequence[bytes]) -> list[bytes]:
    """The lines of a diff. A key in several lines is found on either side."""
    marks = [line[:1] for line in lines]
    texts = [line[1:].decode("utf-8", "surrogateescape") for line in lines]
    for side in (b" -", b" +"):
        of_side = [n for n, mark in enumerate(marks) if mark and mark in side]
        for n, text in zip(of_side, masked_lines(texts[n] for n in of_side), strict=True):
            texts[n] = text
    return [mark + text.encode("utf-8", "surrogateescape") for mark, text in zip(marks, texts, strict=True)]


def side_by_side(lines: Sequence[bytes]) -> Iterator[DiffRow]:
    """The lines of a unified diff, what went beside what came."""
    old = new = 0
    gone: list[bytes] = []
    come: list[bytes] = []

    def flush() -> Iterator[DiffRow]:
        nonlocal old, new
        for left, right in zip_longest(gone, come):
            kind = "changed" if left is not None and right is not None else "come" if left is None else "gone"
            old, new = old + (left is not None), new + (right is not None)
            yield DiffRow(
                kind,
                old if left is not None else 0,
                _line(left) if left is not None else "",
                new if right is not None else 0,
                _line(right) if right is not None else "",
            )
        gone.clear()
        come.clear()

    for line in lines[2:] if lines[:1] and lines[0].startswith(b"---") else lines:
        mark = line[:1]
        if mark == b"-":
            gone.append(line[1:])
        elif mark == b"+":
            come.append(line[1:])
        elif mark == b"\\":
            (come or gone or [b""])[-1] += b"  (no newline at the end)"
        else:
            yield from flush()
            if found := _RANGE.match(line):
                old, new = int(found[1]) - 1, int(found[2]) - 1
                yield DiffRow("gap", 0, "", 0, "")
            else:
                old, new = old + 1, new + 1
                yield DiffRow("same", old, _line(line[1:]), new, _line(line[1:]))
    yield from flush()


def _line(line: bytes) -> str:
    text = text_of(line[: 4 * _LONGEST_LINE])
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"


def parts_or_why(tb: "Takeback", effect: Effect, only: str = "") -> tuple[list[ShownPart], int, str]:
    """Or why it cannot be shown: a database that cannot be reached, content that was forgotten."""
    try:
        return *parts(tb, effect, only), ""
    except TakebackError as error:
        return [], 0, str(error)
