"""The index of git: its entries without the stat cache, and the file written again with some entries put back.

Versions 2, 3 and 4, SHA-1 and SHA-256. A file that does not parse to its last byte is no index for us.
"""

import hashlib
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

MOST = 256 << 20  # a larger index is compared by its bytes
_HEAD = struct.Struct(">4sLL")
_STAT = 40  # ctime, mtime, dev, ino, mode, uid, gid, size
_EXTENDED = 0x4000
_STAGE = 0x3000
_VALID = 0x8000  # git update-index --assume-unchanged
_NAME = 0x0FFF
_SKIP_AND_INTENT = 0x6000  # of the extended flags
INTENT_TO_ADD = 0x2000
GITLINK = 0o160000
# What git can work out again from the entries and the files: no content.
_CACHES = frozenset((b"TREE", b"UNTR", b"FSMN", b"EOIE", b"IEOT"))
_KNOWN = frozenset((b"link", b"sdir"))

Key = tuple[bytes, int]  # name and stage


class IndexEntry(NamedTuple):
    mode: int
    oid: bytes
    flags: int  # assume-unchanged and the extended flags, in one number


class GitIndex(NamedTuple):
    version: int
    oid_size: int
    summed: bool  # it ends with a checksum, not with zeros (index.skipHash)
    entries: dict[Key, IndexEntry]
    stats: dict[Key, bytes]
    extensions: dict[bytes, bytes]

    @property
    def content(self) -> dict[bytes, bytes]:
        """The extensions that are no caches: split index, sparse directories, resolved conflicts."""
        return {name: data for name, data in self.extensions.items() if name not in _CACHES}


def parse_index(data: bytes) -> GitIndex | None:
    """None if it is none, or one that is not understood."""
    if len(data) > MOST or len(data) < _HEAD.size + 20:
        return None
    for oid_size in (20, 32):
        summed = _sum(data[:-oid_size], oid_size) == data[-oid_size:]
        if not summed and any(data[-oid_size:]):
            continue
        try:
            return _parsed(data, oid_size, summed)
        except (struct.error, IndexError, ValueError):
            continue
    return None


def _sum(data: bytes, oid_size: int) -> bytes:
    if oid_size == 20:
        return hashlib.sha1(data, usedforsecurity=False).digest()
    return hashlib.sha256(data).digest()


def _parsed(data: bytes, oid_size: int, summed: bool) -> GitIndex:
    magic, version, count = _HEAD.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(magic)
    end = len(data) - oid_size
    entries: dict[Key, IndexEntry] = {}
    stats: dict[Key, bytes] = {}
    at = _HEAD.size
    name = b""
    for _ in range(count):
        start, at = at, at + _STAT + oid_size
        (flags,) = struct.unpack_from(">H", data, at)
        at += 2
        more = 0
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", data, at)
            at += 2
        if version == 4:
            strip, at = _number(data, at)
            if strip > len(name):
                raise ValueError(strip)
            nul = data.index(b"\0", at, end)
            name = name[: len(name) - strip] + data[at:nul]
            at = nul + 1
        else:
            nul = data.index(b"\0", at, end)
            name = data[at:nul]
            at = start + ((nul - start + 8) & ~7)
        key = (name, (flags & _STAGE) >> 12)
        mode = int.from_bytes(data[start + 24 : start + 28])
        oid = data[start + _STAT : start + _STAT + oid_size]
        if key in entries or at > end:
            raise ValueError(name)
        entries[key] = IndexEntry(mode, oid, flags & _VALID | more & _SKIP_AND_INTENT)
        stats[key] = data[start : start + _STAT]
    return GitIndex(version, oid_size, summed, entries, stats, _extensions(data, at, end))


def _number(data: bytes, at: int) -> tuple[int, int]:
    """As in the offsets of a pack: seven bits a byte, plus one for each byte that follows."""
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at


def _extensions(data: bytes, at: int, end: int) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while at < end:
        name = data[at : at + 4]
        (size,) = struct.unpack_from(">L", data, at + 4)
        if name in found or (not 0x41 <= name[0] <= 0x5A and name not in _KNOWN):
            raise ValueError(name)  # one that git itself would not skip
        found[name] = data[at + 8 : at + 8 + size]
        at += 8 + size
    if at != end:
        raise ValueError(at)
    return found


def meaning_of(data: bytes) -> str:
    """A digest of all but the stat cache and the other caches; empty if it is no index."""
    index = parse_index(data)
    if index is None:
        return ""
    digest = hashlib.sha256(b"git index %d\n" % index.oid_size)
    for (name, stage), entry in sorted(index.entries.items()):
        digest.update(b"%d %o %d " % (stage, entry.mode, entry.flags) + entry.oid + name + b"\0")
    for name, content in sorted(index.content.items()):
        digest.update(b"\0" + name + b"%d " % len(content) + content)
    return digest.hexdigest()


def cached_trees(index: GitIndex) -> list[bytes]:
    """The trees that its cache of trees names; git looks whether they are there."""
    data, at, found = index.extensions.get(b"TREE", b""), 0, list[bytes]()
    while at < len(data):
        try:
            at = data.index(b"\0", at) + 1
            line = data.index(b"\n", at)
            entries = int(data[at : data.index(b" ", at, line)])
        except ValueError:
            return found
        at = line + 1
        if entries >= 0:
            found.append(data[at : at + index.oid_size])
            at += index.oid_size
    return found


class IndexUndo(NamedTuple):
    """An index with the changes of one effect taken out of it."""

    entries: dict[Key, IndexEntry]
    restored: frozenset[Key]
    conflicts: tuple[bytes, ...]  # names that were staged otherwise since


def without_changes(before: GitIndex, after: GitIndex, now: GitIndex) -> IndexUndo | None:
    """None where more than entries differs, so that one by one would be a guess."""
    if any(b"link" in one.extensions for one in (before, after, now)):
        return None
    if len({(one.oid_size, one.extensions.get(b"sdir")) for one in (before, after, now)}) > 1:
        return None
    entries = dict(now.entries)
    restored: set[Key] = set()
    conflicts: list[bytes] = []
    for key in before.entries.keys() | after.entries.keys():
        was, left, there = (one.entries.get(key) for one in (before, after, now))
        if was == left or there == was:
            continue
        if there != left:
            conflicts.append(key[0])
            continue
        restored.add(key)
        if was is None:
            del entries[key]
        else:
            entries[key] = was
    conflicts += _impossible(entries, restored)
    return IndexUndo(entries, frozenset(restored), tuple(sorted(set(conflicts))))


def _impossible(entries: Mapping[Key, IndexEntry], restored: Iterable[Key]) -> list[bytes]:
    """Names that would be a file and a directory at once, or merged and unmerged."""
    stages: dict[bytes, set[int]] = {}
    for name, stage in entries:
        stages.setdefault(name, set()).add(stage)
    directories = {above for name in stages for above in _directories_of(name)}
    return [
        name
        for name, _ in restored
        if name in stages
        and (
            (0 in stages[name] and len(stages[name]) > 1)
            or name in directories
            or any(above in stages for above in _directories_of(name))
        )
    ]


def _directories_of(name: bytes) -> Iterator[bytes]:
    return (name[:at] for at in range(len(name)) if name[at] == 0x2F)


def written(index: GitIndex, entries: Mapping[Key, IndexEntry], restored: Iterable[Key]) -> bytes:
    """As a file: its own stat cache, which says nothing of what was restored; without the caches."""
    fresh = set(restored)
    version = index.version
    if version == 2 and any(entry.flags & _SKIP_AND_INTENT for entry in entries.values()):
        version = 3
    parts = [_HEAD.pack(b"DIRC", version, len(entries))]
    last = b""
    for key, entry in sorted(entries.items()):
        stat = bytes(_STAT) if key in fresh or key not in index.stats else index.stats[key]
        stat = stat[:24] + entry.mode.to_bytes(4) + stat[28:]
        more = entry.flags & _SKIP_AND_INTENT
        flags = entry.flags & _VALID | key[1] << 12 | min(len(key[0]), _NAME) | (_EXTENDED if more else 0)
        one = stat + entry.oid + flags.to_bytes(2) + (more.to_bytes(2) if more else b"")
        if version == 4:
            shared = len(os.path.commonprefix((last, key[0])))  # noqa: RUF071 - bytes, as the format counts
            one += _as_number(len(last) - shared) + key[0][shared:] + b"\0"
            last = key[0]
        else:
            one += key[0]
            one += bytes(8 - len(one) % 8)
        parts.append(one)
    for name, data in index.content.items():
        parts.append(name + len(data).to_bytes(4) + data)
    whole = b"".join(parts)
    return whole + (_sum(whole, index.oid_size) if index.summed else bytes(index.oid_size))


def _as_number(value: int) -> bytes:
    found = [value & 0x7F]
    while value := value >> 7:
        value -= 1
        found.append(0x80 | value & 0x7F)
    return bytes(reversed(found))


# Refs, loose and packed, and the lines of a reflog: read from their bytes, and written again.


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
    content: bytes | None  # None: unknown
    lines: tuple[bytes, ...] = ()  # those that come back


def without_lines(before: bytes, after: bytes, now: bytes) -> Subtracted:
    """A reflog without the lines that an effect added, and with those that it removed; the others stay."""
    if now.startswith(after) and (not after or after.endswith(b"\n")):
        rest = now[len(after) :]
        back = () if after.startswith(before) else tuple(before.splitlines(keepends=True))
        return Subtracted(before + rest, back)
    if not after.startswith(before):
        return Subtracted(None)  # lines were removed, and their place is no longer known
    kept = now.splitlines(keepends=True)
    for line in after[len(before) :].splitlines(keepends=True):
        if line in kept:
            kept.remove(line)
    return Subtracted(b"".join(kept))


def oids_in(line: bytes) -> tuple[str, ...]:
    """Both ids of a line of a reflog, without the id that stands for none."""
    words = line.split(b" ", 2)[:2]
    return tuple(one.decode("ascii") for one in words if _OID.fullmatch(one) and one.strip(b"0"))
