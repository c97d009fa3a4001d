"""The terminal: a pager for long answers, and one line that tells how far it is."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Thread, get_ident
from typing import TYPE_CHECKING, TextIO

from takeback.model.progress import Progress
from takeback.model.settings import bytes_in_words

if TYPE_CHECKING:
    from subprocess import Popen


_USUAL = "less -FRX"
_NONE = ("", "cat")
_SHELL = frozenset("$`\"'\\~=(){}|&;<>")  # the shell makes another word of one with these


@contextmanager
def paged() -> Iterator[None]:
    """Output of the block, on a terminal, goes through a pager if it does not fit the screen."""
    command = os.environ.get("TAKEBACK_PAGER", os.environ.get("PAGER", _USUAL))
    if command.strip() in _NONE or os.environ.get("TERM", "") in ("", "dumb"):
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


PATIENCE = 0.5  # seconds; what ends before is not worth a line
BETWEEN = 0.1  # seconds from one line to the next
_SOON = 0.4  # seconds; before that a guess at the rest is wild
_FEW = 0.01  # of the work; so is one before that
_ERASED = "\r\033[K"


class _Stage:
    def __init__(self, doing: str, noun: str, began: float) -> None:
        self.doing = doing
        self.noun = noun
        self.began = began
        self.items = self.bytes = self.all_items = self.all_bytes = 0


class Meter(Progress):
    draws = True

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._stages: list[_Stage] = []
        self._due = 0.0  # when a line may be drawn
        self._rested = float("-inf")  # when the last stage ended
        self._drawn = False
        self._thread = get_ident()
        self._lock = Condition()

    @contextmanager
    def stage(self, doing: str, noun: str = "path", ticks: bool = False) -> Iterator[None]:
        if get_ident() != self._thread:
            yield
            return
        now = self._clock()
        # Pauses for a command or a person do not count: the delay starts again after them.
        if not self._stages and now - self._rested > BETWEEN:
            self._due = now + PATIENCE
        one = _Stage(doing, noun, now)
        with self._lock:
            self._stages.append(one)
        try:
            if ticks:
                with self._ticking():
                    yield
            else:
                yield
        finally:
            with self._lock:
                del self._stages[self._stages.index(one) :]
            if not self._stages:
                self.aside()
                self._rested = self._clock()

    def expect(self, items: int = 0, bytes: int = 0) -> None:
        if self._stages and get_ident() == self._thread:
            self._stages[-1].all_items += items
            self._stages[-1].all_bytes += bytes

    def moved(self, bytes: int = 0, items: int = 0) -> None:
        if not self._stages:
            return
        stage = self._stages[-1]
        stage.bytes += bytes
        stage.items += items
        if get_ident() == self._thread:  # others count, one draws
            self._draw_when_due()

    def aside(self) -> None:
        with self._lock:
            if self._drawn:
                self._write(_ERASED)
                self._drawn = False

    def _draw_when_due(self) -> None:
        now = self._clock()
        if now < self._due:
            return
        with self._lock:
            self._due = now + BETWEEN
            if self._stages and self._is_mine():
                self._write(_ERASED + line(self._parts(now), self._width() - 1))
                self._drawn = True

    @contextmanager
    def _ticking(self) -> Iterator[None]:
        """Drawn by a thread, because this one waits for somebody else's answer."""
        over = Condition()
        ended = [False]

        def tick() -> None:
            with over:
                while not over.wait_for(lambda: ended[0], BETWEEN):
                    self._draw_when_due()

        ticker = Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            with over:
                ended[0] = True
                over.notify()
            ticker.join()

    def _is_mine(self) -> bool:
        """Whether we are in the foreground of that terminal."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:  # a terminal that has no foreground
            return True

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone changes nothing of what is done
            self._stream.write(text)
            self._stream.flush()

    def _parts(self, now: float) -> list[str]:
        """The most telling first."""
        outer, inner = self._stages[0], self._stages[-1]
        parts = [_counted(outer)] if outer is not inner and outer.all_items > 1 else []
        seconds = now - inner.began
        parts.append(_counted(inner))
        if inner.bytes:
            parts.append(_bytes(inner))
        if rest := _rest(inner, seconds):
            parts.append(rest)
        elif seconds >= 1:
            parts.append(f"{seconds:,.0f} s")
        if rate := _rate(inner, seconds):
            parts.append(rate)
        return parts


def line(parts: list[str], width: int) -> str:
    """As many parts as there is room for, and of the first what fits."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(part) + 2 > width:
            break
        text += f", {part}"
    return text[: max(width, 0)]


def _counted(stage: _Stage) -> str:
    if not stage.all_items and not stage.items:
        return stage.doing
    if not stage.all_items:
        return f"{stage.doing} {stage.items:,} {stage.noun}s"
    all_items = max(stage.all_items, stage.items)
    return f"{stage.doing} {stage.items:,} of {all_items:,} {stage.noun}{'s' if all_items > 1 else ''}"


def _bytes(stage: _Stage) -> str:
    done = bytes_in_words(stage.bytes)
    return f"{done} of {bytes_in_words(stage.all_bytes)}" if stage.all_bytes >= stage.bytes else done


def _rate(stage: _Stage, seconds: float) -> str:
    if seconds < _SOON:
        return ""
    if stage.bytes:
        return f"{bytes_in_words(int(stage.bytes / seconds))}/s"
    return f"{stage.items / seconds:,.0f}/s" if stage.items >= seconds else ""


def _rest(stage: _Stage, seconds: float) -> str:
    """The remaining time at the present rate."""
    if stage.all_bytes and stage.all_bytes >= stage.bytes:
        share = stage.bytes / stage.all_bytes
    else:
        share = stage.items / stage.all_items if stage.all_items else 0
    left = round(seconds / share - seconds) if _FEW <= share < 1 and seconds >= _SOON else 0
    if not left:
        return ""
    if left < 60:
        return f"{left} s left"
    return f"{left // 60} min left" if left < 3600 else f"{left // 3600} h {left % 3600 // 60} min left"
