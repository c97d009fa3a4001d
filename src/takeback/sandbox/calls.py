"""System calls for namespaces and mounts, by ctypes. Every one raises OSError with the path it was about."""

import os
import struct
from functools import cache
from typing import Any

from takeback.model.descriptor import Descriptor

NEWNS, NEWIPC, NEWUTS, NEWUSER, NEWPID, NEWNET = (
    0x00020000, 0x08000000, 0x04000000, 0x10000000, 0x20000000, 0x40000000
)  # fmt: skip

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_MOVE, MS_REC, MS_SILENT = 4096, 8192, 16384, 1 << 15
MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE = 1 << 17, 1 << 18, 1 << 19
MNT_DETACH = 2

ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
_AT_RECURSIVE = 0x8000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 2, 4, 8, 16

# The same numbers on every architecture.
_FSOPEN, _FSCONFIG, _FSMOUNT, _OPENAT2, _CLONE3, _MOUNT_SETATTR = 430, 431, 432, 437, 435, 442
_FSCONFIG_CREATE = 6
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_CAPSET = {"x86_64": 126, "aarch64": 91, "riscv64": 91, "ppc64le": 184, "s390x": 185}
_IO_PRIORITY = {  # to set it, to ask for it
    "x86_64": (251, 252), "aarch64": (30, 31), "riscv64": (30, 31), "ppc64le": (273, 274), "s390x": (282, 283)
}  # fmt: skip
_CAPABILITIES_3 = 0x20080522


class Kernel:
    """The C library, called while holding the interpreter's lock: we are one thread, and clone must stay one."""

    def __init__(self) -> None:
        import ctypes

        self.library = ctypes.PyDLL(None, use_errno=True)
        self.python = ctypes.pythonapi
        self._get_errno = ctypes.get_errno
        self._syscall = self.library.syscall
        self._syscall.restype = ctypes.c_long
        self._long = ctypes.c_long
        self.machine = os.uname().machine

    def call(self, number: int, *arguments: Any, about: str | bytes = b"") -> int:
        # Variadic arguments are passed as int otherwise, and flags may be wider.
        given = [self._long(value) if isinstance(value, int) else value for value in arguments]
        return self._checked(self._syscall(number, *given), about)

    def _checked(self, answer: int, about: str | bytes) -> int:
        if answer < 0:
            code = self._get_errno()
            raise OSError(code, os.strerror(code), os.fsdecode(about))
        return answer

    def mount(self, source: bytes, target: bytes, kind: bytes, flags: int, data: bytes = b"") -> None:
        self._checked(
            self.library.mount(source, target, kind, self._long(flags | MS_SILENT), data or None), target
        )

    def umount(self, target: bytes, flags: int = 0) -> None:
        self._checked(self.library.umount2(target, flags), target)

    def unshare(self, flags: int) -> None:
        self._checked(self.library.unshare(flags), "unshare")

    def pivot_root(self, new: bytes, old: bytes) -> None:
        self.call(_PIVOT_ROOT[self.machine], new, old, about=new)

    def prctl(self, option: int, *values: int) -> int:
        given = [self._long(value) for value in (*values, 0, 0, 0, 0)[:4]]
        return self._checked(self.library.prctl(option, *given), f"prctl {option}")

    def set_attributes(self, target: bytes, attributes: int, recursive: bool = False) -> None:
        wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
        self.call(
            _MOUNT_SETATTR, -100, target, _AT_RECURSIVE if recursive else 0, wanted, len(wanted), about=target
        )

    def new_tmpfs(self, attributes: int) -> int:
        """An empty one that is mounted nowhere, as a descriptor; gone with the last who is in it."""
        with Descriptor(self.call(_FSOPEN, b"tmpfs", 1, about="tmpfs")) as made:
            self.call(_FSCONFIG, made, _FSCONFIG_CREATE, None, None, 0, about="tmpfs")
            return self.call(_FSMOUNT, made, 1, attributes, about="tmpfs")

    def open_inside(self, root: int, path: bytes, flags: int) -> int:
        """Open a path as it is seen from a root; a symbolic link on the way is ELOOP."""
        resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
        how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
        return self.call(_OPENAT2, root, path.lstrip(b"/") or b".", how, len(how), about=path)

    def fork_into(self, flags: int) -> int:
        arguments = struct.pack("=QQQQQQQQ", flags, 0, 0, 0, 17, 0, 0, 0)  # 17: SIGCHLD
        self.python.PyOS_BeforeFork()
        answer: int = self._syscall(_CLONE3, arguments, self._long(len(arguments)))
        if answer == 0:
            self.python.PyOS_AfterFork_Child()
            return 0
        code = self._get_errno()
        self.python.PyOS_AfterFork_Parent()
        if answer < 0:
            raise OSError(code, os.strerror(code), "clone3")
        return answer

    def take_io_priority(self, pid: int) -> None:
        """That of another process."""
        set_it, ask = _IO_PRIORITY.get(self.machine, (-1, -1))
        if (wanted := self.call(ask, 1, pid)) != self.call(ask, 1, 0):
            self.call(set_it, 1, 0, wanted)

    def keep_capabilities(self, kept: int) -> None:
        """The effective, permitted and inheritable sets become `kept`, nothing and nothing of the rest."""
        head = struct.pack("=Ii", _CAPABILITIES_3, 0)
        low, high = kept & 0xFFFFFFFF, kept >> 32
        self.call(_CAPSET[self.machine], head, struct.pack("=IIIIII", low, low, 0, high, high, 0))


@cache
def kernel() -> Kernel:
    return Kernel()
