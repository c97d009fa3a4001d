"""Which directories may be watched, and what in them is left out; decided before a byte is written."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from takeback.adapters.file.mounts import mounts_below, names_of
from takeback.adapters.watch.ignore import Ignoring
from takeback.adapters.watch.index import REGENERABLE, STORE
from takeback.adapters.watch.scan import Rules
from takeback.errors import Misuse, Refused
from takeback.model.home import home
from takeback.model.resource import display, file_resource, path_of, unquote

# Directories that a tool makes again from what is beside them. They are left out only where the project's own ignore
# rules name them too: a `build` that is not ignored is work.
REGENERABLE_NAMES = (
    "node_modules", "bower_components", ".venv", "venv", ".tox", ".nox", "__pycache__", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".eggs", "site-packages", "target", "build", "dist", "out", ".next", ".nuxt",
    ".svelte-kit", ".turbo", ".parcel-cache", ".gradle", ".cache", "coverage", "htmlcov", "cmake-build-debug",
    "cmake-build-release", "Pods", "DerivedData", ".terraform", "elm-stuff", "_build", ".stack-work",
)  # fmt: skip

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")  # noqa: S108 - not used, refused


class Root(NamedTuple):
    resource: str
    path: bytes


def root_of(path: "str | bytes | os.PathLike[str]") -> Root:
    """The real directory, links followed."""
    try:
        raw = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise Misuse(f"{path!r} is no path.", hint="Name a directory to watch.") from None
    if not raw or b"\0" in raw:
        raise Misuse("An empty path, or one with a zero byte, names nothing.", hint="Give a directory.")
    real = os.path.realpath(raw)
    if not os.path.isdir(real):
        raise Misuse(f"{display(file_resource(real))} is not a directory.", hint="Name a directory to watch.")
    if not os.access(real, os.R_OK | os.X_OK):
        raise Misuse(f"{display(file_resource(real))} cannot be read.", hint="Check its mode and owner.")
    return Root(file_resource(real), real)


def roots_of(paths: "Sequence[str | bytes | os.PathLike[str]]") -> tuple[Root, ...]:
    """Each once. What lies in a watched directory is watched with it, unless another filesystem begins in between."""
    found = sorted({root_of(path) for path in paths})
    if not found:
        raise Misuse("No directory to watch was named.", hint="Name at least one.")
    kept: list[Root] = []
    for root in found:
        above = [one for one in kept if _contains(one.path, root.path)]
        if not above or any(_contains(point, root.path) for point in _points_below(above[-1])):
            kept.append(root)
    return tuple(kept)


def _points_below(root: Root) -> list[bytes]:
    return [point for point in mounts_below(root.resource) if point != root.path]


def refuse_dangerous(roots: Sequence[Root], store: bytes, force: bool) -> None:
    """Quick, and without looking into them."""
    names = names_of(store)
    for root in roots:
        if any(_contains(name, root.path) for name in names):
            raise Misuse(
                f"{display(root.resource)} lies in takeback's own store.",
                hint="Name a directory of your own.",
            )
        if not force and (why := _dangerous(root.path, names)):
            raise Refused(
                f"{display(root.resource)} is not watched: {why}.",
                hint="Nothing was done. Name the project's own directory; --force (force=True) watches it anyway.",
            )


def refuse_large(roots: Sequence[Root], most: int) -> None:
    """By counting names alone, and no further than needed; the look itself counts again, more exactly."""
    for root in roots:
        pending, count = [root.path], 0
        while pending:
            try:
                with os.scandir(pending.pop()) as found:
                    for entry in found:
                        count += 1
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
            except OSError:
                continue  # told later, by name
            if most and count > most:
                raise too_large(most)


def too_large(most: int) -> Refused:
    return Refused(
        f"There are more than {most:,} entries below it, too many to watch.",
        hint="Nothing was done. Name a smaller directory; or --force (force=True) it.",
    )


def _dangerous(root: bytes, store: Sequence[bytes]) -> str:
    mine = os.fsencode(os.path.realpath(home() or "/"))
    if root == b"/":
        return "it is the whole filesystem"
    if root == mine:
        return "it is your home directory"
    temporary = {
        os.path.realpath(os.fsencode(name))
        for name in (*_TEMPORARY, os.environ.get("TMPDIR") or _TEMPORARY[0])
    }
    if root in temporary:
        return "it holds the temporary files of every program"
    if _contains(root, mine):
        return "your home directory lies in it"
    if any(_contains(root, one) for one in temporary):
        return "directories for temporary files lie in it"
    if any(_contains(root, name) for name in store):
        return "takeback's own store lies in it"
    return ""


def _contains(outer: bytes, inner: bytes) -> bool:
    return inner == outer or inner.startswith(outer.rstrip(b"/") + b"/")


def rules_for(root: Root, store: bytes, sticky: bool) -> Rules:
    ignoring = Ignoring(root.path)
    regenerable = {os.fsencode(name) for name in REGENERABLE_NAMES}
    ours = {name for name in names_of(store) if _contains(root.path, name)}

    def left_out(path: str) -> tuple[str, str]:
        absolute = os.path.join(root.path, unquote(path))
        if absolute in ours:
            return "it is takeback's own store", STORE
        if os.path.basename(absolute) in regenerable and ignoring.ignored(absolute):
            return "it can be made again, and the project's rules ignore it", REGENERABLE
        return "", ""

    names = frozenset(regenerable | {os.path.basename(name) for name in ours})
    return Rules(left_out, names, sticky)


def resource_in(root: str, path: str) -> str:
    """Of a quoted path from the root."""
    if not path:
        return root
    return f"{root.rstrip('/')}/{path}"


def path_in(root: str, path: str) -> bytes:
    return path_of(resource_in(root, path))
