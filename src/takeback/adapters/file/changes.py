"""Requests for changes of files, made from the paths of the caller. Each path is resolved here, once."""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from takeback.adapters.file.paths import path_bytes, resolve
from takeback.adapters.file.states import counted
from takeback.errors import Misuse
from takeback.model.change import Change, Facts
from takeback.model.resource import display, quote

Path = str | bytes | os.PathLike[str]
ADAPTER = "file"


class NewFile(NamedTuple):
    """One file of a write; its content is in the store already."""

    path: Path
    digest: str
    size: int
    mode: int | None = None
    resource: str = ""  # what the path means, where that was found out already


def write_change(
    path: Path,
    digest: str,
    size: int,
    mode: int | None = None,
    *,
    allow_inexact: bool = False,
    resource: str = "",
) -> Change:
    resource = resource or resolve(path, follow=True)
    args: dict[str, Any] = {"content": digest, "size": size} | _mode(mode)
    summary = f"write {display(resource)} ({counted(size, 'byte')})"
    return Change(ADAPTER, "write", resource, summary, args, facts=Facts(allow_inexact=allow_inexact))


def write_all_change(files: Iterable[NewFile], *, allow_inexact: bool = False) -> Change:
    """Several files, all or nothing."""
    listed: list[dict[str, Any]] = []
    for file in files:
        resource = file.resource or resolve(file.path, follow=True)
        listed.append({"resource": resource, "content": file.digest, "size": file.size} | _mode(file.mode))
    if not listed:
        raise Misuse("A write of no files was asked for.", hint="Name at least one file.")
    first = display(listed[0]["resource"])
    summary = f"write {first}" if len(listed) == 1 else f"write {len(listed)} files: {first}, …"
    facts = Facts(allow_inexact=allow_inexact)
    return Change(ADAPTER, "write_all", listed[0]["resource"], summary, {"files": listed}, facts=facts)


def delete_change(path: Path, *, allow_inexact: bool = False) -> Change:
    """A file, link or special file, or a directory with everything in it."""
    resource = resolve(path)
    facts = Facts(allow_inexact=allow_inexact)
    return Change(ADAPTER, "delete", resource, f"delete {display(resource)}", facts=facts)


def move_change(path: Path, to: Path, *, replace: bool = False) -> Change:
    """`to` is the new name itself, never a directory to move into."""
    resource, goal = resolve(path), resolve(to)
    args: dict[str, Any] = {"to": goal} | ({"replace": True} if replace else {})
    return Change(ADAPTER, "move", resource, f"move {display(resource)} to {display(goal)}", args)


def mkdir_change(path: Path, mode: int | None = None, *, parents: bool = False) -> Change:
    resource = resolve(path, missing=parents)
    args = _mode(mode) | ({"parents": True} if parents else {})
    return Change(ADAPTER, "mkdir", resource, f"make directory {display(resource)}", args)


def symlink_change(path: Path, target: Path) -> Change:
    raw = path_bytes(target)
    if not raw:
        raise Misuse("A symbolic link cannot point to an empty path.", hint="Give it a target.")
    resource = resolve(path)
    summary = f"link {display(resource)} to {ascii(os.fsdecode(raw))[1:-1]}"
    return Change(ADAPTER, "symlink", resource, summary, {"target": quote(raw)})


def chmod_change(path: Path, mode: int) -> Change:
    resource = resolve(path, follow=True)
    return Change(ADAPTER, "chmod", resource, f"set mode {mode:04o} of {display(resource)}", _mode(mode))


def _mode(mode: int | None) -> dict[str, Any]:
    if mode is None:
        return {}
    if not 0 <= mode <= 0o7777:
        raise Misuse(f"{mode:o} is not a file mode.", hint="Use three or four octal digits, such as 644.")
    return {"mode": mode}
