"""The hook programs, the one in Python and the compiled one, held to one table: what they ask, say and end with."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import pytest

from takeback.frontends.agents import relay
from takeback.frontends.agents.hosts import NAMES, host
from takeback.frontends.agents.relay import ROOT
from takeback.frontends.agents.settings import shim_path
from tests.agents.shims import SANITIZED, Answer, FakeDaemon, compiled_shim, words_of
from tests.agents.talk import until

pytestmark = pytest.mark.needs("cc")

BEFORE, AFTER = "PreToolUse", "PostToolUse"
SOURCE = Path(shim_path()).with_suffix(".c")
OFF = "`takeback hook uninstall claude-code` switches takeback off."
OFF_IN_A_PROGRAM = "takeback is on because the program calls `with_takeback`; without that call it is off."
GOOD = b"0 3 0\n{}\n"
SHORT = 1  # seconds that a shim of `hurried` waits


class Shim(NamedTuple):
    compiled: Path | None
    program: str = shim_path()
    host: str = "claude-code"

    def words(self, event: str = BEFORE, python: str = sys.executable) -> list[str]:
        return words_of(self.compiled, self.program, self.host, event, python)

    def ran(
        self, event: str = BEFORE, payload: bytes = b"{}", around: str = "", **more: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        """`around`: a shell's words after the command."""
        words = self.words(event)
        if around:
            words = ["/bin/sh", "-c", f'exec "$@" {around}', "sh", *words]
        return subprocess.run(words, input=payload, capture_output=True, check=False, timeout=60, **more)


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_shim(tmp_path_factory.mktemp("sanitized") / "shim", "-g", *SANITIZED)


@pytest.fixture(params=["python", "compiled", "sanitized"])
def shim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shim:
    # What it still has when it ends is no leak.
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    return Shim(None if request.param == "python" else request.getfixturevalue(request.param))


@pytest.fixture
def hurried(shim: Shim, tmp_path: Path, request: pytest.FixtureRequest) -> Shim:
    """The same with a deadline that a test can wait for."""
    place = tmp_path / "hurried/takeback/frontends/agents"
    place.mkdir(parents=True)
    for name in ("shim.py", "relay.py"):
        text = Path(shim_path()).with_name(name).read_text()
        text = text.replace(
            "_BEFORE_SECONDS, _SECONDS = 280, 50", f"_BEFORE_SECONDS, _SECONDS = {SHORT}, {SHORT}"
        )
        (place / name).write_text(text)
    if shim.compiled is None:
        return Shim(None, str(place / "shim.py"))
    more = ["-g", *SANITIZED] if "sanitized" in request.node.callspec.id else ["-O2"]
    fast = compiled_shim(tmp_path / "hurried/shim", f"-DBEFORE_SECONDS={SHORT}", f"-DSECONDS={SHORT}", *more)
    return Shim(fast, str(place / "shim.py"))


def test_both_know_the_same_lists_and_times() -> None:
    text = SOURCE.read_text()

    def listed(name: str) -> list[str]:
        found = re.search(rf"{name}\[\] = \{{(.*?)\}};", text, re.DOTALL)
        assert found
        return re.findall(r'"([^"]+)"', found[1])

    def number(name: str) -> str:
        found = re.search(rf"#define {name} (.+?)(?: /\*.*)?$", text, re.MULTILINE)
        assert found
        return found[1]

    assert listed("BEFORE") == list(relay.BEFORE)
    assert set(relay.BEFORE) >= {point.name for one in NAMES for point in host(one).EVENTS if point.before}
    python = vars(relay)
    assert listed("TOLD") == list(python["_TOLD"])
    assert (number("BEFORE_SECONDS"), number("SECONDS")) == (
        str(python["_BEFORE_SECONDS"]),
        str(python["_SECONDS"]),
    )
    assert number("SDK") == f'"{relay.SDK}"'
    assert number("MOST") == "(64u << 20)"
    assert python["_MOST"] == 64 << 20
    assert f"DENIED = {relay.DENIED}," in text
    assert f'"{relay.ANSWERED}"' in text


# What is said, for each answer of the daemon: the exit code and the words before a call and after one; how often it is
# asked by the shim in Python.

BROKEN = (
    "takeback did not let this call through, because it could not record a way back: {}\n"
    f"`takeback status` shows how it stands. {OFF}\n"
)
ENDED, MIDDLE = (
    BROKEN.format(f"its daemon ended {why}.") for why in ("before it answered", "in the middle of an answer")
)


def _resets(connection: socket.socket) -> None:
    """What was not read when it ends makes it a reset."""
    connection.recv(1)


TABLE: dict[str, tuple[Sequence[Answer], tuple[int, str, str], int]] = {
    "nothing to say": ([b"0 0 0\n"], (0, "", ""), 1),
    "an answer": ([GOOD], (0, "{}\n", ""), 1),
    "a refusal": ([b"2 0 4\nNo.\n"], (2, "", "No.\n"), 1),
    "both": ([b"2 3 4\nyesNo.\n"], (2, "yes", "No.\n"), 1),
    "a long answer": ([b"0 3000000 0\n" + b"x" * 3_000_000], (0, "x" * 3_000_000, ""), 1),
    "bytes of any kind": (["0 7 0\né\0\n\tü".encode()], (0, "é\0\n\tü", ""), 1),
    "written in another way": ([b" +0  2\t0\nok"], (0, "ok", ""), 1),
    "one that ends, and the next": ([b"", GOOD], (0, "{}\n", ""), 2),
    "one that is killed, and the next": ([_resets, GOOD], (0, "{}\n", ""), 2),
    "one that makes room, and the next": ([b"again\n", GOOD], (0, "{}\n", ""), 2),
    "one that ends each time": ([b""], (2, "", ENDED), 3),
    "one that makes room each time": ([b"again\n"], (2, "", ENDED), 3),
    "no answer": ([b"what?"], (2, "", ENDED), 1),
    "a line only": ([b"\n"], (2, "", ENDED), 1),
    "no numbers": ([b"a b c\n"], (2, "", ENDED), 1),
    "two numbers": ([b"0 0\n"], (2, "", ENDED), 1),
    "no end of the line": ([b"0 0 0"], (0, "", ""), 1),
    "half of it": ([b"0 5 0\n{}"], (2, "", MIDDLE), 1),
    "more than it says": ([b"0 1 0\n{}"], (2, "", MIDDLE), 1),
    "a number without an end": ([b"0 " + b"9" * 100 + b" 0\n"], (2, "", MIDDLE), 1),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_it_says(shim: Shim, case: str, store: Path) -> None:
    answers, (code, out, err), times = TABLE[case]
    # What the compiled one was not answered Python asks as often as always.
    more = 1 if shim.compiled and times == 3 else 0

    with FakeDaemon(store, answers) as daemon:
        done = shim.ran()
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (code, out, err)
    assert len(daemon.asked) == times + more
    assert len({one for one in daemon.asked if one}) == 1, "each time the same"


@pytest.mark.parametrize("case", TABLE)
def test_after_a_call_it_stops_no_one(shim: Shim, case: str, store: Path) -> None:
    answers, (code, out, err), _ = TABLE[case]
    is_understood = err not in (ENDED, MIDDLE)

    with FakeDaemon(store, answers):
        done = shim.ran(AFTER)
    wanted = (code, out, err) if is_understood else (0, "", "")
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == wanted


# What is asked.


class Names:
    """An environment with two of a name, as a program may get it."""

    def __init__(self, *pairs: tuple[bytes, bytes]) -> None:
        self._pairs = pairs

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._pairs)


def test_what_it_asks(shim: Shim, store: Path) -> None:
    told = [
        (b"HOME", b"/home/\xff\xfe"), (b"CLAUDE_X", b"a=b\nc"), (b"TAKEBACK_STORE", os.fsencode(store)),
        (b"CODEX", b""), (b"USERNAME", b"u"), (b"PATH", b"/usr/bin:/bin"), (b"GEMINI_\xc3", b"\x01"),
    ]  # fmt: skip
    others = [
        (b"LANG", b"C"),
        (b"HOM", b"E=1"),
        (b"XHOME", b"x"),
        (b"home", b"x"),
        (b"ASAN_OPTIONS", b"detect_leaks=0"),
    ]
    pairs = [*told[:2], *others, *told[2:], (b"HOME", b"/another"), (b"CODEX", b"more")]
    payload = b'{"a": "' + bytes(range(256)) * 1000 + b'"}'

    with FakeDaemon(store, [GOOD]) as daemon:
        done = shim.ran(payload=payload, env=Names(*pairs))

    assert done.returncode == 0, done.stderr
    environment = b"\0".join(b"=".join(pair) for pair in told)
    head = f"takeback 1 claude-code {BEFORE} {os.getpid()} {len(environment)} {len(payload)} {ROOT}\n"
    assert daemon.asked == [head.encode() + environment + payload]


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"TAKEBACK_STORE": "{top}/a store"}, "a store"),
        ({"TAKEBACK_STORE": "~/mine", "HOME": "{top}"}, "mine"),
        ({"TAKEBACK_STORE": "relative"}, "relative"),
        ({"TAKEBACK_STORE": "", "XDG_STATE_HOME": "{top}/state", "HOME": "/none"}, "state/takeback"),
        ({"XDG_STATE_HOME": "state", "HOME": "{top}"}, ".local/state/takeback"),
        ({"HOME": "{top}"}, ".local/state/takeback"),
        ({"TAKEBACK_STORE": "{top}/" + "x" * 200 + "/" + "y" * 200}, "x" * 200 + "/" + "y" * 200),
    ],
)
def test_where_it_asks(shim: Shim, tmp_path: Path, environment: dict[str, str], place: str) -> None:
    told = {name: value.format(top=tmp_path) for name, value in environment.items()}
    with FakeDaemon(tmp_path / place, [GOOD]) as daemon:
        done = shim.ran(env={**told, "ASAN_OPTIONS": "detect_leaks=0"}, cwd=tmp_path)
    assert (done.returncode, len(daemon.asked)) == (0, 1)


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "HOME is not set"),
        ({"HOME": "/none", "TAKEBACK_STORE": "/proc/none"}, "takeback did not let this call through"),
    ],
)
def test_where_it_cannot_ask(shim: Shim, environment: dict[str, str], why: str) -> None:
    told = {**environment, "ASAN_OPTIONS": "detect_leaks=0"}
    done = shim.ran(env=told)
    assert done.returncode == 2
    assert why in done.stderr.decode() and OFF in done.stderr.decode()
    assert shim.ran(AFTER, env=told).returncode == 0


# Time.


def _silent(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def _slow(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    time.sleep(0.6)  # noqa: TID251 a daemon that takes its time, and then dies


def _no_taker(connection: socket.socket) -> None:
    """It does not even read."""
    connection.settimeout(20)
    time.sleep(SHORT + 0.5)  # noqa: TID251


@pytest.mark.parametrize("silent", [_silent, _no_taker])
def test_a_daemon_that_is_silent_is_not_asked_again(hurried: Shim, store: Path, silent: Answer) -> None:
    with FakeDaemon(store, [silent, GOOD]) as daemon:
        done = hurried.ran(payload=b"x" * (8 << 20))
        assert (done.returncode, len(daemon.asked)) == (2, 1)
    assert "its daemon did not answer in time." in done.stderr.decode() and OFF in done.stderr.decode()


def test_the_time_is_counted_from_the_first_request(hurried: Shim, store: Path) -> None:
    waited: list[float] = []

    def silent(connection: socket.socket) -> None:
        start = time.monotonic()
        _silent(connection)
        waited.append(time.monotonic() - start)

    with FakeDaemon(store, [_slow, silent]) as daemon:
        done = hurried.ran()
        assert (done.returncode, len(daemon.asked)) == (2, 2)
    assert "did not answer in time" in done.stderr.decode()
    assert waited[0] < 0.7 * SHORT, "the first one took 0.6"


def test_a_signal_ends_it_and_a_stop_does_not(shim: Shim, store: Path) -> None:
    def answers_later(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        process = waiting.get(timeout=20)
        os.kill(process, signal.SIGSTOP)
        until(lambda: b") T " in Path(f"/proc/{process}/stat").read_bytes())
        os.kill(process, signal.SIGCONT)
        connection.sendall(GOOD)

    waiting: Queue[int] = Queue()

    with FakeDaemon(store, [answers_later, _silent]) as daemon:
        for wanted in (0, -signal.SIGTERM):
            process = subprocess.Popen(shim.words(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin and process.stdout
            process.stdin.close()
            waiting.put(process.pid)
            if wanted:
                until(lambda: len(daemon.asked) == 2)
                process.terminate()
            assert process.wait(20) == wanted
            process.stdout.close()


# Streams.


def test_a_payload_that_is_too_long(shim: Shim, store: Path) -> None:
    with FakeDaemon(store, [GOOD]) as daemon:
        done = shim.ran(payload=b"x" * ((64 << 20) + 1))
        assert (done.returncode, daemon.asked) == (2, [])
        assert "what the agent said is too long" in done.stderr.decode()
        assert shim.ran(payload=b"x" * (64 << 20)).returncode == 0


@pytest.mark.parametrize("around", ["<&-", "</", "<&- >&-"])
def test_a_payload_that_cannot_be_read(shim: Shim, store: Path, around: str) -> None:
    with FakeDaemon(store, [GOOD]) as daemon:
        assert shim.ran(around=around).returncode in (
            1,
            2,
        )  # Python itself ends with 1 if stdin is a directory
        if around != "</":
            assert shim.ran(AFTER, around=around).returncode == 0
    assert daemon.asked == []


def test_a_payload_that_breaks_off_is_not_taken_for_the_whole(shim: Shim, store: Path) -> None:
    """The error comes once, and then the stream is at its end."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"never read")
    ours.sendall(b"{}")
    ours.close()
    with theirs, FakeDaemon(store, [GOOD]) as daemon:
        done = subprocess.run(shim.words(), stdin=theirs, capture_output=True, check=False)
    assert (done.returncode, daemon.asked) == (2, [])
    assert OFF in done.stderr.decode()


@pytest.mark.parametrize("around", [">&-", ">/dev/full", ">&- 2>&-"])
def test_an_answer_that_cannot_be_written_is_none(shim: Shim, store: Path, around: str) -> None:
    with FakeDaemon(store, [GOOD]):
        assert shim.ran(around=around).returncode != 0
        if "2>" not in around:
            assert shim.ran(AFTER, around=around).returncode == 0
            assert b"takeback did not let this call through" in shim.ran(around=around).stderr


def test_no_one_reads_the_answer(shim: Shim, store: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with FakeDaemon(store, [GOOD]):
        done = subprocess.run(shim.words(), input=b"{}", stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 2
    assert b"takeback did not let this call through" in done.stderr


# The compiled one alone.


def test_no_python_is_started_when_a_daemon_answers(compiled: Path, store: Path) -> None:
    with FakeDaemon(store, [GOOD]):
        words = Shim(compiled).words(python="/nonexistent/python")
        done = subprocess.run(words, input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"{}\n")


@pytest.mark.parametrize(("name", "off"), [("claude-code", OFF), ("claude-sdk", OFF_IN_A_PROGRAM)])
@pytest.mark.parametrize("answers", [[], [b""], [b"what?"]])
def test_without_a_python_to_hand_over_to_a_call_is_denied(
    compiled: Path, store: Path, answers: list[bytes], name: str, off: str
) -> None:
    shim = Shim(compiled, host=name)
    for event, code in ((BEFORE, 2), (AFTER, 0)):
        words = shim.words(event, "/nonexistent/python")
        if answers:
            with FakeDaemon(store / event, answers):
                env = {**os.environ, "TAKEBACK_STORE": str(store / event)}
                done = subprocess.run(words, input=b"{}", capture_output=True, env=env, check=False)
        else:
            done = subprocess.run(words, input=b"{}", capture_output=True, check=False)
        assert done.returncode == code
        if code:
            first, second = f"{done.stderr.decode()}\n".split("\n", 2)[:2]
            assert first == (
                "takeback did not let this call through, because it could not record a way back: its hook could not "
                "start Python (No such file or directory)."
            )
            assert second == off
        else:
            assert done.stderr == b""


def test_a_reader_that_takes_its_time_and_a_writer_too(compiled: Path, store: Path) -> None:
    """Streams that do not block, as some agents give them."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs, FakeDaemon(store, [b"0 1000000 0\n" + b"x" * 1_000_000]) as daemon:
        process = subprocess.Popen(Shim(compiled).words(), stdin=theirs, stdout=theirs)
        ours.sendall(b'{"a": ')
        ours.sendall(b"1}")
        ours.shutdown(socket.SHUT_WR)
        until(lambda: daemon.asked)
        left = 1_000_000
        while left:
            left -= len(ours.recv(1 << 16))
        assert process.wait(20) == 0
    assert daemon.asked[0].endswith(b'{"a": 1}')


@pytest.mark.parametrize("words", [[], ["python"], ["python", "-I", "shim.py", "claude-code", BEFORE]])
def test_without_a_command_it_does_nothing(compiled: Path, words: list[str]) -> None:
    assert subprocess.run([compiled, *words], input=b"{}", check=False).returncode == 64
