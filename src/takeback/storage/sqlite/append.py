"""Appending to the journal in SQLite: each record, and what it does to the tables made from records."""

import sqlite3
from collections.abc import Sequence, Set
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from takeback.errors import RecordInvalid
from takeback.model.effect import OPEN_STATES, State
from takeback.model.lifecycle import (
    BIRTHS,
    KEYLESS,
    OF_EFFECTS,
    Life,
    consequences,
    in_the_way,
    key_reused,
    outlives_its_run,
    refuse_unfit_run,
    stands_aside,
    taken_over,
    touched,
    waits_for_a_person,
)
from takeback.model.record import (
    GENESIS,
    HASH,
    UNSALTED,
    Draft,
    Kind,
    Record,
    canonical,
    chained,
    covered,
)
from takeback.model.resource import Ground, Project, made_markers, touched_projects, without_fragment
from takeback.model.run import OF_RUNS, Lease, OnDeath, RunInfo, RunState, run_after
from takeback.storage.bodies import parsed, shortened
from takeback.storage.leases import refuse_unheld_opening
from takeback.storage.projects import belong
from takeback.storage.sqlite.database import Row, damaged_too

_Word = TypeVar("_Word", bound=StrEnum)
_LIFE = (
    "own.state, own.seq, own.told, own.ended, own.undoes, own.partial, own.undone_by, own.accepted_by,"
    " own.forgotten, own.pinned"
)
FIND_LIFE = (
    f"SELECT own.id, runs.id, {_LIFE} FROM effects AS own"
    " LEFT JOIN runs ON runs.number = own.run WHERE own.id = ?"
)
RECORD = "seq, kind, run, effect, at, body, hash"
RUN = "id, name, agent, state, on_death, opened_at, closed_at, key, workflow, due_at, awaits, note, project"
EFFECTS_OF_RUN = "(SELECT nth FROM effects WHERE effects.run = runs.number ORDER BY seq DESC LIMIT 1)"
# Exactly as in the schema, so that SQLite sees that the partial index applies.
IN_FLIGHT = "(state = 'proposed' OR state = 'intended' OR state = 'stuck')"
LISTED = "SELECT amount FROM tally WHERE name = 'listed'"
# All that decides whether the next record may be appended, and what it does, in one look.
_STAND = f"""
  SELECT head.seq, head.hash, ({LISTED}), leases.generation, {_LIFE}
  FROM (SELECT max(seq) AS seq, hash FROM records) AS head
  LEFT JOIN leases ON leases.run = ?1 AND leases.pid <> 0
  LEFT JOIN effects AS own ON own.id = ?2
"""
# The same for one that begins an effect, which has to fit into its run and beside what others are at.
_STAND_AT_BIRTH = f"""
  SELECT head.seq, head.hash, ({LISTED}), leases.generation, {_LIFE}, runs.state, runs.number, {EFFECTS_OF_RUN},
    (SELECT count(*) FROM effects WHERE {IN_FLIGHT} AND id <> ?2)
  FROM (SELECT max(seq) AS seq, hash FROM records) AS head
  LEFT JOIN leases ON leases.run = ?1 AND leases.pid <> 0
  LEFT JOIN effects AS own ON own.id = ?2
  LEFT JOIN runs ON runs.id = ?1
"""


Held = tuple[str, str, Sequence[str]]  # an effect in flight, its state and its resources


class Given(NamedTuple):
    """What a record gets that does not follow from its draft; of a copied one it is that of the original."""

    at: int
    seal: bytes
    hash: bytes = b""  # only of a record whose unsalted body was erased


def as_original(record: Record) -> Given:
    return Given(record.at, record.seal, record.hash)


class Stand(NamedTuple):
    """The state of the journal right before a record is appended."""

    seq: int  # of the newest record
    hash: bytes
    listed: int  # the newest record that is in the tables
    generation: int | None  # of the lease of the record's run, if someone holds it
    life: Life | None  # of the record's effect
    # Asked for only if the record begins an effect.
    run: RunState | None = None
    run_number: int = 0
    effects_of_run: int = 0
    others_in_flight: int = 0


def append_one(
    connection: sqlite3.Connection, lease: Lease | None, draft: Draft, given: Given, stand: Stand
) -> Record:
    if lease and stand.generation != lease.generation:
        raise taken_over(lease.run)
    row = row_of(stand.seq, stand.hash, draft, given)
    connection.execute(f"INSERT INTO records ({RECORD}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    record = recorded(row, draft)
    _project(connection, record, stand, lease)
    return record


def row_of(newest: int, previous: bytes, draft: Draft, given: Given) -> Row:
    """Of the record that comes after the newest one. In its last column the seal stands after the hash."""
    kind, run, effect, content = draft
    at, seal, hash = given
    seq, word, body = newest + 1, str(kind), canonical(content)
    if seal != UNSALTED:
        hash = chained(previous, seq, at, word, run, effect, covered(seal, body))
    return seq, word, run, effect, at, shortened(body), hash + seal


def recorded(row: Row, draft: Draft) -> Record:
    hash = row[6]
    return Record(row[0], *draft[:3], row[4], draft.body, hash[:HASH], hash[HASH:])


def stand_of(connection: sqlite3.Connection, kind: Kind, run: str, effect: str) -> Stand:
    born = kind in BIRTHS
    row = connection.execute(_STAND_AT_BIRTH if born else _STAND, (run, effect)).fetchone()
    seq, hash, listed, generation = row[:4]
    life = to_life((effect, run, *row[4:14])) if row[4] is not None else None
    stand = Stand(seq or 0, hash[:HASH] if hash else GENESIS, listed, generation, life)
    if not born:
        return stand
    state, number, effects, others = row[14:]
    return Stand(*stand[:5], RunState(state) if state else None, number, effects or 0, others)


def _project(connection: sqlite3.Connection, record: Record, stand: Stand, lease: Lease | None) -> None:
    born = record.kind in BIRTHS
    if born or record.kind is Kind.CLOSE:
        in_flight = record.kind is Kind.CLOSE and _has_in_flight(connection, record.run)
        proposed = outlives_its_run(stand.life.state if stand.life else None)
        refuse_unfit_run(record, stand.run, in_flight, proposed)
    if record.kind in OF_RUNS:
        _project_run(connection, record, lease)
    if born and stand.others_in_flight:
        refuse_overlap(connection, record)
    list_effects(connection, record, stand)


def list_effects(connection: sqlite3.Connection, record: Record, stand: Stand) -> None:
    """Apply the record to the tables of effects."""
    if record.kind not in OF_EFFECTS:
        return
    known: dict[str, Life] = {stand.life.id: stand.life} if stand.life else {}

    def find(id: str) -> Life | None:
        if id not in known and id != record.effect:
            row = connection.execute(FIND_LIFE, (id,)).fetchone()
            if row:
                known[id] = to_life(row)
        return known.get(id)

    counts: dict[str, int] = {}
    for life in consequences(record, find):
        if life.seq == record.seq:
            _insert(connection, record, life, stand)
        else:
            _update(connection, life)
            for one, by in ((known[life.id], -1), (life, 1)):
                for name in _counted(one):
                    counts[name] = counts.get(name, 0) + by
        if record.kind in BIRTHS:
            _index(connection, record, life.seq)
    for name, by in counts.items():
        if by:  # an undo is done and what it took back no longer: then as many are done as before
            count(connection, name, by)


def _has_in_flight(connection: sqlite3.Connection, run: str) -> bool:
    of_run = "run = (SELECT number FROM runs WHERE id = ?)"
    sql = f"SELECT state, told FROM effects WHERE {IN_FLIGHT} AND state <> 'stuck' AND {of_run}"
    return any(
        not waits_for_a_person(State(state), _body(connection, told_at))
        for state, told_at in connection.execute(sql, (run,)).fetchall()
    )


INSERT_EFFECT = (
    "INSERT INTO effects (state, told, ended, undoes, partial, undone_by, accepted_by, forgotten, pinned,"
    " seq, id, key, run, nth) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _insert(connection: sqlite3.Connection, record: Record, life: Life, stand: Stand) -> None:
    key: str = record.body["key"]
    row = (*changing(life), life.seq, life.id, key, stand.run_number, stand.effects_of_run + 1)
    try:
        connection.execute(INSERT_EFFECT, row)
    except sqlite3.IntegrityError as error:
        raise key_reused(key) from error


def _update(connection: sqlite3.Connection, life: Life) -> None:
    connection.execute(
        "UPDATE effects SET state = ?, told = ?, ended = ?, undoes = ?, partial = ?, undone_by = ?, accepted_by = ?,"
        " forgotten = ?, pinned = ? WHERE seq = ?",
        (*changing(life), life.seq),
    )
    if life.state in KEYLESS:
        # Its key is free again; only here, so that no other update has to touch the index of keys.
        connection.execute("UPDATE effects SET key = '' WHERE seq = ?", (life.seq,))


def _counted(life: Life) -> list[str]:
    """The names in `tally` that it counts for."""
    flags = (("accepted", life.accepted_by), ("forgotten", life.forgotten), ("pinned", life.pinned))
    return [
        *([] if life.state in OPEN_STATES else [life.state.value]),
        *(name for name, is_so in flags if is_so),
    ]


def count(connection: sqlite3.Connection, name: str, by: int) -> None:
    connection.execute(
        "INSERT INTO tally (name, amount) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount",
        (name, by),
    )


def _index(connection: sqlite3.Connection, record: Record, effect: int) -> None:
    resources = touched(record.body)
    if effect != record.seq and record.body["resource"] not in resources:
        # The proposal knew no paths yet, and named what is around them.
        around = (record.body["resource"], effect)
        connection.execute("DELETE FROM targets WHERE resource = ? AND effect = ?", around)
    for resource in resources:
        connection.execute("INSERT OR IGNORE INTO targets VALUES (?, ?)", (resource, effect))
    for needed in record.body.get("needs", ()):
        connection.execute("INSERT OR IGNORE INTO needs VALUES (?, ?)", (needed, effect))
    belong(connection, belonging(record.body), effect, record.seq)


def belonging(body: dict[str, Any]) -> tuple[Project, ...]:
    """The projects that the record of an effect names; the table of runs has the one its run began in."""
    return (*touched_projects(body), *made_markers(body))


def refuse_overlap(
    connection: sqlite3.Connection,
    record: Record,
    unlisted: Sequence[Held] = (),
    ended: Set[str] = frozenset(),
) -> None:
    """One effect in flight per resource; keys of one file count as the file, because the file is replaced whole.
    `unlisted` are in flight and `ended` are not, whatever the table says."""
    in_flight = connection.execute(
        f"SELECT id, state, seq, told FROM effects WHERE {IN_FLIGHT} AND id <> ?", (record.effect,)
    ).fetchall()
    wanted = Ground()
    wanted.add((without_fragment(resource) for resource in touched(record.body)), record.effect)
    theirs = [
        (id, state, _held(connection, State(state), seq, told_at))
        for id, state, seq, told_at in in_flight
        if id not in ended
    ]
    for id, state, resource in ((id, state, one) for id, state, all in (*theirs, *unlisted) for one in all):
        if not wanted.overlapping(without_fragment(resource)):
            continue
        raise in_the_way(id, state, resource)


def _body(connection: sqlite3.Connection, seq: int) -> dict[str, Any]:
    """Of a record; empty if it is damaged."""
    rows = damaged_too(connection, "SELECT body FROM records WHERE seq = ?", (seq,))
    try:
        return parsed(rows[0][0])
    except (IndexError, TypeError, ValueError):
        return {}


def _held(connection: sqlite3.Connection, state: State, effect: int, told_at: int) -> Sequence[str]:
    """The resources of an effect in flight, as its own record names them: `targets` cannot be asked by effect."""
    body = _body(connection, told_at)
    if stands_aside(state, body):
        return ()
    try:
        return touched(body)
    except KeyError:
        # A damaged record: then all targets are looked through.
        rows = connection.execute("SELECT resource FROM targets WHERE effect = ?", (effect,)).fetchall()
        return [resource for (resource,) in rows]


def _project_run(connection: sqlite3.Connection, record: Record, lease: Lease | None) -> None:
    row = connection.execute(f"SELECT {RUN} FROM runs WHERE id = ?", (record.run,)).fetchone()
    before = to_run(row) if row else None
    refuse_unheld_opening(lease, record.kind, record.run, before is not None)
    info = run_after(before, record, lambda name, read: _has_signal(connection, record, name, read))
    if before is None:
        if info.project:
            marked = bool(record.body.get("marked"))
            belong(connection, (Project(info.project, marked, began=True),))
        _insert_run(connection, info)
        return
    if info != before:
        connection.execute(
            "UPDATE runs SET state = ?, closed_at = ?, due_at = ?, awaits = ?, note = ? WHERE id = ?",
            (info.state.value, info.closed_at, info.due_at, info.awaits, info.note, info.id),
        )
    if record.kind is Kind.CLOSE and info.state is RunState.ACCEPTED:
        accepted = connection.execute(
            "UPDATE effects SET accepted_by = 'run'"
            " WHERE run = (SELECT number FROM runs WHERE id = ?) AND accepted_by = '' AND state = 'done'",
            (record.run,),
        )
        count(connection, "accepted", accepted.rowcount)


def _insert_run(connection: sqlite3.Connection, info: RunInfo) -> None:
    values = (info.state.value, info.on_death.value, info.opened_at, info.key, info.workflow, info.project)
    try:
        connection.execute(
            "INSERT INTO runs (id, name, agent, state, on_death, opened_at, key, workflow, project)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (info.id, info.name, info.agent, *values),
        )
    except sqlite3.IntegrityError as error:
        raise key_reused(info.key, of="run") from error


def _has_signal(connection: sqlite3.Connection, record: Record, name: str, read: int) -> bool:
    sql = "SELECT body FROM records WHERE kind = 'signal' AND effect = '' AND run = ? AND seq > ? AND seq < ?"
    bodies = damaged_too(connection, sql, (record.run, read, record.seq))
    return any(parsed(body)["name"] == name for (body,) in bodies)


def changing(life: Life) -> Row:
    """What may change in it; as plain text and numbers, for which sqlite3 need not look how to adapt them."""
    _, _, state, _, told_at, ended, undoes, partial, undone_by, accepted_by, forgotten, pinned = life
    flags = int(forgotten), int(pinned)
    return state.value, told_at, ended, undoes, int(partial), undone_by, accepted_by, *flags


def to_life(row: Row) -> Life:
    id, run, state, seq, told_at, ended, undoes, partial, undone_by, accepted_by, *flags = row
    told = _word(State, state, f"Effect {id}"), seq, told_at, ended, undoes, bool(partial)
    return Life(id, run, *told, undone_by, accepted_by, *map(bool, flags))


def to_run(row: Row) -> RunInfo:
    """From the columns `RUN`, and how many effects it has if that was asked for."""
    id, name, agent, state, on_death, opened_at, closed_at, *own = row[:13]
    effects = row[13] or 0 if len(row) > 13 else 0
    stands, dies = _word(RunState, state, f"Run {id}"), _word(OnDeath, on_death, f"Run {id}")
    return RunInfo(id, name, agent, stands, dies, opened_at, closed_at, effects, *own)


def _word(words: type[_Word], found: str, where: str) -> _Word:
    try:
        return words(found)
    except ValueError:
        raise RecordInvalid(
            f"{where} is listed as {found!r}, a word that takeback does not write.",
            hint="Run `takeback verify`.",
        ) from None


def to_record(row: Row) -> Record:
    seq, kind, run, effect, at, body, hash = row
    try:
        return Record(seq, Kind(kind), run, effect, at, parsed(body), hash[:HASH], hash[HASH:])
    except ValueError as error:
        raise RecordInvalid(
            f"Record {seq} cannot be read: {error}.", hint="Run `takeback verify`."
        ) from error
