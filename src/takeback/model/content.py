"""What content is called, and how a file is read for it: in pieces, of which those that are empty cost nothing.

The name is the SHA-256 of the content. Content in which whole pieces are zero is named by what is in the other pieces
and where those are: so a hole is neither read nor hashed, and a file has one name however much of it is holes.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import cache

from takeback.model.descriptor import read_exactly

PIECE = 4 << 20  # part of the format: a name depends on it


@cache
def zeros() -> bytes:
    return bytes(PIECE)


@cache
def zeros_name() -> bytes:
    return hashlib.sha256(zeros()).digest()


def is_empty(piece: bytes) -> bool:
    """Whether it is a whole piece of nothing but zeros."""
    return piece is zeros() or (len(piece) == PIECE and not piece[0] and piece == zeros())


class Naming:
    """Pieces are added in order, all but the last of them whole."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self._size = 0
        self._empty: list[int] = []  # where runs of empty pieces begin and end, in turns

    def add(self, piece: bytes) -> None:
        if is_empty(piece):
            number = self._size // PIECE
            if self._empty and self._empty[-1] == number:
                self._empty[-1] += 1
            else:
                self._empty += [number, number + 1]
        else:
            self._sum.update(piece)
        self._size += len(piece)

    def digest(self) -> bytes:
        if not self._empty:
            return self._sum.digest()
        if self._size == PIECE:
            return zeros_name()
        told = b"%d %s " % (self._size, b",".join(b"%d" % number for number in self._empty))
        # Another function, so that no content can be found that is called the same without being it.
        return hashlib.blake2s(told + self._sum.digest(), person=b"tb-holes").digest()


def name_of(content: bytes) -> bytes:
    """Of content that is in memory."""
    if len(content) <= PIECE:
        return hashlib.sha256(content).digest()
    naming = Naming()
    for start in range(0, len(content), PIECE):
        naming.add(content[start : start + PIECE])
    return naming.digest()


def read_pieces(fd: int) -> Iterator[bytes]:
    """All of a file, whole pieces up to the last; `zeros()` itself for those that are a hole."""
    status = os.fstat(fd)
    sparse = status.st_blocks * 512 < status.st_size
    at = 0
    while True:
        if sparse:
            data = _next_data(fd, at, status.st_size)
            while at + PIECE <= data:
                yield zeros()
                at += PIECE
        piece = read_exactly(fd, PIECE, at)
        if not piece:
            return
        yield piece
        at += len(piece)


def _next_data(fd: int, at: int, size: int) -> int:
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        import errno

        # ENXIO: nothing but a hole up to the end. Anything else: a filesystem that does not know holes.
        return size if error.errno == errno.ENXIO else at
