"""A database that someone has open is neither replaced, removed nor taken back: what it commits next would be lost."""

import os
import sqlite3
from pathlib import Path

import pytest

import takeback
from tests.trees.unit.test_in_use import add, opened_by_another, rows
from tests.world import World

HAS_OPEN = "has open"


@pytest.fixture
def database(world: World) -> Path:
    (world / "d").mkdir()
    path = world / "d" / "app.db"
    make(path)
    return path


def make(path: Path, mode: str = "WAL") -> None:
    db = sqlite3.connect(path)
    try:
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE t (x)")
        db.commit()
    finally:
        db.close()


def refused(run: takeback.Run, act: str, database: Path, other: Path) -> None:
    acts = {
        "delete the directory": lambda: run.delete(database.parent),
        "delete it": lambda: run.delete(database),
        "delete its log": lambda: run.delete(f"{database}-wal"),
        "write over it": lambda: run.write(database, b"other\n"),
        "write over it with others": lambda: run.write_all({other: b"new\n", database: b"other\n"}),
        "move it away": lambda: run.move(database, database.with_name("moved.db")),
        "move over it": lambda: run.move(other, database, replace=True),
        "move over its directory": lambda: run.move(other.parent, database.parent, replace=True),
    }
    with pytest.raises(takeback.Conflict, match=HAS_OPEN) as error:
        acts[act]()
    assert error.value.hint.startswith("Nothing was changed.")
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    "act",
    [
        "delete the directory", "delete it", "delete its log", "write over it", "write over it with others",
        "move it away", "move over it", "move over its directory",
    ],
)  # fmt: skip
def test_what_another_process_has_open_is_left_alone_and_keeps_what_is_committed_next(
    store: Path, world: World, database: Path, act: str
) -> None:
    (world / "e").mkdir()
    other = world / "e" / "other"
    other.write_bytes(b"other\n")
    with takeback.open(store) as tb, opened_by_another(database) as child:
        with tb.run("act") as run:
            refused(run, act, database, other)
        add(child, "late")
        assert rows(database) == ["late"]
        assert other.read_bytes() == b"other\n"
        assert not tb.effects()


def test_a_database_in_the_old_journal_mode_is_known_too(store: Path, world: World) -> None:
    (world / "d").mkdir()
    path = world / "d" / "app.db"
    make(path, "DELETE")
    with takeback.open(store) as tb, opened_by_another(path) as child:
        with tb.run("act") as run, pytest.raises(takeback.Conflict, match=HAS_OPEN):
            run.delete(path.parent)
        add(child, "late")
        assert rows(path) == ["late"]


def test_a_directory_is_moved_with_what_is_open_in_it_and_back(
    store: Path, world: World, database: Path
) -> None:
    with takeback.open(store) as tb, opened_by_another(database) as child:
        with tb.run("move") as run:
            moved = run.move(world / "d", world / "e")
        assert moved
        add(child, "late")
        assert rows(world / "e" / "app.db") == ["late"]
        tb.undo(moved)
        add(child, "later")
        assert rows(database) == ["late", "later"]


@pytest.mark.parametrize("how", ["refuse", "force"])
def test_an_undo_does_not_displace_what_was_opened_since(
    store: Path, world: World, tmp_path: Path, how: str
) -> None:
    """A write of a database, one that was moved alone, and a directory with one in it that was brought back."""
    make(tmp_path / "new.db")
    path, moved, kept = world / "a.db", world / "moved.db", world / "d" / "app.db"
    make(moved.with_name("first.db"))
    kept.parent.mkdir()
    make(kept, "DELETE")  # which has nothing beside it while it is open, that would be a conflict by itself
    with takeback.open(store) as tb:
        with tb.run("act") as run:
            written = run.write(path, (tmp_path / "new.db").read_bytes())
            move = run.move(world / "first.db", moved)
            gone = run.delete(kept.parent)
        assert written
        assert move
        assert gone
        brought_back = tb.undo(gone).undo[0]
        for effect, database in ((written, path), (move, moved), (brought_back, kept)):
            with opened_by_another(database) as child:
                with pytest.raises(takeback.Conflict, match=HAS_OPEN):
                    tb.undo(effect, on_conflict=how)
                add(child, "late")
                assert rows(database) == ["late"]


def test_a_mode_is_changed_and_taken_back_on_an_open_database(
    store: Path, world: World, database: Path
) -> None:
    database.chmod(0o644)
    with takeback.open(store) as tb, opened_by_another(database) as child:
        with tb.run("chmod") as run:
            effect = run.chmod(database, 0o600)
        assert effect
        tb.undo(effect)
        add(child, "late")
        assert rows(database) == ["late"]
        assert database.stat().st_mode & 0o777 == 0o644


def test_nobody_is_asked_for_ordinary_files(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even which processes there are; the first bytes are read only where the size is one of whole pages."""
    looked: list[object] = []
    listdir, opened = os.listdir, os.open
    pages, text = world / "pages", world / "text"
    pages.write_bytes(b"x" * 4096)
    text.write_bytes(b"x" * 4097)

    def listing(path: str | int = ".") -> list[str]:
        looked.extend(["/proc"] if path == "/proc" else [])
        return listdir(path)

    def opening(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        looked.extend([path] if path in (bytes(pages), bytes(text)) else [])
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "listdir", listing)
    monkeypatch.setattr(os, "open", opening)
    with takeback.open(store) as tb, tb.run("write") as run:
        run.write(text, b"new\n")
        run.delete(text)
        assert looked == []
        run.delete(pages)
    assert looked == [bytes(pages)]
