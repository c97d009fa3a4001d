"""Put back what a change of the schema had lost: the rows of a table, the values of a column."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from takeback.adapters.postgres import put_back
from takeback.adapters.postgres.connection import Connection, driver
from takeback.adapters.postgres.tables import Table, may_switch_off, quoted, tables

Saved = dict[str, Any]


class UnfitRows(Exception):
    """Rows that others wrote since do not fit the earlier definition."""


def lost_rows(saved: Saved) -> str:
    return f"takeback.saved_{saved['no']}"


@contextmanager
def quietly(connection: Connection, table: Table) -> Iterator[None]:
    """Without any triggers, ours included."""
    off, on = put_back.switches([table], may_switch_off(connection))
    op = connection.ask("select current_setting('takeback.op', true)")[0][0] or ""
    connection.run("select set_config('takeback.op', '', true)")
    connection.run_all(off)
    yield
    connection.run_all(on)
    connection.run("select set_config('takeback.op', %s, true)", [op])


def refill_table(connection: Connection, saved: Saved, oid: int) -> None:
    """All rows, in the order in which they were."""
    table = tables(connection, [oid])[0]
    columns = [one for one in table.columns if not one.generated]
    names = ", ".join(quoted(one.name) for one in columns)
    values = ", ".join(f"s.c{one.number}" for one in columns)
    into = f"{table.sql} ({names}) overriding system value" if columns else table.sql
    with quietly(connection, table):
        connection.run(f"insert into {into} select {values} from {lost_rows(saved)} s order by s.place")


def refill_column(connection: Connection, saved: Saved, relation: int, old: int, new: int) -> None:
    """The column is there again: the number that it had, and the one it has. Rows that came since have nothing there;
    rows that went since are gone."""
    table = tables(connection, [relation])[0]
    if saved["whole"]:
        _replace_all(connection, saved, table, {**saved.get("now", {}), old: new})
        return
    column = table.column(new)
    if not column.generated and column.identity != "a":
        to = f"{quoted(column.name)} = s.c{old}"
        with quietly(connection, table):
            connection.run(
                f"update {table.source} t set {to} from {lost_rows(saved)} s where {_keys(table, saved)}"
            )


def _replace_all(connection: Connection, saved: Saved, table: Table, numbers: dict[int, int]) -> None:
    """Its rows have no key. They were not changed since, so all of them are the earlier ones."""
    here = {one.number: one for one in table.columns if not one.generated}
    kept: list[int] = saved["kept"]
    columns = {old: here[numbers.get(old, old)] for old in kept if numbers.get(old, old) in here}
    names = ", ".join(quoted(one.name) for one in columns.values())
    values = ", ".join(f"s.c{old}" for old in columns)
    with quietly(connection, table):
        connection.run(f"delete from {table.source}")
        connection.run(
            f"insert into {table.sql} ({names}) overriding system value select {values} "
            f"from {lost_rows(saved)} s order by s.place"
        )


def _keys(table: Table, saved: Saved, alias: str = "s") -> str:
    return " and ".join(
        f"t.{quoted(table.column(_now(saved, one)).name)} = {alias}.c{one}" for one in saved["key"]
    )


def _now(saved: Saved, number: int) -> int:
    """The number that a column of the copy has in the table by now."""
    return saved.get("now", {}).get(number, number)


def retype(connection: Connection, saved: Saved, number: int, was: dict[str, Any]) -> None:
    """Values that the change made become what they were made from; what others wrote since is converted, if that loses
    nothing."""
    table = tables(connection, [saved["relation"]])[0]
    column = table.column(_now(saved, number))
    name = quoted(column.name)
    this = f"alter table {table.sql} alter column {name}"
    left = f"takeback.left_{saved['no']}"
    connection.run("drop table if exists pg_temp.takeback_changed")
    changed = False
    if not saved["whole"]:
        keys = "".join(f", t.{quoted(table.column(_now(saved, one)).name)} as c{one}" for one in saved["key"])
        same = f"{_keys(table, saved, 'l')} and pg_catalog.record_image_eq(row(t.{name}), row(l.c{number}))"
        connection.run(
            f"create temp table takeback_changed on commit drop as select t.{name}::text as value{keys} "
            f"from {table.source} t where not exists (select from {left} l where {same})"
        )
        changed = connection.ask("select exists (select from pg_temp.takeback_changed)")[0][0]
    wanted = f"{was['type']} collate {was['collation']}" if was.get("collation") else was["type"]
    _convert(connection, this, name, wanted, was["type"], changed)
    if saved["whole"]:
        _replace_all(connection, saved, tables(connection, [table.oid])[0], saved.get("now", {}))
        return
    with quietly(connection, table):
        connection.run(
            f"update {table.source} t set {name} = s.c{number} from {lost_rows(saved)} s where {_keys(table, saved)} "
            f"and not exists (select from pg_temp.takeback_changed x where {_keys(table, saved, 'x')})"
        )
    lossy = connection.ask(
        f"select exists (select from {table.source} t join pg_temp.takeback_changed x on {_keys(table, saved, 'x')} "
        f"where t.{name}::text is distinct from x.value)"
    )[0][0]
    if lossy:
        shown = f"{table.shown}.{column.name}"
        raise UnfitRows(f"what was written to {shown} since does not fit its type of before")


def _convert(connection: Connection, this: str, name: str, wanted: str, type_: str, changed: bool) -> None:
    ways = [f"{this} type {wanted}", f"{this} type {wanted} using {name}::text::{type_}"]
    if not changed:
        ways.append(f"{this} drop not null, alter column {name} type {wanted} using null")
    for number, way in enumerate(ways):
        connection.run("savepoint takeback_convert")
        try:
            connection.run(way)
            connection.run("release savepoint takeback_convert")
            return
        except driver().Error as error:
            connection.run("rollback to savepoint takeback_convert")
            if number == len(ways) - 1:
                raise UnfitRows(
                    f"what is in {name} now does not fit its type of before: {error.diag.message_primary}"
                ) from None
