"""Let tables keep images of their rows, and stop it again. Every table in a transaction of its own; twice is once."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.postgres import triggers
from takeback.adapters.postgres.connecting import ask, run, transaction, wait_no_longer
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.tables import SCHEMA, Column, Table, tables
from takeback.errors import Misuse, Refused

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_ONE_AT_A_TIME = 0x7A6B6261636B
_MOST_COLUMNS = 540  # of a table: an undo has its sides beside each other, and the server takes 1,664 at most


_EVENT_TRIGGERS = {
    "takeback_ddl_command_start": ("ddl_command_start", "schema_begins"),
    "takeback_ddl_command_end": ("ddl_command_end", "schema_ended"),
    "takeback_ddl_drop": ("sql_drop", "schema_drops"),
}
# Of what these files make. A database that an older one protected is brought up to date by `takeback sql protect`.
VERSION = 2
_FILES = ("schema.sql", "definitions.sql", "guests.sql", "programs.sql", "witness.sql")
VERSION_SQL = (
    f"(select substr(p.prosrc, 8)::int from pg_proc p where p.pronamespace = to_regnamespace('{SCHEMA}') "
    "and p.proname = 'version')"
)


class Capture(NamedTuple):
    """What is installed on one table."""

    log: int
    shape: list[list[int | str]]
    by_row: bool
    whole: bool  # all its triggers are there and enabled


def installed(connection: "Connection") -> bool:
    return ask(connection, "select to_regnamespace(%s) is not null", [SCHEMA])[0][0]


_CAPTURED = """
select k.relation::int8, k.log, k.shape, k.by_row,
  (select count(*) from pg_trigger g where g.tgrelid = k.relation and g.tgname like 'zz\\_takeback\\__'
     and g.tgenabled = 'A') = 4
from takeback.captured k
"""


def captures(connection: "Connection") -> dict[int, Capture]:
    return {oid: Capture(*rest) for oid, *rest in ask(connection, _CAPTURED)}


def up_to_date(table: Table, capture: Capture | None) -> bool:
    return (
        capture is not None
        and capture.whole
        and capture.by_row == table.by_row
        and capture.shape == table.shape
    )


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


def protect(connection: "Connection", names: Sequence[str]) -> None:
    if not installed(connection):
        _create_schema(connection)
    elif outdated(connection):
        _bring_up_to_date(connection)
    found = tables(connection)
    roots = {one.oid: one for one in found}
    for table in sorted(named(found, names), key=lambda one: (one.root, one.oid != one.root, one.oid)):
        root = roots.get(table.root)
        if table.owned and root and root.owned and not too_wide(root):
            with transaction(connection):
                wait_no_longer(connection)
                run(connection, "select pg_advisory_xact_lock(%s)", [_ONE_AT_A_TIME])
                install(connection, table, root)
    _forget_dropped(connection)


def too_wide(table: Table) -> bool:
    """To be taken back."""
    return len(table.columns) > _MOST_COLUMNS


def _texts() -> Iterator[str]:
    for name in _FILES:
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            yield file.read()
    yield f"create function {SCHEMA}.version() returns int language sql immutable as 'select {VERSION}'"


def outdated(connection: "Connection") -> bool:
    """Was it protected by an older takeback?"""
    return (ask(connection, f"select {VERSION_SQL}")[0][0] or 1) < VERSION


def _bring_up_to_date(connection: "Connection") -> None:
    """Functions and triggers of now, and columns that are missing; what was kept so far stays."""
    from takeback.adapters.postgres.statements import first_words, split

    if not ask(connection, "select takeback.keeper()")[0][0]:
        raise Refused(
            "An older takeback protected this database for another role, which must bring it up to date.",
            hint="Run `takeback sql protect` as that role, or as a superuser.",
        )
    with transaction(connection):
        wait_no_longer(connection)
        run(connection, "select pg_advisory_xact_lock(%s)", [_ONE_AT_A_TIME])
        for statement in (one for text in _texts() for one in split(text)):
            words = first_words(statement)
            if words[:2] == ["CREATE", "FUNCTION"]:
                run(
                    connection,
                    re.sub(r"(?i)^create function", "create or replace function", _bare(statement)),
                )
            elif words[:2] == ["ALTER", "TABLE"] and "add column if not exists" in statement:
                run(connection, statement)
        _create_event_triggers(connection)
        known = captures(connection)
        for table in tables(connection, list(known)):
            if table.owned:
                root = table if table.root == table.oid else tables(connection, [table.root])[0]
                _run_all(connection, triggers.functions(known[table.oid].log, table, root))
                _run_all(connection, triggers.attach(table))


def _bare(statement: str) -> str:
    """Without the comments before it."""
    return re.sub(r"\A(\s*--[^\n]*\n)*\s*", "", statement)


def _create_event_triggers(connection: "Connection") -> None:
    if not ask(connection, "select rolsuper from pg_roles where rolname = current_user")[0][0]:
        return
    there = {row[0] for row in ask(connection, "select evtname from pg_event_trigger")}
    for name, (event, what) in _EVENT_TRIGGERS.items():
        if name not in there:
            run(connection, f"create event trigger {name} on {event} execute function {SCHEMA}.{what}()")
            run(connection, f"alter event trigger {name} enable always")


def _create_schema(connection: "Connection") -> None:
    may = ask(connection, "select has_database_privilege(current_database(), 'create')")[0][0]
    if not may:
        raise Refused(
            "This role may not create the schema `takeback`.",
            hint="Let the owner of the database run `takeback sql protect`, or grant CREATE on the database.",
        )
    with transaction(connection):
        run(connection, "select pg_advisory_xact_lock(%s)", [_ONE_AT_A_TIME])
        if not installed(connection):
            for text in _texts():
                run(connection, text)
            _create_event_triggers(connection)


def install(connection: "Connection", table: Table, root: Table) -> None:
    if table.kind == "f":
        _run_all(connection, triggers.guard(table))
        return
    log = _log_of(connection, root)
    capture = captures(connection).get(table.oid)
    if up_to_date(table, capture):
        return
    _run_all(connection, triggers.functions(log, table, root))
    if capture is None or not capture.whole or capture.by_row != table.by_row:
        _run_all(connection, triggers.attach(table))
    run(
        connection,
        "insert into takeback.captured values (%s, %s, %s, %s) on conflict (relation) do update "
        "set log = excluded.log, shape = excluded.shape, by_row = excluded.by_row",
        [table.oid, log, json.dumps(table.shape), table.by_row],
    )


def _log_of(connection: "Connection", root: Table) -> int:
    """The log for a table and all its partitions, with a place for every column."""
    known = ask(connection, "select no, shape from takeback.log where relation = %s", [root.oid])
    shape = json.dumps(root.shape)
    if not known:
        log, since = ask(
            connection,
            "insert into takeback.log (relation, name, shape) values (%s, %s, %s) returning no, since",
            [root.oid, root.shown, shape],
        )[0]
        run(connection, "insert into takeback.form values (%s, %s, %s)", [log, since, shape])
        _run_all(connection, triggers.log_table(log, root))
        return log
    log, before = known[0]
    if _kinds(before) != _kinds(root.shape):
        _reshape(connection, log, before, root)
    elif before != root.shape:  # renamed
        run(
            connection,
            "update takeback.log set shape = %s, name = %s where no = %s",
            [shape, root.shown, log],
        )
    return log


def _reshape(connection: "Connection", log: int, before: list[list[int | str]], root: Table) -> None:
    """New columns get a place. One that changed its type leaves its place to what was kept until now, and takes up the
    one that it had when it was of this type before."""
    places = {
        row[0]
        for row in ask(
            connection,
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
            [log_name(log)],
        )
    }
    kinds = {one[0]: one[:4] for one in before}
    new: list[Column] = []
    since = ask(connection, "select nextval('takeback.step')")[0][0]
    for column in root.columns:
        place, kind = f"c{column.number}", list(column.shape[:4])
        if column.number in kinds and kinds[column.number] == kind:
            continue
        if column.number in kinds:
            run(
                connection,
                f"alter table {log_name(log)} rename column {place} to {_parked(kinds[column.number])}",
            )
            places.discard(place)
        if (parked := _parked(kind)) in places:
            run(connection, f"alter table {log_name(log)} rename column {parked} to {place}")
        elif place not in places:
            new.append(column)
    _run_all(connection, triggers.wider_log(log, new))
    shape = json.dumps(root.shape)
    run(
        connection,
        "update takeback.log set shape = %s, name = %s, since = %s where no = %s",
        [shape, root.shown, since, log],
    )
    run(connection, "insert into takeback.form values (%s, %s, %s)", [log, since, shape])


def _parked(kind: Sequence[int | str]) -> str:
    number, type_, modifier, collation = kind
    return f"c{number}_{type_}_{int(modifier) + 1}_{collation}"


def _kinds(shape: list[list[int | str]]) -> list[list[int | str]]:
    return [one[:4] for one in shape]


def adapt(connection: "Connection") -> None:
    """Columns that came or went since the triggers were installed. New tables are left to whoever protects."""
    known = captures(connection)
    stale = [
        table
        for table in tables(connection, list(known))
        if not up_to_date(table, known[table.oid]) and known[table.oid].whole
    ]
    roots = {one.oid: one for one in tables(connection, [one.root for one in stale])} if stale else {}
    for table in stale:
        if table.owned:
            with transaction(connection):
                run(connection, "select pg_advisory_xact_lock(%s)", [_ONE_AT_A_TIME])
                install(connection, table, roots[table.root])


def _forget_dropped(connection: "Connection") -> None:
    """Tables that are no more. Their logs stay: what was dropped may come back."""
    gone = ask(
        connection,
        "select relation::int8 from takeback.captured k "
        "where not exists (select from pg_class c where c.oid = k.relation)",
    )
    for (oid,) in gone:
        with transaction(connection):
            _run_all(connection, triggers.drop_functions(oid))
            run(connection, "delete from takeback.captured where relation = %s", [oid])


def unprotect(connection: "Connection", names: Sequence[str]) -> None:
    if not installed(connection):
        return
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
        with transaction(connection):
            wait_no_longer(connection)
            if table.kind == "f":
                run(connection, f"drop trigger if exists {triggers.trigger_name('f')} on {table.sql}")
            else:
                _run_all(connection, triggers.detach(table))
            run(connection, "delete from takeback.captured where relation = %s", [table.oid])
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


def _run_all(connection: "Connection", statements: Iterable[str]) -> None:
    for statement in statements:
        run(connection, statement)
