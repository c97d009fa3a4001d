"""A transaction that waits for a person. Where the server lets transactions be prepared it holds it, whoever ends; else
the session that made it does, as long as it lives and for no longer than it may."""

from typing import TYPE_CHECKING

from takeback.adapters.postgres.connecting import ask, driver, run
from takeback.adapters.postgres.sighting import end_work
from takeback.adapters.postgres.tables import literal
from takeback.errors import Refused
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

# Not if there are temporary tables, since the server would not prepare what has to do with them, nor if it is full.
_PREPARABLE = """
select current_setting('max_prepared_transactions')::int > (select count(*) from pg_prepared_xacts)
  and pg_my_temp_schema() = 0
"""
_PREPARED = "select 1 from pg_prepared_xacts where gid = %s and database = current_database()"


def preparable(connection: "Connection") -> bool:
    """Asked in the transaction that is to be held."""
    return bool(ask(connection, _PREPARABLE)[0][0])


def prepare(connection: "Connection", effect: str) -> None:
    run(connection, f"prepare transaction {literal(_name(effect))}")


def name_session(connection: "Connection", effect: str) -> None:
    """So that whoever waits for it finds out what for. With the transaction it ends."""
    run(connection, f"set local application_name = {literal(_name(effect))}")


def prepared(connection: "Connection", effect: str) -> bool:
    """Asked when nobody can be about to prepare it any more."""
    end_work(connection, effect)
    return bool(ask(connection, _PREPARED, [_name(effect)]))


def keep(connection: "Connection", effect: str) -> None:
    """Twice is once."""
    if not prepared(connection, effect):
        if ask(connection, "select no from takeback.find(%s)", [effect])[0][0] is None:
            raise gone(effect)
        return
    try:
        run(connection, f"commit prepared {literal(_name(effect))}")
    except driver().errors.UndefinedObject:
        keep(connection, effect)  # someone else decided at the same moment


def drop(connection: "Connection", effect: str) -> None:
    """If it is still held."""
    if prepared(connection, effect):
        try:
            run(connection, f"rollback prepared {literal(_name(effect))}")
        except driver().errors.UndefinedObject:
            return


def gone(effect: str) -> Refused:
    return Refused(
        f"Effect {short(effect)} is not held any more: the database has rolled it back.",
        hint="Nothing was changed. Let it be done again.",
        effect=effect,
    )


def _name(effect: str) -> str:
    from takeback.adapters.postgres.patient import HELD

    return f"{HELD}{effect}"
