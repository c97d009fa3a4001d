"""The first process inside: it makes the place ready, starts the command, waits, and ends whatever is left."""

import errno
import fcntl
import os
import select
import signal
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from takeback.sandbox import asking, cgroups, guard, limits, rootfs, wire
from takeback.sandbox.calls import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, kernel
from takeback.sandbox.clock import wait_past
from takeback.sandbox.overlay import allow_many_files
from takeback.sandbox.rootfs import Scene

NOT_FOUND, NOT_EXECUTABLE, OUT_OF_TIME = 127, 126, 124
_GRACE = 1.0  # seconds between the polite signal and the other one
# Those that mean "come to an end" go to every process inside, as a terminal would send them to a whole group.
_TO_ALL = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP))
# What Python or we ourselves changed; everything else the command inherits from the caller.
_OUR_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTTOU)


class Job(NamedTuple):
    """As the caller asked, with what the small process found out."""

    order: dict[str, Any]
    scene: Scene
    stdio: tuple[int, int, int]
    lifeline: int  # bytes are signals for the command; its end means that nobody wants it any more
    report: int
    ignored: tuple[int, ...]  # signals that the caller ignores


class NotThere(Exception):
    """The directory that the command should start in."""


def live(job: Job) -> None:
    """Never returns."""
    code = 1
    try:
        told = _live(job)
        code = 0
    except NotThere as error:
        told = {"problem": "cwd", "text": str(error)}
    except OSError as error:
        told = {"problem": "setup", "errno": error.errno, "text": str(error)}
    except BaseException as error:  # noqa: BLE001 there is nobody above us who could be told otherwise
        told = {"problem": "setup", "errno": 0, "text": repr(error)}
    try:
        wire.write_all(job.report, wire.frame(told))
    finally:
        os._exit(code)


def _live(job: Job) -> dict[str, Any]:
    kernel().prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    order = job.order
    many = allow_many_files()
    doors = cgroups.open_doors(cgroups.Group(*order["group"])) if order["group"] else cgroups.Doors((), ())
    bound = rootfs.build(job.scene)
    if not order["network"]:
        limits.raise_loopback()
    wait_past(order["after"])  # most often it is by now, and costs nothing
    cwd = _enter(order["cwd"], order["ask"])
    argv, env = list(order["argv"]), dict(order["env"])
    if order["ask"]:
        argv = asking.wrapped(argv)
    limits.give_back(many)
    os.umask(order["umask"])
    guard.lock_up(job.stdio)
    kernel().prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel().prctl(PR_SET_DUMPABLE, 0)
    # The command is in its group from its first moment; we ourselves are not, so that it cannot end us by eating all.
    cgroups.go(doors.inner)
    pid, code = _start(argv, env, job)
    cgroups.go(doors.outer)
    if not pid:
        told = {
            "code": code,
            "stopped": "",
            "leftover": 0,
            "cwd": cwd,
            "env": dict(order["env"]),
            "began": cwd,
        }
        return told | {"bound": [os.fsdecode(point) for point in bound]}
    if not order["group"]:
        limits.restrain(pid, order)
    for fd in job.stdio:
        os.close(fd)
    told = _wait(pid, order["timeout"], job.lifeline)
    told |= {"leftover": _end_the_rest(), "bound": [os.fsdecode(point) for point in bound]}
    if order["ask"]:
        told |= asking.answer(cwd, order["env"]) | {"began": cwd}
    return told


def _enter(cwd: str, forgiving: bool) -> str:
    """A box goes on in the nearest directory that is left when an earlier command took its own away."""
    while True:
        try:
            os.chdir(cwd)
            return cwd
        except OSError as error:
            if not forgiving or cwd == "/":
                raise NotThere(f"{cwd}: {os.strerror(error.errno or 0)}") from None
        cwd = os.path.dirname(cwd)


def _start(argv: list[str], env: dict[str, str], job: Job) -> tuple[int, int]:
    """Its process id, or 0 and what a shell would say."""
    actions: list[tuple[int, ...]] = []
    high = [_high(fd) for fd in job.stdio]
    for number, fd in enumerate(high):
        actions.append((os.POSIX_SPAWN_DUP2, fd, number))
    code = NOT_FOUND
    try:
        for path in _candidates(argv[0], env):
            if not os.path.lexists(path):
                continue
            try:
                return _spawn(path, argv, env, actions, job.ignored), 0
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    code = NOT_EXECUTABLE
    finally:
        for fd in high:
            os.close(fd)
    return 0, code


def _high(fd: int) -> int:
    """Above 2, so that no duplication overwrites one that is still needed."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _candidates(program: str, env: Mapping[str, str]) -> list[str]:
    if "/" in program or not program:
        return [program]
    return [os.path.join(place or ".", program) for place in env.get("PATH", os.defpath).split(":")]


def _spawn(path: str, argv: list[str], env: dict[str, str], actions: Any, ignored: tuple[int, ...]) -> int:
    plain = [number for number in (*_OUR_SIGNALS, *_ENDINGS) if number not in ignored]
    try:
        return os.posix_spawn(path, argv, env, file_actions=actions, setsigmask=(), setsigdef=plain)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without its first line, as execvp would have it.
    return os.posix_spawn(
        "/bin/sh", ["sh", path, *argv[1:]], env, file_actions=actions, setsigmask=(), setsigdef=plain
    )


_ENDINGS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN)


def _wait(pid: int, timeout: float, lifeline: int) -> dict[str, Any]:
    """Until the command has ended, the time is over, or nobody wants it any more."""
    end = time.monotonic() + timeout if timeout else 0.0
    stopped, killing = "", False
    waker = _wake_on_children()
    poll = select.poll()
    poll.register(waker, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    while True:
        status = _reap(pid)
        if status is not None:
            code = OUT_OF_TIME if stopped else os.waitstatus_to_exitcode(status)
            return {"code": code if code >= 0 else 128 - code, "stopped": stopped}
        left = None if not end else max(0.0, end - time.monotonic()) * 1000
        ready = dict(poll.poll(left))
        if waker in ready:
            os.read(waker, 512)
        if lifeline in ready:
            _pass_on(pid, os.read(lifeline, 64))
        if end and time.monotonic() >= end:
            _signal_all(signal.SIGKILL if killing else signal.SIGTERM)
            stopped, killing, end = "time", True, time.monotonic() + _GRACE


def _wake_on_children() -> int:
    waker, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _awake)
    return waker


def _awake(number: int, frame: object) -> None:
    """Only so that the signal is not thrown away."""


def _reap(pid: int) -> int | None:
    """Children of others come to us when their parents end."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == pid:
            return status
        if not ended:
            return None


def _pass_on(pid: int, signals: bytes) -> None:
    if not signals:
        _signal_all(signal.SIGKILL)
        os._exit(1)
    for number in signals:
        if number in _TO_ALL:
            _signal_all(number)
        else:
            os.kill(pid, number)


def _signal_all(number: int) -> None:
    try:
        os.kill(-1, number)  # every process inside but ourselves
    except ProcessLookupError:
        return


def _end_the_rest() -> int:
    """How many processes outlived the command. None is left when this returns."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                break
        except ChildProcessError:
            break
    found = _count()
    if found:
        _signal_all(signal.SIGKILL)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
    return found


def _count() -> int:
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return 0
    except PermissionError:
        pass  # someone else's by now; still there
    try:
        return sum(1 for name in os.listdir("/proc") if name.isdigit() and name != "1")
    except OSError:
        return 1
