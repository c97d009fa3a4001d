"""What takeback itself did in a watched tree meanwhile is another effect's, and stays when the watched one goes."""

import shutil
from pathlib import Path

import pytest

import takeback


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "dir" / "sub").mkdir(parents=True)
    (tree / "dir" / "a").write_text("a\n")
    (tree / "dir" / "sub" / "b").write_text("b\n")
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
