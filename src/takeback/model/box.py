"""Where a box stands: its files, its current directory, and the variables that commands have exported in it."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from takeback.model.resource import quote, unquote

SCHEME = "box://"


class Point(NamedTuple):
    id: str  # each has its own, so that coming back to equal files is another point
    layer: str  # `box/layer`: the topmost of a chain; empty: the base as it is
    cwd: str  # inside
    env: str = ""  # the blob with what differs from the variables a box begins with; empty: nothing


class Link(NamedTuple):
    layer: str  # `box/name`
    parent: str  # the one it lies on; empty: the base
    depth: int  # how many commands lead here
    top: str = ""  # of a squash: the layer in whose place it stands
    since: int = (
        0  # of one on the base: before that moment, in nanoseconds, the box had not looked at the base
    )
    boot: str = ""  # of a layer recorded before it was on the disk: the boot of the machine then

    @property
    def stands_for(self) -> str:
        return self.top or self.layer


def box_resource(box: str) -> str:
    return SCHEME + box


def box_of(resource: str) -> str:
    return resource.removeprefix(SCHEME)


def point_to_json(point: Point) -> dict[str, Any]:
    """A path is bytes, and a record holds text only."""
    told: dict[str, Any] = {"point": point.id, "layer": point.layer, "cwd": _told(point.cwd)}
    if point.env:
        told["env"] = point.env
    return told


def point_from_json(told: Mapping[str, Any]) -> Point:
    return Point(told["point"], told["layer"], _meant(told["cwd"]), told.get("env", ""))


def _told(text: str) -> str:
    return quote(os.fsencode(text))


def _meant(text: str) -> str:
    return os.fsdecode(unquote(text))
