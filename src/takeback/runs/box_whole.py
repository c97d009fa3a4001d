"""All that is in a box, as one layer over its base."""

import errno
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from takeback.errors import Refused, ResourceUnreachable
from takeback.model.point import Link, Point
from takeback.runs.box_setting import Setting
from takeback.runs.workshop import workshop
from takeback.storage.disk import unreachable
from takeback.storage.layers import Layers

if TYPE_CHECKING:
    from takeback.sandbox.differences import Left

WHOLES = "wholes"


@contextmanager
def whole_layer(layers: Layers, setting: Setting, point: Point) -> Generator[str, None, None]:
    """Where it lies for the moment; empty for a box that has none. Only hard links are made."""
    stack = layers.stack(point.layer)
    if len(stack) < 2:
        yield stack[0] if stack else ""
        return
    from takeback.sandbox.as_owner import remove_as_owner, squash_as_owner

    with workshop(os.path.join(setting.rooms, WHOLES)) as mine:
        made = os.path.join(mine, "whole")
        try:
            try:
                squash_as_owner(stack, made, setting.base)
            except OSError as error:
                if isinstance(error, PermissionError) or error.errno == errno.ENAMETOOLONG:
                    raise  # told by `readable`
                raise unreachable(made, "made", error) from error
            yield made
        finally:
            remove_as_owner(made, setting.base)


@contextmanager
def whole_lefts(layers: Layers, setting: Setting, point: Point) -> "Generator[Iterator[Left], None, None]":
    """Each path in which the box differs from its base."""
    from takeback.sandbox.differences import differences
    from takeback.sandbox.order import Stack

    with whole_layer(layers, setting, point) as layer:
        found = differences(layer, Stack(setting.base)) if layer else iter(())
        yield judged(found, setting.base)


@contextmanager
def readable(setting: Setting) -> Generator[None, None, None]:
    """What one of the other users of a root filesystem has closed, its owner outside cannot read; nor can anybody what
    lies deeper than a path can name, which a command reaches step by step."""
    try:
        yield
    except PermissionError as error:
        path = os.fsdecode(error.filename or "Something in it")
        raise ResourceUnreachable(
            f"{path} belongs to another user of the root filesystem {setting.base} and is closed to you.",
            hint="Open it inside the box first, for example: chmod -R a+rX DIRECTORY",
        ) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise Refused(
            "In the box is a path of more than 4,096 bytes, counted from where its layers lie.",
            hint="Nothing was changed. Move or remove it inside the box, or undo the step that made it.",
        ) from error


class Beginnings:
    """Whether a file that is not in the base lay there when the box first changed it, so that someone else took it away
    since. The lowest layer that has it tells: overlay notes on a copy where it came from, and what was removed leaves
    a mark. A squash cannot tell: its copies may be of files that the box itself had made."""

    def __init__(self, layers: Layers, base: str, point: Point) -> None:
        self._layers = layers
        self._base = base
        self._links = list(layers.chain(point.layer))[::-1]
        self._since = self._links[0].since if self._links else 0
        self._told: list[dict[bytes, bool]] = []

    def lay_below(self, path: bytes) -> bool:
        try:
            parent = os.stat(os.path.dirname(os.fsencode(self._base).rstrip(b"/") + path))
        except OSError:
            return False  # its directory is gone, which is told by itself
        if parent.st_ctime_ns <= self._since:
            return False  # no name was taken away there
        for number in range(len(self._links)):
            told = self._told[number] if number < len(self._told) else self._look(self._links[number])
            if path in told:
                return told[path]
        return False

    def _look(self, link: Link) -> dict[bytes, bool]:
        from takeback.sandbox.differences import differences
        from takeback.sandbox.order import Stack

        stack = Stack(self._base, self._layers.stack(link.parent))
        lefts = differences(self._layers.place_of(link.layer), stack)
        self._told.append({left.path: not link.top and left.below for left in lefts})
        return self._told[-1]


def judged(lefts: "Iterable[Left]", root: str, beginnings: Beginnings | None = None) -> "Iterator[Left]":
    """What lay below in the base. Overlay's own note of where a copy came from may mean an earlier layer of the box, so
    only what is certain counts: what is there now, directories that were merged with one of the base, and what the
    lowest layer tells."""
    start = os.fsencode(root).rstrip(b"/")
    fresh = b""  # the last directory that the box made itself
    for left in lefts:
        there = os.path.lexists(start + left.path)
        if left.source is None:
            if there:
                yield left._replace(below=True)
            continue
        inside = bool(fresh) and left.path.startswith(fresh + b"/")
        directory = os.path.isdir(left.source) and not os.path.islink(left.source)
        merged = directory and not inside
        if merged and _is_fresh(left.source):
            merged, fresh = False, left.path
        if directory and left.below and _is_moved(left.source):
            merged = True  # moved here, and another took away what it was made of
        if not there and not merged and not inside and fresh != left.path and beginnings:
            merged = beginnings.lay_below(left.path)
        yield left._replace(below=there or merged)


def _is_fresh(directory: bytes) -> bool:
    """Overlay notes on a copy of a directory that there was one below, and on one that was moved here where from."""
    names = _notes(directory)
    return "origin" not in names or "opaque" in names or "redirect" in names


def _is_moved(directory: bytes) -> bool:
    names = _notes(directory)
    return "redirect" in names and "opaque" not in names


def _notes(directory: bytes) -> list[str]:
    return [name.rpartition(".overlay.")[2] for name in os.listxattr(directory) if ".overlay." in name]
