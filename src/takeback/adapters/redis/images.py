"""What keys held before and after an effect: images of them, kept in the store, counted for the receipt."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.redis.dump import Content, content_of, type_of
from takeback.errors import BlobDamaged
from takeback.storage.protocols import Blobs

_HEAD = struct.Struct(">IqQ")  # lengths of the key, when it expires, length of the dump
_ABSENT = (1 << 64) - 1
NEVER = -1


class Image(NamedTuple):
    key: bytes
    dump: bytes | None = None  # None: there was no such key
    expires: int = NEVER  # milliseconds since 1970

    def at(self, now: int) -> "Image":
        """As it would be found at that time: an expired key is absent, and that is not a change."""
        if self.dump is None or NEVER < self.expires <= now:
            return Image(self.key)
        return self


def seen(key: bytes, dump: bytes | None, expires: int) -> Image:
    return Image(key, dump, expires if expires >= 0 else NEVER) if dump is not None else Image(key)


def seen_each(keys: Iterable[bytes], replies: Sequence[Any]) -> Iterator[Image]:
    """`replies`: of DUMP and PEXPIRETIME, in turns."""
    return (seen(*one) for one in zip(keys, replies[::2], replies[1::2], strict=True))


def same(one: Image, other: Image) -> bool:
    if one.dump is None or other.dump is None:
        return one.dump is other.dump
    if one.expires != other.expires:
        return False
    return one.dump == other.dump or content(one) == content(other)


def content(image: Image) -> Content:
    return content_of(image.dump) if image.dump is not None else Content("none", None)


def packed(images: Iterable[Image]) -> Iterator[bytes]:
    for image in images:
        size = _ABSENT if image.dump is None else len(image.dump)
        yield _HEAD.pack(len(image.key), image.expires, size) + image.key
        if image.dump:
            yield image.dump


def unpacked(pieces: Iterable[bytes]) -> Iterator[Image]:
    """Not more than one record, and a piece, in memory."""
    buffer = bytearray()
    source = iter(pieces)

    def fill(size: int) -> bool:
        while len(buffer) < size:
            piece = next(source, None)
            if piece is None:
                return False
            buffer.extend(piece)
        return True

    def take(size: int) -> bytes:
        if not fill(size):
            raise BlobDamaged("The images of an effect end in the middle.", hint="Run `takeback verify`.")
        found = bytes(buffer[:size])
        del buffer[:size]
        return found

    while fill(1):
        key_size, expires, size = _HEAD.unpack(take(_HEAD.size))
        key = take(key_size)
        yield Image(key, None if size == _ABSENT else take(size), expires)


def receipt_of(pairs: Iterable[tuple[Image, Image]]) -> dict[str, Any]:
    return {"tables": counted(pairs), "schema": []}


def counted(pairs: Iterable[tuple[Image, Image]]) -> dict[str, dict[str, int]]:
    """`{"hash": {"inserted": 1, "updated": 0, "deleted": 0}}`, by the type that the key has or had."""
    tables: dict[str, dict[str, int]] = {}
    for before, after in pairs:
        if same(before, after):
            continue
        verb = "inserted" if before.dump is None else "deleted" if after.dump is None else "updated"
        dump = before.dump if after.dump is None else after.dump
        kind = type_of(dump) if dump else "none"
        numbers = tables.setdefault(kind, {"inserted": 0, "updated": 0, "deleted": 0})
        numbers[verb] += 1
    return tables


# Images in the store. Which they are is known only after the intent is written, so the remedy lists one small
# blob, the anchor, and they become what that one refers to.


IMAGES = "images"  # in a receipt: digests of what was found and of what was left


def anchor(blobs: Blobs, effect: str, *images: str) -> str:
    return blobs.put(f"what the Redis keys of effect {effect} were\n".encode(), refs=images)


def keep(blobs: Blobs, effect: str, images: Iterable[Image]) -> str:
    digest = blobs.put(packed(images))
    anchor(blobs, effect, digest)
    return digest


def kept(blobs: Blobs, digest: str) -> Iterator[Image]:
    return unpacked(blobs.read(digest))


def by_key(images: Iterable[Image]) -> dict[bytes, Image]:
    return {image.key: image for image in images}
