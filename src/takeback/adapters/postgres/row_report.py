"""Rows in words: what an effect changed, what stands in the way of its undo, and who put it there."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.database import RowChange
from takeback.adapters.postgres import net as nets
from takeback.adapters.postgres.connection import Connection
from takeback.adapters.postgres.logs import by_relation, log_name
from takeback.adapters.postgres.net import IN_CONFLICTS, Net, key_of, matches, same, same_key
from takeback.adapters.postgres.tables import PostgresColumn, Table, quoted, tables
from takeback.model.ids import short

LONGEST = 40


class RowObstacle(NamedTuple):
    """One row that undo would have to overwrite, or cannot put back."""

    table: str
    key: str
    kind: str
    detail: str

    @property
    def sentence(self) -> str:
        return f"{self.table} {self.key} {self.detail}".replace("  ", " ").strip()


def obstacles(connection: Connection, net: Net, most: int) -> list[RowObstacle]:
    columns = net.table.columns
    before, after = (_texts(f"n.{side}{one.number}" for one in columns) for side in "pq")
    if not net.keyed:
        rows = connection.ask(
            f"select n.status, n.copies, n.there, {after} from {net.name} n "
            f"where n.status in {IN_CONFLICTS} limit {most}"
        )
        return [
            RowObstacle(net.table.shown, "", status, _in_words_of_copies(net.table, copies, there, row))
            for status, copies, there, row in rows
        ]
    now = _texts(f"t.{quoted(one.name)}" for one in columns)
    rows = connection.ask(
        f"with c as (select n.*, row_number() over () as place from {net.name} n "
        f"where n.status in {IN_CONFLICTS} limit {most}), "
        f"w as (select distinct on (c.place) c.place, l.op, l.sign, l.ctid as at from c join {log_name(net.log)} l "
        f"on {same_key(net, 'l.c', 'c')} order by c.place, l.step desc, l.sign desc) "
        f"select n.status, case when n.pre then {before} end, case when n.post then {after} end, "
        f"case when t.ctid is not null then {now} end, o.id, "
        f"w.op <> {net.op} and case when t.ctid is null then w.sign < 0 else w.sign > 0 "
        f"and {same(columns, 'l.c', 't.')} end "
        f"from c n left join {net.table.source} t on {matches(net.table, key_of(net))} "
        f"left join w on w.place = n.place left join {log_name(net.log)} l on l.ctid = w.at "
        f"left join takeback.op o on o.no = w.op order by n.place"
    )
    return [
        RowObstacle(
            net.table.shown,
            _key_words(net.table, target or expected or []),
            status,
            _in_words(net.table, status, target, expected, found, writer if theirs else None),
        )
        for status, target, expected, found, writer, theirs in rows
    ]


def _texts(expressions: Iterator[str]) -> str:
    return f"array[{', '.join(f'{one}::text' for one in expressions)}]::text[]"


def _key_words(table: Table, row: list[str | None]) -> str:
    assert table.key
    values = dict(zip((one.number for one in table.columns), row, strict=True))
    return ",".join(f"{table.column(number).name}={values[number]}" for number in table.key.columns)


def _shown(value: str | None) -> str:
    if value is None:
        return "NULL"
    return repr(value if len(value) <= LONGEST else f"{value[:LONGEST]}…")


_WHAT = {
    "changed": "was changed since",
    "missing": "was deleted since",
    "reoccupied": "is there again since",
    "unique": "cannot come back, because another row has a value that must be unique",
    "parent": "cannot come back, because the row that it points to is gone",
    "child": "cannot go, because rows that came since point to it",
}


def _in_words(
    table: Table,
    status: str,
    target: list[str | None] | None,
    expected: list[str | None] | None,
    found: list[str | None] | None,
    writer: str | None,
) -> str:
    said = _WHAT[status]
    who = f"changed by effect {short(writer)}" if writer else "changed by someone who is not recorded"
    parts: list[str] = []
    for place, column in enumerate(table.columns):
        if status == "changed" and expected and found and expected[place] == found[place]:
            continue  # others left it as it was
        was, left, now = (side[place] if side else None for side in (target, expected, found))
        sides = {one[place] for one in (target, expected, found) if one}
        if len(sides) < 2:
            continue
        words: list[str] = []
        if expected:
            words.append(f"expected {_shown(left)}")
        if found:
            words.append(f"is {_shown(now)}")
        if target:
            words.append(f"undo would put back {_shown(was)}")
        parts.append(f"{column.name}: {', '.join(words)}")
    if not target:
        parts.append("undo would delete it")
    detail = f" ({'; '.join(parts[:6])}{'; …' if len(parts) > 6 else ''})" if parts else ""
    return f"{said}{detail}" + (f", {who}" if status in ("changed", "missing", "reoccupied") else "")


def _in_words_of_copies(table: Table, copies: int, there: int, row: list[str | None]) -> str:
    values = ", ".join(f"{one.name} {_shown(value)}" for one, value in zip(table.columns, row, strict=True))
    return (
        f"the effect left {copies} row{'s' if copies > 1 else ''} with {values}, and {there} of them are still there; "
        f"changed by someone who is not recorded"
    )


def effect_rows(
    connection: Connection, op: int, logs: Sequence[int], turned: bool = False, wide: bool = True
) -> Generator[RowChange]:
    """The changes of an effect, table by table; `op` is the one that the images belong to."""
    found = list(_nets(connection, op, logs, turned, wide))
    gone = sorted(set(logs) - {net.log for net in found})
    for net in (*found, *(Net(table, log, op, turned, wide) for log, table in _dropped(connection, gone))):
        yield from row_changes(connection, net)


def _dropped(connection: Connection, logs: Sequence[int]) -> Iterator[tuple[int, Table]]:
    """Tables that are no more, as their logs know them: without a key."""
    for log, oid, shown, shape in connection.ask(
        "select no, relation::int8, name, shape from takeback.log where no = any (%s)", [list(logs)]
    ):
        schema, _, name = shown.partition(".")
        columns = tuple(PostgresColumn(one[0], one[4], "", "", False, "", tuple(one)) for one in shape)
        yield log, Table(oid, schema, name, "r", False, oid, False, columns)


def net_counts(
    connection: Connection, op: int, logs: Sequence[int], wide: bool = True
) -> Iterator[tuple[int, str, dict[str, int]]]:
    """How many rows those are, by log, with the name of its table. Not of tables that are no more."""
    for net in _nets(connection, op, logs, False, wide):
        copies = "1" if net.keyed else "n.copies"
        sums = ", ".join(
            f"coalesce(sum({copies}) filter (where {which}), 0)::int8"
            for which in ("not n.pre", "n.pre and n.post", "not n.post")
        )
        inserted, updated, deleted = connection.ask(f"select {sums} from {_changes(connection, net)}")[0]
        yield net.log, net.table.shown, {"inserted": inserted, "updated": updated, "deleted": deleted}


def _nets(connection: Connection, op: int, logs: Sequence[int], turned: bool, wide: bool) -> Iterator[Net]:
    known = by_relation(connection, logs)
    for table in tables(connection, list(known)):
        yield Net(table, known[table.oid], op, turned, wide)


def _changes(connection: Connection, net: Net) -> str:
    """Those rows, to select from; one that became what it was before is none of them."""
    alike = same(net.table.columns, "n.p", "n.q")
    differ = f" where not (n.pre and n.post and {alike})" if net.keyed else ""
    return f"({nets.alone(connection, net)}) n{differ}"


def row_changes(connection: Connection, net: Net) -> Iterator[RowChange]:
    """Read from the server piece by piece."""
    names = [one.name for one in net.table.columns]
    before, after = (_texts(f"n.{side}{one.number}" for one in net.table.columns) for side in "pq")
    copies = "1" if net.keyed else "n.copies"
    # By key; those of a statement that changed many rows come as it went through them.
    order = f" order by {net.listed_key(key_of(net))}" if net.keyed and not net.wide else ""
    with connection.cursor(f"takeback_rows_{net.log}") as cursor:
        cursor.itersize = 1000
        cursor.execute(
            f"select case when n.pre then {before} end, case when n.post then {after} end, {copies} "
            f"from {_changes(connection, net)}{order}".encode()
        )
        for was, became, times in cursor:
            key = _key_words(net.table, was or became) if net.keyed else ""
            for _ in range(times):
                yield RowChange(net.table.shown, key, _named(names, was), _named(names, became))


def _named(names: list[str], row: list[str | None] | None) -> dict[str, str | None] | None:
    return None if row is None else dict(zip(names, row, strict=True))


def later_writers(connection: Connection, net: Net) -> dict[int, int]:
    """Ops that wrote since to the rows that are in the way; with the number of their last step."""
    if not net.keyed:
        return {}
    log, key = log_name(net.log), net.listed_key("c{}")
    connection.execute(b"set local enable_nestloop = off")  # no log has an index of keys
    rows: list[tuple[Any, ...]] = connection.ask(
        f"select l.op, max(l.step) from {net.name} n join {log} l on {same_key(net, 'l.c', 'n')} "
        f"join (select {key}, max(step) as step from {log} where {net.images} group by {key}) x "
        f"on {same_key(net, 'x.c', 'n')} "
        f"where n.status in {IN_CONFLICTS} and l.op <> {net.op} and l.step > x.step group by 1"
    )
    connection.execute(b"set local enable_nestloop = on")
    return dict(rows)
