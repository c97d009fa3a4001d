"""A shell command of a box: which directory it ended in, and which variables it left."""

import os
import re
from collections.abc import Mapping
from typing import Any

from takeback.sandbox.rootfs import ASKED

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"))
_OPTIONS = re.compile(r"-[a-zA-Z]*c")
# Told from a trap, because the script may exit; and told again after it, because it may have set a trap of its own.
# What has no other way out than a file goes there: any descriptor might be one that the script uses itself.
_WRAP = """\
__takeback_tell() {{ pwd -P >{place}/cwd; command -p cat /proc/self/environ >{place}/env; }} 2>/dev/null
trap '__takeback_code=$?; __takeback_tell; exit $__takeback_code' 0
eval {script}
"""
_NOT_KEPT = ("_", "SHLVL", "__takeback_code")


def wrapped(argv: list[str]) -> list[str]:
    """Only `sh -c` can leave anything behind; every other program is run as it is."""
    if len(argv) < 3 or os.path.basename(argv[0]) not in _SHELLS or not _OPTIONS.fullmatch(argv[1]):
        return argv
    script = "'" + argv[2].replace("'", "'\\''") + "'"
    return [*argv[:2], _WRAP.format(place=ASKED, script=script), *(argv[3:] or argv[:1])]


def answer(cwd: str, env: Mapping[str, str]) -> dict[str, Any]:
    """What the shell told; what it was given where it told nothing (it was replaced by `exec`, or killed)."""
    told = _read("cwd")
    where = os.fsdecode(told.removesuffix(b"\n")) if told else cwd
    raw = _read("env")
    if not raw:
        return {"cwd": where, "env": dict(env)}
    found: dict[str, str] = {}
    for pair in raw.split(b"\0"):
        name, equals, value = os.fsdecode(pair).partition("=")
        if name and equals and name not in _NOT_KEPT:
            found[name] = value
    found |= {name: env[name] for name in _NOT_KEPT if name in env}
    return {"cwd": where, "env": found}


def _read(name: str) -> bytes:
    try:
        with open(os.path.join(ASKED, name), "rb") as file:
            return file.read()
    except OSError:
        return b""
