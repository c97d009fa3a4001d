"""Names that are no text, keys that are no pointers, stores that are nowhere: refused in words, never a bug."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World

HALF = os.fsdecode(b"\xff")


@pytest.mark.parametrize(
    "words",
    [
        ("show", HALF), ("diff", HALF), ("undo", HALF), ("redo", HALF), ("accept", HALF), ("forget", HALF),
        ("undo", "--run", HALF), ("undo", "--to", HALF), ("accept", "--run", HALF), ("log", "--run", HALF),
        ("log", "--agent", HALF), ("checkpoints", "--run", HALF), ("write", "z", "--key", HALF),
        ("write", "z", "--needs", HALF), ("write", "z", "--run", HALF), ("write", "z", "--agent", HALF),
        ("checkpoint", HALF),
    ],
)  # fmt: skip
def test_a_name_that_is_no_text_names_nothing(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    takeback.write("a", "1")

    said = takeback(*words, input="x")

    assert said.code == 2
    assert said.err.startswith("error: Text for the journal holds half a character ('\\udcff').\nhint: ")
    assert not (world / "z").exists()


@pytest.mark.parametrize("option", ["--set", "--delete"])
@pytest.mark.parametrize(
    "given", [f"/{HALF}=1", f'/a="{HALF}"', '/a="\\ud800"', '/a={"\\ud800": 1}', "/d/x~2=2"]
)
def test_a_key_or_value_that_no_document_should_hold_is_refused(
    takeback: CommandLine, world: World, option: str, given: str
) -> None:
    (world / "j.json").write_text('{"d": {}}')
    if option == "--delete":
        given = given.partition("=")[0]
        if given == "/a":
            return

    assert takeback("edit", "j.json", option, given).code == 2
    assert (world / "j.json").read_text() == '{"d": {}}'


def test_a_value_that_is_nested_too_deeply_is_refused(takeback: CommandLine, world: World) -> None:
    (world / "j.json").write_text("{}")
    for depth in (102, 400, 3000):
        said = takeback("edit", "j.json", "--set", f"/a={'[' * depth}{']' * depth}")
        assert (said.code, said.err.splitlines()[0].endswith(" is nested too deeply.")) == (2, True)
    takeback.done("edit", "j.json", "--set", f"/a={'[' * 100}{']' * 100}")


def test_a_file_that_is_nested_too_deeply_is_refused(takeback: CommandLine, world: World) -> None:
    for depth in (300, 900, 3000):
        (world / "j.json").write_text(f'{{"a": {"[" * depth}{"]" * depth}}}')
        said = takeback("edit", "j.json", "--set", "/b=1")
        assert said.code in (0, 3), said


def test_an_empty_store_is_no_store_and_an_empty_variable_is_no_variable(
    takeback: CommandLine, private_surroundings: Path
) -> None:
    for words in (("log", "--store", ""), ("--store=", "log")):
        said = takeback(*words)
        assert (said.code, said.err.splitlines()[0]) == (2, "error: --store is empty.")
    told = takeback.done("status", "--json", TAKEBACK_STORE="").json
    assert told["store"] == str(private_surroundings / "state" / "takeback")


def test_an_empty_option_is_not_one_that_was_left_away(takeback: CommandLine, world: World) -> None:
    """As of a shell variable that was never set: nothing else may be taken back instead."""
    takeback.done("write", "a.txt", input="mine")
    for words in (("undo", "--run", ""), ("undo", "--run="), ("undo", "--to", ""), ("log", "--agent", "")):
        said = takeback(*words)
        option = words[1].rstrip("=")
        assert (said.code, said.err.splitlines()[0]) == (2, f"error: {option} is empty.")
    assert (world / "a.txt").read_text() == "mine"


def test_a_hint_for_a_store_of_any_bytes_can_be_pasted(takeback: CommandLine, world: World) -> None:
    store = os.fsdecode(os.fsencode(world.root) + b"/it's \xff\n\\")
    takeback.done("write", "a", "--store", store, input="1")

    hint = takeback.done("undo", "--store", store).out.splitlines()[-1]
    command = hint.partition("`takeback ")[2].partition("` brings")[0]
    shell = subprocess.run(
        ["bash", "-c", f"printf '%s' {command.partition('--store ')[2].rpartition(' redo')[0]}"],
        capture_output=True, check=True,
    )  # fmt: skip

    assert shell.stdout == os.fsencode(store)


def test_a_checkpoint_that_looks_like_an_option_has_a_hint_that_works(takeback: CommandLine) -> None:
    assert "`takeback undo --to=-x` returns" in takeback.done("checkpoint", "--", "-x").out
    assert takeback.done("undo", "--to=-x").out.startswith("Nothing to take back")


def test_a_run_named_where_an_effect_is_meant_is_in_the_hint(takeback: CommandLine) -> None:
    run = takeback.write("a", "1")["run"][:8]
    assert "1 effect" in takeback.done("show", run).out
    takeback.done("undo")
    assert f"`takeback log --run {run}` shows its effects." in takeback("undo", "--run", run).err


def test_a_closed_or_full_standard_output_is_an_error_with_a_hint(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")
    for where in (">&-", "> /dev/full"):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {where}', "sh", *COMMAND, "log"],
            cwd=world.root, env=surroundings(), stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        error, hint = done.stderr.splitlines()
        assert error.startswith("error: The answer could not be printed: ") and hint.startswith("hint: ")


def test_a_forgotten_effect_has_no_way_back(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    takeback.done("accept", "@")
    takeback.done("forget", "@")

    told = takeback.done("show", "@").out

    assert "Way back none any more\n" in told
    assert "kept in the store" not in told


def test_the_numbers_of_status_agree(takeback: CommandLine, world: World) -> None:
    for _ in range(3):
        takeback.write("a", "1")
        takeback.done("undo")

    told = takeback.done("status").out

    assert "; 0 accepted, " in told
    assert "accepted effect" not in told and "         3 undos; `takeback forget" in told


def test_a_dry_run_reads_as_a_sentence(takeback: CommandLine, world: World) -> None:
    (world / "a").touch()
    assert takeback.done("chmod", "600", "a", "--dry-run").out.startswith("Would set mode 0600 of a;")


def test_what_undo_would_remove_is_not_said_to_be_no_file(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    (world / "a").write_text("mine")

    said = takeback("undo", "--merge")

    assert "would be removed by the undo, so there is nothing to merge with." in said.err
    assert "only files" not in said.err


def test_advice_fits_what_was_asked_for(takeback: CommandLine, world: World) -> None:
    assert f"hint: Check the path, which exists up to {world.root}.\n" in takeback("rm", "nodir/x").err
    (world / "d").mkdir()
    takeback.write("d/a", "1")
    (world / "d").rename(world / "e")
    (world / "d").symlink_to("e")
    assert "name the path again" not in takeback("undo").err
