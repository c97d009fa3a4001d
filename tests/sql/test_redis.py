"""Redis through a run: what a caller gets, and what holds when others work on the same keys."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from takeback.adapters.redis.images import Image
from takeback.adapters.redis.keys import KnownKeys, choose
from takeback.api import opened_of
from takeback.errors import Misuse, Refused, ResourceUnreachable, StatementFailed
from takeback.model.change import OnConflict
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk
from tests.servers.process import PASSWORD, wait_until
from tests.servers.redis import RedisDatabase
from tests.sql.redis_shop import Shop, open_shop

STRING = b"\x00\x01x" + bytes(10)  # a DUMP of one letter


@pytest.fixture
def shop(redis_database: RedisDatabase, tmp_path: Path) -> Iterator[Shop]:
    with open_shop(redis_database, tmp_path) as opened:
        yield opened


def test_a_command_answers_as_redis_does_and_is_an_effect_if_it_changed_something(shop: Shop) -> None:
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        assert db.execute("SET", ["k", "v"]).rows == ((b"OK",),)
        assert db.execute("GET", ["k"]).rows == ((b"v",),)
        assert db.execute("GET", ["k"]).effect is None
        assert db.execute("DEL", ["absent"]).effect is None
        assert db.execute('HSET h "a field" 1').rows == ((1,),)
        assert db.executemany("RPUSH", [["l", "a"], ["l", "b"]]).rows == ((1,), (2,))
    shop.tb.undo(shop.tb.effects(state="done"))
    assert shop.world() == {}


def test_a_transaction_is_one_effect_and_answers_at_its_end(shop: Shop) -> None:
    shop.others.set("n", 1)
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db, db.transaction() as made:
        assert db.execute("INCR", ["n"]).rows == ()
        db.execute("GET", ["n"])
        db.execute("RPUSH", ["l", "a", "b"])
    assert made.effect.state == "done"
    assert made.effect.receipt["tables"] == {
        "string": {"inserted": 0, "updated": 1, "deleted": 0},
        "list": {"inserted": 1, "updated": 0, "deleted": 0},
    }
    shop.tb.undo(made.effect)
    assert shop.world() == {b"n": (b"string", b"1", -1)}


def test_an_exception_takes_back_what_the_run_did(shop: Shop) -> None:
    shop.others.set("k", "old")
    with pytest.raises(ZeroDivisionError), shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        db.execute("SET", ["k", "new"])
        db.execute("FLUSHDB")
        db.execute("SET", ["k", "newer"])
        raise ZeroDivisionError
    assert shop.world() == {b"k": (b"string", b"old", -1)}


def test_a_transaction_that_is_left_by_an_exception_never_was(shop: Shop) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        shop.tb.run("work") as run,
        run.sql(shop.database.url) as db,
        db.transaction(),
    ):
        db.execute("SET", ["k", "new"])
        raise ZeroDivisionError
    assert shop.world() == {}
    assert {one.state.value for one in shop.tb.effects()} == {"aborted"}


def test_no_value_and_no_password_is_in_the_journal(shop: Shop, tmp_path: Path) -> None:
    effect = shop.do("SET", "name", "very-private")
    shop.tb.undo(effect)
    assert effect.change.summary == "SET name …"
    said = "".join(str(record) for record in shop.tb.store.journal.records())
    assert "very-private" not in said
    assert PASSWORD not in said
    for file in (tmp_path / "store").rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()


def test_a_key_that_others_changed_since_is_a_conflict_with_its_name(shop: Shop) -> None:
    effect = shop.together(("SET", "a", "1"), ("SET", "b", "1"))
    shop.others.set("a", "theirs")
    before = shop.world()
    with pytest.raises(takeback.Conflict) as error:
        shop.tb.undo(effect)
    assert "/string/a" in str(error.value) and "by someone who is not recorded" in str(error.value)
    assert shop.world() == before
    result = shop.tb.undo(effect, on_conflict="skip")
    assert result.outcome == "partial"
    assert shop.world() == {b"a": (b"string", b"theirs", -1)}
    shop.tb.undo(effect, on_conflict="force")
    assert shop.world() == {}


def test_a_key_that_a_later_effect_changed_is_a_conflict_that_names_it(shop: Shop) -> None:
    first = shop.do("SET", "a", "1")
    later = shop.do("SET", "a", "2")
    with pytest.raises(takeback.Conflict) as error:
        shop.tb.undo(first)
    assert f"changed by effect {later.id[:8]}" in str(error.value)
    shop.tb.undo(first, cascade=True)
    assert shop.world() == {}


def test_a_later_effect_finds_what_was_before_the_one_that_was_skipped(shop: Shop) -> None:
    shop.others.mset({"a": "A", "b": "A"})
    first = shop.together(("SET", "a", "B"), ("SET", "b", "B"))
    second = shop.do("SET", "a", "C")
    partly = shop.tb.undo(first, on_conflict="skip")
    assert shop.others.mget("a", "b") == [b"C", b"A"]
    undone = shop.tb.undo(second)
    assert shop.others.mget("a", "b") == [b"A", b"A"]  # not B, which was taken back
    shop.tb.redo(undone)
    assert shop.others.mget("a", "b") == [b"C", b"A"]
    shop.tb.redo(partly)
    shop.tb.undo(second)
    assert shop.others.mget("a", "b") == [b"B", b"B"]  # the first is in force again


def test_effects_on_other_keys_are_taken_back_in_any_order(shop: Shop) -> None:
    effects = [shop.do("HSET", "h" + str(number % 3), f"f{number}", number) for number in range(3)]
    for effect in (effects[1], effects[0], effects[2]):
        shop.tb.undo(effect)
    assert shop.world() == {}


def test_a_write_between_looking_and_changing_is_not_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.others.set("k", "old")
    blobs, come = shop.tb.store.blobs, [True]
    sync = blobs.sync

    def comes_between() -> None:
        sync()
        if come.pop() if come else False:
            shop.others.set("k", "theirs")

    monkeypatch.setattr(blobs, "sync", comes_between)
    effect = shop.do("APPEND", "k", "+ours")
    assert shop.others.get("k") == b"theirs+ours"
    shop.tb.undo(effect)
    assert shop.others.get("k") == b"theirs"


def test_an_undo_in_the_middle_of_a_transaction_is_refused(shop: Shop) -> None:
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        first = db.execute("SET", ["a", "1"]).effect
        assert first
        with db.transaction():
            db.execute("SET", ["a", "2"])
            with pytest.raises(takeback.Misuse, match="in the middle of a transaction"):
                run.undo(first)
    assert shop.others.get("a") == b"2"


def test_keys_that_others_write_all_the_time_are_left_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = shop.tb.store.blobs
    sync = blobs.sync
    monkeypatch.setattr(blobs, "sync", lambda: (sync(), shop.others.incr("n")))
    with pytest.raises(takeback.StoreBusy), shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        db.execute("SET", ["n", "0"])
    assert int(shop.others.get("n") or 0) > 0


def test_what_expires_is_nobodys_change(shop: Shop) -> None:
    shop.others.set("a", "old")
    effect = shop.do("SET", "a", "new", "PX", "1")
    wait_until(lambda: not shop.others.exists("a"), "the key has expired")
    shop.tb.undo(effect)
    assert shop.others.get("a") == b"old"


def test_what_would_have_expired_without_the_effect_is_gone_after_undo() -> None:
    """It did PERSIST; by now the key would not be there."""
    found, left = Image(b"k", STRING, expires=1_000), Image(b"k", STRING)
    past = KnownKeys(None, {b"k": found}, {b"k": left})
    (early,) = choose(past, (left,), 999, OnConflict.REFUSE)
    (late,) = choose(past, (left,), 1_000, OnConflict.REFUSE)
    assert early.outcome is Outcome.UNDONE and early.target == found
    assert late.outcome is Outcome.UNDONE and late.target.dump is None
    (gone,) = choose(past, (Image(b"k"),), 1_000, OnConflict.REFUSE)
    assert gone.outcome is Outcome.ALREADY


def test_who_was_away_for_too_long_cannot_write_any_more(shop: Shop) -> None:
    with (
        shop.tb.run("work") as run,
        run.sql(shop.database.url) as db,
        pytest.raises(takeback.Refused, match="did not happen"),
        db.transaction() as made,
    ):
        db.execute("SET", ["k", "late"])
        assert shop.adapter.verify(made.effect).standing == "before"
    assert shop.world() == {}


def test_after_others_flushed_everything_force_still_brings_back_what_was_before(shop: Shop) -> None:
    shop.others.hset("h", mapping={"a": "1", "b": "2"})
    effect = shop.do("DEL", "h")
    changed = shop.do("SET", "x", "1")
    shop.others.flushdb()
    assert shop.tb.undo(effect).outcome == "done"  # it is as the effect left it
    assert shop.others.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert [one.outcome for one in shop.tb.undo(changed).targets] == [Outcome.ALREADY]


def test_another_database_is_not_written_to(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    server, here = shop.database.server, shop.database.number
    there = 15 if here != 15 else 14
    shop.others.set("k", "old")
    monkeypatch.setenv("R1", shop.database.url)
    with shop.tb.run("work") as run:
        effect = run.sql("env:R1").execute("SET", ["k", "new"]).effect
    assert effect
    with closing(server.connect(there)) as elsewhere:
        elsewhere.set("k", "new")
        monkeypatch.setenv("R1", server.url(there))
        for marked in (False, True):  # takeback was never there; it was
            with pytest.raises(takeback.Refused, match="another database"):
                shop.tb.undo(effect)
            with pytest.raises(takeback.Refused, match="another database"):
                shop.adapter.verify(shop.tb.effect(effect.id))
            assert elsewhere.get("k") == b"new" and shop.others.get("k") == b"new"
            if not marked:
                with shop.tb.run("work") as run:
                    run.sql("env:R1").execute("SET", ["other", "x"])
        elsewhere.flushdb()
    monkeypatch.setenv("R1", shop.database.url)
    shop.tb.undo(effect)
    assert shop.others.get("k") == b"old"


def test_forgetting_removes_the_marks_and_sweeping_keeps_what_others_need(shop: Shop) -> None:
    shop.others.set("k", "old")
    one, other = shop.do("SET", "k", "new"), shop.do("SET", "l", "new")
    shop.tb.forget(other)
    shop.tb.sweep(grace=0)
    assert shop.others.exists(f"takeback:op:{one.id}") and not shop.others.exists(f"takeback:op:{other.id}")
    assert shop.others.zcard("takeback:ops") == shop.others.zcard("takeback:touched") == 1
    shop.tb.undo(one)
    assert shop.others.get("k") == b"old"


def test_rows_tell_what_each_key_was_and_became(shop: Shop) -> None:
    shop.others.hset("h", mapping={"a": "1", "b": "2"})
    effect = shop.together(("HSET", "h", "a", "9"), ("SET", "s", "x", "PXAT", 4_102_444_800_000))
    rows = {row.key: row for row in shop.adapter.rows(effect)}
    assert rows["h"].table == "hash"
    assert rows["h"].before == {"a": "1", "b": "2"} and rows["h"].after == {"a": "9", "b": "2"}
    assert rows["s"].before is None
    assert rows["s"].after == {"value": "x", "(expires)": "2100-01-01 00:00:00.000Z"}


def test_unprotecting_leaves_nothing_behind(shop: Shop) -> None:
    shop.do("SET", "k", "v")
    database = opened_of(shop.tb).parts.named(shop.database.url)
    assert shop.adapter.cover(database).tier == "full"
    shop.adapter.unprotect(database, ())
    assert shop.others.keys("*") == [b"k"]


@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("redis://127.0.0.1:1/0", takeback.ResourceUnreachable, "does not answer"),
        ("redis://:wrong@127.0.0.1:{port}/0", takeback.ResourceUnreachable, "did not accept"),
        ("redis://127.0.0.1:{port}/0", takeback.ResourceUnreachable, "did not accept|lacks a right"),
        ("redis://:{password}@127.0.0.1:nonsense/0", takeback.Misuse, "no address"),
        ("redis://:{password}@127.0.0.1:{port}/99999", takeback.ResourceUnreachable, "no such database"),
    ],
)
def test_a_wrong_address_is_said_in_one_sentence_without_the_password(
    shop: Shop, url: str, kind: type[Exception], says: str
) -> None:
    address = url.format(port=shop.database.server.port, password=PASSWORD)
    with pytest.raises(kind, match=says) as error, shop.tb.run("work") as run:
        run.sql(address)
    assert isinstance(error.value, takeback.TakebackError) and error.value.hint
    assert PASSWORD not in f"{error.value} {error.value.hint}" and "wrong" not in str(error.value)


def test_who_only_reads_or_is_refused_leaves_nothing_behind(shop: Shop) -> None:
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        assert db.execute("GET", ["k"]).rows == ((None,),)
        with pytest.raises(Refused):
            db.execute("EVAL", ["return 1", 0])
    with pytest.raises(Misuse, match="shown before they are made"), shop.tb.run("work") as run:
        run.sql(shop.database.url, hold=True)
    assert shop.others.keys("*") == []


def test_a_server_that_may_drop_the_marks_is_refused(shop: Shop) -> None:
    shop.others.config_set("maxmemory", "1gb")
    shop.others.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(takeback.Refused, match="drops any key"), shop.tb.run("work") as run:
            run.sql(shop.database.url)
    finally:
        shop.others.config_set("maxmemory-policy", "noeviction")
        shop.others.config_set("maxmemory", "0")


def test_a_server_without_memory_changes_nothing(shop: Shop) -> None:
    shop.others.set("k", "old")
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        shop.others.config_set("maxmemory", "1")
        try:
            for words in (["SET", "k", "new"], ["DEL", "k"], ["FLUSHDB"]):
                with pytest.raises(takeback.StatementFailed):
                    db.execute(words[0], words[1:])
        finally:
            shop.others.config_set("maxmemory", "0")
    assert shop.world() == {b"k": (b"string", b"old", -1)}


def test_of_two_undos_at_once_one_wins(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    effect = shop.do("SET", "k", "v")
    blobs, first = shop.tb.store.blobs, [True]
    sync = blobs.sync

    def another_undo() -> None:
        sync()
        if first.pop() if first else False:
            Desk(shop.adapter).undo(effect)

    monkeypatch.setattr(blobs, "sync", another_undo)
    with pytest.raises(takeback.Refused, match="taken back already"):
        Desk(shop.adapter).undo(effect)
    assert shop.world() == {}


def test_a_command_that_is_refused_takes_the_transaction_with_it(shop: Shop) -> None:
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        with pytest.raises(StatementFailed, match="transaction"), db.transaction():
            db.execute("SET a 1")
            with pytest.raises(Refused):
                db.execute("EVAL 'return 1' 0")
        assert shop.world() == {}
        assert db.execute("SET a 1").effect


def test_half_of_a_character_is_no_text(shop: Shop) -> None:
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        for statement, words in (("SET", ["k", "\ud800"]), ("SET k \ud800", [])):
            with pytest.raises(Misuse, match="no text"):
                db.execute(statement, words)
        assert db.execute("SET k 1").effect


def test_the_key_is_told_in_the_journal_and_what_it_holds_never_quoted_or_not(shop: Shop) -> None:
    with shop.tb.run("work") as run, run.sql(shop.database.url) as db:
        effects = [
            db.execute('SET "b c" "very-private"').effect,
            db.execute("SET 'd' very-private").effect,
            db.execute("HSET", ["h", "very-private-field", "very-private"]).effect,
        ]
    assert [one.change.summary for one in effects if one] == ["SET b c …", "SET d …", "HSET h …"]
    assert "very-private" not in "".join(str(record) for record in shop.tb.store.journal.records())


def test_redis_has_no_tables_and_unprotecting_says_what_is_true(shop: Shop) -> None:
    shop.do("SET", "k", "v")
    database = opened_of(shop.tb).parts.named(shop.database.url)
    for work in (shop.adapter.protect, shop.adapter.unprotect):
        with pytest.raises(Misuse, match="no tables"):
            work(database, ["foo"])
    assert shop.adapter.protect(database, ()).protected == ("*",)
    cover = shop.adapter.unprotect(database, ())
    assert cover.protected == () and "cannot be taken back" in cover.says[0]
    assert shop.do("SET", "k", "w")


@pytest.mark.parametrize("name", ["abc", "-1", "1/2", "0x1"])
def test_a_database_that_is_no_number_is_refused(shop: Shop, name: str) -> None:
    address = shop.database.url.rpartition("/")[0] + "/" + name
    with pytest.raises(Misuse, match="no number"), shop.tb.run("work") as run:
        run.sql(address)


def test_a_database_that_the_server_does_not_have_is_told_with_the_address(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shop.database.server
    monkeypatch.setenv("FAR", server.url(999_999))
    with (
        pytest.raises(ResourceUnreachable, match=r"no such database .*/999999") as told,
        shop.tb.run("work") as run,
    ):
        run.sql("env:FAR")
    assert "number at the end of the address" in told.value.hint and PASSWORD not in str(told.value)
