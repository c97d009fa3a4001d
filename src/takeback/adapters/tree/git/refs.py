"""Refs, loose and packed, and the lines of a reflog: read from their bytes, and written again."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SYMBOLIC = re.compile(rb"ref: *(\S+)")
NONE = ""  # there is no such ref


def loose_value(content: bytes) -> str | None:
    """An object id, or `ref: …`; None if it is neither."""
    text = content.rstrip(b"\n\r \t")
    if _OID.fullmatch(text):
        return text.decode("ascii")
    symbolic = _SYMBOLIC.fullmatch(text)
    return "ref: " + symbolic[1].decode("utf-8", "surrogateescape") if symbolic else None


def packed_values(content: bytes) -> dict[str, str] | None:
    """By full name; None if it is no list of packed refs."""
    found: dict[str, str] = {}
    for line in content.splitlines():
        if line.startswith((b"#", b"^")):
            continue
        oid, space, name = line.partition(b" ")
        if not space or not _OID.fullmatch(oid):
            return None
        found[name.decode("utf-8", "surrogateescape")] = oid.decode("ascii")
    return found


def packed_without(content: bytes, names: Collection[str]) -> bytes:
    """The same list, byte for byte, without these refs and what they peel to."""
    gone = {name.encode("utf-8", "surrogateescape") for name in names}
    kept: list[bytes] = []
    dropping = False
    for line in content.splitlines(keepends=True):
        if not line.startswith(b"^"):
            dropping = not line.startswith(b"#") and line.rstrip(b"\n").partition(b" ")[2] in gone
        if not dropping:
            kept.append(line)
    return b"".join(kept)


def in_the_way(name: str, refs: Mapping[str, str]) -> str:
    """A ref that cannot be there together with this one; empty if there is none."""
    parts = name.split("/")
    above = {"/".join(parts[:count]) for count in range(1, len(parts))}
    return next((one for one in refs if one in above or one.startswith(name + "/")), "")


class Subtracted(NamedTuple):
    content: bytes | None  # None: it cannot be told
    lines: tuple[bytes, ...] = ()  # those that come back


def without_lines(before: bytes, after: bytes, now: bytes) -> Subtracted:
    """A reflog without the lines that an effect added, and with those that it removed; the others stay."""
    if now.startswith(after) and (not after or after.endswith(b"\n")):
        rest = now[len(after) :]
        back = () if after.startswith(before) else tuple(before.splitlines(keepends=True))
        return Subtracted(before + rest, back)
    if not after.startswith(before):
        return Subtracted(None)  # lines were removed, and nobody can tell any more where they belong
    kept = now.splitlines(keepends=True)
    for line in after[len(before) :].splitlines(keepends=True):
        if line in kept:
            kept.remove(line)
    return Subtracted(b"".join(kept))


def oids_in(line: bytes) -> tuple[str, ...]:
    """Both ids of a line of a reflog, without the id that stands for none."""
    words = line.split(b" ", 2)[:2]
    return tuple(one.decode("ascii") for one in words if _OID.fullmatch(one) and one.strip(b"0"))
