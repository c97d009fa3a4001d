"""Let the daemon of a store carry out a command. None is started for that.

`takeback run` and the program before each command in mode `sandbox` ask it to carry them out: its starter has loaded
already what they need (`starter.py`). They do it themselves if it cannot be done there just as well, and never after it
was begun. Little is imported here: without a daemon nothing may be lost by asking.
"""

import os
import sys

from takeback.storage.daemon_socket import ROOT, connection_to, head_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence
    from typing import Any

RECORD = "record"  # what changed until now, and calls of agents that have died
RUN = "run"  # carry out what is sent with the answer
_signal: "Any" = __import__("_signal")  # to load `signal` takes long


# What is sent to be carried out there.

LOST = -1  # it was begun, and no one knows how it ended
COMMAND, PREFIX = "command", "prefix"  # the words of `takeback run`; those of `sandboxed.py`
_SELF = b"self"  # nothing was begun
_QUICK = 3.0  # seconds in which the daemon and its starter answer, or it is done here
_HUP, _INT, _TERM, _KILL, _CONT, _STOP, _TSTP = 1, 2, 15, 9, 18, 19, 20
_FLAGS = ("--hold", "--dry-run", "--no-network", "--json", "--quiet", "-q", "--no-color")
_OPTIONS = ("--name", "--agent", "--on-failure", "--timeout", "--store", "--color")
_OTHER_PROGRAM = (b"LD_", b"PYTHON", b"MALLOC_", b"GLIBC_")  # variables that change how a program starts
_TAKEN_ON = (b"PYTHONIOENCODING", b"PYTHONUNBUFFERED", b"PYTHONDONTWRITEBYTECODE")
_WATCHED = b"TAKEBACK_WATCH"  # what is watched in place has to be started by the command itself


def store_of_run(words: "Sequence[str]") -> str | None:
    """The store of a `takeback run` in a sandbox; None for any other command line, and for options not known here."""
    command, named, place = "", "", 0
    while place < len(words) and (word := words[place]) != "--":
        name, equals, value = word.partition("=")
        if not word.startswith("-") and not command:
            command = word
        elif name in _OPTIONS:
            if not equals:
                place, value = place + 1, "".join(words[place + 1 : place + 2])
            if value in ("", "--"):
                return None
            named = value if name == "--store" else named
        elif word not in _FLAGS:
            return None
        place += 1
    return store_named(named) if command == RUN and place < len(words) - 1 else None


def store_named(named: str = "") -> str | None:
    """As `takeback.storage.sqlite.store` finds it. None if that is not clear from here, or it is on a server."""
    home, state = os.environ.get("HOME", ""), os.environ.get("XDG_STATE_HOME", "")
    named = named or os.environ.get("TAKEBACK_STORE", "")
    if named.startswith("~"):
        return os.path.join(home, named[2:]) if named.startswith("~/") and home else None
    if named:
        return None if "://" in named else named
    if not os.path.isabs(state):
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "takeback") if os.path.isabs(state) else None


def sent(program: str, words: "Sequence[str]", store: str | None) -> int | None:
    """The exit code of what was carried out there, or LOST. None: it was not begun, and is to be done here."""
    if not store or not os.path.exists(f"{store}/hooks/socket") or not _is_plain():
        return None
    try:
        connection = connection_to(store, _QUICK)
    except OSError:
        return None
    try:
        with _Forwarding() as signals:
            if not _accepted(connection, program, words, signals):
                return None
            connection.settimeout(None)
            said = _line(connection)
            if said != _SELF:
                signals.arrived.clear()  # they were for the command
    finally:
        connection.close()
    return _ended(said)


def _accepted(connection: "socket", program: str, words: "Sequence[str]", signals: "_Forwarding") -> bool:
    """Whether it was begun. An error on the way is a no: the last byte says that it may begin."""
    try:
        connection.sendall(head_of(RUN))
        child = int(_line(connection) or b"0")
        if not child or not _is_mine(connection):
            return False
        _tell(connection, program, words)
        if connection.recv(1) != b"+":
            return False
        signals.forward_to(child)
        connection.sendall(b"g")
        return True
    except (OSError, ValueError):
        return False


def _is_mine(connection: "socket") -> bool:
    """Whether the daemon is the caller's own: it gets to know all that the caller has in its environment."""
    from _socket import SO_PEERCRED, SOL_SOCKET

    return (
        int.from_bytes(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8], sys.byteorder) == os.geteuid()
    )


def _tell(connection: "socket", program: str, words: "Sequence[str]") -> None:
    """All that no one can see from outside, and the open files."""
    from _socket import SCM_RIGHTS, SOL_SOCKET
    from marshal import dumps

    with open("/proc/self/personality", "rb") as file:
        personality = file.read()
    opened: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
    streams = [(one.encoding, one.errors, one.line_buffering, one.write_through) for one in opened]
    told = (
        program, list(words), sys.argv[0], list(os.environb.items()), streams, personality, sys.executable,
        sys.dont_write_bytecode, os.getppid(),
    )  # fmt: skip
    body = dumps(told)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        files = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, here))
        connection.sendmsg([len(body).to_bytes(4, sys.byteorder)], [(SOL_SOCKET, SCM_RIGHTS, files)])
        connection.sendall(body)
    finally:
        os.close(here)


def _line(connection: "socket") -> bytes:
    said = b""
    while not said.endswith(b"\n"):
        try:
            part = connection.recv(64)
        except OSError:
            return b""
        if not part:
            return b""
        said += part
    return said.partition(b"\n")[0]


def _ended(said: bytes) -> int | None:
    how, _, number = said.partition(b" ")
    if how == b"code":
        return int(number)
    if how == b"signal":
        if int(number) not in (_KILL, _STOP):
            _signal.signal(int(number), _signal.SIG_DFL)
        os.kill(os.getpid(), int(number))
        return 128 + int(number)  # it is blocked
    return None if said == _SELF else LOST


def _is_plain() -> bool:
    """Whether this process has nothing of its own that no other can take on. At the rest the starter looks."""
    changed = [name for name in os.environb if name.startswith(_OTHER_PROGRAM) and name not in _TAKEN_ON]
    if _WATCHED in os.environb or any(
        name != b"PYTHONPATH" or os.environb[name] != os.fsencode(ROOT) for name in changed
    ):
        return False
    flags = sys.flags
    if flags.optimize or flags.dev_mode or sys.warnoptions or sys.getfilesystemencoding() != "utf-8":
        return False
    if not (sys.stdin and sys.stdout and sys.stderr) or any(map(os.isatty, range(3))):
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return True
    return False


class _Forwarding:
    """What takeback hears while it works is for the process that works in its place."""

    def __init__(self) -> None:
        self._child = -1
        self._before: dict[int, Any] = {}
        self.arrived: list[int] = []  # for this process, if the command is not begun elsewhere

    def __enter__(self) -> "_Forwarding":
        return self

    def forward_to(self, child: int) -> None:
        self._child = os.pidfd_open(child)
        for number in (_HUP, _INT, _TERM, _TSTP, _CONT):
            if _signal.getsignal(number) in (_signal.SIG_DFL, _signal.default_int_handler):
                self._before[number] = _signal.signal(number, self._hear)

    def _hear(self, number: int, _: object) -> None:
        self.arrived.append(number)
        try:
            _signal.pidfd_send_signal(self._child, _STOP if number == _TSTP else number)
        except ProcessLookupError:
            pass  # it has just ended
        if number == _TSTP:
            os.kill(os.getpid(), _STOP)

    def __exit__(self, *_: object) -> None:
        if self._child < 0:
            return
        for number, handler in self._before.items():
            _signal.signal(number, handler)
        os.close(self._child)
        for number in self.arrived:
            os.kill(os.getpid(), number)
