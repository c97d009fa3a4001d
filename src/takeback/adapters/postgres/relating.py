"""Which later effects stand on one: they changed the same rows since, or rows of theirs point to rows that it made."""

from typing import TYPE_CHECKING

from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.tables import quoted
from takeback.adapters.postgres.telling import later_writers
from takeback.adapters.postgres.undoing import Look

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def standing_on(connection: "Connection", seen: Look) -> list[str]:
    """Newest first. One that was taken back, and what took it back, cancel out."""
    last: dict[int, int] = {}
    for net in seen.ties.nets.values():
        _add(last, later_writers(connection, net))
    for sql in _pointing(connection, seen):
        _add(last, dict(ask(connection, sql)))
    last.pop(seen.op.no, None)
    if not last:
        return []
    rows = ask(
        connection,
        "select o.no, o.id from takeback.op o where o.no = any (%s) and o.undone_by is null "
        "and not exists (select from takeback.op u where u.undone_by = o.id)",
        [list(last)],
    )
    return [name for _, name in sorted(rows, key=lambda row: -last[row[0]])]


def _add(last: dict[int, int], found: dict[int, int]) -> None:
    for op, step in found.items():
        last[op] = max(step, last.get(op, 0))


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
