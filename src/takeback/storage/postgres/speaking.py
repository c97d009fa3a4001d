"""One prepared statement in the words of the protocol: what the driver does beyond that costs as much as all else."""

import struct
from collections.abc import Sequence
from typing import Any

from takeback.storage.postgres.answering import exec_prepared, prepare
from takeback.storage.postgres.connecting import driver

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
        result = self._answer(connection.pgconn, known, values, _TUPLES_OK)
        columns = range(result.nfields)
        return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]

    def do(self, connection: Any, known: set[bytes], values: Sequence[bytes | None]) -> int:
        """How many rows it has written, of which each is a row of its answer."""
        return self._answer(connection.pgconn, known, values, _TUPLES_OK).ntuples

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

    def _answer(self, speaker: Any, known: set[bytes], values: Sequence[bytes | None], expected: int) -> Any:
        self._prepare(speaker, known)
        result = exec_prepared(speaker, self._name, values, [1] * len(values))
        if result.status != expected:
            raise _problem(speaker, result)
        return result

    def _prepare(self, speaker: Any, known: set[bytes]) -> None:
        if self._name not in known:
            prepared = prepare(speaker, self._name, self._sql)
            if prepared.status != _COMMAND_OK:
                raise _problem(speaker, prepared)
            known.add(self._name)


def _problem(speaker: Any, result: Any) -> Exception:
    psycopg = driver()
    if result.error_field(67) is None:  # no SQLSTATE: it was not the server who said so
        return psycopg.OperationalError(speaker.get_error_message())
    return psycopg.errors.error_from_result(result)
