"""Undo: custody, compare and swap, dependencies, all or nothing."""

import os
import shutil

import pytest

import takeback
from tests.behaviour.conftest import Scene


def test_one_early_effect_goes_and_later_ones_stay(scene: Scene) -> None:
    first = scene.write("a", "1")
    scene.write("b", "2")
    scene.write("c", "3")

    scene.tb.undo(first)

    assert [scene.text(name) for name in "abc"] == [None, "2", "3"]


def test_a_later_effect_on_the_same_file_blocks_and_is_named(scene: Scene) -> None:
    first = scene.write("a", "1")
    second = scene.write("a", "2")

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(first)

    assert refused.value.blockers == (second.id,)
    assert scene.text("a") == "2"


def test_cascade_takes_back_the_blockers_newest_first(scene: Scene) -> None:
    scene.put("a", "0")
    first = scene.write("a", "1")
    second = scene.write("a", "2")

    result = scene.tb.undo(first, cascade=True)

    assert scene.text("a") == "0"
    assert [one.id for one in result.effects] == [second.id, first.id]
    assert result.outcome == "done"


def test_a_directory_that_was_deleted_blocks_undo_of_a_file_in_it(scene: Scene) -> None:
    (scene.world / "d").mkdir()
    edit = scene.write("d/a", "1")
    with scene.tb.run("clean") as run:
        removal = run.delete(scene.world / "d")
    assert removal is not None

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(edit)

    assert refused.value.blockers == (removal.id,)
    scene.tb.undo(edit, cascade=True)
    assert (scene.world / "d").is_dir()
    assert scene.text("d/a") is None


def test_undo_of_what_someone_edited_since_is_refused_and_names_the_path(scene: Scene) -> None:
    effect = scene.write("a", "agent")
    scene.put("a", "person")

    with pytest.raises(takeback.Conflict) as refused:
        scene.tb.undo(effect)

    assert str(scene.world / "a") in str(refused.value)
    assert scene.text("a") == "person"
    assert scene.state(effect) == "done"


def test_one_conflict_is_enough_to_touch_nothing(scene: Scene) -> None:
    with scene.tb.run("two") as run:
        run.write(scene.world / "a", "1")
        run.write(scene.world / "b", "2")
    scene.put("a", "person")
    before = scene.world.picture(directory_times=True)

    with pytest.raises(takeback.Conflict):
        scene.tb.undo(run.id)

    assert scene.world.picture(directory_times=True) == before


def test_skip_does_the_rest_and_says_what_it_left(scene: Scene) -> None:
    with scene.tb.run("two") as run:
        kept = run.write_all({scene.world / "a": "1", scene.world / "b": "2"})
    scene.put("a", "person")

    result = scene.tb.undo(run.id, on_conflict="skip")

    assert result.outcome == "partial"
    assert {os.path.basename(one.resource): one.outcome.value for one in result.targets} == {
        "a": "conflict",
        "b": "undone",
    }
    assert (scene.text("a"), scene.text("b")) == ("person", None)
    assert kept is not None
    assert scene.state(kept) == "done", "what is only partly undone is not called undone"


def test_skip_that_leaves_everything_is_a_refusal(scene: Scene) -> None:
    effect = scene.write("a", "1")
    scene.put("a", "someone's")

    with pytest.raises(takeback.Conflict, match="/a is now"):
        scene.tb.undo(effect, on_conflict="skip")

    assert scene.text("a") == "someone's"
    assert scene.tb.effect(effect.id).state == "done"


@pytest.mark.parametrize("how", ["refuse", "skip", "force"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_redo_that_was_overtaken_cannot_be_taken_back_again(scene: Scene, how: str, dry_run: bool) -> None:
    """What it brought back was taken back by another undo since; the same content put there by hand is not ours."""
    effect = scene.write("a", "1")
    scene.tb.undo(effect)
    (redo,) = scene.tb.redo(effect).undo
    scene.tb.undo(effect)
    scene.put("a", "1")

    with pytest.raises(takeback.Drifted, match="in another way"):
        scene.tb.undo(redo, on_conflict=how, dry_run=dry_run)

    assert scene.text("a") == "1"


def test_force_keeps_what_it_overwrites_so_that_redo_brings_it_back(scene: Scene) -> None:
    scene.put("a", "0")
    effect = scene.write("a", "agent")
    scene.put("a", "person")

    scene.tb.undo(effect, on_conflict="force")
    assert scene.text("a") == "0"

    scene.tb.redo()
    assert scene.text("a") == "person"


@pytest.mark.needs("git")
def test_merge_keeps_both_when_the_text_allows(scene: Scene) -> None:
    lines = [f"line {n}\n" for n in range(20)]
    scene.put("a", "".join(lines))
    effect = scene.write("a", "".join(["agent's first line\n", *lines[1:]]))
    scene.put("a", "".join(["agent's first line\n", *lines[1:19], "person's last line\n"]))

    result = scene.tb.undo(effect, on_conflict="merge")

    assert result.outcome == "done"
    assert scene.text("a") == "".join([*lines[:19], "person's last line\n"])


@pytest.mark.needs("git")
def test_merge_that_cannot_be_clean_is_refused_without_markers(scene: Scene) -> None:
    scene.put("a", "one\n")
    effect = scene.write("a", "agent\n")
    scene.put("a", "person\n")

    with pytest.raises(takeback.Conflict):
        scene.tb.undo(effect, on_conflict="merge")

    assert scene.text("a") == "person\n"


def test_undo_twice_is_refused(scene: Scene) -> None:
    effect = scene.write("a", "1")
    scene.tb.undo(effect)

    with pytest.raises(takeback.Refused, match="already undone"):
        scene.tb.undo(effect)


def test_dry_run_tells_and_touches_nothing(scene: Scene) -> None:
    effect = scene.write("a", "1")
    before = scene.world.picture(directory_times=True)
    records = scene.tb.store.journal.tally()["records"]

    result = scene.tb.undo(effect, dry_run=True)

    assert result.outcome == "planned"
    assert [one.outcome.value for one in result.targets] == ["undone"]
    assert scene.world.picture(directory_times=True) == before
    assert scene.tb.store.journal.tally()["records"] == records


def test_undo_and_redo_alternate_for_as_long_as_one_likes(scene: Scene) -> None:
    scene.put("a", "0")
    effect = scene.write("a", "1")
    for _ in range(3):
        scene.tb.undo(effect)
        assert (scene.text("a"), scene.state(effect)) == ("0", "undone")
        scene.tb.redo(effect)
        assert (scene.text("a"), scene.state(effect)) == ("1", "done")


def test_redo_brings_back_all_that_was_taken_back_together(scene: Scene) -> None:
    with scene.tb.run("three") as run:
        for n in range(3):
            run.write(scene.world / "a", str(n))
        run.write(scene.world / "b", "too")
    scene.tb.undo(run.id)
    assert (scene.text("a"), scene.text("b")) == (None, None)

    result = scene.tb.redo()

    assert (scene.text("a"), scene.text("b")) == ("2", "too")
    assert result.outcome == "done"


def test_an_edit_of_a_file_that_was_moved_since_makes_no_second_file(scene: Scene) -> None:
    scene.put("old", "0")
    edit = scene.write("old", "1")
    with scene.tb.run("rename") as run:
        move = run.move(scene.world / "old", scene.world / "new")
    assert move is not None

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(edit)
    assert refused.value.blockers == (move.id,)
    assert sorted(os.listdir(scene.world.root)) == ["new"]

    scene.tb.undo(edit, cascade=True)
    assert (scene.text("old"), scene.text("new")) == ("0", None)


def test_an_edit_of_a_file_someone_moved_by_hand_is_a_named_conflict(scene: Scene) -> None:
    scene.put("old", "0")
    edit = scene.write("old", "1")
    os.rename(scene.world / "old", scene.world / "new")

    with pytest.raises(takeback.Conflict, match="old"):
        scene.tb.undo(edit)

    assert sorted(os.listdir(scene.world.root)) == ["new"]


def test_with_needs_also_takes_back_what_it_was_built_on(scene: Scene) -> None:
    ground = scene.write("ground", "1")
    house = scene.write("house", "2", needs=[ground])

    scene.tb.undo(house, with_needs=True)

    assert (scene.text("ground"), scene.text("house")) == (None, None)


def test_what_needs_an_effect_blocks_its_undo(scene: Scene) -> None:
    ground = scene.write("ground", "1")
    house = scene.write("house", "2", needs=[ground])

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(ground)

    assert refused.value.blockers == (house.id,)


def test_what_it_needs_may_be_named_by_a_few_letters_and_must_be_there(scene: Scene) -> None:
    ground = scene.write("ground", "1")
    house = scene.write("house", "2", needs=[ground.id[:8]])
    assert house.needs == (ground.id,)
    for wrong in ("nosuch", ground.run):
        with pytest.raises(takeback.Misuse):
            scene.write("roof", "3", needs=[wrong])
    assert scene.text("roof") is None


def test_two_agents_in_one_directory_do_not_undo_each_other(scene: Scene) -> None:
    mine = scene.write("mine", "1", agent="one")
    scene.write("yours", "2", agent="two")

    scene.tb.undo(mine)

    assert (scene.text("mine"), scene.text("yours")) == (None, "2")


def test_keys_of_one_file_undo_independently_in_any_order(scene: Scene) -> None:
    scene.put("c.toml", "# mine\na = 1  # first\nb = 2\n")
    with scene.tb.run("edit") as run:
        first = run.edit_config(scene.world / "c.toml", {"/a": 10})
        second = run.edit_config(scene.world / "c.toml", {"/b": 20})
    assert first is not None and second is not None

    scene.tb.undo(first)
    assert scene.text("c.toml") == "# mine\na = 1  # first\nb = 20\n"
    scene.tb.undo(second)
    assert scene.text("c.toml") == "# mine\na = 1  # first\nb = 2\n"


def test_a_whole_write_blocks_on_a_later_edit_of_one_key(scene: Scene) -> None:
    whole = scene.write("c.json", '{"a": 1}')
    with scene.tb.run("edit") as run:
        key = run.edit_config(scene.world / "c.json", {"/a": 2})
    assert key is not None

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(whole)

    assert refused.value.blockers == (key.id,)


def test_nothing_of_ours_is_left_beside_the_files(scene: Scene) -> None:
    effect = scene.write("a", "1")
    scene.tb.undo(effect)
    scene.tb.redo()

    assert scene.scratch() == []


def test_undo_without_the_store_it_needs_says_so_and_touches_nothing(scene: Scene) -> None:
    scene.put("big", os.urandom(3_000_000))
    effect = scene.write("big", "small")
    packs = os.path.join(scene.tb.path, "blobs", "packs")
    moved = packs + ".away"
    shutil.move(packs, moved)
    try:
        with takeback.open(scene.tb.path) as fresh, pytest.raises(takeback.Corrupt):
            fresh.undo(effect)
        assert scene.text("big") == "small"
    finally:
        shutil.rmtree(packs, ignore_errors=True)
        shutil.move(moved, packs)
    scene.tb.undo(effect)
    assert (scene.world / "big").stat().st_size == 3_000_000


def test_what_a_forgotten_effect_stands_on_says_that_no_cascade_helps(scene: Scene) -> None:
    first, second, third = (scene.write("a", text) for text in "123")
    scene.tb.forget([second])
    scene.tb.undo(third)

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(first)

    assert "was forgotten" in refused.value.hint and "--cascade" not in refused.value.hint
