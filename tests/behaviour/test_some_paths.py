"""Undo of some paths of an effect: these go, the rest stands, and each undo can be brought back by itself."""

import os
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import takeback
from takeback.engine.portion import undone_paths
from takeback.model.plan import Bond
from tests.behaviour.conftest import Scene

ENGINES = ("write", "command", "watch", "box")


def changed(scene: Scene, engine: str, files: Mapping[str, str]) -> takeback.Effect:
    """One effect that writes all these files."""
    with scene.tb.run(f"change by {engine}", agent="agent") as run:
        if engine == "write":
            effect = run.write_all({scene.world / name: text for name, text in files.items()})
        elif engine == "watch":
            with run.watch(scene.world.root) as watched:
                for name, text in files.items():
                    scene.put(name, text)
            effect = watched.effect
        else:
            pairs = [word for pair in files.items() for word in pair]
            script = 'while [ $# -gt 0 ]; do printf %s "$2" > "$1"; shift 2; done'
            line = ["/bin/sh", "-c", script, "sh", *pairs]
            if engine == "command":
                effect = run.command(line, cwd=str(scene.world.root)).effect
            else:
                with run.sandbox(cwd=str(scene.world.root)) as box:
                    box.run(line)
                    effect = box.commit().effect
    assert effect is not None
    return effect


def by_command(scene: Scene, script: str) -> takeback.Effect:
    with scene.tb.run("command") as run:
        effect = run.command(["/bin/sh", "-c", script], cwd=str(scene.world.root)).effect
    assert effect is not None
    return effect


def by_watch(scene: Scene, script: str) -> takeback.Effect:
    with scene.tb.run("watch") as run, run.watch(scene.world.root) as watched:
        subprocess.run(["/bin/sh", "-c", script], cwd=scene.world.root, check=True)
    assert watched.effect is not None
    return watched.effect


def undone(scene: Scene, effect: takeback.Effect) -> set[str]:
    """Names of the paths that are taken back while others stand."""
    found = undone_paths(scene.tb.store.journal, [scene.tb.effect(effect.id)])
    return {
        os.path.relpath(one.removeprefix("file://"), scene.world.root) for one in found.get(effect.id, ())
    }


def along(scene: Scene, result: takeback.UndoResult) -> dict[str, Bond]:
    root = f"file://{scene.world.root}/"
    return {one.resource.removeprefix(root): one.bond for one in result.along}


def whole(scene: Scene, effect: takeback.Effect) -> list[str]:
    """The commit of a box is two effects."""
    return [effect.id, *(one.id for one in scene.tb.effects(state="done") if effect.id in one.needs)]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_the_paths_named_go_and_undo_does_the_rest(scene: Scene, engine: str) -> None:
    for name in "abc":
        scene.put(name, f"old {name}")
    before = scene.world.picture()
    effect = changed(scene, engine, {name: f"new {name}" for name in "abc"})
    after = scene.world.picture()

    result = scene.tb.undo(effect, paths=[scene.world / "b"])

    assert result.outcome == "done"
    assert [scene.text(name) for name in "abc"] == ["new a", "old b", "new c"]
    assert (scene.state(effect), undone(scene, effect)) == ("done", {"b"})

    rest = scene.tb.undo(whole(scene, effect))
    assert scene.world.picture() == before
    assert (scene.state(effect), undone(scene, effect)) == ("undone", set())

    scene.tb.redo(rest)
    assert [scene.text(name) for name in "abc"] == ["new a", "old b", "new c"]
    assert undone(scene, effect) == {"b"}
    scene.tb.redo(result)
    assert scene.world.picture() == after
    assert (scene.state(effect), undone(scene, effect)) == ("done", set())


def test_redo_in_the_other_order(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "a", "b": "b", "c": "c"})
    first = scene.tb.undo(effect, paths=[scene.world / "a"])
    second = scene.tb.undo(effect, paths=[scene.world / "b"])
    rest = scene.tb.undo(effect)
    assert scene.state(effect) == "undone"

    scene.tb.redo(first)

    assert [scene.text(name) for name in "abc"] == ["a", None, None]
    assert undone(scene, effect) == {"b", "c"}, "part of it stands again"
    scene.tb.redo(rest)
    assert [scene.text(name) for name in "abc"] == ["a", None, "c"]
    assert (scene.state(effect), undone(scene, effect)) == ("done", {"b"})
    scene.tb.redo(second)
    assert (scene.state(effect), undone(scene, effect)) == ("done", set())


def test_what_was_brought_back_out_of_turn_can_be_taken_back_by_the_name_of_the_effect(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "a", "b": "b", "c": "c"})
    first = scene.tb.undo(effect, paths=[scene.world / "a", scene.world / "b"])
    rest = scene.tb.undo(effect)
    scene.tb.redo(first)

    with pytest.raises(takeback.Refused, match="already undone"):
        scene.tb.undo(effect, paths=[scene.world / "c"])
    scene.tb.undo(effect, paths=[scene.world / "a"])
    assert [scene.text(name) for name in "abc"] == [None, "b", None]
    assert undone(scene, effect) == {"a", "c"}
    scene.tb.undo(effect)
    assert [scene.text(name) for name in "abc"] == [None, None, None]
    assert undone(scene, effect) == set()
    with pytest.raises(takeback.Refused, match="already undone"):
        scene.tb.undo(effect)
    scene.tb.redo(rest)
    assert [scene.text(name) for name in "abc"] == [None, None, "c"]


def test_a_second_undo_that_takes_all_the_rest_by_name_makes_the_effect_undone(scene: Scene) -> None:
    effect = changed(scene, "write", {"a": "a", "b": "b"})
    scene.tb.undo(effect, paths=[scene.world / "a"])

    scene.tb.undo(effect, paths=[scene.world / "b"])

    assert scene.state(effect) == "undone"


def test_overlapping_choices_take_what_still_stands(scene: Scene) -> None:
    (scene.world / "d").mkdir()
    effect = changed(scene, "command", {"d/a": "a", "d/b": "b", "c": "c"})
    scene.tb.undo(effect, paths=[scene.world / "d/a"])

    result = scene.tb.undo(effect, paths=[scene.world / "d"])

    assert [os.path.basename(one.resource) for one in result.targets] == ["b"]
    assert undone(scene, effect) == {"d/a", "d/b"}
    scene.tb.redo(result)
    assert (scene.text("d/a"), scene.text("d/b")) == (None, "b")


def test_redo_by_the_name_of_the_effect_brings_back_what_the_newest_undo_took(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "a", "b": "b", "c": "c"})
    scene.tb.undo(effect, paths=[scene.world / "a"])
    scene.tb.undo(effect, paths=[scene.world / "b"])

    scene.tb.redo(effect)

    assert [scene.text(name) for name in "abc"] == [None, "b", "c"]


def test_a_path_that_the_effect_did_not_touch_is_refused_and_the_nearest_are_named(scene: Scene) -> None:
    effect = changed(scene, "command", {"config.toml": "1", "other": "2"})
    before = scene.world.picture(directory_times=True)

    with pytest.raises(takeback.Misuse, match=r"did not touch .*/config\.tml") as refused:
        scene.tb.undo(effect, paths=[scene.world / "other", scene.world / "config.tml"])

    assert "config.toml" in str(refused.value.hint)
    assert scene.world.picture(directory_times=True) == before
    assert len(scene.tb.effects()) == 1


def test_paths_count_from_the_current_directory_and_through_links(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scene.world / "d").mkdir()
    os.symlink("d", scene.world / "link")
    effect = changed(scene, "command", {"d/a": "a", "d/b": "b", "c": "c"})
    monkeypatch.chdir(scene.world / "d")

    scene.tb.undo(effect, paths=["a"])
    assert undone(scene, effect) == {"d/a"}
    scene.tb.undo(effect, paths=["../link"])
    assert undone(scene, effect) == {"d/a", "d/b"}


def test_later_effects_depend_on_what_still_stands(scene: Scene) -> None:
    scene.put("a", "old")
    effect = changed(scene, "command", {"a": "1", "b": "1"})
    scene.tb.undo(effect, paths=[scene.world / "a"])
    later = scene.write("a", "later")

    scene.tb.undo(effect)

    assert (scene.text("a"), scene.text("b")) == ("later", None), "what came later on a stands on the old one"
    scene.tb.undo(later)
    assert scene.text("a") == "old"


def test_a_later_effect_on_what_still_stands_blocks(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "1", "b": "1"})
    scene.tb.undo(effect, paths=[scene.world / "a"])
    later = scene.write("b", "later")

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(effect)

    assert refused.value.blockers == (later.id,)
    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(effect, paths=[scene.world / "b"])
    assert "cascade" not in str(refused.value.hint)


def test_a_later_effect_that_is_partly_undone_blocks_no_longer_where_it_is(scene: Scene) -> None:
    scene.put("a", "old")
    first = scene.write("a", "first")
    later = changed(scene, "command", {"a": "later", "b": "later"})
    with pytest.raises(takeback.Blocked):
        scene.tb.undo(first)
    scene.tb.undo(later, paths=[scene.world / "a"])

    scene.tb.undo(first)

    assert (scene.text("a"), scene.text("b")) == ("old", "later")


def test_a_cascade_takes_of_a_partly_undone_effect_what_stands(scene: Scene) -> None:
    first = changed(scene, "write", {"a": "1", "b": "1"})
    later = changed(scene, "command", {"a": "2", "b": "2", "c": "2"})
    scene.tb.undo(later, paths=[scene.world / "a"])
    scene.put("c", "someone's")
    with pytest.raises(takeback.Conflict):
        scene.tb.undo(first, cascade=True)
    scene.put("c", "2")

    scene.tb.undo(first, cascade=True)

    assert [scene.text(name) for name in "abc"] == [None, None, None]


def test_a_later_edit_is_in_the_way_only_of_its_own_path_and_merge_takes_it_out(scene: Scene) -> None:
    lines = "".join(f"line {number}\n" for number in range(12))
    scene.put("a", lines)
    scene.put("b", lines)
    edited = lines.replace("line 2\n", "two\n")
    effect = changed(scene, "command", {"a": edited, "b": edited})
    scene.write("a", edited.replace("line 9\n", "nine\n"))

    with pytest.raises(takeback.Blocked, match="Later effects"):
        scene.tb.undo(effect, paths=[scene.world / "a"])
    scene.tb.undo(effect, paths=[scene.world / "b"])
    assert scene.text("b") == lines
    result = scene.tb.undo(effect, paths=[scene.world / "a"], on_conflict="merge")

    assert result.outcome == "done"
    assert scene.text("a") == lines.replace("line 9\n", "nine\n")
    assert scene.state(effect) == "undone"
    scene.tb.redo(result)
    assert scene.text("a") == edited.replace("line 9\n", "nine\n")
    assert undone(scene, effect) == {"b"}


@pytest.mark.parametrize("engine", ["write", "command", "watch"])
def test_skip_and_force_are_about_the_paths_named(scene: Scene, engine: str) -> None:
    effect = changed(scene, engine, {"a": "1", "b": "1", "c": "1"})
    for name in "ac":
        scene.put(name, "someone's")
    with pytest.raises(takeback.Conflict) as refused:
        scene.tb.undo(effect, paths=[scene.world / "a", scene.world / "b"])
    assert [os.path.basename(one) for one in refused.value.resources] == ["a"]

    result = scene.tb.undo(effect, paths=[scene.world / "a", scene.world / "b"], on_conflict="skip")
    assert (result.outcome, undone(scene, effect)) == ("partial", {"b"})
    forced = scene.tb.undo(effect, paths=[scene.world / "a"], on_conflict="force")
    assert [scene.text(name) for name in "abc"] == [None, None, "someone's"]
    assert undone(scene, effect) == {"a", "b"}
    scene.tb.redo(forced)
    assert [scene.text(name) for name in "abc"] == ["someone's", None, "someone's"]


def test_a_dry_run_tells_the_same_and_changes_nothing(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "1", "b": "1"})
    before = scene.world.picture(directory_times=True)

    result = scene.tb.undo(effect, paths=[scene.world / "a"], dry_run=True)

    assert result.outcome == "planned"
    assert [os.path.basename(one.resource) for one in result.targets] == ["a"]
    assert scene.world.picture(directory_times=True) == before
    assert undone(scene, effect) == set()


MOVERS: dict[str, Callable[[Scene, str], takeback.Effect]] = {"command": by_command, "watch": by_watch}


@pytest.mark.parametrize("how", MOVERS)
@pytest.mark.parametrize("named", ["old", "new"])
def test_both_names_of_a_move_go_together(scene: Scene, how: str, named: str) -> None:
    scene.put("old", "moved")
    before = scene.world.picture()
    effect = MOVERS[how](scene, "mv old new; echo x > beside")

    result = scene.tb.undo(effect, paths=[scene.world / named])

    assert along(scene, result) == {"new" if named == "old" else "old": Bond.MOVE}
    assert (scene.text("old"), scene.text("new"), scene.text("beside")) == ("moved", None, "x\n")
    scene.tb.undo(effect)
    assert scene.world.picture() == before


@pytest.mark.parametrize("named", ["old", "new"])
def test_a_move_as_one_change_goes_as_one(scene: Scene, named: str) -> None:
    scene.put("old", "moved")
    with scene.tb.run("move") as run:
        effect = run.move(scene.world / "old", scene.world / "new")
    assert effect is not None

    result = scene.tb.undo(effect, paths=[scene.world / named])

    assert along(scene, result) == {"new" if named == "old" else "old": Bond.MOVE}
    assert (scene.text("old"), scene.text("new")) == ("moved", None)
    assert scene.state(effect) == "undone"


@pytest.mark.parametrize("how", MOVERS)
def test_names_of_one_file_go_together(scene: Scene, how: str) -> None:
    scene.put("one", "linked")
    os.link(scene.world / "one", scene.world / "two")
    before = scene.world.picture()
    effect = MOVERS[how](scene, "echo more >> one; echo x > beside")

    result = scene.tb.undo(effect, paths=[scene.world / "two"])

    assert along(scene, result) == {"one": Bond.LINK}
    assert scene.text("beside") == "x\n"
    assert (scene.world / "one").samefile(scene.world / "two")
    scene.tb.undo(effect)
    assert scene.world.picture() == before


@pytest.mark.parametrize("how", MOVERS)
def test_a_database_and_its_side_files_go_together(scene: Scene, how: str) -> None:
    with sqlite3.connect(scene.world / "app.db") as made:
        made.execute("PRAGMA journal_mode = wal")
        made.execute("CREATE TABLE t (x)")
        made.execute("INSERT INTO t VALUES (1)")
    made.close()
    scene.put("app.db-wal", "")
    scene.put("app.db-shm", "")
    effect = MOVERS[how](
        scene, "echo x >> app.db; echo y >> app.db-wal; echo z >> app.db-shm; echo w > beside"
    )

    result = scene.tb.undo(effect, paths=[scene.world / "app.db-wal"])

    assert set(along(scene, result).values()) == {Bond.DATABASE}
    assert undone(scene, effect) == {"app.db", "app.db-wal", "app.db-shm"}
    assert scene.text("beside") == "w\n"


def test_what_comes_back_brings_the_directory_that_it_was_in(scene: Scene) -> None:
    (scene.world / "d/inner").mkdir(parents=True)
    for name in ("d/inner/a", "d/inner/b", "d/c"):
        scene.put(name, name)
    before = scene.world.picture()
    effect = by_command(scene, "rm -r d")

    result = scene.tb.undo(effect, paths=[scene.world / "d/inner/a"])

    assert along(scene, result) == {"d": Bond.DIRECTORY, "d/inner": Bond.DIRECTORY}
    assert (scene.text("d/inner/a"), scene.text("d/inner/b"), scene.text("d/c")) == ("d/inner/a", None, None)
    scene.tb.undo(effect)
    assert scene.world.picture() == before


def test_a_directory_that_the_effect_made_stays_as_long_as_something_of_it_does(scene: Scene) -> None:
    before = scene.world.picture()
    effect = by_command(scene, "mkdir d; echo a > d/a; echo b > d/b")

    scene.tb.undo(effect, paths=[scene.world / "d/a"])
    assert (scene.text("d/a"), scene.text("d/b")) == (None, "b\n")
    scene.tb.undo(effect, paths=[scene.world / "d"])

    assert scene.world.picture() == before
    assert scene.state(effect) == "undone"


def test_what_was_removed_as_one_comes_back_as_one(scene: Scene) -> None:
    (scene.world / "d").mkdir()
    scene.put("d/a", "a")
    scene.put("d/b", "b")
    with scene.tb.run("remove") as run:
        effect = run.delete(scene.world / "d")
    assert effect is not None

    result = scene.tb.undo(effect, paths=[scene.world / "d/a"])

    assert along(scene, result) == {"d": Bond.WHOLE}
    assert (scene.text("d/a"), scene.text("d/b")) == ("a", "b")


def test_keys_of_a_file_go_with_the_file(scene: Scene) -> None:
    scene.put("c.json", '{"a": 1, "b": 2}\n')
    with scene.tb.run("edit") as run:
        effect = run.edit_config(scene.world / "c.json", {"/a": 10, "/b": 20})
    assert effect is not None

    scene.tb.undo(effect, paths=[scene.world / "c.json"])

    assert scene.text("c.json") == '{"a": 1, "b": 2}\n'
    assert scene.state(effect) == "undone"


def test_rows_have_no_paths_and_are_left_and_named(scene: Scene) -> None:
    with sqlite3.connect(scene.world / "app.db") as made:
        made.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
    made.close()
    with scene.tb.run("rows") as run:
        database = run.sql(f"sqlite:///{scene.world / 'app.db'}")
        database.execute("INSERT INTO t VALUES (1)")
        effect = run.effects()[-1]

    with pytest.raises(takeback.Refused, match="rows of a database"):
        scene.tb.undo(effect, paths=[scene.world / "app.db"])

    assert scene.state(effect) == "done"


def test_paths_are_of_one_effect_and_go_with_no_others(scene: Scene) -> None:
    first, second = scene.write("a", "1"), scene.write("b", "2")
    path = [scene.world / "a"]

    with pytest.raises(takeback.Misuse, match="one effect at a time"):
        scene.tb.undo([first, second], paths=path)
    with pytest.raises(takeback.Misuse, match="one effect at a time"):
        scene.tb.undo(scene.tb.find_run("write a"), paths=path)
    with pytest.raises(takeback.Misuse, match="cascade"):
        scene.tb.undo(first, paths=path, cascade=True)
    with pytest.raises(takeback.Misuse, match="No path"):
        scene.tb.undo(first, paths=[])
    with pytest.raises(takeback.Misuse, match="as a list"):
        scene.tb.undo(first, paths=str(scene.world / "a"))  # type: ignore[arg-type]
    assert (scene.text("a"), scene.text("b")) == ("1", "2")


def test_a_box_commit_is_named_by_either_of_its_effects(scene: Scene) -> None:
    effect = changed(scene, "box", {"a": "1", "b": "1"})
    (told,) = [one for one in scene.tb.effects(state="done") if effect.id in one.needs]

    scene.tb.undo(told, paths=[scene.world / "a"])

    assert (scene.text("a"), scene.text("b")) == (None, "1")
    assert undone(scene, effect) == {"a"}
    scene.tb.undo([told, effect])
    assert scene.text("b") is None


def test_in_a_run_and_the_rest_goes_when_it_fails(scene: Scene) -> None:
    scene.put("a", "old")
    with pytest.raises(ZeroDivisionError), scene.tb.run("fails") as run:
        effect = run.write_all({scene.world / name: "new" for name in "abc"})
        assert effect is not None
        result = run.undo(effect, paths=[scene.world / "a"])
        assert (result.outcome, scene.text("a"), scene.text("b")) == ("done", "old", "new")
        scene.put("a", "someone's")
        raise ZeroDivisionError

    assert [scene.text(name) for name in "abc"] == ["someone's", None, None]
    assert scene.state(effect) == "undone"


def test_an_accepted_effect_can_be_undone_in_part(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "1", "b": "1"})
    scene.tb.accept(effect)

    scene.tb.undo(effect, paths=[scene.world / "a"])

    assert (scene.text("a"), scene.text("b")) == (None, "1")
    assert scene.tb.effect(effect.id).accepted


def test_what_is_already_back_by_hand_is_no_news(scene: Scene) -> None:
    effect = changed(scene, "command", {"a": "1", "b": "1"})
    os.unlink(scene.world / "a")

    result = scene.tb.undo(effect, paths=[scene.world / "a"])

    assert [one.outcome.value for one in result.targets] == ["already"]
    assert not result.undo


def test_the_directory_gets_its_time_back_when_all_of_it_is_undone(scene: Scene) -> None:
    (scene.world / "d").mkdir()
    (scene.world / "e").mkdir()
    for name in "de":
        os.utime(scene.world / name, ns=(10**18, 10**18))
    before = scene.world.picture(directory_times=True)
    effect = by_command(scene, "echo a > d/a; echo b > d/b; echo c > e/c")
    moved = (scene.world / "e").stat().st_mtime_ns

    scene.tb.undo(effect, paths=[scene.world / "d/a"])
    assert (scene.world / "e").stat().st_mtime_ns == moved
    scene.tb.undo(effect)

    after = scene.world.picture(directory_times=True)
    assert {name: after[name] for name in (b"d", b"e")} == {name: before[name] for name in (b"d", b"e")}


def test_another_process_reads_the_same_from_the_journal(scene: Scene, tmp_path: Path) -> None:
    effect = changed(scene, "command", {"a": "1", "b": "1"})
    scene.tb.undo(effect, paths=[scene.world / "a"])
    with takeback.open(scene.tb.store.path) as other:
        other.undo(effect.id, paths=[scene.world / "b"])
        assert other.effect(effect.id).state.value == "undone"
