"""What was redacted is nowhere in the store, the chain verifies, and everything else still works."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from takeback.errors import Forgotten, Misuse, Refused, StoreBusy
from takeback.model.record import STORE, Kind
from takeback.model.redaction import words_of
from tests.redact.shapes import SECRET, SHAPES
from tests.servers.postgres import PgDatabase


@pytest.fixture
def world(tmp_path: Path) -> Path:
    (tmp_path / "world").mkdir()
    return tmp_path / "world"


@pytest.fixture
def tb(tmp_path: Path) -> Iterator[takeback.Takeback]:
    with takeback.open(tmp_path / "store") as opened:
        yield opened


def files_with(directory: str | Path, text: str) -> list[str]:
    """Raw, by every form that the text takes."""
    words = words_of(text)
    paths = [Path(where, name) for where, _, names in os.walk(directory) for name in names]
    return [str(path) for path in paths if path.read_bytes() in words or os.fsencode(path.name) in words]


def held_anywhere(tb: takeback.Takeback, text: str) -> bool:
    """Also by what is compressed: everything that the store can give back."""
    found = tb.redact(match=text, dry_run=True)
    return bool(found.records or found.blobs)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.sampled(12)
def test_nothing_of_it_is_in_the_store(tb: takeback.Takeback, world: Path, name: str) -> None:
    with tb.run("work") as run:
        kept = run.write(world / "kept", "kept as it is")
        text = SHAPES[name](tb, run, world)
        after = run.write(world / "after", "after it")
    assert held_anywhere(tb, text)

    done = tb.redact(match=text)

    assert done.left == ()
    assert not held_anywhere(tb, text)
    assert files_with(tb.path, text) == []
    assert tb.verify(read_data=True).findings == ()
    for effect in done.lost:
        with pytest.raises(Forgotten, match=r"it was redacted by .* at 20"):
            tb.undo(effect)
    for effect in (kept, after):
        assert effect and tb.undo(effect).outcome == "done"


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.sampled(5)
def test_nothing_of_it_is_in_a_store_in_postgresql(pg_database: PgDatabase, world: Path, name: str) -> None:
    with takeback.open(pg_database.url) as tb:
        with tb.run("work") as run:
            kept = run.write(world / "kept", "kept as it is")
            text = SHAPES[name](tb, run, world)
        done = tb.redact(match=text)

        assert [one for one in done.left if "write-ahead log" not in one] == []
        assert not held_anywhere(tb, text)
        assert tb.verify(read_data=True).findings == ()
        assert kept and tb.undo(kept).outcome == "done"
    assert files_with(tb.path, text) == []
    assert not _dumped_with(pg_database, text)


def _dumped_with(database: PgDatabase, text: str) -> bool:
    """Every value of every table, as text and as bytes."""
    import psycopg

    words = words_of(text)
    with psycopg.connect(database.url) as connection:
        tables = connection.execute(
            "select table_name from information_schema.tables where table_schema = 'takeback_store'"
        ).fetchall()
        for (table,) in tables:
            for row in connection.execute(f"select * from takeback_store.{table}".encode()).fetchall():
                values = (one if isinstance(one, bytes) else str(one).encode() for one in row)
                if any(one in words for one in values):
                    return True
    return False


def test_an_effect_is_redacted_with_what_took_it_back(tb: takeback.Takeback, world: Path) -> None:
    with tb.run("work") as run:
        effect = run.write(world / "a", f"pw = {SECRET}", key="k")
        assert effect
        run.undo(effect)
        other = run.write(world / "b", "b")
    dry = tb.redact(effect, dry_run=True)
    assert [one.change.kind for one in dry.effects] == ["write", "undo"]
    assert len(dry.lost) == 2 and tb.verify().findings == ()
    assert held_anywhere(tb, SECRET)

    tb.redact(effect, why="it held a password")

    first, undo, kept = tb.effects()
    assert first.redacted and undo.redacted and not kept.redacted
    assert (first.state.value, first.change.summary, first.key) == ("undone", "(redacted)", "")
    assert not held_anywhere(tb, SECRET) and files_with(tb.path, SECRET) == []
    assert tb.verify(read_data=True).findings == ()
    (told,) = tb.store.journal.records(run=STORE, kinds=(Kind.REDACT,))
    assert told.body["why"] == "it held a password" and told.body["effects"] == [first.id, undo.id]
    with pytest.raises(Forgotten):
        tb.redo(undo)
    assert other and tb.undo(other).outcome == "done"


def test_content_that_another_effect_needs_stays_unless_both_are_meant(
    tb: takeback.Takeback, world: Path
) -> None:
    (world / "a").write_text(SECRET)
    with tb.run("work") as run:
        first = run.write(world / "a", "one")
        (world / "b").write_text(SECRET)
        second = run.write(world / "b", "two")
    assert first and second
    dry = tb.redact(first, dry_run=True)
    assert dry.shared == (second.id,)

    assert tb.redact(first).left == ("One content is still needed by another effect or a box, and stays.",)
    assert tb.undo(second).outcome == "done" and (world / "b").read_text() == SECRET

    assert tb.redact(second, with_shared=True).left == ()
    assert files_with(tb.path, SECRET) == [] and tb.verify(read_data=True).findings == ()


def test_a_run_is_redacted_with_all_that_it_did_and_said(tb: takeback.Takeback, world: Path) -> None:
    with tb.run(f"with {SECRET}", agent="ann") as run:
        run.write(world / SECRET, SECRET)
        run.checkpoint(SECRET[:8], state={"pw": SECRET})
    with tb.run("another") as other:
        other.write(world / "b", "b")
    tb.redact(run.id)
    assert [(one.name, one.agent, one.state.value) for one in tb.runs()] == [
        ("(redacted)", "ann", "accepted"),
        ("another", "", "accepted"),
    ]
    assert files_with(tb.path, SECRET) == [] and tb.verify(read_data=True).findings == ()


def test_what_is_pinned_open_or_of_a_living_run_is_refused(tb: takeback.Takeback, world: Path) -> None:
    with tb.run("work") as run:
        effect = run.write(world / "a", SECRET)
        assert effect
        with pytest.raises(Refused, match="has not ended"):
            tb.redact(effect)
    tb.pin(effect)
    with pytest.raises(Refused, match="is pinned"):
        tb.redact(match=SECRET)
    tb.unpin(effect)
    with pytest.raises(Refused, match="The reason holds the text"):
        tb.redact(match=SECRET, why=f"because of {SECRET}")
    for what, match in ((None, ""), (effect, SECRET)):
        with pytest.raises(Misuse):
            tb.redact(what, match=match)
    with pytest.raises(Misuse, match="at least 4 bytes"):
        tb.redact(match="abc")
    assert held_anywhere(tb, SECRET)


def test_an_agent_cannot_redact(tb: takeback.Takeback, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Refused("Redacting is for a person.")

    with tb.run("work") as run:
        effect = run.write(world / "a", SECRET)
    monkeypatch.setattr("takeback.runs.agent_above.refuse_below_agent", refuse)
    assert effect
    with pytest.raises(Refused, match="for a person"):
        tb.redact(effect)
    assert held_anywhere(tb, SECRET)


def test_a_copy_of_a_redacted_store_is_the_same_store(
    tb: takeback.Takeback, world: Path, tmp_path: Path, pg_database: PgDatabase
) -> None:
    with tb.run("work") as run:
        run.write(world / "a", SECRET)
    tb.redact(match=SECRET)
    records = list(tb.store.journal.records())
    tb.copy_to(pg_database.url)
    with takeback.open(pg_database.url) as there:
        assert list(there.store.journal.records()) == records
        assert there.verify(read_data=True).findings == ()
        there.copy_to(os.fspath(tmp_path / "back"))
    with takeback.open(tmp_path / "back") as back:
        assert list(back.store.journal.records()) == records and back.verify().findings == ()


def test_a_redaction_that_nobody_recorded_is_found(tb: takeback.Takeback, world: Path) -> None:
    """The seal of a record is exchanged for its commitment, and its body for another."""
    from tests.damage import unguarded

    with tb.run("work") as run:
        effect = run.write(world / "a", SECRET)
    assert effect
    (intent,) = tb.store.journal.records(effect=effect.id, kinds=(Kind.INTENT,))
    from takeback.model.record import canonical, erased

    body = canonical(intent.body)
    with sqlite3.connect(Path(tb.path, "journal.db")) as database, unguarded(database):
        forged = canonical(intent.body | {"redacted": True, "summary": "nothing"}).decode()
        database.execute(
            "UPDATE records SET body = ?, hash = ? WHERE seq = ?",
            (forged, intent.hash + erased(intent.seal, body), intent.seq),
        )
    (found,) = tb.verify().findings
    assert "was erased, and no record says who erased it" in found
    with pytest.raises(Forgotten):
        tb.undo(effect)


def test_a_reader_in_the_way_is_waited_for_and_the_next_recovery_finishes_it(
    tb: takeback.Takeback, world: Path
) -> None:
    with tb.run("work") as run:
        run.write(world / "a", SECRET)
    tb.store.database.read("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(Path(tb.path, "journal.db"), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchall()
        with pytest.raises(StoreBusy) as refused:
            tb.redact(match=SECRET)
        assert "recorded and has begun" in (refused.value.hint or "")
        assert tb.store.redacting() != ()
    tb.recover()
    assert tb.store.redacting() == () and files_with(tb.path, SECRET) == []
    assert not held_anywhere(tb, SECRET) and tb.verify(read_data=True).findings == ()


def test_who_has_the_store_open_goes_on(tb: takeback.Takeback, world: Path) -> None:
    with takeback.open(tb.path) as other:
        with other.run("work") as run:
            kept = run.write(world / "kept", "kept")
            run.write(world / "a", SECRET)
        tb.redact(match=SECRET)
        with other.run("later") as run:
            later = run.write(world / "later", "later")
        assert kept and later
        assert other.undo(later).outcome == other.undo(kept).outcome == "done"
        assert other.verify(read_data=True).findings == ()
