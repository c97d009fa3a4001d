"""What `takeback run` and the changes of files say to someone on the first day."""

import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.mounts import tmpfs
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World


def test_finding_26_a_conflict_at_the_merge_is_told_to_a_quiet_user_too(
    takeback: CommandLine, world: World
) -> None:
    (world / "f").write_text("v\n")
    started = subprocess.Popen(
        [*COMMAND, "-q", "run", "--", "sh", "-c", "echo tool >> f; echo begun; read line"],
        cwd=world.root, env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout and started.stdout.readline() == b"begun\n"
    (world / "f").write_text("user\n")
    said = started.communicate(b"\n", timeout=200)[1].decode()
    assert started.returncode == 125
    assert "  ! f: " in said
    assert "takeback diff" in said, "where the work is now"
    assert (world / "f").read_text() == "user\n"


def test_first_day_7c_a_line_of_shell_as_one_word_gets_a_hint(takeback: CommandLine) -> None:
    for words in (("run", "echo hi > f"), ("run", "--in-place", "echo hi > f")):
        said = takeback(*words)
        assert said.code == 127, said
        assert "takeback run -- sh -c 'echo hi > f'" in said.err
    assert "sh -c 'cd /tmp'" in takeback("run", "--", "cd", "/tmp").err
    assert "sh -c" not in takeback("run", "--", "no-such-program", "x").err


def test_first_day_7m_what_was_deleted_is_counted_by_its_size(takeback: CommandLine, world: World) -> None:
    for words in (("run",), ("run", "--in-place")):
        (world / "one").write_bytes(b"x" * 3000)
        (world / "two").write_bytes(b"x" * 5000)
        said = takeback.done(*words, "--", "rm", "one", "two")
        assert "2 deleted (7.8 KB)" in said.err
        (world / "one").write_bytes(b"x" * 3000)
        said = takeback.done(*words, "--", "sh", "-c", "rm one; echo 12345 > three")
        assert "1 added, 1 deleted (6 bytes written, 2.9 KB deleted)" in said.err
        (world / "three").unlink()


def test_first_day_7o_the_example_is_one_of_the_command_that_was_typed(takeback: CommandLine) -> None:
    assert "takeback explain -- make" in takeback("explain").err


def test_first_day_7q_the_way_to_a_missing_directory_is_named(takeback: CommandLine, world: World) -> None:
    said = takeback("write", "new/dir/f", input="x")
    assert said.code == 2
    hint = "takeback mkdir -p new/dir"
    assert hint in said.err
    takeback.done("mkdir", "-p", world / "new" / "dir")
    takeback.done("write", "new/dir/f", input="x")


@pytest.mark.parametrize("name", [".", "..", "sub/.", "sub/..", "./"])
def test_first_day_7t_the_directory_one_stands_in_is_not_removed(
    takeback: CommandLine, world: World, name: str
) -> None:
    (world / "sub").mkdir()
    (world / "f").touch()
    said = takeback("rm", "-r", name, "f")
    assert said.code == 2, said
    assert (world / "sub").is_dir()
    assert (world / "f").exists(), "nothing of the line was done"


def test_first_day_7a_a_database_that_is_open_is_told_as_open_not_as_changed(
    takeback: CommandLine, world: World
) -> None:
    database = world / "app.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    takeback.done("run", "--", "sh", "-c", f"cp {database} copy; mv copy {database}; printf x >> note")
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import sys; f = open({str(database)!r}); print(1, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout and holder.stdout.readline()
        said = takeback("undo")
        assert said.code == 3, said
        assert f"process {holder.pid} (python" in said.err
        assert "end it, then undo again" in said.err
        for wrong in ("Modified after", "overwrite those changes", "missing", "move away"):
            assert wrong not in said.err
    finally:
        holder.communicate()
    takeback.done("undo")


@pytest.mark.real
def test_finding_r7_a_terminal_that_is_gone_changes_nothing_of_what_was_done(
    takeback: CommandLine, world: World
) -> None:
    main, terminal = pty.openpty()
    started = subprocess.Popen(
        [*COMMAND, "run", "--", "sh", "-c", "echo > f; read line"],
        cwd=world.root, env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=terminal,
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    os.close(main)  # from here on every write to it is an error
    started.communicate(b"\n", timeout=200)
    assert started.returncode == 0
    assert (world / "f").exists()
    takeback.done("undo")
    assert not (world / "f").exists()


@pytest.mark.parametrize("words", [("run",), ("run", "--in-place"), ("run", "--in-place", "--any-root")])
def test_finding_22_the_limit_of_a_capture_holds_for_commands_too(
    takeback: CommandLine, world: World, store: Path, words: tuple[str, ...]
) -> None:
    takeback.done("store", "make")
    (store / "settings.json").write_text('{"max_capture_bytes": 5000}')
    for name in ("one", "two"):
        (world / name).write_bytes(os.urandom(3000))
    before = world.picture()
    said = takeback(*words, "--", "rm", "one", "two")
    assert said.code == 125, said
    assert "ore than 5,000 bytes" in said.err
    assert "max_capture_bytes" in said.err
    assert world.picture() == before
    (store / "settings.json").write_text('{"max_capture_bytes": 6000}')
    takeback.done(*words, "--", "rm", "one", "two")
    takeback.done("undo")
    assert world.picture() == before


@pytest.mark.root
@pytest.mark.needs("chattr")
@pytest.mark.parametrize("words", [("run",), ("run", "--in-place")])
def test_finding_r1_one_immutable_file_does_not_keep_the_others_from_coming_back(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    for name in "abc":
        (world / name).write_text("old")
    takeback.done(*words, "--", "sh", "-c", "for f in a b c; do echo new > $f; done")
    subprocess.run(["chattr", "+i", world / "b"], check=True)
    try:
        planned = takeback("undo", "--skip-conflicts", "--dry-run")
        assert planned.code == 1, planned
        assert "would be taken back" in planned.err
        said = takeback("undo", "--skip-conflicts")
        assert said.code == 1, said
        assert "immutable" in said.err
        assert [(world / name).read_text() for name in "abc"] == ["old", "new\n", "old"]
    finally:
        subprocess.run(["chattr", "-i", world / "b"], check=True)
    takeback.done("undo")
    assert (world / "b").read_text() == "old"


def test_finding_r7_a_rehearsal_with_conflicts_ends_as_the_undo_would(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "--", "sh", "-c", "echo 1 > a; echo 1 > b")
    (world / "a").write_text("a person's")
    planned = takeback("undo", "--skip-conflicts", "--dry-run")
    done = takeback("undo", "--skip-conflicts")
    assert (planned.code, done.code) == (1, 1), (planned, done)
    assert sorted(os.listdir(world.root)) == ["a"]


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_finding_r7_a_full_disk_and_one_without_inodes_are_told_as_what_they_are(
    takeback: CommandLine, world: World
) -> None:
    with tmpfs(world / "full", "size=2m"):
        said = takeback("write", "full/f", input=os.urandom(3 << 20))
        assert said.code == 5, said
        assert "The disk of full/f is full" in said.err
        assert "bytes are free" in said.err
    with tmpfs(world / "none", "nr_inodes=1"):
        said = takeback("write", "none/f", input="x")
        assert said.code == 5, said
        assert "The filesystem of none/f has no inodes left" in said.err


@pytest.mark.parametrize("how", [(), ("--in-place",), ("--sql", "sqlite:///app.db")], ids=str)
def test_first_day_7h_a_command_that_failed_is_no_success_in_runs(
    takeback: CommandLine, world: World, how: tuple[str, ...]
) -> None:
    with sqlite3.connect(world / "app.db") as database:
        database.execute("create table t (a)")
    takeback("run", *how, "--", "sh", "-c", "exit 3")
    takeback("run", *how, "--", "true")

    listed = takeback.done("runs").out.splitlines()
    told = takeback.done("runs", "--json").json

    assert " failed " in listed[1] and " failed " not in listed[0]
    assert listed[1].endswith("sh -c 'exit 3'  (exit code 3)")
    assert all(" 0 effects " in line for line in listed)
    assert [(one["failed"], one["effects"]) for one in told] == [(None, 0), ("exit code 3", 0)]
    assert "State    failed: exit code 3" in takeback.done("show", "sh -c 'exit 3'").out
