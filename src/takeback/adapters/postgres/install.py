"""The installation: the schema `takeback`, and for each table a log with its functions, kept up to date."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from takeback.adapters.postgres import attachment, logs
from takeback.adapters.postgres.connection import Connection, transaction, wait_no_longer
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.tables import SCHEMA, PostgresColumn, Table, tables
from takeback.errors import Refused

ONE_AT_A_TIME = 0x7A6B6261636B


class Capture(NamedTuple):
    log: int
    shape: list[list[int | str]]
    by_row: bool
    always: bool  # its triggers stay, whether a run works or not
    attached: bool  # all its triggers are there and enabled
    whole: bool  # and if not, it has none, as is right while no run works


# A database that an older takeback protected has no column `always`.
_CAPTURED = """
select k.relation::int8, k.log, k.shape, k.by_row, k.always, k.there = 4 and k.enabled = 4,
  k.there = 4 and k.enabled = 4 or k.there = 0 and not k.always
from (
  select k.relation, k.log, k.shape, k.by_row, coalesce((to_jsonb(l)->>'always')::boolean, true) as always,
    g.there, g.enabled
  from takeback.captured k join takeback.log l on l.no = k.log
  cross join lateral (
    select count(*) as there, count(*) filter (where g.tgenabled = 'A') as enabled from pg_trigger g
    where g.tgrelid = k.relation and g.tgname like 'zz\\_takeback\\__') g) k
"""


def captures(connection: Connection) -> dict[int, Capture]:
    return {oid: Capture(*rest) for oid, *rest in connection.ask(_CAPTURED)}


def up_to_date(table: Table, capture: Capture | None) -> bool:
    return (
        capture is not None
        and capture.whole
        and capture.by_row == table.by_row
        and capture.shape == table.shape
    )


def install(connection: Connection, table: Table, root: Table) -> None:
    """All but the triggers themselves."""
    if table.kind == "f":
        connection.run_all(logs.guard(table))
        return
    log = _log_of(connection, root)
    capture = captures(connection).get(table.oid)
    if up_to_date(table, capture):
        return
    connection.run_all(logs.functions(log, table, root))
    connection.run(
        "insert into takeback.captured values (%s, %s, %s, %s) on conflict (relation) do update "
        "set log = excluded.log, shape = excluded.shape, by_row = excluded.by_row",
        [table.oid, log, json.dumps(table.shape), table.by_row],
    )


def _log_of(connection: Connection, root: Table) -> int:
    """The log for a table and all its partitions, with a place for every column."""
    known = connection.ask("select no, shape from takeback.log where relation = %s", [root.oid])
    shape = json.dumps(root.shape)
    if not known:
        log, since = connection.ask(
            "insert into takeback.log (relation, name, shape, always) select %s, %s, %s, "
            "coalesce(bool_and(always), false) from takeback.log returning no, since",
            [root.oid, root.shown, shape],
        )[0]
        connection.run("insert into takeback.form values (%s, %s, %s)", [log, since, shape])
        connection.run_all(logs.log_table(log, root))
        _give_to_owner(connection, log)
        return log
    log, before = known[0]
    if kinds(before) != kinds(root.shape):
        _reshape(connection, log, before, root)
    elif before != root.shape:  # renamed
        connection.run(
            "update takeback.log set shape = %s, name = %s where no = %s", [shape, root.shown, log]
        )
    return log


def _give_to_owner(connection: Connection, log: int) -> None:
    """Any role may have protected the table; functions of the schema's owner read the log, and no policy blocks
    them."""
    asked = "select nspowner::regrole::text, quote_ident(current_user) from pg_namespace where nspname = %s"
    owner, we = connection.ask(asked, [SCHEMA])[0]
    if owner != we:
        connection.run(f"alter table {log_name(log)} owner to {owner}")


def _reshape(connection: Connection, log: int, before: list[list[int | str]], root: Table) -> None:
    """New columns get a place. One that changed its type leaves its place to what was kept until now, and takes up the
    one that it had when it was of this type before."""
    rows = connection.ask(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
        [log_name(log)],
    )
    places = {name for (name,) in rows}
    kinds = {one[0]: one[:4] for one in before}
    new: list[PostgresColumn] = []
    since = connection.ask("select nextval('takeback.step')")[0][0]
    for column in root.columns:
        place, kind = f"c{column.number}", list(column.shape[:4])
        if column.number in kinds and kinds[column.number] == kind:
            continue
        if column.number in kinds:
            connection.run(
                f"alter table {log_name(log)} rename column {place} to {_parked(kinds[column.number])}"
            )
            places.discard(place)
        if (parked := _parked(kind)) in places:
            connection.run(f"alter table {log_name(log)} rename column {parked} to {place}")
        elif place not in places:
            new.append(column)
    connection.run_all(f"alter table {log_name(log)} add column {logs.place(column)}" for column in new)
    shape = json.dumps(root.shape)
    connection.run(
        "update takeback.log set shape = %s, name = %s, since = %s where no = %s",
        [shape, root.shown, since, log],
    )
    connection.run("insert into takeback.form values (%s, %s, %s)", [log, since, shape])


def _parked(kind: Sequence[int | str]) -> str:
    number, type_, modifier, collation = kind
    return f"c{number}_{type_}_{int(modifier) + 1}_{collation}"


def kinds(shape: list[list[int | str]]) -> list[list[int | str]]:
    return [one[:4] for one in shape]


def adapt(connection: Connection) -> None:
    """Adapt to columns added or dropped since the triggers were installed. New tables are left to `protect`."""
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
                connection.run("select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
                install(connection, table, roots[table.root])


def follow(connection: Connection, old: int, new: int) -> None:
    """A table; its columns have the numbers that they had."""
    connection.run("update takeback.log set relation = %s where relation = %s", [new, old])
    connection.run("delete from takeback.captured where relation = %s", [old])
    connection.run_all(logs.drop_functions(old))


def renumber(connection: Connection, relation: int, old: int, new: int) -> None:
    """A column, of a table and all its partitions; they share one log."""
    rows = connection.ask("select no from takeback.log where relation = %s", [relation])
    for (log,) in rows:
        name = log_name(log)
        here = connection.ask(
            "select attname from pg_attribute where attrelid = %s::regclass and not attisdropped and attname ~ %s",
            [name, f"^c{old}(_|$)"],
        )
        for (place,) in here:
            connection.run(
                f"alter table {name} rename column {place} to c{new}{place.removeprefix(f'c{old}')}"
            )
        for since, shape in connection.ask("select since, shape from takeback.form where log = %s", [log]):
            moved = sorted([new, *one[1:]] if one[0] == old else one for one in shape)
            connection.run(
                "update takeback.form set shape = %s where log = %s and since = %s",
                [json.dumps(moved), log, since],
            )


def capture_again(connection: Connection, oids: Iterable[int], new: bool) -> None:
    """After a change of the schema: what is written from now on is captured as the tables are now. `new`: those too
    that were not captured so far. Somebody works here, so the triggers are attached."""
    known = captures(connection)
    logs = {row[0] for row in connection.ask("select relation::int8 from takeback.log")}
    found = [
        one
        for one in tables(connection, sorted(oids))
        if one.owned and (new or one.oid in known or one.oid in logs or one.root in logs)
    ]
    roots = {one.oid: one for one in tables(connection, [one.root for one in found])} if found else {}
    for one in sorted(found, key=lambda one: (one.root, one.oid != one.root, one.oid)):
        if one.root in roots:
            install(connection, one, roots[one.root])
            before = known.get(one.oid)
            if one.kind != "f" and not (before and before.attached and before.by_row == one.by_row):
                connection.run("select takeback.make_triggers(%s, null)", [one.oid])


_EVENT_TRIGGERS = {
    "takeback_ddl_command_start": ("ddl_command_start", "schema_begins"),
    "takeback_ddl_command_end": ("ddl_command_end", "schema_ended"),
    "takeback_ddl_drop": ("sql_drop", "schema_drops"),
}
# Of what these files make. What an older one made is brought up to date by the next change of its owner.
VERSION = 3
_FILES = ("schema.sql", "definitions.sql", "guests.sql", "programs.sql", "witness.sql", "attachment.sql")
VERSION_SQL = (
    f"(select substr(p.prosrc, 8)::int from pg_proc p where p.pronamespace = to_regnamespace('{SCHEMA}') "
    "and p.proname = 'version')"
)


def installed(connection: Connection) -> bool:
    return connection.ask("select to_regnamespace(%s) is not null", [SCHEMA])[0][0]


def _texts() -> Iterator[str]:
    for name in _FILES:
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            yield file.read()


_VERSION = f"create function {SCHEMA}.version() returns int language sql immutable as 'select {VERSION}'"


def outdated(connection: Connection) -> bool:
    """Was it protected by an older takeback?"""
    return (connection.ask(f"select {VERSION_SQL}")[0][0] or 1) < VERSION


def bring_up_to_date(connection: Connection) -> None:
    """Functions of now, and columns that are missing; what was kept so far stays. Triggers of the first version had
    another condition. The version comes last: until then all of it is done again."""
    from takeback.adapters.postgres.statements import first_words, split

    if not connection.ask("select takeback.keeper()")[0][0]:
        raise Refused(
            "An older takeback protected this database for another role, which must bring it up to date.",
            hint="Run `takeback sql protect` as that role, or as a superuser.",
        )
    first = connection.ask(f"select {VERSION_SQL}")[0][0] is None
    with transaction(connection):
        wait_no_longer(connection)
        connection.run("select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
        for statement in (one for text in _texts() for one in split(text)):
            words = first_words(statement)
            if words[:2] == ["CREATE", "FUNCTION"]:
                connection.run(_replacing(statement))
            elif "if not exists" in statement and words[:2] in (["ALTER", "TABLE"], ["CREATE", "INDEX"]):
                connection.run(statement)
        _create_event_triggers(connection)
        connection.run(
            f"update takeback.log set always = true where relation in (select oid from ({OUT_OF_REACH}) o)"
        )
        known = captures(connection)
        owned = [one for one in tables(connection, list(known)) if one.owned]
        for table in owned:
            root = table if table.root == table.oid else tables(connection, [table.root])[0]
            connection.run_all(logs.functions(known[table.oid].log, table, root))
    for table in owned if first else ():
        attachment.made_anew(connection, attachment.AttachedTable(table.oid, table.shown))
    connection.run(_replacing(_VERSION))


def _replacing(statement: str) -> str:
    bare = re.sub(r"\A(\s*--[^\n]*\n)*\s*", "", statement)  # without the comments before it
    return re.sub(r"(?i)^create function", "create or replace function", bare)


def _create_event_triggers(connection: Connection) -> None:
    if not connection.ask("select rolsuper from pg_roles where rolname = current_user")[0][0]:
        return
    there = {row[0] for row in connection.ask("select evtname from pg_event_trigger")}
    for name, (event, what) in _EVENT_TRIGGERS.items():
        if name not in there:
            connection.run(f"create event trigger {name} on {event} execute function {SCHEMA}.{what}()")
            connection.run(f"alter event trigger {name} enable always")


def create_schema(connection: Connection) -> None:
    may = connection.ask("select has_database_privilege(current_database(), 'create')")[0][0]
    if not may:
        raise Refused(
            "This role may not create the schema `takeback`.",
            hint="Let the owner of the database run `takeback sql protect`, or grant CREATE on the database.",
        )
    with transaction(connection):
        connection.run("select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
        if not installed(connection):
            for text in (*_texts(), _VERSION):
                connection.run(text)
            _create_event_triggers(connection)


# The functions that attach and remove triggers for everybody are those of the schema's owner.
OUT_OF_REACH = """
select c.oid::int8 as oid, n.nspowner::regrole::text from pg_class c, pg_namespace n
where n.nspname = 'takeback' and c.relkind in ('r', 'p') and c.relpersistence <> 't'
  and not pg_has_role(n.nspowner, c.relowner, 'usage')
"""


def out_of_reach(connection: Connection) -> dict[int, str]:
    """Tables whose triggers must stay, and the role that may not attach them when a run begins."""
    return dict(connection.ask(OUT_OF_REACH))


def hold(connection: Connection) -> None:
    """Before the first change on this connection: the schema is that of now, and the triggers are attached."""
    if outdated(connection):
        bring_up_to_date(connection)
    attachment.hold(connection)
