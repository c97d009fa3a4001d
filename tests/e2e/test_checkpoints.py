"""A checkpoint is a point in the journal: `undo --to` and `--since` take back everything of the project after it."""

import os
import sqlite3
from pathlib import Path

import pytest

import takeback as library
from takeback.api import opened_of
from takeback.api.undo import undo_span
from takeback.runs.scope import Span
from tests.e2e.conftest import CommandLine
from tests.e2e.test_projects import at, on_a_terminal
from tests.world import World


@pytest.fixture
def place(world: World) -> Path:
    for name in ("p/.git", "q/.git"):
        os.makedirs(world / name)
    os.chdir(world / "p")
    return Path(os.fspath(world.root))


def test_finding_11_undo_to_takes_back_what_every_run_did_since(takeback: CommandLine, world: World) -> None:
    """`checkpoint_misses_run.sh`."""
    (world / "data.txt").write_text("precious")
    with sqlite3.connect(world / "d.db") as database:
        database.executescript("create table t (x); insert into t values (1)")
    takeback.done("checkpoint", "before")
    before = world.picture()
    takeback.write("a.txt", "new")
    takeback.done("run", "--", "rm", "data.txt")
    takeback.done("sql", "exec", "sqlite:///d.db", "delete from t")
    takeback.done("shell", "--commit", "-c", "echo s > s.txt")
    takeback.write("b.txt", "w", "--run", "other")
    said = takeback.done("undo", "--to", "before", "--dry-run")
    assert "7 effects to take back" in said.out
    assert "(accepted)" in said.out
    assert len(takeback.done("log", "--json").json) == 7
    takeback.done("undo", "--to", "before")
    with sqlite3.connect(world / "d.db") as database:
        assert database.execute("select * from t").fetchall() == [(1,)]
    assert [name for name in sorted(os.listdir(world.root)) if not name.startswith("d.db")] == ["data.txt"]
    assert (world / "data.txt").read_text() == "precious"
    assert before.keys() >= {b"data.txt"}
    assert "nothing has happened since" in takeback.done("undo", "--to", "before").out


def test_what_others_did_needs_a_yes_and_another_project_is_left_alone(place: Path) -> None:
    p, q = at(place / "p"), at(place / "q")
    p.done("checkpoint", "here")
    p.write("a", "1")
    p.done("write", "b", input="2", TAKEBACK_AGENT="bob")
    q.write("c", "3")
    said = p("undo", "--to", "here")
    assert said.code == 3
    assert "by bob" in said.err
    assert "--yes" in said.err
    assert q("undo", "--to", "here").code == 2
    code, told = on_a_terminal(place / "p", ("undo", "--to", "here"), "n\n")
    assert code == 3
    assert "2 effects to take back" in told
    assert sorted(os.listdir(place / "p")) == [".git", "a", "b"]
    p.done("undo", "--to", "here", "--yes")
    assert os.listdir(place / "p") == [".git"]
    assert (place / "q/c").exists()
    p.done("redo")
    code, told = on_a_terminal(place / "p", ("undo", "--since", "1h"), "y\n")
    assert code == 0
    assert os.listdir(place / "p") == [".git"]


def test_a_name_given_twice_means_the_newest_and_the_other_goes_by_id(place: Path) -> None:
    p = at(place / "p")
    first = p.done("checkpoint", "here", "--json").json["id"]
    p.write("a", "1")
    said = p.done("checkpoint", "here")
    assert f"An earlier one ({first[:8]}" in said.out
    p.write("b", "2")
    p.done("undo", "--to", "here")
    assert sorted(os.listdir(place / "p")) == [".git", "a"]
    p.done("undo", "--to", first[:8])
    assert sorted(os.listdir(place / "p")) == [".git"]


def test_run_narrows_it(place: Path) -> None:
    p = at(place / "p")
    p.done("checkpoint", "here")
    p.write("a", "1")
    p.write("b", "2", "--run", "other")
    p.done("undo", "--to", "here", "--run", "other")
    assert sorted(os.listdir(place / "p")) == [".git", "a"]


def test_what_was_undone_since_is_brought_back(place: Path) -> None:
    """So that everything is as it was at the point."""
    with library.open() as tb:
        with tb.run("one") as run:
            early = run.write("early", "1")
            point = run.checkpoint("here")
        tb.undo(early)
        with tb.run("two") as run:
            passing = run.write("passing", "2")
            run.write("late", "3")
        tb.undo(passing)
        assert tb.undo_to(point).outcome == "done"
        assert sorted(os.listdir()) == [".git", "early"]


def test_a_live_run_and_an_open_watch_refuse_by_name(place: Path) -> None:
    with library.open() as tb:
        with tb.run("first") as run:
            point = run.checkpoint("here")
        with tb.run("at work", agent="ann") as run:
            run.write("a", "1")
            with pytest.raises(library.StoreBusy, match=r"at work.* of ann has not ended"):
                tb.undo_to(point)
        session = tb.session("tools")
        watch = session.watch(".")
        watch.begin()
        session.leave()
        with pytest.raises(library.StoreBusy, match=r"is an open watch|has not ended"):
            tb.undo_to(point)
    assert (place / "p/a").exists()


def test_what_cannot_be_taken_back_stays_and_is_told(place: Path) -> None:
    with library.open() as tb:
        with tb.run("first") as run:
            point = run.checkpoint("here")
        with tb.run("second") as run:
            lost, kept = run.write("a", "1"), run.write("b", "2")
        tb.accept(kept)
        tb.forget(lost)
        result = tb.undo_to(point)
        assert result.outcome == "partial"
        assert [one.outcome for one in result.targets if one.effect == lost.id] == ["excluded"]
    assert sorted(os.listdir()) == [".git", "a"]
    said = at(place / "p")("undo", "--to", "here")
    assert said.code in (1, 3)
    assert "forgotten" in said.err


def test_in_python_a_run_goes_back_within_itself(place: Path) -> None:
    with library.open() as tb, tb.run("one") as run:
        run.checkpoint("here")
        run.write("a", "1")
        with tb.run("two") as other:
            other.write("b", "2")
        run.undo(to="here")
    assert sorted(os.listdir()) == [".git", "b"]


def test_something_that_happens_while_one_is_asked_is_not_taken_along(place: Path) -> None:
    with library.open() as tb:
        with tb.run("one") as run:
            point = run.checkpoint("here")
            run.write("a", "1")
        span = Span(opened_of(tb).here(), seq=point.seq)
        plan = undo_span(opened_of(tb), span, dry_run=True)
        with tb.run("two") as run:
            run.write("b", "2")
        with pytest.raises(library.StoreBusy, match="in the meantime"):
            undo_span(opened_of(tb), span, [one.id for one in plan.effects])
    assert sorted(os.listdir()) == [".git", "a", "b"]


def test_named_checkpoints_do_not_expire(place: Path) -> None:
    with library.open() as tb:
        with tb.run("many") as run:
            run.checkpoint("first")
            for number in range(30):
                run.checkpoint(f"point {number}")
        assert next(one.label for one in tb.checkpoints()) == "first"
        assert len(tb.checkpoints()) == 31
