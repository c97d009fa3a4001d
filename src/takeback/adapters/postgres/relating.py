"""Which later effects stand on one: they changed the same rows, their rows point to rows that it made, or they changed
a table so that its undo is not possible before theirs."""

from typing import TYPE_CHECKING

from takeback.adapters.postgres import ops
from takeback.adapters.postgres.connecting import ask, run, wait_no_longer
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.ops import Op
from takeback.adapters.postgres.steps import steps_of, where_it_is_now
from takeback.adapters.postgres.tables import quoted
from takeback.adapters.postgres.telling import later_writers
from takeback.adapters.postgres.undoing import Look
from takeback.adapters.postgres.unwinding import unwind
from takeback.model.plan import OnConflict

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def standing_on(connection: "Connection", seen: Look) -> list[str]:
    """Newest first. One that was taken back, and what took it back, cancel out."""
    last: dict[int, int] = {}
    for net in seen.ties.nets.values():
        _add(last, later_writers(connection, net))
    for sql in _pointing(connection, seen):
        _add(last, dict(ask(connection, sql)))
    if seen.op.has_schema:
        _add(last, _later_on_its_tables(connection, seen.op))
    elif seen.odd:
        _add(last, _later_changes_of(connection, seen.op, _tables_of(connection, seen.op)))
        for log, relation in _logs(connection):
            if log in seen.op.logs and relation not in seen.ties.nets:
                _add(last, _later_on_the_same_rows(connection, seen.op, log, relation))
    last.pop(seen.op.no, None)
    if not last:
        return []
    rows = ask(
        connection,
        "select o.no, o.id from takeback.op o where o.no = any (%s) and o.undone_by is null "
        "and not exists (select from takeback.op u where u.undone_by = o.id)",
        [list(last)],
    )
    return [name for _, name in sorted(rows, key=lambda row: (-last[row[0]], -row[0]))]


def _add(last: dict[int, int], found: dict[int, int]) -> None:
    for op, step in found.items():
        last[op] = max(step, last.get(op, 0))


def _later_on_its_tables(connection: "Connection", op: Op) -> dict[int, int]:
    """Later effects on tables that it made, changed or dropped, if it cannot be taken back as they are now."""
    run(connection, "rollback")
    run(connection, "begin")
    wait_no_longer(connection)
    in_the_way = unwind(connection, op, op.no, OnConflict.REFUSE, lock=False).obstacles
    run(connection, "rollback")
    run(connection, "begin")
    if not in_the_way:
        return {}
    tables = _tables_of(connection, op)
    logs = [no for no, relation in _logs(connection) if relation in tables]
    wrote = ask(
        connection,
        "select no, logs from takeback.op where no > %s and undone_by is null and not forgotten",
        [op.no],
    )
    found = {
        no: 0
        for no, known in wrote
        if set(logs).intersection(ops.touched(connection, no) if known is None else known)
    }
    return found | _later_changes_of(connection, op, tables)


def _later_on_the_same_rows(connection: "Connection", op: Op, log: int, relation: int) -> dict[int, int]:
    """By what was logged: of a table that was dropped or altered, and still has its key."""
    found = ask(
        connection,
        "select conkey::int[] from pg_constraint where conrelid = %s and contype = 'p'",
        [relation],
    )
    if not found:
        return {}
    same = " and ".join(f"l.c{number} = m.c{number}" for number in found[0][0])
    name = log_name(log)
    return dict(
        ask(
            connection,
            f"select l.op, max(l.step) from {name} l join {name} m on {same} and l.step > m.step "
            f"where m.op = {op.source} and l.op <> {op.source} and l.op > {op.no} group by 1",
        )
    )


def _later_changes_of(connection: "Connection", op: Op, tables: set[int | str]) -> dict[int, int]:
    """Later effects that made, changed or dropped one of these tables."""
    later = ask(
        connection,
        "select o.id from takeback.op o where o.no > %s and o.undone_by is null and not o.forgotten and "
        "(o.moves is not null or exists (select from takeback.ddl d where d.op = o.no))",
        [op.no],
    )
    found = [one for (id,) in later if (one := ops.find(connection, id)) is not None]
    return {one.no: 0 for one in found if tables & _changed_by(connection, one)}


def _tables_of(connection: "Connection", op: Op) -> set[int | str]:
    """Those whose rows it changed, and those that it made, changed or dropped: their numbers, of the latter their names
    too."""
    return {relation for no, relation in _logs(connection) if no in op.logs} | _changed_by(connection, op)


def _changed_by(connection: "Connection", op: Op) -> set[int | str]:
    moved = {one for move in op.moves for one in (move.oid, *move.parts, move.shown)}
    things = [
        thing
        for step in steps_of(connection, op.no)
        for one in (step, where_it_is_now(connection, step))
        for thing in (*one.before, *one.after)
    ]
    tables = {one for thing in things if thing.is_table for one in (thing.oid, thing.shown)}
    return (moved | tables | {thing.of for thing in things}) - {0}


def _logs(connection: "Connection") -> list[tuple[int, int]]:
    return [(no, relation) for no, relation in ask(connection, "select no, relation::int8 from takeback.log")]


def _pointing(connection: "Connection", seen: Look) -> list[str]:
    """Whoever wrote the rows that point to one which cannot go."""
    logs = dict(
        ask(
            connection,
            "select relation::int8, no from takeback.log where relation = any (%s)",
            [list(seen.ties.tables)],
        )
    )
    found: list[str] = []
    for one in seen.ties.foreign:
        net, child = seen.ties.nets.get(one.parent), seen.ties.tables.get(one.child)
        if net is None or child is None or child.key is None or child.oid not in logs:
            continue
        points = " and ".join(
            f"n.q{theirs} operator({operator}) c.{quoted(child.column(ours).name)}"
            for ours, theirs, operator in zip(
                one.child_columns, one.parent_columns, one.operators, strict=True
            )
        )
        same = " and ".join(
            f"l.c{number} operator({operator}) c.{quoted(child.column(number).name)}"
            for number, operator in zip(child.key.columns, child.key.operators, strict=True)
        )
        found.append(
            f"select l.op, max(l.step) from {net.name} n join {child.source} c on {points} "
            f"join {log_name(logs[child.oid])} l on {same} where n.status = 'child' and l.sign > 0 group by 1"
        )
    return found
