"""The request for a command (checked before anything starts, and recorded without passwords), and its pipes."""

import os
import select
import shlex
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import TracebackType
from typing import NamedTuple, cast

from takeback.errors import Misuse, Renamed
from takeback.model.record import canonical

_SHOWN = 60


def shown(argv: tuple[str, ...]) -> str:
    """The command line, short enough for a list. What `sh -c` was given is shown as it was typed."""
    words = _without_secrets(argv)
    line = words[2] if words[:2] == ["/bin/sh", "-c"] and len(words) == 3 else " ".join(map(_quoted, words))
    line = line.encode("utf-8", "replace").decode()  # a record holds no half characters
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def told(argv: tuple[str, ...]) -> list[str]:
    """For the record: bytes that are no UTF-8 are escaped."""
    return [
        word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        for word in _without_secrets(argv)
    ]


def _without_secrets(argv: tuple[str, ...]) -> list[str]:
    """No part of an undo reads the command again, and the journal is kept for months and shown to many."""
    from takeback.policy.secrets import masked_lines

    return masked_lines(argv, " ")


def _quoted(word: str) -> str:
    """For a shell; a mask needs no quotes."""
    from takeback.policy.secrets import MASK

    plain = word.replace(MASK, "masked")
    return word if shlex.quote(plain) == plain else shlex.quote(word)


_MOST = 1 << 63
ON_FAILURE = ("undo", "leave", "hold")


class CommandRequest(NamedTuple):
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    network: bool = True
    timeout: float = 0  # seconds; 0: none
    memory: int = 0  # bytes; 0: no limit
    processes: int = 0
    hold: bool = False
    on_failure: str = "undo"
    dry_run: bool = False
    says: str = ""  # what it is called in a list; empty: its words
    about: Mapping[str, str] = {}  # recorded with it


def words_of(command: "Sequence[str] | str") -> tuple[str, ...]:
    """A text is a line for the shell."""
    if not isinstance(command, (str, list, tuple)):
        given: tuple[str, ...] = ()
    else:
        given = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
    if not given or not all(isinstance(word, str) for word in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(
            "A command is a text for the shell, or a list of words.", hint='For example ["make", "-j4"].'
        )
    if not given[0] or (given[-1] == "" and isinstance(command, str)):
        raise Misuse("The command is empty.", hint="Name a program: `takeback run -- make -j4`.")
    if not _can_be_given(given):
        raise Misuse(
            "A command cannot hold a zero byte, nor half a character.",
            hint="Give such content on its standard input.",
        )
    return given


def _can_be_given(texts: Iterable[str]) -> bool:
    """To a program, as words or as variables."""
    try:
        return all(b"\0" not in os.fsencode(text) for text in texts)
    except UnicodeEncodeError:
        return False


def refuse_odd(
    *, timeout: object = None, memory: object = None, processes: object = None, env: object = None,
    stdin: object = None, key: object = "",
) -> None:  # fmt: skip
    """Refuse arguments of a wrong type, before anything starts."""
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise Misuse(f"{timeout!r} is no time limit.", hint="Give seconds as a number, for example 2.5.")
    for name, value in (("memory", memory), ("processes", processes)):
        if value is not None and not isinstance(value, int):
            raise Misuse(
                f"{value!r} is no limit for {name}.",
                hint="Give a whole number; memory is in bytes, for example 2 << 30 for 2 GiB.",
            )
    if env is not None:
        _refuse_odd_env(env)
    if stdin is not None and not isinstance(stdin, bytes):
        raise Misuse(
            "The standard input of a command is given as bytes.", hint='For example stdin=b"yes\\n".'
        )
    if not isinstance(key, str):
        raise Misuse(f"A key is text, not {key!r}.", hint='For example key="deploy-42".')
    canonical(key)  # refuses what the journal could not hold


def _refuse_odd_env(env: object) -> None:
    hint = 'Give a dict from names to values, all of them text, for example {"CC": "clang"}.'
    if not isinstance(env, Mapping):
        raise Misuse(f"{env!r} is no environment.", hint=hint)
    for name, value in cast("Mapping[object, object]", env).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise Misuse(f"A variable cannot be {name!r} = {value!r}.", hint=hint)


def directory_of(cwd: "str | os.PathLike[str] | None") -> str:
    try:
        path: str = os.path.abspath(os.fsdecode(cwd) if cwd is not None else os.getcwd())
    except TypeError:
        raise Misuse(f"{cwd!r} is no directory.", hint="Give a path.") from None
    except FileNotFoundError:
        raise Misuse(
            "The current directory does not exist any more.", hint="Go to one that does: cd /"
        ) from None
    if "\0" in path or not os.path.isdir(path):
        raise Misuse(f"{path!r} is no directory to run a command in.", hint="Give one that exists.")
    return path


def refuse_unfit(request: CommandRequest) -> CommandRequest:
    if not 0 <= request.timeout < _MOST:
        raise Misuse(
            f"A time limit of {request.timeout} s makes no sense.",
            hint="Give seconds greater than 0, or none.",
        )
    for name, value in (("memory", request.memory), ("processes", request.processes)):
        if not 0 <= value < _MOST:
            raise Misuse(
                f"A limit of {value} for {name} makes no sense.",
                hint="Give a number that a machine could have, or none.",
            )
    refuse_keep(request.on_failure)
    if request.on_failure not in ON_FAILURE:
        raise Misuse(
            f"After a failure one can do one of {', '.join(ON_FAILURE)}, not {request.on_failure!r}.",
            hint="`undo` drops what the command changed.",
        )
    if not _can_be_given(chain(request.env, request.env.values())) or any("=" in one for one in request.env):
        raise Misuse(
            "The environment holds a name or value that no process can have.", hint="Look for zero bytes."
        )
    return request


def refuse_keep(on_failure: str) -> None:
    if on_failure == "keep":
        raise Renamed("After a failure `keep` was renamed.", hint="`leave` leaves what the command changed.")


# What it reads and prints; and whether it read what someone typed.


_PIECE = 1 << 16


class Pipes:
    """Use it as a context manager around one command; afterwards `stdout` and `stderr` hold what it printed. The output
    must be read while it runs: `until` reads while waiting for something else, `listen` reads in a thread."""

    def __init__(self, stdin: bytes | None = None) -> None:
        self.stdout = b""
        self.stderr = b""
        self._stdin = stdin
        self._open: list[int] = []
        self._printed: dict[int, list[bytes]] = {}
        self._thread: threading.Thread | None = None
        self._wake = -1

    def __enter__(self) -> "Pipes":
        given = self._given()
        writes: list[int] = []
        for _ in range(2):
            read, write = self._kept(*os.pipe2(os.O_CLOEXEC))
            os.set_blocking(read, False)
            self._printed[read] = []
            writes.append(write)
        self.stdio = (given, writes[0], writes[1])
        return self

    def listen(self) -> None:
        ended, self._wake = self._kept(*os.pipe2(os.O_CLOEXEC))
        self._thread = threading.Thread(target=self.until, args=(ended,), name="takeback-output", daemon=True)
        self._thread.start()

    def until(self, fd: int) -> None:
        """Read what is printed until this descriptor has something to say."""
        waiting = select.poll()
        for one in (fd, *self._printed):
            waiting.register(one, select.POLLIN)
        while fd not in {ready for ready, _ in waiting.poll()}:
            self._read()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The command has ended: its output is in the pipes, and later bytes do not count."""
        if not self._open:
            return
        try:
            if self._thread:
                os.write(self._wake, b".")
                self._thread.join()
                self._thread = None
            self._read()
            self.stdout, self.stderr = (b"".join(pieces) for pieces in self._printed.values())
        finally:
            while self._open:
                os.close(self._open.pop())

    def _given(self) -> int:
        if self._stdin is None:
            return self._kept(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))[0]
        (fd,) = self._kept(os.memfd_create("stdin"))
        rest = memoryview(self._stdin)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _kept(self, *fds: int) -> tuple[int, ...]:
        self._open += fds
        return fds

    def _read(self) -> None:
        for fd, pieces in self._printed.items():
            while piece := _piece(fd):
                pieces.append(piece)


def _piece(fd: int) -> bytes:
    try:
        return os.read(fd, _PIECE)
    except BlockingIOError:
        return b""


_BACK = 16 * 10**9  # nanoseconds: the kernel moves the time of the last read in steps of 8 seconds


class TerminalUse:
    """Around the command. A terminal has the time at which it was last read; it is set back first, so that every read
    moves it."""

    def __init__(self, stdio: Sequence[int]) -> None:
        self._terminal = next((fd for fd in stdio if os.isatty(fd)), -1)
        self._before = self._set = 0
        self.happened = False

    def __enter__(self) -> "TerminalUse":
        if self._terminal >= 0:
            status = os.fstat(self._terminal)
            self._before = self._set = status.st_atime_ns
            with suppress(OSError):  # of another user: then two reads within 8 seconds look like one
                os.utime(self._terminal, ns=(self._before - _BACK, status.st_mtime_ns))
                self._set = os.fstat(self._terminal).st_atime_ns
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal < 0:
            return
        with suppress(OSError):  # the terminal is gone
            status = os.fstat(self._terminal)
            self.happened = status.st_atime_ns != self._set
            if not self.happened:
                os.utime(self._terminal, ns=(self._before, status.st_mtime_ns))
