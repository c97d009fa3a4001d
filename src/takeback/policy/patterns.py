"""A program as a check; two requests that mean the same."""

import os
import re
import select
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import IO, TYPE_CHECKING, Any, cast

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
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_lines(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    shown = "; ".join(lines[-_KEPT_LINES:])
    return "".join(c if c.isprintable() else "?" for c in shown).rstrip(".")


# Ids that a client generates for each request; they do not change the request.
_MADE_UP_NAMES = re.compile(
    r"(^|_)(request|idempotency|correlation|trace|span|message|client|attempt)_?(id|key|ref|token|uuid)$|(^|_)(nonce|uuid)$",
    re.IGNORECASE,
)
_MADE_UP = re.compile(
    r"^(?:[a-z]{1,12}[_-])?(?:"
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|[0-9a-f]{32,64}"
    r"|[0-7][0-9A-HJKMNP-TV-Z]{25}"  # a ULID
    r")$",
    re.IGNORECASE,
)
_MADE_UP_WORD = "<made up>"
_STAMP_WORD = "<time of the call>"
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?$")
_NEAR = 600  # seconds between a call and the time that it gives as its own
_DAY = 86_400
_NUMBER = re.compile(r"^[+-]?\d{1,30}(\.\d{1,30})?$")


def sameness(value: Any, name: str = "", at: int = 0) -> Any:
    """Equal for what means the same: other order of names, 500 or 500.00 or "500", another id made up by the client,
    another time stamp. `at`: when it was called, microseconds since 1970; a time near that says only when it was asked
    for, and one that is further away is part of what is asked for."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        meant = {one: sameness(found[one], one, at) for one in sorted(found)}
        return {one: what for one, what in meant.items() if what != _STAMP_WORD}
    if isinstance(value, (list, tuple)):
        return [sameness(one, "", at) for one in cast("list[Any]", value)]
    if isinstance(value, bool) or value is None:
        return value
    if name and _MADE_UP_NAMES.search(name):
        return _MADE_UP_WORD
    if at and _is_stamp(value, at / 1e6):
        return _STAMP_WORD
    if isinstance(value, (int, float)):
        return _number(str(value))
    text = " ".join(str(value).split())
    if _MADE_UP.match(text):
        return _MADE_UP_WORD
    return _number(text) if _NUMBER.match(text) else text


def _is_stamp(value: Any, at: float) -> bool:
    if isinstance(value, (int, float)):
        return any(abs(value / scale - at) <= _NEAR for scale in (1, 1e3, 1e6, 1e9))
    text = str(value).strip()
    if not _STAMP.match(text):
        return False
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        return False
    near = _DAY if len(text) == len("2026-11-18") else _NEAR
    zones = (told,) if told.tzinfo else (told.replace(tzinfo=UTC), told.astimezone())
    return any(abs(one.timestamp() - at) <= near for one in zones)


def _number(text: str) -> str:
    try:
        return f"{Decimal(text).normalize():f}"
    except InvalidOperation:
        return text
