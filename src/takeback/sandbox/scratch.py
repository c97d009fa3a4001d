"""The directory that one servant works in, and the one who sweeps it: deleting takes longer than running."""

import fcntl
import os
import resource
import time
from contextlib import suppress
from typing import NamedTuple

from takeback.model.mounts import inside
from takeback.sandbox import protocol
from takeback.sandbox.calls import MS_NODEV, MS_NOEXEC, MS_NOSUID, kernel
from takeback.sandbox.layer import attributes, remove
from takeback.sandbox.mounts import is_ours


class Overlay(NamedTuple):
    point: bytes  # seen from the root inside
    lowers: tuple[bytes, ...]  # newest first; the last is the world's
    upper: bytes
    work: bytes
    names: bool = False  # the lowest is not mounted itself: only its names are there, to be mounted on


def _options(userxattr: bool) -> tuple[bytes, ...]:
    """What is tried, one after the other.

    `volatile`: a layer does not count before it is finished, so no one waits for the disk. With redirects a directory
    can be renamed without copying it; the index keeps hard links together.
    """
    if userxattr:
        # In a user namespace the kernel allows no redirects: rename(2) of a directory below says EXDEV, mv copies.
        return (b"userxattr,volatile",)
    with_redirects = b"redirect_dir=on,metacopy=off,volatile"
    # Some filesystems cannot say where a file came from: then hard links below come apart.
    return with_redirects + b",index=on", with_redirects + b",index=off"


def make_directories(overlay: Overlay, lower_status: os.stat_result, userxattr: bool) -> os.stat_result:
    """The topmost directory of an overlay is that of its upper: it must look like the one below."""
    os.mkdir(overlay.upper, 0o700)
    os.mkdir(overlay.work, 0o700)
    below = overlay.lowers[0]
    for name, value in attributes(below, userxattr).items():
        with suppress(OSError):  # an ordinary user may not copy every attribute
            os.setxattr(overlay.upper, name, value)
    mode = lower_status.st_mode & 0o7777
    if not userxattr:
        os.chown(overlay.upper, lower_status.st_uid, lower_status.st_gid)
    elif not is_ours(below, lower_status):
        # It becomes ours, so what others granted us has to be in the owner's place.
        rights = sum(bit for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(below, bit))
        mode = mode & 0o7077 | rights << 6
    os.chmod(overlay.upper, mode)
    os.utime(overlay.upper, ns=(lower_status.st_atime_ns, lower_status.st_mtime_ns))
    return os.lstat(overlay.upper)


def allow_many_files() -> tuple[int, int]:
    """Each layer is a descriptor while it is mounted; the command gets the old limit back."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1]
    if hard == resource.RLIM_INFINITY or hard > 4096:
        hard = 4096
    if before[0] < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, before[1]))
    return before


def mount_overlay(overlay: Overlay, target: bytes, aside: bytes, userxattr: bool) -> None:
    """`aside`: a directory where the base can be mounted once more."""
    *layers, below = overlay.lowers
    if any(_within(layer, below) for layer in layers):
        below = _seen_through(overlay, aside, userxattr)
    tries = _options(userxattr)
    for number, wanted in enumerate(tries):
        work = overlay.work
        if number:
            # A work directory is for one try only: the kernel marks it.
            work += b"-%d" % number
            os.mkdir(work, 0o700)
        try:
            return _mount((*layers, below), overlay.upper, target, wanted, work)
        except OSError:
            if number == len(tries) - 1:
                raise


def _within(layer: bytes, below: bytes) -> bool:
    return inside(layer, below) and os.stat(layer).st_dev == os.stat(below).st_dev


def have_aside(aside: bytes) -> None:
    kernel().mount(b"tmpfs", aside, b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, b"mode=700,size=16m")


def _seen_through(overlay: Overlay, aside: bytes, userxattr: bool) -> bytes:
    """The kernel wants no lower inside another. Through an overlay of its own the base is another filesystem."""
    seen = b"%s/seen-%s" % (aside, os.path.basename(overlay.upper))
    nothing = seen + b"-nothing"  # two lowers it must have
    for name in (seen, nothing):
        os.mkdir(name, 0o700)
    _mount((overlay.lowers[-1], nothing), b"", seen, b"userxattr" if userxattr else b"redirect_dir=off")
    return seen


def _mount(lowers: tuple[bytes, ...], upper: bytes, target: bytes, wanted: bytes, work: bytes = b"") -> None:
    """Descriptors instead of paths: no escaping of colons, and 450 layers fit into the one page of options."""
    held: list[int] = []
    try:
        for path in (*lowers, *((upper, work) if upper else ())):
            held.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        names = [b"%d" % fd for fd in held]
        told = b"lowerdir=" + b":".join(names[: len(lowers)])
        if upper:
            told += b",upperdir=%s,workdir=%s" % (names[-2], names[-1])
        os.chdir("/proc/self/fd")
        kernel().mount(b"takeback", target, b"overlay", MS_NODEV, told + b"," + wanted)
    finally:
        for fd in held:
            os.close(fd)


_OLD = 3600  # seconds


class Workshop:
    """The process that holds the lock may still use the directory; without a holder it is rubbish."""

    def __init__(self, place: str) -> None:
        self.place = place
        os.makedirs(place, 0o700, exist_ok=True)
        self._directory = self._made()
        self._lock = os.open(
            os.path.join(self._directory, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.root = os.fsencode(os.path.join(self._directory, "root"))
        self.aside = os.fsencode(os.path.join(self._directory, "aside"))
        for name in (self.root, self.aside):
            os.mkdir(name, 0o755)
        self._count = 0
        self._sweeper, self._broom = self._hire()

    def _made(self) -> str:
        while True:
            path = os.path.join(self.place, f"run-{os.urandom(6).hex()}")
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                return path

    def scratch(self) -> str:
        """A name for the directory of one command."""
        self._count += 1
        return os.path.join(self._directory, str(self._count))

    def _hire(self) -> tuple[int, int]:
        """It holds the lock as we do, outlives us if we are killed, and takes the whole directory away at the end."""
        told, broom = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid:
            os.close(told)
            return pid, broom
        code = 1
        try:
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd > 2 and fd not in (told, self._lock):
                    with suppress(OSError):  # the one that listed them
                        os.close(fd)  # no process may have to wait because of us
            while message := protocol.read_message(told):
                remove(message["path"])
            sweep(self.place)
            remove(self._directory)
            code = 0
        finally:
            os._exit(code)

    def clear(self, scratch: str) -> None:
        """Soon."""
        protocol.write_all(self._broom, protocol.frame({"path": scratch}))

    def close(self) -> None:
        os.close(self._broom)
        os.waitpid(self._sweeper, 0)


def sweep(place: str) -> None:
    """What killed ones left behind."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if not name.startswith("run-"):
            continue
        try:
            lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            _remove_if_old(path)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def _remove_if_old(path: str) -> None:
    """Without a lock it may be one that is just being made."""
    with suppress(FileNotFoundError):
        if time.time() - os.lstat(path).st_mtime > _OLD:
            remove(path)
