"""An effect that made or changed one row: most do. It is written by one statement, which copies what the row is now
inside SQLite. Beside a transaction that takes a tenth of a millisecond every call counts, so there are few."""

import time
from typing import Any, NamedTuple

from takeback.adapters.sqlite.child.log import FORMAT, INSERT, LIGHT, UPDATE, Log, image_columns
from takeback.adapters.sqlite.child.opening import quoted
from takeback.adapters.sqlite.child.seen import UNSEEN, Seen
from takeback.adapters.sqlite.child.shapes import Shape


class Plan(NamedTuple):
    """For one table: its number, and for a row that is new or changed a statement and the receipt. Without a number
    there is none."""

    number: int
    making: str
    made: dict[str, Any]
    changing: str
    changed: dict[str, Any]


_NO_PLAN = Plan(0, "", {}, "", {})


def log(log: Log, id: str, seen: Seen) -> dict[str, Any] | None:
    """The receipt. None, and nothing was written: the row is gone, is what it was or is large, or its table is not
    known by rowids."""
    ((shape, rows),) = seen.tables.values()
    ((key, before),) = rows.items()
    if before == UNSEEN or seen.weight > LIGHT:
        return None
    plan = log.plans.get(shape.name) or _planned(log, shape)
    if not plan.number:
        return None
    no = log.next_number()
    op = (no, id, int(time.time()), plan.number, key)
    if before is None:
        log.cursor.execute(plan.making, op)
        receipt = plan.made
    else:
        log.cursor.execute(plan.changing, op + before)
        receipt = plan.changed
    return receipt if log.counted(no) else None


def _planned(log: Log, shape: Shape) -> Plan:
    if not shape.rowid or 2 * len(shape.columns) > log.width:
        return _NO_PLAN
    columns = [quoted(one) for one in shape.columns]
    before = [f"?{at + 6}" for at in range(len(columns))]
    same = " AND ".join(f"{one} IS {was}" for one, was in zip(columns, before, strict=True))
    weight = " + ".join(f"ifnull(octet_length({one}), 0)" for one in columns)
    width = len(columns)
    into = "INSERT INTO main.takeback_recent (no, id, last, format, at, tbl, k, did, "
    op = f") SELECT ?1, ?2, ?1 + 1, {FORMAT}, ?3, ?4, ?5, "
    now = (
        f"{', '.join(columns)} FROM main.{quoted(shape.name)} "
        f"WHERE {shape.key_names[0]} = ?5 AND {weight} <= {LIGHT}"
    )
    plan = Plan(
        log.number(shape),
        f"{into}{image_columns(width, 2 * width)}{op}'{INSERT}', {now}",
        _receipt(shape, 1, 0),
        f"{into}{image_columns(0, 2 * width)}{op}'{UPDATE}', {', '.join(before)}, {now} AND NOT ({same})",
        _receipt(shape, 0, 1),
    )
    log.plans[shape.name] = plan
    return plan


def _receipt(shape: Shape, inserted: int, updated: int) -> dict[str, Any]:
    return {
        "tables": {shape.name: {"inserted": inserted, "updated": updated, "deleted": 0}},
        "schema": [],
    }
