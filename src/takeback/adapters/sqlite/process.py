"""The process that has SQLite in it. Ours never loads it: the caller may use the sqlite3 of Python on the same file,
and two SQLite libraries in one process do not see each other's locks."""

import os
import select
import sys
from typing import Any

from takeback import errors
from takeback.adapters.sqlite import wire

_START = (
    "import sys; parent = int(sys.argv[1]); sys.path[:0] = sys.argv[2:]; "
    "from takeback.adapters.sqlite.child.main import main; main(parent)"
)
_KILL = 9  # also while Python shuts down, when nothing can be imported any more
_PATIENCE = 2000  # ms, for a process that was asked to end


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

    def ask(self, what: str, *given: Any, tell: wire.Tell) -> Any:
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
        name, message, further = answer
        raise getattr(errors, name)(message, **further)

    def kill(self) -> None:
        """SQLite rolls back what was not committed, as after any crash."""
        self.end(patience=0)

    def end(self, patience: int = _PATIENCE) -> None:
        if not self.usable:
            return
        os.close(self._to)
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


def _spawn() -> tuple[int, int, int]:
    for program in (sys.executable, "/usr/bin/python3"):
        if program and os.access(program, os.X_OK):
            break
    else:
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
        theirs = (nothing, nothing, nothing, theirs_in, theirs_out)
        actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate(theirs)]
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
