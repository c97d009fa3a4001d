"""The first process inside: it makes the place ready, sets limits, starts the command, waits, ends what is left."""

import _socket
import errno
import fcntl
import os
import resource
import select
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from takeback.model.descriptor import Descriptor
from takeback.sandbox import cgroups, privileges, protocol, rootfs
from takeback.sandbox.calls import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, kernel
from takeback.sandbox.rootfs import Job, unpacked
from takeback.sandbox.scratch import allow_many_files

_COARSE = 5  # CLOCK_REALTIME_COARSE, which `time` does not name
_TICKS = 200  # of a fifth of a millisecond: more than the slowest clock needs
_NUDGES = 3


def wait_past(moment: int) -> None:
    """In nanoseconds. The kernel stamps changes by a clock that moves in ticks, so we wait until that one is past the
    moment: then whatever is stamped up to it happened before, and whatever happens from now on is stamped after it."""
    if _nudged(moment):
        return
    for _ in range(_TICKS):
        if time.clock_gettime_ns(_COARSE) > moment:
            return
        time.sleep(0.0002)


def _nudged(moment: int) -> bool:
    """Newer kernels (6.13) stamp the second change of a file that was looked at in between exactly, and whatever is
    changed after that, anywhere, not before it: then no one has to wait for a tick."""
    with Descriptor(os.memfd_create("clock")) as file:
        for _ in range(_NUDGES):
            os.fchmod(file, 0o600)
            if os.fstat(file).st_ctime_ns > moment:
                return True
        return False


def restrain(pid: int, order: dict[str, Any]) -> None:
    """Of the process that was just started, not of ourselves."""
    wishes = {resource.RLIMIT_AS: order["memory"], resource.RLIMIT_NPROC: order["processes"]}
    for which, wanted in wishes.items():
        if wanted:
            hard = resource.prlimit(pid, which)[1]
            limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.prlimit(pid, which, (limit, limit))


def raise_loopback() -> None:
    with protocol.Talk(_socket.AF_INET, _socket.SOCK_DGRAM) as some:
        fcntl.ioctl(some, 0x8914, struct.pack("=16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, up and running


READY = b"R"  # told by one that was built ahead
NOT_FOUND, NOT_EXECUTABLE, OUT_OF_TIME = 127, 126, 124
_LONG = 1e6  # seconds; more than that poll(2) cannot wait for at once
_GRACE = 1.0  # seconds between the polite signal and the other one
# Those that mean "come to an end" go to every process inside, as a terminal would send them to a whole group.
_TO_ALL = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP))
# What Python or we ourselves changed; everything else the command inherits from the caller.
_OUR_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTTOU)


class NotThere(Exception):
    """The directory that the command should start in."""


class Home(NamedTuple):
    """Where it is made ready before there is a command."""

    aside: bytes  # an empty directory
    userxattr: bool
    ignored: tuple[int, ...]  # signals that the caller ignores


class InitReady(NamedTuple):
    """The facts found out before there is a command."""

    files: tuple[int, int]  # how many may be open: the limit that the command gets
    capabilities: int  # those that the command may have


def live(door: protocol.Talk, home: Home, let_go: Sequence[Callable[[], None]]) -> NoReturn:
    """A job comes in by the door, then bytes that are signals for the command; when it is closed the command is no
    longer wanted. The report goes out by it. `let_go` of what is the parent's."""
    code = 1
    told: dict[str, Any]
    try:
        for one in let_go:
            one()
        told = _live(door, home)
        code = 0
    except NotThere as error:
        told = {"problem": "cwd", "text": str(error)}
    except OSError as error:
        told = {"problem": "setup", "errno": error.errno, "text": str(error)}
    except BaseException as error:  # noqa: BLE001 no one above us could get it in another way
        told = {"problem": "setup", "errno": 0, "text": repr(error)}
    try:
        protocol.write_all(door.fileno(), protocol.frame(told))
        # The end of all these mounts keeps a processor busy, and the reader of this answer has to answer others first.
        door.recv(1)
    finally:
        os._exit(code)


def _live(door: protocol.Talk, home: Home) -> dict[str, Any]:
    kernel().prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    problem, ready = None, InitReady((0, 0), 0)
    try:
        rootfs.park(home.aside, home.userxattr)
        ready = InitReady(allow_many_files(), privileges.allowed())
    except OSError as error:
        problem = error  # reported to the sender of a command
    job, stdio = _heard(door)
    bound: list[bytes] | None = None
    if job.order is None:
        bound = _built_ahead(job, problem)
        door.sendall(READY)
        job, stdio = _heard(door)
    if problem:
        raise problem
    return _carried_out(job, bound, stdio, ready, home.ignored, door.fileno())


def _built_ahead(job: Job, problem: OSError | None) -> list[bytes]:
    """A failure is not reported: the next command tries again."""
    if problem or not job.scene:
        os._exit(1)
    try:
        return rootfs.build(job.scene)
    except OSError:
        os._exit(1)


def _heard(door: protocol.Talk) -> tuple[Job, tuple[int, ...]]:
    import marshal

    head, fds = protocol.recv_fds(door, 8, 3)
    if len(head) != 8:
        os._exit(0)  # there will be none
    for fd in fds:
        os.set_inheritable(fd, False)
    raw = bytearray()
    size = int.from_bytes(head, "little")
    while len(raw) < size:
        piece = door.recv(size - len(raw))
        if not piece:
            os._exit(0)
        raw += piece
    return unpacked(marshal.loads(raw)), tuple(fds)


def _carried_out(
    job: Job,
    bound: list[bytes] | None,
    given: tuple[int, ...],
    ready: InitReady,
    ignored: tuple[int, ...],
    door: int,
) -> dict[str, Any]:
    """`bound`: points that could get no overlay, if the place is built already."""
    order, stdio = job.order, (given[0], given[1], given[2])
    assert order
    doors = (
        cgroups.open_doors(cgroups.ControlGroup(*order["group"])) if order["group"] else cgroups.Doors((), ())
    )
    if bound is None:
        assert job.scene
        bound = rootfs.build(job.scene)
    if not order["network"]:
        raise_loopback()
    wait_past(order["after"])  # most often it is by now, and costs nothing
    gone = _enter(order["cwd"], order["ask"])
    argv, env = list(order["argv"]), dict(order["env"])
    asked = _with_questions(argv) if order["ask"] else None
    argv = asked or argv
    resource.setrlimit(resource.RLIMIT_NOFILE, ready.files)
    os.umask(order["umask"])
    privileges.lock_up(stdio, ready.capabilities)
    kernel().prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel().prctl(PR_SET_DUMPABLE, 0)
    # The command is in its group from its first moment; we ourselves are not, so that it cannot end us by eating all.
    cgroups.go(doors.inner)
    pid, code, why = _start(argv, env, stdio, ignored)
    cgroups.go(doors.outer)
    told: dict[str, Any] = {"bound": [os.fsdecode(point) for point in bound]}
    if order["ask"]:
        told |= {"cwd": order["cwd"], "env": dict(order["env"]), "gone": gone, "too_long": []}
    if not pid:
        return told | {"code": code, "stopped": "", "leftover": 0, "unstarted": why}
    if not order["group"]:
        restrain(pid, order)
    for fd in stdio:
        os.close(fd)
    told |= _wait(pid, order["timeout"], door) | {"leftover": _end_the_rest()}
    if asked is not None:
        from takeback.sandbox import shell_state

        told |= shell_state.answer(order["env"])
    return told


def _with_questions(argv: list[str]) -> list[str] | None:
    """The command, changed so that it reports its directory and variables at its end; None if it cannot."""
    from takeback.sandbox import shell_state  # loaded by the parent, which still sees where it lies

    if not shell_state.is_asked(argv):
        return None
    return shell_state.wrapped(argv) if shell_state.can_tell() else argv


def _enter(cwd: str, forgiving: bool) -> bool:
    """Whether it is gone. A box continues like a shell whose directory was removed: in an empty one, never in a parent,
    where `rm -rf *` means something else."""
    try:
        os.chdir(cwd)
        return False
    except OSError as error:
        if not forgiving:
            raise NotThere(f"{cwd}: {os.strerror(error.errno or 0)}") from None
    rootfs.enter_nothing()
    return True


def _start(
    argv: list[str], env: dict[str, str], stdio: tuple[int, int, int], ignored: tuple[int, ...]
) -> tuple[int, int, str]:
    """Its process id; or 0, what a shell would end with, and why."""
    # Above 2, so that no duplication overwrites one that is still needed.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in stdio]
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(high)]
    code, why = NOT_FOUND, "it was not found"
    try:
        for path in _candidates(argv[0], env):
            if not os.path.lexists(path):
                continue
            try:
                return _spawn(path, argv, env, actions, ignored), 0, ""
            except OSError as error:
                why = os.strerror(error.errno or 0)
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    code = NOT_EXECUTABLE
    finally:
        for fd in high:
            os.close(fd)
    return 0, code, why


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


def _wait(pid: int, timeout: float, door: int) -> dict[str, Any]:
    """Wait until the command has ended, its time is over, or its caller has closed the connection."""
    end = time.monotonic() + timeout if timeout else 0.0
    stopped, killing = "", False
    waker = _wake_on_children()
    poll = select.poll()
    poll.register(waker, select.POLLIN)
    poll.register(door, select.POLLIN)
    while True:
        status = _reap(pid)
        if status is not None:
            code = OUT_OF_TIME if stopped else os.waitstatus_to_exitcode(status)
            return {"code": code if code >= 0 else 128 - code, "stopped": stopped}
        left = None if not end else min(max(0.0, end - time.monotonic()), _LONG) * 1000
        ready = dict(poll.poll(left))
        if waker in ready:
            os.read(waker, 512)
        if door in ready:
            _pass_on(pid, _signals(door))
        if end and time.monotonic() >= end:
            _signal_all(signal.SIGKILL if killing else signal.SIGTERM)
            stopped, killing, end = "time", True, time.monotonic() + _GRACE


def _wake_on_children() -> int:
    waker, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only so that the signal is not thrown away
    return waker


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


def _signals(door: int) -> bytes:
    try:
        return os.read(door, 64)
    except ConnectionResetError:
        return b""


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
    with suppress(ProcessLookupError):
        os.kill(-1, number)  # every process inside but ourselves


def _end_the_rest() -> int:
    """How many processes outlived the command. None is left when this returns."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    found = _count()
    if found:
        _signal_all(signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
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
