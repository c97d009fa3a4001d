"""What someone found who knew only the README; the numbers are those of that report."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.e2e.test_terminal import seen
from tests.world import World

LONG = "echo a fairly long command line that is quite usual for agents >/dev/null"


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_fresh_eyes_3_a_narrow_log_shows_every_state(
    takeback: CommandLine, world: World, columns: int
) -> None:
    for number in (1, 2):
        takeback.done("run", "-q", "--", "sh", "-c", f"echo {number} > a; {LONG}")
    takeback.done("undo", "-q")
    takeback.done("pin", "@~1")
    takeback.done("run", "-q", "--hold", "--", "sh", "-c", f"rm a; {LONG}")

    code, shown = seen(world.root, "--no-pager", "log", size=(24, columns), NO_COLOR="1")

    rows = [line for line in shown.splitlines() if re.search(r"\b[a-z0-9]{8}\b", line)]
    assert code == 0
    assert [bool(re.search(state, row)) for state, row in zip(("held", "undone", "pinned"), rows, strict=True)] == [
        True, True, True,
    ], shown  # fmt: skip
    assert all(len(row) <= columns for row in rows)


def _killed(world: World, code: str) -> None:
    """A program that is killed after it said so."""
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=world.root, env=surroundings(), stdout=subprocess.PIPE
    )
    assert child.stdout
    assert child.stdout.readline()
    child.kill()
    child.wait()
    child.stdout.close()


def test_fresh_eyes_4_a_dry_run_of_recover_tells_of_an_undo_that_was_only_asked_for(
    takeback: CommandLine, world: World
) -> None:
    made = takeback.write("a", "1")
    _killed(
        world,
        "import takeback, time\n"
        "from takeback.engine import undo\n"
        "def stopped(*words):\n"
        "    print('here', flush=True)\n"
        "    time.sleep(100)\n"
        "undo.carry_out = stopped\n"
        "takeback.open().undo('@')\n",
    )

    told = takeback.done("recover", "--dry-run")
    listed = takeback.done("recover", "--dry-run", "--json").json
    assert made["id"][:8] in told.out
    assert "its undo would be carried out" in told.out
    assert [one["effect"] for one in listed["unsettled"]] == [made["id"]]
    assert os.path.exists(world.root / "a")

    takeback.done("recover")
    assert not os.path.exists(world.root / "a")
    assert "Nothing to recover" in takeback.done("recover", "--dry-run").out


def test_fresh_eyes_5_status_says_what_recover_does(takeback: CommandLine, world: World) -> None:
    _killed(
        world,
        "import takeback, time\n"
        "with takeback.open().run('idle'):\n"
        "    print('here', flush=True)\n"
        "    time.sleep(100)\n",
    )
    assert "ends it; none of its effects is in force" in takeback.done("status").out
    assert "would be ended" in takeback.done("recover", "--dry-run").out
    assert takeback.done("status", "--json").json["dead"][0]["ending"] == "nothing"

    told = takeback.done("recover")

    assert "(idle): ended" in told.out
    assert "Nothing to recover" not in told.out
    assert "Dead" not in takeback.done("status").out


def test_fresh_eyes_5_status_says_that_changes_in_place_stay(takeback: CommandLine, world: World) -> None:
    (world.root / "a").write_text("1\n")
    command = [*COMMAND, "run", "--in-place", "--", "sh", "-c", "echo 2 > a; echo here; exec sleep 100"]
    child = subprocess.Popen(
        command, cwd=world.root, env=surroundings(), stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout
    assert child.stdout.readline()
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()

    said = takeback.done("status")
    assert "records the changes of its command; they stay" in said.out
    assert takeback.done("status", "--json").json["dead"][0]["ending"] == "recorded"
    deadline = time.monotonic() + 60
    while "recorded and stays" not in (told := takeback("recover").out):
        assert time.monotonic() < deadline, told
    assert (world.root / "a").read_text() == "2\n"


@pytest.mark.parametrize("words", [("undo", "--since"), ("log", "--since"), ("log",), ("log", "--path")])
def test_fresh_eyes_8_an_empty_word_is_no_word(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    takeback.write("a", "1")

    said = takeback(*words, "")

    assert said.code == 2
    assert "empty" in said.err
    assert (world.root / "a").read_text() == "1"


def test_fresh_eyes_9_a_dry_run_that_skips_conflicts_foresees_those_below(
    takeback: CommandLine, world: World
) -> None:
    (world.root / "a").write_text("1\n")
    for number in (2, 3, 4):
        takeback.done("run", "-q", "--", "sh", "-c", f"echo {number} > a")
    with (world.root / "a").open("a") as file:
        file.write("mine\n")

    planned = takeback("undo", "--since", "10m", "--skip-conflicts", "--dry-run", "--json").json
    told = takeback("undo", "--since", "10m", "--skip-conflicts")

    assert told.code == 3
    assert (world.root / "a").read_text() == "4\nmine\n"
    assert [one["outcome"] for one in planned["targets"]] == ["conflict"] * 3


def test_fresh_eyes_10_a_dry_run_of_apply_finds_what_apply_would(takeback: CommandLine, world: World) -> None:
    takeback.done("run", "-q", "--hold", "--", "sh", "-c", "echo agent > x")
    assert takeback("apply", "@", "--dry-run").code == 0
    assert not (world.root / "x").exists()
    (world.root / "x").write_text("mine\n")

    planned, refused = takeback("apply", "@", "--dry-run"), takeback("apply", "@")

    assert (planned.code, refused.code) == (3, 3)
    assert planned.err == refused.err
    assert takeback("apply", "@", "--force", "--dry-run").code == 0
    assert (world.root / "x").read_text() == "mine\n"


def test_fresh_eyes_12_the_log_for_programs_is_the_log(takeback: CommandLine, world: World) -> None:
    first, second = takeback.write("a", "1"), takeback.write("a", "2")
    takeback.done("undo")

    assert [one["id"] for one in takeback.done("log", "--json").json] == [second["id"], first["id"]]
    assert [one["id"] for one in takeback.done("log", "-n", "1", "--json").json] == [second["id"]]
    lines = takeback.done("log", "-n", "1", "--format", "json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [second["id"]]
    assert len(takeback.done("log", "--all", "--json").json) == 3


@pytest.mark.parametrize("words", [("undo",), ("redo",), ("undo", "--since", "1h"), ("recover",), ("sweep",)])
def test_fresh_eyes_14_a_removed_store_is_told_by_commands_that_change_too(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    takeback.write("a", "1")
    store = takeback.done("status", "--json").json["store"]
    os.rename(store, f"{store}.away")

    said = takeback(*words)

    assert said.code == 6
    assert "Nothing recorded yet" not in said.out + said.err


def test_fresh_eyes_15_huge_numbers_are_refused(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    said = takeback("sweep", "--grace", "9" * 20)
    assert (said.code, "hundred years" in said.err) == (2, True)

    store = takeback.done("status", "--json").json["store"]
    for name in ("lease_seconds", "grace_seconds", "store_bytes"):
        Path(store, "settings.json").write_text(json.dumps({name: int("9" * 20)}))
        said = takeback("write", "b", input="1")
        assert (said.code, name in said.err) == (2, True), said
        assert not (world.root / "b").exists()


def test_fresh_eyes_16_a_submitted_run_is_one_of_this_project(takeback: CommandLine, world: World) -> None:
    (world.root / "jobs.py").write_text(
        "import takeback\n\n@takeback.workflow\ndef job(run):\n    return 1\n"
    )
    submitted = takeback.done("submit", "jobs:job", "--json").json

    assert submitted["id"][:8] in takeback.done("runs").out


def test_fresh_eyes_18_a_store_below_the_home_directory(takeback: CommandLine, world: World) -> None:
    home = world.root.parent / "someone"
    home.mkdir()

    takeback.done("write", "a", input="1", TAKEBACK_STORE="~/own", HOME=str(home))

    assert (home / "own" / "journal.db").exists()
    assert not (world.root / "~").exists()


@pytest.mark.parametrize("option", ["", "--force", "--skip-conflicts"])
def test_fresh_eyes_20_a_conflict_says_only_what_is_so(
    takeback: CommandLine, world: World, option: str
) -> None:
    (world.root / "d" / "e").mkdir(parents=True)
    (world.root / "d" / "e" / "f").write_text("1\n")
    takeback.done("run", "-q", "--", "sh", "-c", "echo 2 > d/e/f")
    words = ("undo", *filter(None, [option]))

    (world.root / "d" / "e").rename(world.root / "away")
    gone = takeback(*words)
    (world.root / "d" / "e").symlink_to(world.root / "away")
    linked = takeback(*words)

    assert (gone.code, linked.code) == (3, 3)
    assert gone.err.startswith("error: d/e/f cannot come back: the directory it was in is gone.\n")
    assert "Make the missing directory again, then undo again." in gone.err
    assert linked.err.startswith("error: d/e/f cannot be reached: a directory on the way to it is now a")
    assert "Put the directory back in the place of the link, then undo again." in linked.err
    assert (world.root / "away" / "f").read_text() == "2\n"


def test_fresh_eyes_20_a_removed_file_is_not_called_modified(takeback: CommandLine, world: World) -> None:
    (world.root / "a").write_text("1\n")
    (world.root / "b").write_text("1\n")
    takeback.done("run", "-q", "--", "sh", "-c", "echo 2 > a; echo 2 > b")
    (world.root / "a").unlink()

    removed = takeback("undo")
    (world.root / "b").write_text("mine\n")
    both = takeback("undo")

    assert removed.err.startswith("error: a is gone, and effect ")
    assert "overwrite those changes: b is now 5 bytes" in both.err
    assert "Also in the way: a is gone" in both.err
