"""Protect tables, so that they keep images of their rows, and stop it again. Every table in a transaction of its
own; twice is once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.adapters.database.protocol import GiveUp
from takeback.adapters.postgres import attachment, triggers
from takeback.adapters.postgres.connecting import ask, run, transaction, wait_no_longer
from takeback.adapters.postgres.install import ONE_AT_A_TIME, captures, install, run_all
from takeback.adapters.postgres.own_schema import (
    bring_up_to_date,
    create_schema,
    installed,
    out_of_reach,
    outdated,
)
from takeback.adapters.postgres.tables import SCHEMA, Table, tables
from takeback.errors import Misuse, Refused

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_MOST_COLUMNS = 540  # of a table: an undo has its sides beside each other, and the server takes 1,664 at most


def named(found: Sequence[Table], names: Sequence[str]) -> tuple[Table, ...]:
    """With all partitions of those that are named; `public` goes without saying."""
    if not names:
        return tuple(found)
    wanted: set[int] = set()
    for name in names:
        same = [one for one in found if name in (one.shown, one.sql)] or [
            one for one in found if one.schema == "public" and one.name == name
        ]
        if not same:
            raise Misuse(
                f"There is no table {name!r}.", hint="`takeback sql doctor` lists the tables of the database."
            )
        wanted.update(one.root for one in same)
    return tuple(one for one in found if one.root in wanted)


def protect(connection: "Connection", names: Sequence[str], always: bool | None = None) -> None:
    """`always`: the triggers stay, whether a run works or not; None leaves that as it is."""
    if not installed(connection):
        create_schema(connection)
    elif outdated(connection):
        bring_up_to_date(connection)
    found = tables(connection)
    roots = {one.oid: one for one in found}
    fixed = out_of_reach(connection)
    for table in sorted(named(found, names), key=lambda one: (one.root, one.oid != one.root, one.oid)):
        root = roots.get(table.root)
        if table.owned and root and root.owned and not too_wide(root):
            _protect_one(connection, table, root, True if table.oid in fixed else always)
    _forget_dropped(connection)
    attachment.sweep(connection)


def _protect_one(connection: "Connection", table: Table, root: Table, always: bool | None) -> None:
    def act(wait: int) -> None:
        with transaction(connection):
            wait_no_longer(connection)
            run(connection, "select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
            install(connection, table, root)
            if table.kind == "f":
                return
            if always is not None:
                run(
                    connection,
                    "update takeback.log set always = %s where relation = %s and always <> %s",
                    [always, root.oid, always],
                )
            capture = captures(connection)[table.oid]
            if not capture.attached and (
                capture.always or not capture.whole or attachment.in_use(connection)
            ):
                run(connection, "select takeback.make_triggers(%s, %s)", [table.oid, wait])

    attachment.patiently(connection, attachment.Place(table.oid, table.shown), act)


def too_wide(table: Table) -> bool:
    """To be taken back."""
    return len(table.columns) > _MOST_COLUMNS


def _forget_dropped(connection: "Connection") -> None:
    """Tables that are no more. Their logs stay: what was dropped may come back."""
    gone = ask(
        connection,
        "select relation::int8 from takeback.captured k "
        "where not exists (select from pg_class c where c.oid = k.relation)",
    )
    for (oid,) in gone:
        with transaction(connection):
            run_all(connection, triggers.drop_functions(oid))
            run(connection, "delete from takeback.captured where relation = %s", [oid])


def unprotect(connection: "Connection", names: Sequence[str], give_up: GiveUp) -> None:
    """`give_up` is called when only the commit is left that removes the log."""
    if not installed(connection):
        return
    if outdated(connection):
        bring_up_to_date(connection)
    known = captures(connection)
    found = tables(connection)
    for table in named(found, names):
        if table.oid not in known and table.kind != "f":
            continue
        if not table.owned:
            raise Refused(
                f"{table.shown} belongs to another role, which must remove the triggers.",
                hint="Run it as that role, or as a superuser.",
            )
        _unprotect_one(connection, table)
    if not names:
        with transaction(connection):
            wait_no_longer(connection)
            for (shelf,) in ask(
                connection,
                "select distinct n.nspname from pg_namespace n "
                "join takeback.op o on n.nspname ~ ('^takeback_' || o.no || '(_[0-9]+)?$')",
            ):
                run(connection, f"drop schema {shelf} cascade")
            run(connection, f"drop schema {SCHEMA} cascade")
            give_up()


def _unprotect_one(connection: "Connection", table: Table) -> None:
    def act(wait: int) -> None:
        with transaction(connection):
            if table.kind == "f":
                wait_no_longer(connection)
                run(connection, f"drop trigger if exists {triggers.trigger_name('f')} on {table.sql}")
            elif any(name for (name,) in ask(connection, _OWN_TRIGGERS, [table.oid])):
                run(connection, "select takeback.take(%s, 'access exclusive', %s)", [table.sql, wait])
                run_all(connection, triggers.detach(table))
            else:
                run_all(connection, triggers.drop_functions(table.oid))
            run(connection, "delete from takeback.captured where relation = %s", [table.oid])

    attachment.patiently(connection, attachment.Place(table.oid, table.shown), act)


_OWN_TRIGGERS = "select tgname from pg_trigger where tgrelid = %s and tgname like 'zz\\_takeback\\__'"
