"""What comes on standard input, read to its end before anything else: nobody waits for a slow pipe with a lease."""

import sys
from collections.abc import Iterable, Iterator
from typing import IO

from takeback.errors import Misuse
from takeback.frontends.cli.output import warn
from takeback.model.naming import PIECE, Naming, name_of

_IN_MEMORY = 8 << 20  # more than this waits in a file without a name


class Spooled:
    """Content that is too long to hold; can be read more than once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(PIECE):
            yield piece


def read_input() -> "bytes | Iterable[bytes]":
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by whoever started us
        raise Misuse(
            "There is no standard input to read the content from.", hint="takeback write PATH < content"
        )
    if sys.stdin.isatty():
        warn("Reading the content from the terminal; Ctrl-D ends it.")
    source = sys.stdin.buffer
    first = source.read(_IN_MEMORY)
    rest = source.read(PIECE) if len(first) == _IN_MEMORY else b""
    if not rest:
        return first
    from tempfile import TemporaryFile

    # Lives as long as the process: it is read when the change is made.
    file = TemporaryFile()  # noqa: SIM115
    file.write(first)
    while rest:
        file.write(rest)
        rest = source.read(PIECE)
    return Spooled(file)


def digest_of(content: "bytes | Iterable[bytes]") -> tuple[str, int]:
    if isinstance(content, bytes):
        return name_of(content).hex(), len(content)
    naming, size = Naming(), 0
    for piece in content:
        naming.add(piece)
        size += len(piece)
    return naming.digest().hex(), size
