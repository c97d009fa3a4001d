"""A process of ours, stopped at every system call of every thread of it, and killed at the one that is chosen.

strace counts each kind of call in each thread by itself, and starts a program for every point. This is one count over
all of them, in a child that has everything loaded: a point costs milliseconds, so that all of them can be tried.
"""

import ctypes
import os
import signal
import traceback
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, NoReturn

_SEIZE, _INTERRUPT, _SYSCALL, _CALL_INFO = 0x4206, 0x4207, 24, 0x420E
# Marked stops, new threads and processes traced as well, nothing left behind when we are killed ourselves.
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000
_EVERYONE = 0x40000000  # __WALL: threads too
_ENTRY = 1
_MARKED = signal.SIGTRAP | 0x80


class _Info(ctypes.Structure):
    """struct ptrace_syscall_info, as far as it is needed: the same on every architecture."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


class Traced(NamedTuple):
    killed: bool
    calls: int  # system calls that were begun
    told: bytes  # what it said before it ended; whoever reads that was answered
    error: str = ""


Tell = Callable[[bytes], None]  # tells the one who waits
Work = Callable[[Tell], None]


def in_a_child(work: Work) -> Traced:
    """Do it in a process of its own that nobody follows."""
    return _done(work, -1)


def traced(work: Work, at: int = 0) -> Traced:
    """Do it in a child, which is killed when it begins its call number `at`; 0: it is only counted."""
    return _done(work, at)


def _done(work: Work, at: int) -> Traced:
    answers, answering = os.pipe()
    errors, failing = os.pipe()
    ready, go = os.pipe()
    child = os.fork()
    if not child:
        os.close(go)
        _be_the_child(work, answering, failing, ready)
    for one in (answering, failing, ready):
        os.close(one)
    os.setpgid(child, child)  # so that we wait for it and its threads, and for nobody else's
    if at < 0:
        os.close(go)
    else:
        _ptrace(_SEIZE, child, 0, _OPTIONS)
        _ptrace(_INTERRUPT, child)
    calls, killed = _followed(child, at, go)
    with open(answers, "rb") as told, open(errors, "rb") as failed:
        return Traced(killed, calls, told.read(), failed.read().decode("utf-8", "replace"))


def _be_the_child(work: Work, answering: int, failing: int, ready: int) -> NoReturn:
    try:
        os.read(ready, 1)

        def tell(what: bytes) -> None:
            os.write(answering, what)

        work(tell)
    except BaseException:  # noqa: BLE001  # whatever it is, the parent decides what it means
        os.write(failing, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _followed(child: int, at: int, go: int) -> tuple[int, bool]:
    """How many calls there were, and whether it was killed."""
    calls, begun = 0, False
    info = _Info()
    while True:
        thread, status = os.waitpid(-child, _EVERYONE)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread == child:
                return calls, os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            continue
        stopped = os.WSTOPSIG(status)
        deliver = 0
        if stopped == _MARKED:
            _ptrace(_CALL_INFO, thread, ctypes.sizeof(info), ctypes.addressof(info))
            if begun and info.op == _ENTRY:
                calls += 1
                if calls == at:
                    os.kill(child, signal.SIGKILL)
                    continue
        elif not status >> 16:
            deliver = stopped
        _ptrace(_SYSCALL, thread, 0, deliver)
        if not begun:
            begun = True
            os.close(go)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    return libc


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if _libc().ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        if number != 3:  # ESRCH: killed in the meantime
            raise OSError(number, os.strerror(number), f"ptrace {request:#x}")
