"""Rows in words: what an effect changed, what stands in the way of its undo, which later ones stand on it."""

from collections.abc import Iterator, Sequence
from typing import Any

from takeback.adapters.database import RowChange, obstructed
from takeback.adapters.mariadb.logs import OPS, TOUCHED
from takeback.adapters.mariadb.net import (
    CHANGED,
    CONFLICTS,
    IN_CONFLICTS,
    MISSING,
    NEEDED,
    ORPHANED,
    REOCCUPIED,
    UNFIT,
    lines,
)
from takeback.adapters.mariadb.registry import LogRegistry
from takeback.adapters.mariadb.shapes import LoggedTable, MariaShape, Schema
from takeback.adapters.mariadb.wire import Wire, equal, listed, of, quoted
from takeback.model.database import resource_of
from takeback.model.ids import short
from takeback.model.plan import Obstacle, TargetOutcome

MOST = 100
_LONGEST = 40
_FEW = 3


Reasons = dict[tuple[str, int], str]  # by table and line: what the server said of it

_OBSTACLES = {CHANGED: Obstacle.CHANGED, REOCCUPIED: Obstacle.CHANGED, MISSING: Obstacle.GONE}


def conflicts(
    wire: Wire, schema: Schema, parts: Sequence[LoggedTable], op: int, reasons: Reasons
) -> list[TargetOutcome]:
    """One for each line that stands in a conflict, as the rows are now."""
    found: list[TargetOutcome] = []
    total = 0
    for part in parts:
        total += wire.count(f"SELECT COUNT(*) FROM {part.net} WHERE state IN {IN_CONFLICTS}")
        if len(found) < MOST:
            found += _of_part(wire, schema, part, op, MOST - len(found), reasons)
    if total > len(found):
        found.append(
            found[-1]._replace(
                resource=resource_of(wire.database), detail=f"and {total - len(found)} more rows"
            )
        )
    return found


def _of_part(
    wire: Wire, schema: Schema, part: LoggedTable, op: int, most: int, reasons: Reasons
) -> list[TargetOutcome]:
    shape = part.shape
    width = len(shape.stored)
    sides = [_shown(shape, shape.logged(side)) for side in "apq"]
    join = ""
    if shape.key:
        sides.append(_shown(shape, of("r", shape.names)))
        join = f" LEFT JOIN {part.table} r ON {shape.same_key('a', 'r')}"
        there = f"r.{quoted(shape.key[0])} IS NOT NULL"
    else:
        sides.append(", ".join(["NULL"] * width))
        there = "FALSE"
    rows = wire.rows(
        f"SELECT s.state, s.pre IS NOT NULL, s.post IS NOT NULL, {there},"
        f" {', '.join(sides)}, s.id FROM {part.net} s STRAIGHT_JOIN {part.log} a ON a.tb_no = s.some"
        f" LEFT JOIN {part.log} p ON p.tb_no = s.pre LEFT JOIN {part.log} q ON q.tb_no = s.post{join}"
        f" WHERE s.state IN {IN_CONFLICTS} ORDER BY s.id LIMIT {most}"
    )
    found: list[TargetOutcome] = []
    for state, pre, post, present, *values, line in rows:
        some, before, left, now = (values[at * width : (at + 1) * width] for at in range(4))
        key = key_text(shape, some)
        detail = _sentence(
            shape, state, before if pre else None, left if post else None, now if present else None
        )
        who = _who(wire, part, op, line) if shape.key else ""
        if state == NEEDED:
            who = _referring(wire, schema, part, line)
        elif state == ORPHANED:
            who = ""  # without foreign keys it may never have existed: no change by others
        elif state == UNFIT:
            who = f"; the server says: {reasons.get((shape.name, line), '')}. Take the rule away, or leave the row out"
        found.append(
            obstructed(
                wire.database, detail + who, shape.name, key, what=_OBSTACLES.get(state, Obstacle.OTHER)
            )
        )
    return found


def key_text(shape: MariaShape, values: Sequence[Any]) -> str:
    at = shape.names
    return ",".join(f"{name}={text(values[at.index(name)])}" for name in shape.key)


def text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return None if value is None else str(value)


def _shown(shape: MariaShape, values: Sequence[str]) -> str:
    return ", ".join(column.shown(value) for column, value in zip(shape.stored, values, strict=True))


def _sentence(
    shape: MariaShape, state: str, before: list[Any] | None, left: list[Any] | None, now: list[Any] | None
) -> str:
    # What others changed, where that is known; else whatever differs.
    sides = [side for side in ((left, now) if left and now else (before, left, now)) if side is not None]
    differ = [at for at in range(len(shape.stored)) if len({repr(side[at]) for side in sides}) > 1]
    shown = differ or list(range(len(shape.stored)))
    told = [
        f"{name} {_row(shape, side, shown)}"
        for name, side in (("expected", left), ("found", now), ("undo would leave", before))
    ]
    return f"{CONFLICTS[state]}: {', '.join(told)}"


def _row(shape: MariaShape, values: list[Any] | None, which: list[int]) -> str:
    if values is None:
        return "no row"
    pairs = [f"{shape.stored[at].name}={_short(values[at])}" for at in which[:6]]
    return f"({', '.join(pairs)}{', …' if len(which) > 6 else ''})"


def _short(value: Any) -> str:
    shown = text(value)
    if shown is None:
        return "NULL"
    return repr(shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…")


def _referring(wire: Wire, schema: Schema, part: LoggedTable, line: int) -> str:
    """Which rows refer to it: their table, and a few of their keys."""
    told: list[str] = []
    for link in sorted(schema.links):
        if link.parent != part.shape.name or link.elsewhere or not part.stores(link.refers):
            continue
        child = link.child
        on = equal(of("y", link.columns), part.shape.logged("q", link.refers))
        logged = f"{part.net} s JOIN {part.log} q ON q.tb_no = s.post"
        source = f"{logged} JOIN {quoted(child)} y ON {on} WHERE s.id = {line}"
        key = schema.shapes[child].key if child in schema.shapes else ()
        if many := wire.count(f"SELECT COUNT(*) FROM {source}"):
            rows = wire.rows(f"SELECT {listed(key, 'y')} FROM {source} LIMIT {_FEW}") if key else []
            some = [
                ",".join(f"{name}={text(value)}" for name, value in zip(key, row, strict=True))
                for row in rows
            ]
            more = f" and {many - len(some)} more" if many > len(some) else ""
            told.append(f"{child} {', '.join(some)}{more}" if some else f"{many} of {child}")
    return f"; these do: {'; '.join(told)}" if told else ""


def _who(wire: Wire, part: LoggedTable, op: int, line: int) -> str:
    """The last effect that left the row as it is now."""
    shape = part.shape
    rows = wire.rows(
        f"SELECT o.op, l.tb_sign, IF(l.tb_sign > 0, {shape.live_image('r')} <=> {shape.logged_image('l')},"
        f" {shape.live_image('r')} IS NULL)"
        f" FROM {part.net} s JOIN {part.log} a ON a.tb_no = s.some"
        f" JOIN {part.log} l ON {shape.same_logged_key('l', 'a')}"
        f" LEFT JOIN {part.table} r ON {shape.same_key('a', 'r')} LEFT JOIN {OPS} o ON o.no = l.tb_op"
        f" WHERE s.id = {line} AND l.tb_op <> {op} AND l.tb_no > a.tb_no ORDER BY l.tb_no DESC LIMIT 1"
    )
    if rows and rows[0][0] and rows[0][2]:
        return f"; changed by effect {short(str(rows[0][0]))}"
    return "; changed by someone who is not recorded"


_PAGE = 1_000


def standing_on(
    wire: Wire, registry: LogRegistry, parts: dict[str, LoggedTable], op: int, reshaped: set[int]
) -> list[str]:
    """By the order in which they came to each row, newest first. `reshaped`: later ones that changed its tables."""
    found = set(reshaped)
    for part in parts.values():
        if part.shape.key:
            found |= _on_the_same(wire, part, op)
        found |= _referring_effects(wire, registry, part, op)
    if reshaped:
        for n in wire.numbers(f"SELECT n FROM {TOUCHED} WHERE op = {op}"):
            if (shape := registry.entries[n].described).key:
                found |= _on_the_same(wire, LoggedTable(n, shape), op)
    return _named(wire, found)


def later_on(
    wire: Wire, registry: LogRegistry, tables: Sequence[str], op: int, reshaped: set[int]
) -> list[str]:
    """Effects that changed rows of these tables later, newest first, and those that `reshaped` them."""
    numbers = ", ".join(str(n) for n, entry in registry.entries.items() if entry.name in tables)
    found = wire.numbers(
        f"SELECT o.no FROM {OPS} o WHERE o.no > {op} AND EXISTS"
        f" (SELECT 1 FROM {TOUCHED} t WHERE t.op = o.no AND t.n IN ({numbers or 'NULL'}))"
    )
    return _named(wire, found | reshaped)


def lost_by_unprotect(
    wire: Wire, registry: LogRegistry, tables: Sequence[str], reshaped: set[int]
) -> list[str]:
    """Those that could not be taken back afterwards: a table that is left out gets another number. `reshaped`: all that
    ever changed one of these tables."""
    if tables and set(registry.walked()) - set(tables):
        return later_on(wire, registry, tables, 0, reshaped)
    return [str(id) for (id,) in wire.rows(f"SELECT op FROM {OPS}")]


def _named(wire: Wire, found: set[int]) -> list[str]:
    if not found:
        return []
    numbers = ", ".join(str(number) for number in found)
    return [str(id) for (id,) in wire.rows(f"SELECT op FROM {OPS} WHERE no IN ({numbers}) ORDER BY no DESC")]


def _on_the_same(wire: Wire, part: LoggedTable, op: int) -> set[int]:
    return wire.numbers(
        f"SELECT DISTINCT l.tb_op FROM {part.log} a STRAIGHT_JOIN {part.log} l ON"
        f" {part.shape.same_logged_key('l', 'a')} WHERE a.tb_op = {op} AND l.tb_op <> {op} AND l.tb_no > a.tb_no"
    )


def _referring_effects(wire: Wire, registry: LogRegistry, part: LoggedTable, op: int) -> set[int]:
    """Who wrote a row that refers to one which this made."""
    found: set[int] = set()
    walked = registry.walked()
    for link in registry.schema.links:
        child = walked.get(link.child)
        if link.parent != part.shape.name or link.elsewhere or child is None or not child.shape.key:
            continue
        if not part.stores(link.refers):
            continue
        on = equal(of("y", link.columns), part.shape.logged("a", link.refers))
        found |= wire.numbers(
            f"SELECT DISTINCT l.tb_op FROM {part.log} a STRAIGHT_JOIN {child.table} y ON {on}"
            f" STRAIGHT_JOIN {child.log} l ON {child.shape.same_key('l', 'y')}"
            f" WHERE a.tb_op = {op} AND a.tb_sign > 0 AND l.tb_sign > 0 AND l.tb_op > {op}"
        )
    return found


def changes(wire: Wire, parts: dict[str, LoggedTable], op: int) -> Iterator[RowChange]:
    """However many there are; the connection is busy until the last."""
    for part in parts.values():
        for row in wire.stream(_asked(part, op)):
            yield from _told(part, row)


def changes_so_far(wire: Wire, parts: dict[str, LoggedTable], op: int) -> Iterator[RowChange]:
    """In a transaction that stays open, even if the rows are not read to the end."""
    for part in parts.values():
        start = 0
        while rows := wire.rows(f"{_asked(part, op)} LIMIT {start}, {_PAGE}"):
            for row in rows:
                yield from _told(part, row)
            start += _PAGE


def _asked(part: LoggedTable, op: int) -> str:
    sides = ", ".join(_shown(part.shape, part.shape.logged(side)) for side in "pq")
    return (
        f"SELECT s.pre IS NOT NULL, s.post IS NOT NULL, s.m, {sides} FROM ({lines(part, op)}) s"
        f" LEFT JOIN {part.log} p ON p.tb_no = s.pre LEFT JOIN {part.log} q ON q.tb_no = s.post ORDER BY s.some"
    )


def _told(part: LoggedTable, row: Sequence[Any]) -> Iterator[RowChange]:
    pre, post, many, *values = row
    width = len(part.shape.stored)
    before = dict(zip(part.shape.names, map(text, values[:width]), strict=True)) if pre else None
    after = dict(zip(part.shape.names, map(text, values[width:]), strict=True)) if post else None
    key = key_text(part.shape, values[:width] if pre else values[width:])
    for _ in range(1 if part.shape.key else int(many)):
        yield RowChange(part.shape.name, key, before, after)
