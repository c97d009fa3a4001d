"""A store of an older format is read as it is, and upgraded by the first write, whole or not at all."""

import fcntl
import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.errors import FormatTooNew
from takeback.runs import agent_above
from takeback.storage.sqlite.older_format import OlderFormat
from tests.damage import unguarded
from tests.format.make_golden_store import place, unpack


@pytest.fixture(params=[1, 2])
def store(request: pytest.FixtureRequest) -> Iterator[Path]:
    here = place(request.param)
    with open(f"{here}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpack(request.param)
        try:
            yield here / "store"
        finally:
            shutil.rmtree(here)


def _nobody(*_: object) -> None:
    """No agent started the tests."""


def number(store: Path) -> str:
    return (store / "FORMAT").read_text().strip()


def tables(store: Path) -> dict[str, Any]:
    """Every table, index and trigger as it was made; and which tables those are."""
    with sqlite3.connect(store / "journal.db") as db:
        made = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall())
        return made | {"version": db.execute("PRAGMA user_version").fetchone()[0]}


def records(store: Path) -> list[Any]:
    with sqlite3.connect(store / "journal.db") as db:
        return db.execute("SELECT seq, kind, body, hash FROM records ORDER BY seq").fetchall()


def look(tb: takeback.Takeback) -> list[Any]:
    effects = [(one.id, one.state, one.accepted_by, one.forgotten, one.pinned) for one in tb.effects()]
    return [effects, [(run.id, run.state, run.on_death) for run in tb.runs()], tb.store.journal.tally()]


def test_looking_changes_nothing(store: Path) -> None:
    format = number(store)
    before = hashlib.sha256((store / "journal.db").read_bytes()).digest()
    with takeback.open(store) as tb:
        assert {run.state.value for run in tb.runs()} == {"accepted", "undone", "open"}
        assert tb.store.journal.tally()["accepted"] == 8
        assert tb.verify().findings == ()
        (told,) = (one for one in tb.effects() if one.accepted_by == "person")
        assert told.accepted and not told.pinned
    assert number(store) == format
    assert hashlib.sha256((store / "journal.db").read_bytes()).digest() == before


def test_the_first_write_makes_the_tables_of_a_new_store_and_leaves_the_records(
    store: Path, tmp_path: Path
) -> None:
    old = records(store)
    with takeback.open(store) as tb:
        seen = look(tb)
        effect = tb.effects()[0]
        assert tb.pin(effect)[0].pinned
        seen[0][0] = (*seen[0][0][:-1], True)
        seen[2] |= {"pinned": seen[2].get("pinned", 0) + 1, "records": seen[2]["records"] + 1}
        assert look(tb) == seen
        assert tb.verify(read_data=True).findings == ()
    assert number(store) == "takeback store 3"
    takeback.open(tmp_path / "new").close()
    assert tables(store) == tables(tmp_path / "new")
    assert records(store)[: len(old)] == old
    assert {len(hash) for _, _, _, hash in old} == {32}
    assert {len(hash) for _, _, _, hash in records(store)[len(old) :]} == {48}


def test_an_older_process_that_has_it_open_cannot_continue_the_chain_without_seals(store: Path) -> None:
    """As it looks before it appends."""
    with sqlite3.connect(store / "journal.db") as older:
        older.execute("SELECT n FROM tally WHERE name = 'listed'").fetchall()
        with takeback.open(store) as tb:
            tb.pin(tb.effects()[0])
        with pytest.raises(sqlite3.OperationalError, match="no such column: n"):
            older.execute("SELECT n FROM tally WHERE name = 'listed'")


def test_a_record_without_a_seal_after_one_that_has_one_is_found(store: Path) -> None:
    with takeback.open(store) as tb:
        tb.pin(tb.effects()[0])
        tb.unpin(tb.effects()[0])
    with sqlite3.connect(store / "journal.db") as db, unguarded(db):
        db.execute("UPDATE records SET hash = substr(hash, 1, 32) WHERE seq = (SELECT max(seq) FROM records)")
    with takeback.open(store) as tb:
        found = "\n".join(tb.verify().findings)
    assert "its hash does not fit" in found and "it has no seal" in found


def test_a_kill_between_the_number_and_the_tables_is_made_good_by_the_next_write(store: Path) -> None:
    (store / "FORMAT").write_text("takeback store 3\n")
    with takeback.open(store) as tb:
        tb.accept(tb.effects()[1])
        assert tb.verify(read_data=True).findings == ()
    assert tables(store)["version"] == 3


def test_an_upgrade_that_fails_leaves_the_old_tables_and_is_tried_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = OlderFormat._steps  # pyright: ignore[reportPrivateUsage]

    def failing(self: OlderFormat, connection: sqlite3.Connection, older: int) -> Iterator[str]:
        yield from list(steps(self, connection, older))[:-2]
        raise sqlite3.OperationalError("no")

    before = tables(store)
    with takeback.open(store) as tb:
        seen, effect = look(tb), tb.effects()[1]
        monkeypatch.setattr(OlderFormat, "_steps", failing)
        with pytest.raises(takeback.TakebackError):
            tb.accept(effect)
        monkeypatch.setattr(OlderFormat, "_steps", steps)
        assert (look(tb), tables(store)) == (seen, before)
        tb.accept(tb.effects()[1])
        assert tb.verify(read_data=True).findings == ()


def test_whoever_had_it_open_goes_on_when_another_one_upgrades_it(store: Path) -> None:
    with takeback.open(store) as first, takeback.open(store) as second, takeback.open(store) as third:
        seen = look(second)
        first.pin(first.effects()[0])
        assert [one[:-1] for one in look(second)[0]] == [one[:-1] for one in seen[0]]
        assert third.unpin(first.effects()[0])[0].pinned is False
        assert second.verify().findings == ()


def test_a_store_of_a_later_format_is_refused_by_name(store: Path) -> None:
    (store / "FORMAT").write_text("takeback store 4\n")
    with pytest.raises(FormatTooNew, match=r"format 4, this one knows 3"):
        takeback.open(store)


def test_a_record_of_before_is_redacted_and_its_chain_still_holds(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash covers the body itself, so that hash and the one before are kept; an older anchor still fits."""
    monkeypatch.setattr(agent_above, "agent_above", _nobody)
    old = records(store)
    with takeback.open(store) as tb:
        for one in tb.effects():
            if one.pinned:
                tb.unpin(one)
        found = tb.redact(match="run.sh")
        assert found.left == () and len(found.records) >= 4
        assert tb.verify(read_data=True).findings == ()
        assert not tb.redact(match="run.sh", dry_run=True).records
    new = records(store)
    assert [row[3][:32] for row in new[: len(old)]] == [row[3] for row in old]
    with sqlite3.connect(store / "journal.db") as db, unguarded(db):
        # The record before an erased one is exchanged, hash and all.
        seq = min(one for one in found.records if one > 1)
        db.execute("UPDATE records SET hash = ? WHERE seq = ?", (bytes(33), seq))
    with takeback.open(store) as tb:
        found_wrong = "\n".join(tb.verify().findings)
    assert f"Record {seq} was erased, and it or the one before has another hash" in found_wrong
