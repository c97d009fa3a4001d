"""What is mounted where, as far as files care: mount points inside a directory, other names of one, a moved ground."""

from collections.abc import Iterable, Mapping
from typing import Any

from takeback.model.mounts import TABLE, Mounted, inside, mount_of, mounted, other_names, own_path
from takeback.model.resource import SCHEME, display, file_resource, path_of, quote, unquote

GROUND = "mounts"  # in the payload of a remedy


def table() -> list[Mounted]:
    """As the kernel tells it now; empty where it does not."""
    try:
        with open(TABLE, "rb") as file:
            return mounted(file.read())
    except FileNotFoundError:
        return []


def mounts_below(resource: str) -> list[bytes]:
    """Mount points inside a directory, by their full path."""
    path = path_of(resource)
    below = path + b"/"
    return [one.point for one in table() if one.point.startswith(below) or one.point == path]


def names_of(directory: bytes) -> tuple[bytes, ...]:
    """The directory itself, and every other path that leads to it or into it."""
    return (directory, *other_names(table(), directory))


def ground_of(resources: Iterable[str]) -> dict[str, Any]:
    """The mounts that these paths lie on, for a payload: an undo finds out whether they are still the same."""
    mounts = table()
    parents = {resource.rpartition("/")[0] for resource in resources if resource.startswith(SCHEME)}
    found = {mount_of(mounts, path_of(parent) or b"/") for parent in parents}
    ground = {
        quote(one.point): [one.kind.decode("ascii"), quote(one.root)] for one in sorted(filter(None, found))
    }
    return {GROUND: ground} if ground else {}


class Footing:
    """Where the paths of an effect lay when it was made, beside where they lie now."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        recorded: dict[str, list[str]] = payload.get(GROUND, {})
        self._then = [
            Mounted(0, unquote(point), True, kind.encode(), root=unquote(root))
            for point, (kind, root) in recorded.items()
        ]
        self._now = table() if self._then else []
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
        if then.kind == now.kind and own_path(then, path) == own_path(now, path):
            return ""
        if inside(now.point, then.point):
            return f"is out of reach: something else was mounted at {display(file_resource(now.point))} since"
        return f"is out of reach: {display(file_resource(then.point))} was unmounted since"
