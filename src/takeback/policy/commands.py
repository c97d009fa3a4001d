"""Run one program as a check: no shell, a time limit, and the end of what it said."""

import os
import re
import select
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from takeback.errors import Misuse

if TYPE_CHECKING:
    import subprocess

_KEPT_BYTES = 4096
_KEPT_LINES = 5
_LOOK_SECONDS = 0.05  # how often to see whether the program ended while something else holds its output open


def split(line: str, timeout: float) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise Misuse(
            f"The command {line!r} cannot be split into words: {error}.", hint="Close the quote."
        ) from None
    if not words:
        raise Misuse("The command of a check is empty.", hint='Give one, for example "nginx -t -c {staged}".')
    if timeout <= 0:
        raise Misuse(f"A time limit of {timeout} s leaves no time.", hint="Give seconds greater than 0.")
    return words


def trouble(words: tuple[str, ...], staged: str, target: str, timeout: float) -> str | None:
    """None when it ended with 0; otherwise what went wrong."""
    import subprocess

    argv = [_filled(word, staged, target) for word in words]
    process: subprocess.Popen[bytes] | None = None
    try:
        with _uninterrupted():
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert process.stdout is not None
        said = _listen(process, process.stdout, time.monotonic() + timeout)
        code = process.poll()
    except (OSError, ValueError) as error:
        if process:
            raise
        return f"{argv[0]} could not be started: {getattr(error, 'strerror', None) or error}"
    finally:
        if process and process.poll() is None:
            _kill(process)
        if process and process.stdout:
            process.stdout.close()
    if said is None:
        return f"{argv[0]} was killed after {timeout:g} s"
    if not code:
        return None
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{argv[0]} ended with {ending}" + (f": {said}" if said else "")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A signal waits until the program is ours to kill: raised while it is being started, it would leave it running."""
    arrived: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


def _filled(word: str, staged: str, target: str) -> str:
    # In one pass, so that a path that itself contains "{target}" is left alone.
    return re.sub(r"\{(staged|target)\}", lambda found: staged if found[1] == "staged" else target, word)


def _listen(process: "subprocess.Popen[bytes]", output: IO[bytes], deadline: float) -> str | None:
    """The last lines it said; None at the time limit."""
    kept = b""
    # Not select(): it fails where a process has more than 1,024 files open.
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(min(left, _LOOK_SECONDS) * 1000):
            piece = os.read(output.fileno(), 65536)
            kept = (kept + piece)[-_KEPT_BYTES:]
            if not piece:
                return _last_lines(kept) if _ended(process, deadline) else None
        elif process.poll() is not None:
            return _last_lines(kept)
    return None


def _ended(process: "subprocess.Popen[bytes]", deadline: float) -> bool:
    import subprocess

    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _last_lines(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    shown = "; ".join(lines[-_KEPT_LINES:])
    return "".join(c if c.isprintable() else "?" for c in shown).rstrip(".")
