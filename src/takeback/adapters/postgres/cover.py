"""How a database is protected, in words."""

from typing import TYPE_CHECKING

from takeback.adapters.database.protocol import Cover
from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.install import captures, installed, outdated, too_wide, up_to_date
from takeback.adapters.postgres.layout import may_switch_off
from takeback.adapters.postgres.tables import Table, tables

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

FULL, OWNER, GUEST = "full", "owner", "guest"

_SAYS = {
    FULL: "This role may switch off all triggers of a session: whatever was captured can be put back.",
    OWNER: "This role owns tables but may not switch off foreign keys: rows are put back in the order that foreign "
    "keys ask for, and where there is none the undo is refused. A superuser can grant more: "
    "GRANT SET ON PARAMETER session_replication_role TO the role (PostgreSQL 15 and later).",
    GUEST: "This role owns no table: what it changes is captured where the owner has protected a table, and undo needs "
    "the address of the owner.",
}
_SCHEMA = (
    "Changes of the schema are taken back with the rows that they lost; those without a way back (extensions, roles, "
    "operators, new labels of an enum, REFRESH) are refused while an effect is open. A program with its own driver is "
    "stopped before it drops or alters a table, unless a superuser protected the database and it uses that role."
)
_NOT_COVERED = (
    "Not covered: what others did with the data in between, numbers drawn from sequences, large objects, roles, "
    "databases, settings of the server, materialized views, foreign tables. A statement that changes them is refused. "
    "A program that does is stopped if its role is a superuser; else that is told when it has ended."
)


_OLDER = (
    "An older takeback protected this database. What was captured can be undone; new changes are refused until "
    "`takeback sql protect` brings it up to date."
)


def cover(connection: "Connection") -> Cover:
    found = tables(connection)
    tier = tier_of(connection, found)
    if not installed(connection):
        reason = "takeback is not installed in this database"
        return Cover(
            tier, (), tuple((one.shown, reason) for one in found), (_SAYS[tier], _SCHEMA, _NOT_COVERED)
        )
    known = captures(connection)
    protected: list[str] = []
    unprotected: list[tuple[str, str]] = []
    for table in found:
        if table.kind == "f":
            unprotected.append((table.shown, "a foreign table: its rows are somewhere else"))
        elif up_to_date(table, known.get(table.oid)):
            protected.append(table.shown)
        else:
            unprotected.append((table.shown, _why(table, table.oid in known)))
    views = ask(
        connection,
        "select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where c.relkind = 'm' order by 1",
    )
    unprotected += [(name, "a materialized view: refresh it again instead") for (name,) in views]
    older = (_OLDER,) if outdated(connection) else ()
    return Cover(tier, tuple(protected), tuple(unprotected), (*older, _SAYS[tier], _SCHEMA, _NOT_COVERED))


def tier_of(connection: "Connection", found: tuple[Table, ...]) -> str:
    if may_switch_off(connection):
        return FULL
    creator = ask(connection, "select has_database_privilege(current_database(), 'create')")[0][0]
    return OWNER if any(one.owned for one in found) or (creator and not found) else GUEST


def _why(table: Table, known: bool) -> str:
    if not table.owned:
        return "it belongs to another role"
    if too_wide(table):
        return "it has too many columns"
    if known:
        return "its columns or triggers changed since it was protected"
    return "it is new since the database was protected, or was left out"
