"""The directory that one servant works in, and the one who sweeps it: deleting takes longer than running."""

import fcntl
import os
import time

from takeback.sandbox import protocol
from takeback.sandbox.layer import remove

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
            try:
                os.mkdir(path, 0o700)
                return path
            except FileExistsError:
                continue

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
                    _close(fd)  # nobody is to wait for the end of something because of us
            while message := protocol.read_message(told):
                remove(message["path"])
            self._leave()
            code = 0
        finally:
            os._exit(code)

    def _leave(self) -> None:
        sweep(self.place)
        remove(self._directory)

    def clear(self, scratch: str) -> None:
        """Soon."""
        protocol.write_all(self._broom, protocol.frame({"path": scratch}))

    def close(self) -> None:
        os.close(self._broom)
        os.waitpid(self._sweeper, 0)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the one that listed them


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
    try:
        if time.time() - os.lstat(path).st_mtime > _OLD:
            remove(path)
    except FileNotFoundError:
        return
