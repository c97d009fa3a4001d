"""No test waits for the disk unless it asks what a power cut leaves.

Two thirds of the time of `make test` went by in fsync, on a disk that others use as well. A filter in the kernel
(seccomp) now answers each sync with success at once, for this process and every program it starts. Nothing else
changes: the pages stay in the cache, where a killed process leaves them too. strace still sees each sync and can let
it fail, because the kernel asks a tracer before a filter.

A session with a test marked `durable` syncs for real, and so does every session where `TAKEBACK_TESTS_SYNC` is set.
"""

import ctypes
import os
import platform

import pytest

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _SUCCEED = 0x7FFF0000, 0x00050000  # the latter is "fail with this number", and the number is 0
_LOAD, _JUMP_IF_EQUAL, _ANSWER = 0x20, 0x15, 0x06
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# fsync, fdatasync, sync, syncfs, sync_file_range, msync
_CALLS = {"x86_64": (74, 75, 162, 306, 277, 26), "aarch64": (82, 83, 81, 267, 84, 227)}


class Unsynced:
    def __init__(self) -> None:
        self.wanted = not os.environ.get("TAKEBACK_TESTS_SYNC")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly or not session.items:
            return
        if self.wanted and not any(item.get_closest_marker("durable") for item in session.items):
            answer_at_once()


def answer_at_once() -> bool:
    """From now on and for good, in this thread and in all it starts; False where the machine does not let us."""
    machine = platform.machine()
    if machine not in _CALLS:
        return False
    calls = _CALLS[machine]
    program = [_step(_LOAD, value=4), _step(_JUMP_IF_EQUAL, no=len(calls) + 1, value=_ARCHITECTURES[machine])]
    program += [_step(_LOAD, value=0)]
    program += [_step(_JUMP_IF_EQUAL, yes=len(calls) - place, value=call) for place, call in enumerate(calls)]
    program += [_step(_ANSWER, value=_ALLOW), _step(_ANSWER, value=_SUCCEED)]
    steps = (_Step * len(program))(*program)
    whole = _Program(len(program), steps)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0) == 0


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def _step(code: int, yes: int = 0, no: int = 0, value: int = 0) -> _Step:
    return _Step(code, yes, no, value)
