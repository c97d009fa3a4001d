"""The root that a command sees, and the job that says what to mount and run. Runs as the first process inside."""

import os
import stat
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from takeback.model.descriptor import Descriptor
from takeback.model.mounts import COVER
from takeback.sandbox import privileges
from takeback.sandbox.calls import (
    ATTR_NODEV,
    ATTR_NOEXEC,
    ATTR_NOSUID,
    ATTR_RDONLY,
    MNT_DETACH,
    MS_BIND,
    MS_MOVE,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_SLAVE,
    MS_UNBINDABLE,
    kernel,
)
from takeback.sandbox.mounts import MOST
from takeback.sandbox.scratch import Overlay, have_aside, mount_overlay

# A directory that cannot be below an overlay because something is mounted in it, and its owner is not root.
#
# The overlay is laid over a directory with the same names, and each name gets its present content mounted on it:
# read-only, unless it gets an overlay of its own. So new things can be made in it, as in a /tmp where another has
# mounted something.


def put_names(at: bytes, overlay: Overlay, aside: bytes, overlaid: set[bytes]) -> None:
    """`at`: the new root. Afterwards everything is there, or nothing was done."""
    names = _opened(overlay.point)
    target = at + overlay.point
    try:
        below = _mirrored(overlay, aside, names)
        shown = overlay._replace(lowers=(*overlay.lowers[:-1], below), names=False)
        mount_overlay(shown, target, aside, userxattr=True)
        try:
            for name, fd in names.items():
                if overlay.point + b"/" + name not in overlaid:
                    _mount_again(fd, target + b"/" + name)
        except OSError:
            kernel().umount(target, MNT_DETACH)
            raise
    finally:
        for fd in names.values():
            os.close(fd)


def _opened(directory: bytes) -> dict[bytes, int]:
    """Held, because in a directory like /tmp they come and go."""
    found: dict[bytes, int] = {}
    try:
        for name in os.listdir(directory):
            if len(found) > MOST:
                raise OSError(f"more than {MOST} names")
            with suppress(FileNotFoundError):
                found[name] = os.open(directory + b"/" + name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        for fd in found.values():
            os.close(fd)
        raise
    return found


def _mirrored(overlay: Overlay, aside: bytes, names: dict[bytes, int]) -> bytes:
    made = b"%s/names-%s" % (aside, os.path.basename(overlay.upper))
    os.mkdir(made, 0o700)
    for name, fd in names.items():
        kind = os.fstat(fd).st_mode
        if stat.S_ISLNK(kind):
            os.symlink(os.readlink(b"", dir_fd=fd), made + b"/" + name)
        elif stat.S_ISDIR(kind):
            os.mkdir(made + b"/" + name, 0o755)
        else:
            os.close(os.open(made + b"/" + name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    return made


def _mount_again(fd: int, target: bytes) -> None:
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return  # an earlier layer removed it
    if stat.S_ISLNK(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode) is not stat.S_ISDIR(os.fstat(fd).st_mode):
        return  # an earlier layer put something else there
    kernel().mount(b"/proc/self/fd/%d" % fd, target, b"", MS_BIND | MS_REC)
    kernel().set_attributes(target, ATTR_RDONLY, recursive=True)


_GONE = "/".join(["gone"] * 32)  # more than anyone goes up
ASKED = "/dev/.takeback"  # where the wrapper shell tells what it left behind
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kvm", "dri")
# Through these root can change the machine itself.
_KERNEL_KNOBS = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus", b"/proc/fs", b"/proc/acpi")
_SECRETS = (b"/proc/kcore", b"/proc/keys")


class RootScene(NamedTuple):
    root: bytes  # of the world: "/" or a directory with a root filesystem
    at: bytes  # an empty directory: the new root is put together here
    aside: bytes  # another one
    overlays: tuple[Overlay, ...]
    read_only: tuple[bytes, ...]  # points that are bound
    masks: tuple[bytes, ...]  # directories that are covered, seen from the root inside
    terminal: bytes  # the path of the terminal among the command's three descriptors, if any
    userxattr: bool


def park(aside: bytes, userxattr: bool) -> None:
    """Prepare the mounts that are the same for every command, before the command is known. Mounts unmounted in the
    world are unmounted here too."""
    kernel().mount(b"none", b"/", b"", MS_REC | MS_SLAVE)
    have_aside(aside)
    for name in (b"/proc", b"/dev"):
        os.mkdir(aside + name, 0o755)
    _proc(aside + b"/proc", userxattr)
    _dev(aside + b"/dev")


def build(scene: RootScene) -> list[bytes]:
    """After `park`. Then the root is the new one and nothing of the old is in reach. Points that could get no
    overlay."""
    calls = kernel()
    bound: list[bytes] = []
    calls.mount(b"none", b"/", b"", MS_REC | MS_PRIVATE)
    if scene.userxattr and scene.root == b"/":
        calls.mount(b"none", scene.aside, b"", MS_UNBINDABLE)  # else it would be there twice
        calls.mount(b"/", scene.at, b"", MS_BIND | MS_REC)
        calls.mount(b"none", scene.aside, b"", MS_PRIVATE)
        calls.set_attributes(scene.at, ATTR_RDONLY, recursive=True)
    overlays = {one.point: one for one in scene.overlays}
    for point in sorted({*overlays, *scene.read_only}):
        try:
            if point in overlays:
                _put(scene, point, overlays[point])
                continue
        except OSError:
            if point == b"/" or len(overlays[point].lowers) > 1:
                raise
            bound.append(point)
        # Unmounted a moment ago, or it cannot be bound: then nothing of it is to be seen inside.
        with suppress(OSError):
            _bind_read_only(scene, point)  # not covered, so not writable either
    _own_directories(scene)
    for mask in scene.masks:
        _cover(scene, mask)
    os.chdir(scene.at)
    calls.pivot_root(b".", b".")
    calls.umount(b".", MNT_DETACH)
    os.chdir("/")
    return bound


def enter_nothing() -> None:
    """The directory of a shell whose directory was removed: empty, read-only, and without a parent."""
    with Descriptor(kernel().new_tmpfs(ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)) as fd:
        os.fchdir(fd)
        os.makedirs(_GONE)
        with Descriptor(os.open(_GONE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as inner:
            os.removedirs(_GONE)
            kernel().set_attributes(b".", ATTR_RDONLY)
            os.fchdir(inner)


def _put(scene: RootScene, point: bytes, overlay: Overlay) -> None:
    if point == b"/":
        mount_overlay(overlay, scene.at, scene.aside, scene.userxattr)
        return
    if overlay.names:
        put_names(scene.at, overlay, scene.aside, {one.point for one in scene.overlays})
        return
    with _open(scene, point) as fd:
        mount_overlay(overlay, b"/proc/self/fd/%d" % fd, scene.aside, scene.userxattr)


def _open(scene: RootScene, point: bytes) -> Descriptor:
    """A point in the new root. No link is followed: an earlier layer may have put one there."""
    with Descriptor(os.open(scene.at, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        return Descriptor(kernel().open_inside(root, point, os.O_PATH))


def _bind_read_only(scene: RootScene, point: bytes) -> None:
    if scene.userxattr and scene.root == b"/":
        return  # it lies there already
    source = scene.root.rstrip(b"/") + point
    with _open(scene, point) as fd:
        target = b"/proc/self/fd/%d" % fd
        kernel().mount(source, target, b"", MS_BIND)
    with _open(scene, point) as fd:
        kernel().set_attributes(b"/proc/self/fd/%d" % fd, ATTR_RDONLY)


def _own_directories(scene: RootScene) -> None:
    if _is_dir(scene, b"/proc"):
        kernel().mount(scene.aside + b"/proc", scene.at + b"/proc", b"", MS_MOVE)
    if _is_dir(scene, b"/sys") and not (scene.userxattr and scene.root == b"/"):
        target = scene.at + b"/sys"
        kernel().mount(b"/sys", target, b"", MS_BIND | MS_REC)
        kernel().set_attributes(target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC, recursive=True)
    if _is_dir(scene, b"/dev"):
        kernel().mount(scene.aside + b"/dev", scene.at + b"/dev", b"", MS_MOVE)
        if scene.terminal:
            _bind_device(scene.terminal, scene.at + b"/dev/console")


def _is_dir(scene: RootScene, point: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(scene.at + point).st_mode)
    except OSError:
        return False


def _proc(proc: bytes, userxattr: bool) -> None:
    calls = kernel()
    calls.mount(b"proc", proc, b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if userxattr:
        return  # no user is root there
    for knob in knobs(_KERNEL_KNOBS):
        path = proc + knob.removeprefix(b"/proc")
        calls.mount(path, path, b"", MS_BIND | MS_REC)
        calls.set_attributes(path, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)
    for secret in knobs(_SECRETS):
        calls.mount(b"/dev/null", proc + secret.removeprefix(b"/proc"), b"", MS_BIND)


@cache
def knobs(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those that this kernel has; a new /proc has what the old one has."""
    return tuple(name for name in names if os.path.exists(name))


def get_ready() -> None:
    """Find out once, before any fork, what is the same for every command."""
    privileges.version()
    devices()
    knobs(_KERNEL_KNOBS)
    knobs(_SECRETS)


def _dev(dev: bytes) -> None:
    """A device is open to writing on a read-only mount, but its mode and owner are not to be changed."""
    calls = kernel()
    calls.mount(b"tmpfs", dev, b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, b"mode=755,size=8m")
    for name in devices():
        _bind_device(b"/dev/" + os.fsencode(name), dev + b"/" + os.fsencode(name))
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", dev + b"/" + name.encode())
    for name in (b"/pts", b"/shm", b"/.takeback"):
        os.mkdir(dev + name, 0o755)
    os.chmod(dev + b"/.takeback", 0o1777)  # noqa: S103 a script that became another user tells as well
    calls.mount(
        b"devpts", dev + b"/pts", b"devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620"
    )
    os.symlink("pts/ptmx", dev + b"/ptmx")
    calls.mount(b"tmpfs", dev + b"/shm", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=1777")


@cache
def devices() -> tuple[str, ...]:
    """Asked for once, before the first command."""
    return tuple(name for name in os.listdir("/dev") if name in _DEVICES or name.startswith("nvidia"))


def _bind_device(source: bytes, target: bytes) -> None:
    if os.path.isdir(source):
        os.mkdir(target, 0o755)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    kernel().mount(source, target, b"", MS_BIND)
    kernel().set_attributes(target, ATTR_RDONLY)


def _cover(scene: RootScene, mask: bytes) -> None:
    with _open(scene, mask) as fd:
        kernel().mount(
            COVER.encode(),
            b"/proc/self/fd/%d" % fd,
            b"tmpfs",
            MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
            b"size=4k,mode=555",
        )


class Job(NamedTuple):
    # As the caller asked, with what the small process found out; None: it will follow.
    order: dict[str, Any] | None
    scene: RootScene | None  # None: the order was given, and it is built


def packed(job: Job) -> tuple[Any, ...]:
    """Of plain tuples only."""
    if job.scene is None:
        return job.order, None
    scene = job.scene._replace(overlays=tuple(map(tuple, job.scene.overlays)))  # type: ignore[arg-type]
    return job.order, tuple(scene)


def unpacked(told: tuple[Any, ...]) -> Job:
    order, scene = told
    if scene is None:
        return Job(order, None)
    made = RootScene(*scene)
    return Job(order, made._replace(overlays=tuple(Overlay(*one) for one in made.overlays)))
