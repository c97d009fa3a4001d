"""A shell command of a box: which directory it ended in, and which variables it left."""

import os
import re
from collections.abc import Mapping
from typing import Any

from takeback.sandbox.rootfs import ASKED

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"))
_OPTIONS = re.compile(r"-[a-zA-Z]*c")
# Told from a trap, because the script may exit; and told again after it, because it may have set a trap of its own.
# What has no other way out than a file goes there: any descriptor might be one that the script uses itself. What is
# exported a plain shell writes itself, in quotes that we can read; for others a program is started, which takes longer
# than most commands. (`command`: a failure must not end the shell; after `||` nothing does.)
_WRAP = """\
__takeback_tell() {{
pwd -P >{place}/cwd
command export -p >{place}/exports
IFS= command read -r __takeback_line <{place}/exports
case ${{BASH_VERSION-}}${{ZSH_VERSION-}}${{KSH_VERSION-}}${{__takeback_line-}} in
"export "*=\\'*) ;;
*) command -p cat /proc/self/environ >{place}/env ;;
esac
}} 2>/dev/null
trap '__takeback_code=$?; __takeback_tell || :; exit $__takeback_code' 0
eval {script}
"""
_EXPORT = re.compile(rb"""export ([a-zA-Z_][a-zA-Z_0-9]*)(?:=((?:'[^']*'|"'+"|\\')*))?\n""")
_QUOTED = re.compile(rb"""'([^']*)'|"('+)"|\\(')""")
_NOT_KEPT = ("_", "SHLVL", "__takeback_code", "__takeback_line")


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
    left = _environment(_read("env")) or _exports(_read("exports"))
    if not left:
        return {"cwd": where, "env": dict(env)}
    found = {name: value for name, value in left.items() if name not in _NOT_KEPT}
    found |= {name: env[name] for name in _NOT_KEPT if name in env}
    return {"cwd": where, "env": found}


def _environment(raw: bytes) -> dict[str, str]:
    """As the kernel tells it of a process."""
    pairs = (os.fsdecode(pair).partition("=") for pair in raw.split(b"\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def _exports(raw: bytes) -> dict[str, str]:
    """As `export -p` tells it; empty if anything of it is in a form that we do not know."""
    found: dict[str, str] = {}
    at = 0
    while at < len(raw):
        line = _EXPORT.match(raw, at)
        if not line:
            return {}
        if line[2] is not None:  # one without a value is in no environment
            value = b"".join(plain or quotes or quote for plain, quotes, quote in _QUOTED.findall(line[2]))
            found[os.fsdecode(line[1])] = os.fsdecode(value)
        at = line.end()
    return found


def _read(name: str) -> bytes:
    try:
        with open(os.path.join(ASKED, name), "rb") as file:
            return file.read()
    except OSError:
        return b""
