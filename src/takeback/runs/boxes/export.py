"""A box as an image: its whole root filesystem in a tar file, as `docker import` and `podman import` take it."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from takeback.errors import Failed, Misuse, Refused, ResourceUnreachable
from takeback.model.ids import new_id
from takeback.model.progress import SILENT, Progress

if TYPE_CHECKING:
    from tarfile import TarInfo

    from takeback.sandbox.differences import LayerView, ViewNode
    from takeback.sandbox.protocol import Stack

DOCKER = "docker:"
# Of the machine itself: what the kernel shows there is no file.
_EMPTY = frozenset((b"/proc", b"/sys", b"/dev", b"/run"))


class _Thing(NamedTuple):
    path: bytes  # seen from the root of the box
    source: bytes
    status: os.stat_result
    attributes: dict[str, bytes]


def export(stack: "Stack", given: "str | os.PathLike[str]", store: str, progress: Progress = SILENT) -> str:
    try:
        target = os.fsdecode(given)
    except TypeError:
        target = ""
    if not target or "\0" in target:
        raise Misuse(f"{given!r} is no place to export to.", hint="Give the name of a file, or docker:NAME.")
    with progress.stage("Exporting"):
        if target.startswith(DOCKER):
            return _import(stack, target.removeprefix(DOCKER), store, progress)
        return _save(stack, target, store, progress)


def _save(stack: "Stack", target: str, store: str, progress: Progress) -> str:
    """Whole or not at all, and never over something that is there."""
    target = os.path.abspath(target)
    if os.path.lexists(target):
        raise Refused(f"{target} is there already.", hint="Give another name, or move it away first.")
    making = os.path.join(os.path.dirname(target), f".takeback-{new_id()}")
    try:
        with open(making, "xb") as file:
            write_tar(stack, file, store, progress)
            file.flush()
            os.fsync(file.fileno())
        os.link(making, target)  # unlike a rename it never replaces what someone has just put there
    except PermissionError as error:
        if error.filename != making:
            raise  # of the box itself
        raise ResourceUnreachable(
            f"The box could not be written to {target}: {error.strerror}.", hint="Check the rights there."
        ) from error
    except OSError as error:
        raise ResourceUnreachable(
            f"The box could not be written to {target}: {error.strerror or error}.",
            hint="Check free space and rights there.",
        ) from error
    finally:
        with suppress(OSError):
            os.unlink(making)
    return target


def _import(stack: "Stack", name: str, store: str, progress: Progress) -> str:
    import shutil
    import subprocess

    if not name or name.startswith("-"):
        raise Misuse(f"{name!r} is no name for an image.", hint="For example docker:build:1.")
    program = shutil.which("docker") or shutil.which("podman")
    if program is None:
        raise ResourceUnreachable(
            "There is neither docker nor podman on this machine.", hint="Export to a tar file instead."
        )
    with subprocess.Popen(
        [program, "import", "-", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as taking:
        assert taking.stdin and taking.stdout
        with suppress(BrokenPipeError):  # it has given up; what it says tells why
            write_tar(stack, taking.stdin, store, progress)
            taking.stdin.close()
        said = taking.stdout.read().decode("utf-8", "replace").strip()
    if taking.returncode:
        raise Failed(f"{os.path.basename(program)} did not take the image: {said}", hint="Is it running?")
    return said.splitlines()[-1] if said else name


def write_tar(stack: "Stack", file: "IO[bytes]", store: str, progress: Progress = SILENT) -> None:
    import tarfile

    seen: dict[tuple[int, int], str] = {}  # first names of inodes that have several
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for thing in _things(stack, os.fsencode(os.path.realpath(store))):
            info = _described(tar.tarinfo(), thing, seen)
            if info is None:
                continue
            if info.isreg():
                with open(thing.source, "rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)
            progress.moved(info.size, 1)


def _things(stack: "Stack", store: bytes) -> Iterator[_Thing]:
    """Everything the box shows, parents first; filesystems below that it never wrote to are left out."""
    from takeback.model.mounts import mounted
    from takeback.sandbox.differences import LayerView, grounds_below
    from takeback.sandbox.layer import attributes, mounts_of

    with open("/proc/self/mountinfo", "rb") as told:
        points = frozenset(one.point for one in mounted(told.read()))
    root = os.fsencode(stack.root).rstrip(b"/")
    mine = {"/", *(mount.point for layer in stack.layers for mount in mounts_of(layer))}

    def left_out(path: bytes) -> bool:
        return root + path == store or (not root and path in _EMPTY)

    def properties(view: LayerView, node: "ViewNode") -> dict[str, bytes]:
        ground = view.grounds[node.parts[0][0]]
        return attributes(node.top, ground.userxattr) if not ground.plain else _attributes(node.top)

    for point in sorted(mine):
        view = LayerView(grounds_below(stack, point), points)
        top = view.root()
        if top is None or any(os.fsencode(point).startswith(one + b"/") for one in _EMPTY if not root):
            continue
        for path, node in _walk(view, os.fsencode(point).rstrip(b"/"), top, left_out):
            yield _Thing(path, node.top, node.status, properties(view, node))


def _walk(
    view: "LayerView", path: bytes, node: "ViewNode", left_out: Callable[[bytes], bool]
) -> "Iterator[tuple[bytes, ViewNode]]":
    waiting = [(path, node)]
    while waiting:
        path, node = waiting.pop()
        if path:
            yield path, node
        if not node.is_dir or left_out(path):
            continue
        for name in sorted(view.names(node), reverse=True):
            inner = view.child(node, name)
            if inner is not None:
                waiting.append((path + b"/" + name, inner))


def _attributes(path: bytes) -> dict[str, bytes]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
    except OSError:
        return {}


def _described(info: "TarInfo", thing: _Thing, seen: dict[tuple[int, int], str]) -> "TarInfo | None":
    """None for what no archive holds: a socket."""
    import tarfile

    kinds = {
        stat.S_IFREG: tarfile.REGTYPE,
        stat.S_IFDIR: tarfile.DIRTYPE,
        stat.S_IFLNK: tarfile.SYMTYPE,
        stat.S_IFIFO: tarfile.FIFOTYPE,
        stat.S_IFCHR: tarfile.CHRTYPE,
        stat.S_IFBLK: tarfile.BLKTYPE,
    }
    status = thing.status
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    info.name = os.fsdecode(thing.path.lstrip(b"/"))
    info.mode, info.uid, info.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    info.mtime = status.st_mtime
    info.type = kind
    if kind == tarfile.SYMTYPE:
        info.linkname = os.fsdecode(os.readlink(thing.source))
    elif kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        info.devmajor, info.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
    elif kind == tarfile.REGTYPE:
        info.size = status.st_size
    if kind != tarfile.DIRTYPE and status.st_nlink > 1:
        first = seen.setdefault((status.st_dev, status.st_ino), info.name)
        if first != info.name:
            info.type, info.linkname, info.size = tarfile.LNKTYPE, first, 0
            return info
    info.pax_headers = {
        f"SCHILY.xattr.{name}": value.decode("utf-8", "surrogateescape")
        for name, value in sorted(thing.attributes.items())
    }
    return info
