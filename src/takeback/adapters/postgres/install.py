"""What is installed for one table: a log of images, and functions that write to it."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.postgres import triggers
from takeback.adapters.postgres.connecting import ask, run, transaction
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.tables import SCHEMA, Column, Table, tables

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

ONE_AT_A_TIME = 0x7A6B6261636B


class Capture(NamedTuple):
    """What is installed on one table."""

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


def captures(connection: "Connection") -> dict[int, Capture]:
    return {oid: Capture(*rest) for oid, *rest in ask(connection, _CAPTURED)}


def up_to_date(table: Table, capture: Capture | None) -> bool:
    return (
        capture is not None
        and capture.whole
        and capture.by_row == table.by_row
        and capture.shape == table.shape
    )


def install(connection: "Connection", table: Table, root: Table) -> None:
    """All but the triggers themselves."""
    if table.kind == "f":
        run_all(connection, triggers.guard(table))
        return
    log = _log_of(connection, root)
    capture = captures(connection).get(table.oid)
    if up_to_date(table, capture):
        return
    run_all(connection, triggers.functions(log, table, root))
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
            "insert into takeback.log (relation, name, shape, always) select %s, %s, %s, "
            "coalesce(bool_and(always), false) from takeback.log returning no, since",
            [root.oid, root.shown, shape],
        )[0]
        run(connection, "insert into takeback.form values (%s, %s, %s)", [log, since, shape])
        run_all(connection, triggers.log_table(log, root))
        _give_to_owner(connection, log)
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


def _give_to_owner(connection: "Connection", log: int) -> None:
    """Whoever protected the table, functions of the schema's owner read the log, and no policy is in their way."""
    asked = "select nspowner::regrole::text, quote_ident(current_user) from pg_namespace where nspname = %s"
    owner, we = ask(connection, asked, [SCHEMA])[0]
    if owner != we:
        run(connection, f"alter table {log_name(log)} owner to {owner}")


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
    run_all(connection, triggers.wider_log(log, new))
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
                run(connection, "select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
                install(connection, table, roots[table.root])


def run_all(connection: "Connection", statements: Iterable[str]) -> None:
    for statement in statements:
        run(connection, statement)
