"""All that is in a box, as one layer over its base."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from takeback.errors import ResourceUnreachable
from takeback.model.point import Point
from takeback.runs.box_setting import Setting
from takeback.runs.workshop import workshop
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
            squash_as_owner(stack, made, setting.base)
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
    """What one of the other users of a root filesystem has closed, its owner outside cannot read."""
    try:
        yield
    except PermissionError as error:
        path = os.fsdecode(error.filename)
        raise ResourceUnreachable(
            f"{path} belongs to another user of the root filesystem {setting.base} and is closed to you.",
            hint="Open it inside the box first, for example: chmod -R a+rX DIRECTORY",
        ) from error


def judged(lefts: "Iterable[Left]", root: str) -> "Iterator[Left]":
    """What lay below in the base. Overlay's own note of where a copy came from may mean an earlier layer of the box, so
    only what is certain counts: what is there now, and directories that were merged with one of the base."""
    start = os.fsencode(root).rstrip(b"/")
    fresh = b""  # the last directory that the box made itself
    for left in lefts:
        there = os.path.lexists(start + left.path)
        if left.source is None:
            if there:
                yield left._replace(below=True)
            continue
        inside = bool(fresh) and left.path.startswith(fresh + b"/")
        merged = not inside and os.path.isdir(left.source) and not os.path.islink(left.source)
        if merged and _is_fresh(left.source):
            merged, fresh = False, left.path
        yield left._replace(below=there or merged)


def _is_fresh(directory: bytes) -> bool:
    """Overlay notes on a copy of a directory that there was one below, and on one that was moved here where from."""
    names = [name.rpartition(".overlay.")[2] for name in os.listxattr(directory) if ".overlay." in name]
    return "origin" not in names or "opaque" in names or "redirect" in names
