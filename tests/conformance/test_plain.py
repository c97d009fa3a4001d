"""Plain records in PostgreSQL: one INSERT each, listed later as they would have been at once, whoever does it."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from takeback.errors import KeyReused, LeaseLost, RecordInvalid, StoreBusy, TakebackError
from takeback.model.effect import State
from takeback.model.record import Draft, Kind, Record
from takeback.model.run import Lease
from takeback.storage.postgres.connection import Address, address_of
from takeback.storage.postgres.database import PostgresDatabase
from takeback.storage.postgres.fast_append import MANY, MOST
from takeback.storage.postgres.journal import PostgresJournal, PostgresLeases
from takeback.storage.postgres.store import bring_up_to_date
from takeback.storage.protocols import Query
from takeback.testing.fakes import SECOND, Clock, FakeProcesses, closing, ending, intending, opening
from tests.conformance.postgres_scene import PostgresScene
from tests.conformance.test_unlisted import some_drafts
from tests.servers.postgres import PgDatabase
from tests.servers.process import wait_until

TABLES = ("effects", "targets", "needs", "in_flight", "runs")


class Desk:
    """One process at a journal."""

    def __init__(self, office: "Office", now: Callable[[], int] | None) -> None:
        self.office = office
        self.database = office.scene.database()
        self.journal = PostgresJournal(self.database, now)
        self.leases = PostgresLeases(self.database, office.processes.alive)

    def open(self, run: str) -> Lease:
        lease = self.leases.acquire(run, self.office.processes.start(), 0, 3600 * SECOND)
        self.journal.append(lease, [opening(run)])
        return lease

    def make(self, lease: Lease, effect: str, **how: Any) -> None:
        self.journal.append(lease, [intending(effect, lease.run, f"file:///{effect}", **how)])
        self.journal.append(lease, [ending(effect, lease.run)])

    def ids(self) -> list[str]:
        return [effect.id for effect in self.journal.effects(Query())]

    def waiting(self) -> list[int]:
        """The records that are not listed."""
        rows = self.office.rows(
            "SELECT seq FROM records WHERE key IS NOT NULL"
            " AND seq > coalesce((SELECT n FROM tally WHERE name = 'listed'), 0)"
            " AND seq > (SELECT coalesce(max(seq), 0) FROM records WHERE key IS NULL) ORDER BY seq"
        )
        return [seq for (seq,) in rows]


class Office:
    def __init__(self, server: PgDatabase) -> None:
        self.scene = PostgresScene(server)
        self.clock, self.processes = Clock(), FakeProcesses()

    def desk(self, now: Callable[[], int] | None = None) -> Desk:
        return Desk(self, now)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.scene.server.url, autocommit=True) as connection:
            connection.execute("set search_path = takeback_store")
            return connection.execute(sql.encode()).fetchall()

    def tables(self) -> dict[str, list[Any]]:
        self.desk().ids()
        found = {name: sorted(map(str, self.rows(f"SELECT * FROM {name}"))) for name in TABLES}
        return found | {"tally": sorted(self.rows("SELECT * FROM tally WHERE name <> 'listed' AND n <> 0"))}


@pytest.fixture
def office(pg_store_database: PgDatabase) -> Iterator[Office]:
    office = Office(pg_store_database)
    yield office
    office.scene.close()


def test_an_intent_its_done_and_notes_are_listed_later(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e", key="k")
    desk.journal.append(lease, [Draft(Kind.REMEMBER, "run", "", {"name": "x"})])
    desk.journal.append(lease, [intending("f", "run", "file:///f")])
    desk.journal.append(lease, [ending("f", "run"), intending("g", "run", "file:///f")])
    assert desk.waiting() == [2, 3, 4, 5, 6, 7]
    assert not office.rows("SELECT 1 FROM effects")
    assert desk.ids() == ["e", "f", "g"]
    assert not desk.waiting()
    assert desk.journal.tally() == {"records": 7, "done": 2, "intended": 1}
    assert not list(desk.journal.check())
    # One that was listed in flight is done later.
    desk.journal.append(lease, [ending("g", "run")])
    assert desk.waiting() == [8]
    assert desk.journal.tally() == {"records": 8, "done": 3}
    assert not list(desk.journal.check())


def test_the_server_tells_the_time_of_plain_records_too(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e")
    ((first, now),) = office.rows("SELECT min(at), now_us() FROM records")
    times = [record.at for record in desk.journal.records()]
    assert times == sorted(times)
    assert first <= times[-1] <= now
    # Whoever believes it is another time asks.
    desk.journal._plain._told = (first + 3600 * SECOND, desk.journal._plain._told[1])  # pyright: ignore[reportPrivateUsage]
    desk.journal.append(lease, [intending("f", "run")])
    assert not desk.waiting()
    assert [record.at for record in desk.journal.records()][-1] >= now


def test_not_more_than_so_many_records_wait(office: Office) -> None:
    """They are listed beside the appends; and in their way where that does not happen, as in one transaction."""
    desk = office.desk()
    lease = desk.open("run")
    for number in range(MANY):
        desk.make(lease, f"e{number}")
    desk.database.close()  # what was asked for is carried out all the same
    wait_until(lambda: len(desk.waiting()) <= MANY, "what was asked for is listed")
    desk = office.desk()
    desk.make(lease, "whole")
    with desk.database.write() as session:
        for number in range(MOST // 2 + 1):
            desk.make(lease, f"f{number}")
        assert session.execute("SELECT n FROM tally WHERE name = 'listed'").fetchone()[0] > MOST
        ((durable,),) = session.execute("show synchronous_commit").fetchall()
    assert durable == "on"
    assert len(desk.waiting()) < MOST
    assert not list(desk.journal.check())


def test_a_listing_that_fails_beside_the_appends_is_asked_for_again(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    said = "select count(pg_terminate_backend(pid)) from pg_stat_activity where query like 'SELECT list_all%'"
    for number in range(MANY):
        desk.make(lease, f"e{number}")
    wait_until(lambda: len(desk.waiting()) < MANY + 1, "the first is listed")
    assert office.rows(said) == [(1,)]
    for number in range(MANY):
        desk.make(lease, f"f{number}")
    wait_until(lambda: len(desk.waiting()) < MANY + 1, "the second is listed")
    desk.make(lease, "last")
    assert len(desk.ids()) == 2 * MANY + 1
    assert not list(desk.journal.check())


def test_what_one_has_appended_another_reads_and_builds_on(office: Office) -> None:
    one, other = office.desk(), office.desk()
    lease = one.open("run")
    one.make(lease, "e", key="k")
    one.journal.append(lease, [intending("open", "run", "file:///d", key="l")])
    assert len(one.waiting()) == 3
    (effect,) = other.journal.effects(Query(key="k"))
    assert (effect.id, effect.state) == ("e", State.DONE)
    theirs = other.open("other")
    with pytest.raises(StoreBusy):
        other.journal.append(theirs, [intending("f", "other", "file:///d/f")])
    for desk, who in ((other, theirs), (one, lease)):
        with pytest.raises(KeyReused):
            desk.journal.append(who, [intending("g", who.run, "file:///g", key="l")])
    one.journal.append(lease, [ending("open", "run")])
    other.make(theirs, "f")
    one.make(lease, "h")
    assert other.ids() == one.ids() == ["e", "open", "f", "h"]
    assert not list(one.journal.check())


@pytest.mark.parametrize(
    ("drafts", "refusal"),
    [
        ([intending("e", "run", "file:///new")], RecordInvalid),  # begun before
        ([intending("x", "run", "file:///x", key="k")], KeyReused),
        ([intending("x", "run", "file:///held/inside")], StoreBusy),
        ([intending("x", "run", "file:///")], StoreBusy),
        ([ending("e", "run")], RecordInvalid),  # done before
        ([ending("never", "run")], RecordInvalid),
        ([ending("held", "run"), ending("held", "run")], RecordInvalid),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_what_must_not_follow_is_refused_listed_or_not(
    office: Office, drafts: list[Draft], refusal: type[TakebackError], listed: bool
) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e", key="k")
    desk.journal.append(lease, [intending("held", "run", "file:///held")])
    if listed:
        desk.ids()
    with pytest.raises(refusal):
        desk.journal.append(lease, drafts)
    assert [record.seq for record in desk.journal.records()] == [1, 2, 3, 4]
    desk.journal.append(lease, [ending("held", "run")])
    assert not list(desk.journal.check())


def test_who_lost_the_lease_or_ended_the_run_appends_nothing_plain(office: Office) -> None:
    desk, other = office.desk(), office.desk()
    lease = desk.open("run")
    desk.make(lease, "e")
    office.processes.kill(lease.owner)
    taken = other.leases.acquire("run", office.processes.start(), 0, 3600 * SECOND)
    with pytest.raises(LeaseLost):
        desk.make(lease, "f")
    other.journal.append(taken, [closing("run")])
    with pytest.raises(RecordInvalid):
        other.make(taken, "g")
    assert other.ids() == ["e"]


def test_nobody_takes_a_run_over_while_a_plain_record_is_on_its_way(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e")
    with psycopg.connect(office.scene.server.url) as away:
        away.execute("set search_path = takeback_store; set lock_timeout = '50ms'")
        with desk.database.write():
            desk.make(lease, "f")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                away.execute("select give_up('run', 1)")
    # By itself it holds what `take`, `claim` and `give_up` wait for, in the same statement.
    with psycopg.connect(office.scene.server.url, autocommit=True) as away:
        away.execute("set search_path = takeback_store; set lock_timeout = '50ms'")
        away.execute("begin; lock table turn in share mode")
        desk.database.once(lambda session, _: session.execute("set lock_timeout = '50ms'"))
        with pytest.raises(StoreBusy):
            desk.make(lease, "g")
        away.execute("rollback")
    desk.make(lease, "g")
    assert desk.ids() == ["e", "f", "g"]


def test_who_waited_for_the_turn_looks_at_the_lease_after_that(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    for number in range(6):  # until the server keeps its plan
        desk.make(lease, f"e{number}")
    raised: list[BaseException] = []

    def append() -> None:
        try:
            desk.make(lease, "late")
        except LeaseLost as error:
            raised.append(error)

    waiting = "SELECT 1 FROM pg_locks WHERE relation = 'turn'::regclass AND NOT granted"
    with psycopg.connect(office.scene.server.url, autocommit=True) as other:
        other.execute("set search_path = takeback_store")
        other.execute("begin; lock table turn in share mode")
        thread = threading.Thread(target=append)
        thread.start()
        wait_until(lambda: bool(office.rows(waiting)), "the append waits for the turn")
        other.execute("update leases set generation = generation + 1, pid = 7")
        other.execute("commit")
        thread.join()
    assert len(raised) == 1
    assert len(desk.ids()) == 6


def test_two_who_append_at_once_take_turns(office: Office) -> None:
    """Both believe to know the end of the journal: one of them is right."""
    one, other = office.desk(), office.desk()
    lease = one.open("run")
    one.make(lease, "e")
    with psycopg.connect(office.scene.server.url) as third:
        # As another plain append would stand there: its record is inserted, and not committed yet.
        third.execute("set search_path = takeback_store")
        third.execute(
            "insert into records select seq + 1, at, 'remember', run, '', null, sha256(hash), body, '' from records"
            " order by seq desc limit 1"
        )
        one.database.once(lambda session, _: session.execute("set lock_timeout = '50ms'"))
        with pytest.raises(StoreBusy):
            one.make(lease, "f")
        third.rollback()
    one.make(lease, "f")
    theirs = other.open("other")
    for number in range(5):
        one.make(lease, f"one{number}")
        other.make(theirs, f"other{number}")
    assert [record.seq for record in one.journal.records()] == list(range(1, 27))
    assert not list(other.journal.check())


def test_who_may_only_read_sees_what_is_listed_and_finds_nothing_wrong(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e")
    desk.ids()
    desk.journal.append(lease, [intending("f", "run")])
    looking = office.desk()
    looking.database.read_only = True
    assert looking.ids() == ["e"]
    assert not list(looking.journal.check())
    assert desk.waiting() == [4]
    office.scene.behind_its_back("UPDATE effects SET state = 'stuck' WHERE id = 'e'")
    assert len(list(looking.journal.check())) == 1


def test_what_was_rolled_back_is_forgotten(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e")
    with pytest.raises(ZeroDivisionError), desk.database.write():
        desk.make(lease, "never", key="k")
        raise ZeroDivisionError
    desk.make(lease, "f", key="k")
    assert desk.ids() == ["e", "f"]
    assert [record.seq for record in desk.journal.records()] == [1, 2, 3, 4, 5]
    assert not list(desk.journal.check())


def test_a_transaction_that_lists_is_as_durable_as_any(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "e")
    with desk.database.write() as session:
        assert desk.ids() == ["e"]
        ((durable,),) = session.execute("show synchronous_commit").fetchall()
    assert durable == "on"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_listed_alike_however_it_is_done(
    office: Office, pg_store_database: PgDatabase, seed: int
) -> None:
    """The whole way; plain; listed by another; and in turns by two who append."""
    found: list[dict[str, list[Any]]] = []
    said: list[list[Record]] = []
    for way in ("whole", "plain", "by another", "in turns"):
        with psycopg.connect(pg_store_database.url, autocommit=True) as connection:
            connection.execute("drop schema takeback_store cascade")
            bring_up_to_date(connection, Address(pg_store_database.url))
        room = Office(pg_store_database)
        _live(room, way, random.Random(seed))
        last = room.desk()
        assert not list(last.journal.check())
        found.append(room.tables())
        said.append([record._replace(at=0, hash=b"", seal=b"") for record in last.journal.records()])
        ((plain,),) = room.rows("SELECT count(*) FROM records WHERE key IS NOT NULL")
        assert (plain == 0) == (way == "whole")
        room.scene.close()
    assert said[1:] == [said[0]] * 3
    assert found[1:] == [found[0]] * 3


def _live(office: Office, way: str, chance: random.Random) -> None:
    desks = [office.desk(office.clock), office.desk(office.clock)]
    leases = [desks[0].open(run) for run in ("one", "two")]
    known: list[str] = []
    for number in range(100):
        desk = desks[number // 25 % 2] if way == "in turns" else desks[0]
        lease = chance.choice(leases)
        if way == "whole":
            desk.journal._plain.forget()  # pyright: ignore[reportPrivateUsage]
        try:
            desk.journal.append(lease, some_drafts(chance, known, lease.run, number))
        except TakebackError:
            pass  # as it would have been refused at once
        if way == "by another" and number % 25 == 24:
            desks[1].ids()


def test_a_rollback_does_not_make_the_connection_forget_what_it_has_prepared(office: Office) -> None:
    """The driver prepares what it is asked often, and after a rollback drops all that the connection has prepared."""
    desk = office.desk()
    lease = desk.open("run")
    for number in range(8):
        with desk.database.write() as session:
            session.execute("SELECT n FROM tally WHERE name = ?", ("listed",))
            desk.make(lease, f"e{number}")
    with pytest.raises(ZeroDivisionError), desk.database.write() as session:
        session.execute("SELECT n FROM tally WHERE name = ?", ("listed",))
        raise ZeroDivisionError
    desk.make(lease, "after")
    assert "after" in desk.ids()


def test_whoever_may_only_read_sees_what_was_listed(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "listed")
    assert desk.ids() == ["listed"]
    desk.make(lease, "not yet")
    url, role = office.scene.server.url, f"looks_{office.scene.server.name}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create role {role}".encode())
        connection.execute(f"grant usage on schema takeback_store to {role}".encode())
        connection.execute(f"grant select on all tables in schema takeback_store to {role}".encode())
    database = PostgresDatabase(address_of(f"{url}{'&' if '?' in url else '?'}options=-crole%3D{role}"))
    assert [effect.id for effect in PostgresJournal(database).effects(Query())] == ["listed"]
    database.close()
    assert desk.ids() == ["listed", "not yet"]


def test_whoever_has_the_turn_may_lock_the_records_beside_plain_appends(office: Office) -> None:
    """As when a store is retired: an append that waits for the turn must not have the records in its hands."""
    desk = office.desk()
    lease = desk.open("run")
    for number in range(4):
        desk.make(lease, f"e{number}")  # by now the statement is one that the server keeps a plan of
    with psycopg.connect(office.scene.server.url) as other:
        other.execute("lock table takeback_store.turn in exclusive mode")
        appending = threading.Thread(target=desk.make, args=(lease, "late"))
        appending.start()
        waits = "select 1 from pg_locks where relation = 'turn'::regclass and not granted"
        wait_until(lambda: bool(office.rows(waits)), "the append waits for the turn")
        other.execute("set lock_timeout = '5s'")
        other.execute("lock table takeback_store.records in share row exclusive mode")
        other.commit()
    appending.join()
    assert "late" in desk.ids()
