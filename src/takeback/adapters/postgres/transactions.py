"""Transactions of effects, seen from outside: did it happen, is it held for review, who ends it?"""

import time
from contextlib import suppress
from typing import Any

from takeback.adapters.postgres.connection import Connection, Question, driver
from takeback.adapters.postgres.tables import literal
from takeback.errors import Refused, ResourceUnreachable
from takeback.model.database import Database
from takeback.model.ids import short

_PATIENCE = 10.0

_AT_WORK = """
select l.pid, l.pid = pg_backend_pid() from pg_locks l
where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.pid is not null
  and l.database = (select oid from pg_database where datname = current_database())
  and (l.classid::int8 << 32 | l.objid::int8) = hashtextextended(%s, 4)
"""


_WHO = (
    "(select system_identifier from pg_control_system()), "
    "(select oid::int8 from pg_database where datname = current_database())"
)
# As takeback.keeper() says, and nothing where that is not.
KEEPER = "(select pg_has_role(session_user, nspowner, 'usage') from pg_namespace where nspname = 'takeback')"


def identity(connection: Connection) -> str:
    """Of the server and the database in it: another one may have the same name. From now on the connection knows
    whether its role may put rows back."""
    system, database, connection.keeper = connection.ask(f"select {_WHO}, {KEEPER}")[0]
    return f"{system}/{database}"


def refuse_another(identity: str, database: Database) -> None:
    """`identity`: of the one that answered."""
    if database.identity and identity != database.identity:
        raise Refused(
            f"{database.url} is another database than the one that was changed.",
            hint="Nothing was changed. Give the address of the first one (the variable, the host or the port may "
            "have changed); a copy that was restored from a dump is another database.",
        )


def happened(connection: Connection, effect: str) -> dict[str, Any] | None:
    """What it changed, in numbers, if it is there and was not taken back; else None. A session that may still work on
    it is ended first, so the answer is final."""
    found = end_work(connection, effect)
    if not found:
        return None
    number, undone_by, told = found[0]
    return None if number is None or undone_by else told or {}


def end_work(connection: Connection, effect: str) -> list[tuple[Any, ...]]:
    """A server process whose client died keeps running until it notices, over a network for minutes. Returns the
    marker, if there is one: looked for after no session works on it."""
    deadline = time.monotonic() + _PATIENCE
    told: set[int] = set()
    while True:
        at_work, found = _looked(connection, effect)
        pids = [pid for pid, ours in at_work if not ours]
        if not pids:
            return found
        for pid in set(pids) - told:
            told.add(pid)
            with suppress(driver().errors.InsufficientPrivilege):  # then it must end by itself
                connection.ask("select pg_terminate_backend(%s)", [pid])
        if time.monotonic() > deadline:
            raise ResourceUnreachable(
                f"A session of the server (process {pids[0]}) is still at work on it.",
                hint="Trying again is safe. End that session, or wait for it.",
            )
        time.sleep(0.01)


def _looked(connection: Connection, effect: str) -> list[list[tuple[Any, ...]]]:
    at_work = Question(_AT_WORK, [effect])
    try:
        return connection.ask_all([at_work, Question("select * from takeback.find(%s)", [effect])])
    except (driver().errors.InvalidSchemaName, driver().errors.UndefinedFunction):
        # It is not protected, or no longer.
        return [*connection.ask_all([at_work]), []]


# A transaction that waits for a person. If the server allows prepared transactions, it holds the transaction, also
# after our process has ended. Otherwise the session holds it as long as it lives, and no longer than the limit.
#
# Not if there are temporary tables, since the server would not prepare what has to do with them, nor if it is full.
_PREPARABLE = """
select current_setting('max_prepared_transactions')::int > (select count(*) from pg_prepared_xacts)
  and pg_my_temp_schema() = 0
"""
_PREPARED = "select 1 from pg_prepared_xacts where gid = %s and database = current_database()"


def preparable(connection: Connection) -> bool:
    """Asked in the transaction that is to be held."""
    return bool(connection.ask(_PREPARABLE)[0][0])


def prepare(connection: Connection, effect: str) -> None:
    connection.run(f"prepare transaction {literal(_name(effect))}")


def name_session(connection: Connection, effect: str) -> None:
    """So that a waiting session can see what it waits for. The name ends with the transaction."""
    connection.run(f"set local application_name = {literal(_name(effect))}")


def prepared(connection: Connection, effect: str) -> bool:
    """Called when no session can prepare it any more."""
    end_work(connection, effect)
    return bool(connection.ask(_PREPARED, [_name(effect)]))


def keep(connection: Connection, effect: str) -> None:
    """Twice is once."""
    if not _decided(connection, effect, "commit"):
        if connection.ask("select no from takeback.find(%s)", [effect])[0][0] is None:
            raise gone(effect)


def drop(connection: Connection, effect: str) -> None:
    """If it is still held."""
    _decided(connection, effect, "rollback")


def _decided(connection: Connection, effect: str, how: str) -> bool:
    """False: it is not held, or someone else decided at the same moment."""
    if not prepared(connection, effect):
        return False
    try:
        connection.run(f"{how} prepared {literal(_name(effect))}")
    except driver().errors.UndefinedObject:
        return False
    return True


def gone(effect: str) -> Refused:
    return Refused(
        f"Effect {short(effect)} is not held any more: the database has rolled it back.",
        hint="Nothing was changed. Let it be done again.",
        effect=effect,
    )


def _name(effect: str) -> str:
    from takeback.adapters.postgres.patient_connection import HELD

    return f"{HELD}{effect}"
