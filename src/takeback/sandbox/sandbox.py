"""The caller's side: one small process that starts commands, each with a layer of its own."""

import _socket
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self

from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.model.descriptor import Descriptor
from takeback.sandbox import protocol
from takeback.sandbox.protocol import MAPPED, ROOT, USER, Ended, Order, Stack

_PATIENCE = 60  # seconds; removing what a command left may take a while
# Nothing becomes garbage while modules load.
_START = (
    "import gc, sys; gc.disable(); sys.path.insert(0, {source!r}); "
    "from takeback.sandbox.zygote import main; main()"
)


class OutputReader(Protocol):
    def until(self, fd: int) -> None:
        """Read what the command prints until this descriptor has something to say."""
        ...


class Running:
    """A command that was started."""

    def __init__(self, talk: protocol.Talk, ask: bool, on_unable: Callable[[], None]) -> None:
        self._talk = talk
        self._ask = ask
        self._on_unable = on_unable
        self._lock = threading.RLock()  # another thread may end it
        self.rescued: Ended | None = None  # how it ended when an interrupt cut it short
        self.bound: tuple[str, ...] = ()  # after `wait`: points that could get no overlay and were read-only

    def signal(self, number: int) -> None:
        """INT, TERM, HUP and QUIT go to every process inside, others to the command itself."""
        with self._lock, suppress(BrokenPipeError, ConnectionResetError):  # it has just ended
            os.write(self._talk.fileno(), bytes((number,)))

    def end(self) -> None:
        """End the command now, from any thread; `ended` then returns its layer. Nothing if it is over."""
        with self._lock:
            if self._talk.fileno() >= 0:
                self.signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it with all it started; `wait` then raises, and there is no layer."""
        with suppress(OSError):
            self._talk.shutdown(1)  # SHUT_WR

    def wait(self, reading: "OutputReader | None" = None) -> Ended:
        """When this returns no process of it is alive, and its layer, if there is one, is there and mounted nowhere.
        `reading` takes what it prints."""
        try:
            ended = self.ended(reading)
            if not ended.layer:
                self.leave()
            return ended
        finally:
            self.gone()

    def ended(self, reading: "OutputReader | None" = None) -> Ended:
        """When this returns no process of the command is alive and its layer is there. Its mounts, which no process can
        reach any more, are removed in the background: do not mount the layer before `gone`."""
        try:
            if reading:
                reading.until(self._talk.fileno())
            told = self._heard()
        except BaseException as error:
            # Nothing may keep running for a caller that has left.
            try:
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    self.rescued = self._cut_short()
            finally:
                self.kill()
                self.gone()
            raise
        return self._told(told)

    def _heard(self) -> "dict[str, Any] | None":
        with suppress(ConnectionResetError):
            return protocol.read_message(self._talk.fileno())
        return None

    def _cut_short(self) -> Ended | None:
        """End the command now; what it has changed so far is in its layer."""
        self.signal(signal.SIGKILL)
        told = self._heard()
        return None if told is None or "problem" in told else self._told(told)

    def _told(self, told: "dict[str, Any] | None") -> Ended:
        if told is None:
            raise ResourceUnreachable("The process that starts commands has ended; nothing was changed.")
        if "problem" in told:
            if told["problem"] == "setup":
                self._on_unable()
            raise _problem(told)
        self.bound = tuple(told["bound"])
        kept: dict[str, Any] = {name: told[name] for name in ("cwd", "env", "gone")} if self._ask else {}
        if self._ask:
            kept |= {"untold": told.get("untold", ""), "too_long": tuple(told["too_long"])}
        why = told.get("unstarted", "")
        return Ended(
            told["code"], told["stopped"], told["leftover"], layer=told["layer"], unstarted=why, **kept
        )

    def leave(self) -> None:
        """After `ended`, if there is no layer: do not wait for the mounts."""
        with self._lock:
            self._talk.close()

    def gone(self) -> None:
        """When this returns nothing of it is left but the layer. Asked twice it says so again."""
        if self._talk.fileno() < 0:
            return
        try:
            while self._talk.recv(1 << 16):
                continue  # an answer that is no longer needed
        except ConnectionResetError:
            return
        finally:
            self.leave()


def _problem(told: dict[str, Any]) -> Exception:
    text = told["text"]
    if told["problem"] == "cwd":
        return Misuse(f"The command cannot start in {text}.")
    if told["problem"] in ("unfit", "moved"):
        return Refused(text)
    if told["problem"] == "layer":
        return ResourceUnreachable(
            f"The changes of the command could not be saved: {text}; nothing was changed."
        )
    return ResourceUnreachable(
        f"The sandbox could not be set up: {text}; nothing was changed.", hint="`takeback doctor` shows more."
    )


class Sandbox:
    """`place`: a private directory for scratch, on the filesystem where the layers will be. `on_unable` is called when
    no sandbox could be set up."""

    def __init__(self, place: str, on_unable: Callable[[], None] = lambda: None) -> None:
        self._place = os.path.realpath(place)
        self._on_unable = on_unable
        # By engine: how to talk to it, and its process id.
        self._servants: dict[str, tuple[protocol.Talk, int]] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def run(self, order: Order, stack: Stack, layer: str, reading: OutputReader | None = None) -> Ended:
        """`layer` does not exist yet; afterwards it holds all that the command changed."""
        return self.start(order, stack, layer).wait(reading)

    def start(self, order: Order, stack: Stack, layer: str) -> Running:
        _check(order)
        if os.getpid() != self._process:
            raise Misuse(
                "This run was begun before a fork and is used in the child.",
                hint="Open the store again in the child process.",
            )
        request = order._asdict() | {
            "env": dict(order.env),
            "root": os.path.realpath(stack.root),
            "layers": [os.path.realpath(one) for one in stack.layers],
            "layer": os.path.abspath(layer),
            "umask": _umask(),
        }
        del request["stdio"]
        ours, theirs = protocol.pair()
        try:
            with theirs, self._lock:
                engine = engine_for(stack)
                control, _ = self._servants.get(engine) or self._begin(engine)
                protocol.send_fds(control, b"r", [theirs.fileno(), *order.stdio])
            protocol.write_all(ours.fileno(), protocol.frame(request))
        except (BrokenPipeError, ConnectionResetError):
            ours.close()
            self.close()
            raise ResourceUnreachable(
                "The process that starts commands has ended; nothing was changed."
            ) from None
        except BaseException:
            ours.close()
            raise
        return Running(ours, order.ask, self._on_unable)

    def expect(self, stack: Stack) -> None:
        """The next command will lie on this, as far as one knows; nothing depends on it."""
        told = json.dumps({"layers": [os.path.realpath(one) for one in stack.layers]}).encode()
        with self._lock:
            servant = self._servants.get(engine_for(stack))
            if servant and len(told) <= protocol.LARGEST:
                with suppress(OSError):  # busy, or gone
                    servant[0].send(told, _socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Ends what still runs; nothing is left behind. In a child after a fork only its own copies are closed."""
        with self._lock:
            servants, self._servants = self._servants, {}
        mine = os.getpid() == self._process
        for control, _ in servants.values():
            with control, suppress(OSError):  # it is gone already
                if mine:
                    control.shutdown(_socket.SHUT_RDWR)  # a child that still has a copy keeps no one waiting
        for _, pid in servants.values() if mine else ():
            _wait_for(pid)

    def _begin(self, engine: str) -> tuple[protocol.Talk, int]:
        os.makedirs(self._place, 0o700, exist_ok=True)
        source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        settings = {"place": self._place, "parent": os.getpid(), "engine": engine}
        ours, pid = _taken() or _spawned(source)
        try:
            ours.send(json.dumps(settings).encode())
        except BaseException:
            ours.close()
            raise
        self._servants[engine] = ours, pid
        return ours, pid


def engine_for(stack: Stack) -> str:
    from takeback.sandbox.privileges import is_privileged

    if is_privileged():
        return ROOT
    return USER if stack.root == "/" else MAPPED


class Ahead(NamedTuple):
    """What serves the first sandbox of a process, if it was there before."""

    talk: protocol.Talk
    pid: int
    process: int


_ahead: list[Ahead] = []


def fork_ahead() -> None:
    """For a process that has one thread and everything loaded, which is quicker than to start a Python."""
    from takeback.sandbox.zygote import main

    ours, theirs = protocol.pair(_socket.SOCK_SEQPACKET)
    process = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            for number in range(3):
                os.dup2(nothing, number)
            ours.detach()
            os.dup2(theirs.detach(), 3)  # all above is closed
            main()
        finally:
            os._exit(0)
    theirs.close()
    _ahead[:] = [Ahead(ours, pid, process)]


def _taken() -> tuple[protocol.Talk, int] | None:
    mine = [one for one in _ahead if one.process == os.getpid()]
    _ahead.clear()
    return (mine[0].talk, mine[0].pid) if mine else None


def _spawned(source: str) -> tuple[protocol.Talk, int]:
    """Not forked from a process that may be huge: the kernel would have to copy its tables."""
    program = next(
        (one for one in (sys.executable, "/usr/bin/python3") if one and os.access(one, os.X_OK)), ""
    )
    if not program:
        raise ResourceUnreachable(f"{sys.executable} cannot be started by this user; nothing was run.")
    argv = [program, "-I", "-S", "-c", _START.format(source=source)]
    ours, theirs = protocol.pair(_socket.SOCK_SEQPACKET)
    with theirs, Descriptor(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) as nothing:
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
            *((os.POSIX_SPAWN_DUP2, nothing, number) for number in range(3)),
        ]
        try:
            # Its environment could be asked for from inside.
            return ours, os.posix_spawn(program, argv, {"LC_ALL": "C.UTF-8"}, file_actions=actions)
        except BaseException:
            ours.close()
            raise


def _wait_for(pid: int) -> None:
    """It ends when its connection closes; if it does not, it is killed with every process it started."""
    with suppress(ProcessLookupError, ChildProcessError):  # someone else has waited for it
        with Descriptor(os.pidfd_open(pid)) as gone:
            if not protocol.has_news(gone, _PATIENCE):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _check(order: Order) -> None:
    if not order.argv:
        raise Misuse("There is no command to run.")
    if any("\0" in text for text in (*order.argv, order.cwd, *order.env, *order.env.values())):
        raise Misuse("A command cannot have a zero byte in it.")
    if not order.timeout >= 0 or order.timeout == float("inf"):
        raise Misuse("A time limit is a positive number of seconds.")


def _umask() -> int:
    """Without changing it, as other threads may be making files."""
    from takeback.sandbox.privileges import of_status

    return int(of_status(b"Umask:") or b"022", 8)
