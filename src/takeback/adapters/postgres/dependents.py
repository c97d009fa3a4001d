"""Later effects that stand on one, and the other past they get when it is taken back without them."""

from takeback.adapters.postgres import markers
from takeback.adapters.postgres.connection import Connection, wait_no_longer
from takeback.adapters.postgres.ddl.definitions import steps_of, where_it_is_now
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.markers import PostgresOp
from takeback.adapters.postgres.net import IN_OVERWRITABLE, Net, key_of, same, same_key
from takeback.adapters.postgres.row_report import later_writers
from takeback.adapters.postgres.unwind import Look, unwind
from takeback.model.change import OnConflict

# Give a later effect another past, when what its rows came from is taken back without them. A row went from A to B by
# one effect and from B to C by a later one. If the first is undone and this row is skipped, the later one must not
# bring B back when it is undone in its turn: what it found is now A.


def rebase(connection: Connection, seen: Look) -> bool:
    """True if there was such an effect."""
    # No log has an index of keys: looking up each row for itself would read all of it for each.
    connection.run("set local enable_nestloop = off")
    given = [_rebase(connection, one) for one in seen.ties.nets.values() if one.keyed]
    connection.run("set local enable_nestloop = on")
    return any(given)


def _rebase(connection: Connection, net: Net) -> bool:
    """Only the first effect that came after and made a difference, and only if it found what this one left."""
    log, key, by_key = log_name(net.log), net.listed_key("c{}"), net.listed_key(key_of(net))
    numbers = [one.number for one in net.table.columns]
    connection.run(
        f"create temp table takeback_rebase on commit drop as "
        f"select distinct on ({by_key}) n.ctid as place, l.op, l.step from {net.name} n "
        f"join {log} l on {same_key(net, 'l.c')} "
        f"join (select {key}, max(step) as step from {log} where {net.images} group by {key}) x "
        f"on {same_key(net, 'x.c')} "
        f"join takeback.op o on o.no = l.op "
        f"where n.status in {IN_OVERWRITABLE} and l.op <> {net.op} and l.step > x.step and o.undone_by is null "
        f"and {_differs(net, log)} "
        f"order by {by_key}, l.step"
    )
    found = same(net.table.columns, "l.c", "n.q")
    rows = connection.run(
        f"with gone as (delete from {log} l using pg_temp.takeback_rebase r join {net.name} n on n.ctid = r.place "
        f"where l.op = r.op and l.step = r.step and l.sign < 0 and n.post and {same_key(net, 'l.c')} and {found} "
        f"returning r.place), "
        f"come as (insert into {log} (op, step, sign, {', '.join(f'c{one}' for one in numbers)}) "
        f"select r.op, r.step, -1, {', '.join(f'n.p{one}' for one in numbers)} from pg_temp.takeback_rebase r "
        f"join {net.name} n on n.ctid = r.place where n.pre and (not n.post or r.place in (select place from gone)) "
        f"returning 1) select from gone union all select from come"
    )
    connection.run(
        f"update takeback.op o set images = o.images || jsonb_build_object('{net.log}', "
        f"takeback.numbers(o.no, {net.log})) where o.no in (select op from pg_temp.takeback_rebase)"
    )
    connection.run("drop table pg_temp.takeback_rebase")
    return rows > 0


def _differs(net: Net, log: str) -> str:
    """Whether effect `l.op` left its row of `n` otherwise than it is in `n.q`: an effect that wrote the same row again
    passes on what it found."""
    last = f"(select max(m.step) from {log} m where m.op = l.op and {same_key(net, 'm.c')})"
    left = f"from {log} p where p.op = l.op and p.sign > 0 and {same_key(net, 'p.c')} and p.step = {last}"
    content = same(net.table.columns, "p.c", "n.q")
    return f"case when n.post then not exists (select {left} and {content}) else exists (select {left}) end"


# Which later effects stand on one: they changed the same rows, their rows point to rows that it made, or they
# changed a table so that its undo is not possible before theirs.


def standing_on(connection: Connection, seen: Look) -> list[str]:
    """Newest first. One that was taken back, and what took it back, cancel out."""
    found = [later_writers(connection, net) for net in seen.ties.nets.values()]
    found += [dict(connection.ask(sql)) for sql in _pointing(connection, seen)]
    if seen.op.has_schema:
        found.append(_later_on_its_tables(connection, seen.op))
    elif seen.odd:
        found.append(_later_changes_of(connection, seen.op, _tables_of(connection, seen.op)))
        for log, relation in _logs(connection):
            if log in seen.op.logs and relation not in seen.ties.nets:
                found.append(_later_on_the_same_rows(connection, seen.op, log, relation))
    last: dict[int, int] = {}
    for op, step in (one for steps in found for one in steps.items()):
        last[op] = max(step, last.get(op, 0))
    last.pop(seen.op.no, None)
    if not last:
        return []
    rows = connection.ask(
        "select o.no, o.id from takeback.op o where o.no = any (%s) and o.undone_by is null "
        "and not exists (select from takeback.op u where u.undone_by = o.id)",
        [list(last)],
    )
    return [name for _, name in sorted(rows, key=lambda row: (-last[row[0]], -row[0]))]


def _later_on_its_tables(connection: Connection, op: PostgresOp) -> dict[int, int]:
    """Later effects on tables that it made, changed or dropped, if it cannot be taken back as they are now."""
    connection.run("rollback")
    connection.run("begin")
    wait_no_longer(connection)
    in_the_way = unwind(connection, op, op.no, OnConflict.REFUSE, lock=False).obstacles
    connection.run("rollback")
    connection.run("begin")
    if not in_the_way:
        return {}
    tables = _tables_of(connection, op)
    logs = [no for no, relation in _logs(connection) if relation in tables]
    wrote = connection.ask(
        "select no, logs from takeback.op where no > %s and undone_by is null and not forgotten", [op.no]
    )
    found = {
        no: 0
        for no, known in wrote
        if set(logs).intersection(markers.touched(connection, no) if known is None else known)
    }
    return found | _later_changes_of(connection, op, tables)


def _later_on_the_same_rows(
    connection: Connection, op: PostgresOp, log: int, relation: int
) -> dict[int, int]:
    """By what was logged: of a table that was dropped or altered, and still has its key."""
    found = connection.ask(
        "select conkey::int[] from pg_constraint where conrelid = %s and contype = 'p'", [relation]
    )
    if not found:
        return {}
    same = " and ".join(f"l.c{number} = m.c{number}" for number in found[0][0])
    name = log_name(log)
    return dict(
        connection.ask(
            f"select l.op, max(l.step) from {name} l join {name} m on {same} and l.step > m.step "
            f"where m.op = {op.source} and l.op <> {op.source} and l.op > {op.no} group by 1"
        )
    )


def _later_changes_of(connection: Connection, op: PostgresOp, tables: set[int | str]) -> dict[int, int]:
    """Later effects that made, changed or dropped one of these tables."""
    later = connection.ask(
        "select o.id from takeback.op o where o.no > %s and o.undone_by is null and not o.forgotten and "
        "(o.moves is not null or exists (select from takeback.ddl d where d.op = o.no))",
        [op.no],
    )
    found = [one for (id,) in later if (one := markers.find(connection, id)) is not None]
    return {one.no: 0 for one in found if tables & _changed_by(connection, one)}


def _tables_of(connection: Connection, op: PostgresOp) -> set[int | str]:
    """Those whose rows it changed, and those that it made, changed or dropped: their numbers, of the latter their names
    too."""
    return {relation for no, relation in _logs(connection) if no in op.logs} | _changed_by(connection, op)


def _changed_by(connection: Connection, op: PostgresOp) -> set[int | str]:
    moved = {one for move in op.moves for one in (move.oid, *move.parts, move.shown)}
    things = [
        thing
        for step in steps_of(connection, op.no)
        for one in (step, where_it_is_now(connection, step))
        for thing in (*one.before, *one.after)
    ]
    tables = {one for thing in things if thing.is_table for one in (thing.oid, thing.shown)}
    return (moved | tables | {thing.of for thing in things}) - {0}


def _logs(connection: Connection) -> list[tuple[int, int]]:
    return [(no, relation) for no, relation in connection.ask("select no, relation::int8 from takeback.log")]


def _pointing(connection: Connection, seen: Look) -> list[str]:
    """The effects that wrote rows which point to a row that cannot be removed."""
    logs = {relation: log for log, relation in _logs(connection)}
    found: list[str] = []
    for one in seen.ties.foreign:
        net, child = seen.ties.nets.get(one.parent), seen.ties.tables.get(one.child)
        if net is None or child is None or child.key is None or child.oid not in logs:
            continue
        points = one.points("n.q{}".format, child.at("c"))
        same = child.key.same("l.c{}".format, child.at("c"))
        found.append(
            f"select l.op, max(l.step) from {net.name} n join {child.source} c on {points} "
            f"join {log_name(logs[child.oid])} l on {same} where n.status = 'child' and l.sign > 0 group by 1"
        )
    return found
