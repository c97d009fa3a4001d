"""Finding 22 of someone who knew only the README: rough edges, one test for each."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

import takeback as tb
from tests.e2e.conftest import CommandLine, surroundings
from tests.world import World

ODD = os.fsdecode(b"x\xff")


def test_fresh_eyes_22_a_change_of_time_alone_is_shown(takeback: CommandLine, world: World) -> None:
    (world.root / "m").write_text("1\n")
    takeback.done("run", "-q", "--", "touch", "-d", "2001-01-01 12:00", "m")

    assert "m: time of change 20" in takeback.done("diff", "@").out
    assert "→ 2001-01-01 12:00:00" in takeback.done("log", "-p").out


def test_fresh_eyes_22_a_file_is_counted_once(takeback: CommandLine, world: World) -> None:
    for name in ("a", "b"):
        (world.root / name).write_text("1\n")
    takeback.done("run", "-q", "--", "sh", "-c", "echo 2 > a")
    takeback.done("run", "-q", "--", "sh", "-c", "echo 3 > a; echo 3 > b")

    assert takeback.done("undo", "@", "@~1").out.startswith("Took back 2 files in ")

    takeback.done("redo")
    (world.root / "b").write_text("mine\n")
    said = takeback("undo", "@", "@~1", "--skip-conflicts")
    assert said.out.startswith("Took back 1 of 2 files in ")


def test_fresh_eyes_22_plain_undo_does_not_go_on_inside_a_box(takeback: CommandLine, world: World) -> None:
    code = (
        "import takeback\n"
        "with takeback.open().run('boxed') as run:\n"
        "    with run.sandbox() as box:\n"
        "        box.run('echo 1 > a')\n"
        "        box.commit()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=world.root, env=surroundings(), check=True)
    takeback.done("undo")
    assert not (world.root / "a").exists()

    said = takeback("undo")

    assert said.code == 3
    assert "There is nothing to undo in this project" in said.err
    step = next(one for one in takeback.done("log", "--json").json if one["summary"] == "echo 1 > a")
    assert step["state"] == "done"
    takeback.done("undo", step["id"])


@pytest.mark.parametrize("words", [("", ""), ("--timeout", "1e20", "--", "true")])
def test_fresh_eyes_22_a_refused_command_is_no_run(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    takeback.done("run", "-q", "--", "sh", "-c", "echo 1 > a")

    assert takeback("run", *(words if words[0] else ("--", ""))).code == 125

    assert len(takeback.done("runs", "--json").json) == 1


def test_fresh_eyes_22_a_failed_run_is_not_said_to_have_recorded_nothing(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")
    takeback.write("b", "1")
    assert takeback("run", "--", "false").code == 1

    assert "recorded nothing" not in takeback.done("undo").out
    assert "recorded nothing" not in takeback.done("undo").out


def test_fresh_eyes_22_a_letter_names_no_effect(takeback: CommandLine, world: World) -> None:
    made = takeback.write("a", "1")["id"]

    for length in (1, 3):
        said = takeback("undo", made[:length])
        if "ambiguous" not in said.err:  # the run may begin with the same letter
            assert "is too short for the id of an effect" in said.err
            assert "A path goes after `--`" in said.err
        assert said.code == 2
    assert (world.root / "a").exists()
    takeback.done("undo", made[:8])


def test_fresh_eyes_22_a_time_that_is_still_to_come_means_yesterday_and_it_is_said(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")
    zone = f"UTC{(time.gmtime().tm_hour - 12) % 24 - 12:+d}"  # where it is noon now

    said = takeback.done("undo", "--since", "23:59", TZ=zone)

    assert "23:59, yesterday: 23:59 has not come yet today." in said.out
    assert "yesterday" in takeback.done("undo", "--help").out


def test_fresh_eyes_22_a_name_that_is_no_text_is_shown_as_a_shell_reads_it(
    takeback: CommandLine, world: World
) -> None:
    made = takeback.done("run", "-q", "--json", "--", "touch", ODD, "n\nl", "it's\t").json["effect"]["id"]

    told = takeback.done("show", made).out
    summary = takeback.write(ODD, "1")["summary"]

    for name in (r"$'x\xff'", r"$'n\nl'", r"$'it\'s\t'"):
        assert f"Target   {name}: nothing" in told
        assert (world.root / os.fsdecode(_read(name))).exists()
    assert summary == rf"write $'{world.root}/x\xff' (1 byte)"
    assert r"write $'x\xff' (1 byte)" in takeback.done("log").out
    assert json.dumps(summary).isascii()


def _read(word: str) -> bytes:
    return subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout


def test_fresh_eyes_22_colour_that_is_asked_for_is_on_the_lines_too(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1\n")
    takeback.write("a", "2\n")

    assert "\033[31m-1\033[0m\n\033[32m+2\033[0m\n" in takeback.done("diff", "--color", "always", "@").out
    assert "\033" not in takeback.done("diff", "@").out


def test_fresh_eyes_22_single_commands_are_no_open_runs(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")

    assert "Runs     none open" in takeback.done("status").out
    with tb.open() as opened, opened.run("task"):
        said = takeback.done("status").out
    assert re.search(
        r"Runs     1 open, 0 suspended, besides 1 run of the command line\n +\w{8} task: open, began just now",
        said,
    )


def test_fresh_eyes_22_submit_needs_no_arguments(takeback: CommandLine) -> None:
    said = takeback("submit")

    assert (said.code, said.err.splitlines()[0]) == (
        2,
        "error: The following arguments are required: MODULE:FUNCTION.",
    )


def test_fresh_eyes_22_a_forgotten_effect_in_between_is_named_itself(
    takeback: CommandLine, world: World
) -> None:
    for number in (1, 2, 3):
        takeback.write("a", f"{number}\n" * number)
    middle = takeback.effect("@~1")["id"]
    takeback.done("accept", middle)
    takeback.done("forget", middle)

    said = takeback("undo", "--since", "1h")

    assert said.code == 3
    assert f"`takeback show {middle[:8]}` shows what it did" in said.err


def test_status_counts_an_undone_effect_of_which_a_part_was_brought_back(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "-q", "--", "sh", "-c", "echo 1 > a; echo 1 > b")
    of_a = takeback.done("undo", "@", "--json", "--", "a").json["undo"][0]
    takeback.done("undo", "@")
    takeback.done("redo", of_a)
    assert (world.root / "a").exists() and not (world.root / "b").exists()

    assert "1 undone (1 partly undone: some of it was brought back)" in takeback.done("status").out
    assert takeback.done("status", "--json").json["effects"]["partly_undone"] == 1


def test_an_interrupted_undo_that_is_finished_is_told_with_near_paths(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")
    code = (
        "import os, takeback\n"
        "from takeback.engine import undo\n"
        "def stopped(*words, **more):\n"
        "    os.kill(os.getpid(), 9)\n"
        "undo.do = stopped\n"
        "takeback.open().undo('@')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=world.root, env=surroundings(), check=False)
    assert ended.returncode == -9

    said = takeback.done("undo")

    assert not (world.root / "a").exists()
    assert "write a (1 byte): what was interrupted is finished." in said.out


def test_second_eyes_a_script_gets_no_sentence_for_a_line(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    said = takeback.done("log", "--held", "--format", "{id}")
    assert (said.out, said.err) == ("", "No effects match in this project.\n")
