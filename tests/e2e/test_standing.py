"""How things stand after a crash, and after an undo by hand, is told as it is."""

import re

import pytest

from tests.e2e.conftest import CommandLine
from tests.e2e.test_telling import (
    DEAD_RUN,
    KILLED_UNDO,
    STICKING,
    lose_the_blobs,
    make_stuck,
    python,
    said_why,
)
from tests.world import World


def test_recovery_says_that_a_blob_is_missing_when_that_is_so(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("old")
    python(world, DEAD_RUN)
    lose_the_blobs()

    said = takeback("recover")

    assert re.search(r": stays: Blob [0-9a-f]{64} is not in the store\.$", said.out, re.MULTILINE), said
    assert "someone changed it" not in said.out


def test_recovery_names_what_someone_changed(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("old")
    python(world, DEAD_RUN)
    (world / "a").write_text("someone else's")

    (left,) = takeback.done("recover", "--json").json["settled"]

    assert left["outcome"] == "left"
    assert left["detail"].startswith(f"stays: {world / 'a'} is now 14 bytes")


def test_recover_tells_a_stuck_effect_once(takeback: CommandLine, world: World) -> None:
    stuck = make_stuck(takeback, world)

    said, as_json = takeback("recover"), takeback("recover", "--json")

    assert len(re.findall(rf"^{stuck[:8]} ", said.out, re.MULTILINE)) == 1
    assert re.search(r"^Recovered 0 effects in .*; 1 stuck\.$", said.out, re.MULTILINE)
    assert said.err.startswith(f"error: 1 effect is stuck: {stuck[:8]}.\nhint: `takeback show {stuck[:8]}`")
    said_why(said, as_json)
    assert [one["effect"] for one in as_json.json["settled"]] == [stuck]


def test_recovery_that_gets_stuck_itself_says_so(takeback: CommandLine, world: World) -> None:
    python(world, DEAD_RUN.replace('"a"', '"stuck"'))

    said = python(world, STICKING, "recover")

    (stuck,) = [one for one in takeback.done("log", "--json").json if one["state"] == "stuck"]
    assert said.code == 4
    assert f"error: 1 effect is stuck: {stuck['id'][:8]}." in said.err
    assert re.search(rf"^{stuck['id'][:8]} undo .*: needs a person$", said.out, re.MULTILINE)


def three_files(takeback: CommandLine) -> list[str]:
    return [takeback.write(name, "1", "--run", "deploy")["id"][:8] for name in ("a", "b", "c")]


def test_a_killed_undo_and_a_killed_redo_are_told_as_finished(takeback: CommandLine, world: World) -> None:
    first, second, _ = three_files(takeback)

    python(world, KILLED_UNDO, "undo", "refuse")
    undone = takeback.done("recover").out
    python(world, KILLED_UNDO, "redo")
    redone = takeback.done("recover").out

    for id in (first, second):
        assert re.search(rf"^{id} write .*: the undo was finished$", undone, re.MULTILINE)
    assert len(re.findall(r": the redo was finished$", redone, re.MULTILINE)) == 2
    assert "with its run" not in undone + redone


def test_a_killed_undo_asked_for_again_is_told_as_done(takeback: CommandLine, world: World) -> None:
    first, _, _ = three_files(takeback)
    python(world, KILLED_UNDO, "undo", "refuse")

    said = takeback.done("undo", first)

    assert f"Took back {first}" in said.out and "error" not in said.err
    assert takeback.effect(first)["state"] == "undone" and not (world / "a").exists()


def test_after_a_killed_undo_the_same_words_take_back_nothing_else(
    takeback: CommandLine, world: World
) -> None:
    three_files(takeback)
    python(world, KILLED_UNDO, "undo", "refuse")
    again = takeback.done("undo", "--json").json
    left = [one["id"] for one in takeback.done("log", "--all", "--json").json if one["state"] == "done"]
    assert again["outcome"] == "done" and again["recovered"]

    python(world, KILLED_UNDO, "redo")
    takeback.done("redo")

    assert len(left) == 3 and len(again["undo"]) == 2  # the undos, of which two were finished now


@pytest.mark.parametrize("on_conflict", ["refuse", "skip"])
def test_a_killed_undo_that_cannot_be_finished_tells_why(
    takeback: CommandLine, world: World, on_conflict: str
) -> None:
    first, _, _ = three_files(takeback)
    python(world, KILLED_UNDO, "undo", on_conflict)
    (world / "a").write_text("someone else's")

    said = takeback.done("recover").out

    told = next(line for line in said.splitlines() if line.startswith(first))
    assert ": the undo was not finished: " in told
    assert "a is now 14 bytes" in told


def test_a_run_that_was_taken_back_by_hand_is_shown_as_undone(takeback: CommandLine, world: World) -> None:
    python(
        world,
        "import takeback\nwith takeback.open().run('two') as run: run.write('a', '1'), run.write('b', '1')",
    )

    def shown() -> tuple[str, int]:
        (run,) = [one for one in takeback.done("runs", "--json").json if one["name"] == "two"]
        return run["state"], run["effects"]

    assert shown() == ("accepted", 2)
    takeback.done("undo")
    assert shown() == ("partly undone", 2)
    takeback.done("undo")
    assert shown() == ("undone", 2)
    assert re.search(r"  undone  .*  2 effects  two$", takeback.done("runs").out, re.MULTILINE)
    takeback.done("redo")
    assert shown() == ("partly undone", 2)


def test_what_a_failing_run_could_not_take_back_is_undone_once_it_was_by_hand(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("old")
    python(world, DEAD_RUN)
    (world / "a").write_text("someone else's")
    takeback.done("recover")
    (before,) = takeback.done("runs", "--json").json
    takeback.done("undo", "--force")

    after = takeback.done("runs", "--json").json[-1]

    assert (before["state"], before["effects"]) == ("partly undone", 1)
    assert (after["state"], after["effects"]) == ("undone", 1)


def test_undos_are_not_counted_as_effects(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    takeback.write("b", "1")
    takeback.done("undo")

    effects = takeback.done("status", "--json").json["effects"]

    assert (effects["done"], effects["undone"], effects["undos"], effects["accepted"]) == (1, 1, 1, 0)
    assert (
        "1 done, 1 undone, 0 aborted; 0 accepted, 0 forgotten; 1 undo in force" in takeback.done("status").out
    )
    assert [(run["effects"], run["undos"]) for run in takeback.done("runs", "--json").json] == [
        (0, 1),
        (2, 0),
    ]
