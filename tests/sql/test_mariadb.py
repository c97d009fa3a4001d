"""MariaDB through the adapter: what a table of cases does not show."""

import threading
from contextlib import closing

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.mariadb import net, wire
from takeback.adapters.mariadb import undo as undoing
from takeback.adapters.mariadb.shapes import log_of
from takeback.errors import (
    Conflict,
    Corrupt,
    InDoubt,
    Misuse,
    NoRemedy,
    Refused,
    ResourceUnreachable,
    StatementFailed,
    TakebackError,
)
from takeback.model.change import OnConflict
from takeback.model.effect import State
from takeback.model.plan import Outcome, Standing
from takeback.testing.adapter_suite import Desk, undo_of
from tests.servers.process import PASSWORD, wait_until
from tests.sql.engines import intended
from tests.sql.test_mariadb_matrix import Bench

pytestmark = pytest.mark.needs("mariadbd", "mariadb-install-db")

USERS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(40))",
    "INSERT INTO users VALUES (1, 'ada'), (2, 'bob'), (3, 'cy')",
    "CREATE TABLE orders (no INT PRIMARY KEY, user INT, FOREIGN KEY (user) REFERENCES users (id))",
)


@pytest.fixture
def bench(maria_database):
    bench = Bench(maria_database)
    bench.plain(USERS)
    bench.adapter().protect(bench.database, ())
    return bench


def do(bench, *statements):
    return bench.do(*statements)


def undo(bench, effect, on_conflict=OnConflict.REFUSE):
    change = undo_of(effect, on_conflict)
    outcomes = bench.adapter().assess(change, effect).outcomes
    if any(one.outcome is Outcome.CONFLICT for one in outcomes) and on_conflict is OnConflict.SKIP:
        change = change._replace(undo=change.undo._replace(partial=True))
    return Desk(bench.adapter()).do(change, of=effect)


def names(bench):
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, name FROM users ORDER BY id")
        return dict(cursor.fetchall())


def test_a_conflict_names_the_row_what_it_is_and_who_changed_it(bench):
    first = do(bench, "UPDATE users SET name = 'x' WHERE id < 3")
    second = do(bench, "UPDATE users SET name = 'y' WHERE id = 1")
    bench.plain(["UPDATE users SET name = 'z' WHERE id = 2"])

    outcomes = bench.adapter().assess(undo_of(first), first).outcomes

    by_row = {one.resource.rpartition("/")[2]: one.detail for one in outcomes}
    assert second.id[:8] in by_row["id=1"]
    assert "'x'" in by_row["id=1"] and "'y'" in by_row["id=1"] and "'ada'" in by_row["id=1"]
    assert "not recorded" in by_row["id=2"]
    assert list(bench.adapter().standing_on(first)) == [second.id]


def test_skip_leaves_what_was_changed_since_and_a_later_undo_does_not_bring_back_what_was_taken_back(bench):
    before = names(bench)
    first = do(bench, "UPDATE users SET name = 'x'")
    second = do(bench, "UPDATE users SET name = 'y' WHERE id = 1")

    undo(bench, first, OnConflict.SKIP)
    assert names(bench) == {1: "y", 2: "bob", 3: "cy"}
    undo(bench, second)

    assert names(bench) == before


def test_skip_after_undo_and_redo_still_reaches_the_effect_that_came_later(bench):
    before = names(bench)
    first = do(bench, "INSERT INTO users VALUES (8, 'h'), (9, 'i')")
    undo(bench, undo(bench, first))
    second = do(bench, "UPDATE users SET name = 'y' WHERE id = 9")

    undo(bench, first, OnConflict.SKIP)
    assert names(bench) == {**before, 9: "y"}
    undo(bench, second)

    assert names(bench) == before


def test_force_overwrites_and_redo_brings_back_what_was_overwritten(bench):
    first = do(bench, "UPDATE users SET name = 'x'")
    bench.plain(["UPDATE users SET name = 'mine' WHERE id = 1", "DELETE FROM users WHERE id = 2"])
    there = names(bench)

    forced = undo(bench, first, OnConflict.FORCE)
    assert names(bench) == {1: "ada", 2: "bob", 3: "cy"}
    undo(bench, forced)

    assert names(bench) == there


def test_skip_leaves_a_row_that_others_refer_to(bench):
    first = do(bench, "INSERT INTO users VALUES (8, 'h'), (9, 'i')")
    bench.plain(["INSERT INTO orders VALUES (1, 9)"])

    undo(bench, first, OnConflict.SKIP)

    assert names(bench) == {1: "ada", 2: "bob", 3: "cy", 9: "i"}


def test_of_two_undos_at_once_one_wins(bench):
    before = bench.world()
    effect = do(bench, "UPDATE users SET name = 'x'")
    changes = [Desk(bench.adapter()).intend(undo_of(effect), of=effect) for _ in range(2)]
    told = []

    def work(change):
        try:
            bench.adapter().apply(change)
            told.append("done")
        except TakebackError as error:
            told.append(type(error).__name__)

    threads = [threading.Thread(target=work, args=(one,)) for one in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert told.count("done") == 1
    assert bench.world() == before
    standings = [bench.adapter().verify(one).standing for one in changes]
    assert sorted(standings) == [Standing.AFTER, Standing.BEFORE]


def test_a_table_that_was_renamed_is_followed(bench):
    effect = do(bench, "UPDATE users SET name = 'x'")
    bench.plain(["RENAME TABLE users TO people"])

    undo(bench, effect)

    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name FROM people ORDER BY id")
        assert [name for (name,) in cursor.fetchall()] == ["ada", "bob", "cy"]


def test_the_rows_of_an_effect_are_shown(bench):
    effect = do(bench, "UPDATE users SET name = NULL WHERE id = 1", "DELETE FROM users WHERE id = 2")

    rows = sorted(bench.adapter().rows(effect), key=lambda row: row.key)

    assert [(row.table, row.key) for row in rows] == [("users", "id=1"), ("users", "id=2")]
    assert rows[0].before == {"id": "1", "name": "ada"} and rows[0].after == {"id": "1", "name": None}
    assert rows[1].after is None
    assert effect.receipt["tables"] == {"users": {"inserted": 0, "updated": 1, "deleted": 1}}


def test_a_database_that_is_not_protected_is_refused(maria_database):
    bench = Bench(maria_database)
    bench.plain(USERS)
    with pytest.raises(NoRemedy) as refused:
        bench.adapter().connect(bench.database)
    assert "protect" in refused.value.hint


def test_a_trigger_that_was_dropped_behind_our_back_is_noticed_before_the_commit(bench):
    before = bench.world()
    with closing(bench.adapter().connect(bench.database)) as session:
        bench.plain(["DROP TRIGGER _tb_au_1", "DROP TRIGGER _tb_au_2"])
        session.begin(intended(bench.adapter(), session.database, "…"))
        session.execute("UPDATE users SET name = 'x'", None)
        with pytest.raises(NoRemedy):
            session.commit()
    assert bench.world() == before
    bench.adapter().protect(bench.database, ())
    assert do(bench, "UPDATE users SET name = 'x'")


def test_a_table_that_is_new_must_be_protected_first(bench):
    bench.plain(["CREATE TABLE later (id INT)"])
    with pytest.raises(NoRemedy, match="later"):
        do(bench, "INSERT INTO later VALUES (1)")
    assert "later" in bench.adapter().protect(bench.database, ()).protected
    assert do(bench, "INSERT INTO later VALUES (1)")


def test_only_some_tables_are_protected_and_the_others_refuse(bench):
    bench.adapter().unprotect(bench.database, ["orders"])
    cover = bench.adapter().cover(bench.database)
    assert cover.protected == ("users",) and dict(cover.unprotected).keys() == {"orders"}
    with pytest.raises(NoRemedy):
        do(bench, "INSERT INTO orders VALUES (1, 1)")
    assert do(bench, "DELETE FROM users WHERE id = 3")


def test_unprotect_leaves_nothing(bench):
    do(bench, "DELETE FROM users WHERE id = 3")
    bench.adapter().unprotect(bench.database, ())
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert sorted(name for (name,) in cursor.fetchall()) == ["orders", "users"]
        cursor.execute("SHOW TRIGGERS")
        assert not cursor.fetchall()


def test_what_is_read_is_no_effect_and_what_would_write_is_not_done(bench):
    with closing(bench.adapter().connect(bench.database)) as session:
        assert session.read("SELECT id FROM users WHERE name = %s", ["bob"]).rows == ((2,),)
        assert session.read("UPDATE users SET name = 'x'", None) is None
        bench.plain(
            ["CREATE FUNCTION f() RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM users; RETURN 1; END"]
        )
        assert session.read("SELECT f()", None) is None
        assert session.read("SELECT * FROM users FOR UPDATE", None) is None
        with pytest.raises(NoRemedy):
            session.read("FLUSH STATUS", None)
        with pytest.raises(Misuse):
            session.read("COMMIT", None)
        with pytest.raises(StatementFailed):
            session.read("SELECT nothing FROM users", None)
    assert len(names(bench)) == 3


def test_a_statement_that_changes_nothing_leaves_no_marker(bench):
    with closing(bench.adapter().connect(bench.database)) as session:
        effect = intended(bench.adapter(), session.database, "…")
        session.begin(effect)
        session.execute("UPDATE users SET name = name", None)
        assert session.commit() is None
    assert bench.adapter().verify(effect).standing is Standing.BEFORE


def test_verify_ends_the_session_that_is_still_at_work(bench):
    before = bench.world()
    session = bench.adapter().connect(bench.database)
    effect = intended(bench.adapter(), session.database, "…")
    session.begin(effect)
    session.execute("DELETE FROM users", None)

    assert bench.adapter().verify(effect).standing is Standing.BEFORE

    with pytest.raises((InDoubt, ResourceUnreachable)):
        session.commit()
    session.close()
    assert bench.world() == before


def test_forgetting_deletes_the_images(bench):
    effect = do(bench, "DELETE FROM users WHERE id = 3")
    bench.adapter().release(effect)
    bench.adapter().release(effect)
    assert not list(bench.adapter().rows(effect))
    assert bench.adapter().verify(effect).standing is Standing.AFTER


def test_a_dropped_table_that_is_forgotten_is_gone(bench):
    effect = do(bench, "DROP TABLE orders")
    bench.adapter().release(effect)
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES LIKE '%trash%'")
        assert not cursor.fetchall()
    with pytest.raises(Conflict):
        undo(bench, effect)


def test_who_drops_a_table_may_go_on_with_the_tables_it_referred_to(bench):
    bench.plain(["INSERT INTO orders VALUES (1, 1)"])
    effect = do(bench, "DROP TABLE orders")
    do(bench, "DELETE FROM users WHERE id = 3")
    bench.plain(["UPDATE users SET name = 'w' WHERE id = 1", "DELETE FROM users WHERE id = 2"])
    undo(bench, effect)
    assert bench.world()["orders"][1] == ["(1, 1)"]


@pytest.mark.parametrize(
    "url",
    [
        "mariadb://admin:wrong-one@127.0.0.1:{port}/{name}",
        "mariadb://admin:{password}@127.0.0.1:{port}/nowhere",
        "mariadb://admin:{password}@127.0.0.1:1/{name}",
    ],
)
def test_an_address_that_leads_nowhere_is_told_without_the_password(url, bench):
    keyring = Keyring()
    place = bench.place
    address = keyring.named(url.format(port=place.server.port, name=place.name, password=PASSWORD))
    bench.keyring = keyring
    with pytest.raises(ResourceUnreachable) as told:
        bench.adapter().connect(address)
    assert told.value.hint
    assert PASSWORD not in str(told.value) and "wrong-one" not in str(told.value)


def test_an_option_that_is_not_known_is_misuse(bench):
    keyring = Keyring()
    bench.keyring = keyring
    start = bench.place.url
    for option in ("x=1", "ssl_verify", "local_infile=1"):
        with pytest.raises(Misuse, match="not known") as told:
            bench.adapter().connect(keyring.named(f"{start}?{option}"))
        assert "ssl_ca" in told.value.hint
    bench.adapter().connect(keyring.named(f"{start}?charset=utf8mb4")).close()


def test_a_server_that_says_nothing_is_not_waited_for(bench, monkeypatch):
    """As one of something else, which waits until it is spoken to."""
    import socket

    monkeypatch.setattr(wire, "PATIENCE", 1)
    bench.keyring = Keyring()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = bench.keyring.named(f"mariadb://root@127.0.0.1:{server.getsockname()[1]}/x")
        with pytest.raises(ResourceUnreachable, match="does not answer"):
            bench.adapter().connect(address)


def test_what_takes_longer_than_a_greeting_is_waited_for(bench, monkeypatch):
    monkeypatch.setattr(wire, "PATIENCE", 1)
    with closing(bench.adapter().connect(bench.database)) as session:
        assert session.read("SELECT SLEEP(1.5)", None).rows == ((0,),)


def test_an_address_without_a_database_is_misuse(bench):
    bench.keyring = Keyring()
    with pytest.raises(Misuse):
        bench.adapter().connect(bench.keyring.named(f"mariadb://a@127.0.0.1:{bench.place.server.port}/"))


def test_undo_does_not_go_to_another_database_of_the_same_name(bench):
    effect = do(bench, "DELETE FROM users WHERE id = 3")
    bench.adapter().unprotect(bench.database, ())
    bench.adapter().protect(bench.database, ())
    with pytest.raises((Refused, ResourceUnreachable)):
        undo(bench, effect)
    with pytest.raises(ResourceUnreachable):
        bench.adapter().verify(effect)


def test_locks_of_others_end_in_trying_again_later(bench):
    effect = do(bench, "UPDATE users SET name = 'x'")
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE users SET name = 'busy' WHERE id = 1")
        done = threading.Event()
        told = []

        def work():
            try:
                undo(bench, effect)
            except TakebackError as error:
                told.append(error)
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        wait_until(lambda: _waits(bench) or done.is_set(), "the undo waits")
        cursor.execute("ROLLBACK")
        assert done.wait(120)
        thread.join()
    assert not told and names(bench)[1] == "ada"


def _waits(bench):
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'")
        return bool(cursor.fetchone()[0])


def test_an_effect_keeps_its_state_through_json(bench):
    effect = do(bench, "DELETE FROM users WHERE id = 3")
    assert effect.state is State.DONE
    assert bench.adapter().verify(effect).receipt == effect.receipt


def test_an_undo_is_written_down_as_what_it_does_and_not_row_by_row(bench):
    bench.plain(
        [
            "CREATE TABLE seats (id INT PRIMARY KEY, seat INT UNIQUE)",
            "INSERT INTO seats VALUES (1, 10), (2, 20)",
        ]
    )
    bench.adapter().protect(bench.database, ())
    effect = do(
        bench,
        "UPDATE users SET name = UPPER(name) WHERE id < 3",
        "DELETE FROM users WHERE id = 3",
        "INSERT INTO users VALUES (4, 'di')",
        "UPDATE seats SET seat = NULL",
        "UPDATE seats SET seat = 30 - id * 10",  # they changed places
    )

    undone = undo(bench, effect)

    assert undone.receipt["tables"] == {
        "users": {"inserted": 1, "updated": 2, "deleted": 1},
        "seats": {"inserted": 0, "updated": 2, "deleted": 0},
    }
    assert names(bench) == {1: "ada", 2: "bob", 3: "cy"}
    undo(bench, undone)
    assert names(bench) == {1: "ADA", 2: "BOB", 4: "di"}


def test_a_large_effect_is_assessed_by_numbers_until_something_stands_in_its_way(bench, monkeypatch):
    monkeypatch.setattr(undoing, "_FEW", 1)
    effect = do(bench, "UPDATE users SET name = UPPER(name)")
    made, prepare = [], net.prepare
    monkeypatch.setattr(net, "prepare", lambda wire, part: made.append(part) or prepare(wire, part))

    (smooth,) = bench.adapter().assess(undo_of(effect), effect).outcomes
    assert (smooth.outcome, made) == (Outcome.UNDONE, [])

    bench.plain(["UPDATE users SET name = 'z' WHERE id = 2"])
    outcomes = bench.adapter().assess(undo_of(effect), effect).outcomes
    assert "id=2" in str(outcomes) and made


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM _tb_op",
        "DELETE users, `_tb_op` FROM users JOIN _tb_op",
        "UPDATE _TB_LOG_1 SET tb_op = 0",
        "DELETE /*! users, _tb_op */ FROM users JOIN _tb_op",
        "EXECUTE IMMEDIATE 'DELETE FROM _tb_op'",
        'DELETE FROM "_tb_op"',
    ],
)
def test_what_takeback_keeps_is_left_alone(bench, statement):
    first = do(bench, "UPDATE users SET name = 'x' WHERE id = 2")
    with pytest.raises(NoRemedy, match="where the way back is kept"):
        do(bench, "UPDATE users SET name = 'y'", statement)
    assert names(bench) == {1: "ada", 2: "x", 3: "cy"}
    do(bench, "UPDATE users SET name = 'my _tb_op' WHERE id = 1")
    undo(bench, first)
    assert names(bench) == {1: "my _tb_op", 2: "bob", 3: "cy"}


@pytest.mark.parametrize("removed", ["DELETE FROM {}", "DELETE FROM {} LIMIT 1"])
def test_what_was_kept_and_is_gone_is_not_passed_over(bench, removed):
    effect = do(bench, "UPDATE users SET name = 'x'")
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n FROM _tb_table WHERE name = 'users'")
        bench.plain([removed.format(log_of(cursor.fetchone()[0]))])
    with pytest.raises(Corrupt, match="images of rows"):
        bench.adapter().assess(undo_of(effect), effect)
    with pytest.raises(Corrupt, match="images of rows"):
        undo(bench, effect)
    with pytest.raises(Corrupt, match="images of rows"):
        list(bench.adapter().rows(effect))
    assert set(names(bench).values()) == {"x"}


def test_a_table_whose_name_begins_like_ours_is_named_as_not_protected(bench):
    bench.plain(["CREATE TABLE _tb_mine (id INT PRIMARY KEY)", "INSERT INTO _tb_mine VALUES (1)"])
    cover = bench.adapter().protect(bench.database, ())
    assert [name for name, _ in cover.unprotected] == ["_tb_mine"]
    do(bench, "UPDATE users SET name = 'x'")
    ((name, why),) = bench.adapter().cover(bench.database).unprotected
    assert name == "_tb_mine" and "statements that name it are refused" in why
    with pytest.raises(NoRemedy, match="_tb_mine"):
        do(bench, "DELETE FROM _tb_mine")


def test_fresh_eyes_1_a_row_that_pointed_nowhere_is_refused_and_nobody_is_blamed(bench):
    bench.plain(["SET STATEMENT foreign_key_checks = 0 FOR INSERT INTO orders VALUES (77, 99)"])
    effect = do(bench, "DELETE FROM orders WHERE no = 77")

    (outcome,) = bench.adapter().assess(undo_of(effect), effect).outcomes
    assert outcome.outcome is Outcome.CONFLICT and "the row that it refers to is not there" in outcome.detail
    assert "changed by" not in outcome.detail

    bench.plain(["INSERT INTO users VALUES (99, 'late')"])
    undo(bench, effect)
