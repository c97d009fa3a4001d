"""What lies at a path and below it, read without any adapter: so that a rehearsal is not judged by what it tries."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.adapters.file.states import TYPES
from takeback.model.effect import Effect
from takeback.model.remedy import Target
from takeback.model.resource import SCHEME, file_resource, path_of, quote, without_fragment

_PIECE = 1 << 20
# A state that says less than what lies there, or says it in another way.
_PARTIAL = ("meta", "identity", "excluded", "by_meaning", "meaning", "owner_lost")
_INSIDE = ("content", "entries", "manifest")  # of a directory that was captured as one


class FoundPath(NamedTuple):
    """Everything about one path that a way back has to bring back."""

    type: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime: int = 0
    inside: str = ""  # digest of the content, or where a link leads
    links: int = 0
    device: int = 0
    xattrs: tuple[tuple[str, bytes], ...] = ()


ABSENT = FoundPath("absent")
Manifest = dict[bytes, FoundPath]


def places_of(effect: Effect) -> dict[bytes, bool]:
    """The paths that it touched, and whether all that is below each counts."""
    found: dict[bytes, bool] = {}
    for target in effect.targets:
        if target.resource.startswith(SCHEME):
            path = path_of(target.resource)
            deep = any(name in state for state in (target.before, target.after) for name in _INSIDE)
            found[path] = found.get(path, False) or deep
    return found


def manifest(places: dict[bytes, bool]) -> Manifest:
    found: Manifest = {}
    for path, deep in places.items():
        for each in _below(path) if deep else (path,):
            found[each] = found_at(each)
    return found


def _below(path: bytes) -> Iterator[bytes]:
    yield path
    if os.path.isdir(path) and not os.path.islink(path):
        for directory, directories, files in os.walk(path):
            yield from (os.path.join(directory, name) for name in sorted((*directories, *files)))


def found_at(path: bytes) -> FoundPath:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    kind = TYPES.get(stat.S_IFMT(status.st_mode), "other")
    whole = kind != "dir"  # what a directory weighs, and how often it is linked, is up to its filesystem
    return FoundPath(
        kind,
        stat.S_IMODE(status.st_mode),
        status.st_uid,
        status.st_gid,
        status.st_size if whole else 0,
        status.st_mtime_ns if whole else 0,
        _inside(path, kind),
        status.st_nlink if whole else 0,
        status.st_rdev if kind in ("char", "block") else 0,
        tuple(_xattrs(path)),
    )


def _inside(path: bytes, kind: str) -> str:
    if kind == "symlink":
        return quote(os.readlink(path))
    if kind != "file":
        return ""
    sum = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            sum.update(piece)
    return sum.hexdigest()


def _xattrs(path: bytes) -> Iterator[tuple[str, bytes]]:
    with suppress(OSError):  # a filesystem without them
        for name in sorted(os.listxattr(path, follow_symlinks=False)):
            if not name.startswith(("trusted.overlay.", "user.overlay.")):
                yield name, os.getxattr(path, name, follow_symlinks=False)


def differing(expected: Manifest, found: Manifest) -> dict[bytes, str]:
    """By path: in what it differs, in a few words."""
    told: dict[bytes, str] = {}
    for path in sorted(expected.keys() | found.keys()):
        one, other = expected.get(path, ABSENT), found.get(path, ABSENT)
        if words := difference(one, other):
            told[path] = words
    return told


_WORDS = {
    "mode": "mode", "uid": "owner", "gid": "group", "size": "size", "mtime": "time of modification",
    "inside": "content", "links": "number of hard links", "device": "device", "xattrs": "extended attributes",
}  # fmt: skip


def difference(one: FoundPath, other: FoundPath) -> str:
    if one == other:
        return ""
    if one.type != other.type:
        return f"{_named(other.type)} instead of {_named(one.type)}"
    return "another " + ", ".join(
        word for name, word in _WORDS.items() if getattr(one, name) != getattr(other, name)
    )


def _named(kind: str) -> str:
    return {"absent": "nothing", "dir": "a directory", "symlink": "a symbolic link"}.get(kind, f"a {kind}")


def broken_promises(targets: Iterable[Target], found: Manifest) -> dict[bytes, str]:
    """By path: what the journal says was there before the effect, and is not there after its undo. A state may leave
    something open: that is not judged."""
    told: dict[bytes, str] = {}
    for target in targets:
        path = path_of(target.resource) if target.resource.startswith(SCHEME) else b""
        if not path or target.resource != without_fragment(target.resource) or path not in found:
            continue
        state, there = target.before, found[path]
        if any(name in one for one in (state, target.after) for name in _PARTIAL):
            continue
        if words := _broken(state, there):
            told[path] = words
    return told


def _broken(state: dict[str, Any], there: FoundPath) -> str:
    if state["type"] != there.type:
        return f"{_named(there.type)} instead of {_named(state['type'])}"
    wrong = [word for name, word in (("mode", "mode"), ("uid", "owner"), ("gid", "group")) if name in state
             and there.type != "symlink" and state[name] != getattr(there, name)]  # fmt: skip
    if there.type == "file":
        if state.get("size", there.size) != there.size or state.get("digest", there.inside) != there.inside:
            wrong.append("content")
        if state.get("mtime", there.mtime) != there.mtime:
            wrong.append("time of modification")
    if there.type == "symlink" and "target" in state and state["target"] != there.inside:
        wrong.append("target")
    return f"another {', '.join(wrong)}" if wrong else ""


def sight(places: Iterable[bytes]) -> dict[bytes, tuple[int, ...]]:
    """What shows, without reading a file, that anybody has touched one of these paths."""
    found: dict[bytes, tuple[int, ...]] = {}
    for path in places:
        try:
            status = os.lstat(path)
        except OSError:
            found[path] = ()
            continue
        found[path] = (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns,
                       status.st_ctime_ns)  # fmt: skip
    return found


def touched_since(before: dict[bytes, tuple[int, ...]]) -> tuple[str, ...]:
    now = sight(before)
    return tuple(file_resource(path) for path in before if before[path] != now[path])
