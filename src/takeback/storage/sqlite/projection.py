"""Records that the derived tables do not contain yet.

The record alone makes an append durable; listing it (effects, targets, needs, tally) touches ten times as many pages.
So for the plain life of an effect, an intent and its done, that is put off: who appended them keeps in memory what the
tables would say and lists many at once. Any other process that wants to append or to read first lists the missing ones
(`listed` in `tally`), from the records. Runs, and all that is rare, are listed with the record itself.
"""

import sqlite3
from typing import NamedTuple

from takeback.errors import Blocked, StoreBusy, TakebackError
from takeback.model.effect import State
from takeback.model.lifecycle import BIRTHS, Life, touched
from takeback.model.record import GENESIS, HASH, Draft, Kind, Record
from takeback.model.resource import Project
from takeback.model.run import Lease, RunState
from takeback.storage.projects import belong, derive_one
from takeback.storage.sqlite.append import (
    EFFECTS_OF_RUN,
    FIND_LIFE,
    IN_FLIGHT,
    INSERT_EFFECT,
    LISTED,
    RECORD,
    Given,
    append_one,
    belonging,
    changing,
    count,
    list_effects,
    recorded,
    refuse_overlap,
    row_of,
    stand_of,
    to_life,
    to_record,
)
from takeback.storage.sqlite.database import Row, damaged_too

MOST = 256  # records; a reader that finds that many unlisted hardly notices
_PLAIN = (Kind.INTENT, Kind.DONE, Kind.CHECKPOINT, Kind.REMEMBER)
HEAD = f"SELECT (SELECT coalesce(max(seq), 0) FROM records), ({LISTED})"
# Nothing is inserted if anyone else has appended (the number is taken) or listed, or has the lease.
_INSERT = (
    f"INSERT OR IGNORE INTO records ({RECORD}) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE ({LISTED}) = ?8"
    " AND (SELECT generation FROM leases WHERE run = ?3 AND pid <> 0) = ?9"
)
_INSERT_BIRTH = f"{_INSERT} AND NOT EXISTS (SELECT 1 FROM effects WHERE id = ?4 OR (key = ?10 AND key <> ''))"
_ANY_IN_FLIGHT = f"SELECT EXISTS (SELECT 1 FROM effects WHERE {IN_FLIGHT})"


class RunPlace(NamedTuple):
    """Of a run: where its next effect goes."""

    state: RunState
    number: int
    effects: int


class EffectRow(NamedTuple):
    """A row of `effects` as it has to become."""

    life: Life
    key: str = ""
    run: int = 0
    nth: int = 0
    resources: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    projects: tuple[Project, ...] = ()

    @property
    def is_new(self) -> bool:
        return self.nth > 0


class Unlisted:
    """Facts that this process knows better than the tables; valid as long as no other process appends or lists."""

    def __init__(self) -> None:
        self._undo = ""  # the newest one that was begun here: what its end does is not plain
        self._proposed = ""  # the newest one that was proposed here: its intent is not its first record
        self.forget()

    def forget(self) -> None:
        self._seq = -1  # of the newest record; -1: not known
        self._hash = b""
        self._listed = -1
        self._entries: dict[str, EffectRow] = {}
        self._keys: set[str] = set()
        self._flying: dict[str, EffectRow] = {}  # those of them that are in flight
        self._runs: dict[str, RunPlace] = {}
        self._in_flight: bool | None = None  # whether the table has any; None: not known

    def knows(self, seq: int, listed: int) -> bool:
        """Whether all that is not listed is ours."""
        return self._seq == seq and self._listed == listed

    def has_key(self, key: str) -> bool:
        return key in self._keys

    def may_be_plain(self, lease: Lease | None, draft: Draft) -> bool:
        takes_back = "undoes" in draft.body or (draft.effect == self._undo and draft.effect)
        known = draft.kind is Kind.INTENT and draft.effect == self._proposed
        plain = lease is not None and draft.kind in _PLAIN and not takes_back and not known
        return plain and 0 <= self._seq < self._listed + MOST

    def append(
        self,
        connection: sqlite3.Connection,
        lease: Lease | None,
        draft: Draft,
        given: Given,
        follows: bool = False,
    ) -> Record:
        """`follows`: another one in this transaction."""
        if self._seq - self._listed >= MOST:
            self.list_all(connection)
        lists = follows and self._seq == self._listed
        if (
            not lists
            and self.may_be_plain(lease, draft)
            and (record := self.append_plain(connection, lease, draft, given))
        ):
            return record
        stand = stand_of(connection, draft.kind, draft.run, draft.effect)
        if stand.listed != stand.seq:
            self.list_all(connection)
            stand = stand_of(connection, draft.kind, draft.run, draft.effect)
        record = append_one(connection, lease, draft, given, stand)
        self.forget()
        self._seq, self._hash, self._listed = record.seq, record.hash, record.seq
        if draft.body.get("undoes"):
            self._undo = draft.effect
        if draft.kind is Kind.PROPOSE:
            self._proposed = draft.effect
        _set_listed(connection, record.seq)
        return record

    def append_plain(
        self, connection: sqlite3.Connection, lease: Lease | None, draft: Draft, given: Given
    ) -> Record | None:
        """What may be plain, by one statement that writes. None: there is more to it, and nothing was appended."""
        kind, _, effect, body = draft
        if not lease or self._seq < 0:
            return None
        life = self._life(connection, effect) if kind is Kind.DONE else None
        place = self._place(connection, draft) if kind is Kind.INTENT else None
        if (kind is Kind.INTENT and place is None) or (kind is Kind.DONE and life is None):
            return None
        row = row_of(self._seq, self._hash, draft, given)
        record = recorded(row, draft)
        fence = (self._listed, lease.generation)
        if place:
            if self._overlaps(connection, record):
                return None
            inserted = connection.execute(_INSERT_BIRTH, (*row, *fence, body["key"]))
        else:
            inserted = connection.execute(_INSERT, (*row, *fence))
        if inserted.rowcount != 1:
            return None
        if place:
            self._bear(record, place)
        elif life:
            life = life._replace(state=State.DONE, ended=record.seq)
            entry = self._entries.get(life.id)
            self._entries[life.id] = entry._replace(life=life) if entry else EffectRow(life)
            self._flying.pop(life.id, None)
        self._seq, self._hash = record.seq, record.hash
        return record

    def _overlaps(self, connection: sqlite3.Connection, record: Record) -> bool:
        """Asked before it is inserted: if anyone appends in between, its number is taken."""
        if self._in_flight is None:
            self._in_flight = bool(connection.execute(_ANY_IN_FLIGHT).fetchone()[0])
        if self._in_flight or self._flying:
            held = [(id, entry.life.state.value, entry.resources) for id, entry in self._flying.items()]
            try:
                refuse_overlap(connection, record, held, self._entries.keys() - self._flying.keys())
            except (Blocked, StoreBusy):
                return True
        return False

    def _bear(self, record: Record, place: RunPlace) -> None:
        seq, body = record.seq, record.body
        life = Life(record.effect, record.run, State.INTENDED, seq, seq)
        nth, key, needs = place.effects + 1, body["key"], tuple(body.get("needs", ()))
        self._entries[life.id] = self._flying[life.id] = EffectRow(
            life, key, place.number, nth, touched(body), needs, belonging(body)
        )
        self._runs[record.run] = RunPlace(place.state, place.number, nth)
        if key:
            self._keys.add(key)

    def _place(self, connection: sqlite3.Connection, draft: Draft) -> RunPlace | None:
        """Where the next effect of the run goes; None if this one is not a plain next one."""
        _, run, effect, body = draft
        if effect in self._entries or body["key"] in self._keys:
            return None
        if run not in self._runs:
            sql = f"SELECT state, number, {EFFECTS_OF_RUN} FROM runs WHERE id = ?"
            row = connection.execute(sql, (run,)).fetchone()
            if row is None:
                return None
            self._runs[run] = RunPlace(RunState(row[0]), row[1], row[2] or 0)
        place = self._runs[run]
        return place if place.state is RunState.OPEN else None

    def _life(self, connection: sqlite3.Connection, effect: str) -> Life | None:
        """Of an effect that can be done now and that takes nothing back."""
        if entry := self._entries.get(effect):
            life = entry.life
        else:
            row = connection.execute(FIND_LIFE, (effect,)).fetchone()
            life = to_life(row) if row else None
        return life if life and life.state is State.INTENDED and not life.undoes else None

    def list_all(self, connection: sqlite3.Connection) -> None:
        """From memory if we know it all, else from the records."""
        seq, listed = connection.execute(HEAD).fetchone()
        if not self.knows(seq, listed):
            self.forget()
            list_records(connection)
            self._seq = self._listed = seq
            row = connection.execute("SELECT hash FROM records WHERE seq = ?", (self._seq,)).fetchone()
            self._hash = row[0][:HASH] if row else GENESIS
            return
        if self._entries:
            self._list_entries(connection)
        self._entries.clear()
        self._keys.clear()
        self._flying.clear()
        self._in_flight = None
        if self._listed != self._seq:
            _set_listed(connection, self._seq)
            self._listed = self._seq

    def _list_entries(self, connection: sqlite3.Connection) -> None:
        new = [entry for entry in self._entries.values() if entry.is_new]
        rows = [(*changing(e.life), e.life.seq, e.life.id, e.key, e.run, e.nth) for e in new]
        connection.executemany(INSERT_EFFECT, rows)
        connection.executemany(
            "INSERT OR IGNORE INTO targets VALUES (?, ?)", [(r, e.life.seq) for e in new for r in e.resources]
        )
        connection.executemany(
            "INSERT OR IGNORE INTO needs VALUES (?, ?)", [(n, e.life.seq) for e in new for n in e.needs]
        )
        for entry in new:
            belong(connection, entry.projects, entry.life.seq, entry.life.told)
        old = [entry.life for entry in self._entries.values() if not entry.is_new]
        connection.executemany(
            "UPDATE effects SET state = ?, ended = ? WHERE seq = ?",
            [(life.state.value, life.ended, life.seq) for life in old],
        )
        done = sum(1 for entry in self._entries.values() if entry.life.state is State.DONE)
        if done:
            count(connection, State.DONE.value, done)


def list_records(connection: sqlite3.Connection) -> None:
    """List the records that others left. Of a record with an unreadable body only the other columns are listed;
    `verify` reports it."""
    sql = f"SELECT {RECORD} FROM records WHERE seq > ({LISTED}) ORDER BY seq"
    rows = damaged_too(connection, sql)
    for row in rows:
        try:
            record = to_record(row)
            list_effects(connection, record, stand_of(connection, record.kind, record.run, record.effect))
            if record.kind in BIRTHS and not belonging(record.body):
                _derive(connection, record)
        except (TakebackError, KeyError, ValueError):
            _list_damaged(connection, row)
    if rows:
        _set_listed(connection, rows[-1][0])


def _derive(connection: sqlite3.Connection, record: Record) -> None:
    """A run of an earlier version recorded no project."""
    sql = "SELECT e.seq FROM effects e JOIN runs r ON r.number = e.run WHERE e.id = ? AND r.project = ''"
    if row := connection.execute(sql, (record.effect,)).fetchone():
        derive_one(connection, touched(record.body), row[0], record.seq)


def _list_damaged(connection: sqlite3.Connection, row: Row) -> None:
    """So that the effect can be named, and given up."""
    seq, kind, run, effect = row[:4]
    if kind == Kind.INTENT:
        connection.execute(
            "INSERT OR IGNORE INTO effects (seq, id, run, nth, state, told, key)"
            f" SELECT ?1, ?2, number, coalesce({EFFECTS_OF_RUN}, 0) + 1, 'intended', ?1, '' FROM runs WHERE id = ?3",
            (seq, effect, run),
        )
    elif kind == Kind.DONE:
        sql = "UPDATE effects SET state = 'done', ended = ? WHERE id = ? AND state = 'intended'"
        if connection.execute(sql, (seq, effect)).rowcount:
            count(connection, State.DONE.value, 1)


def _set_listed(connection: sqlite3.Connection, seq: int) -> None:
    connection.execute("UPDATE tally SET amount = ? WHERE name = 'listed'", (seq,))
