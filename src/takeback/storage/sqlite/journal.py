"""The journal in SQLite: records, projections kept in the same transaction, and queries as SQL."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from takeback.errors import RecordInvalid, StoreFull, TakebackError
from takeback.model.change import Change
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.ids import short
from takeback.model.lifecycle import OF_EFFECTS, told
from takeback.model.record import GENESIS, HASH, Draft, Flaw, Kind, Record, is_erased, is_tied, new_salt
from takeback.model.redaction import as_read
from takeback.model.resource import Project, Scope, ancestors
from takeback.model.run import Lease, RunInfo
from takeback.storage.bodies import read, whole
from takeback.storage.leases import refuse_unheld
from takeback.storage.projects import effects_of, runs_of
from takeback.storage.protocols import Query
from takeback.storage.sqlite.append import (
    EFFECTS_OF_RUN,
    IN_FLIGHT,
    RECORD,
    RUN,
    Given,
    as_original,
    to_life,
    to_record,
    to_run,
)
from takeback.storage.sqlite.database import Row, SqliteDatabase
from takeback.storage.sqlite.projection import HEAD, Unlisted
from takeback.storage.tables import Reading

_COLUMNS = """
  e.id, coalesce(r.id, ''), e.state, e.seq, e.told, e.ended, e.undoes, e.partial, e.undone_by, e.accepted_by,
  e.forgotten, e.pinned,
  coalesce(r.agent, ''),
  i.seq, i.kind, i.run, i.effect, i.at, i.body, i.hash,
  p.hash,
  o.seq, o.kind, o.run, o.effect, o.at, o.body, o.hash,
  q.hash
FROM effects e
LEFT JOIN runs r ON r.number = e.run
LEFT JOIN records i ON i.seq = e.told
LEFT JOIN records p ON p.seq = e.told - 1
LEFT JOIN records o ON o.seq = e.ended
LEFT JOIN records q ON q.seq = e.ended - 1
"""

# Spelled out, and in the words of the schema, so that SQLite sees its index of those in flight applies.
IN_FLIGHT_EFFECTS = "(e.state = 'proposed' OR e.state = 'intended' OR e.state = 'stuck')"

# Stands in listings for an effect whose record cannot be trusted; asking for it by id raises.
_DAMAGED_CHANGE = Change("", "damaged", "", "(its journal record is damaged)")
DAMAGED = Effect("", "", "", 0, State.STUCK, _DAMAGED_CHANGE, note="The journal record is damaged.")
# What is still known of it.
_LISTED = ("id", "run", "seq", "state", "undoes", "undone_by", "accepted_by", "forgotten", "pinned")


def select_effects(
    query: Query, beyond: int = 0, in_flight: str = IN_FLIGHT_EFFECTS
) -> tuple[str, list[Any]]:
    """`beyond` is where the page before ended: in the order asked for, what comes after it. `in_flight`: what those
    have in common, so that they are found among many."""
    where, values = _narrowed(query, in_flight)
    if beyond:
        where.append("e.seq < ?" if query.newest else "e.seq > ?")
        values.append(beyond)
    order = "e.seq DESC" if query.newest else "e.seq"
    limit = f" LIMIT {query.limit}" if query.limit else ""
    return f"SELECT{_COLUMNS}{_where(where)} ORDER BY {order}{limit}", values


def count_effects(query: Query, in_flight: str = IN_FLIGHT_EFFECTS) -> tuple[str, list[Any]]:
    where, values = _narrowed(query, in_flight)
    limit = f" LIMIT {query.limit}" if query.limit else ""
    found = f"SELECT 1 FROM effects e LEFT JOIN runs r ON r.number = e.run {_where(where)}{limit}"
    return f"SELECT count(*) FROM ({found}) AS found", values


def _where(conditions: list[str]) -> str:
    return "WHERE " + " AND ".join(conditions) if conditions else ""


def _narrowed(query: Query, in_flight: str) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    told_after = 0 if query.scope else query.told_after
    if query.ids:
        where.append(f"e.id IN ({_marks(query.ids)})")
        values += query.ids
    if query.undoing:
        # Spelled out, so that the partial index of undos applies.
        where.append(f"e.undoes <> '' AND e.undoes IN ({_marks(query.undoing)})")
        values += query.undoing
    for sql, value in (
        ("e.run = (SELECT number FROM runs WHERE id = ?)", query.run),
        ("r.agent = ?", query.agent),
        ("e.key = ? AND e.key <> '' AND e.state <> 'aborted'", query.key),
        ("e.seq IN (SELECT effect FROM needs WHERE needed = ?)", query.needing),
        ("e.seq > ?", query.after),
        ("e.seq < ?", query.before),
        # By the records since, which are few: `told` has no index, and nearly all effects are older. Those on one
        # resource are fewer still, however long ago that is.
        (
            "e.told > ?"
            if query.resource
            else "e.id IN (SELECT effect FROM records WHERE seq > ?) AND e.told > ?",
            told_after,
        ),
    ):
        if value:
            where.append(sql)
            values += [value] * sql.count("?")
    if query.scope:
        sql, given = _belonging(query.scope, query)
        where.append(sql)
        values += given
    if query.states:
        where.append(_in_states(query.states, in_flight))
    if query.resource:
        sql, given = _overlapping(query.resource)
        where.append(f"e.seq IN ({sql})")
        values += given
    for sql, asked in (
        ("e.undoes <> ''", query.undos),
        ("e.undoes = ''", query.made),
        ("e.accepted_by <> '' AND e.forgotten = 0", query.forgettable),
        ("e.pinned = 1", query.pinned),
        ("e.forgotten = 0", query.remembered),
    ):
        if asked:
            where.append(sql)
    return where, values


def _belonging(scope: Scope, query: Query) -> tuple[str, list[Any]]:
    """With `told_after` those of the scope that took hold later: by its own index, however old it is."""
    sql, values = effects_of(scope)
    if not query.told_after:
        return f"e.seq IN ({sql})", values
    if query.before and query.before <= query.told_after:
        late = f"{sql} AND told <> effect AND told > ? AND effect < ?"
        return f"e.seq IN ({late})", [*values, query.told_after, query.before]
    return f"e.seq IN ({sql} AND told > ?)", [*values, query.told_after]


@lru_cache  # a handful of them, asked for all the time
def _in_states(states: tuple[State, ...], in_flight: str) -> str:
    sql = "e.state IN (" + ", ".join(f"'{state.value}'" for state in states) + ")"
    if states == (State.DROPPED,):
        # Few: found by their records, of which there is an index without the plain ones.
        rare = "effect <> '' AND kind NOT IN ('intent', 'done') AND kind = 'drop'"
        return f"{sql} AND e.id IN (SELECT effect FROM records WHERE {rare})"
    return f"{sql} AND {in_flight}" if set(states).issubset(OPEN_STATES) else sql


def _overlapping(resource: str) -> tuple[str, list[str]]:
    around = (resource, *ancestors(resource))
    sql = [f"SELECT effect FROM targets WHERE resource IN ({_marks(around)})"]
    values = list(around)
    inside = ("", "0") if resource.endswith("/") else ("/", "0")
    # '/' is followed by '0' and '#' by '$': everything inside sorts between them.
    for first, last in (inside, ("#", "$")):
        sql.append("SELECT effect FROM targets WHERE resource >= ? AND resource < ?")
        ends_before = resource.rstrip("/") if inside[0] == "" and last == "0" else resource
        values += [resource + first, ends_before + last]
    return " UNION ".join(sql), values


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))


# The first record, the one that tells what it is and the newest outcome are pointed to; the others are few.
_OF_EFFECT = (
    "SELECT seq FROM effects WHERE id = ? UNION SELECT told FROM effects WHERE id = ?"
    " UNION SELECT ended FROM effects WHERE id = ?"
    " UNION SELECT seq FROM records WHERE effect = ? AND effect <> '' AND kind NOT IN ('intent', 'done')"
)
_PAGE = 500
# What is in flight is counted by its index: few at any time, and two writes less for each effect.
_TALLY = (
    "SELECT name, amount FROM tally WHERE amount > 0 AND name <> 'listed'"
    f" UNION ALL SELECT state, count(*) FROM effects WHERE {IN_FLIGHT} GROUP BY state"
    " UNION ALL SELECT 'records', coalesce(max(seq), 0) FROM records"
)


class SqlJournal:
    """Queries of a journal in tables, for any database."""

    _CHECKPOINTS = ""  # how the index of checkpoints is asked for by name
    _IN_FLIGHT = IN_FLIGHT_EFFECTS  # how those in flight are found

    def __init__(self, tables: Reading) -> None:
        self._tables = tables

    def records(
        self, after: int = 0, kinds: tuple[Kind, ...] = (), run: str = "", effect: str = ""
    ) -> Iterator[Record]:
        where: list[str] = ["seq > ?"]
        values: list[Any] = [after]
        if run:
            where.append("run = ?")
            values.append(run)
        if effect:
            self._list()
            where.append(f"seq IN ({_OF_EFFECT})")
            values += [effect] * 4
        if kinds:
            # Spelled out, so that SQLite sees the partial indexes apply.
            where.append("(" + " OR ".join(f"kind = '{kind.value}'" for kind in kinds) + ")")
        if run and kinds and not effect and set(kinds).isdisjoint(OF_EFFECTS):
            where.append("effect = ''")
        # SQLite would rather read every record in order than the few of this index and sort them.
        index = self._CHECKPOINTS if kinds == (Kind.CHECKPOINT,) else ""
        sql = f"SELECT {RECORD} FROM records {index} WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_PAGE}"
        # In pages: a reader that stops half-way has not read it all, and holds no lock in between.
        while True:
            rows = self._tables.read(sql, values)
            for row in rows:
                yield to_record(row)
            if len(rows) < _PAGE:
                return
            values[0] = rows[-1][0]

    def effects(self, query: Query) -> Iterator[Effect]:
        # Asked before every change, and nearly always in vain.
        if query.key and not self._knows_key(query.key):
            return
        self._list()
        whole = bool(query.limit or query.ids)
        page, last = query if whole else query._replace(limit=_PAGE), 0
        while True:
            rows = self._tables.read(*select_effects(page, last, self._IN_FLIGHT))
            for row in rows:
                yield _to_effect(row, strict=bool(query.ids) and not query.damaged_too)
            if whole or len(rows) < _PAGE:
                return
            last = rows[-1][3]

    def runs(
        self, ids: tuple[str, ...] = (), unfinished: bool = False, key: str = "", scope: Scope | None = None
    ) -> Iterator[RunInfo]:
        where: list[str] = []
        within: list[Any] = []
        if ids:
            where.append(f"id IN ({_marks(ids)})")
        if unfinished:
            where.append("state IN ('open', 'suspended')")
        if key:
            where.append("key = ? AND key <> ''")
        if scope:
            sql, within = runs_of(scope)
            where.append(sql)
        self._list()
        sql = f"SELECT {RUN}, {EFFECTS_OF_RUN} FROM runs {_where(where)} ORDER BY opened_at, number"
        yield from map(to_run, self._tables.read(sql, (*ids, *([key] if key else []), *within)))

    def projects(self, roots: Sequence[str]) -> Iterator[Project]:
        self._list()
        sql = f"SELECT root, marked, began, made FROM projects WHERE root IN ({_marks(roots)})"
        for root, *flags in self._tables.read(sql, tuple(roots)) if roots else ():
            yield Project(root, *(bool(flag) for flag in flags))

    def resolve(self, prefix: str) -> tuple[str, ...]:
        self._list()
        span = (prefix, prefix + "~")
        rows = self._tables.read(
            "SELECT id FROM effects WHERE id >= ? AND id < ?"
            " UNION ALL SELECT id FROM runs WHERE id >= ? AND id < ? LIMIT 9",
            span + span,
        )
        return tuple(row[0] for row in rows)

    def count(self, query: Query) -> int:
        self._list()
        return int(self._tables.read(*count_effects(query, self._IN_FLIGHT))[0][0])

    def tally(self) -> dict[str, int]:
        self._list()
        return {str(name): int(n) for name, n in self._tables.read(_TALLY)}

    def newest(self) -> int:
        return int(self._tables.read("SELECT coalesce(max(seq), 0) FROM records")[0][0])

    def any_dropped(self) -> bool:
        return "dropped" in self.tally()

    def any_since(self, effect: Effect) -> bool:
        births = "seq > ? AND kind IN ('intent', 'propose') AND effect <> ?"
        return bool(
            self._tables.read(f"SELECT 1 FROM records WHERE {births} LIMIT 1", (effect.seq, effect.id))
        )

    def _list(self) -> None:
        """Called before the tables of effects are read: a journal that postpones listing must list now."""

    def _knows_key(self, key: str) -> bool:
        """Whether an effect may have it."""
        return bool(self._tables.read("SELECT 1 FROM effects WHERE key = ? AND key <> ''", (key,)))


class SqliteJournal(SqlJournal):
    _CHECKPOINTS = "INDEXED BY checkpoints"

    def __init__(
        self, database: SqliteDatabase, now: Callable[[], int], original: Callable[[], Record] | None = None
    ) -> None:
        """`original`: of a copy, the record that is appended next."""
        super().__init__(database)
        self._database = database
        self._now = now
        self._original = original
        self._unlisted = Unlisted()
        database.after_rollback.append(self._unlisted.forget)

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        refuse_unheld(lease, drafts)
        pending = self._database.pending
        alone = len(drafts) == 1 and self._unlisted.may_be_plain(lease, drafts[0])
        if alone and not (pending and any(holds_back() for holds_back in pending)):
            with self._database.write(alone=True) as connection:
                record = self._unlisted.append_plain(connection, lease, drafts[0], self._given())
            if record:
                return (record,)
        with self._database.write() as connection:
            first = self._given()
            records: list[Record] = []
            for draft in drafts:
                given = self._given()._replace(at=first.at) if records else first
                # Where one is listed, the next one is too: later, that would be a transaction of its own.
                records.append(self._unlisted.append(connection, lease, draft, given, bool(records)))
            return tuple(records)

    def _given(self) -> Given:
        return as_original(self._original()) if self._original else Given(self._now(), new_salt())

    def any_dropped(self) -> bool:
        if self._database.only_read:
            return super().any_dropped()
        # A drop is listed with its record, so nothing has to be listed first.
        return bool(self._database.read("SELECT 1 FROM tally WHERE name = 'dropped' AND amount > 0"))

    def check(self) -> Iterator[Flaw]:
        from takeback.storage.sqlite.check import check_journal

        with suppress(TakebackError):  # whatever keeps it from being listed is among the findings
            self._list()
        return check_journal(self._database)

    def count(self, query: Query) -> int:
        sql, values = count_effects(query, self._IN_FLIGHT)
        with self._database.lock:
            seq, listed, found = self._database.read(f"{HEAD}, ({sql})", values)[0]
            return int(found) if seq == listed else super().count(query)

    def _list(self) -> None:
        """List every record before the tables are read."""
        seq, listed = self._database.read(HEAD)[0]
        if seq == listed:
            return
        if self._database.only_read:
            self._database.copy_into_memory()
        try:
            self._list_now()
        except StoreFull:
            self._list_now()  # on a full disk the store has made room for this much

    def _list_now(self) -> None:
        try:
            with self._database.write(durable=False) as connection:
                self._unlisted.list_all(connection)
        except BaseException:
            self._unlisted.forget()
            raise

    def _knows_key(self, key: str) -> bool:
        with self._database.lock:
            sql = f"{HEAD}, EXISTS (SELECT 1 FROM effects WHERE key = ? AND key <> '')"
            seq, listed, found = self._database.read(sql, (key,))[0]
            if found or seq == listed:
                return bool(found)
            return not self._unlisted.knows(seq, listed) or self._unlisted.has_key(key)


def _to_effect(row: Row, strict: bool) -> Effect:
    life, agent = to_life(row[:12]), row[12]
    intent, before_intent, outcome, before_outcome = row[13:20], row[20], row[21:28], row[28]
    try:
        ended = _vouched(outcome, before_outcome) if life.ended else None
        return told(life, _vouched(intent, before_intent), ended, agent)
    except (RecordInvalid, KeyError, ValueError) as error:
        if strict:
            raise RecordInvalid(
                f"The journal record of effect {short(life.id)} is damaged.",
                hint="`takeback verify` shows the extent; other effects can still be undone.",
                effect=life.id,
            ) from error
        return DAMAGED._replace(agent=agent, **{name: getattr(life, name) for name in _LISTED})


def _vouched(row: Row, previous: bytes | None) -> Record:
    """An effect is taken back by what its records say: they are checked each time they are read."""
    seq, kind, run, effect, at, kept, hash = row
    if seq is None:
        raise RecordInvalid("A record that should be there is missing.")
    body, hash, seal = whole(kept), hash[:HASH], hash[HASH:]
    if not is_tied((previous or GENESIS)[:HASH], (seq, kind, run, effect, at, body, hash), seal):
        raise RecordInvalid(f"Record {seq} does not have the hash it should.")
    said = as_read(read(body)) if is_erased(seal) else read(body)
    return Record(seq, Kind(kind), run, effect, at, said, hash, seal)
