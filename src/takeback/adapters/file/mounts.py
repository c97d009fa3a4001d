"""Mounts, as far as files care: mount points inside a directory, its other names, and changed mounts above it."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from takeback.model.mounts import MOUNT_TABLE, Mounted, inside, mount_of, mounted, other_names, own_path
from takeback.model.remedy import Remedy
from takeback.model.resource import SCHEME, display, file_resource, path_of, quote, unquote

GROUND = "on"  # in the payload of a remedy


def table() -> tuple[Mounted, ...]:
    """As the kernel shows it now; empty where it does not."""
    return mounted(_shown())


_table = [MOUNT_TABLE]


def tell_table(path: str) -> None:
    """For a process that sees the world through a layer: where the mounts of the world itself are written down."""
    _table[:] = [path]


def _shown() -> bytes:
    try:
        with open(_table[0], "rb", buffering=0) as file:
            return file.readall()
    except FileNotFoundError:
        return b""


def mounts_below(resource: str) -> list[bytes]:
    """Mount points inside a directory, by their full path."""
    path = path_of(resource)
    below = path + b"/"
    return [one.point for one in table() if one.point.startswith(below) or one.point == path]


def names_of(directory: bytes) -> tuple[bytes, ...]:
    """The directory itself, and every other path that leads to it or into it."""
    return _names_of(_shown(), directory)


@lru_cache(maxsize=4)
def _names_of(shown: bytes, directory: bytes) -> tuple[bytes, ...]:
    return (directory, *other_names(mounted(shown), directory))


def ground_of(resources: Iterable[str]) -> dict[str, Any]:
    """The mounts that these paths lie on, for a payload: an undo finds out whether they are still the same."""
    mounts = table()
    parents = {resource.rpartition("/")[0] for resource in resources if resource.startswith(SCHEME)}
    found = {mount_of(mounts, path_of(parent) or b"/") for parent in parents}
    ground = [_line(one) for one in sorted(filter(None, found))]
    return {GROUND: ground} if ground and ground != [""] else {}


def _line(one: Mounted) -> str:
    """Where it is mounted, its kind, and which directory of it unless `/`. Nothing for the first of all mounts, under
    which there is no other: most effects lie on that one, and every byte of a record counts."""
    if (one.point, one.root) == (b"/", b"/"):
        return ""
    return " ".join(
        [quote(one.point), one.kind.decode("ascii"), *([quote(one.root)] if one.root != b"/" else [])]
    )


@lru_cache(maxsize=64)
def _read(line: str) -> Mounted:
    point, kind, root = [*(line.split(" ") if line else ("/", "")), "/"][:3]
    return Mounted(0, unquote(point), True, kind.encode(), root=unquote(root))


class Footing:
    """Where the paths of an effect lay when it was made, beside where they lie now."""

    def __init__(self, remedy: Remedy | None) -> None:
        """Remedies of version 1 may say nothing of mounts; later ones leave out the first of all."""
        told: list[str] = remedy.payload.get(GROUND, [""] if remedy.version > 1 else []) if remedy else []
        self._then = [_read(line) for line in told]
        self._now = table() if self._then else ()
        self._known: dict[str, str] = {}  # by directory

    def moved(self, resource: str) -> str:
        """Why an undo must leave this path alone: something was mounted or unmounted on the way to it. Else empty."""
        parent = resource.rpartition("/")[0]
        if parent not in self._known:
            self._known[parent] = self._judged(path_of(parent) or b"/")
        return self._known[parent]

    def _judged(self, path: bytes) -> str:
        around = [one for one in self._then if inside(path, one.point)]
        then = max(around, key=lambda one: len(one.point), default=None)
        now = mount_of(self._now, path)
        if then is None or now is None:
            return ""
        # The same directory of the same filesystem may be mounted otherwise: inside a container, for instance.
        if then.kind in (now.kind, b"") and own_path(then, path) == own_path(now, path):
            return ""
        if inside(now.point, then.point):
            return f"is out of reach: something else was mounted at {display(file_resource(now.point))} since"
        return f"is out of reach: {display(file_resource(then.point))} was unmounted since"
