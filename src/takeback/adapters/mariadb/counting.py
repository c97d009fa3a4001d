"""What an operation changed, in numbers, at the end of its transaction."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from takeback.adapters.mariadb.images import logged_image, logged_name
from takeback.adapters.mariadb.logs import OPS, TOUCHED, log_of
from takeback.adapters.mariadb.registry import Registry
from takeback.adapters.mariadb.shapes import Shape
from takeback.adapters.mariadb.wire import Wire

_FEW = 1000  # images, of which it is worth asking whether they cancel out


class Numbers(NamedTuple):
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    images: int = 0
    balance: int = 0  # images that were left, less those that were found


def count(wire: Wire, registry: Registry, op: int) -> dict[str, Numbers]:
    """By table."""
    return counted(registry, wire.rows(asked(registry, op)))


def asked(registry: Registry, op: int) -> str:
    parts = [
        f"SELECT {walked.n}, tb_c > 0, tb_sign, COUNT(*) FROM {log_of(walked.n)} WHERE tb_op = {op}"
        " GROUP BY tb_c > 0, tb_sign"
        for walked in registry.walked().values()
    ]
    return " UNION ALL ".join(parts) or "SELECT 1 FROM DUAL WHERE FALSE"


def counted(registry: Registry, rows: Sequence[Sequence[Any]]) -> dict[str, Numbers]:
    names = {walked.n: name for name, walked in registry.walked().items()}
    found: dict[str, Numbers] = {}
    for n, along, sign, many in rows:
        found[names[n]] = _added(found.get(names[n], Numbers()), bool(along), int(sign), int(many))
    return found


def _added(numbers: Numbers, along: bool, sign: int, many: int) -> Numbers:
    """Of rows that went along with others all are logged before, and those that stayed after it too."""
    inserted, updated, deleted, images, balance = numbers
    if along:
        updated += many if sign > 0 else 0
        deleted += many if sign < 0 else -many
    else:
        inserted += many if sign == 1 else 0
        updated += many if sign == 2 else 0
        deleted += many if sign == -1 else 0
    return Numbers(inserted, updated, deleted, images + many, balance + (many if sign > 0 else -many))


def cancels_out(wire: Wire, registry: Registry, op: int, found: dict[str, Numbers]) -> bool:
    """Whether everything is as it was, if that is cheap to ask."""
    if sum(numbers.images for numbers in found.values()) > _FEW:
        return False
    if any(numbers.balance for numbers in found.values()):
        return False
    for name in found:
        walked = registry.walked()[name]
        left = wire.rows(
            f"SELECT 1 FROM {log_of(walked.n)} l WHERE tb_op = {op} GROUP BY {logged_image(walked.shape, 'l')}"
            " HAVING SUM(SIGN(tb_sign)) <> 0 LIMIT 1"
        )
        if left:
            return False
    return True


def _net(wire: Wire, log: str, shape: Shape, op: int) -> Numbers:
    """A row that was written twice counts once, one that is as it was not at all. Without a key, rows that look alike
    are one as good as the other."""
    key = ", ".join(f"l.{logged_name(shape, name)}" for name in shape.key)
    names = "".join(f", l.{logged_name(shape, name)} AS k{place}" for place, name in enumerate(shape.key))
    left = (
        f"SELECT SUM(SIGN(l.tb_sign)) AS many{names} FROM {log} l WHERE l.tb_op = {op}"
        f" GROUP BY {f'{key}, ' if key else ''}{logged_image(shape, 'l')} HAVING many <> 0"
    )
    if key:
        by = ", ".join(f"k{place}" for place in range(len(shape.key)))
        asked = (
            "SELECT SUM(NOT pre), SUM(pre AND post), SUM(NOT post) FROM (SELECT MAX(many < 0) AS pre,"
            f" MAX(many > 0) AS post FROM ({left}) n GROUP BY {by}) k"
        )
    else:
        asked = f"SELECT SUM(GREATEST(many, 0)), 0, SUM(GREATEST(-many, 0)) FROM ({left}) n"
    ((inserted, updated, deleted),) = wire.rows(asked)
    return Numbers(int(inserted or 0), int(updated or 0), int(deleted or 0))


def record(
    wire: Wire, registry: Registry, op: int, found: dict[str, Numbers], schema: Sequence[str] = ()
) -> dict[str, Any]:
    """The receipt."""
    receipt, statements = recording(wire, registry, op, found, schema)
    for statement in statements:
        wire.run(statement)
    return receipt


def recording(
    wire: Wire,
    registry: Registry,
    op: int,
    found: dict[str, Numbers],
    schema: Sequence[str] = (),
    once: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The receipt, and what writes it down. `once`: by one statement, which writes to a row that has a key once."""
    numbers = {name: walked.n for name, walked in registry.walked().items()}
    tables: dict[str, dict[str, int]] = {}
    for name, many in sorted(found.items()):
        shape = registry.walked()[name].shape
        if not (once and shape.key):
            many = _net(wire, log_of(numbers[name]), shape, op)
        if any(many[:3]):
            tables[name] = {"inserted": many.inserted, "updated": many.updated, "deleted": many.deleted}
    receipt: dict[str, Any] = {"tables": tables, "schema": list(schema)}
    statements: list[str] = []
    if found:
        rows = ", ".join(
            f"({op}, {numbers[name]}, {many.inserted}, {many.updated}, {many.deleted}, {many.images})"
            for name, many in found.items()
        )
        statements.append(f"INSERT INTO {TOUCHED} VALUES {rows}")
    statements.append(f"UPDATE {OPS} SET receipt = {wire.text(json.dumps(receipt))} WHERE no = {op}")
    return receipt, statements
