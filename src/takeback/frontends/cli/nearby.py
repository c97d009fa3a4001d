"""Paths and times as they look from where the reader stands."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from takeback.frontends.cli.output import clean, local_time
from takeback.model.resource import ESCAPED, display

_T = TypeVar("_T")
_FOLDED_FROM = 3  # so many paths in one directory become one line
_FILE = "sqlite:///"  # before the path of a database
_WEEK = 7 * 86400 * 1_000_000


class Here(NamedTuple):
    directory: str
    home: str


def here() -> Here:
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = ""
    return Here(directory, os.environ.get("HOME", "").rstrip("/"))


def near(path: str, place: Here) -> str:
    """Relative below the current directory, from ~ below the home directory, else as it is. Of a database in a file
    only the path is told."""
    if path.startswith(ESCAPED):
        return ESCAPED + near(path[len(ESCAPED) :], place)
    if path.startswith(f"{_FILE}/"):
        nearer = near(path[len(_FILE) :], place)
        return path if nearer.startswith("/") else nearer
    for root, sign in ((place.directory, "."), (place.home, "~")):
        if len(root) > 1 and path == root:
            return sign
        if len(root) > 1 and path.startswith(f"{root}/"):
            rest = path[len(root) + 1 :]
            return rest if sign == "." else f"~/{rest}"
    return path


def shown(resource: str, place: Here) -> str:
    """A resource, from where the reader stands."""
    return near(clean(display(resource)), place)


def near_text(text: str, place: Here) -> str:
    """A sentence with the paths in it made near. Only words that begin with the directory are touched."""
    if len(place.directory) > 1:
        text = text.replace(f"{_FILE}{place.directory}/", _FILE)
    for root, sign in ((place.directory, ""), (place.home, "~/")):
        if len(root) > 1 and f"{root}/" in text:
            pieces = text.split(f"{root}/")
            text = pieces[0] + "".join(
                (sign if before[-1:] in ("", " ", "'", '"', "(", ":", ",") else f"{root}/") + after
                for before, after in pairwise(pieces)
            )
    return text


def nearest_first(items: Sequence[_T], path_of: Callable[[_T], str], place: Here) -> list[_T]:
    """What lies below the current directory comes first; caches and the like after it."""
    below = f"{place.directory}/"
    return sorted(items, key=lambda one: not path_of(one).removeprefix(ESCAPED).startswith(below))


def folded(paths: Iterable[str], most: int, place: Here) -> list[str]:
    """Lines for at most `most` paths and directories; a directory stands for what is in it where there is too much."""
    shown = [near(path, place) for path in nearest_first(list(paths), str, place)]
    if len(shown) <= most:
        return shown
    groups: dict[str, list[str]] = {}
    for path in shown:
        groups.setdefault(_top(path), []).append(path)
    counted: list[tuple[str, int]] = []
    for top, members in groups.items():
        if len(members) >= _FOLDED_FROM:
            counted.append((f"{top}/ ({len(members):,} paths)", len(members)))
        else:
            counted += [(path, 1) for path in members]
    lines = [line for line, _ in counted[:most]]
    left = sum(count for _, count in counted[most:])
    return [*lines, f"and {left:,} more"] if left else lines


def _top(path: str) -> str:
    """The directory that stands for a path: the first one below the reader, the second one elsewhere."""
    path = path.removeprefix(ESCAPED)
    depth = 1 if not path.startswith(("/", "~")) else 3 if path.startswith("/") else 2
    parts = path.split("/")
    return "/".join(parts[:depth]) if len(parts) > depth else path


def ago(at: int, now: int) -> str:
    """Microseconds since 1970; local dates from a week on. ? for 0, because the record that would tell is damaged."""
    if not at:
        return "?"
    seconds = max(0, (now - at) // 1_000_000)
    if seconds < 5:
        return "just now"
    for size, unit, word in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < size:
            return f"{seconds // unit} {word} ago"
    if now - at < _WEEK:
        days = seconds // 86400
        return f"{days} day{'' if days == 1 else 's'} ago"
    return _day(at, now)


def when(at: int, now: int) -> str:
    """How long ago, and by the clock; older than a week only by the clock."""
    if not at or now - at >= _WEEK:
        return local_time(at, now)
    return f"{ago(at, now)} ({local_time(at, now)})"


def ahead(at: int, now: int) -> str:
    """In how long."""
    seconds = max(0, (at - now) // 1_000_000)
    for size, unit, word in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < size:
            return f"in {seconds // unit} {word}"
    days = round(seconds / 86400)
    return f"in {days} day{'' if days == 1 else 's'} ({_day(at, now)})"


def _day(at: int, now: int) -> str:
    then, today = time.localtime(at // 1_000_000), time.localtime(now // 1_000_000)
    return time.strftime("%b %d" if then.tm_year == today.tm_year else "%Y-%m-%d", then)
