"""How far long work is: what a terminal shows of it, by a clock that the test sets."""

import io
import os
import pty
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.frontends.cli.output.terminal import BETWEEN, PATIENCE, Meter, line
from takeback.model.progress import SILENT, CountedBlobs, Progress
from tests.memory import MemoryBlobs


class Terminal(io.StringIO):
    """Remembers each write; it has no width, so it is 80 wide."""

    def fileno(self) -> int:
        raise OSError

    @property
    def lines(self) -> list[str]:
        return [one for one in self.getvalue().split("\r\033[K") if one]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def meter(terminal: Terminal, clock: Clock) -> Meter:
    return Meter(terminal, clock)


def work(meter: Progress, clock: Clock, steps: int, seconds: float, bytes: int = 0) -> None:
    for _ in range(steps):
        clock.now += seconds
        meter.moved(bytes, 1)


def test_what_ends_within_half_a_second_prints_nothing(
    meter: Meter, clock: Clock, terminal: Terminal
) -> None:
    with meter.stage("Saving"):
        meter.expect(100)
        work(meter, clock, 49, PATIENCE / 50)

    assert terminal.getvalue() == ""


def test_stages_that_follow_each_other_are_one_wait(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    for doing in ("Comparing", "Saving", "Restoring"):
        with meter.stage(doing):
            work(meter, clock, 3, 0.1)

    assert [one.split()[0] for one in terminal.lines] == ["Saving", "Restoring", "Restoring", "Restoring"]


def test_after_a_pause_it_waits_again(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    with meter.stage("Scanning"):
        work(meter, clock, 4, 0.1)
    clock.now += 60  # a command runs, and has the terminal
    with meter.stage("Reading"):
        work(meter, clock, 4, 0.1)

    assert terminal.getvalue() == ""


def test_at_most_ten_lines_a_second_and_none_at_the_end(
    meter: Meter, clock: Clock, terminal: Terminal
) -> None:
    with meter.stage("Restoring", "file"):
        meter.expect(3000)
        work(meter, clock, 3000, 0.001)

    assert 20 <= len(terminal.lines) <= (3 - PATIENCE) / BETWEEN + 1
    assert terminal.getvalue().endswith("\r\033[K")
    assert "\n" not in terminal.getvalue()


def test_it_tells_count_bytes_rate_and_rest(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    with meter.stage("Restoring", "file"):
        meter.expect(200, 200 << 20)
        work(meter, clock, 100, 0.1, 1 << 20)

    assert terminal.lines[-1] == "Restoring 100 of 200 files, 100 MB of 200 MB, 10 s left, 10.0 MB/s"


def test_without_a_known_end_it_tells_how_long(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    with meter.stage("Scanning"):
        work(meter, clock, 3000, 0.001)

    assert re.fullmatch(r"Scanning [23],\d\d\d paths, 3 s, 1,000/s", terminal.lines[-1])


@pytest.mark.parametrize(
    ("seconds", "told"), [(30, "30 s left"), (300, "5 min left"), (7260, "2 h 1 min left")]
)
def test_the_rest_in_words(meter: Meter, clock: Clock, terminal: Terminal, seconds: float, told: str) -> None:
    with meter.stage("Copying", "blob"):
        meter.expect(2)
        work(meter, clock, 1, seconds)

    assert terminal.lines[-1] == f"Copying 1 of 2 blobs, {told}"


def test_second_eyes_15_there_is_no_guess_from_the_first_hundredth(
    meter: Meter, clock: Clock, terminal: Terminal
) -> None:
    with meter.stage("Comparing"):
        meter.expect(1000)
        work(meter, clock, 1, 1)
        assert "left" not in terminal.lines[-1]
        work(meter, clock, 9, 1)

    assert terminal.lines[-1] == "Comparing 10 of 1,000 paths, 16 min left, 1/s"


def test_several_effects_are_counted_around_the_paths_of_each(
    meter: Meter, clock: Clock, terminal: Terminal
) -> None:
    with meter.stage("Taking back", "effect"):
        meter.expect(12)
        work(meter, clock, 3, 0.1)
        with meter.stage("Restoring"):
            meter.expect(40)
            work(meter, clock, 4, 0.1)

    assert terminal.lines[-1].startswith("Taking back 3 of 12 effects, Restoring 4 of 40 paths")


def test_one_effect_is_not_counted(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    with meter.stage("Taking back", "effect"):
        meter.expect(1)
        work(meter, clock, 1, 0.1)
        with meter.stage("Restoring"):
            work(meter, clock, 9, 0.1)

    assert terminal.lines[-1].startswith("Restoring 9 paths")


@pytest.mark.parametrize("width", range(1, 90))
def test_a_line_never_is_wider_than_the_terminal(width: int) -> None:
    parts = ["Restoring 1,204 of 9,061 paths", "12.3 MB of 120 MB", "12 s left", "3.1 MB/s"]
    told = line(parts, width)

    assert len(told) <= width
    assert told == parts[0][:width] or all(one in parts for one in told.split(", "))


def test_the_width_is_asked_of_the_terminal_itself(clock: Clock) -> None:
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        meter = Meter(stream, clock)
        for columns in (12, 40):
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("=HHHH", 24, columns, 0, 0))
            with meter.stage("Restoring"):
                meter.expect(9061, 1 << 30)
                work(meter, clock, 9, 0.1, 1 << 20)
            stream.write("\n")
            stream.flush()
            read = b""
            while b"\n" not in read:
                read += os.read(ours, 65536)
            shown = read.decode().rstrip("\r\n").split("\r\033[K")
            assert all(len(one) < columns for one in shown)
            assert any(one == "Restoring 9 of 9,061 paths"[: columns - 1] for one in shown), shown
    os.close(ours)


def test_who_writes_to_the_terminal_finds_an_empty_line(
    meter: Meter, clock: Clock, terminal: Terminal
) -> None:
    with meter.stage("Taking back", "effect"):
        meter.expect(2)
        work(meter, clock, 1, 1)
        meter.aside()
        before = terminal.getvalue()
        meter.aside()  # once is enough

    assert before.endswith("\r\033[K")
    assert terminal.getvalue() == before


def test_an_error_leaves_no_line(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    with pytest.raises(ZeroDivisionError), meter.stage("Saving"), meter.stage("Reading"):
        work(meter, clock, 1, 1)
        raise ZeroDivisionError

    assert terminal.getvalue().endswith("\r\033[K")
    with meter.stage("Restoring"):
        work(meter, clock, 1, 1)
    assert terminal.lines[-1].startswith("Restoring")


def test_other_threads_count_and_do_not_draw(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    def elsewhere() -> None:
        with meter.stage("Never shown"):
            work(meter, clock, 5, 1)

    with meter.stage("Reading"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert terminal.getvalue() == ""
        work(meter, clock, 1, 1)

    assert terminal.lines[-1].startswith("Reading 6 paths")


def test_somebody_elses_work_shows_its_time(meter: Meter, clock: Clock, terminal: Terminal) -> None:
    with meter.stage("Restoring", ticks=True):
        clock.now += 2
        drawn = threading.Event()
        terminal.flush = drawn.set  # type: ignore[method-assign]
        assert drawn.wait(60)

    assert terminal.lines[0] == "Restoring, 2 s"
    assert terminal.getvalue().endswith("\r\033[K")


def test_a_terminal_that_is_gone_is_no_trouble(clock: Clock) -> None:
    class Gone(Terminal):
        def write(self, text: str, /) -> int:
            raise OSError

    meter = Meter(Gone(), clock)
    with meter.stage("Saving"):
        work(meter, clock, 9, 1)


def test_blobs_are_counted_as_they_come_and_go() -> None:
    moved: list[int] = []
    blobs = CountedBlobs(MemoryBlobs(), moved.append)

    def pieces() -> Iterator[bytes]:
        yield b"one"
        yield b"three"

    first, second = blobs.put(b"1234"), blobs.put(pieces())

    assert moved == [4, 3, 5]
    assert (b"".join(blobs.read(first)), b"".join(blobs.read(second))) == (b"1234", b"onethree")
    assert sum(moved) == 2 * 12
    assert blobs.has(first)


class Counts(Progress):
    """One large file is one path: only its bytes say how far it is."""

    draws = True

    def __init__(self) -> None:
        self.expected = 0
        self.pieces: list[int] = []

    def expect(self, items: int = 0, bytes: int = 0) -> None:
        self.expected += bytes

    def moved(self, bytes: int = 0, items: int = 0) -> None:
        if bytes:
            self.pieces.append(bytes)


@pytest.mark.parametrize("size", [10, 9 << 20])
@pytest.mark.parametrize("work", ["delete", "undo", "refused undo", "refused undo of a command"])
def test_the_bytes_of_one_file_are_counted_while_it_is_read(tmp_path: Path, work: str, size: int) -> None:
    path = tmp_path / "world" / "large"
    path.parent.mkdir()
    path.write_bytes(b"x" * size)
    with takeback.open(tmp_path / "store") as tb, tb.run("before") as run:
        if work == "refused undo of a command":
            run.command(["sed", "-i", "s/x/y/", "large"], cwd=path.parent)
        elif work != "delete":
            run.write(path, b"y" * size)
    if work.startswith("refused"):
        path.write_bytes(b"z" * size)
    counts = Counts()

    with takeback.open(tmp_path / "store") as tb:
        opened_of(tb).progress = counts
        if work == "delete":
            with tb.run("now") as run:
                run.delete(path)
        elif work == "undo":
            tb.undo(tb.effects()[0])
        else:
            with pytest.raises(takeback.Refused):
                tb.undo(tb.effects()[0])

    assert counts.expected >= size
    assert sum(counts.pieces) >= size
    assert max(counts.pieces) <= 4 << 20


def test_where_nobody_looks_on_nothing_is_done() -> None:
    with SILENT.stage("Saving"), SILENT.stage("Reading", ticks=True):
        SILENT.expect(1, 2)
        SILENT.moved(1, 2)
        SILENT.aside()
    assert not SILENT.draws
