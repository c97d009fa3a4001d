"""takebackd: one small process for each store. It answers the shims of all coding agents of this user.

It is started by the first hook, apart from the agent, and ends when no agent has needed it for some minutes. Killed at
any moment, nothing is lost: what is open is in the journal and in the indexes of the watched directories, and the next
one takes it up.
"""

import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import stat
import struct
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, cast

import takeback
from takeback.adapters.file.kernel import libc
from takeback.errors import Corrupt, Refused, TakebackError
from takeback.frontends.agents.client import RECORD, RUN
from takeback.frontends.agents.event import HookAnswer, unexpected
from takeback.frontends.agents.hosts import Reply, refused, speaker
from takeback.frontends.agents.relay import BEFORE, PLUGIN_SWITCH, ROOT, plugin_of
from takeback.frontends.agents.sessions import Sessions
from takeback.frontends.agents.starter import StarterLink
from takeback.policy.secrets import masked
from takeback.storage.daemon_socket import AGENTS, OWN
from takeback.storage.sqlite.store import exists, was_there

IDLE_SECONDS = 600
_TICK, _QUICK_TICK = 0.5, 0.02  # seconds; while a call is under way, more is reported
_THREADS = 2  # that are kept when there are no requests
_CREDENTIALS = struct.Struct("=3i")  # process, user, group
_MOST = 64 << 20
_NEW_OBJECTS = 5_000  # after so many the collector looks for cycles
_LOG_BYTES = 1 << 20
_HANDOVER_SECONDS = 15
_HANGS_UP = 0.3  # seconds in which one that is ending does
_SHELLS_BETWEEN = 3  # that may stand between an agent and the shim
_SLOW = 10  # seconds that a shim may take to send its request


class Request(NamedTuple):
    host: str
    event: str
    parent: int
    root: str  # where the package of the shim lies
    environment: dict[str, str]
    payload: bytes


def directory_of(store: str) -> str:
    """Where the socket, the lock and the log are."""
    return os.path.join(store, "hooks")


def main(store: str) -> None:
    """Until it is idle; a second one ends at once."""
    try:
        place = directory_of(store)
        if not exists(store):
            _refuse_removed(store)
            with takeback.open(store):
                pass  # a store is made in a directory that is empty
        _make_private(place)
        lock = os.open(os.path.join(place, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _is_ours(lock, place):
            _serve(store, place, lock)
    except TakebackError as error:
        sys.exit(f"{error} {error.way_on}".strip())
    except OSError as error:
        sys.exit(f"{error.filename or store}: {error.strerror}.")


def _refuse_removed(store: str) -> None:
    """A call without the earlier history is one that no one may take for covered."""
    if removed := was_there(os.path.abspath(store)):
        raise Corrupt(
            removed,
            hint="Restore it from a backup. `takeback store make` starts a new, empty one in its place.",
        )


def _is_ours(lock: int, place: str) -> bool:
    """Not while another one serves; one that hands over does not any more."""
    until = time.monotonic() + _HANDOVER_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            # One that was killed may hold the lock, and even the socket, a moment longer.
            if _answers(place) or time.monotonic() > until:
                return False
        time.sleep(0.01)


def _answers(place: str) -> bool:
    """Whether someone waits there for what we say; one that is ending hangs up instead."""
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_HANGS_UP)
            connection.connect(f"/proc/self/fd/{handle}/socket")
            return bool(connection.recv(1))
    except TimeoutError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _make_private(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    status = os.stat(directory)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(0, "must belong to you, with mode 700", directory)


def _serve(store: str, place: str, lock: int) -> None:
    libc().keep_memory_small()
    gc.set_threshold(_NEW_OBJECTS)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    name = os.path.join(place, "socket")
    with suppress(FileNotFoundError):
        os.unlink(name)  # of one that was killed: we hold the lock
    listener.bind(f"/proc/self/fd/{handle}/socket")
    os.chmod(name, 0o600)
    with Daemon(store, place, listener) as daemon:
        listener.listen(64)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        # What it prints from now on is for its log: the shim that started it waits no longer.
        log = _log(place)
        os.dup2(log, 2)
        os.close(log)
        daemon.serve()
        if daemon.has_socket():
            with suppress(FileNotFoundError):
                os.unlink(name)  # before the lock goes


def _log(place: str) -> int:
    path = os.path.join(place, "log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        if os.stat(path).st_size > _LOG_BYTES:
            os.replace(path, f"{path}.old")
    return os.open(path, flags, 0o600)


class Daemon:
    def __init__(self, store: str, place: str, listener: socket.socket) -> None:
        self._place = place
        self._listener = listener
        self._sessions = Sessions(store)
        self._starter = StarterLink()
        # A thread is started when there are more requests than threads, and waits for the next one.
        self._turn = threading.Lock()
        self._under_way = 0
        self._threads = 0
        self._waiting: SimpleQueue[socket.socket] = SimpleQueue()
        self._last = self._looks_after_at = time.monotonic()
        self._ends = False
        self._signal = ""
        self._socket = _file(os.path.join(place, "socket"))
        self._version = _version()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self._starter.close()
        self._sessions.close(self._signal)
        self._listener.close()

    def serve(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told_to_end)
        with selectors.DefaultSelector() as waiting:
            self._listener.setblocking(False)
            waiting.register(self._listener, selectors.EVENT_READ)
            while not self._ends_now():
                if waiting.select(_QUICK_TICK if self._sessions.any_open_call() else _TICK):
                    self._take()
                self._sessions.collect()

    def _ends_now(self) -> bool:
        """Asked in each turn; the answer is looked for twice a second, and all that need not be done more often is
        done then."""
        now = time.monotonic()
        if now < self._looks_after_at and not self._ends:
            return False
        self._looks_after_at = now + _TICK
        self._sessions.look_after()
        return self._is_over()

    def _told_to_end(self, number: int, *_: object) -> None:
        self._ends, self._signal = True, signal.Signals(number).name

    def has_socket(self) -> bool:
        """Not if someone removed it, or another daemon serves there."""
        return self._socket is not None and _file(os.path.join(self._place, "socket")) == self._socket

    def _is_over(self) -> bool:
        if self._under_way:
            self._last = time.monotonic()
            return False
        if self._ends or self._sessions.is_over or not self.has_socket():
            return True
        return time.monotonic() - self._last > IDLE_SECONDS and not self._sessions.any_agent_lives()

    def _take(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._last = time.monotonic()
        with self._turn:
            self._under_way += 1
            more = self._threads < self._under_way
            self._threads += more
        self._waiting.put(connection)
        if more:
            threading.Thread(target=self._answer_all, daemon=True).start()

    def _answer_all(self) -> None:
        """One after the other, until there are more threads than are needed."""
        stays = True
        while stays:
            stays = False
            connection = self._waiting.get()
            try:
                self._answer(connection)
                stays = True
            finally:
                with self._turn:
                    self._under_way -= 1
                    stays = stays and self._threads <= max(_THREADS, self._under_way)
                    self._threads -= not stays

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                process, user, _ = _CREDENTIALS.unpack(credentials)
                if user not in (os.geteuid(), 0):
                    return
                connection.settimeout(_SLOW)
                request = _request(connection)
                if request is None:
                    return
                if request.host == OWN and request.event == RUN:
                    connection.sendall(b"%d\n" % self._started(request, process, connection))
                    return
                if self._makes_room(request):
                    self._ends = True
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(self._place, "socket"))
                    connection.sendall(b"again\n")
                    return
                connection.sendall(_packed(self._replied(request)))
        except OSError as error:
            self._note(f"an agent went away: {error}")

    def _makes_room(self, request: Request) -> bool:
        """For another version of takeback, once no call is open: then it drains and hands over."""
        return self._is_other(request) and not self._sessions.any_open_call()

    def _is_other(self, request: Request) -> bool:
        elsewhere = request.root != ROOT and os.path.realpath(request.root) != os.path.realpath(ROOT)
        return elsewhere or _version() != self._version

    def _started(self, request: Request, caller: int, connection: socket.socket) -> int:
        """The process that carries out what the caller will send it; 0: it has to do that itself."""
        if self._is_other(request) or self._ends:
            return 0
        before = self._starter.pid
        child = self._starter.hand(connection.fileno())
        if self._starter.pid != before and not self._sessions.adopt(0, self._starter.pid):
            self._starter.close()
            return 0
        return child if child and self._sessions.adopt(caller, child) else 0

    def _replied(self, request: Request) -> Reply:
        try:
            if request.host == OWN:
                told = {RECORD: self._sessions.record, AGENTS: self._sessions.agents}.get(request.event)
                return Reply(told() if told else "")
            payload = _object(request.payload)
            dialect = speaker(request.host, payload)
            parent = request.parent
            if dialect.NAME != "claude-code" or "CLAUDE_PID" not in request.environment:
                parent = _agent(parent)
            event = dialect.read(payload, request.environment, parent)
            answer = self._sessions.answer(event, request.environment)
            if answer.refusal and not answer.final:
                answer = answer._replace(refusal=_refused(request, answer.refusal))
            return dialect.answer(event, payload, _shown(answer))
        except TakebackError as error:
            return self._failed(request, f"{error} {error.way_on}".strip())
        except Exception as error:  # noqa: BLE001 whatever it is, no call is let through without a way back
            import traceback

            self._note(traceback.format_exc())
            return self._failed(request, f"{unexpected(error)}; {self._place}/log has more")

    def _failed(self, request: Request, why: str) -> Reply:
        why = masked(why)
        self._note(f"{request.host} {request.event}: {why}")
        if request.event not in BEFORE:
            return Reply()
        reason = f"takeback did not let this call through, because it could not record a way back: {why}"
        return Reply("", f"{_refused(request, reason)}\n", 2)

    def _note(self, words: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), masked(words.rstrip()), file=sys.stderr, flush=True)


def _shown(answer: HookAnswer) -> HookAnswer:
    """What the agent and its host read; the command that runs instead stays whole."""
    return answer._replace(
        refusal=masked(answer.refusal), context=masked(answer.context), notice=masked(answer.notice)
    )


def _refused(request: Request, reason: str) -> str:
    """With what switches off the hooks that asked: those of the plugin are not in the settings."""
    root = os.fsencode(request.environment.get("CLAUDE_PLUGIN_ROOT", ""))
    if request.host == "claude-code" and plugin_of(root):
        return f"{reason.rstrip()}\n{PLUGIN_SWITCH}"
    return refused(request.host, reason)


def _version() -> tuple[int, int]:
    """An upgrade in place replaces the files."""
    return _file(__file__) or (0, 0)


def _file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _request(connection: socket.socket) -> Request | None:
    head, rest = b"", b""
    while b"\n" not in head:
        part = connection.recv(1 << 16)
        if not part or len(head) > 1 << 16:
            return None
        head += part
    head, _, rest = head.partition(b"\n")
    words = head.decode("utf-8", "surrogateescape").split(" ", 7)
    if len(words) != 8 or words[:2] != ["takeback", "1"] or not all(map(str.isdigit, words[4:7])):
        return None
    environment, payload = int(words[5]), int(words[6])
    if environment + payload > _MOST:
        return None
    while len(rest) < environment + payload:
        part = connection.recv(1 << 20)
        if not part:
            return None
        rest += part
    pairs = rest[:environment].decode("utf-8", "surrogateescape").split("\0")
    told = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return Request(words[2], words[3], int(words[4]), words[7], told, rest[environment:])


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("The agent sent no JSON object.", hint="It may be of a version that is not known.")
    return cast("dict[str, Any]", found)


def _packed(reply: Reply) -> bytes:
    out, err = reply.stdout.encode("utf-8", "replace"), reply.stderr.encode("utf-8", "replace")
    return f"{reply.exit} {len(out)} {len(err)}\n".encode() + out + err


def _agent(parent: int) -> int:
    """The process that started the shim; shells in between are not the agent. Cursor needs two of them."""
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_SHELLS_BETWEEN):
            with open(f"/proc/{parent}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            given = [one for one in words[1:4] if one.startswith(b"-") and one.endswith(b"c")]
            if os.path.basename(words[0]) not in (b"sh", b"bash", b"dash", b"zsh") or not given:
                break
            with open(f"/proc/{parent}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
    return parent
