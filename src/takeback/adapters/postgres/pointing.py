"""Which rows point to one that is to go, in words: where they are, and a few of their keys."""

from typing import TYPE_CHECKING

from takeback.adapters.postgres.checking import Ties
from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.net import ACTIVE, Net, matches
from takeback.adapters.postgres.tables import Foreign, Table, literal, quoted
from takeback.adapters.postgres.telling import Obstacle

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_FEW = 3
_MOST = 100


def named(connection: "Connection", ties: Ties, net: Net, found: list[Obstacle]) -> list[Obstacle]:
    """The same obstacles; of those that cannot go it is told because of whom."""
    if not net.keyed or not any(one.kind == "child" for one in found):
        return found
    told: dict[str, list[str]] = {}
    for foreign in ties.foreign:
        child = ties.tables.get(foreign.child)
        if foreign.parent == net.table.oid and child is not None:
            for key, count, some in ask(connection, _pointing(ties, net, foreign, child)):
                told.setdefault(key, []).append(_in_words(child, count, some))
    return [
        one._replace(detail=f"{one.detail.partition(' (')[0]}: {'; '.join(told[one.key])}")
        if one.kind == "child" and one.key in told
        else one
        for one in found
    ]


def _pointing(ties: Ties, net: Net, foreign: Foreign, child: Table) -> str:
    assert net.table.key
    points = " and ".join(
        f"n.q{parent} operator({operator}) c.{quoted(child.column(ours).name)}"
        for ours, parent, operator in zip(
            foreign.child_columns, foreign.parent_columns, foreign.operators, strict=True
        )
    )
    theirs = ties.nets.get(foreign.child)
    if theirs is not None and theirs.keyed:  # those that go with the same undo are in nobody's way
        points += (
            f" and not exists (select from {theirs.name} m where m.status in {ACTIVE} and m.cur "
            f"and {matches(child, 'coalesce(m.p{0}, m.q{0})', 'c')})"
        )
    ours = _words(net.table, "n.q{0}")
    words = _words(child, "c.{1}") if child.key else "null::text"
    return (
        f"select {ours}, count(*), (array_agg({words}))[1:{_FEW}] from {net.name} n join {child.source} c on {points} "
        f"where n.status = 'child' group by 1 limit {_MOST}"
    )


def _words(table: Table, pattern: str) -> str:
    """The key of a row as an expression, in the words in which conflicts name rows."""
    assert table.key
    names = [(number, table.column(number).name) for number in table.key.columns]
    return " || ',' || ".join(
        f"{literal(f'{name}=')} || {pattern.format(number, quoted(name))}::text" for number, name in names
    )


def _in_words(child: Table, count: int, some: list[str | None]) -> str:
    keys = [one for one in some if one is not None]
    if not keys:
        return f"{count} of {child.shown}"
    more = f" and {count - len(keys)} more" if count > len(keys) else ""
    return f"{child.shown} {', '.join(keys)}{more}"
