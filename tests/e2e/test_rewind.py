"""`takeback rewind`, at a real terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.e2e.conversations import Conversation
from tests.world import World

UP, DOWN, RIGHT, LEFT, PAGE_DOWN, ESCAPE, ENTER = (
    "\x1b[A",
    "\x1b[B",
    "\x1b[C",
    "\x1b[D",
    "\x1b[6~",
    "\x1b",
    "\r",
)
_PATIENCE = 60


def _own_terminal() -> None:
    """So that a change of its size is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


class Terminal:
    """A command at a terminal of its own; what it draws is read as frames."""

    def __init__(
        self,
        directory: Path,
        *words: str,
        size: tuple[int, int] = (24, 80),
        program: tuple[str, ...] = COMMAND,
        **environment: str,
    ) -> None:
        self._ours, self.theirs = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.theirs)
        self.all = ""
        self._left = b""
        self.child = subprocess.Popen(
            [*program, *words], cwd=directory, env=surroundings() | {"TERM": "xterm"} | environment,
            stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 it is one system call
        )  # fmt: skip

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("=HHHH", rows, columns, 0, 0))

    def press(self, *keys: str) -> "Terminal":
        for key in keys:
            os.write(self._ours, key.encode())
        return self

    @property
    def frame(self) -> list[str]:
        """The last one that was drawn, without colours."""
        last = self.all.rpartition("\x1b[H")[2].partition("\x1b[J")[0]
        return [_plain(line) for line in re.split("\r*\n", last)]

    @property
    def chosen(self) -> str:
        return next((line for line in self.frame if line.startswith("> ")), "").rstrip()

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.frame)

    def until(self, true: Callable[["Terminal"], object]) -> "Terminal":
        """Read what it draws until that is so."""
        ends = time.monotonic() + _PATIENCE
        while not true(self):
            assert time.monotonic() < ends, "\n".join(self.frame)
            assert self._read(), f"It ended: {self.all}"
        return self

    def _read(self) -> bool:
        if select.select([self._ours], [], [], 0.2)[0]:
            self._left += os.read(self._ours, 65536)
            whole = self._left.rpartition(b"\x1b[J")  # frames are read whole, so no character is cut
            rest = whole[2] if whole[1] else self._left
            try:
                self.all += (whole[0] + whole[1]).decode() + rest.decode()
                self._left = b""
            except UnicodeDecodeError:
                pass
            return True
        return self.child.poll() is None

    def sees(self, *texts: str) -> "Terminal":
        return self.until(lambda at: all(at.shows(text) for text in texts))

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it said after the list was gone. The terminal is as it was."""
        ends = time.monotonic() + _PATIENCE
        while self._read():
            assert time.monotonic() < ends, self.all
        while select.select([self._ours], [], [], 0)[0]:
            self.all += os.read(self._ours, 65536).decode()
        self.assert_restored()
        return self.child.wait(), _plain(self.all.rpartition("\x1b[?1049l")[2].replace("\r\n", "\n"))

    def assert_restored(self) -> None:
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.all.count("\x1b[?1049h") == self.all.count("\x1b[?1049l")
        for off, on in (("\x1b[?25l", "\x1b[?25h"), ("\x1b[?7l", "\x1b[?7h")):
            assert self.all.rfind(on) >= self.all.rfind(off)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def scene(store: Path, world: World) -> Conversation:
    os.mkdir(world / ".git")
    (world / "a").write_text("one\n")
    (world / "b").write_text("two\n")
    agent = Conversation(store, Path(world.root))
    agent.says("fix the parser")
    agent.shell("echo x >> a")
    agent.edits({"c": "new\n"})
    agent.says("what does it do?")
    agent.says("now the tests")
    agent.shell("rm b; echo y >> a")
    return agent


Opens = Callable[..., Terminal]


@pytest.fixture
def rewind(world: World) -> Iterator[Opens]:
    opened: list[Terminal] = []

    def opens(*words: str, size: tuple[int, int] = (24, 80), **environment: str) -> Terminal:
        opened.append(Terminal(world.root, "rewind", *words, size=size, **environment))
        return opened[-1]

    yield opens
    for one in opened:
        one.close()


def test_the_last_prompt_goes_back_by_two_keys(world: World, scene: Conversation, rewind: Opens) -> None:
    at = rewind().sees("Would take back 1 effect: 2 paths", "-y", "+two")
    assert "3  " in at.chosen and "now the tests  (1 call)" in at.chosen

    at.press(ENTER).sees("Take back 1 effect (2 paths)? y/N").press("y")

    code, said = at.ended()
    assert (code, "Took back 2 files" in said, "takeback redo" in said) == (0, True, True)
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\nx\n", "two\n")


def test_an_earlier_prompt_is_chosen_by_the_arrows(
    takeback: CommandLine, world: World, scene: Conversation, rewind: Opens
) -> None:
    after = world.picture()
    at = rewind().sees("Would take back 1 effect").press(DOWN)
    at.until(lambda at: "what does it do?  (no changes)" in at.chosen).sees("Would take back 1 effect")
    at.press(DOWN).sees("Would take back 3 effects: 3 paths")
    at.press(DOWN, DOWN, UP, DOWN)  # there is nothing below
    at.press(ENTER).sees("Take back 3 effects").press("y")

    assert at.ended()[0] == 0
    assert (world / "a").read_text() == "one\n" and not (world / "c").exists()
    takeback.done("redo")
    assert world.picture() == after


def test_a_call_is_a_point_too(world: World, scene: Conversation, rewind: Opens) -> None:
    at = rewind().sees("fix the parser  (2 calls)").press(DOWN, DOWN, RIGHT)
    at.sees("write c", "Bash: echo x >> a").press(DOWN).sees("Would take back 2 effects: 3 paths")
    assert "write c" in at.chosen

    at.press(LEFT).until(lambda at: "fix the parser" in at.chosen and not at.shows("write c"))
    at.press(RIGHT, DOWN).sees("Would take back 2 effects").press(ENTER).sees("y/N").press("y")

    code, said = at.ended()
    assert code == 0 and "Since before" in said
    assert (world / "a").read_text() == "one\nx\n" and not (world / "c").exists()


def test_later_edits_of_the_user_are_merged_and_conflicts_stay(
    world: World, scene: Conversation, rewind: Opens
) -> None:
    (world / "long").write_text("".join(f"line {number}\n" for number in range(20)))
    scene.says("edit")
    scene.shell("sed -i 's/line 2$/LINE 2/' long; echo agent > a; echo new > d")
    edited = (world / "long").read_text().replace("line 18", "my own line")
    (world / "long").write_text(edited)
    (world / "a").write_text("my own\n")

    at = rewind().sees("stays  a", "Would take back 1 effect: 2 paths")
    at.press(ENTER).sees("y/N").press("y")

    code, said = at.ended()
    assert (code, "conflict  a" in said) == (1, True)
    assert (world / "long").read_text() == edited.replace("LINE 2", "line 2")
    assert (world / "a").read_text() == "my own\n" and not (world / "d").exists()


@pytest.mark.parametrize(
    ("keys", "code"), [("q", 0), (ESCAPE, 0), ("\x03", 130), (f"{ENTER}n q", 0), (f"{ENTER}{ENTER}q", 0)]
)
def test_it_can_be_left_with_nothing_changed(
    takeback: CommandLine, world: World, scene: Conversation, rewind: Opens, keys: str, code: int
) -> None:
    before, records = world.picture(), takeback.done("status", "--json").json["records"]
    at = rewind().sees("Would take back 1 effect").press(keys)

    ended, said = at.ended()

    assert (ended, "Nothing was changed." in said) == (code, True)
    assert world.picture() == before
    assert takeback.done("status", "--json").json["records"] == records


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_terminal_is_restored_after_a_signal(
    world: World, scene: Conversation, rewind: Opens, number: int
) -> None:
    before = world.picture()
    at = rewind().sees("Would take back 1 effect")
    at.child.send_signal(number)

    code, said = at.ended()

    assert (code, "Traceback" in said) == (130 if number == signal.SIGINT else 128 + number, False)
    assert world.picture() == before


def test_the_terminal_is_restored_after_a_crash(world: World, scene: Conversation) -> None:
    """Something in us that breaks in the middle of the list."""
    script = (
        "import sys\n"
        "from takeback.frontends.cli.commands import rewind\n"
        "def broken(*words, **more):\n"
        "    raise RuntimeError('broken')\n"
        "rewind.preview = broken\n"
        "from takeback.frontends.cli.main import main\n"
        "sys.exit(main(['rewind']))\n"
    )
    at = Terminal(world.root, program=(sys.executable, "-c", script))
    code, said = at.ended()
    at.close()
    assert (code, "broken" in said) == (1, True)


def test_it_is_drawn_again_in_another_size(scene: Conversation, rewind: Opens) -> None:
    at = rewind(size=(24, 80)).sees("Would take back 1 effect")
    for rows, columns in ((6, 30), (2, 12), (1, 5), (40, 200), (24, 80)):
        at.resize(rows, columns)
        at.until(lambda at, rows=rows: len(at.frame) == rows)
        assert all(len(line) <= columns for line in at.frame), (rows, columns)
        if rows > 1:
            at.until(lambda at: at.chosen)
    at.press("q")
    assert at.ended()[0] == 0


@pytest.mark.parametrize("size", [(1, 1), (3, 20), (5, 40)])
def test_a_tiny_terminal_shows_what_fits(
    world: World, scene: Conversation, rewind: Opens, size: tuple[int, int]
) -> None:
    at = rewind(size=size).until(lambda at: at.all.count("\x1b[J") >= 2)
    assert len(at.frame) <= size[0] and all(len(line) <= size[1] for line in at.frame)
    at.press(ENTER, "y")
    assert at.ended()[0] == 0
    assert (world / "b").read_text() == "two\n"


def test_many_prompts_and_a_long_difference_scroll(
    world: World, store: Path, scene: Conversation, rewind: Opens
) -> None:
    for number in range(30):
        scene.says(f"question {number}")
    (world / "long").write_text("")
    scene.shell("seq 1000 > long")

    at = rewind(size=(12, 60)).sees("question 29", "Would take back 1 effect")
    first = at.frame
    at.press(PAGE_DOWN).until(lambda at: at.frame != first and at.shows("-1"))
    at.press("\x1b[F").until(lambda at: "fix the parser" in at.chosen)
    at.press("\x1b[H").until(lambda at: "question 29" in at.chosen).press("q")
    assert at.ended()[0] == 0


def test_without_colour_the_chosen_line_is_still_marked(scene: Conversation, rewind: Opens) -> None:
    at = rewind(NO_COLOR="1").sees("Would take back 1 effect")
    assert not re.search(r"\x1b\[[0-9;]*m", at.all) and "now the tests" in at.chosen
    at.press("q")
    assert at.ended()[0] == 0
    coloured = rewind().sees("Would take back 1 effect")
    assert "\x1b[7m" in coloured.all


def test_what_the_agent_does_in_between_is_not_taken_back_unseen(
    world: World, scene: Conversation, rewind: Opens
) -> None:
    at = rewind().sees("Would take back 1 effect").press(ENTER).sees("y/N")
    scene.shell("echo unseen > e")
    at.press("y")

    code, said = at.ended()
    assert (code, "in the meantime" in said) == (5, True)
    assert (world / "e").exists() and not (world / "b").exists()


def test_what_is_undone_is_listed_as_such_and_cannot_be_chosen(
    takeback: CommandLine, world: World, scene: Conversation, rewind: Opens
) -> None:
    takeback.done("undo", "--prompt")
    at = rewind().sees("now the tests  (1 call, undone)", "left to undo")
    at.press(ENTER).press("q")
    assert at.ended()[0] == 0
    assert (world / "a").read_text() == "one\nx\n"


def test_suspended_and_continued_it_gives_the_terminal_back_in_between(
    scene: Conversation, rewind: Opens
) -> None:
    at = rewind().sees("Would take back 1 effect").press("\x1a")
    at.until(lambda at: at.all.endswith("\x1b[?1049l"))
    pid, status = os.waitpid(at.child.pid, os.WUNTRACED)
    assert pid == at.child.pid and os.WIFSTOPPED(status)
    at.assert_restored()

    at.child.send_signal(signal.SIGCONT)
    at.until(lambda at: at.all.count("\x1b[?1049h") == 2).sees("Would take back 1 effect").press("q")
    assert at.ended()[0] == 0


def test_another_session_by_its_id(world: World, store: Path, scene: Conversation, rewind: Opens) -> None:
    other = Conversation(store, Path(world.root), "99887766-bb", "codex")
    other.says("theirs")
    other.shell("echo o > o")
    rewind().sees("Rewind codex 99887766").press("q")
    at = rewind("--session", "5f2c").sees("Rewind claude-code 5f2c9d71").press(ENTER).sees("y/N").press("y")
    assert at.ended()[0] == 0
    assert (world / "b").exists() and (world / "o").exists()


def test_without_a_terminal_the_commands_that_do_the_same_are_named(
    takeback: CommandLine, scene: Conversation, rewind: Opens
) -> None:
    said = takeback("rewind")
    assert (said.code, "takeback undo --prompt N --merge" in said.err, "takeback log" in said.err) == (
        2,
        True,
        True,
    )
    assert takeback("rewind", "--json").error["exit_code"] == 2
    at = rewind(TERM="dumb")
    while at.child.poll() is None:
        at._read()  # pyright: ignore[reportPrivateUsage]
    assert at.child.returncode == 2 and "\x1b[?" not in at.all


def test_without_a_session_it_says_so(takeback: CommandLine, world: World, rewind: Opens) -> None:
    at = rewind()
    assert at.ended()[0] == 2  # there is no store
    takeback.write("a", "1")
    at = rewind()
    code, _ = at.ended()
    assert (code, "No session of a coding agent" in at.all) == (3, True)
