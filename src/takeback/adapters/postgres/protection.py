"""Protect tables, so that they keep images of their rows; stop it again; say what is protected, in words."""

from collections.abc import Iterator, Sequence

from takeback.adapters.database import Attachment, Cover, GiveUp
from takeback.adapters.postgres import attachment, logs
from takeback.adapters.postgres.connection import Connection, transaction, wait_no_longer
from takeback.adapters.postgres.install import (
    ONE_AT_A_TIME,
    Capture,
    bring_up_to_date,
    captures,
    create_schema,
    install,
    installed,
    out_of_reach,
    outdated,
    up_to_date,
)
from takeback.adapters.postgres.tables import SCHEMA, Table, may_switch_off, tables
from takeback.errors import Misuse, Refused

# Protect tables, so that they keep images of their rows, and stop it again. Every table in a transaction of its
# own; twice is once.


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


def protect(connection: Connection, names: Sequence[str], always: bool | None = None) -> None:
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


def _protect_one(connection: Connection, table: Table, root: Table, always: bool | None) -> None:
    def act(wait: int) -> None:
        with transaction(connection):
            wait_no_longer(connection)
            connection.run("select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
            install(connection, table, root)
            if table.kind == "f":
                return
            if always is not None:
                connection.run(
                    "update takeback.log set always = %s where relation = %s and always <> %s",
                    [always, root.oid, always],
                )
            capture = captures(connection)[table.oid]
            if not capture.attached and (
                capture.always or not capture.whole or attachment.in_use(connection)
            ):
                connection.run("select takeback.make_triggers(%s, %s)", [table.oid, wait])

    attachment.patiently(connection, attachment.AttachedTable(table.oid, table.shown), act)


def too_wide(table: Table) -> bool:
    return len(table.columns) > _MOST_COLUMNS


def _forget_dropped(connection: Connection) -> None:
    """Tables that are no more. Their logs stay: what was dropped may come back."""
    gone = connection.ask(
        "select relation::int8 from takeback.captured k "
        "where not exists (select from pg_class c where c.oid = k.relation)"
    )
    for (oid,) in gone:
        with transaction(connection):
            connection.run_all(logs.drop_functions(oid))
            connection.run("delete from takeback.captured where relation = %s", [oid])


def unprotect(connection: Connection, names: Sequence[str], give_up: GiveUp) -> None:
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
            for (shelf,) in connection.ask(
                "select distinct n.nspname from pg_namespace n "
                "join takeback.op o on n.nspname ~ ('^takeback_' || o.no || '(_[0-9]+)?$')"
            ):
                connection.run(f"drop schema {shelf} cascade")
            connection.run(f"drop schema {SCHEMA} cascade")
            give_up()


def _unprotect_one(connection: Connection, table: Table) -> None:
    def act(wait: int) -> None:
        with transaction(connection):
            if table.kind == "f":
                wait_no_longer(connection)
                connection.run(f"drop trigger if exists {logs.trigger_name('f')} on {table.sql}")
            elif any(name for (name,) in connection.ask(_OWN_TRIGGERS, [table.oid])):
                connection.run("select takeback.take(%s, 'access exclusive', %s)", [table.sql, wait])
                connection.run_all(logs.detach(table))
            else:
                connection.run_all(logs.drop_functions(table.oid))
            connection.run("delete from takeback.captured where relation = %s", [table.oid])

    attachment.patiently(connection, attachment.AttachedTable(table.oid, table.shown), act)


_OWN_TRIGGERS = "select tgname from pg_trigger where tgrelid = %s and tgname like 'zz\\_takeback\\__'"


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
    "A program that changes them is stopped if its role is a superuser; else takeback reports it when it has ended."
)


_OLDER = (
    "An older takeback protected this database. Captured changes can be undone; the owner's next change brings it up "
    "to date, or `takeback sql protect`. Until then changes of other roles are refused."
)


# Of short write transactions; `docs/benchmarks.md` has the numbers.
_PRICE = "which costs short write transactions about a quarter more of the server's processor time"
_PER_RUN = (
    "Triggers are attached while a run works and removed afterwards, so that the tables cost nothing in between. For "
    "that a run needs each table for a moment, and waits at most 100 ms at a time for it."
)


def cover(connection: Connection) -> Cover:
    found = tables(connection)
    tier = tier_of(connection, found)
    says = (_SAYS[tier], _SCHEMA, _NOT_COVERED)
    if not installed(connection):
        reason = "takeback is not installed in this database"
        return Cover(tier, (), tuple((one.shown, reason) for one in found), says)
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
    views = connection.ask(
        "select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where c.relkind = 'm' order by 1"
    )
    unprotected += [(name, "a materialized view: refresh it again instead") for (name,) in views]
    if outdated(connection):
        return Cover(tier, tuple(protected), tuple(unprotected), (_OLDER, *says))
    seen = _attachment(connection, {one.oid: one.shown for one in found}, known)
    told = (*_triggers(seen, len(known)), *_fixed(connection, known))
    return Cover(tier, tuple(protected), tuple(unprotected), (*told, *says), seen)


def _attachment(connection: Connection, names: dict[int, str], known: dict[int, Capture]) -> Attachment:
    always = [names[oid] for oid, one in known.items() if one.always and oid in names]
    now = [names[place.oid] for place in attachment.left(connection) if place.oid in names]
    return Attachment(
        tuple(sorted(always)), tuple(sorted(now)), tuple(attachment.users(connection)) if now else ()
    )


def _triggers(seen: Attachment, tables: int) -> Iterator[str]:
    if seen.always:
        names = "all tables" if len(seen.always) == tables else _listed(seen.always)
        yield (
            f"Triggers are attached always to {names}, {_PRICE}, also while no run works. "
            "`takeback sql protect --triggers runs` changes that."
        )
    if len(seen.always) < tables:
        yield _PER_RUN
    if seen.users:
        yield f"Triggers are attached now to {_listed(seen.now)}, {_PRICE}, for {'; '.join(seen.users)}."
    elif seen.now:
        yield (
            f"Triggers are still attached to {_listed(seen.now)}, {_PRICE}, and no session needs them: a run was "
            "killed, or others had the tables when it ended. The next change in this database removes them, or "
            "`takeback sql protect`."
        )


def _fixed(connection: Connection, known: dict[int, Capture]) -> Iterator[str]:
    fixed = {oid: role for oid, role in out_of_reach(connection).items() if oid in known}
    for role in sorted(set(fixed.values())):
        yield (
            f"Role {role}, which owns the schema takeback, may not attach triggers to "
            f"{sum(1 for one in fixed.values() if one == role)} of them: so they stay there. Let it own the tables, or "
            "be a member of the roles that do."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def tier_of(connection: Connection, found: tuple[Table, ...]) -> str:
    if may_switch_off(connection):
        return FULL
    creator = connection.ask("select has_database_privilege(current_database(), 'create')")[0][0]
    return OWNER if any(one.owned for one in found) or (creator and not found) else GUEST


def _why(table: Table, known: bool) -> str:
    if not table.owned:
        return "it belongs to another role"
    if too_wide(table):
        return "it has too many columns"
    if known:
        return "its columns or triggers changed since it was protected"
    return "it is new since the database was protected, or was left out"
