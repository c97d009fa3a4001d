"""Many keys of Redis at once: a database that is flushed, and how many may be changed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from takeback.adapters.redis import marks, session
from takeback.api import opened_of
from takeback.errors import Refused
from takeback.model.change import Change
from takeback.model.database import resource_of, to_json
from takeback.testing.adapter_suite import Desk
from tests.servers.redis import RedisDatabase
from tests.sql.redis_shop import Shop, open_shop


@pytest.fixture
def shop(redis_database: RedisDatabase, tmp_path: Path) -> Iterator[Shop]:
    with open_shop(redis_database, tmp_path) as opened:
        yield opened


def test_flushall_is_refused_when_other_databases_hold_keys(shop: Shop) -> None:
    shop.others.set("k", "v")
    other = shop.database.server.fresh()
    with closing(other.connect()) as client:
        client.set("theirs", "1")
        with (
            shop.tb.run("work") as run,
            run.sql(shop.database.url) as db,
            pytest.raises(takeback.Refused, match="FLUSHALL"),
        ):
            db.execute("FLUSHALL")
        assert client.get("theirs") == b"1"
    other.drop()
    effect = shop.do("FLUSHALL")
    shop.tb.undo(effect)
    assert shop.others.get("k") == b"v"


@pytest.fixture
def many(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """More keys than are watched one by one; the number is a smaller one here."""
    monkeypatch.setattr(marks, "MOST", 20)
    pipe = shop.others.pipeline(transaction=False)
    for number in range(40):
        pipe.set(f"k{number}", number, pxat=4_102_444_800_000 if number % 3 else None)
    pipe.hset("h", mapping={"a": "1"})
    pipe.execute()
    return shop


def test_a_flush_of_very_many_keys_is_taken_back(many: Shop) -> None:
    before = many.world()
    effect = many.do("FLUSHDB")
    assert many.world() == {} and not many.others.keys("takeback:held:*")
    assert effect.receipt["tables"]["string"]["deleted"] == 40
    assert sum(1 for _ in many.adapter.rows(effect)) == 41
    undo = many.tb.undo(effect)
    assert undo.outcome == "done"
    assert many.world() == before and not many.others.keys("takeback:held:*")
    with pytest.raises(takeback.Refused, match="More than 20 keys"):
        many.tb.redo(undo)
    assert many.world() == before
    again = many.do("FLUSHDB")
    many.tb.undo(again)
    assert many.world() == before


def test_what_others_wrote_after_a_flush_of_very_many_keys_stays(many: Shop) -> None:
    before = many.world()
    effect = many.together(("SET", "x", "1"), ("FLUSHDB",), ("SET", "k0", "ours"))
    many.others.set("k1", "theirs")
    with pytest.raises(takeback.Conflict, match="/string/k1"):
        many.tb.undo(effect)
    assert many.world() == {b"k0": (b"string", b"ours", -1), b"k1": (b"string", b"theirs", -1)}
    many.tb.undo(effect, on_conflict="skip")
    assert many.world() == before | {b"k1": (b"string", b"theirs", -1)}
    forced = many.tb.undo(effect, on_conflict="force")
    assert many.world() == before
    many.tb.redo(forced)
    assert many.world() == before | {b"k1": (b"string", b"theirs", -1)}


def test_a_flush_whose_process_died_is_kept_by_whoever_comes_next(
    many: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = many.world()

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(session, "drain", dies)
        adapter = many.adapter
        database = opened_of(many.tb).parts.named(many.database.url)
        effect = Desk(adapter).intend(
            Change("redis", "sql", resource_of(database), "FLUSHDB", {"database": to_json(database)})
        )
        with closing(adapter.connect(database)) as work:
            work.begin(effect)
            work.execute("FLUSHDB", ())
            work.commit()
    assert many.world() == {} and many.others.keys("takeback:held:*")
    sighting = adapter.verify(effect)
    assert sighting.standing == "after" and not many.others.keys("takeback:held:*")
    assert sighting.receipt["tables"]["string"]["deleted"] == 40
    Desk(adapter).undo(effect._replace(receipt=sighting.receipt))
    assert many.world() == before


def test_a_change_of_too_many_keys_is_refused(shop: Shop) -> None:
    words = [word for number in range(2001) for word in (f"k{number}", "v")]
    with (
        pytest.raises(takeback.Refused, match="2001 keys"),
        shop.tb.run("work") as run,
        run.sql(shop.database.url) as db,
    ):
        db.execute("MSET", words)
    assert shop.world() == {}


def test_no_more_keys_are_changed_than_were_declared(shop: Shop) -> None:
    shop.others.mset({"a": 1, "b": 2, "c": 3})
    before = shop.world()
    with shop.tb.run("work") as run, run.sql(shop.database.url, max_rows=1) as db:
        for words in (["DEL", "a", "b"], ["MSET", "a", "9", "x", "9"], ["RENAME", "a", "x"], ["FLUSHDB"]):
            with pytest.raises(Refused, match="declared"):
                db.execute(words[0], words[1:])
        with pytest.raises(Refused, match="declared"), db.transaction():
            db.execute("SET a 9")
            db.execute("SET b 9")
        assert shop.world() == before
        assert db.execute("DEL a absent").effect
    with shop.tb.run("work") as run, run.sql(shop.database.url, max_rows=2) as db:
        assert db.execute("FLUSHDB").effect
    assert shop.world() == {}
