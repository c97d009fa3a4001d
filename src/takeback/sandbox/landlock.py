"""Landlock: a second wall. Nothing that lies outside the new root is writable, and no mount can be changed."""

import errno
import os
import stat
import struct
from functools import cache

from takeback.sandbox.calls import LANDLOCK_ADD, LANDLOCK_CREATE, LANDLOCK_RESTRICT, kernel

_ENOUGH = 2  # before that, renames between directories were always refused
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# remove and make anything, and move it to another directory
_CHANGES = sum(1 << bit for bit in range(4, 14))


@cache
def version() -> int:
    """0 where the kernel has none or it is switched off."""
    try:
        return kernel().call(LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def restrict(stdio: tuple[int, int, int]) -> bool:
    abi = version()
    if abi < _ENOUGH:
        return False
    rights = _WRITE_FILE | _CHANGES | (_TRUNCATE if abi >= 3 else 0)
    made = struct.pack("=Q", rights)
    ruleset = kernel().call(LANDLOCK_CREATE, made, len(made), 0)
    try:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            _allow(ruleset, root, rights)
        finally:
            os.close(root)
        for fd in stdio:
            kind = os.fstat(fd).st_mode
            # `echo > /dev/stderr` opens again what the caller gave us.
            if stat.S_ISREG(kind) or stat.S_ISCHR(kind):
                _allow_file(ruleset, fd, rights & (_WRITE_FILE | _TRUNCATE))
        kernel().call(LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def _allow_file(ruleset: int, fd: int, rights: int) -> None:
    try:
        _allow(ruleset, fd, rights)
    except OSError as error:
        if error.errno != errno.EBADFD:
            raise
        # A file without a name (memfd): there is no rule for it, and it needs none.


def _allow(ruleset: int, fd: int, rights: int) -> None:
    rule = struct.pack("=Qi", rights, fd)
    kernel().call(LANDLOCK_ADD, ruleset, 1, rule, 0)
