"""`run.watch`: what someone else changes in a directory is one effect."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.errors import Blocked, Conflict, Misuse, NoRemedy, Refused
from takeback.model.effect import State
from takeback.storage.protocols import Query


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "dir").mkdir(parents=True)
    (tree / "dir" / "file").write_text("before")
    (tree / "other").write_text("other")
    return tree


@pytest.fixture
def tb(tmp_path):
    with takeback.open(tmp_path / "store") as tb:
        yield tb


def manifest(tree: Path):
    """What is below, but for the times of links."""
    found = {}
    for directory, folders, names in os.walk(tree):
        for name in (*folders, *names):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content = Path(path).read_bytes() if os.path.isfile(path) and not os.path.islink(path) else b""
            found[os.path.relpath(path, tree)] = (status.st_mode, status.st_mtime_ns, content)
    return found


def test_what_was_changed_is_one_effect_and_undo_brings_back_everything(tb, tree):
    before = manifest(tree)
    with tb.run("edit") as run, run.watch(tree) as watched:
        shutil.rmtree(tree / "dir")
        (tree / "new").write_text("new")
        (tree / "other").write_text("changed")
    after = manifest(tree)

    assert {(one.kind, os.path.relpath(one.path, tree)) for one in watched.changes} == {
        ("deleted", "dir"), ("deleted", "dir/file"), ("added", "new"), ("modified", "other"),
    }  # fmt: skip
    tb.undo(watched.effect)
    assert manifest(tree) == before
    tb.redo()
    assert manifest(tree) == after


def test_nothing_changed_is_no_effect(tb, tree):
    with tb.run("look") as run, run.watch(tree) as watched:
        (tree / "dir" / "file").read_text()

    assert watched.effect is None
    assert [effect.state for effect in tb.effects()] == [State.ABORTED]


def test_an_exception_takes_back_what_was_done_so_far(tb, tree):
    before = manifest(tree)
    with pytest.raises(ZeroDivisionError), tb.run("fail") as run, run.watch(tree):
        shutil.rmtree(tree / "dir")
        raise ZeroDivisionError

    assert manifest(tree) == before


def test_what_the_run_did_itself_meanwhile_is_not_told_twice(tb, tree):
    with tb.run("both") as run, run.watch(tree) as watched:
        run.write(tree / "own", "own")
        run.delete(tree / "other")
        (tree / "dir" / "file").write_text("foreign")

    assert [os.path.relpath(one.path, tree) for one in watched.changes] == ["dir/file"]
    assert watched.shared == ""


def test_two_watches_at_once_list_a_path_once_and_say_when_they_cannot_know(tb, tree):
    with tb.run("one") as one, tb.run("two") as two:
        first = one.watch(tree)
        first.begin()
        (tree / "early").write_text("before the second began")
        second = two.watch(tree)
        second.begin()
        (tree / "dir" / "file").write_text("whose?")
        first.finish()
        (tree / "late").write_text("after the first ended")
        second.finish()

    assert {Path(change.path).name for change in first.changes} == {"early", "file"}
    assert "dir/file" in first.shared and "early" not in first.shared
    assert {Path(change.path).name for change in second.changes} == {"late"}
    assert [Path(one).name for one in second.elsewhere] == ["file"]
    assert second.shared == ""


def test_a_later_watch_of_the_same_directory_stands_in_the_way_only_where_their_paths_meet(tb, tree):
    with tb.run("agent") as run:
        with run.watch(tree) as first:
            (tree / "dir" / "file").write_text("first")
        with run.watch(tree) as second:
            (tree / "other").write_text("second")
        with run.watch(tree) as third:
            (tree / "dir").chmod(0o700)

    plan = tb.undo(first.effect, cascade=True, dry_run=True)
    assert [one.id for one in plan.effects] == [first.effect.id]
    tb.undo(first.effect)

    assert (tree / "dir" / "file").read_text() == "before"
    assert (tree / "other").read_text() == "second" and (tree / "dir").stat().st_mode & 0o777 == 0o700
    assert third.effect and second.effect
    with tb.run("agent") as run, run.watch(tree):
        shutil.rmtree(tree / "dir")
    with pytest.raises(Blocked):
        tb.undo(third.effect)


def test_home_the_whole_filesystem_and_the_store_are_refused_at_once(tb, tree, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tree))
    with tb.run("dangerous") as run:
        for place, words in (("/", "whole"), ("/tmp", "temporary"), (tree, "home"), (tmp_path, "in it")):
            with pytest.raises(Refused, match=words), run.watch(place):
                pass
        with pytest.raises(Misuse, match="own store"), run.watch(tmp_path / "store", any_root=True):
            pass

    assert not (tmp_path / "store" / "watch").exists()


def test_a_tree_over_the_budget_is_refused_unless_forced(tmp_path, tree):
    takeback.open(tmp_path / "store").close()
    (tmp_path / "store" / "settings.json").write_text('{"watch_entries": 2}')
    with takeback.open(tmp_path / "store") as tb, tb.run("large") as run:
        with pytest.raises(Refused, match="more than 2 entries"), run.watch(tree):
            pass
        with run.watch(tree, any_root=True) as watched:
            (tree / "other").unlink()

    assert watched.effect


def test_the_store_may_lie_in_a_forced_root_and_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("x")
    with takeback.open(tmp_path / "store") as tb:
        with tb.run("around") as run, run.watch(tmp_path, any_root=True) as watched:
            (tmp_path / "file").unlink()
        assert [change.path for change in watched.changes] == [str(tmp_path / "file")]
        assert [hole.reason for hole in watched.left_out] == ["it is takeback's own store"]
        tb.undo(watched.effect)

    assert (tmp_path / "file").read_text() == "x"


def test_what_is_not_a_directory_cannot_be_watched(tb, tree):
    with tb.run("misuse") as run:
        for place in (tree / "other", tree / "missing", ""):
            with pytest.raises(Misuse), run.watch(place):
                pass
        with pytest.raises(Misuse), run.watch():
            pass


@pytest.mark.root
def test_a_filesystem_mounted_inside_is_a_hole_unless_it_is_a_root_too(tb, tree):
    mounted = tree / "mounted"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", mounted], check=True)
    try:
        (mounted / "file").write_text("on another filesystem")
        with tb.run("mounts") as run:
            with pytest.raises(NoRemedy, match="another filesystem"), run.watch(tree):
                pass
            with run.watch(tree, mounted) as watched:
                (mounted / "file").unlink()
        tb.undo(watched.effect)
        assert (mounted / "file").read_text() == "on another filesystem"
    finally:
        subprocess.run(["umount", mounted], check=True)


@pytest.mark.root
def test_a_file_mounted_inside_is_a_hole_because_it_is_written_elsewhere(tb, tree, tmp_path):
    (tmp_path / "elsewhere").write_text("elsewhere")
    subprocess.run(["mount", "--bind", tmp_path / "elsewhere", tree / "dir" / "file"], check=True)
    try:
        with tb.run("mounted") as run:
            with pytest.raises(NoRemedy) as refused, run.watch(tree):
                pass
            assert "dir/file: another file is mounted there" in str(refused.value)
            assert "Unmount it" in refused.value.hint
            with run.watch(tree, any_root=True) as watched:
                (tree / "dir" / "file").write_text("changed")
                (tree / "other").unlink()
        tb.undo(watched.effect)
        assert [Path(hole.path).name for hole in watched.left_out] == ["file"]
    finally:
        subprocess.run(["umount", "-l", tree / "dir" / "file"], check=True)

    assert (tree / "other").read_text() == "other" and (tree / "dir" / "file").read_text() == "before"
    assert (tmp_path / "elsewhere").read_text() == "changed"


def test_sweep_leaves_what_the_next_look_builds_on(tb, tree):
    with tb.run("one") as run, run.watch(tree):
        pass
    tb.sweep(grace=0)
    with tb.run("two") as run, run.watch(tree) as watched:
        (tree / "other").unlink()
    tb.undo(watched.effect)

    assert (tree / "other").read_text() == "other"
    assert tb.verify(read_data=True).sound


def test_a_process_that_died_before_it_proposed_leaves_nothing_that_grows(tb, tree, tmp_path):
    from takeback.adapters.watch.index import Index, indexes_in

    died = subprocess.run(
        [sys.executable, "-c", DIES.format(store=tmp_path / "store", tree=tree)],
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert died.returncode == 9, died.stderr
    directory = str(tmp_path / "store" / "watch")
    index = Index(directory, indexes_in(directory)[0])
    assert len(index.watches()) == 1
    with tb.run("next") as run, run.watch(tree):
        (tree / "other").unlink()

    assert index.watches() == ()
    assert index.changed_since(0) == {}
    index.close()


DIES = (
    """
import os, takeback
import takeback.engine.watch
takeback.engine.watch.begin = lambda *rest: os._exit(9)
tb = takeback.open({str_store!r})
""".replace("{str_store!r}", "'{store}'")
    + """
run = tb.run("dies")
run.watch('{tree}').begin()
"""
)


def test_the_undo_of_one_watch_is_told_from_the_next(tb, tree):
    with tb.run("one") as run, run.watch(tree) as first:
        (tree / "other").write_text("one")
    with tb.run("two") as run, run.watch(tree) as second:
        tb.undo(first.effect)
        (tree / "more").write_text("more")

    assert [Path(change.path).name for change in second.changes] == ["more"]
    assert list(tb.store.journal.effects(Query(states=(State.PROPOSED,)))) == []


def test_a_database_with_its_log_is_one_unit(tb, tree):
    path = tree / "app.db"
    db = sqlite3.connect(path)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t (x)")
        db.execute("INSERT INTO t VALUES ('kept')")
        db.commit()
        with tb.run("database") as run, run.watch(tree) as watched:
            db.execute("INSERT INTO t VALUES ('taken back')")
            db.commit()
            db.close()  # folds the log into the database and removes it
    finally:
        db.close()
    assert sorted(Path(one.path).name for one in watched.changes) == ["app.db", "app.db-shm", "app.db-wal"]

    tb.undo(watched.effect)

    again = sqlite3.connect(path)
    try:
        assert again.execute("SELECT x FROM t").fetchall() == [("kept",)]
        assert again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        again.close()


def test_a_database_in_use_since_then_is_one_conflict(tb, tree):
    path = tree / "app.db"
    db = sqlite3.connect(path)
    try:
        db.execute("CREATE TABLE t (x)")
        db.commit()
        db.execute("PRAGMA journal_mode=WAL")
        with tb.run("database") as run, run.watch(tree) as watched:
            db.execute("INSERT INTO t VALUES (1)")
            db.commit()
            (tree / "other").unlink()
        db.execute("INSERT INTO t VALUES (2)")
        db.commit()
        with pytest.raises(Conflict):
            tb.undo(watched.effect)
        result = tb.undo(watched.effect, on_conflict="skip")
        assert db.execute("SELECT x FROM t").fetchall() == [(1,), (2,)]
    finally:
        db.close()

    assert {one.outcome.value for one in result.targets if "app.db" in one.resource} == {"conflict"}
    assert (tree / "other").read_text() == "other"
