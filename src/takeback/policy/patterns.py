"""Patterns in texts: a secret in clear, which is never repeated; two requests that mean the same."""

import math
import os
import re
import select
import shlex
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

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


# Does a line hold a secret in clear? A small set of rules: well-known tokens, and passwords written out.
#
# It errs towards silence where a value is a reference or a placeholder, and it never repeats what it found.


class FoundSecret(NamedTuple):
    line: int
    kind: str  # for a person; never the secret itself


_TOKENS: tuple[tuple[str, str], ...] = (
    ("a private key", r"-----BEGIN (?:[A-Z0-9]+ )?(?<!ENCRYPTED )PRIVATE KEY(?: BLOCK)?-----"),
    ("an AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{20,}"),
    ("a Stripe key", r"\b[rs]k_live_[A-Za-z0-9]{16,}|\bwhsec_[A-Za-z0-9]{24,}"),
    ("an Anthropic key", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    ("an OpenAI key", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    ("a Google key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("an npm token", r"\bnpm_[A-Za-z0-9]{36}"),
    ("a PyPI token", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
)
_PASSWORDS = r"pass(?:word|wd|phrase)?|pwd"
_OTHERS = r"secret|token|credentials?|(?:api|access|secret|private|auth|account)[_-]?key"
_ASSIGNED = re.compile(
    rf"(?i:(?<![a-z])(?P<name>(?:\w*[_.-])?[a-z]*(?:(?P<password>{_PASSWORDS})|{_OTHERS})))[\"']?\s*(?:=>|:=|[:=])\s*"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote)).)+)(?P=quote)|(?P<bare>[^\s\"'#,;]+)\s*(?:[#;].*)?$)"
)
_OTHER_PASS = re.compile(r"(?:by|com|over|sur|tres|under)pass$", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:(?P<value>[^\s/@\"']+)@", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"^[$<{\[%!(`]|\$[{(]|\{\{|<[^>]+>|\.\.\.|^(?:[x*•.#_-]+|none|null|true|false|nil|undefined)$"
    r"|^(?:\.{0,2}/|~/|[a-z]+://|(?:env|file|vault|ref|sha\d+|arn|secret|op):|@|\*\w)"
    r"|example|placeholder|change[-_ ]?(?:me|it)|your|dummy|sample|redacted|replace|insert|todo|fixme|x{4}",
    re.IGNORECASE,
)
# Said of a secret instead of one: how it is given, its type in a schema or a signature.
_NO_VALUE = re.compile(
    r"(?:default|required?|optional|enabled?|disabled?|include|omit|same-origin|prompt|ask|auto|empty|hidden|yes|no"
    r"|str|string|text|bytes?|int|integer|number|bool|boolean|any|object|secretstr)[?!]?",
    re.IGNORECASE,
)
_CODE = re.compile(r"[()\[\]]|^\w+(\.\w+)+$")  # a call, an index, a dotted name
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")  # DB_PASSWORD, of the environment
# my-tls-secret-v2, Bearer: the name of a secret that is kept elsewhere, or of its kind.
_NAMELIKE = re.compile(r"[A-Z]?[a-z]+|[a-z]+\d{0,2}(?:[-_./](?:[a-z]+\d{0,2}|\d{1,2}))+")
_SHORTEST = 4
_CODE_BITS = 3.0  # of entropy per character: what a bare word in a program must have not to be a variable
_ADDRESS_BITS = 2.0
_PROGRAMS = (
    ".c", ".cc", ".cpp", ".cs", ".go", ".h", ".java", ".js", ".jsx", ".kt", ".lua", ".mjs", ".php", ".pl", ".py",
    ".pyi", ".rb", ".rs", ".scala", ".swift", ".ts", ".tsx",
)  # fmt: skip


def is_program(name: str) -> bool:
    """Whether a word without quotes is more likely a variable than a value, by the name of the file."""
    return name.lower().endswith(_PROGRAMS)


def first_secret(lines: Iterable[bytes], program: bool = False) -> FoundSecret | None:
    """The first secret and its line; lines are bytes, so that any file can be looked at."""
    patterns = [(kind, re.compile(pattern)) for kind, pattern in _TOKENS]
    number = 1
    for raw in lines:
        kind = _kind(raw.decode("utf-8", "replace"), patterns, program)
        if kind:
            return FoundSecret(number, kind)
        number += raw.endswith(b"\n")
    return None


def _kind(line: str, patterns: list[tuple[str, re.Pattern[str]]], program: bool) -> str:
    for kind, pattern in patterns:
        if any(not _is_placeholder(found.group()) for found in pattern.finditer(line)):
            return kind
    if any(_is_written_out(found, program) for found in _ASSIGNED.finditer(line)):
        return "a password or key written out"
    if any(_is_in_clear(found["value"]) for found in _IN_ADDRESS.finditer(line)):
        return "an address with a password in it"
    return ""


def _is_written_out(found: "re.Match[str]", program: bool) -> bool:
    """Whether the value given to a name such as db_password or api_key is the secret itself."""
    name, bare = found["name"], found["bare"]
    value: str = found["quoted"] if bare is None else bare.rstrip("}")
    if len(value) < _SHORTEST or " " in value or _is_placeholder(value) or _OTHER_PASS.search(name):
        return False
    if _NO_VALUE.fullmatch(value) or _VARIABLE.fullmatch(value):
        return False
    # `password=password` hands a variable on; `"password": "Password"` is a label.
    if value.lower() in (name.lower(), re.split(r"[_.-]", name.lower())[-1]):
        return False
    if bare is not None and (_CODE.search(value) or (program and not _is_mixed(value))):
        return False
    if found["password"] and name.lower() != "pass":
        return True
    return not (value.isdigit() or _NAMELIKE.fullmatch(value))


def _is_mixed(value: str) -> bool:
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return kinds > 1 and _entropy(value) >= _CODE_BITS


def _is_in_clear(value: str) -> bool:
    """A password in an address; shorter ones are mostly made up."""
    if len(value) < 6 or value.isdigit() or _is_placeholder(value):
        return False
    return _entropy(value) >= _ADDRESS_BITS


def _is_placeholder(value: str) -> bool:
    return bool(_PLACEHOLDER.search(value.removeprefix("-----BEGIN ")))


def _entropy(value: str) -> float:
    counts = [value.count(char) for char in set(value)]
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
