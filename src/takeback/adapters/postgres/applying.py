"""Put rows back, and read them again. Statements over whole tables: the server does the work."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from takeback.adapters.postgres.checking import Ties, other_uniques
from takeback.adapters.postgres.connecting import Question, ask, driver, run
from takeback.adapters.postgres.net import ACTIVE, Net, current, key_of, matches, pairs, same, side
from takeback.adapters.postgres.tables import Column, Table, quoted
from takeback.adapters.postgres.triggers import EVENTS, trigger_name

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


class Moved(Exception):
    """Someone changed a row between the look and the act: look again."""


def apply(connection: "Connection", ties: Ties, full: bool) -> dict[str, dict[str, int]]:
    """How many rows of which table. `full`: triggers and foreign keys are off, so the order does not matter; else rows
    come before others point to them, and go when none does any more. Where a unique value is in the way of that, the
    other way round is tried."""
    if full:
        return _in_order(connection, ties, full, _GOING_FIRST)
    psycopg = driver()
    run(connection, "savepoint takeback_order")
    try:
        return _in_order(connection, ties, full, _COMING_FIRST)
    except (psycopg.errors.IntegrityError, Moved):
        run(connection, "rollback to savepoint takeback_order")
    return _in_order(connection, ties, full, _GOING_FIRST)


_GOING_FIRST = ("deleted", "updated", "inserted")
_COMING_FIRST = ("inserted", "updated", "deleted")


def _in_order(
    connection: "Connection", ties: Ties, full: bool, order: Sequence[str]
) -> dict[str, dict[str, int]]:
    nets = list(ties.nets.values()) if full else _children_first(ties)
    in_place = {net.log: _in_place(net, ties, full) for net in nets}
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
            ties.suit(connection, net)
            done[net.table.shown][word] += acts[word](connection, net, in_place[net.log])
    for net in nets:
        if net.keyed and not in_place[net.log]:
            _as_updates(connection, net, done[net.table.shown])
    return {name: counts for name, counts in done.items() if any(counts.values())}


def _as_updates(connection: "Connection", net: Net, done: dict[str, int]) -> None:
    """Rows that went and came again, for the sake of their unique values, were updated."""
    both = ask(
        connection,
        f"select count(*) from {net.name} n where n.status in {ACTIVE} and n.pre and n.cur",
    )[0][0]
    done["deleted"] -= both
    done["inserted"] -= both
    done["updated"] += both


def _in_place(net: Net, ties: Ties, full: bool) -> bool:
    """Update rows, instead of deleting them all and inserting them all: not if two of them may swap a unique value on
    the way, unless other rows point to them and would go with them."""
    if not net.keyed:
        return False
    if net.tally:
        return True
    if any(one.identity == "a" and one.number not in _key(net) for one in net.table.columns):
        return False
    pointed_to = any(one.parent == net.table.oid for one in ties.foreign)
    return not other_uniques(net) or (pointed_to and not full)


def _key(net: Net) -> Sequence[int]:
    return net.table.key.columns if net.table.key else ()


def _written(columns: Sequence[Column]) -> list[Column]:
    return [one for one in columns if not one.generated]


def _untouched(net: Net) -> str:
    """Still what the effect left, unless it is to be overwritten whatever it is."""
    return f"(n.status = 'force' or {same(net.table.columns, 't.', 'n.q')})"


def _delete(connection: "Connection", net: Net, in_place: bool) -> int:
    if not net.keyed:
        return _delete_copies(connection, net)
    if net.tally and not net.tally.after:
        return 0
    if net.tally and not net.tally.both:
        there = f"{matches(net.table, 'q.c{0}')} and {same(net.table.columns, 't.', 'q.c')}"
        rows = run(connection, f"delete from {net.table.source} t using {side(net, '>')} q where {there}")
        return _as_many(rows, net.tally.after)
    which = "n.cur and not n.pre" if in_place else "n.cur"
    rows = run(
        connection,
        f"delete from {net.table.source} t using {net.name} n where n.status in {ACTIVE} and {which} "
        f"and {matches(net.table, key_of(net))} and {_untouched(net)}",
    )
    return _as_many(rows, net.tally.after if net.tally else _active(connection, net, which))


def _delete_copies(connection: "Connection", net: Net) -> int:
    table = net.table
    return run(
        connection,
        f"delete from {table.source} t using (select t.tableoid as part, t.ctid as place, n.copies, "
        f"row_number() over (partition by n.image) as number from {table.source} t join {net.name} n "
        f"on n.image = {current(table.columns)}::text where n.status in {ACTIVE} and n.post) k "
        f"where t.tableoid = k.part and t.ctid = k.place and k.number <= k.copies",
    )


def _update(connection: "Connection", net: Net, in_place: bool) -> int:
    if not in_place or (net.tally and not net.tally.both):
        return 0
    columns = [one for one in _written(net.table.columns) if one.identity != "a"]
    if not columns:
        return 0
    if net.tally and net.paired:
        to = ", ".join(f"{quoted(one.name)} = p.c{one.number}" for one in columns)
        there = f"{matches(net.table, 'q.c{0}')} and {same(net.table.columns, 't.', 'q.c')}"
        rows = run(connection, f"update {net.table.source} t set {to} from {pairs(net)} where {there}")
        return _as_many(rows, net.tally.both)
    to = ", ".join(f"{quoted(one.name)} = n.p{one.number}" for one in columns)
    which = "n.cur and n.pre"
    rows = run(
        connection,
        f"update {net.table.source} t set {to} from {net.name} n where n.status in {ACTIVE} and {which} "
        f"and {matches(net.table, key_of(net))} and {_untouched(net)}",
    )
    return _as_many(rows, net.tally.both if net.tally else _active(connection, net, which))


def _insert(connection: "Connection", net: Net, in_place: bool) -> int:
    if net.tally and not net.tally.before:
        return 0
    columns = _written(net.table.columns)
    which = "n.pre and not n.cur" if in_place else "n.pre"
    names = ", ".join(quoted(one.name) for one in columns)
    if net.tally and not net.tally.both and columns:
        values = ", ".join(f"p.c{one.number}" for one in columns)
        into = f"{net.table.sql} ({names}) overriding system value"
        return run(connection, f"insert into {into} select {values} from {side(net, '<')} p")
    values = ", ".join(f"n.p{one.number}" for one in columns)
    copies = "" if net.keyed else ", generate_series(1, n.copies)"
    if not columns:
        return run(
            connection,
            f"insert into {net.table.sql} select from {net.name} n{copies} where n.status in {ACTIVE} and {which}",
        )
    return run(
        connection,
        f"insert into {net.table.sql} ({names}) overriding system value select {values} from {net.name} n{copies} "
        f"where n.status in {ACTIVE} and {which}",
    )


def _active(connection: "Connection", net: Net, which: str) -> int:
    asked = f"select count(*) from {net.name} n where n.status in {ACTIVE} and {which}"
    return ask(connection, asked)[0][0]


def _as_many(rows: int, expected: int) -> int:
    """Only rows that are as the effect left them are put back."""
    if rows != expected:
        raise Moved
    return rows


def about_differing(net: Net) -> Question:
    """Read everything again: how many rows are not as they were before the effect."""
    table = net.table
    if not net.keyed:
        now = (
            f"(select {current(table.columns)}::text as image, count(*) as there from {table.source} t "
            f"where {current(table.columns)}::text in (select image from {net.name}) group by 1)"
        )
        return Question(
            f"select count(*) from {net.name} n left join {now} c on c.image = n.image where n.status in {ACTIVE} "
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


def quiet(tables: Sequence[Table]) -> Iterator[str]:
    """Where we may not switch off all triggers of a session: those of the application, table by table."""
    for table in tables:
        if table.triggers:
            yield f"alter table {table.sql} disable trigger user"
            for event in EVENTS:
                yield f"alter table {table.sql} enable always trigger {trigger_name(event)}"
        for name, _ in table.rules:
            yield f"alter table {table.sql} disable rule {quoted(name)}"


_STATES = {"O": "enable", "A": "enable always", "R": "enable replica", "D": "disable"}


def loud(tables: Sequence[Table]) -> Iterator[str]:
    """Each as it was."""
    for table in tables:
        for name, state in table.triggers:
            yield f"alter table {table.sql} {_STATES[state]} trigger {quoted(name)}"
        for name, state in table.rules:
            yield f"alter table {table.sql} {_STATES[state]} rule {quoted(name)}"
