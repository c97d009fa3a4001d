"""`write`: put content into a file."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, option, positional, repeated
from takeback.frontends.cli.output.screen import clean, quoted, warn
from takeback.frontends.cli.session.change import (
    ALLOW_INEXACT,
    CHANGING,
    checks_of,
    mode_of,
    one_change,
    refuse_open_files,
    wishes,
)
from takeback.model.content import PIECE, Naming, name_of

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change
    from takeback.model.effect import Effect
    from takeback.runs.run import Run


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
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by our parent
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


_ARGUMENTS = (
    positional("path", "PATH", "the file; its new content comes from standard input"),
    repeated(
        "--check",
        "CMD",
        "run before the change, must succeed; {staged} is the new content, {target} the path",
    ),
    option("--mode", "M", "octal, such as 644 (default: unchanged, or by the umask)"),
    *CHANGING,
    ALLOW_INEXACT,
)


def _write(asked: Asked) -> int:
    options = asked.options
    if options.path.endswith("/"):
        raise Misuse(
            f"{options.path} names a directory, not a file.", hint="Leave the slash at the end away."
        )
    refuse_open_files(options.path)
    directory = os.path.dirname(options.path)
    if directory and not os.path.lexists(directory):
        raise Misuse(
            f"The directory {clean(directory)} does not exist.",
            hint=f"Make it first: `takeback mkdir -p {quoted(directory)}`.",
        )
    mode = mode_of(options.mode) if options.mode is not None else None
    checks = checks_of(asked)
    content = read_input()

    from takeback.adapters.file.changes import write_change

    def planned(tb: "Takeback") -> "Change":
        digest, size = digest_of(content)
        return write_change(options.path, digest, size, mode, allow_inexact=options.allow_inexact)

    def do(tb: "Takeback", run: "Run") -> "Effect | None":
        more: dict[str, Any] = {"allow_inexact": options.allow_inexact, **wishes(asked, tb)}
        return run.write(options.path, content, mode=mode, checks=checks, **more)

    return one_change(asked, planned, checks, lambda: content, do=do)


COMMAND = Command(_write, _ARGUMENTS)
