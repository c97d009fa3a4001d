"""What a command in place can be taken back from, and what is said where it reaches further."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.adapters.watch.processes import identity
from tests.watch.test_in_place import Desk, desk, ended, until

__all__ = ["desk"]

# It rewrites a file without a pause until it is told to stop, and says that it has begun.
WRITER = """
import os, sys
file = open("busy", "r+b", buffering=0)
turn = 0
while not os.path.exists("../stop"):
    turn += 1
    file.seek(0)
    file.write(bytes([48 + turn % 10]) * 1_000_000)
    if turn == 3:
        open("../begun", "w").close()
"""


def test_finding_9_old_content_comes_back_by_force_though_the_file_was_busy_at_the_end(desk: Desk) -> None:
    (desk.tree / "busy").write_bytes(b"P" * 1_000_000)
    (desk.tree / "other").write_text("1")
    writer = desk.tree.parent / "writer.py"
    writer.write_text(WRITER)
    started = f"{sys.executable} {writer} >/dev/null 2>&1 & echo $! > ../pid"
    line = f"{started}; while ! [ -e ../begun ]; do :; done; echo 2 > other"
    ran = desk.in_place(line)
    (desk.tree.parent / "stop").touch()
    assert ran.returncode == 0, ran
    until(lambda: ended(int((desk.tree.parent / "pid").read_text())))

    said = desk.takeback("undo")
    assert said.returncode == 1, said
    assert "--force" in said.stderr, "it can be had back, and how is said"
    assert (desk.tree / "other").read_text() == "1"
    left = (desk.tree / "busy").read_bytes()
    assert left != b"P" * 1_000_000

    said = desk.takeback("undo", "--force")
    assert said.returncode == 0, said
    assert (desk.tree / "busy").read_bytes() == b"P" * 1_000_000
    assert desk.takeback("redo").returncode == 0
    assert (desk.tree / "busy").read_bytes() == left


@pytest.mark.parametrize(
    "line",
    [
        "ln a b; rm a; cp -a b a",
        "mkdir d; ln a d/b; rm a; cp -a d/b a",
        "mkdir ../o/d; ln a ../o/d/b; rm a; cp -a ../o/d/b a",
        "mv a b; cp -a b a",
        "ln a b; rm a; echo new > a",
    ],
)
def test_finding_20_a_captured_file_under_a_new_name_goes_with_the_undo(desk: Desk, line: str) -> None:
    other = desk.tree.parent / "o"
    other.mkdir()
    (desk.tree / "a").write_text("old")
    os.utime(desk.tree / "a", (1_000_000_000, 1_000_000_000))
    before = desk.world()
    ran = desk.in_place(line, "--root", str(desk.tree), "--root", str(other))
    assert ran.returncode == 0, ran
    assert "left" not in ran.stderr
    said = desk.takeback("undo")
    assert said.returncode == 0, said
    assert desk.world() == before
    assert os.listdir(other) == []


@pytest.mark.parametrize("line", ["echo more >> inside", "rm inside", "rm inside; echo new > inside"])
def test_finding_35_a_file_with_a_name_outside_the_root_is_not_told_as_exact(desk: Desk, line: str) -> None:
    outside = desk.tree.parent / "outside"
    outside.write_text("both\n")
    os.link(outside, desk.tree / "inside")
    ran = desk.in_place(line)
    assert ran.returncode == 0, ran
    assert "name outside" in ran.stderr
    effect = json.loads(desk.takeback("show", "@", "--json").stdout)
    assert effect["exact"] is False
    assert "separate files" in effect["residue"]


def test_finding_35_names_that_all_lie_in_the_roots_are_exact(desk: Desk) -> None:
    other = desk.tree.parent / "o"
    other.mkdir()
    (desk.tree / "one").write_text("both\n")
    os.link(desk.tree / "one", desk.tree / "dir" / "two")
    ran = desk.in_place("echo more >> one; chmod 600 one")
    assert "outside" not in ran.stderr
    assert json.loads(desk.takeback("show", "@", "--json").stdout)["exact"] is True
    assert desk.takeback("undo").returncode == 0
    assert os.path.samefile(desk.tree / "one", desk.tree / "dir" / "two")


def test_finding_37_a_command_that_changed_nothing_below_its_root_says_that_nothing_was_recorded(
    desk: Desk,
) -> None:
    ran = desk.in_place("echo new > ../elsewhere; echo x > ../gone; rm ../gone; : >> dir/file")
    assert ran.returncode == 0
    assert (
        "no change by this command was seen below the current directory, so none was recorded" in ran.stderr
    )
    answer = json.loads(desk.in_place("true", "--json").stdout)
    assert "nothing was recorded" in answer["text"]
    assert desk.in_place("true", "-q").stderr == ""


@pytest.mark.root
def test_finding_37_what_the_command_changed_outside_is_named_where_the_kernel_tells(desk: Desk) -> None:
    outside = desk.tree.parent / "elsewhere"
    (desk.tree.parent / "victim").touch()
    ran = desk.in_place(
        "echo new > ../elsewhere; rm ../victim; echo x > ../gone; rm ../gone; cat ../elsewhere > in"
    )
    (line,) = [line for line in ran.stderr.splitlines() if "Not recorded" in line]
    assert str(outside) in line
    assert str(desk.tree.parent / "victim") in line
    assert "gone" not in line, "what it made and removed again is of no interest"
    assert str(desk.store) not in line
    assert "1 added" in ran.stderr
    answer = json.loads(desk.in_place("rm ../elsewhere", "--json").stdout)
    assert str(outside) in answer["coverage"]


@pytest.mark.root
@pytest.mark.parametrize("several", [False, True], ids=["one run", "two runs"])
def test_finding_27_two_watches_of_one_tree_each_get_what_their_own_command_did(
    tmp_path: Path, several: bool
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("1")
    with takeback.open(tmp_path / "store") as tb:
        run = tb.session("x")
        other = tb.session("y") if several else run
        commands = [
            subprocess.Popen(["sh", "-c", f"read x; echo 2 > {tree}/{name}"], stdin=subprocess.PIPE)
            for name in "AB"
        ]
        one, two = (
            who.watch(tree, about={"process": identity(command.pid)}, summary=name)
            for who, command, name in zip((run, other), commands, "AB", strict=True)
        )
        one.begin()
        two.begin()
        for command in commands:
            command.communicate(b"\n")
        one.finish()
        two.finish()
        assert [change.path for change in one.changes] == [str(tree / "A")]
        assert [change.path for change in two.changes] == [str(tree / "B")]
        run.leave()
        if several:
            other.leave()


def test_finding_27_where_nobody_tells_people_and_tool_apart_the_coverage_says_so(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with takeback.open(tmp_path / "store") as tb, tb.run("x") as run:
        with run.watch(tree) as watched:  # no command is named, as for an ordinary user
            (tree / "by a person").touch()
        assert "recorded as part of it" in watched.coverage
        assert watched.effect is not None
        assert "recorded as part of it" in watched.effect.change.args["coverage"]
