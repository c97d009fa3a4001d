"""Plain records, appended by one prepared INSERT; listed later by a statement in the background."""

import json
import struct
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from takeback.errors import Unavailable
from takeback.model.lifecycle import touched
from takeback.model.record import HASH, Draft, Kind, Record, chained
from takeback.model.resource import ancestors, made_markers
from takeback.model.run import Lease
from takeback.storage.postgres.connection import driver, exec_prepared, prepare
from takeback.storage.postgres.database import PostgresDatabase, StoreSession

_COMMAND_OK, _TUPLES_OK = 1, 2
_TEXT, _BYTES = 25, 17  # as the server numbers its types


_NUMBER = struct.Struct("!q").pack


def number(value: int | None) -> bytes | None:
    return None if value is None else _NUMBER(value)


def flag(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def texts(values: Sequence[str]) -> bytes:
    return _array(_TEXT, [value.encode() for value in values])


def bytes_of(values: Sequence[bytes]) -> bytes:
    return _array(_BYTES, values)


def jsonb(text: str) -> bytes:
    return b"\1" + text.encode()


def _array(kind: int, values: Sequence[bytes]) -> bytes:
    parts = [struct.pack("!iiiii", 1, 0, kind, len(values), 1)]
    for value in values:
        parts += (struct.pack("!i", len(value)), value)
    return b"".join(parts)


class Statement:
    def __init__(self, name: str, sql: str) -> None:
        self._name = name.encode()
        self._sql = sql.encode()

    def ask(self, connection: Any, known: set[bytes], values: Sequence[bytes | None]) -> list[list[Any]]:
        """The rows, each column as the server sends it. `known`: what this connection has prepared."""
        result = self._answer(connection.pgconn, known, values)
        columns = range(result.nfields)
        return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]

    def do(self, connection: Any, known: set[bytes], values: Sequence[bytes | None]) -> int:
        """How many rows it has written, of which each is a row of its answer."""
        return self._answer(connection.pgconn, known, values).ntuples

    def send(self, connection: Any, known: set[bytes], values: Sequence[bytes | None]) -> None:
        """Without waiting for what comes of it."""
        speaker = connection.pgconn
        self._prepare(speaker, known)
        speaker.send_query_prepared(self._name, values, [1] * len(values), 1)
        speaker.flush()  # it is short enough to be gone at once

    def received(self, connection: Any) -> bool | None:
        """What came of it, if that is known by now: whether it was carried out."""
        speaker = connection.pgconn
        speaker.consume_input()
        if speaker.is_busy():
            return None
        result, carried_out = speaker.get_result(), True
        while result is not None:
            carried_out = carried_out and result.status in (_COMMAND_OK, _TUPLES_OK)
            result = speaker.get_result()
        return carried_out

    def _answer(self, speaker: Any, known: set[bytes], values: Sequence[bytes | None]) -> Any:
        self._prepare(speaker, known)
        result = exec_prepared(speaker, self._name, values, [1] * len(values))
        if result.status != _TUPLES_OK:
            raise _problem(speaker, result)
        return result

    def _prepare(self, speaker: Any, known: set[bytes]) -> None:
        if self._name not in known:
            prepared = prepare(speaker, self._name, self._sql)
            if prepared.status != _COMMAND_OK:
                raise _problem(speaker, prepared)
            known.add(self._name)


def _problem(speaker: Any, result: Any) -> Exception:
    if result.error_field(67) is None:  # no SQLSTATE: it was not the server who said so
        return driver().OperationalError(speaker.get_error_message())
    return driver().errors.error_from_result(result)


class Aside:
    """One statement at a time. Errors are ignored, because its work can as well be done later."""

    def __init__(self, database: PostgresDatabase, statement: Statement) -> None:
        self._database = database
        self._statement = statement
        self._session: StoreSession | None = None
        self._asked = False

    def ask(self, values: Sequence[bytes | None]) -> bool:
        """Whether it was sent; not while the one before is not answered."""
        try:
            if self._asked and self.answered() is None:
                return False
            self._session = self._session or self._database.kept(time.monotonic())
            self._statement.send(self._session.connection, self._session.prepared, values)
        except (driver().Error, Unavailable):
            self._give_up()
            return False
        self._asked = True
        return True

    def answered(self) -> bool | None:
        """Whether what was sent has been carried out; None: it is not answered yet."""
        if not self._session or not self._asked:
            return False
        try:
            found = self._statement.received(self._session.connection)
        except driver().Error:
            self._give_up()
            return False
        if found is not None:
            self._asked = False
        return found

    def _give_up(self) -> None:
        if self._session:
            self._session.connection.close()
        self._session, self._asked = None, False


# Plain records, appended by one INSERT.
#
# The life of an effect is mostly an intent and its done, or a note of its run. Whether such a record may be appended
# follows from all records before it; and the process that appended the last of them knows that. So its record is
# inserted if the journal still ends with the record that it knows, if it has the lease, and if no process has the turn:
# then all it knows still holds. The changes of the tables are written later, for many at once (schema/005_listing.sql).
# In any other case the function `append` is used, which asks the tables.


MANY = 128  # records that wait to be listed, so that it is asked for
MOST = 1024  # so many that it is waited for; a reader that finds that many waits for some 20 ms
_HELD = 32  # resources; if others hold more of them, ask the tables
_ROWS = 3  # records of one append
# Looked up in the class they cost more than all that is done with them.
_INTENT, _DONE = Kind.INTENT, Kind.DONE
_NOTES = (Kind.CHECKPOINT, Kind.REMEMBER)
_SHYEST = 6  # while others append as well: up to 2 ** 6 appends go the whole way before it is tried again
_EPOCH = 946_684_800_000_000  # the server counts from the year 2000
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LIST = Statement("takeback_list", "SELECT list_all($1::boolean)")
_NO_BIRTH = (b"", None)  # its key and resource
_COMMON = 5
_COLUMNS = (
    "bigint", "text", "text", "text", "bytea", "bytea", "text", "text"
)  # seq, kind, effect, token, hash, body, key, resource  # fmt: skip


@cache
def _inserting(births: str) -> Statement:
    """For so many records: `b` begins an effect, `o` is any other. It takes its locks before it reads, so no one can
    change the lease, or append, between its read and its write."""
    first = _COMMON + 1
    rows = [
        [f"${first + len(_COLUMNS) * n + m}::{kind}" for m, kind in enumerate(_COLUMNS)]
        for n in range(len(births))
    ]
    if len(rows) == 1:
        seq, kind, effect, *others = rows[0]
        chosen = f"SELECT {seq}, $4::bigint, {kind}, $1, {effect}, {', '.join(others)} FROM leases l"
    else:
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        chosen = (
            "SELECT v.seq, $4::bigint, v.kind, $1, v.effect, v.token, v.hash, v.body, v.key, v.resource FROM leases l"
            f" CROSS JOIN (VALUES {values}) AS v (seq, kind, effect, token, hash, body, key, resource)"
        )
    unborn = "".join(
        f" AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.id = {row[2]})"
        f" AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.key = {row[6]} AND e.key <> '')"
        for row, birth in zip(rows, births, strict=True)
        if birth == "b"
    )
    return Statement(
        f"takeback_plain_{births}",
        # In this order, so that it holds no lock while it waits for the turn: the holder of the turn may want the
        # records.
        "WITH turned AS (UPDATE turn SET nobody = 0 WHERE false), put AS ("
        "INSERT INTO records (seq, at, kind, run, effect, token, hash, body, key, resource)"
        f" {chosen} WHERE l.run = $1::text AND l.generation = $2::bigint AND l.pid <> 0"
        " AND (SELECT r.hash FROM records r ORDER BY r.seq DESC LIMIT 1) = $3::bytea"
        " AND coalesce($5::timestamptz BETWEEN statement_timestamp() - interval '1 second'"
        f" AND statement_timestamp() + interval '1 second', true){unborn} RETURNING 1) SELECT 1 FROM put",
    )


def _is_plain(body: dict[str, Any]) -> bool:
    """An intent that undoes nothing, has only the resources it names, and no projects."""
    if body.get("undoes") or "roots" in body or "places" in body or made_markers(body):
        return False
    return "#" not in body["resource"] and touched(body) == (body["resource"],)


Seal = tuple[bytes, bytes]  # what a record gets beside its hash, and what the chain covers of its body


class Plain:
    """What this process knows of the end of the journal. The lock of the database is held around it."""

    def __init__(self, database: PostgresDatabase, now: Callable[[], int] | None) -> None:
        self._now = now
        self._listing = Aside(database, _LIST)
        self._asked = 0  # the newest record when it was asked for
        self._shy = 0  # appends before it is tried again
        self._misses = 0
        self.forget()

    def forget(self) -> None:
        self.seq = 0  # of the newest record; 0: nothing is known
        self._newest = b""  # its hash and seal
        self._listed = 0  # all records up to this one are
        self._told = (0, 0)  # a time of the server, and ours when we heard of it
        self._at = 0  # of the newest record
        self._open: set[str] = set()  # runs
        self._ours: dict[str, str] = {}  # effects in flight, and what each of them holds
        self._held: list[str] = []  # by all effects in flight
        self._effects: dict[str, int] = {}  # that are not listed, with the number of the record
        self._keys: dict[str, int] = {}  # of those

    @property
    def wants_to_know(self) -> bool:
        """Whether the next append may be a plain one."""
        return not self._shy

    def has_key(self, key: str) -> bool:
        return key in self._keys

    def append(
        self,
        session: StoreSession,
        lease: Lease,
        drafts: Sequence[Draft],
        seals: Sequence[Seal],
        kept: Sequence[bytes],
        token: bytes | None,
    ) -> tuple[Record, ...] | None:
        """None: there is more to it, or someone else has appended."""
        if self._shy or not self.seq or not self._fits(lease.run, drafts):
            self._shy = max(0, self._shy - 1)
            return None
        if self.seq - self._listed > MANY - len(drafts):
            self._list(session, len(drafts))
        at = self._now() if self._now else self._time()
        when = None if self._now else number(at - _EPOCH)
        newest, seq = self._newest, self.seq
        values = [lease.run.encode(), number(lease.generation), newest, number(at), when]
        records: list[Record] = []
        births = ""
        for (kind, run, effect, said), (seal, of_body), short in zip(drafts, seals, kept, strict=True):
            seq += 1
            hash = chained(newest[:HASH], seq, at, kind, run, effect, of_body)
            records.append(Record(seq, kind, run, effect, at, said, hash, seal))
            newest = hash + seal
            values += (number(seq), kind.encode(), effect.encode(), token, newest, short)
            if kind is _INTENT:
                births += "b"
                values += (said.get("key", "").encode(), said["resource"].encode())
            else:
                births += "o"
                values += _NO_BIRTH
            token = None
        if _inserting(births).do(session.connection, session.prepared, values) != len(records):
            return None
        self._misses = 0
        self._know(drafts, records[-1])
        return tuple(records)

    def _fits(self, run: str, drafts: Sequence[Draft]) -> bool:
        """Whether they are plain, and may come after all that we know of."""
        left = len(drafts)
        if left > _ROWS:
            return False
        ended: list[str] = []
        for kind, _, effect, body in drafts:
            left -= 1
            if kind is _DONE:
                if effect not in self._ours or effect in ended:
                    return False
                ended.append(effect)
            elif kind is _INTENT:
                if left or run not in self._open or not self._is_new(effect, body, ended):
                    return False
            elif kind not in _NOTES:
                return False
        return True

    def _is_new(self, effect: str, body: dict[str, Any], ended: Sequence[str]) -> bool:
        if body.get("needs") or not _is_plain(body):
            return False
        if effect in self._effects or effect in self._ours or body.get("key") in self._keys:
            return False
        free = [self._ours[one] for one in ended]
        held = [one for one in self._held if one not in free]
        if not held:
            return True
        resource: str = body["resource"]
        around = (resource, *ancestors(resource))
        inside = resource if resource.endswith("/") else f"{resource}/"
        return len(held) <= _HELD and not any(one in around or one.startswith(inside) for one in held)

    def _know(self, drafts: Sequence[Draft], newest: Record) -> None:
        self.seq, self._newest = newest.seq, newest.hash + newest.seal
        for kind, _, effect, body in drafts:
            if kind is _INTENT:
                self._effects[effect] = newest.seq
                if key := body.get("key"):
                    self._keys[key] = newest.seq
                self._ours[effect] = body["resource"]
                self._held.append(body["resource"])
            elif kind is _DONE:
                resource = self._ours.pop(effect)
                if resource in self._held:
                    self._held.remove(resource)

    def learn(
        self, drafts: Sequence[Draft], first: int, newest: Record, is_open: bool | None, held: bytes | None
    ) -> None:
        """What went the whole way: all is listed then."""
        if first != self.seq + 1:
            if self.seq:  # someone else has appended
                self._misses = min(self._misses + 1, _SHYEST)
                self._shy = 1 << self._misses
            self.forget()
        if is_open is None:
            return self.forget()
        self.seq = self._listed = newest.seq
        self._newest = newest.hash + newest.seal
        self._at = newest.at
        self._told = newest.at, time.clock_gettime_ns(_CLOCK)
        self._effects.clear()
        self._keys.clear()
        self._held = json.loads(held) if held else []
        (self._open.add if is_open else self._open.discard)(newest.run)
        for kind, _, effect, body in drafts:
            self._ours.pop(effect, None)
            if kind is _INTENT and _is_plain(body):
                self._ours[effect] = body["resource"]
        return None

    def _list(self, session: StoreSession, more: int) -> None:
        """Beside the appends, which need not wait for it; inside an open transaction of ours, by us."""
        carried_out = self._listing.answered()
        if carried_out and self._asked > self._listed:
            self._are_listed(self._asked)
        if self.seq - self._listed <= MANY - more:
            return
        if carried_out is not None and not session.in_transaction and self._listing.ask((flag(True),)):
            self._asked = self.seq
        if self.seq - self._listed > MOST - more:
            _LIST.ask(session.connection, session.prepared, (flag(not session.in_transaction),))
            self._are_listed(self.seq)

    def _are_listed(self, seq: int) -> None:
        self._listed = seq
        for known in (self._effects, self._keys):
            for one in [one for one, began in known.items() if began <= seq]:
                del known[one]

    def _time(self) -> int:
        """The time of the server, as estimated here; the server checks the estimate."""
        told, heard = self._told
        self._at = max(self._at, told + (time.clock_gettime_ns(_CLOCK) - heard) // 1000)
        return self._at
