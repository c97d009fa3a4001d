"""Control groups: limits that hold for a command and all it starts together. Both versions of the kernel's files."""

import os
from contextlib import suppress
from typing import NamedTuple

from takeback.model.descriptor import write_once

_NAME = "takeback-{}"


class ControlGroup(NamedTuple):
    """Directories of one command's group: the second version has one for all, the first one for each kind."""

    memory: str
    processes: str
    version: int


def usable() -> ControlGroup | None:
    """Where groups can be made for us: the directories above them."""
    one = _second_version() or _first_version()
    if one is None:
        return None
    for directory in {one.memory, one.processes}:
        probe = os.path.join(directory, _NAME.format(f"try-{os.getpid()}"))
        try:
            os.mkdir(probe)
        except OSError:
            return None
        try:
            able = one.version == 1 or _has(probe, "memory.max", "pids.max")
        finally:
            os.rmdir(probe)
        if not able:
            return None
    return one


def _has(directory: str, *names: str) -> bool:
    return all(os.path.exists(os.path.join(directory, name)) for name in names)


def _own(controller: str) -> str | None:
    """The path of our own group in one hierarchy, from /proc."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(","):
                return path
    return None


def _mounted(kind: str, option: str) -> str | None:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, point, found, options, *_ = line.split()
            if found == kind and (not option or option in options.split(",")):
                return point
    return None


def _second_version() -> ControlGroup | None:
    """Below our own group, or beside it: a group with processes of its own can have no limited groups inside."""
    point, path = _mounted("cgroup2", ""), _own("")
    if not point or path is None:
        return None
    own = os.path.normpath(point + path)
    for directory in (own, os.path.dirname(own)):
        try:
            with open(os.path.join(directory, "cgroup.subtree_control"), encoding="ascii") as file:
                given = file.read().split()
        except OSError:
            continue
        if {"memory", "pids"} <= set(given) and os.access(directory, os.W_OK) and directory.startswith(point):
            return ControlGroup(directory, directory, 2)
    return None


def _first_version() -> ControlGroup | None:
    found: list[str] = []
    for controller in ("memory", "pids"):
        point, path = _mounted("cgroup", controller), _own(controller)
        if not point or path is None:
            return None
        directory = os.path.normpath(point + path)
        if not os.access(directory, os.W_OK):
            return None
        found.append(directory)
    return ControlGroup(found[0], found[1], 1)


def make(memory: int, processes: int) -> ControlGroup | None:
    """A group with these limits; None where there can be none."""
    above = usable()
    if above is None:
        return None
    _sweep(above)
    name = _NAME.format(f"{os.getpid()}-{os.urandom(4).hex()}")
    group = ControlGroup(os.path.join(above.memory, name), os.path.join(above.processes, name), above.version)
    files = ("memory.max", "pids.max") if above.version == 2 else ("memory.limit_in_bytes", "pids.max")
    try:
        for directory in {group.memory, group.processes}:
            os.mkdir(directory)
        if memory:
            write_once(os.path.join(group.memory, files[0]), str(memory))
            with suppress(OSError):  # not there without swap
                write_once(os.path.join(group.memory, "memory.swap.max"), "0")
        if processes:
            write_once(os.path.join(group.processes, files[1]), str(processes))
    except OSError:
        remove(group)
        return None
    return group


def _sweep(above: ControlGroup) -> None:
    for directory in {above.memory, above.processes}:
        for name in os.listdir(directory):
            words = name.split("-")
            ours = len(words) == 3 and words[0] == "takeback" and words[1].isdigit()
            if ours and not os.path.exists(f"/proc/{words[1]}"):
                try:
                    os.rmdir(os.path.join(directory, name))
                except OSError:
                    continue  # someone is in it


class Doors(NamedTuple):
    """Opened outside, used inside: a process goes in by writing 0 to the one, and out by the other."""

    inner: tuple[int, ...]
    outer: tuple[int, ...]


def open_doors(group: ControlGroup) -> Doors:
    inner: list[int] = []
    outer: list[int] = []
    try:
        if group.version == 2:
            own = os.path.normpath(f"{_mounted('cgroup2', '')}{_own('')}")
            pairs = [(group.memory, own)]
        else:
            pairs = [(one, os.path.dirname(one)) for one in (group.memory, group.processes)]
        for within, without in pairs:
            inner.append(_door(within))
            outer.append(_door(without))
    except OSError:
        for fd in (*inner, *outer):
            os.close(fd)
        raise
    return Doors(tuple(inner), tuple(outer))


def _door(directory: str) -> int:
    return os.open(os.path.join(directory, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)


def go(doors: tuple[int, ...]) -> None:
    for fd in doors:
        os.write(fd, b"0")


def ran_out_of_memory(group: ControlGroup) -> bool:
    name = "memory.events" if group.version == 2 else "memory.oom_control"
    try:
        with open(os.path.join(group.memory, name), encoding="ascii") as file:
            counts = dict(line.split() for line in file)
    except OSError:
        return False
    return int(counts.get("oom_kill", "0")) > 0


def remove(group: ControlGroup) -> None:
    for directory in {group.memory, group.processes}:
        with suppress(OSError):  # not made, or the kernel has not yet let go of the last process
            os.rmdir(directory)


def join(pid: int) -> None:
    """The groups of another process. Raises OSError where they may not be joined."""
    theirs = _groups(pid)
    for hierarchy, (names, path) in _groups("self").items():
        if theirs.get(hierarchy, (names, path)) != (names, path):
            kind, option = ("cgroup", names) if names else ("cgroup2", "")
            point = _mounted(kind, option.partition(",")[0])
            if point is None:
                raise FileNotFoundError(f"The groups of {names or 'version 2'} are mounted nowhere.")
            write_once(os.path.normpath(f"{point}{theirs[hierarchy][1]}/cgroup.procs"), "0")


def _groups(pid: "int | str") -> dict[str, tuple[str, str]]:
    """By the number of the hierarchy: its controllers, and the path in it."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        fields = (line.rstrip("\n").split(":", 2) for line in file)
        return {hierarchy: (names, path) for hierarchy, names, path in fields}
