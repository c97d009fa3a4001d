"""The starter: one thread, everything loaded. A child of it becomes `takeback run` for a caller who asked the daemon.

The daemon starts it when it is first asked, apart from its own threads, and hands it the connection of each caller. The
child takes on all that the caller is, compares, and says no if anything differs: then the caller does it itself. It
begins when the caller says so, and from then on no one does it a second time.
"""

import _socket
import gc
import importlib
import marshal
import os
import resource
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from takeback.frontends.agents.client import COMMAND, store_named, store_of_run
from takeback.model.descriptor import Descriptor, write_once
from takeback.sandbox import protocol
from takeback.storage.daemon_socket import ROOT

_IDLE = 600_000  # milliseconds without a caller, and it ends
_ANSWER = 2.0  # seconds in which it forks; and in which a caller says what it wants
_READY = b"ready"
_MOST = 64 << 20
_GARBAGE = 100_000  # objects, as `takeback` itself has it
_START = (
    "import sys; sys.path.insert(0, {root!r}); from takeback.frontends.agents.starter import main; main()"
)
# What `takeback run` and mode `sandbox` load before their command runs, and until they have ended.
_LOADED = (
    "takeback.adapters.call.action", "takeback.adapters.call.ask", "takeback.adapters.call.functions",
    "takeback.adapters.file.adapter", "takeback.adapters.file.remove", "takeback.adapters.file.undo",
    "takeback.adapters.registry", "takeback.adapters.tree.adapter", "takeback.adapters.tree.apply",
    "takeback.adapters.tree.layer", "takeback.adapters.tree.targets", "takeback.adapters.watch.index",
    "takeback.adapters.watch.processes", "takeback.engine.close_run", "takeback.engine.held", "takeback.engine.recover",
    "takeback.frontends.agents.evidence", "takeback.frontends.agents.lookout",
    "takeback.frontends.agents.sandboxed", "takeback.frontends.cli.answer", "takeback.frontends.cli.commands.run",
    "takeback.frontends.cli.main", "takeback.retention.forget", "takeback.retention.space",
    "takeback.runs.commands.execute", "takeback.runs.end", "takeback.runs.held", "takeback.runs.prompts",
    "takeback.runs.run", "takeback.runs.undo", "takeback.runs.verbs", "takeback.runs.watch_place",
    "takeback.sandbox.ability", "takeback.sandbox.zygote", "takeback.storage.blobs.packs",
    "takeback.storage.blobs.rows", "takeback.storage.blobs.stored", "takeback.storage.blobs.uncommitted",
    "takeback.storage.sqlite.store", "locale", "weakref",
)  # fmt: skip
_CREDENTIALS = struct.Struct("=3i")  # process, user, group


class StarterLink:
    """The daemon's side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._talk: protocol.Talk | None = None
        self._is_ready = False
        self.pid = 0

    def hand(self, connection: int) -> int:
        """The process that answers this caller from now on; 0: there is none yet, or none any more."""
        with self._lock:
            try:
                talk = self._talk or self._started()
                if protocol.has_news(talk, 0):  # that it is ready; else it has ended
                    self._is_ready = not self._is_ready and talk.recv(32) == _READY
                    if not self._is_ready:
                        self.close()
                        self._started()
                if not self._is_ready:
                    return 0  # a caller does not wait for a start
                protocol.send_fds(talk, b"c", [connection])
                return int(talk.recv(32) or b"0")
            except (OSError, ValueError):
                self.close()
                return 0

    def _started(self) -> protocol.Talk:
        self._reap()
        ours, theirs = protocol.pair(_socket.SOCK_SEQPACKET)
        words = [sys.executable, "-I", "-c", _START.format(root=ROOT), "takeback.frontends.agents.starter"]
        with theirs, Descriptor(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) as nothing:
            actions = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                *((os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1)),
            ]
            # Commands could read its environment from inside: what it needs to know it hears.
            self.pid = os.posix_spawn(sys.executable, words, {"LC_ALL": "C.UTF-8"}, file_actions=actions)
        ours.settimeout(_ANSWER)
        self._talk, self._is_ready = ours, False
        return ours

    def _reap(self) -> None:
        if self.pid:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)

    def close(self) -> None:
        """It ends when the commands have ended that it has begun."""
        if self._talk is not None:
            self._talk.close()
            self._talk = None
            self._reap()


# The process itself.


class Errand(NamedTuple):
    pid: int
    pidfd: int
    caller: protocol.Talk


def main() -> None:
    os.closerange(4, 1 << 16)
    control = protocol.talk_on(3)
    os.set_inheritable(3, False)
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT}:
        with suppress(OSError, ValueError):  # KILL, STOP, and those of the C library
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _load()
    Starter(control).serve()
    os._exit(0)


def _load() -> None:
    from takeback.sandbox.calls import kernel
    from takeback.storage.blobs.codec import zstd_module

    for name in _LOADED:
        importlib.import_module(name)
    zstd_module()
    kernel()
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_threshold(_GARBAGE)


class Starter:
    def __init__(self, control: protocol.Talk) -> None:
        self.control = control
        self.poll = select.poll()
        self.children: dict[int, Errand] = {}  # by both of their descriptors
        self.ends = False  # the daemon is gone

    def serve(self) -> None:
        self.poll.register(self.control, select.POLLIN)
        with suppress(OSError):  # the daemon was killed while we loaded
            self.control.sendall(_READY)
        while not self.ends or self.children:
            events = self.poll.poll(None if self.children else _IDLE)
            if not events:
                return
            for fd, _ in events:
                child = self.children.get(fd)
                if fd == self.control.fileno():
                    self.accept()
                elif child and fd == child.pidfd:
                    self.ended(child)
                elif child:  # its caller is gone: as if takeback itself had been killed
                    self.poll.unregister(fd)
                    os.kill(child.pid, signal.SIGKILL)

    def accept(self) -> None:
        try:
            raw, fds = protocol.recv_fds(self.control, 16, 1)
        except ConnectionResetError:
            raw, fds = b"", []
        if not raw or len(fds) != 1:
            self.poll.unregister(self.control)
            self.ends = True
            return
        os.set_inheritable(fds[0], False)
        caller = protocol.talk_on(fds[0])
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        me = os.getpid()
        pid = os.fork()
        if not pid:
            _become(caller, me, self.forget)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        child = Errand(pid, os.pidfd_open(pid), caller)
        self.children[child.pidfd] = self.children[caller.fileno()] = child
        self.poll.register(child.pidfd, select.POLLIN)
        self.poll.register(caller, select.POLLRDHUP)
        with suppress(OSError):  # the daemon has just ended
            self.control.sendall(b"%d" % pid)

    def forget(self) -> None:
        """In a child: what is open there by accident keeps others from noticing that we are gone."""
        self.control.close()
        for fd, child in self.children.items():
            if fd == child.pidfd:
                os.close(fd)
                child.caller.close()

    def ended(self, child: Errand) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        with suppress(OSError):  # its caller is gone
            child.caller.sendall(b"signal %d\n" % -status if status < 0 else b"code %d\n" % status)
        for fd in (child.pidfd, child.caller.fileno()):
            del self.children[fd]
            with suppress(KeyError):
                self.poll.unregister(fd)
        os.close(child.pidfd)
        child.caller.close()


# A child of it.

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # not before it has begun


class Wish(NamedTuple):
    """What the caller tells; the rest is seen from outside."""

    program: str
    words: list[str]
    called: str  # its own name
    environment: list[tuple[bytes, bytes]]
    streams: list[tuple[str, str, bool, bool]]
    personality: bytes
    executable: str
    writes_no_code: bool
    parent: int


_LIMITS = 16  # kinds of them in every Linux; `resource` does not name all


class NotAlike(Exception):
    """What cannot be taken on."""


def _become(caller: protocol.Talk, starter: int, forget: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        forget()
        caller.settimeout(_ANSWER)
        wish = _prepared(caller, starter)
        if wish is None:
            with suppress(OSError):
                caller.sendall(_SELF)
        else:
            code = _carried_out(wish, caller)
    finally:
        os._exit(code & 0xFF)


def _prepared(caller: protocol.Talk, starter: int) -> Wish | None:
    """None: it is not begun here."""
    from takeback.sandbox.sandbox import fork_ahead

    try:
        wish, files = _heard(caller)
        pid = _CREDENTIALS.unpack(caller.getsockopt(*_PEER, _CREDENTIALS.size))[0]
        mask = _take_on(pid, wish, starter)
        _become_program(wish, files)
        if not _has_sandbox(wish):
            return None  # what is watched in place has to be started by the caller
        fork_ahead()  # not earlier: to find that out may need one, too
        caller.sendall(b"+")
        if caller.recv(1) != b"g":
            return None
    except (OSError, ValueError, NotAlike):
        return None
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    return wish


_PEER = (_socket.SOL_SOCKET, _socket.SO_PEERCRED)
_SELF = b"self\n"  # to the caller: nothing was begun
_INTERRUPTED = 130


def _heard(caller: protocol.Talk) -> tuple[Wish, list[int]]:
    head, files = protocol.recv_fds(caller, 4, 4)
    size = int.from_bytes(head, sys.byteorder)
    if len(files) != 4 or len(head) != 4 or size > _MOST:
        raise NotAlike
    body = bytearray()
    while len(body) < size:
        part = caller.recv(size - len(body))
        if not part:
            raise NotAlike
        body += part
    return Wish(*marshal.loads(body)), files


def _take_on(pid: int, wish: Wish, starter: int) -> set[int]:
    """What a process has by being started by the caller; the mask of signals that it gets when it begins."""
    from takeback.sandbox import cgroups
    from takeback.sandbox.calls import PR_SET_PDEATHSIG, kernel

    kernel().prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter or not _is_our_python(wish.executable):
        raise NotAlike
    os.setsid()
    status = _status(pid)
    for number in range(_LIMITS):
        if (wanted := resource.prlimit(pid, number)) != resource.getrlimit(number):
            resource.setrlimit(number, wanted)
    os.umask(int(status[b"Umask"], 8))
    for number in _numbers(status[b"SigIgn"]) - {signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_IGN)
    if os.getpriority(os.PRIO_PROCESS, pid) != os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, pid))
    if os.sched_getscheduler(pid) != os.sched_getscheduler(0):
        os.sched_setscheduler(0, os.sched_getscheduler(pid), os.sched_getparam(pid))
    kernel().take_io_priority(pid)
    cgroups.join(pid)
    if os.sched_getaffinity(pid) != os.sched_getaffinity(0):
        os.sched_setaffinity(0, os.sched_getaffinity(pid))
    for name in ("oom_score_adj", "comm"):
        if (wanted := _read(pid, name)) != _read("self", name):
            write_once(f"/proc/self/{name}", os.fsdecode(wanted.rstrip(b"\n")))
    if standing(pid, wish.personality) != standing("self", _read("self", "personality")):
        raise NotAlike
    return _numbers(status[b"SigBlk"])


# Of /proc/PID/status: no process may take on who someone is, or what binds them.
_SAME = (
    b"Umask", b"TracerPid", b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb",
    b"NoNewPrivs", b"Seccomp", b"Seccomp_filters", b"Speculation_Store_Bypass", b"SpeculationIndirectBranch",
    b"THP_enabled", b"Cpus_allowed", b"Mems_allowed",
)  # fmt: skip
_FILTERS = b"Seccomp_filters"
FIRST = 1  # a process whose filters all here have
_FILES = ("limits", "cgroup", "oom_score_adj", "attr/current", "loginuid", "coredump_filter")


def standing(pid: "int | str", personality: bytes) -> tuple[Any, ...]:
    """Two processes with the same one differ in nothing that the kernel shows."""
    status = _status(pid)
    space = f"/proc/{pid}/ns"
    spaces = [os.readlink(f"{space}/{name}") for name in sorted(os.listdir(space))]
    root = os.stat(f"/proc/{pid}/root")
    if status.get(b"Seccomp", b"0") != b"0" and status.get(_FILTERS) != _status(FIRST).get(_FILTERS):
        raise NotAlike  # filters cannot be compared; those of the first process here are everybody's
    if pid != "self" and _fields(pid)[4] != b"0":
        raise NotAlike  # it has a terminal
    number = os.getpid() if pid == "self" else int(pid)
    return (
        [status.get(name) for name in _SAME], _numbers(status[b"SigIgn"]), spaces, (root.st_dev, root.st_ino),
        personality, [_read(pid, name) for name in _FILES], os.getpriority(os.PRIO_PROCESS, number),
        os.sched_getscheduler(number), os.sched_getparam(number).sched_priority,
    )  # fmt: skip


def _status(pid: "int | str") -> dict[bytes, bytes]:
    with open(f"/proc/{pid}/status", "rb") as file:
        return {name: value.strip() for name, _, value in (line.partition(b":") for line in file)}


def _fields(pid: "int | str") -> list[bytes]:
    """Of /proc/PID/stat, from its state on."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _read(pid: "int | str", name: str) -> bytes:
    """Empty where this kernel has no such file."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _numbers(mask: bytes) -> set[int]:
    bits = int(mask, 16)
    return {number for number in signal.valid_signals() if bits >> number - 1 & 1}


def _become_program(wish: Wish, files: list[int]) -> None:
    """What a program finds when it has started."""
    import locale
    import time

    for number, fd in enumerate(files[:3]):
        os.dup2(fd, number)
    os.fchdir(files[3])
    for fd in files:
        os.close(fd)
    os.environ.clear()
    os.environb.update(wish.environment)
    time.tzset()
    with suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    sys.argv = [wish.called, *wish.words]
    sys.dont_write_bytecode = wish.writes_no_code
    sys.stdin, sys.stdout, sys.stderr = map(_stream, range(3), wish.streams)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _stream(fd: int, kind: tuple[str, str, bool, bool]) -> Any:
    import io

    encoding, errors, by_line, at_once = kind
    plain = os.fdopen(fd, "wb" if fd else "rb", 0 if at_once else -1, closefd=False)
    return io.TextIOWrapper(
        plain, encoding, errors, "\n" if fd else None, line_buffering=by_line, write_through=at_once
    )


def _is_our_python(executable: str) -> bool:
    """By its directory a virtual environment is known, by what it leads to the version."""
    same = os.path.dirname(executable) == os.path.dirname(sys.executable)
    return same and os.path.realpath(executable) == os.path.realpath(sys.executable)


def _has_sandbox(wish: Wish) -> bool:
    from takeback.sandbox.ability import ability

    store = store_of_run(wish.words) if wish.program == COMMAND else store_named(*wish.words[:-1])
    return bool(store and ability(store).engine)


def _carried_out(wish: Wish, caller: protocol.Talk) -> int:
    from takeback.frontends.agents.sandboxed import InBackground, carried_out
    from takeback.frontends.cli.main import main

    try:
        return main(wish.words) if wish.program == COMMAND else carried_out(wish.words, wish.parent)
    except InBackground:
        caller.sendall(_SELF)
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:  # noqa: BLE001 as Python itself ends
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
