"""Foreign keys of a table that stands aside: what was dropped must hold nobody's rows, and what comes back must."""

from collections.abc import Sequence

from takeback.adapters.mariadb.shapes import Link
from takeback.adapters.mariadb.wire import Wire, listed, quoted
from takeback.errors import Conflict


def names_by_columns(wire: Wire, trash: str) -> dict[tuple[str, ...], str]:
    """Names of foreign keys by their columns: InnoDB gives some another name together with the table."""
    found: dict[str, tuple[str, ...]] = {}
    for name, column in wire.rows(
        "SELECT CONSTRAINT_NAME, COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE()"
        f" AND TABLE_NAME = {wire.text(trash)} AND REFERENCED_TABLE_NAME IS NOT NULL"
        " ORDER BY CONSTRAINT_NAME, ORDINAL_POSITION"
    ):
        found[name] = (*found.get(name, ()), column)
    return {columns: name for name, columns in found.items()}


def untie(wire: Wire, name: str, links: Sequence[Link]) -> None:
    """What was dropped must hold nobody's rows. Twice is once."""
    there = names_by_columns(wire, name)
    gone = [there[link.columns] for link in links if link.columns in there]
    if gone:
        wire.run(f"ALTER TABLE {quoted(name)} {', '.join(f'DROP FOREIGN KEY {quoted(one)}' for one in gone)}")


def tie(wire: Wire, name: str, links: Sequence[Link], shown: str) -> None:
    """Before it gets its name back: then rows that it refers to cannot go, and whether all are there can be seen."""
    there = names_by_columns(wire, name)
    adds = [added(one) for one in links if one.columns not in there]
    if adds:
        before = _indexes(wire, name)
        wire.run(f"ALTER TABLE {quoted(name)} {', '.join(adds)}")
        # An index that the server had made for a foreign key gets the name of the new one.
        for columns, index in _indexes(wire, name).items():
            if (old := before.get(columns, index)) != index:
                wire.run(f"ALTER TABLE {quoted(name)} RENAME INDEX {quoted(index)} TO {quoted(old)}")
    if any(orphans(wire, name, link) for link in links):
        untie(wire, name, links)
        raise Conflict(
            f"{shown} cannot come back: rows that it refers to are gone.", hint="Nothing was changed."
        )


def added(link: Link) -> str:
    """As a clause of ALTER TABLE."""
    return (
        f"ADD CONSTRAINT {quoted(link.name)} FOREIGN KEY ({listed(link.columns)}) REFERENCES {_parent(link)}"
        f" ({listed(link.refers)}){_rule('DELETE', link.on_delete)}{_rule('UPDATE', link.on_update)}"
    )


def _indexes(wire: Wire, trash: str) -> dict[str, str]:
    return {
        str(columns): str(name)
        for name, columns in wire.rows(
            "SELECT INDEX_NAME, GROUP_CONCAT(QUOTE(COLUMN_NAME) ORDER BY SEQ_IN_INDEX)"
            " FROM information_schema.STATISTICS"
            f" WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {wire.text(trash)} GROUP BY INDEX_NAME"
        )
    }


def _rule(event: str, act: str) -> str:
    """Said of itself, RESTRICT comes out as NO ACTION."""
    return "" if act == "RESTRICT" else f" ON {event} {act}"


def orphans(wire: Wire, name: str, link: Link) -> int:
    on = " AND ".join(
        f"p.{quoted(refers)} = r.{quoted(column)}"
        for column, refers in zip(link.columns, link.refers, strict=True)
    )
    given = " AND ".join(f"r.{quoted(column)} IS NOT NULL" for column in link.columns)
    return int(
        wire.one(
            f"SELECT COUNT(*) FROM {quoted(name)} r LEFT JOIN {_parent(link)} p ON {on}"
            f" WHERE {given} AND p.{quoted(link.refers[0])} IS NULL"
        )
        or 0
    )


def _parent(link: Link) -> str:
    return f"{quoted(link.elsewhere)}.{quoted(link.parent)}" if link.elsewhere else quoted(link.parent)
