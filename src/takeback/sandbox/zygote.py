"""A small process that starts commands for the caller, whose own may be too big to fork. One thread, few modules."""

import gc
import json
import os
import select
import signal
import socket  # noqa: TID253 this module is loaded by the small process only
import sys
from contextlib import ExitStack
from typing import Any, NamedTuple

from takeback.sandbox import cgroups, guard, run, userns, wire
from takeback.sandbox.calls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, kernel
from takeback.sandbox.first import Job, live
from takeback.sandbox.mounts import Point, mounted, points_for_root, points_for_user, visible
from takeback.sandbox.order import MAPPED, ROOT, USER
from takeback.sandbox.rootfs import get_ready
from takeback.sandbox.run import Prepared, Unfit
from takeback.sandbox.workshop import Workshop

# What a terminal sends to a whole group is for the command, not for us; it lives and dies with the caller.
_FOR_THE_COMMAND = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU
)  # fmt: skip


class Child(NamedTuple):
    caller: socket.socket
    pid: int
    pidfd: int
    lifeline: int
    report: int
    told: bytearray
    prepared: Prepared
    layer: str
    group: cgroups.Group | None
    foreground: tuple[int, int]  # a descriptor of the terminal and who was in front


class Zygote:
    def __init__(self, control: socket.socket, parent: int, settings: dict[str, Any]) -> None:
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

    def become(self, engine: str) -> None:
        """Where it cannot be done each command is told so."""
        try:
            if engine == USER:
                userns.enter_as_oneself()
            elif engine == MAPPED:
                userns.enter_as_root()
        except OSError as error:
            self.unable = f"no user namespace: {os.strerror(error.errno or 0)}"
            return
        try:
            guard.give_up_for_children()
            self.workshop = Workshop(self.place)
        except OSError as error:
            self.unable = f"{self.place}: {os.strerror(error.errno or 0)}"

    def serve(self) -> None:
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(self.parent, select.POLLIN)
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.parent:
                    return self.leave()
                if fd == self.control.fileno():
                    if not self.accept():
                        return self.leave()
                elif fd in self.children:
                    self.hear(self.children[fd], fd)

    def leave(self) -> None:
        """The caller is gone: so is everything that ran for it."""
        for child in {one.pid: one for one in self.children.values()}.values():
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        if self.workshop:
            self.workshop.close()

    def accept(self) -> bool:
        raw, fds, _, _ = socket.recv_fds(self.control, 1, 4)
        for fd in fds:
            os.set_inheritable(fd, False)
        if not raw or len(fds) != 4:
            return False
        caller = socket.socket(fileno=fds[0])
        stdio = (fds[1], fds[2], fds[3])
        try:
            order = wire.read_message(caller.fileno())
            if order is not None and self.unable:
                self.refuse(caller, {"problem": "setup", "text": self.unable})
            elif order is not None:
                self.start(caller, order, stdio)
            else:
                caller.close()
        except Unfit as error:
            self.refuse(caller, {"problem": "unfit", "text": str(error)})
        except Exception as error:  # noqa: BLE001 the other commands are to go on
            self.refuse(caller, {"problem": "setup", "text": str(error) or repr(error)})
        finally:
            for fd in stdio:
                os.close(fd)
        return True

    def refuse(self, caller: socket.socket, told: dict[str, Any]) -> None:
        try:
            wire.write_all(caller.fileno(), wire.frame(told))
        except OSError:
            pass  # it does not want to know any more
        caller.close()

    def start(self, caller: socket.socket, order: dict[str, Any], stdio: tuple[int, int, int]) -> None:
        assert self.workshop
        with ExitStack() as undo:
            foreground = _foreground(stdio)
            if foreground[0] >= 0:
                undo.callback(os.close, foreground[0])
            group = _group(order)
            if group:
                undo.callback(cgroups.remove, group)
            terminal = os.fsencode(os.ttyname(foreground[0])) if foreground[0] >= 0 else b""
            prepared = run.prepare(order, self.points(order), self.workshop, terminal, self.user)
            undo.callback(self.workshop.clear, prepared.scratch)
            ours, report = _pipe(undo)
            lifeline, theirs = _pipe(undo)
            flags = NEWNS | NEWPID | NEWIPC | NEWUTS | (0 if order["network"] else NEWNET)
            pid = kernel().fork_into(flags)
            undo.pop_all()
        if pid == 0:
            self.forget_others(caller, (ours, theirs))
            live(Job(order, prepared.scene, stdio, lifeline, report, self.ignored))
        os.close(report)
        os.close(lifeline)
        child = Child(
            caller,
            pid,
            os.pidfd_open(pid),
            theirs,
            ours,
            bytearray(),
            prepared,
            order["layer"],
            group,
            foreground,
        )
        for fd in (caller.fileno(), child.pidfd, ours):
            self.children[fd] = child
            self.poll.register(fd, select.POLLIN)

    def forget_others(self, caller: socket.socket, ends: tuple[int, ...]) -> None:
        """In the child: the ends that are open by accident would keep others from noticing that we are gone."""
        for fd in ends:
            os.close(fd)
        for child in {one.pid: one for one in self.children.values()}.values():
            os.close(child.lifeline)
            os.close(child.report)
            child.caller.close()
        caller.close()
        self.control.close()
        os.close(self.parent)

    def points(self, order: dict[str, Any]) -> list[Point]:
        with open("/proc/self/mountinfo", "rb") as file:
            text = file.read()
        if text != self._mounts[0]:
            self._mounts = text, visible(mounted(text))
        root = os.fsencode(order["root"])
        if self.user:
            places = (order["cwd"], order["env"].get("HOME", "/"), order["env"].get("TMPDIR", "/"))
            near = tuple(os.path.realpath(os.fsencode(path)) for path in places if path.startswith("/"))
            return points_for_user(self._mounts[1], root, near)
        return points_for_root(self._mounts[1], root)

    def hear(self, child: Child, fd: int) -> None:
        if fd == child.report:
            piece = os.read(fd, 1 << 16)
            child.told.extend(piece)
            if not piece:
                self.poll.unregister(fd)
        elif fd == child.caller.fileno():
            self.obey(child, fd)
        else:
            self.ended(child)

    def obey(self, child: Child, fd: int) -> None:
        try:
            wanted = os.read(fd, 64)
        except OSError:
            wanted = b""
        if not wanted:
            self.poll.unregister(fd)
            os.kill(child.pid, signal.SIGKILL)
            return
        try:
            os.write(child.lifeline, wanted)
        except BrokenPipeError:
            pass  # it has just ended

    def ended(self, child: Child) -> None:
        """Its last process is gone, and with it every mount."""
        os.waitpid(child.pid, 0)
        while piece := os.read(child.report, 1 << 16):
            child.told.extend(piece)
        told, _ = wire.unframed(child.told)
        told = told or {"problem": "killed", "text": "Its first process was killed from outside."}
        if "problem" not in told:
            told = self.finish(child, told)
        assert self.workshop
        self.workshop.clear(child.prepared.scratch)
        if child.group:
            if "code" in told and told["code"] and cgroups.ran_out_of_memory(child.group):
                told["stopped"] = told["stopped"] or "memory"
            cgroups.remove(child.group)
        self.back_in_front(child)
        for fd in (child.caller.fileno(), child.pidfd, child.report):
            self.children.pop(fd, None)
            try:
                self.poll.unregister(fd)
            except KeyError:
                continue
        for fd in (child.pidfd, child.report, child.lifeline):
            os.close(fd)
        self.refuse(child.caller, told)

    def finish(self, child: Child, told: dict[str, Any]) -> dict[str, Any]:
        try:
            problem = run.finish(child.prepared, child.layer)
        except OSError as error:
            return {"problem": "layer", "text": str(error)}
        return {"problem": "moved", "text": problem} if problem else told

    def back_in_front(self, child: Child) -> None:
        """A shell inside may have put a group in front that is no more."""
        terminal, group = child.foreground
        if terminal < 0:
            return
        try:
            if os.tcgetpgrp(terminal) != group:
                os.tcsetpgrp(terminal, group)
        except OSError:
            pass  # the terminal is gone
        os.close(terminal)


def _pipe(undo: ExitStack) -> tuple[int, int]:
    ends = os.pipe2(os.O_CLOEXEC)
    for fd in ends:
        undo.callback(os.close, fd)
    return ends


def _group(order: dict[str, Any]) -> cgroups.Group | None:
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
    control = socket.socket(fileno=3)
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
    sys.exit(0)
