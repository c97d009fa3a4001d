"""A pager, as git has it: only on a terminal, and only for what is longer than a screen."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from subprocess import Popen

_USUAL = "less -FRX"
_NONE = ("", "cat")
_SHELL = frozenset("$`\"'\\~=(){}|&;<>")  # the shell makes another word of one with these


def pager_wanted() -> str:
    """The command line of the pager; "" for none."""
    named = os.environ.get("TAKEBACK_PAGER", os.environ.get("PAGER", _USUAL))
    if named.strip() in _NONE or os.environ.get("TERM", "") in ("", "dumb"):
        return ""
    return named


@contextmanager
def paged(wanted: bool) -> Iterator[None]:
    """What is printed in here goes through a pager if it does not fit the screen."""
    command = pager_wanted() if wanted and sys.stdout and sys.stdout.isatty() else ""
    if not command:
        yield
        return
    terminal = sys.stdout
    pages = Pages(terminal, command)
    sys.stdout = pages
    try:
        yield
        pages.finish()
    except BrokenPipeError:
        if not pages.started:
            raise
        # The reader left the pager: what was still to come is not wanted.
    finally:
        sys.stdout = terminal
        pages.leave()


class Pages(io.TextIOBase):
    """Text is held back until it is known to be longer than a screen, then it goes to the pager."""

    def __init__(self, terminal: TextIO, command: str) -> None:
        self._terminal = terminal
        self._command = command
        self._waiting: list[str] = []
        self._rows = 0
        self._pager: Popen[str] | None = None
        size = os.get_terminal_size(terminal.fileno())
        self._columns, self._height = size.columns or 80, size.lines or 24

    @property
    def started(self) -> bool:
        return self._pager is not None

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._pager and self._pager.stdin:
            self._pager.stdin.write(text)
            return len(text)
        self._waiting.append(text)
        self._rows += sum(max(1, -(-len(line) // self._columns)) for line in text.split("\n")[:-1])
        if self._rows >= self._height:
            self._start()
        return len(text)

    def flush(self) -> None:
        """Nothing: it is not known yet where it goes."""

    def finish(self) -> None:
        if not self._pager:
            self._terminal.write("".join(self._waiting))
            self._waiting.clear()

    def leave(self) -> None:
        """Wait until the reader has read; Ctrl-C is for the pager."""
        if not self._pager:
            return
        if self._pager.stdin:
            try:
                self._pager.stdin.close()
            except BrokenPipeError:
                pass  # the reader has left
        while True:
            try:
                self._pager.wait()
                return
            except KeyboardInterrupt:
                continue

    def _start(self) -> None:
        from shutil import which
        from subprocess import PIPE, Popen

        program = self._command.split()[0]
        if not _SHELL.intersection(program) and which(program) is None:
            self._height = sys.maxsize  # there is none: it is printed as it is
            return

        environment = {"LESS": "FRX", "LV": "-c"} | os.environ
        try:
            self._pager = Popen(
                ["/bin/sh", "-c", self._command],
                stdin=PIPE,
                env=environment,
                text=True,
                errors="backslashreplace",
            )
        except OSError:
            self._height = sys.maxsize
            return
        waiting, self._waiting = "".join(self._waiting), []
        self.write(waiting)
