"""`takeback shell`, as a person and a script use it."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from takeback.frontends.cli.programs.shell_lines import commands, from_list, goes_on
from tests.world import World

LIMIT = 240


@pytest.fixture(autouse=True)
def in_the_project(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands mean the project that they are called in."""
    monkeypatch.chdir(world.root)


def shell(world: World, *words: str, script: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "takeback", "shell", *words],
        cwd=world.root, input=script, stdin=subprocess.DEVNULL if script is None else None,
        timeout=LIMIT, check=False, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.root
def test_a_script_is_carried_out_line_by_line_and_nothing_is_seen_outside(world: World) -> None:
    said = shell(
        world,
        script="echo one > a\nfor n in 1 2\ndo echo $n >> b\ndone\ncat <<X\nhello\nX\nrm a; false\nls; cat b\n",
    )

    assert (said.returncode, said.stdout) == (0, "hello\na\nb\n1\n2\n")
    assert "it failed (exit code 1), so nothing was changed" in said.stderr
    assert "has 2 steps" in said.stderr and "--box" in said.stderr
    assert os.listdir(world.root) == []


@pytest.mark.root
def test_its_words_take_back_and_bring_back(world: World) -> None:
    said = shell(
        world,
        script="touch a\ntouch b\n:undo\nls\n:redo\nls | wc -l\n:history\n:changes\n:branch\ntouch c\n:help\n",
    )

    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[:2] == ["a", "2"]
    assert lines[2].endswith("touch a") and lines[3].endswith("touch b")
    assert [line[:2] for line in lines[4:6]] == ["+ ", "+ "] and ":undo" in said.stdout
    assert "Took back 1 step" in said.stderr and "Brought back 1 step" in said.stderr
    assert "continues from here" in said.stderr


@pytest.mark.root
def test_each_undo_is_brought_back_as_a_whole(world: World) -> None:
    said = shell(
        world,
        script="touch a\ntouch b\ntouch c\n:undo 2\n:undo\nls\n:redo\nls\n:redo\nls\n:commit\n:undo 2\n:redo\n",
    )

    assert (said.returncode, said.stdout) == (0, "a\na\nb\nc\n"), said.stderr
    assert "Took back 2 steps" in said.stderr and "Brought back 2 steps" in said.stderr
    assert sorted(os.listdir(world.root)) == ["a", "b", "c"]


@pytest.mark.root
def test_a_base_without_a_shell_is_told(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = shell(world, "--base", str(tmp_path / "empty"), "-c", "true")

    assert said.returncode == 125 and "hint:" in said.stderr
    assert f"No line can be run here: /bin/sh of {tmp_path / 'empty'} could not be started" in said.stderr


@pytest.mark.root
def test_the_exit_code_is_that_of_the_last_command_and_ours_is_125(world: World) -> None:
    assert shell(world, "-c", "true", "-c", "sh -c 'exit 3'").returncode == 3
    assert shell(world, "-c", "exit 4", "-c", "touch a").returncode == 4
    assert shell(world, "-e", "-c", "sh -c 'exit 5'", "-c", "true").returncode == 5
    lines = (":undo", ":undo ²", ":export 'x", ":nonsense")
    for wrong in (*(["-c", line] for line in lines), ["--box", "nosuch"], ["--timeout", "-1"]):
        said = shell(world, *wrong)
        assert said.returncode == 125 and said.stderr.startswith("error: "), said.stderr
    told = subprocess.run(
        [sys.executable, "-m", "takeback", "runs"], timeout=LIMIT, check=True, capture_output=True, text=True
    )
    assert "shell" in told.stdout and " open " not in told.stdout


@pytest.mark.root
def test_a_box_is_gone_on_with_committed_and_exported(world: World, tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(shell(world, "--json", "-c", "echo 1 > a; cd /; echo out").stdout)
    (command,) = told["commands"]
    assert command["stdout"] == "out\n" and command["effect"]["adapter"] == "box"
    assert [one["kind"] for one in command["changes"]] == ["added"] and told["committed"] is None
    (listed,) = json.loads(shell(world, "--list", "--json").stdout)
    assert listed["box"] == told["box"] and listed["layers"] == 1 and listed["cwd"] == "/"

    said = shell(world, "--box", told["box"][:8], "--commit", "-c", "pwd")

    assert said.stdout == "/\n" and "Committed" in said.stderr
    assert (world / "a").read_text() == "1\n"
    undone = subprocess.run(
        [sys.executable, "-m", "takeback", "undo", "--cascade", "@~1"],
        check=False, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert undone.returncode == 0, undone.stderr
    assert os.listdir(world.root) == []


@pytest.mark.root
def test_a_script_whose_directory_is_gone_wipes_no_other(world: World) -> None:
    (world / "precious").write_text("x")
    said = shell(world, "--commit", script="mkdir t && cd t && echo x > x\nrm -rf ../t\nrm -rf *\n")

    assert said.returncode == 0, said.stderr
    assert f"{world / 't'} cannot be entered any more, so it ran in an empty directory; `cd`" in said.stderr
    assert os.listdir(world.root) == ["precious"]


def takeback(*words: str) -> str:
    said = subprocess.run(
        [sys.executable, "-m", "takeback", *words], check=False, capture_output=True, text=True, timeout=LIMIT
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.root
def test_undo_after_a_commit_takes_back_the_commit_and_leaves_the_box_its_steps(world: World) -> None:
    told = json.loads(shell(world, "--json", "-c", "echo 1 > a", "-c", "echo 2 > b").stdout)
    shell(world, "--box", told["box"], "-c", ":commit")
    assert sorted(os.listdir(world.root)) == ["a", "b"]

    takeback("undo")

    assert os.listdir(world.root) == []
    (listed,) = json.loads(shell(world, "--list", "--json").stdout)
    assert listed["layers"] == 2
    takeback("redo")
    assert sorted(os.listdir(world.root)) == ["a", "b"]
    takeback("undo")
    said = shell(world, "--box", told["box"], "-c", "cat a b; echo 3 > b", "-c", ":commit")
    assert (said.returncode, said.stdout) == (0, "1\n2\n"), said.stderr
    assert (world / "b").read_text() == "3\n"


def kill_in_the_middle(world: World, *words: str) -> None:
    """A shell that has made a file, and waits for the next line."""
    with subprocess.Popen(
        [sys.executable, "-m", "takeback", "shell", *words],
        cwd=world.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdin and process.stdout
            process.stdin.write("echo 1 > a\necho told\n")
            process.stdin.flush()
            assert process.stdout.readline() == "told\n"
        finally:
            process.kill()


@pytest.mark.root
def test_the_run_of_a_killed_session_is_ended_and_its_steps_stay(world: World) -> None:
    kill_in_the_middle(world)

    takeback("recover")
    (run,) = json.loads(takeback("runs", "--all", "--json"))
    assert (run["state"], run["on_death"]) == ("accepted", "accept")
    (box,) = json.loads(shell(world, "--list", "--json").stdout)
    assert shell(world, "--box", box["box"], "-c", "cat a").stdout == "1\n"


DRY_SCRIPT = """\
echo one > a
echo two > b
rm there.txt; false
:undo
touch c
:commit
:export image.tar
ls; ls $TAKEBACK_STORE
exit 3
"""


def files_in(*roots: Path) -> dict[str, tuple[int, bytes]]:
    found = [file for root in roots for file in root.rglob("*")]
    return {str(one): (one.lstat().st_mode, one.read_bytes() if one.is_file() else b"") for one in found}


@pytest.mark.root
def test_a_dry_run_runs_the_commands_for_real_and_keeps_nothing(world: World, store: Path) -> None:
    (world / "there.txt").write_text("there")
    takeback("run", "--", "true")
    shell(
        world, "-c", "touch a", "-c", "touch b", "-c", ":changes"
    )  # its empty directories for scratch are there from now on
    before = files_in(world.root, store)

    said = shell(world, "--dry-run", "--commit", script=DRY_SCRIPT)

    assert (said.returncode, said.stdout) == (3, "a\nc\nthere.txt\n"), said.stderr
    assert said.stderr.splitlines() == [
        "takeback: it failed (exit code 1), so nothing was changed.",
        f"takeback: Took back 1 step; you are in {world.root}.",
        "takeback: Would merge: 2 added.",
        "takeback: Would export to image.tar.",
        "takeback: would change: 2 added; nothing was changed.",
        "  + a",
        "  + c",
    ]
    assert files_in(world.root, store) == before
    told = json.loads(shell(world, "--dry-run", "--json", "-c", "echo 1 > a; echo out", "-c", "false").stdout)
    assert told["dry_run"] is True
    assert [one["kind"] for one in told["changes"]] == ["added"]
    assert [(one["exit_code"], one["effect"], one["dropped"]) for one in told["commands"]] == [
        (0, None, None),
        (1, None, None),
    ]
    assert files_in(world.root, store) == before


@pytest.mark.root
def test_a_dry_run_makes_no_store_and_continues_no_box(world: World, store: Path) -> None:
    assert shell(world, "--dry-run", "-c", "touch a").returncode == 0
    assert not store.exists() and os.listdir(world.root) == []
    said = shell(world, "--dry-run", "--box", "abcd", "-c", "touch a")
    assert said.returncode == 125 and "`takeback shell --box abcd -c :changes`" in said.stderr


@pytest.mark.root
def test_the_next_command_removes_what_a_killed_dry_run_left(world: World, store: Path) -> None:
    shell(world, "-c", "true")
    kill_in_the_middle(world, "--dry-run")
    assert os.listdir(store / "commands")
    takeback("recover")
    assert os.listdir(store / "commands") == []
    assert [one["name"].split()[0] for one in json.loads(takeback("runs", "--all", "--json"))] == ["shell"]


@pytest.mark.root
def test_on_a_terminal_it_asks_and_a_failing_command_ends_nothing(world: World) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "takeback", "shell"],
        cwd=world.root,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    try:
        os.write(leader, b"echo si''de > a\ncat a; false\n:undo\n:undo\nls; exit 9\n")
        os.write(leader, b"exit 7\n")
        seen = read_until_closed(leader)
        assert process.wait(LIMIT) == 7
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert b"side" in seen and b"Took back 1 step" in seen and b"no step to take back" in seen
    assert os.listdir(world.root) == []


def read_until_closed(leader: int) -> bytes:
    seen, until = b"", time.monotonic() + LIMIT
    while time.monotonic() < until:
        if not select.select([leader], [], [], 1)[0]:
            continue
        try:
            seen += os.read(leader, 65536)
        except OSError:  # the other side was closed
            return seen
    raise AssertionError(seen)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("echo a", False), ("echo 'a", True), ("echo 'a\nb'", False), ("for i in 1 2; do", True),
        ("for i in 1; do echo; done", False), ("echo a \\", True), ("echo a \\\\", False), ("cat <<E", True),
        ("cat <<E\nx\nE", False), ("cat <<-E\n\tE", False), ("echo a |", True), (")", False), (":undo 'x", False),
        ("echo $((1<<2))", False),
    ],
)  # fmt: skip
def test_a_line_goes_on_when_a_shell_would_wait(text: str, more: bool) -> None:
    assert goes_on(text) is more


def test_comments_and_empty_lines_are_no_commands() -> None:
    lines = ["", "# a comment", "echo 1", "  ", "if true", "then echo 2", "fi"]
    assert list(commands(from_list(lines))) == ["echo 1", "if true\nthen echo 2\nfi"]


@pytest.mark.root
def test_show_and_diff_tell_what_a_step_changed(world: World) -> None:
    shell(world, "-c", "echo 1 > a; export SECRET=hidden; cd /", "-c", f"rm {world.root}/a")

    assert takeback("diff", "@") == "a: deleted\n"
    first = takeback("diff", "@~1")
    assert "\na: added" in first and "variable SECRET set" in first and "hidden" not in first
    assert f"current directory {world.root} → /" in first
    assert "box://" in takeback("show", "@") and "→" in takeback("show", "@")
    assert takeback("undo", "@").startswith("Took back")
    assert "Sound" in takeback("verify")


@pytest.mark.root
def test_what_is_listed_comes_before_what_later_commands_print(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody watches, and Python would rather print at the end."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    printed = tmp_path / "printed"
    script = "echo x > new\n:changes\necho three\n:undo\n:history\necho four\n"
    with open(printed, "wb") as file:
        subprocess.run(
            [sys.executable, "-m", "takeback", "shell"],
            cwd=world.root, input=script.encode(), stdout=file, stderr=subprocess.STDOUT, timeout=300, check=True,
        )  # fmt: skip
    lines = printed.read_text().splitlines()
    shown = [line for line in lines if not line.startswith("takeback:")]
    assert [line.split()[-1] for line in shown] == [str(world / "new"), "three", "(undone)", "four"], lines
