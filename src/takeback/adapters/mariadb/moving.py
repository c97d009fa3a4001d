"""Tables that are given other names, all of them in one step that either happens or does not. In this way a table is
dropped (nothing of it is lost), created (under a name of ours first) and renamed; undo gives the names back."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from takeback.adapters.mariadb.asking import CREATE, DROP, RENAME, Asked
from takeback.adapters.mariadb.images import image
from takeback.adapters.mariadb.layouts import definition
from takeback.adapters.mariadb.referring import orphans, tie, untie
from takeback.adapters.mariadb.registry import Registry
from takeback.adapters.mariadb.shapes import OURS, Link, exists, links_from, one_shape
from takeback.adapters.mariadb.wire import Wire, code_of, quoted
from takeback.errors import NoRemedy, StatementFailed

RESTORE = "restore"
_MALFORMED_KEY = 1005


class Moved(NamedTuple):
    name: str
    trash: str  # the name it has while it is not there; of a rename: the new one
    links: tuple[Link, ...] = ()  # to tables that stay: these must not be held by what was dropped
    left: str = ""  # what it was when it was created: only then nothing of anybody is lost with it


class Moves(NamedTuple):
    act: str
    tables: tuple[Moved, ...]
    statement: str = ""  # that creates the table; never kept


def plan_drop(registry: Registry, wanted: Asked, effect: str) -> Moves:
    there = [name for name in wanted.names if name in registry.schema.shapes]
    missing = [name for name in wanted.names if name not in there]
    if missing and not wanted.exists:
        raise StatementFailed(
            f"There is no table {missing[0]}.", hint="Nothing was changed. Views are not dropped here."
        )
    refuse_referred(registry, there)
    tables = tuple(
        Moved(name, f"_tb_trash_{effect}_{number}", links_of(registry, name, there))
        for number, name in enumerate(there)
    )
    return Moves(DROP, tables)


def plan_create(registry: Registry, wanted: Asked, effect: str) -> Moves:
    (name,) = wanted.names
    if name.startswith(OURS):
        raise NoRemedy(f"Names that begin with {OURS} are takeback's own.", hint="Give it another name.")
    if name in registry.schema.shapes:
        if wanted.exists:
            return Moves(CREATE, ())
        raise StatementFailed(f"There is a table {name} already.", hint="Nothing was changed.")
    return Moves(CREATE, (Moved(name, f"_tb_new_{effect}"),), wanted.on(f"_tb_new_{effect}"))


def plan_rename(registry: Registry, wanted: Asked) -> Moves:
    for name in wanted.names:
        if name not in registry.schema.shapes:
            raise StatementFailed(f"There is no table {name}.", hint="Nothing was changed.")
    for name in wanted.to:
        if name in registry.schema.shapes or wanted.to.count(name) > 1 or name.startswith(OURS):
            raise StatementFailed(
                f"The name {name} is taken.",
                hint="Nothing was changed. Tables change places in three renames.",
            )
    return Moves(RENAME, tuple(Moved(*pair) for pair in zip(wanted.names, wanted.to, strict=True)))


def links_of(registry: Registry, name: str, together: Sequence[str] = ()) -> tuple[Link, ...]:
    return tuple(
        link
        for link in registry.schema.links
        if link.child == name and link.parent != name and link.parent not in together
    )


def refuse_referred(registry: Registry, names: Sequence[str]) -> None:
    for link in registry.schema.links:
        if link.parent in names and link.child not in names and not link.elsewhere:
            raise StatementFailed(
                f"The foreign key {link.name} of {link.child} refers to {link.parent}.",
                hint="Nothing was changed. Drop that table too, or first.",
            )


def inverse(plan: Moves) -> Moves:
    if plan.act == RENAME:
        return plan._replace(
            tables=tuple(one._replace(name=one.trash, trash=one.name) for one in plan.tables)
        )
    return plan._replace(act=RESTORE if plan.act == DROP else DROP)


def obstacles(wire: Wire, registry: Registry, plan: Moves, force: bool = False) -> list[tuple[str, str]]:
    """What is in the way of carrying it out, by table."""
    found: list[tuple[str, str]] = []
    for table in plan.tables:
        if plan.act == DROP:
            found += _against_drop(wire, registry, plan, table, force)
        elif plan.act == RENAME:
            if table.name not in registry.schema.shapes:
                found.append((table.name, "is gone"))
            if table.trash in registry.schema.shapes:
                found.append((table.trash, "is the name of another table now"))
        elif table.name in registry.schema.shapes:
            found.append((table.name, "is the name of another table now"))
        elif plan.act == RESTORE:
            found += _against_restore(wire, registry, table)
    return found


def _against_drop(
    wire: Wire, registry: Registry, plan: Moves, table: Moved, force: bool
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


def _against_restore(wire: Wire, registry: Registry, table: Moved) -> list[tuple[str, str]]:
    if not exists(wire, table.trash):
        return [(table.name, "is gone: what was kept of it was removed")]
    found: list[tuple[str, str]] = []
    for link in table.links:
        if not link.elsewhere and link.parent not in registry.schema.shapes:
            found.append((table.name, f"cannot come back: {link.parent}, which it refers to, is gone"))
        elif rows := orphans(wire, table.trash, link):
            found.append(
                (
                    table.name,
                    f"cannot come back: {rows} of its rows refer to rows of {link.parent} that are gone",
                )
            )
    return found


def act(wire: Wire, plan: Moves) -> None:
    if plan.act == CREATE:
        _create(wire, plan)
    if plan.act == RESTORE:
        for table in plan.tables:
            tie(wire, table.trash, table.links, table.name)
    moves = [(table.name, table.trash) for table in plan.tables]
    if plan.act in (RESTORE, CREATE):
        moves = [(trash, name) for name, trash in moves]
    wire.run(f"SET SESSION foreign_key_checks = {int(plan.act == RENAME)}")
    wire.run("RENAME TABLE " + ", ".join(f"{quoted(old)} TO {quoted(new)}" for old, new in moves))
    wire.run("SET SESSION foreign_key_checks = 0")


def _create(wire: Wire, plan: Moves) -> None:
    """Under a name of ours. A table that refers to itself refers to something that is not there yet."""
    from pymysql import err

    (table,) = plan.tables
    wire.run("SET SESSION foreign_key_checks = 1")
    try:
        wire.run(plan.statement)
    except err.Error as error:
        if code_of(error) != _MALFORMED_KEY or table.name not in plan.statement:
            raise
        wire.run("SET SESSION foreign_key_checks = 0")
        wire.run(plan.statement)
        for one in links_from(wire, table.trash):
            if not one.elsewhere and one.parent != table.name and not exists(wire, one.parent):
                raise


def is_made(wire: Wire, plan: Moves) -> bool:
    """All of them were renamed in one step."""
    there = any(exists(wire, table.trash) for table in plan.tables)
    if plan.act == CREATE:
        return not there and all(exists(wire, table.name) for table in plan.tables)
    return there == (plan.act in (DROP, RENAME))


def withdraw(wire: Wire, plan: Moves) -> None:
    """It was not made: nothing of it stays."""
    for table in plan.tables:
        if plan.act == RESTORE:
            untie(wire, table.trash, table.links)
        if plan.act == CREATE:
            wire.run(f"DROP TABLE IF EXISTS {quoted(table.trash)}")


def finish(wire: Wire, plan: Moves) -> Moves:
    """It was made. As it is to be remembered."""
    if plan.act == DROP:
        for table in plan.tables:
            untie(wire, table.trash, table.links)
    if plan.act != CREATE:
        return plan
    return plan._replace(tables=tuple(_as_created(wire, table) for table in plan.tables))


def _as_created(wire: Wire, table: Moved) -> Moved:
    links = tuple(one for one in links_from(wire, table.name) if one.parent != table.name)
    return table._replace(links=links, left=_left(wire, table.name))


def _left(wire: Wire, name: str) -> str:
    """What a table is, and its rows in every bit, in short."""
    shape = one_shape(wire, name)
    whole = f"HEX({image(shape.stored, [f'r.{quoted(column.name)}' for column in shape.stored])})"
    parts = ", ".join(
        f"BIT_XOR(CAST(CONV(SUBSTR({whole}, {at}, 16), 16, 10) AS UNSIGNED)),"
        f" SUM(CAST(CONV(SUBSTR({whole}, {at}, 16), 16, 10) AS UNSIGNED))"
        for at in (1, 17)
    )
    rows = wire.rows(f"SELECT COUNT(*), {parts} FROM {quoted(name)} r")[0]
    return hashlib.sha256(repr((definition(wire, name), *map(str, rows))).encode()).hexdigest()


def says(plan: Moves) -> list[str]:
    verb = {DROP: "was dropped", RESTORE: "is back", CREATE: "was created"}
    if plan.act == RENAME:
        return [f"Table {table.name} was renamed to {table.trash}." for table in plan.tables]
    return [f"Table {table.name} {verb[plan.act]}." for table in plan.tables]


def throw_away(wire: Wire, plan: Moves) -> None:
    """The power to undo it was given up."""
    if plan.act == DROP:
        for table in plan.tables:
            wire.run(f"DROP TABLE IF EXISTS {quoted(table.trash)}")


def to_json(plan: Moves) -> list[Any]:
    return [plan.act, [[one.name, one.trash, list(one.links), one.left] for one in plan.tables]]


def from_json(data: list[Any]) -> Moves:
    act, tables = data
    return Moves(
        act,
        tuple(
            Moved(
                name,
                trash,
                tuple(
                    Link(link[0], link[1], tuple(link[2]), link[3], tuple(link[4]), *link[5:])
                    for link in links
                ),
                *left,
            )
            for name, trash, links, *left in tables
        ),
    )
