"""Rows that InnoDB changes or deletes by itself because their foreign key says so: no trigger sees them.

So the triggers of the table they refer to look for them: before the row goes, all that could go with it is logged as it
is; after it, whatever of that is still there is logged as it is then. What did not change cancels out, so a walk
may go too far but never not far enough.
"""

from collections.abc import Sequence
from typing import NamedTuple

from takeback.adapters.mariadb.logs import GATE, log_of, logged_names, logged_of, same_key
from takeback.adapters.mariadb.shapes import MariaColumn, MariaForeignKey, MariaShape
from takeback.adapters.mariadb.wire import equal, listed, of, quoted

_ACTS = ("CASCADE", "SET NULL")
DELETED, UPDATED = "deleted", "updated"
_DEEPEST = 16  # InnoDB follows foreign keys through 15 levels and no further


class Walked(NamedTuple):
    """A table with its log."""

    n: int
    shape: MariaShape


class Edge(NamedTuple):
    """Rows of one table that go with rows of another."""

    source: str
    link: MariaForeignKey
    becomes: frozenset[str]  # deleted, updated, or either
    direct: bool  # from the row of the statement itself


def walks(start: Walked, tables: dict[str, Walked], links: Sequence[MariaForeignKey]) -> dict[str, str]:
    """The steps of this table's triggers for other tables, by event; none if no rows of others are deleted with its
    rows."""
    found: dict[str, str] = {}
    for event, becomes in (("d", DELETED), ("u", UPDATED)):
        edges = _edges(start.shape.name, becomes, links)
        if edges:
            found[f"b{event}"] = _before(start, becomes, edges, tables)
            found[f"a{event}"] = _after(start, becomes, edges, tables)
    return found


def reached(name: str, links: Sequence[MariaForeignKey]) -> set[str]:
    """The tables whose rows can go with a row of this one."""
    return {edge.link.child for becomes in (DELETED, UPDATED) for edge in _edges(name, becomes, links)}


def _edges(start: str, becomes: str, links: Sequence[MariaForeignKey]) -> list[Edge]:
    direct = {
        link: {_outcome(link, becomes)} for link in links if link.parent == start and _acts(link, becomes)
    }
    states: dict[str, set[str]] = {}
    for link, outcomes in direct.items():
        states.setdefault(link.child, set()).update(outcomes)
    deeper: dict[MariaForeignKey, set[str]] = {}
    grew = True
    while grew:
        grew = False
        for link in links:
            for state in tuple(states.get(link.parent, ())):
                if not _acts(link, state) or (state == UPDATED and not _may_change(link, links)):
                    continue
                outcome = _outcome(link, state)
                if outcome not in deeper.setdefault(link, set()):
                    deeper[link].add(outcome)
                    grew = True
                if outcome not in states.setdefault(link.child, set()):
                    states[link.child].add(outcome)
                    grew = True
    edges = [Edge(start, link, frozenset(outcomes), True) for link, outcomes in direct.items()]
    return edges + [Edge(link.parent, link, frozenset(outcomes), False) for link, outcomes in deeper.items()]


def _acts(link: MariaForeignKey, state: str) -> bool:
    return not link.elsewhere and (link.on_delete if state == DELETED else link.on_update) in _ACTS


def _outcome(link: MariaForeignKey, state: str) -> str:
    return DELETED if state == DELETED and link.on_delete == "CASCADE" else UPDATED


def _may_change(link: MariaForeignKey, links: Sequence[MariaForeignKey]) -> bool:
    """A row that is changed by a foreign key is changed in its columns; that matters to those who refer to them."""
    changed = {column for other in links if other.child == link.parent for column in other.columns}
    return bool(changed.intersection(link.refers))


def _before(start: Walked, becomes: str, edges: list[Edge], tables: dict[str, Walked]) -> str:
    mine = f"@takeback_d{start.n}"
    children = sorted({edge.link.child for edge in edges})
    # A row that was to be deleted and was not (DELETE IGNORE): nothing went with it.
    forget = "".join(
        f"DELETE FROM {log_of(tables[child].n)} WHERE tb_op = {GATE} AND tb_c = {mine};" for child in children
    )
    steps = [_direct(start, edge, edges, tables, mine, becomes) for edge in edges if edge.direct]
    deeper = [_deeper(start, edge, edges, tables, mine) for edge in edges if not edge.direct]
    if deeper:
        steps.append(_looped("".join(deeper)))
    count = "@takeback_c = IFNULL(@takeback_c, CONNECTION_ID() << 32) + 1"
    walk = f"SET {count}; SET {mine} = @takeback_c; {''.join(steps)}"
    if becomes == UPDATED:
        walk = f"IF {_refers_change(start.shape, edges)} THEN {walk} END IF;"
    return f"IF {mine} IS NOT NULL THEN {forget} SET {mine} = NULL; END IF; IF @@foreign_key_checks THEN {walk} END IF;"


def _looped(steps: str) -> str:
    return (
        "SET @takeback_l = 0; REPEAT SET @takeback_f = 0; SET @takeback_l = @takeback_l + 1;"
        f" {steps} UNTIL @takeback_f = 0 OR @takeback_l > {_DEEPEST} END REPEAT;"
    )


def _refers_change(shape: MariaShape, edges: list[Edge]) -> str:
    """In any bit: a foreign key follows a change of case as well."""
    names = sorted({name for edge in edges if edge.direct for name in edge.link.refers})
    columns = {column.name: column for column in shape.columns}
    return " OR ".join(
        f"NOT ({_bits(columns[name], 'OLD')} <=> {_bits(columns[name], 'NEW')})" for name in names
    )


def _bits(column: MariaColumn, row: str) -> str:
    value = f"{row}.{quoted(column.name)}"
    return f"CAST({value} AS BINARY)" if column.charset else value


def _direct(
    start: Walked, edge: Edge, edges: list[Edge], tables: dict[str, Walked], mine: str, becomes: str
) -> str:
    link, child = edge.link, tables[edge.link.child]
    rows = ["OLD", "NEW"] if becomes == UPDATED and _moves(link, child.shape) else ["OLD"]
    steps = ""
    for row in rows:
        where = equal(of("r", link.columns), of(row, link.refers))
        steps += _add(start, child, edges, mine, f"FROM {quoted(link.child)} r", where, link, edge.becomes)
    return steps


def _deeper(start: Walked, edge: Edge, edges: list[Edge], tables: dict[str, Walked], mine: str) -> str:
    link, child, parent = edge.link, tables[edge.link.child], tables[edge.source]
    on = equal(of("r", link.columns), logged_of(parent.shape, "s", link.refers))
    source = f"FROM {log_of(parent.n)} s JOIN {quoted(link.child)} r ON {on}"
    where = f"s.tb_op = {GATE} AND s.tb_c = {mine} AND s.tb_sign < 0"
    moving = UPDATED in edge.becomes and _moves(link, child.shape) and link.on_update == "CASCADE"
    refuse = _refusal(source, where) if moving else ""
    return refuse + _add(start, child, edges, mine, source, where, link, edge.becomes, counted=True)


def _moves(link: MariaForeignKey, shape: MariaShape) -> bool:
    """Whether a row that follows gets another key with that, so that it cannot be found by the old one."""
    return bool(set(link.columns).intersection(shape.key))


def _add(
    start: Walked,
    child: Walked,
    edges: list[Edge],
    mine: str,
    source: str,
    where: str,
    link: MariaForeignKey,
    becomes: frozenset[str],
    counted: bool = False,
) -> str:
    shape = child.shape
    if shape.name == start.shape.name:
        if not shape.key:
            return _refusal(source, where)
        own = equal(of("r", shape.key), of("OLD", shape.key))
        where = f"{where} AND NOT ({own})"
    several = counted or sum(edge.link.child == shape.name for edge in edges) > 1 or _moves(link, shape)
    if not shape.key and (several or UPDATED in becomes):
        return _refusal(source, where)
    known = ""
    if several:
        same = same_key(shape, "l", "r")
        known = f" LEFT JOIN {log_of(child.n)} l ON {same} AND l.tb_op = {GATE} AND l.tb_c = {mine}"
        where = f"{where} AND l.tb_no IS NULL"
        if "JOIN" in source:  # those referred to need not be unique
            where += f" GROUP BY {listed(shape.key, 'r')}"
    insert = (
        f"INSERT INTO {log_of(child.n)} (tb_op, tb_c, tb_sign, {', '.join(logged_names(shape))})"
        f" SELECT {GATE}, {mine}, -1, {listed(shape.names, 'r')} {source}{known} WHERE {where};"
    )
    return insert + (" SET @takeback_f = @takeback_f + ROW_COUNT();" if counted else "")


def _refusal(source: str, where: str) -> str:
    return (
        f"IF EXISTS (SELECT 1 {source} WHERE {where}) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT ="
        " 'takeback: a foreign key would change rows in a way that cannot be captured'; END IF;"
    )


def _after(start: Walked, becomes: str, edges: list[Edge], tables: dict[str, Walked]) -> str:
    mine = f"@takeback_d{start.n}"
    steps = ""
    for name in sorted({edge.link.child for edge in edges}):
        child = tables[name]
        if not child.shape.key:
            continue  # all of them were deleted, or the change was refused
        steps += _still_there(child, mine, f"FROM {log_of(child.n)} s JOIN {quoted(name)} r ON"
                              f" {same_key(child.shape, 's', 'r')}",
                              f"s.tb_op = {GATE} AND s.tb_c = {mine} AND s.tb_sign < 0", False)  # fmt: skip
    for edge in edges:
        child = tables[edge.link.child]
        if becomes == UPDATED and edge.direct and _moves(edge.link, child.shape):
            where = equal(of("r", edge.link.columns), of("NEW", edge.link.refers))
            steps += _still_there(child, mine, f"FROM {quoted(edge.link.child)} r", where, True)
    return f"IF {mine} IS NOT NULL THEN {steps} SET {mine} = NULL; END IF;"


def _still_there(child: Walked, mine: str, source: str, where: str, known: bool) -> str:
    shape = child.shape
    if known:
        source += (
            f" LEFT JOIN {log_of(child.n)} l ON {same_key(shape, 'l', 'r')} AND l.tb_op = {GATE}"
            f" AND l.tb_c = {mine} AND l.tb_sign > 0"
        )
        where += " AND l.tb_no IS NULL"
    return (
        f"INSERT INTO {log_of(child.n)} (tb_op, tb_c, tb_sign, {', '.join(logged_names(shape))})"
        f" SELECT {GATE}, {mine}, 1, {listed(shape.names, 'r')} {source} WHERE {where};"
    )
