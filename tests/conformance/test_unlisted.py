"""Listing that is put off: the tables say in the end what they would have said at once, whoever lists, and when."""

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from takeback.errors import KeyReused, StoreBusy, TakebackError
from takeback.model.effect import State
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease
from takeback.storage.leases import SqliteLeases
from takeback.storage.protocols import Query
from takeback.storage.sqlite.database import SqliteDatabase
from takeback.storage.sqlite.journal import SqliteJournal
from takeback.storage.sqlite.projection import MOST
from takeback.testing.fakes import SECOND, Clock, FakeProcesses, ending, intending, opening
from tests.conformance.test_journal import new_database

TABLES = ("effects", "targets", "needs", "tally", "runs")


class Desk:
    """One process at a journal."""

    def __init__(
        self, path: Path, clock: Clock, processes: FakeProcesses, *, read_only: bool = False
    ) -> None:
        self.database = SqliteDatabase(str(path), read_only=read_only)
        self.journal = SqliteJournal(self.database, clock)
        self.leases = SqliteLeases(self.database, processes.alive, clock)
        self.clock = clock
        self.processes = processes

    def open(self, run: str) -> Lease:
        lease = self.leases.acquire(run, self.processes.start(), self.clock(), 3600 * SECOND)
        self.journal.append(lease, [opening(run)])
        return lease

    def make(self, lease: Lease, effect: str, **how: Any) -> None:
        self.journal.append(lease, [intending(effect, lease.run, f"file:///{effect}", **how)])
        self.journal.append(lease, [ending(effect, lease.run)])

    def ids(self) -> list[str]:
        return [effect.id for effect in self.journal.effects(Query())]

    def listed(self) -> int:
        return self.database.read("SELECT amount FROM tally WHERE name = 'listed'")[0][0]


class Office:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal.db"
        self.clock, self.processes = Clock(), FakeProcesses()
        self.desks: list[Desk] = []
        new_database(self.path)

    def desk(self, *, read_only: bool = False) -> Desk:
        self.desks.append(Desk(self.path, self.clock, self.processes, read_only=read_only))
        return self.desks[-1]

    def tables(self) -> dict[str, list[Any]]:
        """As they are in the file, once they are listed."""
        self.desk().ids()
        with closing(sqlite3.connect(self.path)) as connection:
            return {name: sorted(connection.execute(f"SELECT * FROM {name}")) for name in TABLES}


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    for desk in office.desks:
        desk.database.close()


def test_an_intent_and_its_done_are_one_statement_each(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.make(lease, "first")
    said: list[str] = []
    desk.database._connection.set_trace_callback(said.append)  # pyright: ignore[reportPrivateUsage]
    desk.make(lease, "second", key="k")
    words = [sentence.split(maxsplit=1)[0] for sentence in said]
    assert words == ["INSERT"] * 2  # each is a transaction of its own


def test_what_one_has_appended_another_reads_and_builds_on(office: Office) -> None:
    one, other = office.desk(), office.desk()
    lease = one.open("run")
    one.make(lease, "e", key="k", needs=["n"])
    one.journal.append(lease, [intending("open", "run", "file:///d", key="l")])
    assert one.listed() == 1
    (effect,) = other.journal.effects(Query(key="k"))
    assert (effect.id, effect.state) == ("e", State.DONE)
    assert [found.id for found in other.journal.effects(Query(needing="n"))] == ["e"]
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


def test_what_a_killed_process_had_not_listed_the_next_one_lists(office: Office) -> None:
    child = os.fork()
    if child == 0:
        desk = office.desk()
        lease = desk.open("run")
        for number in range(10):
            desk.make(lease, f"e{number}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    desk = office.desk()
    assert desk.listed() == 1
    assert desk.journal.tally() == {"records": 21, "done": 10}
    assert desk.listed() == 21
    (info,) = desk.journal.runs()
    assert info.effects == 10
    assert not list(desk.journal.check())


def test_not_more_than_so_many_records_wait(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    for number in range(MOST):
        desk.make(lease, f"e{number}")
        desk.journal.append(lease, [Draft(Kind.REMEMBER, "run", "", {"step": number})])
        (newest,) = desk.database.read("SELECT max(seq) FROM records")[0]
        assert newest - desk.listed() <= MOST


def test_an_effect_that_was_listed_in_flight_is_listed_again_when_it_is_done(office: Office) -> None:
    desk = office.desk()
    lease = desk.open("run")
    desk.journal.append(lease, [intending("e", "run", "file:///e", key="k")])
    assert desk.ids() == ["e"]
    desk.journal.append(lease, [ending("e", "run")])
    desk.make(lease, "again on the same", key="l")
    desk.journal.append(lease, [intending("f", "run", "file:///e")])  # no longer in its way
    assert desk.journal.tally() == {"records": 6, "done": 2, "intended": 1}
    assert not list(desk.journal.check())


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


def test_a_store_that_can_only_be_read_tells_it_too_and_is_not_changed(office: Office) -> None:
    desk = office.desk()
    desk.make(desk.open("run"), "e")
    looking = office.desk(read_only=True)
    assert looking.ids() == ["e"]
    assert looking.journal.tally() == {"records": 3, "done": 1}
    assert not list(looking.journal.check())
    assert desk.listed() == 1


@pytest.mark.parametrize("seq", [2, 3, 4])
def test_a_record_that_was_damaged_before_it_was_listed_hides_nothing_else(office: Office, seq: int) -> None:
    desk = office.desk()
    lease = desk.open("run")
    for effect in ("e", "f"):
        desk.make(lease, effect)
    with closing(sqlite3.connect(office.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER records_are_final")
        connection.execute("UPDATE records SET body = 'not json' WHERE seq = ?", (seq,))
    later = office.desk()
    hurt, whole = ("e", "f") if seq < 4 else ("f", "e")
    (effect,) = later.journal.effects(Query(ids=(whole,)))
    assert effect.state is State.DONE
    assert any(f"Record {seq} " in finding for finding in later.journal.check())
    (effect,) = later.journal.effects(Query(ids=(hurt,), damaged_too=True))
    assert effect.change.kind == "damaged"
    later.make(lease, "new")


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_are_listed_alike_however_it_is_done(tmp_path: Path, seed: int) -> None:
    """At once; from the memory of who appended; from the records by another; and in turns by two who append."""
    found: list[dict[str, list[Any]]] = []
    for way in ("at once", "from memory", "from the records", "in turns"):
        (tmp_path / way).mkdir()
        office = Office(tmp_path / way)
        _live(office, way, random.Random(seed))
        assert not list(office.desk().journal.check())
        found.append(office.tables())
        for desk in office.desks:
            desk.database.close()
    assert found[1:] == [found[0]] * 3


def _live(office: Office, way: str, chance: random.Random) -> None:
    desks = [office.desk(), office.desk()]
    leases = [desks[0].open(run) for run in ("one", "two")]
    known: list[str] = []
    for number in range(120):
        desk = desks[number % 2] if way == "in turns" else desks[0]
        lease = chance.choice(leases)
        try:
            desk.journal.append(lease, some_drafts(chance, known, lease.run, number))
        except TakebackError:
            pass  # as it would have been at once
        if way == "at once":
            desk.ids()
        if way == "from the records" and number % 50 == 49:
            desks[1].ids()


def some_drafts(chance: random.Random, known: list[str], run: str, number: int) -> list[Draft]:
    """One or two records; mostly the plain life of an effect, at times whatever may happen to one."""
    effect = f"e{number}"
    place = f"file:///{chance.choice('abcdefgh')}" + chance.choice(["", "/x", "#k"])
    key = chance.choice(["", effect, effect, "shared"])
    intent = intending(effect, run, place, key=key, needs=chance.choice([(), ("n",)]))
    older = chance.choice(known) if known else effect
    rare = (Kind.ABORT, Kind.STICK, Kind.ACCEPT, Kind.FORGET)
    kinds: list[list[Draft]] = [
        [intent, ending(effect, run)],
        [intent],
        [ending(older, run), intent],
        [ending(older, run)],
        [Draft(Kind.REMEMBER, run, "", {"step": number})],
        [ending(older, run, chance.choice(rare), why="so")],
        [intending(effect, run, place, undoes=older), ending(effect, run)],
        [intending(effect, run, place, kind=Kind.PROPOSE)],
    ]
    drafts = chance.choices(kinds, weights=(6, 4, 3, 4, 1, 2, 2, 1))[0]
    known.append(effect)
    return drafts
