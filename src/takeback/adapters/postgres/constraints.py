"""What stands in the way besides the rows themselves: unique values, and rows that point to others."""

from typing import NamedTuple

from takeback.adapters.postgres import net as nets
from takeback.adapters.postgres.connection import Connection, Question
from takeback.adapters.postgres.net import ACTIVE, Net, key_of, matches
from takeback.adapters.postgres.row_report import RowObstacle
from takeback.adapters.postgres.tables import Foreign, Table, Unique, literal, quoted


class Ties(NamedTuple):
    """Foreign keys between or around the tables of an undo, and those tables."""

    foreign: tuple[Foreign, ...]
    tables: dict[int, Table]
    nets: dict[int, Net]


def plain(connection: Connection, ties: Ties, presuming: bool) -> Ties | None:
    """If nothing can stand in the way: every row is as the effect left it, and none that comes, goes or changes has to
    do with another. `presuming`: that each row is as it was left is found out when it is put back."""
    if any(not net.keyed or not all(one.columns for one in other_uniques(net)) for net in ties.nets.values()):
        return None
    if any(nets.repeats(connection, net) for net in ties.nets.values()):
        return None
    found: dict[int, Net] = {}
    for oid, (*numbers, other) in _counted(connection, ties, presuming).items():
        tally = nets.NetTally(*numbers)
        comes_freely = not other_uniques(ties.nets[oid]) and not any(key.child == oid for key in ties.foreign)
        goes_freely = not any(key.parent == oid for key in ties.foreign)
        if other or (tally.before and not comes_freely) or (tally.after and not goes_freely):
            connection.run("set local enable_nestloop = on")
            return None
        found[oid] = ties.nets[oid]._replace(tally=tally)
    return Ties((), ties.tables, found)


def _tied(ties: Ties, net: Net) -> set[int]:
    """Columns whose values have to do with other rows, or that no update can set."""
    oid = net.table.oid
    return {
        *(number for unique in other_uniques(net) for number in unique.columns),
        *(one.number for one in net.table.columns if one.identity == "a"),
        *(number for one in ties.foreign if one.child == oid for number in one.child_columns),
        *(number for one in ties.foreign if one.parent == oid for number in one.parent_columns),
    }


def _counted(connection: Connection, ties: Ties, presuming: bool) -> dict[int, tuple[int, ...]]:
    """By table: rows that the effect changed, that were there before it only, and after it only; and what is in the
    way."""
    found: dict[int, tuple[int, ...]] = {}
    asked: dict[int, Question] = {}
    slower: dict[int, Question] = {}
    for oid, net in ties.nets.items():
        tied = _tied(ties, net)
        if presuming and (tally := nets.presumed(net, tied)):
            found[oid] = (*tally, 0)
            continue
        asked[oid] = nets.about_plain(net, tied, presuming)
        if not presuming and net.olds == net.news and net.paired:
            slower[oid], asked[oid] = asked[oid], nets.about_pairs(net, tied)
    if asked:
        found |= _answers(connection, ties, asked)
        if again := {oid: one for oid, one in slower.items() if found[oid][-1]}:
            found |= _answers(connection, ties, again)
    return found


def _answers(connection: Connection, ties: Ties, asked: dict[int, Question]) -> dict[int, tuple[int, ...]]:
    """In one trip."""
    answers = connection.ask_all([one for oid in asked for one in (nets.loops(ties.nets[oid]), asked[oid])])
    return {oid: rows[0] for oid, rows in zip(asked, answers[1::2], strict=True)}


def mark(connection: Connection, ties: Ties) -> None:
    """Until nothing more is found: a row that stays can be in the way of another."""
    asked = [sql for net in ties.nets.values() for sql in _taken(net)]
    for foreign in ties.foreign:
        asked += [*_parentless(ties, foreign), *_depended_on(ties, foreign)]
    while sum(connection.run(sql) for sql in asked):
        pass


def other_uniques(net: Net) -> list[Unique]:
    return [one for one in net.table.uniques if one is not net.table.key]


def _taken(net: Net) -> list[str]:
    """A value that is to come back is in use by a row that stays."""
    if not net.keyed:
        return []
    found: list[str] = []
    for unique in other_uniques(net):
        if not unique.columns:
            continue  # of expressions: the server will say so
        same = unique.same(net.table.at("t"), "n.p{}".format)
        found.append(
            f"update {net.name} n set status = 'unique' where n.status in {ACTIVE} and n.pre and exists ("
            f"select from {net.table.source} t where {same}{_stays(net, 't')})"
        )
    return found


def _stays(net: Net, alias: str) -> str:
    """And the undo neither removes nor changes this row of the table."""
    there = f"from {net.name} m where m.status in {ACTIVE} and m.cur"
    return f" and not exists (select {there} and {matches(net.table, key_of(net, 'm'), alias)})"


def _parentless(ties: Ties, foreign: Foreign) -> list[str]:
    """Rows that are to come back and point to one that is not there, or that goes."""
    net = ties.nets.get(foreign.child)
    parent = ties.tables.get(foreign.parent)
    if net is None or parent is None or not foreign.valid:
        return []
    pointing = " and ".join(f"n.p{number} is not null" for number in foreign.child_columns)
    start = f"update {net.name} n set status = 'parent' where n.status in {ACTIVE} and n.pre and {pointing}"
    absent = (
        f"not exists (select from {parent.source} t where {foreign.points(parent.at('t'), 'n.p{}'.format)})"
    )
    theirs = ties.nets.get(foreign.parent)
    if theirs is None:
        return [f"{start} and {absent}"]
    back = (
        f"not exists (select from {theirs.name} b where b.status in {ACTIVE} and b.pre "
        f"and {foreign.points('b.p{}'.format, 'n.p{}'.format)})"
    )
    goes = (
        f"exists (select from {theirs.name} m where m.status in {ACTIVE} and m.post "
        f"and {foreign.points('m.q{}'.format, 'n.p{}'.format)})"
    )
    return [f"{start} and {absent} and {back}", f"{start} and {goes} and {back}"]


def _depended_on(ties: Ties, foreign: Foreign) -> list[str]:
    """Rows that are to go while one that stays points to them."""
    net = ties.nets.get(foreign.parent)
    child = ties.tables.get(foreign.child)
    if net is None or child is None:
        return []
    theirs = ties.nets.get(foreign.child)
    if theirs is not None and not theirs.keyed:
        return []  # which of them stays is seen when it is done
    points = foreign.points("n.q{}".format, child.at("c"))
    moved = "" if theirs is None else _stays(theirs, "c")
    kept = " and ".join(f"n.p{number} is not distinct from n.q{number}" for number in foreign.parent_columns)
    return [
        f"update {net.name} n set status = 'child' where n.status in {ACTIVE} and n.post and n.cur "
        f"and not (n.pre and {kept}) "
        f"and exists (select from {child.source} c where {points}{moved}) "
        f"and not exists (select from {net.name} b where b.status in {ACTIVE} and b.pre and "
        + " and ".join(
            f"b.p{number} operator({_own(net.table, number)}) n.q{number}"
            for number in foreign.parent_columns
        )
        + ")"
    ]


def _own(table: Table, number: int) -> str:
    """How two values of a referenced column are compared: as its unique index does."""
    for unique in table.uniques:
        if number in unique.columns:
            return unique.operators[unique.columns.index(number)]
    return "pg_catalog.="


def violated(connection: Connection, ties: Ties) -> list[str]:
    """Foreign keys that do not hold now that everything was put back: asked of the tables, with the rows that a child
    points to locked, so that they stay."""
    found: list[str] = []
    for foreign in ties.foreign:
        parent, child = ties.tables.get(foreign.parent), ties.tables.get(foreign.child)
        if parent is None or child is None:
            continue
        if foreign.valid and (net := ties.nets.get(foreign.child)) is not None:
            pointing = " and ".join(f"n.p{number} is not null" for number in foreign.child_columns)
            active = f"n.status in {ACTIVE} and n.pre and {pointing}"
            at = foreign.points(parent.at("t"), "n.p{}".format)
            connection.run(
                f"select 1 from {parent.source} t where exists (select from {net.name} n where {active} and {at}) "
                f"for key share of t"
            )
            lost = (
                f"select 1 from {net.name} n where {active} "
                f"and not exists (select from {parent.source} t where {at}) limit 1"
            )
            if connection.ask(lost):
                found.append(foreign.name)
                continue
        if (net := ties.nets.get(foreign.parent)) is not None:
            points = foreign.points("n.q{}".format, child.at("c"))
            at = foreign.points(parent.at("t"), child.at("c"))
            lost = (
                f"select 1 from {net.name} n join {child.source} c on {points} where n.status in {ACTIVE} and n.post "
                f"and not exists (select from {parent.source} t where {at}) limit 1"
            )
            if connection.ask(lost):
                found.append(foreign.name)
    return found


_FEW = 3
_MOST = 100


def named(connection: Connection, ties: Ties, net: Net, found: list[RowObstacle]) -> list[RowObstacle]:
    """The same obstacles; for rows that cannot be removed, with the effect that blocks them."""
    if not net.keyed or not any(one.kind == "child" for one in found):
        return found
    told: dict[str, list[str]] = {}
    for foreign in ties.foreign:
        child = ties.tables.get(foreign.child)
        if foreign.parent == net.table.oid and child is not None:
            for key, count, some in connection.ask(_pointing(ties, net, foreign, child)):
                told.setdefault(key, []).append(_in_words(child, count, some))
    return [
        one._replace(detail=f"{one.detail.partition(' (')[0]}: {'; '.join(told[one.key])}")
        if one.kind == "child" and one.key in told
        else one
        for one in found
    ]


def _pointing(ties: Ties, net: Net, foreign: Foreign, child: Table) -> str:
    points = foreign.points("n.q{}".format, child.at("c"))
    theirs = ties.nets.get(foreign.child)
    if theirs is not None and theirs.keyed:  # rows that the same undo removes are no obstacle
        points += _stays(theirs, "c")
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
