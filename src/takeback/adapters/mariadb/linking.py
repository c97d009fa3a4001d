"""Foreign keys are not looked after while rows are put back, in any order; afterwards each is checked both ways."""

from collections.abc import Sequence

from takeback.adapters.mariadb.images import logged_name
from takeback.adapters.mariadb.net import Part
from takeback.adapters.mariadb.shapes import Link
from takeback.adapters.mariadb.wire import Wire, quoted


def orphaned(wire: Wire, parts: dict[str, Part], links: Sequence[Link]) -> dict[str, set[int]]:
    """Lines, by table, whose row was put back and refers to nothing."""
    found: dict[str, set[int]] = {}
    for link in links:
        part = parts.get(link.child)
        if part is None or not _is_stored(part, link.columns):
            continue
        columns = [f"p.{logged_name(part.shape, name)}" for name in link.columns]
        pairs = zip(columns, link.refers, strict=True)
        on = " AND ".join(f"x.{quoted(refers)} = {column}" for column, refers in pairs)
        given = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        rows = wire.rows(
            f"SELECT p.tb_op FROM {part.put} p LEFT JOIN {_parent(link)} x ON {on} WHERE p.tb_sign < 0 AND {given}"
            f" AND x.{quoted(link.refers[0])} IS NULL LOCK IN SHARE MODE"
        )
        if rows:
            found.setdefault(link.child, set()).update(int(line) for (line,) in rows)
    return found


def needed(wire: Wire, parts: dict[str, Part], links: Sequence[Link]) -> dict[str, set[int]]:
    """Lines, by table, whose row was removed, or changed, although others refer to it."""
    found: dict[str, set[int]] = {}
    for link in links:
        part = parts.get(link.parent)
        if link.elsewhere or part is None or not _is_stored(part, link.refers):
            continue
        refers = [logged_name(part.shape, name) for name in link.refers]
        on = " AND ".join(
            f"y.{quoted(column)} = p.{name}" for column, name in zip(link.columns, refers, strict=True)
        )
        again = " AND ".join(
            f"x.{quoted(name)} = y.{quoted(column)}"
            for column, name in zip(link.columns, link.refers, strict=True)
        )
        rows = wire.rows(
            f"SELECT DISTINCT p.tb_op FROM {part.put} p STRAIGHT_JOIN {quoted(link.child)} y ON {on}"
            f" LEFT JOIN {part.table} x ON {again} WHERE p.tb_sign > 0 AND x.{quoted(link.refers[0])} IS NULL"
        )
        if rows:
            found.setdefault(link.parent, set()).update(int(line) for (line,) in rows)
    return found


def _is_stored(part: Part, names: Sequence[str]) -> bool:
    """A foreign key on a computed column: the row itself is checked when it is put back."""
    return {column.name for column in part.shape.stored}.issuperset(names)


def _parent(link: Link) -> str:
    return f"{quoted(link.elsewhere)}.{quoted(link.parent)}" if link.elsewhere else quoted(link.parent)
