"""The process of a command that waits for a word before it runs, and all that it starts."""

import errno
import os
import signal
import sys
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple


class Descendant(NamedTuple):
    pid: int
    started: str  # a process id is used again, its start time is not


def descendants(without: Container[int] = ()) -> list[Descendant]:
    """Of this process, those that still run; orphans of them become ours where we asked for that. What is in `without`
    is left out, with all that it started."""
    below: dict[int, list[Descendant]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _fields(int(name))) and fields[0] not in ("Z", "X"):
            below.setdefault(int(fields[1]), []).append(Descendant(int(name), fields[19]))
    found: list[Descendant] = []
    pending = [os.getpid()]
    while pending:
        for one in below.get(pending.pop(), ()):
            if one.pid not in without:
                found.append(one)
                pending.append(one.pid)
    return found


def send(processes: Iterable[Descendant], number: int) -> None:
    """To each that is still the same process; those of other users are beyond us."""
    for one in processes:
        try:
            handle = os.pidfd_open(one.pid)
        except OSError:
            continue
        try:
            fields = _fields(one.pid)
            if fields and fields[19] == one.started:
                signal.pidfd_send_signal(handle, number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            os.close(handle)


def _fields(pid: int) -> list[str]:
    """Of its line in /proc, from its state on; none if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_TO_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # as a terminal would
_TO_END = (signal.SIGTERM, signal.SIGHUP)  # what then outlives the command is not wanted either
_BY_TERMINAL = 0x80  # si_code SI_KERNEL: ^C and ^\ reach the whole group, the command too
_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; a program does not expect that
_SUBREAPER = 36
_GRACE = 5.0  # seconds between asking to end and ending
_STOP_GRACE = 1.0  # after a stop
_STEP = 0.05  # the end of what is not our own child is not told


class Gate:
    """Made before any thread or connection: it forks. Signals meant for us are held back until it is left, and passed
    on to the command while that runs."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], stdio: tuple[int, int, int]) -> None:
        import ctypes

        self.leftover: tuple[int, ...] = ()
        self.timed_out = False
        self.interrupted = False  # it ended because a signal to us was passed on, or because it was stopped
        self.stopped = False  # somebody called `end`, and it was still running
        self._to_stop = False
        self._ended = False
        self._heard: set[int] = set()
        self._asked = False  # to end, with all that it started
        self._others = {one.pid for one in descendants()}  # started before, by someone else
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, its end would be lost
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*_HEARD, signal.SIGCHLD))
        # What the command leaves behind becomes ours, so that we know of it.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        word, self._word = os.pipe()
        self._trouble, trouble = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()  # or both would print what is left
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, env, stdio, (word, self._word, trouble), self._mask)
        os.close(word)
        os.close(trouble)

    def __enter__(self) -> "Gate":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in (self._word, self._trouble):
            if fd >= 0:
                os.close(fd)  # without a word the process ends by itself
        if not self._ended:
            self._wait_for_end(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def run(self, timeout: float = 0) -> int:
        """Let it run; its exit code as a shell tells it. `OSError` if it could not be started."""
        os.write(self._word, b"!")
        os.close(self._word)
        self._word = -1
        told = os.read(self._trouble, 16)
        if told:
            self._wait_for_end(0)
            raise OSError(int(told), os.strerror(int(told)))
        code = self._wait_for_end(timeout)
        self.interrupted = self._asked or code in {128 + number for number in self._heard}
        if self._asked:
            self._end_family()
        self.leftover = _children()
        return 124 if self.timed_out else code

    def end(self) -> None:
        """End it with all it started; from any thread. Nothing if it is over."""
        self._to_stop = True
        os.kill(os.getpid(), signal.SIGCHLD)  # held back here, and what is waited for there

    def _wait_for_end(self, timeout: float) -> int:
        until = time.monotonic() + timeout if timeout else 0.0
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended = True
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if self._to_stop and not self.stopped:
                self.stopped = self._asked = True
                send(self._family(), signal.SIGTERM)
                until = time.monotonic() + _STOP_GRACE
            left = max(0.0, until - time.monotonic()) if until else 3600.0
            heard = signal.sigtimedwait((*_HEARD, signal.SIGCHLD), left)
            if heard is None and until:
                # Asked first, then made to.
                made_to = self.timed_out or self.stopped
                send(self._family(), signal.SIGKILL if made_to else signal.SIGTERM)
                self.timed_out, self._asked = self.timed_out or not self.stopped, True
                until = time.monotonic() + _GRACE
            elif heard is not None and heard.si_signo != signal.SIGCHLD:
                self._heard.add(heard.si_signo)
                if heard.si_code != _BY_TERMINAL:
                    self._pass_on(heard.si_signo)

    def _pass_on(self, number: int) -> None:
        self._asked = self._asked or number in _TO_END
        family = self._family()
        send(family if number in _TO_ALL else [one for one in family if one.pid == self.pid], number)

    def _end_family(self) -> None:
        """The command was asked to end and has: so has, after a while, all that it started."""
        for number in (0, signal.SIGKILL):
            until = time.monotonic() + _GRACE
            while (family := self._family()) and time.monotonic() < until:
                if number:
                    send(family, number)  # again each time: they may start others
                signal.sigtimedwait((signal.SIGCHLD,), _STEP)
                _children()

    def _family(self) -> list[Descendant]:
        return descendants(self._others)


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    stdio: tuple[int, int, int],
    pipes: tuple[int, int, int],
    mask: "set[signal.Signals | int]",
) -> None:
    """In the new process; never returns."""
    word, others, trouble = pipes
    try:
        os.close(others)
        for number in _DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        for number in _HEARD:  # signals that are not passed on as ignored have their default again
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for target, fd in enumerate(stdio):
            if fd != target:
                os.dup2(fd, target)
        if not os.read(word, 1):
            os._exit(0)  # our parent is gone or does not want it
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(trouble, str(error.errno or errno.EINVAL).encode())
    finally:
        os._exit(127)


def _children() -> tuple[int, ...]:
    """Those that still run; the others are buried."""
    found: list[int] = []
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            found = [int(pid) for pid in file.read().split()]
    except OSError:
        return ()
    return tuple(pid for pid in found if not _buried(pid))


def _buried(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
