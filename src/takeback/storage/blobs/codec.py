"""How bytes are written down: as they are, compressed, or as the difference to bytes that are kept."""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from takeback.model.content import PIECE

SEGMENT = PIECE  # longer content is cut into pieces of this length; equal pieces are kept once
MAGIC = b"\x28\xb5\x2f\xfd"  # begins every zstd frame, so it need not be kept
SMALL = 256 << 10  # above it speed counts for more than the last percent
SAMPLE = 64 << 10
SHORTEST_BASE = 32  # zstd takes no less than eight bytes, and less than this saves nothing


class BlobForm(IntEnum):
    RAW = 0
    ZSTD = 1
    DELTA = 2  # zstd, with the content of the base as what came before
    RECIPE = 3  # the names of the pieces, one after the other


class Encoded(NamedTuple):
    form: BlobForm
    data: bytes


class Undecodable(Exception):
    """These bytes are not what `encode` wrote."""


def name(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def cut(content: bytes | bytearray | memoryview | Iterable[bytes], length: int = SEGMENT) -> Iterator[bytes]:
    """The same bytes in pieces of exactly `length`; the last may be shorter. Nothing at all for no bytes."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        if len(content) <= length:
            if len(content):
                yield bytes(content)
            return
        view = memoryview(content)
        for start in range(0, len(view), length):
            yield bytes(view[start : start + length])
        return
    held: list[bytes | memoryview] = []
    count = 0
    for piece in content:
        if not count and type(piece) is bytes and len(piece) == length:  # no buffer that is used again
            yield piece
            continue
        rest = memoryview(piece)
        while count + len(rest) >= length:
            held.append(rest[: length - count])
            rest = rest[length - count :]
            yield b"".join(held)
            held, count = [], 0
        if rest:
            held.append(bytes(rest))  # the caller may use its buffer again
            count += len(rest)
    if held:
        yield b"".join(held)


def encode(content: bytes, base: bytes | None = None) -> Encoded:
    """The shortest of the three; the difference only where it is clearly shorter than the whole."""
    if base is not None and len(base) >= SHORTEST_BASE:
        delta = _compress(content, base)
        if len(delta) * 16 < len(content):
            return Encoded(BlobForm.DELTA, delta)
        if len(delta) >= len(content) * 31 // 32:
            # What the base does not help to shorten does not get shorter without it.
            return Encoded(BlobForm.RAW, content)
        whole = encode(content)
        return Encoded(BlobForm.DELTA, delta) if len(delta) * 2 < len(whole.data) else whole
    if len(content) > SMALL and not _worth_it(content):
        return Encoded(BlobForm.RAW, content)
    packed = _compress(content, None)
    if len(packed) < len(content) * 31 // 32:
        return Encoded(BlobForm.ZSTD, packed)
    return Encoded(BlobForm.RAW, content)  # a frame that saves next to nothing costs time at every read


def decode(form: int, data: bytes, size: int, base: bytes | None = None) -> bytes:
    """`Undecodable` unless exactly `size` bytes come out; never touches much more memory than that."""
    if form == BlobForm.RAW or form == BlobForm.RECIPE:
        return data
    if form == BlobForm.DELTA and base is None:
        raise Undecodable("the base is missing")
    zstd = zstd_module()
    prefix = zstd.ZstdDict(base, is_raw=True).as_prefix if form == BlobForm.DELTA else None
    machine = zstd.ZstdDecompressor(zstd_dict=prefix)
    try:
        content: bytes = machine.decompress(MAGIC + data, size + 1)
    except (zstd.ZstdError, EOFError) as error:
        raise Undecodable(str(error)) from error
    if len(content) != size or not machine.eof or machine.unused_data:
        raise Undecodable("it ends too early or too late")
    return content


def seal(names: Iterable[bytes], owner: bytes) -> bytes:
    """A list of names, with eight bytes that show whether it is still the owner's list."""
    joined = b"".join(names)
    return joined + hashlib.sha256(owner + joined).digest()[:8]


def names_in(sealed: bytes, owner: bytes) -> list[bytes]:
    joined = sealed[:-8]
    if len(joined) % 32 or sealed[-8:] != hashlib.sha256(owner + joined).digest()[:8]:
        raise Undecodable("the list of what it is made of is damaged")
    return [joined[start : start + 32] for start in range(0, len(joined), 32)]


def _worth_it(content: bytes) -> bool:
    """Whether a few samples compress at all: incompressible data must not be slowed down."""
    last = len(content) - SAMPLE
    samples = (content[start : start + SAMPLE] for start in (0, last // 2, last))
    return any(len(_compress(sample, None)) < len(sample) * 31 // 32 for sample in samples)


def _compress(content: bytes, base: bytes | None) -> bytes:
    zstd = zstd_module()
    parameter = zstd.CompressionParameter
    small = len(content) <= SMALL
    options: dict[int, int] = {parameter.compression_level: 3 if small else 1, parameter.dict_id_flag: 0}
    prefix = None
    if base is not None:
        prefix = zstd.ZstdDict(base, is_raw=True).as_prefix
        reach = len(content) + len(base)
        if small and reach <= SMALL * 2:
            options[parameter.compression_level] = 6
        else:
            # Level 1 by itself does not see further back than half a megabyte; long-distance matching does.
            options[parameter.enable_long_distance_matching] = 1
        options[parameter.window_log] = max(10, (reach - 1).bit_length())
    data: bytes = zstd.compress(content, options=options, zstd_dict=prefix)
    return data[len(MAGIC) :]


@cache
def zstd_module() -> Any:
    # Nine milliseconds that only a process which reads or writes a blob pays.
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
