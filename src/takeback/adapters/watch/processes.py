"""Who is still at work on a watched change: the command itself, and what it started and left behind."""

import os
import struct
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from takeback.model.boot_clock import boot_id, fields_of, same_start, started
from takeback.model.boot_clock import first_line as _line
from takeback.model.resource import quote

# The processes that a command started, reported by the kernel as they start; also those that have ended since.
#
# Only as root, and not in a container, where the kernel reports nothing.


_CONNECTOR = 11
_PROCESSES = (1, 1)  # which of the connector's subjects: CN_IDX_PROC, CN_VAL_PROC
_LISTEN = 1
_FORK = 1
_DONE = 3  # NLMSG_DONE
_HEADER = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQ")  # what happened; the rest does not matter
_FORKED = struct.Struct("=IIII")  # parent's thread and process, child's thread and process
_ROOM = 32 << 20
_FORCE_ROOM = 33  # SO_RCVBUFFORCE
_WAIT = 1000  # milliseconds
_MOST_CHILDREN = 10_000


class Lineage:
    def __init__(self) -> None:
        """Raises `OSError` if the kernel does not report processes."""
        import socket

        self._lost = False
        self._children: list[tuple[int, int]] = []
        self._families: dict[int, set[int]] = {}  # by the process that was asked for
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _CONNECTOR)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _FORCE_ROOM, _ROOM)
            self._socket.bind((0, _PROCESSES[0]))
            self._socket.setblocking(False)
            # Newer kernels report only forks if asked so; older ones do not answer.
            questions = (struct.pack("=II", _LISTEN, _FORK), struct.pack("=I", _LISTEN))
            if not any(self._asked(question) for question in questions):
                raise OSError("nobody answers")
        except OSError:
            self._socket.close()
            raise

    def _asked(self, operation: bytes) -> bool:
        message = _MESSAGE.pack(*_PROCESSES, 0, 0, len(operation), 0) + operation
        self._socket.send(_HEADER.pack(_HEADER.size + len(message), _DONE, 0, 0, 0) + message)
        import select

        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(_WAIT)) and any(what == 0 for what, _ in self._told())

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """It can be read when there is something to drain."""
        return self._socket.fileno()

    @property
    def lost(self) -> bool:
        return self._lost

    def drain(self) -> None:
        """Take what the kernel reported: it has room for some seconds of a busy machine."""
        fresh = [_FORKED.unpack_from(rest)[1::2] for what, rest in self._told() if what == _FORK]
        if not fresh:
            return
        self._children += fresh
        for root, family in self._families.items():
            _grow(family, root, fresh)

    def adopt(self, parent: int, child: int) -> None:
        """From here on the child counts as started by this process, not by its parent; 0: by no one."""
        self.drain()
        self._children.append((parent, child))
        for root, family in self._families.items():
            _grow(family, root, [(parent, child)])

    def keep_only(self, roots: Collection[int]) -> None:
        """Forget all that these have not started."""
        self._families = {root: family for root, family in self._families.items() if root in roots}
        if len(self._children) > _MOST_CHILDREN:
            del self._children[: -_MOST_CHILDREN // 2]

    def descendants(self, of: int) -> set[int] | None:
        """The process itself and all its descendants started since we listen; None if some reports were lost."""
        self.drain()
        return self.family(of)

    def family(self, of: int) -> set[int] | None:
        """The same, as far as it was taken from the kernel."""
        if self._lost:
            return None
        if of not in self._families:
            self._families[of] = {of}
            _grow(self._families[of], of, self._children)
        return self._families[of]

    def _told(self) -> Iterator[tuple[int, bytes]]:
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # more was reported than there is room for
                self._lost = True
                return
            at = _HEADER.size + _MESSAGE.size
            if len(data) >= at + _EVENT.size + _FORKED.size:
                what, _, _ = _EVENT.unpack_from(data, at)
                yield what, data[at + _EVENT.size :]


def _grow(family: set[int], root: int, forks: Iterable[tuple[int, int]]) -> None:
    for parent, child in forks:
        if parent in family:
            family.add(child)
        elif child != root:
            family.discard(child)  # its number belongs to somebody else by now


def open_lineage() -> Lineage | None:
    if os.geteuid() != 0:
        return None
    try:
        return Lineage()
    except OSError:
        return None


# Files that are written without a system call, mapped into memory: no feed reports it, and after the first write to a
# page no time changes. Those of this process and of all that it started and that live are read again at each look.


_WRITTEN = (b" rw-s ", b" rwxs ")  # shared with the file, and writable
_DELETED = b" (deleted)"
_PART = 1 << 16


def mapped_below(root: bytes, makers: Iterable[int] | None = None) -> dict[str, set[bytes]]:
    """By quoted path of a directory from the root: names in it. `makers`: who makes the changes, if not this process
    and what it started."""
    inside = root.rstrip(b"/") + b"/"
    found: dict[str, set[bytes]] = {}
    for pid in _family(os.getpid()) if makers is None else makers:
        maps = _read(f"/proc/{pid}/maps")
        if not any(mark in maps for mark in _WRITTEN):
            continue
        for line in maps.splitlines():
            _, slash, path = line.partition(b" /")
            path = slash[1:] + path
            if path.startswith(inside) and not path.endswith(_DELETED) and any(m in line for m in _WRITTEN):
                above, _, name = path[len(inside) :].replace(b"\\012", b"\n").rpartition(b"/")
                found.setdefault(quote(above), set()).add(name)
    return found


def children_of(pid: int) -> list[int]:
    """All its descendants that live and whose parents live."""
    return _family(pid)[1:]


def _family(pid: int) -> list[int]:
    """The process and its living descendants."""
    found = [pid]
    for pid in found:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # it ended
        for thread in threads:
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _read(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return b"".join(iter(partial(os.read, handle, _PART), b""))
        finally:
            os.close(handle)
    except OSError:
        return b""  # it ended, or is someone else's by now


MARK = "TAKEBACK_WATCH"  # in the environment of a watched command, and so of everything it starts


class Process(NamedTuple):
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def identity(pid: int, mark: str = "") -> dict[str, Any]:
    """A process, so that another one can check whether it still lives; JSON."""
    found = {"pid": pid, "started": started(pid), "boot": boot_id()}
    return {**found, "mark": mark} if mark else found


def lives(process: dict[str, Any]) -> bool:
    if process.get("boot") != boot_id():
        return False
    return bool(process.get("started")) and same_start(started(process["pid"]), process["started"])


def commands_since(pid: int) -> list[str]:
    """The command lines of this process and of those above it, up to that one; none if it did not start this one. What
    a shell was given to evaluate is there as it was written, too."""
    found: list[str] = []
    at = os.getpid()
    while at > 1 and at != pid:
        fields = fields_of(at)
        try:
            with open(f"/proc/{at}/cmdline", "rb") as file:
                words = os.fsdecode(file.read()).split("\0")
        except OSError:
            return []
        found += [" ".join(text.split()) for text in (" ".join(words), *map(_evaluated, words))]
        at = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
    return found if at == pid else []


def _evaluated(line: str) -> str:
    """What a shell line gives to `eval`: Claude Code starts each command so."""
    if "eval " not in line:
        return ""
    import shlex

    try:
        words = shlex.split(line)
        return words[words.index("eval") + 1]
    except (ValueError, IndexError):
        return ""


def at_work(process: dict[str, Any]) -> tuple[Process, ...]:
    """The process and everything that carries its mark; as far as we may look."""
    if process.get("boot") != boot_id():
        return ()
    found = {process["pid"]: None} if lives(process) else {}
    if process.get("mark"):
        found |= dict.fromkeys(marked(process["mark"]))
    return tuple(Process(pid, _name(pid)) for pid in found)


def named(pids: Iterable[int], mark: str) -> tuple[Process, ...]:
    """Of these, and of all that carry the mark, those that live."""
    found = dict.fromkeys((*pids, *marked(mark)))
    return tuple(Process(pid, _name(pid)) for pid in found if started(pid))


def marked(mark: str) -> list[int]:
    wanted, found = f"\0{MARK}={mark}\0".encode(), list[int]()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:
            continue  # gone, or someone else's
        if wanted in environment and started(int(name)):
            found.append(int(name))
    return found


def family_of(process: dict[str, Any]) -> set[int]:
    """The process, those that carry its mark, and all that any of these started; as far as they live."""
    found = {process["pid"], *(marked(process["mark"]) if process.get("mark") else ())}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = fields_of(int(name)) if name.isdigit() else []
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(name))
    pending = list(found)
    while pending:
        fresh = [one for one in children.get(pending.pop(), ()) if one not in found]
        found.update(fresh)
        pending += fresh
    return found


def name_of(pid: int) -> str:
    """Also of one that has ended."""
    return str(Process(pid, _name(pid))) if started(pid) else f"process {pid} (ended)"


def _name(pid: int) -> str:
    return _line(f"/proc/{pid}/comm") or "?"
