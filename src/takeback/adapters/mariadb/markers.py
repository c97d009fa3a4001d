"""The marker of an effect in the database, the one session that may be making it, and who waits for whom."""

import json
import time
from typing import Any

from takeback.adapters.mariadb.logs import GATE, OPS
from takeback.adapters.mariadb.registry import identity_of
from takeback.adapters.mariadb.wire import PATIENCE, Wire, code_of, driver
from takeback.errors import StoreBusy
from takeback.model.database import Holder

_NO_SUCH_THREAD = 1094
_UNKNOWN_XID = 1397
_READING = "reading"
_NAME = "takeback-"
_PREPARED = "XA RECOVER"
_STEP = 0.01
_PATIENCE_STEPS = int(PATIENCE / _STEP)


def hold(wire: Wire, effect: str) -> None:
    """Be the one session that works on this effect. The server releases it when the session has ended, not before: the
    next holder sees either the marker or a transaction that was rolled back."""
    name = wire.text(f"takeback:{effect}")
    if wire.one(f"SELECT GET_LOCK({name}, {PATIENCE})") != 1:
        raise _busy()


def letting_go(wire: Wire, effect: str) -> str:
    return f"DO RELEASE_LOCK({wire.text(f'takeback:{effect}')})"


def hold_alone(wire: Wire, effect: str) -> None:
    """The same, to find out how it ended: a session that still works on it is ended first."""
    other = wire.one(f"SELECT IS_USED_LOCK({wire.text(f'takeback:{effect}')})")
    if other is not None:
        try:
            wire.run(f"KILL CONNECTION {int(other)}")
        except driver().Error as error:
            if code_of(error) != _NO_SUCH_THREAD:
                raise
    hold(wire, effect)


def begin(wire: Wire, effect: str, undoes: str) -> tuple[int, bool]:
    """To be the one session, a transaction, and the marker, in one journey; and whether the server holds others."""
    name = wire.text(f"takeback:{effect}")
    prepared, (locked,), (number,) = wire.together(
        [
            _PREPARED,
            f"SELECT GET_LOCK({name}, {PATIENCE})",
            f"XA START {xid(effect)}",
            f"INSERT INTO {OPS} (op, undoes) SELECT {wire.text(effect)}, {wire.text(undoes)} FROM DUAL"
            f" WHERE IS_USED_LOCK({name}) = CONNECTION_ID()",
            f"SET {GATE} = LAST_INSERT_ID()",
            f"SELECT {GATE}",
        ]
    )
    if locked[0] != 1:
        raise _busy()
    return int(number[0]), bool(_ours(prepared))


def _busy() -> StoreBusy:
    return StoreBusy(
        "Another session is still working on the same effect.", hint="Wait for it to end, then try again."
    )


def mark(wire: Wire, effect: str, undoes: str = "") -> int:
    """First in its transaction. From here on what this session changes is logged under its number."""
    wire.run(f"INSERT INTO {OPS} (op, undoes) VALUES ({wire.text(effect)}, {wire.text(undoes)})")
    number = wire.last_number()
    wire.run(f"SET {GATE} = LAST_INSERT_ID()")
    return number


def receipt_of(wire: Wire, effect: str) -> dict[str, Any]:
    return json.loads(wire.one(f"SELECT receipt FROM {OPS} WHERE op = {wire.text(effect)}") or "{}")


def unmark(wire: Wire) -> None:
    wire.run(f"SET {GATE} = NULL")


def xid(effect: str) -> str:
    return f"'{_NAME}{effect}'"


def start(wire: Wire, effect: str) -> None:
    """An XA transaction: in it the server refuses everything that would commit by itself."""
    wire.run(f"XA START {xid(effect)}")


def start_reading(wire: Wire) -> None:
    wire.together(["SET SESSION TRANSACTION READ ONLY", f"XA START {xid(_READING)}"])


def end_reading(wire: Wire) -> None:
    ends = [f"XA END {xid(_READING)}", f"XA ROLLBACK {xid(_READING)}", "SET SESSION TRANSACTION READ WRITE"]
    try:
        wire.together(ends)
    except (driver().Error, OSError):
        roll_back(wire, _READING)
        wire.attempt(ends[-1])


def commit(wire: Wire, effect: str) -> None:
    wire.run(f"XA END {xid(effect)}")
    wire.run(f"XA COMMIT {xid(effect)} ONE PHASE")


def prepare(wire: Wire, effect: str) -> None:
    """From now on the server holds it for a decision, also across restarts. It can be decided only when the session
    that made it has ended."""
    thread = int(wire.one("SELECT CONNECTION_ID()"))
    wire.run(f"XA END {xid(effect)}")
    wire.run(f"XA PREPARE {xid(effect)}")
    wire.close()
    wire.connection.connect()  # another session of the server, of the same account
    for _ in range(_PATIENCE_STEPS):
        if not wire.rows(f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {thread}"):
            return
        time.sleep(_STEP)


def is_held(wire: Wire, effect: str) -> bool:
    return effect in held_effects(wire)


def held_effects(wire: Wire) -> list[str]:
    """Effects that wait for a decision, anywhere on the server."""
    return _ours(wire.rows(_PREPARED))


def _ours(prepared: list[tuple[Any, ...]]) -> list[str]:
    names = [data.decode(errors="replace") if isinstance(data, bytes) else str(data) for *_, data in prepared]
    return [name.removeprefix(_NAME) for name in names if name.startswith(_NAME)]


def decide(wire: Wire, effect: str, keep: bool) -> bool:
    """Commit the held transaction, or roll it back. False: there is none."""
    for _ in range(_PATIENCE_STEPS):
        try:
            wire.run(f"XA {'COMMIT' if keep else 'ROLLBACK'} {xid(effect)}")
            return True
        except driver().Error as error:
            if code_of(error) != _UNKNOWN_XID:
                raise
            if not is_held(wire, effect):
                return False
        time.sleep(_STEP)  # the session that made it has not ended yet
    raise StoreBusy("The session that made it still has it.", hint="Try again when it has ended.")


def roll_back(wire: Wire, effect: str) -> None:
    """However far it got; a server that has rolled it back by itself, or is gone, is fine."""
    wire.attempt(f"XA END {xid(effect)}")
    wire.attempt(f"XA ROLLBACK {xid(effect)}")


_FIRST_LOOK = 1  # second: most waits are shorter
_NO_LIMIT = 10_000_000


def in_turn(seconds: int) -> tuple[int, ...]:
    """First a short time limit, to report soon what it waits for; then the rest."""
    whole = seconds or _NO_LIMIT
    return (_FIRST_LOOK, whole - _FIRST_LOOK) if whole > _FIRST_LOOK else (whole,)


def limit(wire: Wire, seconds: int) -> None:
    """Of this session; never longer than the server would let it wait, and 0 is as long as that."""
    names = ("innodb_lock_wait_timeout", "lock_wait_timeout")
    most = [f"{name} = " + (f"LEAST(@@GLOBAL.{name}, {seconds})" if seconds else "DEFAULT") for name in names]
    wire.run(f"SET SESSION {', '.join(most)}")


def holder(wire: Wire) -> Holder:
    """The held transaction in this database: reading uncommitted rows shows its marker."""
    held = held_effects(wire)
    if held and identity_of(wire):
        wire.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        names = ", ".join(wire.text(one) for one in held)
        if here := wire.one(f"SELECT op FROM {OPS} WHERE op IN ({names}) ORDER BY no DESC LIMIT 1"):
            return Holder(str(here), lasting=True)
    return Holder(session="a transaction that is open in another session")
