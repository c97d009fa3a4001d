"""Which files a patch of Codex names: as a tool's input, and as the here-document of a shell command."""

import re
from typing import NamedTuple

_PROGRAMS = r"(?:apply_patch|applypatch)"
_DIRECTORY = r"""(?:'(?P<raw>[^'\n]*)'|"(?P<quoted>[^"$`\\\n]*)"|(?P<plain>[^\s'"$`\\;&|<>()*?#~]+))"""
_HERE = re.compile(
    rf"\s*(?:cd\s+{_DIRECTORY}\s*&&\s*)?{_PROGRAMS}\s*<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)[ \t]*\n"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_ARGUMENT = re.compile(rf"\s*{_PROGRAMS}\s+'(?P<body>[^']*)'\s*")
_NAMES = re.compile(r"\*\*\* (?:Add File|Update File|Delete File|Move to): (?P<name>.*)")
_BEGIN, _END = "*** Begin Patch", "*** End Patch"


class Patch(NamedTuple):
    text: str
    directory: str = ""  # where it is applied, as the command says; empty for the directory of the call


def patch_in(command: str) -> Patch | None:
    """The patch, if the command applies one and does nothing else."""
    if found := _ARGUMENT.fullmatch(command):
        return Patch(found["body"])
    if (found := _HERE.fullmatch(command)) is None:
        return None
    lines = found["rest"].split("\n")
    ends = [line.lstrip("\t") if found["dash"] else line for line in lines]
    if found["word"] not in ends:
        return None
    end = ends.index(found["word"])
    body = "\n".join(lines[:end])
    expands = not found["quote"] and ("$(" in body or "`" in body)
    if expands or "\n".join(lines[end + 1 :]).strip():
        return None  # the shell would do more than to apply the patch
    return Patch(body, found["raw"] or found["quoted"] or found["plain"] or "")


def names_in(patch: str) -> tuple[str, ...]:
    """The files that it adds, updates, deletes or moves, and where it moves them to. Empty if this is no patch."""
    lines = [line.strip() for line in patch.strip().splitlines()]
    if not lines or lines[0] != _BEGIN or _END not in lines:
        return ()
    found = (_NAMES.fullmatch(line) for line in lines)
    return tuple(dict.fromkeys(match["name"].strip() for match in found if match and match["name"].strip()))
