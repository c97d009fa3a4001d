"""Tables given other names in one step, which is how they are dropped too; foreign keys of one that stands aside."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from takeback.adapters.database import frozen
from takeback.adapters.mariadb.ddl.layout import layout
from takeback.adapters.mariadb.registry import LogRegistry
from takeback.adapters.mariadb.shapes import OURS, MariaForeignKey, exists, links_from, one_shape
from takeback.adapters.mariadb.statements import CREATE, DROP, RENAME, AskedDefinition
from takeback.adapters.mariadb.wire import Wire, code_of, driver, equal, listed, of, quoted
from takeback.errors import Conflict, NoRemedy, StatementFailed


def names_by_columns(wire: Wire, trash: str) -> dict[tuple[str, ...], str]:
    """Names of foreign keys by their columns: InnoDB gives some another name together with the table."""
    return {link.columns: link.name for link in links_from(wire, trash)}


def untie(wire: Wire, name: str, links: Sequence[MariaForeignKey]) -> None:
    """Remove the foreign keys of a dropped table, so that it blocks no rows of others. Twice is once."""
    there = names_by_columns(wire, name)
    gone = [there[link.columns] for link in links if link.columns in there]
    if gone:
        wire.run(f"ALTER TABLE {quoted(name)} {', '.join(f'DROP FOREIGN KEY {quoted(one)}' for one in gone)}")


def tie(wire: Wire, name: str, links: Sequence[MariaForeignKey], shown: str) -> None:
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


def added(link: MariaForeignKey) -> str:
    return (
        f"ADD CONSTRAINT {quoted(link.name)} FOREIGN KEY ({listed(link.columns)}) REFERENCES {link.refers_to}"
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


def orphans(wire: Wire, name: str, link: MariaForeignKey) -> int:
    on = equal(of("p", link.refers), of("r", link.columns))
    given = " AND ".join(f"{column} IS NOT NULL" for column in of("r", link.columns))
    return wire.count(
        f"SELECT COUNT(*) FROM {quoted(name)} r LEFT JOIN {link.refers_to} p ON {on}"
        f" WHERE {given} AND p.{quoted(link.refers[0])} IS NULL"
    )


# Tables that are given other names, all of them in one step that either happens or does not. In this way a table is
# dropped (nothing of it is lost), created (under a name of ours first) and renamed; undo gives the names back.


RESTORE = "restore"
_MALFORMED_KEY = 1005


class MovedTable(NamedTuple):
    name: str
    trash: str  # the name it has while it is not there; of a rename: the new one
    links: tuple[MariaForeignKey, ...] = ()  # to tables that stay: these must not be held by what was dropped
    left: str = ""  # what it was when it was created: only then nothing of anybody is lost with it


class Moves(NamedTuple):
    act: str
    tables: tuple[MovedTable, ...]
    statement: str = ""  # that creates the table; never kept

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.tables)

    def inverse(self, effect: str) -> "Moves":
        if self.act == RENAME:
            back = tuple(one._replace(name=one.trash, trash=one.name) for one in self.tables)
            return self._replace(tables=back)
        return self._replace(act=RESTORE if self.act == DROP else DROP)

    def obstacles(self, wire: Wire, registry: LogRegistry, force: bool) -> list[tuple[str, str]]:
        """The obstacles to carrying it out, by table."""
        found: list[tuple[str, str]] = []
        for table in self.tables:
            if self.act == DROP:
                found += _against_drop(wire, registry, self, table, force)
            elif self.act == RENAME:
                if table.name not in registry.schema.shapes:
                    found.append((table.name, "is gone"))
                if table.trash in registry.schema.shapes:
                    found.append((table.trash, "is the name of another table now"))
            elif table.name in registry.schema.shapes:
                found.append((table.name, "is the name of another table now"))
            elif self.act == RESTORE:
                found += _against_restore(wire, registry, table)
        return found

    def carry_out(self, wire: Wire, registry: LogRegistry, force: bool) -> None:
        if self.act == CREATE:
            _create(wire, self)
        if self.act == RESTORE:
            for table in self.tables:
                tie(wire, table.trash, table.links, table.name)
        moves = [(table.name, table.trash) for table in self.tables]
        if self.act in (RESTORE, CREATE):
            moves = [(trash, name) for name, trash in moves]
        wire.run(f"SET SESSION foreign_key_checks = {int(self.act == RENAME)}")
        wire.run("RENAME TABLE " + ", ".join(f"{quoted(old)} TO {quoted(new)}" for old, new in moves))
        wire.run("SET SESSION foreign_key_checks = 0")

    def is_made(self, wire: Wire) -> bool:
        """All of them were renamed in one step."""
        there = any(exists(wire, table.trash) for table in self.tables)
        if self.act == CREATE:
            return not there and all(exists(wire, table.name) for table in self.tables)
        return there == (self.act in (DROP, RENAME))

    def withdraw(self, wire: Wire) -> None:
        """It was not made: nothing of it stays."""
        for table in self.tables:
            if self.act == RESTORE:
                untie(wire, table.trash, table.links)
            if self.act == CREATE:
                wire.run(f"DROP TABLE IF EXISTS {quoted(table.trash)}")

    def finish(self, wire: Wire) -> "Moves":
        """It was made. As it is to be remembered."""
        if self.act == DROP:
            for table in self.tables:
                untie(wire, table.trash, table.links)
        if self.act != CREATE:
            return self
        made: list[MovedTable] = []
        for table in self.tables:
            links = tuple(one for one in links_from(wire, table.name) if one.parent != table.name)
            made.append(table._replace(links=links, left=_left(wire, table.name)))
        return self._replace(tables=tuple(made))

    def says(self) -> list[str]:
        verb = {DROP: "was dropped", RESTORE: "is back", CREATE: "was created"}
        if self.act == RENAME:
            return [f"Table {table.name} was renamed to {table.trash}." for table in self.tables]
        return [f"Table {table.name} {verb[self.act]}." for table in self.tables]

    def throw_away(self, wire: Wire, undone: bool) -> None:
        """Not what has its name back."""
        if self.act == DROP and not undone:
            for table in self.tables:
                wire.run(f"DROP TABLE IF EXISTS {quoted(table.trash)}")

    def to_json(self) -> list[Any]:
        return [self.act, [[one.name, one.trash, list(one.links), one.left] for one in self.tables]]


def plan_drop(registry: LogRegistry, wanted: AskedDefinition, effect: str) -> Moves:
    there = [name for name in wanted.names if name in registry.schema.shapes]
    missing = [name for name in wanted.names if name not in there]
    if missing and not wanted.exists:
        raise StatementFailed(
            f"There is no table {missing[0]}.", hint="Nothing was changed. Views are not dropped here."
        )
    refuse_referred(registry, there)
    tables: list[MovedTable] = []
    for number, name in enumerate(there):
        own = (link for link in registry.schema.links if link.child == name)
        links = tuple(link for link in own if link.parent not in there)
        tables.append(MovedTable(name, f"_tb_trash_{effect}_{number}", links))
    return Moves(DROP, tuple(tables))


def plan_create(registry: LogRegistry, wanted: AskedDefinition, effect: str) -> Moves:
    (name,) = wanted.names
    if name.startswith(OURS):
        raise NoRemedy(f"Names that begin with {OURS} are takeback's own.", hint="Give it another name.")
    if name in registry.schema.shapes:
        if wanted.exists:
            return Moves(CREATE, ())
        raise StatementFailed(f"There is a table {name} already.", hint="Nothing was changed.")
    return Moves(CREATE, (MovedTable(name, f"_tb_new_{effect}"),), wanted.on(f"_tb_new_{effect}"))


def plan_rename(registry: LogRegistry, wanted: AskedDefinition) -> Moves:
    for name in wanted.names:
        if name not in registry.schema.shapes:
            raise StatementFailed(f"There is no table {name}.", hint="Nothing was changed.")
    for name in wanted.to:
        if name in registry.schema.shapes or wanted.to.count(name) > 1 or name.startswith(OURS):
            raise StatementFailed(
                f"The name {name} is taken.",
                hint="Nothing was changed. Tables change places in three renames.",
            )
    return Moves(RENAME, tuple(MovedTable(*pair) for pair in zip(wanted.names, wanted.to, strict=True)))


def refuse_referred(registry: LogRegistry, names: Sequence[str]) -> None:
    for link in registry.schema.links:
        if link.parent in names and link.child not in names and not link.elsewhere:
            raise StatementFailed(
                f"The foreign key {link.name} of {link.child} refers to {link.parent}.",
                hint="Nothing was changed. Drop that table too, or first.",
            )


def _against_drop(
    wire: Wire, registry: LogRegistry, plan: Moves, table: MovedTable, force: bool
) -> list[tuple[str, str]]:
    if table.name not in registry.schema.shapes:
        return [(table.name, "is gone")]
    found: list[tuple[str, str]] = []
    for link in registry.schema.links:
        if link.parent == table.name and link.child not in {one.name for one in plan.tables}:
            found.append((table.name, f"is needed: {link.child} refers to it"))
    if table.left and not force and _left(wire, table.name) != table.left:
        found.append((table.name, "was created, and has other rows or another definition since"))
    return found


def _against_restore(wire: Wire, registry: LogRegistry, table: MovedTable) -> list[tuple[str, str]]:
    if not exists(wire, table.trash):
        return [(table.name, "is gone: what was kept of it was removed")]
    found: list[tuple[str, str]] = []
    for link in table.links:
        if not link.elsewhere and link.parent not in registry.schema.shapes:
            found.append((table.name, f"cannot come back: {link.parent}, which it refers to, is gone"))
        elif rows := orphans(wire, table.trash, link):
            why = f"cannot come back: {rows} of its rows refer to rows of {link.parent} that are gone"
            found.append((table.name, why))
    return found


def _create(wire: Wire, plan: Moves) -> None:
    """Under a name of ours. A table that refers to itself refers to something that is not there yet."""
    (table,) = plan.tables
    wire.run("SET SESSION foreign_key_checks = 1")
    try:
        wire.run(plan.statement)
    except driver().Error as error:
        if code_of(error) != _MALFORMED_KEY or table.name not in plan.statement:
            raise
        wire.run("SET SESSION foreign_key_checks = 0")
        wire.run(plan.statement)
        for one in links_from(wire, table.trash):
            if not one.elsewhere and one.parent != table.name and not exists(wire, one.parent):
                raise


def _left(wire: Wire, name: str) -> str:
    """A digest of the definition and of every bit of the rows."""
    shape = one_shape(wire, name)
    whole = f"HEX({shape.live_image('r')})"
    parts = ", ".join(
        f"BIT_XOR(CAST(CONV(SUBSTR({whole}, {at}, 16), 16, 10) AS UNSIGNED)),"
        f" SUM(CAST(CONV(SUBSTR({whole}, {at}, 16), 16, 10) AS UNSIGNED))"
        for at in (1, 17)
    )
    rows = wire.rows(f"SELECT COUNT(*), {parts} FROM {quoted(name)} r")[0]
    return hashlib.sha256(repr((repr(layout(wire, name)), *map(str, rows))).encode()).hexdigest()


def from_json(data: list[Any]) -> Moves:
    act, tables = data
    moved = (
        MovedTable(name, trash, tuple(MariaForeignKey(*frozen(link)) for link in links), *left)
        for name, trash, links, *left in tables
    )
    return Moves(act, tuple(moved))
