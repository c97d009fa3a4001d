"""The whole terminal for one list: keys in, lines out, and everything as it was when it ends, however it ends."""

import os
import select
import signal
import termios
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_PAGE = "\x1b[?1049h"  # another one; the lines above stay as they are
_STILL = "\x1b[?25l\x1b[?7l"  # no cursor, and long lines are cut
_END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_ALONE = 0.05  # seconds after which Escape is no beginning of another key
_MOST = 64  # bytes of one key
_LETTERS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_NUMBERS = {"1": "home", "4": "end", "5": "page up", "6": "page down", "7": "home", "8": "end"}
_PLAIN = {
    "\r": "enter", "\n": "enter", "\x03": "interrupt", "\x04": "escape", "\x1a": "suspend", "\x0c": "redraw",
    "\x10": "up", "\x0e": "down", "k": "up", "j": "down", "h": "left", "l": "right",
}  # fmt: skip


class FullScreen:
    """Signals that end a process end the block as `SystemExit`; the size of the terminal may change at any time."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._woken, self._wakes = -1, -1
        self._wakeup = -1
        self._typed = b""

    def __enter__(self) -> "FullScreen":
        self._before = termios.tcgetattr(self._source)
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._wakeup = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, _end)
            for number in (signal.SIGWINCH, signal.SIGCONT):
                self._handlers[number] = signal.signal(number, _wake)
            self._take(_PAGE)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _take(self, page: str = "") -> None:
        raw: list[Any] = [*self._before[:6], list(self._before[6])]
        raw[0] &= ~(termios.IXON | termios.ICRNL)
        raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._source, termios.TCSADRAIN, raw)
        self._write(page + _STILL)

    def _give_back(self) -> None:
        with suppress(OSError):
            self._write(_END)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._source, termios.TCSADRAIN, self._before)

    def _restore(self) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._woken)
        os.close(self._wakes)

    def size(self) -> tuple[int, int]:
        """Lines and columns."""
        try:
            found = os.get_terminal_size(self._target)
        except OSError:
            return 24, 80
        return found.lines or 24, found.columns or 80

    def draw(self, lines: Sequence[str]) -> None:
        """From the top; `lines` are at most as many as there is room for."""
        self._write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")

    def _write(self, text: str) -> None:
        left = text.encode("utf-8", "backslashreplace")
        while left:
            left = left[os.write(self._target, left) :]

    def key(self, patience: float | None) -> str:
        """The next key by its name, or the character; "" if none came in that many seconds; "resize"; "gone" if the
        terminal is gone."""
        while not self._typed:
            ready = select.select([self._source, self._woken], [], [], patience)[0]
            if not ready:
                return ""
            if self._woken in ready:
                return self._signalled()
            self._typed = self._read()
            if not self._typed:
                return "gone"
        return self._next()

    def _signalled(self) -> str:
        with suppress(BlockingIOError):
            if signal.SIGCONT in os.read(self._woken, 512):
                self._take()  # the shell had the terminal
        return "resize"

    def _read(self) -> bytes:
        try:
            return os.read(self._source, _MOST)
        except OSError:
            return b""

    def _next(self) -> str:
        if self._typed[:1] != b"\x1b":
            first = self._typed.decode("utf-8", "replace")[:1]
            self._typed = self._typed[len(first.encode()) if first != "\ufffd" else 1 :]
            return self._suspended() if _PLAIN.get(first) == "suspend" else _PLAIN.get(first, first)
        if len(self._typed) == 1 and select.select([self._source], [], [], _ALONE)[0]:
            self._typed += self._read()
        return self._sequence()

    def _sequence(self) -> str:
        """After Escape: a key with a name, or Escape itself."""
        text = self._typed.decode("ascii", "replace")
        if text[1:2] not in ("[", "O"):
            self._typed = self._typed[1:]
            return "escape"
        end = next((at for at in range(2, len(text)) if text[at].isalpha() or text[at] == "~"), len(text) - 1)
        self._typed = self._typed[end + 1 :]
        final, number = text[end], text[2:end].partition(";")[0]
        return _NUMBERS.get(number, "unknown") if final == "~" else _LETTERS.get(final, "unknown")

    def _suspended(self) -> str:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take(_PAGE)
        return "redraw"


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _wake(number: int, frame: FrameType | None) -> None:
    """The pipe has it."""
