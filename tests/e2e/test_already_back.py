"""What someone took back by hand is neither taken back again nor in the way."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import CommandLine
from tests.world import World


def test_undo_without_a_name_passes_over_what_is_back_already(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    gone = takeback.write("b", "2")
    (world / "b").unlink()

    said = takeback.done("undo")

    assert said.out.startswith(f"Skipped {gone['id'][:8]} (write b")
    assert "): its targets are already in the earlier state.\nTook back 1 file in " in said.out
    assert not (world / "a").exists()


def test_when_all_is_back_already_there_is_nothing_to_undo(takeback: CommandLine, world: World) -> None:
    gone = takeback.write("b", "2")
    (world / "b").unlink()

    said = takeback("undo")

    assert said.code == 3
    told = f"There is nothing to undo in this project: the targets of all effects ({gone['id'][:8]})"
    assert said.err.startswith(f"error: {told} are already in the earlier state.\nhint: ")
    assert takeback("undo", "--json").json["outcome"] == "refused"


def test_a_named_effect_that_is_back_already_is_not_counted(takeback: CommandLine, world: World) -> None:
    takeback.write("b", "2")
    (world / "b").unlink()
    before = takeback.done("runs", "--json").json

    for words in (("undo", "@"), ("undo", "@", "--dry-run")):
        assert (
            takeback.done(*words).out
            == "Nothing to take back: b is already in the state before the effect.\n"
        )
    told = takeback.done("undo", "@", "--json").json
    assert (told["outcome"], told["undo"], told["targets"][0]["outcome"]) == ("done", [], "already")
    assert takeback.done("runs", "--json").json == before  # nothing happened, so nothing is recorded


def test_a_redo_of_what_is_there_again_changes_nothing(takeback: CommandLine, world: World) -> None:
    takeback.write("b", "2")
    takeback.done("undo")
    (world / "b").write_text("2")

    assert takeback.done("redo").out == "Nothing to bring back: b is already in the state before the undo.\n"


def test_only_what_was_changed_is_counted(takeback: CommandLine, world: World) -> None:
    for name in ("a", "b", "c"):
        takeback.write(name, "1", "--run", "three")
    (world / "b").unlink()

    said = takeback.done("undo", "--run", "three")

    assert said.out.startswith("Took back 2 files in ")
    assert "already   b" in said.out


def test_one_that_the_passed_over_stands_on_can_be_taken_back(takeback: CommandLine, world: World) -> None:
    takeback.write("b", "1")
    passed = takeback.write("b", "2")
    (world / "b").write_text("1")

    told = takeback.done("undo", "--json").json

    assert told["passed_over"] == [passed["id"]]
    assert [one["outcome"] for one in told["targets"]] == ["undone"]
    assert not (world / "b").exists()


def test_an_earlier_effect_is_offered_only_if_its_blobs_are_whole(
    takeback: CommandLine, world: World, store: Path
) -> None:
    old = os.urandom(300_000)
    (world / "a").write_bytes(old)
    takeback.write("a", "new")
    (world / "b").write_bytes(old)
    takeback.write("b", "newer")
    for blob in filter(Path.is_file, (store / "blobs").rglob("*")):
        data = bytearray(blob.read_bytes())
        data[len(data) // 2] ^= 0xFF
        blob.write_bytes(data)

    said = takeback("undo")

    assert said.code == 6
    assert "To undo an earlier change" not in said.err


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_an_earlier_effect_is_not_offered_when_the_store_cannot_be_written(
    takeback: CommandLine, world: World, store: Path
) -> None:
    takeback.write("a", "1")
    takeback.write("b", "1")
    (world / "b").unlink()
    (world / "b").mkdir()
    (world / "b" / "mine").touch()

    for words in (["mount", "--bind", store, store], ["mount", "-o", "remount,bind,ro", store]):
        subprocess.run(words, check=True)
    try:
        said = takeback("undo")
    finally:
        subprocess.run(["umount", store], check=True)

    assert said.code != 0
    assert "To undo an earlier change" not in said.err
    assert "`takeback undo" not in said.err
