"""The journal in SQLite: records, and projections kept in the same transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.errors import Blocked, KeyReused, LeaseLost, RecordInvalid, StoreBusy
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.ids import short
from takeback.model.life import BIRTHS, OF_EFFECTS, Life, consequences, refuse_unfit_run, told, touched
from takeback.model.record import GENESIS, Draft, Kind, Record, canonical, chained
from takeback.model.resource import display, overlaps, without_fragment
from takeback.model.run import Lease, OnDeath, RunInfo, RunState, run_state_after
from takeback.storage.bodies import shortened, whole
from takeback.storage.database import Database, Row
from takeback.storage.effects_sql import DAMAGED, select_effects
from takeback.storage.leases import refuse_unheld
from takeback.storage.protocols import Query

_LIFE = "id, run, state, seq, told, ended, undoes, partial, undone_by, kept_by, forgotten"
_RECORD = "seq, kind, run, effect, at, body, hash"
_RUN = "id, name, agent, state, on_death, opened_at, closed_at, effects"
# The first record, the one that tells what it is and the newest outcome are pointed to; the others are few.
_OF_EFFECT = (
    "SELECT seq FROM effects WHERE id = ? UNION SELECT told FROM effects WHERE id = ?"
    " UNION SELECT ended FROM effects WHERE id = ?"
    " UNION SELECT seq FROM records WHERE effect = ? AND effect <> '' AND kind NOT IN ('intent', 'done')"
)
_PAGE = 500
# Exactly as in the schema, so that SQLite sees that the partial index applies.
_IN_FLIGHT = "(state = 'proposed' OR state = 'intended' OR state = 'stuck')"
# All that decides whether the next record may be appended, and what it does, in one look.
_STAND = f"""
  SELECT head.seq, head.hash, leases.generation, runs.state,
    (SELECT count(*) FROM effects WHERE {_IN_FLIGHT} AND id <> ?2),
    {", ".join(f"own.{column}" for column in _LIFE.split(", "))}
  FROM (SELECT max(seq) AS seq, hash FROM records) AS head
  LEFT JOIN leases ON leases.run = ?1 AND leases.pid <> 0
  LEFT JOIN runs ON runs.id = ?1
  LEFT JOIN effects AS own ON own.id = ?2
"""


class Stand(NamedTuple):
    """What the journal says right before a record is appended."""

    seq: int  # of the newest record
    hash: bytes
    generation: int | None  # of the lease of the record's run, if someone holds it
    run: RunState | None
    others_in_flight: int
    life: Life | None  # of the record's effect


class SqliteJournal:
    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        refuse_unheld(lease, drafts)
        with self._database.write() as connection:
            at = self._now()
            return tuple(_append(connection, lease, draft, at) for draft in drafts)

    def records(
        self, after: int = 0, kinds: tuple[Kind, ...] = (), run: str = "", effect: str = ""
    ) -> Iterator[Record]:
        where: list[str] = ["seq > ?"]
        values: list[Any] = [after]
        if run:
            where.append("run = ?")
            values.append(run)
        if effect:
            where.append(f"seq IN ({_OF_EFFECT})")
            values += [effect] * 4
        if kinds:
            # Spelled out, so that SQLite sees the partial indexes apply.
            where.append("(" + " OR ".join(f"kind = '{kind.value}'" for kind in kinds) + ")")
        # SQLite would rather read every record in order than the few of this index and sort them.
        index = "INDEXED BY checkpoints" if kinds == (Kind.CHECKPOINT,) else ""
        sql = f"SELECT {_RECORD} FROM records {index} WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_PAGE}"
        # In pages: a reader that stops half-way has not read it all, and holds no lock meanwhile.
        while True:
            rows = self._database.read(sql, values)
            for row in rows:
                yield to_record(row)
            if len(rows) < _PAGE:
                return
            values[0] = rows[-1][0]

    def effects(self, query: Query) -> Iterator[Effect]:
        # Asked before every change, and nearly always in vain.
        if query.key and not self._database.read("SELECT 1 FROM effects WHERE key = ? AND key <> ''", (query.key,)):
            return
        sql, values = select_effects(query if query.limit or query.ids else query._replace(limit=_PAGE))
        while True:
            rows = self._database.read(sql, values)
            for row in rows:
                yield _to_effect(row, strict=bool(query.ids) and not query.damaged_too)
            if query.limit or query.ids or len(rows) < _PAGE:
                return
            last = rows[-1][3]
            sql, values = select_effects(query._replace(limit=_PAGE), beyond=last)

    def runs(self, ids: tuple[str, ...] = (), unfinished: bool = False) -> Iterator[RunInfo]:
        where, values = "", list(ids)
        if ids:
            where = f"WHERE id IN ({','.join('?' * len(ids))})"
        elif unfinished:
            where = "WHERE state IN ('open', 'suspended')"
        for row in self._database.read(f"SELECT {_RUN} FROM runs {where} ORDER BY opened_at, rowid", values):
            yield _to_run(row)

    def resolve(self, prefix: str) -> tuple[str, ...]:
        span = (prefix, prefix + "~")
        rows = self._database.read(
            "SELECT id FROM effects WHERE id >= ? AND id < ?"
            " UNION ALL SELECT id FROM runs WHERE id >= ? AND id < ? LIMIT 9",
            span + span,
        )
        return tuple(row[0] for row in rows)

    def tally(self) -> dict[str, int]:
        counts = {
            str(name): int(n) for name, n in self._database.read("SELECT name, n FROM tally WHERE n > 0")
        }
        # What is in flight is counted by its index: few at any time, and two writes less for each effect.
        in_flight = f"SELECT state, count(*) FROM effects WHERE {_IN_FLIGHT} GROUP BY state"
        counts |= {str(state): int(n) for state, n in self._database.read(in_flight)}
        counts["records"] = self._database.read("SELECT coalesce(max(seq), 0) FROM records")[0][0]
        return counts

    def check(self) -> Iterator[str]:
        from takeback.storage.check_sqlite import check_journal

        return check_journal(self._database)


def to_record(row: Row) -> Record:
    seq, kind, run, effect, at, body, hash = row
    try:
        return Record(seq, Kind(kind), run, effect, at, json.loads(whole(body)), hash)
    except ValueError as error:
        raise RecordInvalid(
            f"Record {seq} cannot be read: {error}.", hint="Run `takeback verify`."
        ) from error


def _append(connection: sqlite3.Connection, lease: Lease | None, draft: Draft, at: int) -> Record:
    kind, run, effect, content = draft
    stand = _stand(connection, run, effect)
    if lease and stand.generation != lease.generation:
        raise LeaseLost(
            f"Run {short(lease.run)} was taken over by another process while this one was away.",
            hint="Nothing more is written on its behalf; `takeback log --run` shows where it stands.",
        )
    seq = stand.seq + 1
    body = canonical(content)
    hash = chained(stand.hash, seq, at, kind, run, effect, body)
    connection.execute(
        f"INSERT INTO records ({_RECORD}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (seq, kind.value, run, effect, at, shortened(body), hash),
    )
    record = Record(seq, kind, run, effect, at, content, hash)
    _project(connection, record, stand)
    return record


def _stand(connection: sqlite3.Connection, run: str, effect: str) -> Stand:
    row = connection.execute(_STAND, (run, effect)).fetchone()
    seq, hash, generation, state, others = row[:5]
    life = _to_life(row[5:]) if row[5] is not None else None
    return Stand(seq or 0, hash or GENESIS, generation, RunState(state) if state else None, others, life)


def _project(connection: sqlite3.Connection, record: Record, stand: Stand) -> None:
    born = record.kind in BIRTHS
    if born or record.kind is Kind.CLOSE:
        in_flight = record.kind is Kind.CLOSE and _has_in_flight(connection, record.run)
        refuse_unfit_run(record, stand.run, in_flight)
    if record.kind in (Kind.OPEN, Kind.CLOSE):
        _project_run(connection, record)
    if record.kind not in OF_EFFECTS:
        return
    if born and stand.others_in_flight:
        _refuse_overlap(connection, record)

    known: dict[str, Life] = {stand.life.id: stand.life} if stand.life else {}

    def find(id: str) -> Life | None:
        if id not in known and id != record.effect:
            row = connection.execute(f"SELECT {_LIFE} FROM effects WHERE id = ?", (id,)).fetchone()
            if row:
                known[id] = _to_life(row)
        return known.get(id)

    for life in consequences(record, find):
        if life.seq == record.seq:
            _insert(connection, record, life)
        else:
            _update(connection, known[life.id], life)
        if born:
            _index(connection, record, life.seq)


def _has_in_flight(connection: sqlite3.Connection, run: str) -> bool:
    sql = f"SELECT 1 FROM effects WHERE {_IN_FLIGHT} AND state <> 'stuck' AND run = ? LIMIT 1"
    return connection.execute(sql, (run,)).fetchone() is not None


def _insert(connection: sqlite3.Connection, record: Record, life: Life) -> None:
    key: str = record.body["key"]
    try:
        connection.execute(
            f"INSERT INTO effects ({_LIFE}, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*_to_row(life), key),
        )
    except sqlite3.IntegrityError as error:
        raise KeyReused(
            f"The key {key!r} already belongs to another effect.",
            hint="Give every change its own key, or none.",
        ) from error
    connection.execute("UPDATE runs SET effects = effects + 1 WHERE id = ?", (life.run,))


def _update(connection: sqlite3.Connection, old: Life, life: Life) -> None:
    _, _, state, seq, *rest = _to_row(life)
    connection.execute(
        "UPDATE effects SET state = ?, told = ?, ended = ?, undoes = ?, partial = ?, undone_by = ?, kept_by = ?,"
        " forgotten = ? WHERE seq = ?",
        (state, *rest, seq),
    )
    if life.state is State.ABORTED:
        # Its key is free again; only here, so that no other update has to touch the index of keys.
        connection.execute("UPDATE effects SET key = '' WHERE seq = ?", (life.seq,))
    if old.state is not life.state:
        if old.state not in OPEN_STATES:
            _count(connection, old.state.value, -1)
        if life.state not in OPEN_STATES:
            _count(connection, life.state.value, 1)
    if not old.kept_by and life.kept_by:
        _count(connection, "kept", 1)
    if not old.forgotten and life.forgotten:
        _count(connection, "forgotten", 1)


def _count(connection: sqlite3.Connection, name: str, by: int) -> None:
    connection.execute(
        "INSERT INTO tally (name, n) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n",
        (name, by),
    )


def _index(connection: sqlite3.Connection, record: Record, effect: int) -> None:
    for resource in touched(record.body):
        connection.execute("INSERT OR IGNORE INTO targets VALUES (?, ?)", (resource, effect))
    for needed in record.body.get("needs", ()):
        connection.execute("INSERT OR IGNORE INTO needs VALUES (?, ?)", (needed, effect))


def _refuse_overlap(connection: sqlite3.Connection, record: Record) -> None:
    """One effect in flight per resource; keys of one file count as the file, because the file is replaced whole."""
    in_flight = connection.execute(
        f"SELECT id, state, seq, told FROM effects WHERE {_IN_FLIGHT} AND id <> ?", (record.effect,)
    ).fetchall()
    wanted = [without_fragment(resource) for resource in touched(record.body)]
    theirs = [
        (id, state, one) for id, state, seq, told_at in in_flight for one in _held(connection, seq, told_at)
    ]
    for id, state, resource in theirs:
        if not any(overlaps(without_fragment(resource), one) for one in wanted):
            continue
        if state == State.STUCK:
            raise Blocked(
                f"Effect {short(id)} on {display(resource)} is stuck, so nothing may build on it.",
                hint=f"See `takeback show {short(id)}`, put it right, then run `takeback recover`.",
                blockers=(id,),
            )
        raise StoreBusy(
            f"Another effect ({short(id)}) is being made on {display(resource)}.",
            hint="Try again when it is finished.",
        )


def _held(connection: sqlite3.Connection, effect: int, told_at: int) -> Sequence[str]:
    """The resources of an effect in flight, as its own record names them: `targets` cannot be asked by effect."""
    row = connection.execute("SELECT body FROM records WHERE seq = ?", (told_at,)).fetchone()
    try:
        return touched(json.loads(whole(row[0])))
    except (TypeError, KeyError, ValueError):
        # A damaged record: then all targets are looked through.
        rows = connection.execute("SELECT resource FROM targets WHERE effect = ?", (effect,)).fetchall()
        return [resource for (resource,) in rows]


def _project_run(connection: sqlite3.Connection, record: Record) -> None:
    row = connection.execute(f"SELECT {_RUN} FROM runs WHERE id = ?", (record.run,)).fetchone()
    outcome: str = record.body.get("outcome", "")
    state = run_state_after(RunState(row[3]) if row else None, record.kind, outcome, f"Record {record.seq}")
    if row is None:
        body = record.body
        connection.execute(
            f"INSERT INTO runs ({_RUN}) VALUES (?, ?, ?, ?, ?, ?, 0, 0)",
            (record.run, body["name"], body["agent"], state.value, body["on_death"], record.at),
        )
        return
    closed_at = record.at if record.kind is Kind.CLOSE else 0
    connection.execute(
        "UPDATE runs SET state = ?, closed_at = ? WHERE id = ?", (state.value, closed_at, record.run)
    )
    if state is RunState.KEPT:
        kept = connection.execute(
            "UPDATE effects SET kept_by = 'run' WHERE run = ? AND kept_by = '' AND state = 'done'",
            (record.run,),
        )
        _count(connection, "kept", kept.rowcount)


def _to_row(life: Life) -> Row:
    """In the order of `_LIFE`; as plain text and numbers, for which sqlite3 need not look how to adapt them."""
    id, run, state, seq, told_at, ended, undoes, partial, undone_by, kept_by, forgotten = life
    return id, run, state.value, seq, told_at, ended, undoes, int(partial), undone_by, kept_by, int(forgotten)


def _to_life(row: Row) -> Life:
    id, run, state, seq, told_at, ended, undoes, partial, undone_by, kept_by, forgotten = row
    return Life(
        id, run, State(state), seq, told_at, ended, undoes, bool(partial), undone_by, kept_by, bool(forgotten)
    )


def _to_run(row: Row) -> RunInfo:
    id, name, agent, state, on_death, opened_at, closed_at, effects = row
    return RunInfo(id, name, agent, RunState(state), OnDeath(on_death), opened_at, closed_at, effects)


def _to_effect(row: Row, strict: bool) -> Effect:
    life, agent = _to_life(row[:11]), row[11]
    intent, before_intent, outcome, before_outcome = row[12:19], row[19], row[20:27], row[27]
    try:
        _vouch(intent, before_intent)
        if life.ended:
            _vouch(outcome, before_outcome)
        return told(life, to_record(intent), to_record(outcome) if life.ended else None, agent)
    except (RecordInvalid, KeyError, ValueError) as error:
        if strict:
            raise RecordInvalid(
                f"The journal record of effect {short(life.id)} is damaged.",
                hint="`takeback verify` shows the extent; other effects can still be undone.",
                effect=life.id,
            ) from error
        return DAMAGED._replace(
            id=life.id,
            run=life.run,
            agent=agent,
            seq=life.seq,
            state=life.state,
            undoes=life.undoes,
            undone_by=life.undone_by,
            kept_by=life.kept_by,
            forgotten=life.forgotten,
        )


def _vouch(row: Row, previous: bytes | None) -> None:
    """An effect is taken back by what its records say: they are checked each time they are read."""
    seq, kind, run, effect, at, body, hash = row
    if seq is None:
        raise RecordInvalid("A record that should be there is missing.")
    if chained(previous or GENESIS, seq, at, kind, run, effect, whole(body)) != hash:
        raise RecordInvalid(f"Record {seq} does not have the hash it should.")
