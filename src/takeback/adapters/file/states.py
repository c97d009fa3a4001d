"""What a file is at one moment, as plain data, and when two such states are the same.

Beside the full states there are three reduced ones: `meta` (only the mode counts: chmod), `identity` (which file it
is counts, not what is in it: move), and `excluded` (it was there but could not be captured).
"""

import os
import stat
import time
from collections.abc import Iterable
from typing import Any

from takeback.model.plan import Bond
from takeback.model.remedy import Target

FileState = dict[str, Any]

ABSENT: FileState = {"type": "absent"}

TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
}
SPECIAL = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK, "char": stat.S_IFCHR, "block": stat.S_IFBLK}

_COUNTS: dict[str, tuple[str, ...]] = {
    "absent": (),
    "file": ("digest", "size", "mode", "xattrs"),
    "symlink": ("target", "xattrs"),
    "dir": ("mode", "xattrs", "content"),
    "fifo": ("mode", "xattrs"),
    "socket": ("mode", "xattrs"),
    "char": ("mode", "xattrs", "rdev"),
    "block": ("mode", "xattrs", "rdev"),
}
_INSIDE = ("digest", "content", "target", "rdev", "excluded", "identity")
_FLEETING = ("dev", "ino", "ctime", "nlink", "born")


def inode_state(status: os.stat_result) -> FileState:
    """What every inode carries."""
    return {
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime": status.st_mtime_ns,
        "dev": status.st_dev,
        "ino": status.st_ino,
    }


def same(one: FileState, other: FileState) -> bool:
    """Whether the two states are equal, apart from times."""
    if one["type"] != other["type"]:
        return False
    if one["type"] == "absent":
        return True
    if "meta" in one or "meta" in other:
        return one["mode"] == other["mode"]
    if "identity" in one or "identity" in other:
        return _same_one(one, other)
    if "excluded" in one or "excluded" in other:
        return all(one.get(key) == other.get(key) for key in ("dev", "ino", "size", "mtime"))
    if not (one.get("owner_lost") or other.get("owner_lost")):
        if one["uid"] != other["uid"] or one["gid"] != other["gid"]:
            return False
    counts = _COUNTS[one["type"]]
    if one.get("meaning", 0) == other.get("meaning", 1):  # an index of git with another stat cache
        counts = ("mode", "xattrs")
    return all(one.get(key) == other.get(key) for key in counts)


def _same_one(one: FileState, other: FileState) -> bool:
    """The same file under whatever name; or what an undo built again in its place."""
    if same_inode(one, other):
        return True
    if any(one.get(key) != other.get(key) for key in ("mode", "uid", "gid")):
        return False
    if one["type"] == "file":
        return "digest" in one and one.get("digest") == other.get("digest")
    return one.get("target") == other.get("target")


def same_inode(one: FileState, other: FileState) -> bool:
    return all(one.get(key) == other.get(key) for key in ("dev", "ino", "born"))


def same_inode_will_do(one: FileState, other: FileState) -> bool:
    """Only what an inode carries differs, so it can be adjusted where it is, keeping its hard links."""
    if one["type"] != other["type"]:
        return False
    if "meta" in other:
        return True
    if one["type"] not in ("file", "dir"):
        return False
    if "excluded" in one or "excluded" in other or "identity" in one or "identity" in other:
        return False
    return all(one.get(key) == other.get(key) for key in ("digest", "size", "content"))


def lasting(state: FileState) -> FileState:
    """Without what belongs to one inode: what a rebuilt thing can be compared with."""
    return {key: value for key, value in state.items() if key not in _FLEETING}


def linked_names(targets: Iterable[Target]) -> list[tuple[Bond, frozenset[str]]]:
    """Paths that were one file before an effect, or are one after it."""
    found: dict[tuple[Any, ...], set[str]] = {}
    for target in targets:
        for state in (target.before, target.after):
            if state["type"] not in ("absent", "dir") and state.get("nlink", 2) > 1 and "ino" in state:
                found.setdefault((state["dev"], state["ino"]), set()).add(target.resource)
            if "twin" in state:
                found.setdefault(("twin", state["twin"]), {state["twin"]}).add(target.resource)
    return [(Bond.LINK, frozenset(names)) for names in found.values() if len(names) > 1]


def signature(state: FileState) -> tuple[Any, ...] | None:
    """What tells without reading that a file is untouched; None if it was too young to tell when it was seen."""
    if "ctime" not in state:
        return None
    return (state["dev"], state["ino"], state["size"], state["mtime"], state["ctime"])


def blobs_of(state: FileState) -> tuple[str, ...]:
    found = [state[key] for key in ("digest", "manifest") if key in state and "identity" not in state]
    if isinstance(state.get("holes"), str):
        found.append(state["holes"])
    return tuple(found)


def counted(number: int, thing: str, things: str = "") -> str:
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def words(state: FileState) -> str:
    kind = state["type"]
    if kind == "absent":
        return "nothing"
    if "meta" in state:
        return f"mode {state['mode']:04o}"
    if "excluded" in state:
        return f"a {kind} that was not captured ({state['excluded']})"
    if kind == "file" and "size" in state:
        return counted(state["size"], "byte") + _changed(state)
    if kind == "symlink":
        return f"a symbolic link to {state.get('target', '?')}"
    if kind == "dir":
        if "entries" in state:
            return f"a directory of {counted(state['entries'], 'entry', 'entries')}"
        return "a directory"
    return {"fifo": "a FIFO", "socket": "a socket", "char": "a device", "block": "a device"}.get(
        kind, "a file"
    )


def _changed(state: FileState) -> str:
    if "mtime" not in state:
        return ""
    seconds: int = state["mtime"] // 1_000_000_000
    then, today = time.localtime(seconds), time.localtime()
    if then[:3] == today[:3]:
        return time.strftime(" from %H:%M:%S", then)
    return time.strftime(" from %b %d %H:%M" if then.tm_year == today.tm_year else " from %Y-%m-%d", then)


def difference(left: FileState, found: FileState, effect: str = "") -> str:
    """The rest of a sentence that begins with a path: it holds something else than the effect left there, or than
    was expected."""
    than = f"effect {effect} left" if effect else "expected"
    if found["type"] == "absent":
        return f"is gone, and {_was(words(left), effect)}"
    same_inside = all(left.get(key) == found.get(key) for key in _INSIDE)
    if left["type"] == found["type"] and ("meta" in left or same_inside):
        if left["mode"] != found["mode"]:
            wanted = f"mode {left['mode']:04o}"
            return f"has mode {found['mode']:04o}, and {_was(wanted, effect)}"
        for key, word in (("uid", "another owner"), ("gid", "another group"), ("xattrs", "other attributes")):
            if left.get(key) != found.get(key):
                return f"has {word} than {than}"
    if left["type"] == found["type"] == "file" and left.get("size", -1) == found.get("size"):
        return f"has other content than {than} (the same size, {counted(found['size'], 'byte')})"
    if left["type"] == found["type"] == "dir" and left.get("entries", -1) == found.get("entries"):
        return f"is not as {than} it inside" if effect else "is not as expected inside"
    return f"is now {words(found)}, and {_was(words(left), effect)}"


def _was(thing: str, effect: str) -> str:
    return f"effect {effect} left {thing}" if effect else f"{thing} was expected"
