"""A small process that starts commands for the caller, whose own may be too big to fork. One thread, few modules."""

import _socket
import fcntl
import gc
import importlib
import json
import os
import select
import signal
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from takeback.model.mounts import mount_table, mounted
from takeback.sandbox import cgroups, command, privileges, protocol
from takeback.sandbox.command import PreparedCommand, SandboxPlan, UnfitLayers
from takeback.sandbox.init import Home
from takeback.sandbox.mounts import MountPoint, points_for_root, points_for_user, visible
from takeback.sandbox.protocol import MAPPED, ROOT, USER
from takeback.sandbox.rootfs import get_ready
from takeback.sandbox.scratch import Workshop
from takeback.sandbox.spares import Spare, Spares, hand_over, make_spare

# What a terminal sends to a whole group is for the command, not for us; it lives and dies with the caller.
_FOR_THE_COMMAND = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU
)  # fmt: skip


_KILLED = {"problem": "killed", "text": "Its first process was killed from outside."}


class ChildReport:
    """What came out of the door so far."""

    def __init__(self) -> None:
        self.raw = b""
        self.whole = False
        self.left = False  # a layer that the next command will lie on


class Child(NamedTuple):
    caller: protocol.Talk
    spare: Spare
    told: ChildReport
    prepared: PreparedCommand
    order: dict[str, Any]
    group: cgroups.ControlGroup | None
    foreground: tuple[int, int]  # a descriptor of the terminal and who was in front
    held: int = -1  # the directory of its layer, locked: another process waits until the layer is there

    def close(self) -> None:
        self.spare.door.close()
        for fd in (self.foreground[0], self.held):
            if fd >= 0:
                os.close(fd)
        self.caller.close()


class Zygote:
    def __init__(self, control: protocol.Talk, parent: int, settings: dict[str, Any]) -> None:
        self.control = control
        self.place: str = settings["place"]
        self.user: bool = settings["engine"] != ROOT
        self.ignored = tuple(
            number for number in _FOR_THE_COMMAND if signal.getsignal(number) is signal.SIG_IGN
        )
        self.unable = ""
        self.workshop: Workshop | None = None
        for number in _FOR_THE_COMMAND:
            signal.signal(number, signal.SIG_IGN)
        self.children: dict[int, Child] = {}  # by every descriptor that tells something about them
        self.poll = select.poll()
        self.parent = parent
        self._mounts: tuple[bytes, list[Any]] = (b"", [])
        self._points: tuple[bytes, bytes, list[MountPoint]] = (b"", b"", [])
        self.spares = Spares(self.poll, self.make_spare, self.plan)
        self.last: dict[str, Any] | None = None  # an order
        self.expected: dict[str, Any] | None = None  # the next one, if it continues where the last one ended
        self.network = True  # what the last command was given
        self.started = 0
        self.arriving: list[int] = []  # descriptors of a command that is just being started

    def become(self, engine: str) -> None:
        """If that fails, each command gets the reason."""
        try:
            if engine == USER:
                privileges.enter_as_oneself()
            elif engine == MAPPED:
                privileges.enter_as_root()
        except OSError as error:
            self.unable = f"no user namespace: {os.strerror(error.errno or 0)}"
            return
        try:
            privileges.give_up_for_children()
            self.workshop = Workshop(self.place)
        except OSError as error:
            self.unable = f"{self.place}: {os.strerror(error.errno or 0)}"

    def serve(self) -> None:
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(self.parent, select.POLLIN)
        while True:
            events = self.poll.poll(1000 if self.spares.waiting else None)
            for fd, _ in events:
                if fd == self.parent:
                    return self.leave()
                if fd == self.control.fileno():
                    if not self.accept():
                        return self.leave()
                elif fd in self.children:
                    self.hear(self.children[fd], fd)
                else:
                    self.spares.hear(fd, self.workshop)
            self.have_spare()

    def have_spare(self) -> None:
        """While a command runs the next one's place is made ready, and finished when it has ended. Who runs only one
        command needs none."""
        expected, self.expected = self.expected, None
        self.spares.tire()
        if self.started < 2 or not (self.children or expected) or not self.workshop:
            return
        mounts = mount_table()
        try:
            self.spares.have(self.network, mounts)
        except OSError:
            return  # the next command will try, and tell
        if expected and not self.children:
            self.spares.build(expected, mounts, self.workshop)

    def make_spare(self, network: bool, mounts: bytes) -> Spare:
        assert self.workshop
        home = Home(self.workshop.aside, self.user, self.ignored)
        return make_spare(network, mounts, home, self.forget_others)

    def plan(self, order: dict[str, Any], mounts: bytes) -> SandboxPlan:
        assert self.workshop
        return command.planned(order, self.points(order, mounts), self.workshop, order["terminal"], self.user)

    def leave(self) -> None:
        """The caller is gone: so is everything that ran for it."""
        for child in self.each_child():
            self.spares.dismiss(child.spare)
        self.spares.close()
        for child in self.each_child():
            self.rescue(child)
        if self.workshop:
            self.workshop.close()

    def each_child(self) -> Iterable[Child]:
        return {one.spare.pid: one for one in self.children.values()}.values()

    def accept(self) -> bool:
        raw, fds = protocol.recv_fds(self.control, protocol.LARGEST, 4)
        for fd in fds:
            os.set_inheritable(fd, False)
        if raw.startswith(b"{"):
            self.expected = self.last | json.loads(raw) if self.last else None
            return True
        if not raw or len(fds) != 4:
            return False
        self.arriving = fds
        caller = protocol.talk_on(fds[0])
        stdio = (fds[1], fds[2], fds[3])
        try:
            order = protocol.read_message(caller.fileno())
            if order is not None and self.unable:
                self.refuse(caller, {"problem": "setup", "text": self.unable})
            elif order is not None:
                self.start(caller, order, stdio)
            else:
                caller.close()
        except UnfitLayers as error:
            self.refuse(caller, {"problem": "unfit", "text": str(error)})
        except Exception as error:  # noqa: BLE001 the other commands continue
            self.refuse(caller, {"problem": "setup", "text": str(error) or repr(error)})
        finally:
            self.arriving = []
            for fd in stdio:
                os.close(fd)
        return True

    def refuse(self, caller: protocol.Talk, told: dict[str, Any]) -> None:
        with suppress(OSError):  # it does not want to know any more
            protocol.write_all(caller.fileno(), protocol.frame(told))
        caller.close()

    def start(self, caller: protocol.Talk, order: dict[str, Any], stdio: tuple[int, int, int]) -> None:
        assert self.workshop
        self.started += 1
        self.network = order["network"]
        if order["ask"] or self.started > 1:
            importlib.import_module("takeback.sandbox.shell_state")  # before there is a child that needs it
        with ExitStack() as undo:
            foreground = _foreground(stdio)
            if foreground[0] >= 0:
                undo.callback(os.close, foreground[0])
            group = _group(order)
            if group:
                undo.callback(cgroups.remove, group)
            terminal = os.fsencode(os.ttyname(foreground[0])) if foreground[0] >= 0 else b""
            mounts = mount_table()
            order["terminal"] = terminal
            plan = self.plan(order, mounts)
            # Its group has to be entered before anything is built.
            spare = self.spares.take(order["network"], mounts, None if group else plan)
            undo.callback(self.spares.dismiss, spare)
            prepared = spare.prepared
            if prepared is None:
                prepared = command.prepare(plan, self.workshop)
                undo.callback(self.workshop.clear, prepared.scratch)
            held = _locked(os.path.dirname(order["layer"])) if order["rescue"] else -1
            if held >= 0:
                undo.callback(os.close, held)
            prepared = command.begun(prepared, order)
            hand_over(spare, order, prepared.scene, stdio)
            undo.pop_all()
        child = Child(caller, spare, ChildReport(), prepared, order, group, foreground, held)
        for fd in (caller.fileno(), spare.pidfd, spare.door.fileno()):
            self.children[fd] = child
            self.poll.register(fd, select.POLLIN)

    def forget_others(self) -> None:
        """In the child: the ends that are open by accident would keep others from noticing that we are gone."""
        for child in self.each_child():
            child.close()
        for fd in (*self.arriving, self.parent, self.spares.table):
            os.close(fd)
        self.control.close()

    def points(self, order: dict[str, Any], mounts: bytes) -> list[MountPoint]:
        if mounts != self._mounts[0]:
            self._mounts = mounts, visible(mounted(mounts))
        root = os.fsencode(order["root"])
        if self.user:
            places = (order["cwd"], order["env"].get("HOME", "/"), order["env"].get("TMPDIR", "/"))
            near = tuple(os.path.realpath(os.fsencode(path)) for path in places if path.startswith("/"))
            return points_for_user(self._mounts[1], root, near)
        if (root, mounts) != self._points[:2]:
            self._points = root, mounts, points_for_root(self._mounts[1], root)
        return self._points[2]

    def hear(self, child: Child, fd: int) -> None:
        if fd == child.spare.door.fileno():
            self.listen(child)
        elif fd == child.caller.fileno():
            self.obey(child, fd)
        else:
            self.ended(child)

    def listen(self, child: Child) -> bool:
        """Whether there was something to hear."""
        try:
            piece = child.spare.door.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        child.told.raw += piece
        told, _ = protocol.unframed(child.told.raw)
        if told or not piece:
            self.deaf_to(child.spare.door.fileno())
        if told:
            child.told.whole = True
            self.answer(child, told)
        return bool(piece)

    def deaf_to(self, fd: int) -> None:
        with suppress(KeyError):
            self.poll.unregister(fd)

    def obey(self, child: Child, fd: int) -> None:
        try:
            wanted = os.read(fd, 64)
        except OSError:
            wanted = b""
        if not wanted:
            self.deaf_to(fd)
            os.kill(child.spare.pid, signal.SIGKILL)
            return
        with suppress(OSError):  # it has just ended
            child.spare.door.sendall(wanted)

    def answer(self, child: Child, told: dict[str, Any]) -> None:
        """All processes of the command are gone. Our own process inside, and with it every mount, ends in the
        background; the caller learns that when the connection closes."""
        if "problem" not in told:
            told = self.finish(child, told)
        if child.group and "code" in told and told["code"] and cgroups.ran_out_of_memory(child.group):
            told["stopped"] = told["stopped"] or "memory"
        self.back_in_front(child)
        if told.get("layer"):
            self.let_end(child)  # someone waits for that
        with suppress(OSError):  # it does not want to know any more
            protocol.write_all(child.caller.fileno(), protocol.frame(told))
        self.let_end(child)

    def let_end(self, child: Child) -> None:
        with suppress(OSError):  # gone already
            child.spare.door.shutdown(_socket.SHUT_WR)

    def ended(self, child: Child) -> None:
        """Its last process is gone, and with it every mount."""
        os.waitpid(child.spare.pid, 0)
        while not child.told.whole:
            if not self.listen(child):
                self.rescue(child)
                self.answer(child, _KILLED)
                break
        assert self.workshop
        self.workshop.clear(child.prepared.scratch)
        if child.group:
            cgroups.remove(child.group)
        for fd in (child.caller.fileno(), child.spare.pidfd, child.spare.door.fileno()):
            self.children.pop(fd, None)
            self.deaf_to(fd)
        os.close(child.spare.pidfd)
        child.close()
        if not child.group:
            above = [child.order["layer"]] if child.told.left else []
            self.last = child.order
            self.expected = child.order | {"layers": above + child.order["layers"]}

    def rescue(self, child: Child) -> None:
        """It was ended before it could tell, most likely because its caller is gone. All its processes are gone by now:
        what they changed gets its place, and a caller that lives removes it."""
        if child.order["rescue"] and not child.told.whole:
            with suppress(OSError):  # that place is gone, too
                command.finish(child.prepared, child.order["layer"], child.order["keep_empty"])

    def finish(self, child: Child, told: dict[str, Any]) -> dict[str, Any]:
        try:
            finished = command.finish(child.prepared, child.order["layer"], child.order["keep_empty"])
        except OSError as error:
            return {"problem": "layer", "text": str(error)}
        if finished.problem:
            return {"problem": "moved", "text": finished.problem}
        child.told.left = finished.there and not told["code"] and child.order["ask"]
        return told | {"layer": finished.there}

    def back_in_front(self, child: Child) -> None:
        """A shell inside may have put a group in front that is no more."""
        terminal, group = child.foreground
        if terminal < 0:
            return
        with suppress(OSError):  # the terminal is gone
            if os.tcgetpgrp(terminal) != group:
                os.tcsetpgrp(terminal, group)


def _locked(directory: str) -> int:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _group(order: dict[str, Any]) -> cgroups.ControlGroup | None:
    limited = order["memory"] or order["processes"]
    group = cgroups.make(order["memory"], order["processes"]) if limited else None
    order["group"] = list(group) if group else None
    return group


def _foreground(stdio: tuple[int, int, int]) -> tuple[int, int]:
    for fd in stdio:
        if os.isatty(fd):
            copy = os.dup(fd)
            try:
                return copy, os.tcgetpgrp(copy)
            except OSError:
                os.close(copy)  # a terminal, but not ours
    return -1, 0


def main() -> None:
    os.closerange(4, 1 << 16)
    control = protocol.talk_on(3)
    # Not among our arguments: they are to be seen from inside, and name the place.
    settings = json.loads(control.recv(1 << 16) or b"{}")
    if not settings:
        return  # the caller is gone
    os.set_inheritable(3, False)
    try:
        parent = os.pidfd_open(settings["parent"])
    except OSError:
        return  # gone before we were there
    os.chdir("/")
    # What is never looked at need not be copied into every child.
    get_ready()
    gc.disable()
    gc.freeze()
    zygote = Zygote(control, parent, settings)
    zygote.become(settings["engine"])
    zygote.serve()
    os._exit(0)  # nothing is left to be written: taking the interpreter apart would only cost time
