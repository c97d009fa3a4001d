"""The process that has SQLite in it. Ours never loads it: the caller may use the sqlite3 of Python on the same file,
and two SQLite libraries in one process do not see each other's locks."""

import os
import select
import sys
from collections.abc import Callable
from typing import Any

from takeback import errors
from takeback.adapters.sqlite import wire

_START = (
    "import sys; parent = int(sys.argv[1]); sys.path[:0] = sys.argv[2:]; "
    "from takeback.adapters.sqlite.child.main import main; main(parent)"
)
_KILL = 9  # also while Python shuts down, when nothing can be imported any more
_PATIENCE = 2000  # ms, for one that was told to end

Tell = Callable[[int, str], None]  # the number and the words of a process


class Gone(Exception):
    """It ended before it answered."""


class SqliteChild:
    """One such process. It ends when this end of its pipes is closed, and when we die."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.pid, self._to, self._from = _spawn()

    @property
    def usable(self) -> bool:
        """Not in a process that was forked from the one that started it."""
        return bool(self.pid) and self._owner == os.getpid()

    def ask(self, what: str, *given: Any, tell: Tell) -> Any:
        """`tell` reports who has the lock it waits for."""
        try:
            wire.send(self._to, (what, given))
            while (message := wire.receive(self._from))[0] == "waiting":
                tell(*message[1])
            kind, answer = message
        except (EOFError, BrokenPipeError):
            self.kill()
            raise Gone from None
        except BaseException:
            self.kill()  # the answer to this question must not be taken for the answer to another
            raise
        if kind == "answer":
            return answer
        raise _error(*answer)

    def end(self) -> None:
        if not self.usable:
            return
        os.close(self._to)
        self._wait(_PATIENCE)

    def kill(self) -> None:
        """SQLite rolls back what was not committed, as after any crash."""
        if not self.usable:
            return
        os.close(self._to)
        self._wait(0)

    def _wait(self, patience: int) -> None:
        pid, self.pid = self.pid, 0
        os.set_blocking(self._from, False)
        poll = select.poll()
        poll.register(self._from, select.POLLHUP)
        if not patience or not poll.poll(patience):
            os.kill(pid, _KILL)
        os.close(self._from)
        os.waitpid(pid, 0)

    def __del__(self) -> None:
        self.kill()


def _error(name: str, message: str, hint: str, resources: tuple[str, ...]) -> errors.TakebackError:
    kind = getattr(errors, name)
    if kind is errors.Conflict:
        return errors.Conflict(message, hint=hint, resources=resources)
    return kind(message, hint=hint)


def _spawn() -> tuple[int, int, int]:
    program = next(
        (one for one in (sys.executable, "/usr/bin/python3") if one and os.access(one, os.X_OK)), ""
    )
    if not program:
        raise errors.ResourceUnreachable(
            f"{sys.executable} cannot be started by this user; nothing was done."
        )
    ours = os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))
    path = [ours, *(os.path.abspath(one) for one in sys.path if one)]
    argv = [program, "-I", "-S", "-c", _START, str(os.getpid()), *dict.fromkeys(path)]
    kept = ("TMPDIR", "SQLITE_TMPDIR", "LD_LIBRARY_PATH")
    environment = {"LC_ALL": "C.UTF-8", **{name: os.environ[name] for name in kept if name in os.environ}}
    theirs_in, to = _pipe()
    back, theirs_out = _pipe()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs_in, 3),
            (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            *((os.POSIX_SPAWN_DUP2, nothing, number) for number in range(3)),
        ]
        # A group of its own: what a terminal sends is for us.
        pid = os.posix_spawn(program, argv, environment, file_actions=actions, setpgroup=0)
    except BaseException:
        os.close(to)
        os.close(back)
        raise
    finally:
        for one in (theirs_in, theirs_out, nothing):
            os.close(one)
    return pid, to, back


def _pipe() -> tuple[int, int]:
    """Clear of the numbers that the ends get in the other process."""
    import fcntl

    found = os.pipe()
    high = tuple(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in found)
    for one in found:
        os.close(one)
    return high[0], high[1]
