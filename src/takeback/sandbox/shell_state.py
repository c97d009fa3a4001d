"""A shell command of a box: which directory it ended in, and which variables it left."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from takeback.sandbox.rootfs import ASKED

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"))
_OPTIONS = re.compile(r"-[a-zA-Z]*c")
# Told when the script has ended, or from a trap because it may exit. One that sets a trap for its own end has it put
# into ours: by an alias where a special builtin cannot be a function (zsh would end such a trap with the function).
# What has no other way out than a file goes there: any descriptor might be one that the script uses itself. What is
# exported a plain shell writes itself, in quotes that we can read; for others a program is started, which takes longer
# than most commands, and fails if a variable is too long. (`command`: a failure must not end the shell; after `||`
# nothing does. All before the script is one line, since some shells tell the number of the line with an error.)
_WRAP = (
    "__takeback_tell() {{ printf '%s\\n' \"${{PWD-}}\" >|{place}/called || :; pwd -P >|{place}/cwd || :; "
    "command export -p >|{place}/exports || :; "
    "IFS= command read -r __takeback_line <{place}/exports || :; "
    'case ${{BASH_VERSION-}}${{ZSH_VERSION-}}${{KSH_VERSION-}}${{__takeback_line-}} in "export "*=\\\'*) ;; '
    "*) command -p cat /proc/self/environ >|{place}/env || :;; esac; }} 2>/dev/null; "
    "__takeback_same() {{ return $1; }}; __takeback_trap() {{ "
    '[ "${{1-}}" != -- ] || shift; case $#:${{1-}} in 0:|*:-?*) command trap "$@"; return;; 1:*) set -- - "$1";; esac; '
    "__takeback_do=$1; shift; for __takeback_signal; do case $__takeback_signal in 0|EXIT|exit) __takeback_own=; "
    '[ "$__takeback_do" = - ] || __takeback_own=$__takeback_do; command trap "$__takeback_end" 0;; '
    '*) command trap -- "$__takeback_do" "$__takeback_signal" || return;; esac; done; }}; '
    "__takeback_own=; __takeback_told=; "
    '__takeback_end=\'{{ __takeback_code=$?; set +x; }} 2>/dev/null; [ "$__takeback_told" ] || __takeback_tell; '
    'case $__takeback_code in 0) eval "$__takeback_own";; *) __takeback_same $__takeback_code || eval '
    '"$__takeback_own";; esac; exit $__takeback_code\'; '
    'trap "$__takeback_end" 0; case ${{ZSH_VERSION+zsh}}${{BASH_VERSION+bash:$SHELLOPTS}} in zsh*) ;; '
    "bash*posix*|'') alias trap=__takeback_trap;; *) eval 'trap() {{ __takeback_trap \"$@\"; }}';; esac\n"
    "eval {script}\n"
    "{{ __takeback_code=$?; set +x; }} 2>/dev/null; __takeback_tell; __takeback_told=1; exit $__takeback_code\n"
)
_OURS = "__takeback_"
_NOT_KEPT = ("_", "SHLVL")
_LONGEST = (
    128 << 10
)  # bytes of a `name=value`, with the zero byte after it, that the kernel hands to a program
_AS_BEFORE = "Directory and variables are as they were before it"
_UNTOLD = (
    f"{_AS_BEFORE}: it ended without reporting them, as a shell does that is killed or replaced by `exec`."
)
_NO_PLACE = f"{_AS_BEFORE}: the root filesystem has no directory /dev to report them in."
_UNREAD = "Variables are as they were before it: they could not be read, because one of them is too long."
_EXPORT = re.compile(rb"(?:export|(?:declare|typeset) -\w+) (?:-i\w* )?([A-Za-z_]\w*)(=)?")
_PIECE = re.compile(
    rb"'(?P<plain>[^']*)'"
    rb'|"(?P<double>(?:[^"\\]|\\.)*)"'
    rb"|\$'(?P<ansi>(?:[^'\\]|\\.)*)'"
    rb"|\\(?P<one>.)|(?P<bare>[^\s'\"\\]+)",
    re.DOTALL,
)


def is_asked(argv: Sequence[str]) -> bool:
    """Only `sh -c` can leave anything behind; every other program is run as it is."""
    return len(argv) > 2 and os.path.basename(argv[0]) in _SHELLS and bool(_OPTIONS.fullmatch(argv[1]))


def can_tell() -> bool:
    """A root filesystem may have no /dev; then there is no place for an answer."""
    return os.path.isdir(ASKED)


def wrapped(argv: list[str]) -> list[str]:
    script = "'" + argv[2].replace("'", "'\\''") + "'"
    return [*argv[:2], _WRAP.format(place=ASKED, script=script), *(argv[3:] or argv[:1])]


def answer(env: Mapping[str, str]) -> dict[str, Any]:
    """The report of the shell, if any: it may have been replaced by `exec`, or killed. `too_long`: variables too long
    to pass to a program."""
    cwd, left, exports = _read("cwd"), _read("env"), _read("exports")
    if not (cwd or left or exports):
        return {"untold": _UNTOLD if can_tell() else _NO_PLACE}
    # One that is removed has only the name by which the shell came there, or none.
    where = next(filter(_is_a_place, (cwd, _read("called"))), b"")
    told: dict[str, Any] = {"cwd": os.fsdecode(where.removesuffix(b"\n"))} if where else {}
    found = _environ(left) or _exports(exports)
    if not found:
        return told | {"untold": _UNREAD}
    found = {one: value for one, value in found.items() if one not in _NOT_KEPT and not one.startswith(_OURS)}
    found |= {name: env[name] for name in _NOT_KEPT if name in env}
    too_long = _taken_out(found)
    return told | {"env": found, "too_long": too_long}


def _is_a_place(told: bytes) -> bool:
    return told.startswith(b"/") and b"/../" not in told.replace(b"\n", b"/")


def _environ(raw: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(pair).partition("=") for pair in raw.split(b"\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def _exports(raw: bytes) -> dict[str, str]:
    """Parse the output of `export -p`; empty if any part has an unknown form."""
    found: dict[str, str] = {}
    place = 0
    while place < len(raw):
        start = _EXPORT.match(raw, place)
        if not start:
            return {}
        place = start.end()
        if start[2]:  # one without a value is in no environment
            value = b""
            while piece := _PIECE.match(raw, place):
                value, place = value + _meant(piece), piece.end()
            found[os.fsdecode(start[1])] = os.fsdecode(value)
        if raw[place : place + 1] != b"\n":
            return {}
        place += 1
    return found


def _meant(piece: "re.Match[bytes]") -> bytes:
    if piece["double"] is not None:
        return re.sub(rb'\\([$`"\\])', rb"\1", piece["double"])
    if piece["ansi"] is not None:
        plain = piece["ansi"].replace(b"\\E", b"\\033").decode("unicode_escape", "replace")
        return plain.encode("latin-1", "replace")
    return next(one for one in (piece["plain"], piece["one"], piece["bare"]) if one is not None)


def _taken_out(found: dict[str, str]) -> list[str]:
    sizes = {name: len(os.fsencode(f"{name}={value}")) + 1 for name, value in found.items()}
    room = os.sysconf("SC_ARG_MAX") // 2  # the words of the command need some too
    gone: list[str] = []
    for name in sorted(sizes, key=lambda one: -sizes[one]):
        if sizes[name] <= _LONGEST and sum(sizes.values()) <= room:
            break
        gone.append(name)
        del found[name], sizes[name]
    return gone


def _read(name: str) -> bytes:
    try:
        with open(os.path.join(ASKED, name), "rb") as file:
            return file.read()
    except OSError:
        return b""
