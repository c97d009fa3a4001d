"""A watched change, then another effect on the same paths, then perhaps the watched one again: both taken back are the
beginning, and by itself the watched one is refused or forced, never lost."""

import shutil
from pathlib import Path

import pytest

import takeback
from takeback.adapters.watch.other_effects import steps_of
from takeback.adapters.watch.subtract import brought_back
from takeback.errors import Refused


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "dir" / "sub").mkdir(parents=True)
    (tree / "dir" / "a").write_text("a\n")
    (tree / "dir" / "same").write_text("same\n")
    (tree / "dir" / "sub" / "b").write_text("b\n")
    (tree / "dir" / "sub").chmod(0o700)
    (tree / "file").write_text("first\n")
    return tree


@pytest.fixture
def tb(tmp_path):
    with takeback.open(tmp_path / "store") as tb:
        yield tb


def seen(top: Path) -> dict[str, tuple[str, str]]:
    """Every path below, with its mode, and its content if it is a file."""
    return {
        str(one.relative_to(top)): (oct(one.lstat().st_mode), one.read_text() if one.is_file() else "")
        for one in sorted(top.rglob("*"))
    }


def change_in_dir(tree: Path) -> None:
    (tree / "dir" / "a").unlink()
    (tree / "dir" / "sub" / "b").write_text("over\n")


EARLIER = {
    "removed": (change_in_dir, lambda run, tree: run.delete(tree / "dir")),
    "removed by a command": (change_in_dir, lambda run, tree: run.command(["rm", "-r", "dir"], cwd=tree)),
    "moved by a command": (change_in_dir, lambda run, tree: run.command(["mv", "dir", "e"], cwd=tree)),
    "removed around one that was": (
        lambda tree: shutil.rmtree(tree / "dir" / "sub"),
        lambda run, tree: run.delete(tree / "dir"),
    ),
    "a new file given a mode": (
        lambda tree: (tree / "new").write_text("new\n"),
        lambda run, tree: run.chmod(tree / "new", 0o600),
    ),
    "a file written": (
        lambda tree: (tree / "file").write_text("mine\n"),
        lambda run, tree: run.write(tree / "file", "theirs\n"),
    ),
    "a file written where one was removed": (
        lambda tree: (tree / "file").unlink(),
        lambda run, tree: run.write(tree / "file", "theirs\n"),
    ),
    "a directory moved to where a file was": (
        lambda tree: (tree / "file").unlink(),
        lambda run, tree: (
            run.move(tree / "dir", tree / "file"),
            (tree / "file" / "a").write_text("changed\n"),
            (tree / "file" / "sub" / "b").unlink(),
        ),
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", ["both", "cascade", "one after the other"])
@pytest.mark.parametrize("name", EARLIER)
def test_what_was_changed_before_another_effect_goes_back_with_it(tb, tree, name, how):
    mine, theirs = EARLIER[name]
    beginning = seen(tree)
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        mine(tree)
        theirs(other, tree)
    left = seen(tree)
    assert watched.effect

    with pytest.raises(Refused, match="undo both together, or force") as refused:
        tb.undo(watched.effect)
    assert "--cascade" in refused.value.hint
    assert seen(tree) == left

    if how == "cascade":
        tb.undo(watched.effect, cascade=True)
    elif how == "both":
        tb.undo([watched.effect, *tb.effects(run=other.id)])
    else:
        tb.undo(other.id)
        tb.undo(watched.effect)
    assert seen(tree) == beginning

    if how != "one after the other":
        tb.redo()
        assert seen(tree) == left


def test_a_failing_run_that_changed_in_turns_goes_back_to_its_beginning(tb, tree):
    beginning = seen(tree)
    with pytest.raises(ZeroDivisionError), tb.run("failing") as run:
        with run.watch(tree):
            (tree / "file").write_text("mine\n")
            run.write(tree / "file", "theirs\n")
            change_in_dir(tree)
            run.delete(tree / "dir")
        1 / 0  # noqa: B018
    assert seen(tree) == beginning


def test_a_mode_that_another_changed_hides_no_change_of_the_content(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").write_text("mine\n")
        other.chmod(tree / "file", 0o600)
    tb.undo(watched.effect)
    assert seen(tree)["file"] == ("0o100600", "first\n")


def test_what_another_gave_a_mode_comes_back_with_its_content(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        other.chmod(tree / "file", 0o600)
        (tree / "file").unlink()
        (tree / "new").write_text("new\n")
        other.chmod(tree / "new", 0o600)
        (tree / "new").unlink()
    tb.undo(watched.effect)
    assert seen(tree)["file"] == ("0o100600", "first\n")
    assert not (tree / "new").exists()
    tb.undo(other.effects()[0])
    assert seen(tree)["file"] == ("0o100644", "first\n")


def test_what_another_changed_and_took_back_is_not_its_own(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").write_text("mine\n")
        other.undo(other.write(tree / "file", "theirs\n"))
    tb.undo(watched.effect)
    assert (tree / "file").read_text() == "first\n"


def test_what_another_wrote_stays_written_when_its_directory_was_moved(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").unlink()
        (tree / "file").mkdir()
        (tree / "file" / "in").write_text("mine\n")
        other.write(tree / "file" / "in", "theirs\n")
        other.write(tree / "dir" / "a", "theirs too\n")
        other.move(tree / "file", tree / "moved")
        other.move(tree / "dir", tree / "again")
        (tree / "file").write_text("last\n")
    with pytest.raises(Refused, match="changed by effect"):
        tb.undo(watched.effect)
    assert (tree / "moved" / "in").read_text() == "theirs\n"
    assert (tree / "again" / "a").read_text() == "theirs too\n"
    tb.undo(watched.effect, on_conflict="force")
    assert (tree / "file").read_text() == "first\n"


def test_a_directory_of_its_own_comes_back_around_what_another_put_there(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "made").mkdir()
        other.write(tree / "made" / "theirs", "theirs\n")
        shutil.rmtree(tree / "made")
    tb.undo(watched.effect)
    assert (tree / "made" / "theirs").read_text() == "theirs\n"


def test_a_root_that_another_moved_is_looked_at_where_it_is(tb, tree, tmp_path):
    beginning = seen(tree)
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "file").write_text("mine\n")
        other.move(tree, tmp_path / "moved")
        change_in_dir(tmp_path / "moved")
        (tmp_path / "moved" / "new").mkdir()
        (tmp_path / "moved" / "new" / "n").write_text("n\n")
    told = {(one.kind, str(Path(one.path).relative_to(tmp_path))) for one in watched.changes}
    assert told == {
        ("modified", "moved/file"),
        ("modified", "moved/dir/sub/b"),
        ("deleted", "moved/dir/a"),
        ("added", "moved/new"),
        ("added", "moved/new/n"),
    }
    tb.undo(watched.effect)
    assert seen(tmp_path / "moved") == beginning
    tb.undo(other.id)
    assert seen(tree) == beginning


def test_a_directory_that_another_moved_out_is_looked_at_where_it_is(tb, tree, tmp_path):
    (tmp_path / "out").mkdir()
    beginning = seen(tree)
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "dir" / "a").write_text("mine\n")
        other.move(tree / "dir", tmp_path / "out" / "dir")
        (tmp_path / "out" / "dir" / "n").write_text("n\n")
    tb.undo(watched.effect)
    tb.undo(other.id)
    assert seen(tree) == beginning


def test_what_others_put_into_a_directory_that_was_moved_goes_back_before_it(tb, tree):
    beginning = seen(tree)
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "dir").rename(tree / "e")
        other.write(tree / "e" / "a", "theirs\n")
        new = other.write(tree / "e" / "sub" / "new", "new\n")
    left = seen(tree)
    with pytest.raises(Refused, match="stays, because it holds"):
        tb.undo(watched.effect)
    tb.undo(new)
    tb.redo()
    assert seen(tree) == left
    tb.undo(watched.effect, cascade=True)
    assert seen(tree) == beginning


def test_what_others_removed_and_brought_back_is_no_strangers(tb, tree):
    """The kernel tells takeback's own process as the one that changed it last."""
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        (tree / "dir" / "a").write_text("mine\n")
        other.undo(other.delete(tree / "dir"))
        (tree / "dir" / "same").write_text("a stranger's\n")
    steps = steps_of(tb.effects(run=other.id))
    found = brought_back(watched.effect.targets, steps, tb.store.blobs)
    assert [Path(one).name for one in found] == ["a"]
    tb.undo(watched.effect)
    assert (tree / "dir" / "a").read_text() == "a\n"


def test_a_directory_that_is_where_it_was_again_is_told(tb, tree):
    with tb.run("other") as other, tb.run("watching") as run, run.watch(tree) as watched:
        moved = other.move(tree / "dir", tree / "e")
        (tree / "e").rename(tree / "dir")
    assert watched.effect is None
    assert f"are not as effect {moved.id[:8]} left them" in watched.turned_back


def test_a_failing_run_names_what_went_back_in_watched_directories(tb, tree):
    with pytest.raises(ZeroDivisionError) as failed, tb.run("failing") as run:
        with run.watch(tree):
            for number in range(7):
                (tree / f"new{number}").write_text("new\n")
        1 / 0  # noqa: B018
    (note,) = failed.value.__notes__
    assert f"{tree}/new0, " in note and "and 2 more; `takeback redo " in note
    tb.redo(note.partition("redo ")[2].partition("`")[0])
    assert (tree / "new6").exists()
