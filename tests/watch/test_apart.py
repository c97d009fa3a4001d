"""What takeback itself did in a watched tree meanwhile is another effect's, and stays when the watched one goes."""

import shutil
from pathlib import Path

import pytest

import takeback
from takeback.errors import Refused


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "dir" / "sub").mkdir(parents=True)
    (tree / "dir" / "a").write_text("a\n")
    (tree / "dir" / "sub" / "b").write_text("b\n")
    (tree / "aside").unlink(missing_ok=True)
    (tree / "file").write_text("first\n")
    (tree / "data.json").write_text('{"k": 1}\n')
    return tree


@pytest.fixture
def tb(tmp_path):
    with takeback.open(tmp_path / "store") as tb:
        yield tb


def contents(tree: Path) -> dict[str, str]:
    return {str(one.relative_to(tree)): one.read_text() for one in sorted(tree.rglob("*")) if one.is_file()}


OTHERS = {
    "moved": lambda run, tree: run.move(tree / "dir", tree / "moved"),
    "moved twice": lambda run, tree: (
        run.move(tree / "dir", tree / "moved"),
        run.move(tree / "moved", tree / "again"),
    ),
    "made": lambda run, tree: run.mkdir(tree / "n" / "m" / "o", parents=True),
    "deleted": lambda run, tree: run.delete(tree / "dir"),
    "edited": lambda run, tree: run.edit_config(tree / "data.json", set={"/k": 2}),
    "written": lambda run, tree: run.write(tree / "file", "second\n"),
    "deleted and brought back": lambda run, tree: run.undo(run.delete(tree / "dir")),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_another_effect_did_meanwhile_is_not_told_twice(tb, tree, name):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        OTHERS[name](other, tree)
    assert watched.effect is None

    left = contents(tree)
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "mine").write_text("mine\n")
        if name == "written":
            other.write(tree / "file", "third\n")
            left["file"] = "third\n"
    tb.undo(watched.effect)
    assert contents(tree) == left


def test_what_went_on_from_what_another_left_goes_back_to_that(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.write(tree / "file", "first\nsecond\n")
        other.edit_config(tree / "data.json", set={"/k": 2})
        edited = (tree / "data.json").read_text()
        with open(tree / "file", "a") as file:
            file.write("third\n")
        (tree / "data.json").write_text("{}\n")

    tb.undo(watched.effect)

    assert (tree / "file").read_text() == "first\nsecond\n"
    assert (tree / "data.json").read_text() == edited


def test_what_another_made_and_the_watched_one_removed_comes_back(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.write(tree / "dir" / "made", "made\n")
        shutil.rmtree(tree / "dir")

    tb.undo(watched.effect)

    assert (tree / "dir" / "made").read_text() == "made\n"
    assert (tree / "dir" / "a").read_text() == "a\n"


def test_what_changed_in_a_directory_that_another_moved_is_told_where_it_is(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.move(tree / "dir", tree / "moved")
        (tree / "moved" / "a").write_text("changed\n")
        (tree / "moved" / "sub" / "b").unlink()
        (tree / "moved" / "new").write_text("new\n")

    told = {(one.kind, str(Path(one.path).relative_to(tree))) for one in watched.changes}
    assert told == {("modified", "moved/a"), ("deleted", "moved/sub/b"), ("added", "moved/new")}
    tb.undo(watched.effect)
    assert contents(tree / "moved") == {"a": "a\n", "sub/b": "b\n"}


def test_what_both_changed_in_turns_goes_back_by_force_only_and_nothing_is_lost(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").unlink()
        written = other.write(tree / "file", "theirs\n")
        with open(tree / "file", "a") as file:
            file.write("mine\n")
    assert written
    with pytest.raises(Refused, match=f"changed by effect {written.id[:8]} too; only force"):
        tb.undo(watched.effect)
    assert (tree / "file").read_text() == "theirs\nmine\n"

    tb.undo(watched.effect, on_conflict="force")
    assert (tree / "file").read_text() == "first\n"
    tb.redo()
    assert (tree / "file").read_text() == "theirs\nmine\n"


def test_what_another_wrote_last_stays_until_it_is_forced(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").write_text("mine\n")
        other.write(tree / "file", "theirs\n")
    with pytest.raises(Refused, match="undo both together, or force"):
        tb.undo(watched.effect)
    assert (tree / "file").read_text() == "theirs\n"
    tb.undo(watched.effect, on_conflict="force")
    assert (tree / "file").read_text() == "first\n"


def test_what_is_as_it_was_at_the_beginning_goes_back_to_what_another_made_of_it(tb, tree):
    (tree / "file").rename(tree / "aside")
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "aside").rename(tree / "file")
        other.write(tree / "file", "theirs\n")
        other.chmod(tree / "data.json", 0o600)
        (tree / "file").unlink()
        (tree / "data.json").chmod(0o644)
    tb.undo(watched.effect, on_conflict="force")
    assert oct((tree / "data.json").stat().st_mode)[-3:] == "600"

    (tree / "aside").unlink(missing_ok=True)
    (tree / "file").write_text("first\n")
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").rename(tree / "aside")
        other.write(tree / "file", "theirs\n")
        (tree / "aside").rename(tree / "file")
    assert [(one.kind, Path(one.path).name) for one in watched.changes] == [("modified", "file")]
    tb.undo(watched.effect)
    assert (tree / "file").read_text() == "theirs\n"


def test_a_directory_that_was_moved_back_is_nobodys_change(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.move(tree / "dir", tree / "e")
        (tree / "e").rename(tree / "dir")
    assert watched.effect is None


def test_a_directory_made_again_just_as_it_was_goes_as_a_whole(tb, tree, tmp_path):
    shutil.copytree(tree / "dir", tmp_path / "copy")
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.delete(tree / "dir")
        shutil.copytree(tmp_path / "copy", tree / "dir")
    tb.undo(watched.effect)
    assert not (tree / "dir").exists()


REMOVED = {
    "moved there": (
        lambda run, tree: run.move(tree / "dir", tree / "e"),
        lambda tree: shutil.rmtree(tree / "e"),
    ),
    "moved on": (
        lambda run, tree: run.move(tree / "dir", tree / "e"),
        lambda tree: (tree / "e").rename(tree / "f"),
    ),
    "made": (
        lambda run, tree: run.mkdir(tree / "n" / "m" / "o", parents=True),
        lambda tree: (tree / "n" / "m" / "o").rmdir(),
    ),
    "removed": (
        lambda run, tree: run.delete(tree / "dir"),
        lambda tree: ((tree / "dir").mkdir(), (tree / "dir" / "a").write_text("again")),
    ),
}


@pytest.mark.parametrize("name", REMOVED)
def test_directories_that_another_moved_made_or_removed_are_as_it_left_them(tb, tree, name):
    others, ours = REMOVED[name]
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        others(other, tree)
        left = sorted(str(one) for one in tree.rglob("*"))
        ours(tree)
    tb.undo(watched.effect)
    assert sorted(str(one) for one in tree.rglob("*")) == left
    tb.undo(other.id)
    assert (tree / "dir" / "sub" / "b").read_text() == "b\n"


def test_what_was_brought_from_outside_and_removed_is_told_as_not_captured(tb, tree, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("1")
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.move(tmp_path / "out", tree / "in")
        shutil.rmtree(tree / "in")
    assert [(one.kind, Path(one.path).name) for one in watched.changes] == [("deleted", "in")]
    with pytest.raises(Refused, match="not captured"):
        tb.undo(watched.effect)


def test_steps_of_a_box_beside_a_watch_are_nothing_to_it(tb, tree):
    with (
        tb.run("other") as other,
        other.sandbox() as box,
        tb.run("watching") as run,
        run.watch(tree) as watched,
    ):
        box.run(f"echo x > {tree}/x")
        (tree / "y").write_text("y")
        box.commit()
    assert [Path(one.path).name for one in watched.changes] == ["y"]


def test_what_was_changed_before_another_removed_the_directory_is_in_an_effect(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "dir" / "a").unlink()
        (tree / "dir" / "sub" / "b").write_text("over")
        other.delete(tree / "dir")
    assert watched.effect
    told = {Path(one.path).name for one in watched.changes}
    assert told == {"a", "b"}
    with pytest.raises(Refused, match="undo both together, or force"):
        tb.undo(watched.effect)
    tb.undo(watched.effect, on_conflict="force")
    assert contents(tree / "dir") == {"a": "a\n", "sub/b": "b\n"}


def test_a_directory_that_another_moved_to_where_a_file_was_is_recorded(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").unlink()
        other.move(tree / "dir", tree / "file")
        (tree / "file" / "a").write_text("changed\n")
    assert watched.effect
    before = {one.resource.rpartition("/")[2]: one.before for one in watched.effect.targets}
    assert tb.store.blobs.has(before["file"]["digest"])
