"""A store is copied: to a server, and back."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.errors import Corrupt, Refused
from takeback.model.run import OnDeath
from takeback.storage import copy
from takeback.testing.fakes import signalling, submitting, suspending
from tests.servers.postgres import PgDatabase


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    (tmp_path / "world").mkdir()
    return tmp_path


def filled(path: str, world: Path) -> None:
    """A store with a bit of everything."""
    noise = random.Random(7)
    with takeback.open(path) as tb:
        with tb.run("first", agent="ann") as run:
            (world / "big").write_bytes(noise.randbytes(5 << 20))
            run.write(world / "big", b"small")
            for number in range(5):
                run.write(world / "often", f"version {number}\n" * 500)
            run.checkpoint("here", state={"n": 1})
            (world / "tree").mkdir()
            for number in range(3):
                (world / "tree" / str(number)).write_bytes(noise.randbytes(70_000))
            run.delete(world / "tree")
        tb.undo(tb.effects(path=world / "often")[-1])
        tb.accept(tb.effects(path=world / "big")[0])
        tb.store.journal.append(None, [submitting("waiting", "deploy", key="k")])
        lease = tb.store.leases.claim(_me(), 1 << 60, 60_000_000, ("deploy",))
        assert lease
        tb.store.journal.append(lease, [suspending("waiting", due=1 << 61, awaits="paid")])
        tb.store.leases.release(lease)
        tb.store.journal.append(None, [signalling("waiting", "paid")])


def _me() -> Any:
    from takeback.storage.owners import myself

    return myself()


def picture(path: str) -> tuple[Any, ...]:
    with takeback.open(path, recover=False) as tb:
        journal = tb.store.journal
        assert tb.verify(read_data=True).findings == ()
        blobs = {info.digest: b"".join(tb.store.blobs.read(info.digest)) for info in tb.store.blobs.info()}
        refs = {digest: set(tb.store.blobs.refs(digest)) for digest in blobs}
        generations = {info.id: tb.store.leases.holder(info.id) for info in journal.runs()}
        return (
            list(journal.records()),
            tb.effects(),
            tb.runs(),
            journal.tally(),
            blobs,
            refs,
            {run: lease.generation if lease else 1 for run, lease in generations.items()},
            tb.store.settings,
        )


def test_there_and_back_again_nothing_is_different(place: Path, pg_database: PgDatabase) -> None:
    first, second = os.fspath(place / "first"), os.fspath(place / "second")
    filled(first, place / "world")
    Path(first, "settings.json").write_text('{"accepted_seconds": 99}')
    with takeback.open(first) as tb:
        copied = tb.copy_to(pg_database.url)
    assert copied.records == len(picture(first)[0])
    assert picture(pg_database.url) == picture(first)
    with takeback.open(pg_database.url) as tb:
        tb.copy_to(second)
    assert picture(second) == picture(first)


def test_the_copy_takes_back_what_the_first_did(place: Path, pg_database: PgDatabase) -> None:
    filled(os.fspath(place / "first"), place / "world")
    with takeback.open(place / "first") as tb:
        tb.copy_to(pg_database.url)
    with takeback.open(pg_database.url) as tb:
        tb.undo(tb.effects(path=place / "world" / "tree")[-1])
        assert sorted(os.listdir(place / "world" / "tree")) == ["0", "1", "2"]
        (waiting,) = [info for info in tb.runs() if info.on_death is OnDeath.RESUME]
        assert (waiting.key, waiting.awaits) == ("k", "paid")
        assert tb.store.leases.claim(_me(), 1 << 60, 60_000_000, ("deploy",)) is not None


def test_a_place_that_is_not_empty_is_refused(place: Path, pg_database: PgDatabase) -> None:
    filled(os.fspath(place / "first"), place / "world")
    with takeback.open(place / "first") as tb:
        with takeback.open(place / "other") as other, other.run("x"):
            pass
        with takeback.open(pg_database.url) as other, other.run("x"):
            pass
        for target in (os.fspath(place / "other"), pg_database.url):
            with pytest.raises(Refused):
                tb.copy_to(target)
    with takeback.open(pg_database.url) as tb:
        assert [info.name for info in tb.runs()] == ["x"]


@pytest.mark.parametrize("to_server", [True, False])
def test_an_interrupted_copy_is_of_no_use_until_it_is_gone_on_with(
    place: Path, pg_database: PgDatabase, monkeypatch: pytest.MonkeyPatch, to_server: bool
) -> None:
    filled(os.fspath(place / "first"), place / "world")
    target = pg_database.url if to_server else os.fspath(place / "second")
    with takeback.open(place / "first") as tb:
        for step in ("_copy_leases", "_copy_records", "_refuse_unsound"):
            with monkeypatch.context() as patched:
                patched.setattr(copy, step, _killed)
                with pytest.raises(KeyboardInterrupt):
                    tb.copy_to(target)
            with pytest.raises(Corrupt, match="never finished") as refused:
                takeback.open(target)
            assert "store copy" in refused.value.hint
        tb.copy_to(target)
    assert picture(target) == picture(os.fspath(place / "first"))


@pytest.mark.parametrize("to_server", [True, False])
@pytest.mark.parametrize("backup", [True, False])
def test_only_one_of_the_two_takes_anything_new(
    place: Path, pg_database: PgDatabase, to_server: bool, backup: bool
) -> None:
    first, second = os.fspath(place / "first"), os.fspath(place / "second")
    source, target = (first, pg_database.url) if to_server else (pg_database.url, second)
    filled(source, place / "world")
    with takeback.open(source) as early:
        run = early.run("open all the time", on_death="accept")
        with takeback.open(source) as tb:
            tb.copy_to(target, backup=backup)
        used, retired = (source, target) if backup else (target, source)
        if backup:
            run.write(place / "world" / "mine", "still in use")
        else:
            refuses_all_that_is_new(early, place / "world")
            with pytest.raises(Refused, match="takes no new records"):
                run.write(place / "world" / "mine", "x")
            assert not (place / "world" / "mine").exists()
        run.leave()
    with takeback.open(retired) as tb:
        refuses_all_that_is_new(tb, place / "world")
        assert tb.store.retired
        with pytest.raises(Refused, match="takes no new records"):
            tb.copy_to(os.fspath(place / "third"))
        tb.store.reopen()
    for store in (used, retired):
        with takeback.open(store) as tb, tb.run("new") as run:
            run.write(place / "world" / "new", f"by {store}")
            assert not tb.store.retired


def refuses_all_that_is_new(tb: takeback.Takeback, world: Path) -> None:
    before = len(list(tb.store.journal.records()))
    done = next(one for one in tb.effects(path=world / "tree") if one.state == "done")
    for act in (
        lambda: tb.run("another"),
        lambda: tb.undo(done),
        lambda: tb.signal("waiting", "paid"),
        lambda: tb.store.leases.claim(_me(), 1 << 61, 60_000_000, ("deploy",)),
    ):
        with pytest.raises(Refused, match="takes no new records"):
            act()
    assert len(list(tb.store.journal.records())) == before
    assert not (world / "tree").exists()


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_store_on_disk_takes_no_object_store(place: Path) -> None:
    with pytest.raises(takeback.Misuse):
        takeback.open(place / "first", blobs="s3://bucket")
