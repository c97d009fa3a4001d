"""Put rows back, and read them again. Statements over whole tables: the server does the work."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from takeback.adapters.postgres.connection import Connection, Question, driver
from takeback.adapters.postgres.constraints import Ties, other_uniques
from takeback.adapters.postgres.net import (
    ACTIVE,
    Net,
    current,
    key_of,
    loops,
    matches,
    pairs,
    same,
    side,
    there_now,
)
from takeback.adapters.postgres.tables import Table, literal, quoted


class RowsMoved(Exception):
    """Someone changed a row between the look and the act: look again."""


def apply(connection: Connection, ties: Ties, full: bool) -> dict[str, dict[str, int]]:
    """How many rows of which table. `full`: triggers and foreign keys are off, so the order does not matter; else rows
    come before others point to them, and go when none does any more. Where a unique value is in the way of that, the
    other way round is tried."""
    if full:
        return _in_order(connection, ties, full, _GOING_FIRST)
    connection.run("savepoint takeback_order")
    try:
        return _in_order(connection, ties, full, _COMING_FIRST)
    except (driver().errors.IntegrityError, RowsMoved):
        connection.run("rollback to savepoint takeback_order")
    return _in_order(connection, ties, full, _GOING_FIRST)


def apply_at_once(
    connection: Connection, ties: Ties, first: Sequence[Question], last: Sequence[Question]
) -> tuple[dict[str, dict[str, int]], list[list[tuple[Any, ...]]]]:
    """Like `apply`, in one round trip; the tallies must say how many rows each table changes. Sends `first` before
    and `last` after; returns the answers to `last`."""
    acts = [
        (net, word, Question(sql), getattr(net.tally, side))
        for word, (side, act) in _PLAIN_ACTS.items()
        for net in ties.nets.values()
        if net.tally and (sql := act(net))
    ]
    asked = [question for net, _, act, _ in acts for question in (loops(net), act)]
    found = connection.answers([*first, *asked, *last])
    done: dict[str, dict[str, int]] = {}
    for (net, word, _, expected), answer in zip(acts, found[len(first) + 1 :: 2], strict=False):
        counts = done.setdefault(net.table.shown, {"inserted": 0, "updated": 0, "deleted": 0})
        counts[word] += _as_many(answer.number, expected)
    return done, [answer.rows for answer in found[len(first) + len(asked) :]]


_GOING_FIRST = ("deleted", "updated", "inserted")
_COMING_FIRST = ("inserted", "updated", "deleted")


def _in_order(
    connection: Connection, ties: Ties, full: bool, order: Sequence[str]
) -> dict[str, dict[str, int]]:
    nets = list(ties.nets.values()) if full else _children_first(ties)
    in_place = {net.log: _in_place(net, ties, full) for net in nets}
    several = len({net.joined for net in nets}) > 1
    done = {net.table.shown: {"inserted": 0, "updated": 0, "deleted": 0} for net in nets}
    if order[0] == "inserted":  # what is not updated must be gone before it can come back
        for net in nets:
            if not in_place[net.log]:
                done[net.table.shown]["deleted"] += _delete(connection, net, False)
    acts = {"deleted": _delete, "updated": _update, "inserted": _insert}
    for word in order:
        for net in reversed(nets) if word == "inserted" else nets:
            if word == "deleted" and order[0] == "inserted" and not in_place[net.log]:
                continue
            if several:  # else that was said when they were counted
                connection.run(loops(net).sql)
            done[net.table.shown][word] += acts[word](connection, net, in_place[net.log])
    for net in nets:
        if net.keyed and not in_place[net.log]:
            _as_updates(connection, net, done[net.table.shown])
    return {name: counts for name, counts in done.items() if any(counts.values())}


def _as_updates(connection: Connection, net: Net, done: dict[str, int]) -> None:
    """Rows that went and came again, for the sake of their unique values, were updated."""
    again = f"select count(*) from {net.name} n where n.status in {ACTIVE} and n.pre and n.cur"
    both = connection.ask(again)[0][0]
    for word, count in (("deleted", -both), ("inserted", -both), ("updated", both)):
        done[word] += count


def _in_place(net: Net, ties: Ties, full: bool) -> bool:
    """Update rows, instead of deleting them all and inserting them all: not if two of them may swap a unique value on
    the way, unless other rows point to them and would go with them."""
    if not net.keyed:
        return False
    if net.tally:
        return True
    if any(one.identity == "a" and one.number not in net.key.columns for one in net.table.columns):
        return False
    pointed_to = any(one.parent == net.table.oid for one in ties.foreign)
    return not other_uniques(net) or (pointed_to and not full)


def _untouched(net: Net) -> str:
    """Still what the effect left, unless it is to be overwritten whatever it is."""
    return f"(n.status = 'force' or {same(net.table.columns, 't.', 'n.q')})"


def _delete(connection: Connection, net: Net, in_place: bool) -> int:
    if net.keyed:
        return _put(connection, net, _delete_sql(net, in_place), "after", _going(in_place))
    table = net.table
    return connection.run(
        f"delete from {table.source} t using (select t.tableoid as part, t.ctid as place, n.copies, "
        f"row_number() over (partition by n.image) as number from {table.source} t join {net.name} n "
        f"on n.image = {current(table.columns)}::text where n.status in {ACTIVE} and n.post) k "
        f"where t.tableoid = k.part and t.ctid = k.place and k.number <= k.copies"
    )


def _going(in_place: bool) -> str:
    return "n.cur and not n.pre" if in_place else "n.cur"


def _delete_sql(net: Net, in_place: bool) -> str:
    """Empty if no row is to go; and so for the others."""
    if net.tally and not net.tally.after:
        return ""
    if net.tally and not net.tally.both:
        there = f"{matches(net.table, 'q.c{0}')} and {same(net.table.columns, 't.', 'q.c')}"
        return f"delete from {net.table.source} t using {side(net, '>')} q where {there}"
    return (
        f"delete from {net.table.source} t using {net.name} n where n.status in {ACTIVE} and {_going(in_place)} "
        f"and {matches(net.table, key_of(net))} and {_untouched(net)}"
    )


def _update(connection: Connection, net: Net, in_place: bool) -> int:
    return _put(connection, net, _update_sql(net), "both", _CHANGING) if in_place else 0


_CHANGING = "n.cur and n.pre"


def _update_sql(net: Net) -> str:
    columns = [one for one in net.table.columns if not one.generated and one.identity != "a"]
    if not columns or (net.tally and not net.tally.both):
        return ""
    if net.tally and net.paired:
        to = ", ".join(f"{quoted(one.name)} = p.c{one.number}" for one in columns)
        there = f"{matches(net.table, 'q.c{0}')} and {same(net.table.columns, 't.', 'q.c')}"
        return f"update {net.table.source} t set {to} from {pairs(net)} where {there}"
    to = ", ".join(f"{quoted(one.name)} = n.p{one.number}" for one in columns)
    return (
        f"update {net.table.source} t set {to} from {net.name} n where n.status in {ACTIVE} and {_CHANGING} "
        f"and {matches(net.table, key_of(net))} and {_untouched(net)}"
    )


def _insert(connection: Connection, net: Net, in_place: bool) -> int:
    sql = _insert_sql(net, in_place)
    return connection.run(sql) if sql else 0


def _insert_sql(net: Net, in_place: bool) -> str:
    if net.tally and not net.tally.before:
        return ""
    columns = [one for one in net.table.columns if not one.generated]
    which = "n.pre and not n.cur" if in_place else "n.pre"
    into = f"{net.table.sql} ({', '.join(quoted(one.name) for one in columns)}) overriding system value"
    if net.tally and not net.tally.both and columns:
        values = ", ".join(f"p.c{one.number}" for one in columns)
        return f"insert into {into} select {values} from {side(net, '<')} p"
    values = ", ".join(f"n.p{one.number}" for one in columns)
    copies = "" if net.keyed else ", generate_series(1, n.copies)"
    rows = f"select {values} from {net.name} n{copies} where n.status in {ACTIVE} and {which}"
    return f"insert into {into if columns else net.table.sql} {rows}"


def _put(connection: Connection, net: Net, sql: str, kind: str, which: str) -> int:
    """Only rows that are as the effect left them: as many as the `kind` of the tally says, or as are marked so."""
    if not sql:
        return 0
    rows = connection.run(sql)
    if net.tally:
        return _as_many(rows, getattr(net.tally, kind))
    marked = f"select count(*) from {net.name} n where n.status in {ACTIVE} and {which}"
    return _as_many(rows, connection.ask(marked)[0][0])


# What is done where every row can be put back as it is: in this order, to rows of that kind.
_PLAIN_ACTS: "dict[str, tuple[str, Callable[[Net], str]]]" = {
    "deleted": ("after", lambda net: _delete_sql(net, True)),
    "updated": ("both", _update_sql),
    "inserted": ("before", lambda net: _insert_sql(net, True)),
}


def _as_many(rows: int, expected: int) -> int:
    """Only rows that are as the effect left them are put back."""
    if rows != expected:
        raise RowsMoved
    return rows


def about_differing(net: Net) -> Question:
    """Read everything again: how many rows are not as they were before the effect."""
    table = net.table
    if not net.keyed:
        return Question(
            f"select count(*) from {net.name} n left join {there_now(net, net.name)} c on c.image = n.image "
            f"where n.status in {ACTIVE} "
            f"and coalesce(c.there, 0) <> n.there + case when n.pre then n.copies else -n.copies end"
        )
    if net.tally and not net.tally.after:
        there = f"from {side(net, '<')} p join {table.source} t on {matches(table, 'p.c{0}')}"
        alike = f"where {same(table.columns, 't.', 'p.c')}"
        return Question(f"select {sum(net.tally)} - count(*) {there} {alike}")
    if net.tally and not net.tally.both and not net.tally.before:
        there = f"from {side(net, '>')} q join {table.source} t on {matches(table, 'q.c{0}')}"
        return Question(f"select count(*) {there}")
    is_pre = same(table.columns, "t.", "n.p")
    return Question(
        f"select count(*) from {net.name} n left join {table.source} t on {matches(table, key_of(net))} "
        f"where n.status in ('apply', 'force', 'already') "
        f"and case when n.pre then t.ctid is null or not {is_pre} else t.ctid is not null end"
    )


def _children_first(ties: Ties) -> list[Net]:
    """Rows that point to others before those they point to; where they point in a circle, in any order."""
    left = dict(ties.nets)
    ordered: list[Net] = []
    while left:
        free = [
            oid
            for oid in left
            if not any(one.parent == oid and one.child in left and one.child != oid for one in ties.foreign)
        ] or list(left)
        for oid in free:
            ordered.append(left.pop(oid))
    return ordered


# Those of ours that are attached; in a transaction that has locked the table.
_OURS_ON = """do $takeback$ declare ours record; begin
  for ours in select tgname from pg_trigger where tgrelid = {oid} and tgname like 'zz\\_takeback\\__' loop
    execute format('alter table %s enable always trigger %I', {name}, ours.tgname);
  end loop; end $takeback$"""


def switches(tables: Sequence[Table], full: bool) -> tuple[list[str], list[str]]:
    """What switches triggers off, and on again: `full`, all of the session."""
    if full:
        return ["set local session_replication_role = replica"], [
            "set local session_replication_role = origin"
        ]
    return list(_quiet(tables)), list(_loud(tables))


def _quiet(tables: Sequence[Table]) -> Iterator[str]:
    """Where we may not switch off all triggers of a session: those of the application, table by table."""
    for table in tables:
        if table.triggers:
            yield f"alter table {table.sql} disable trigger user"
            yield _OURS_ON.format(oid=table.oid, name=literal(table.sql))
        for name, _ in table.rules:
            yield f"alter table {table.sql} disable rule {quoted(name)}"


_STATES = {"O": "enable", "A": "enable always", "R": "enable replica", "D": "disable"}


def _loud(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        for name, state in table.triggers:
            yield f"alter table {table.sql} {_STATES[state]} trigger {quoted(name)}"
        for name, state in table.rules:
            yield f"alter table {table.sql} {_STATES[state]} rule {quoted(name)}"
