"""The net changes of an operation: in numbers at its end, and row by row without those that cancel out."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from takeback.adapters.mariadb.logs import OPS, TOUCHED, images_table
from takeback.adapters.mariadb.registry import LogRegistry
from takeback.adapters.mariadb.shapes import LoggedTable
from takeback.adapters.mariadb.wire import Wire

_FEW = 1000  # images, of which it is worth asking whether they cancel out


class Numbers(NamedTuple):
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    images: int = 0
    balance: int = 0  # images that were left, less those that were found


def count(wire: Wire, registry: LogRegistry, op: int) -> dict[str, Numbers]:
    return counted(registry, wire.rows(asked(registry, op)))


def asked(registry: LogRegistry, op: int) -> str:
    parts = [
        f"SELECT {walked.n}, tb_c > 0, tb_sign, COUNT(*) FROM {walked.log} WHERE tb_op = {op} GROUP BY 2, 3"
        for walked in registry.walked().values()
    ]
    return " UNION ALL ".join(parts) or "SELECT 1 FROM DUAL WHERE FALSE"


def counted(registry: LogRegistry, rows: Sequence[Sequence[Any]]) -> dict[str, Numbers]:
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


def cancels_out(wire: Wire, registry: LogRegistry, op: int, found: dict[str, Numbers]) -> bool:
    """Whether everything is as it was, if that is cheap to ask."""
    numbers = found.values()
    if sum(one.images for one in numbers) > _FEW or any(one.balance for one in numbers):
        return False
    walked = registry.walked()
    return not any(
        wire.rows(
            f"SELECT 1 FROM {walked[name].log} l WHERE tb_op = {op}"
            f" GROUP BY {walked[name].shape.logged_image('l')} HAVING SUM(SIGN(tb_sign)) <> 0 LIMIT 1"
        )
        for name in found
    )


def _net(wire: Wire, table: LoggedTable, op: int) -> Numbers:
    """A row that was written twice counts once, one that is as it was not at all. Without a key, rows that look alike
    are one as good as the other."""
    key = table.shape.logged("l", table.shape.key)
    names = "".join(f", {name} AS k{place}" for place, name in enumerate(key))
    left = (
        f"SELECT SUM(SIGN(l.tb_sign)) AS many{names} FROM {table.log} l WHERE l.tb_op = {op}"
        f" GROUP BY {', '.join([*key, table.shape.logged_image('l')])} HAVING many <> 0"
    )
    if key:
        by = ", ".join(f"k{place}" for place in range(len(key)))
        asked = (
            "SELECT SUM(NOT pre), SUM(pre AND post), SUM(NOT post) FROM (SELECT MAX(many < 0) AS pre,"
            f" MAX(many > 0) AS post FROM ({left}) n GROUP BY {by}) k"
        )
    else:
        asked = f"SELECT SUM(GREATEST(many, 0)), 0, SUM(GREATEST(-many, 0)) FROM ({left}) n"
    ((inserted, updated, deleted),) = wire.rows(asked)
    return Numbers(int(inserted or 0), int(updated or 0), int(deleted or 0))


def record(
    wire: Wire, registry: LogRegistry, op: int, found: dict[str, Numbers], schema: Sequence[str] = ()
) -> dict[str, Any]:
    receipt, statements = recording(wire, registry, op, found, schema)
    for statement in statements:
        wire.run(statement)
    return receipt


def recording(
    wire: Wire,
    registry: LogRegistry,
    op: int,
    found: dict[str, Numbers],
    schema: Sequence[str] = (),
    once: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The receipt, and what writes it down. `once`: by one statement, which writes to a row that has a key once."""
    walked = registry.walked()
    tables: dict[str, dict[str, int]] = {}
    for name, many in sorted(found.items()):
        if not (once and walked[name].shape.key):
            many = _net(wire, walked[name], op)
        if any(many[:3]):
            tables[name] = {"inserted": many.inserted, "updated": many.updated, "deleted": many.deleted}
    receipt: dict[str, Any] = {"tables": tables, "schema": list(schema)}
    statements: list[str] = []
    if found:
        rows = ", ".join(
            f"({op}, {walked[name].n}, {many.inserted}, {many.updated}, {many.deleted}, {many.images})"
            for name, many in found.items()
        )
        statements.append(f"INSERT INTO {TOUCHED} VALUES {rows}")
    statements.append(f"UPDATE {OPS} SET receipt = {wire.text(json.dumps(receipt))} WHERE no = {op}")
    return receipt, statements


# What is left of an operation when everything in it that cancels out is left out, and where the rows stand now.
#
# One table of the session for each table that the operation touched: a line for each key with the image that
# was there before and the one that it left; for a table without a key a line for each image, and how often.


# Where a line stands.
APPLY, NOTHING, CHANGED, MISSING, REOCCUPIED = "A", "N", "C", "M", "R"
TAKEN, NEEDED, ORPHANED = (
    "U",
    "F",
    "P",
)  # a unique value, by a row that refers to it, without what it refers to
UNFIT, OVERWRITE = "X", "O"
CONFLICTS = {
    CHANGED: "was changed since",
    MISSING: "is gone",
    REOCCUPIED: "was deleted, and there is another in its place",
    TAKEN: "cannot be put back: another row has taken a value that must be unique",
    NEEDED: "cannot be removed: rows that were written since refer to it",
    ORPHANED: "cannot be put back: the row that it refers to is not there",
    UNFIT: "cannot be put back: the table does not take it any more",
}
# In SQL.
IN_CONFLICTS = "({})".format(", ".join(f"'{state}'" for state in CONFLICTS))
IN_FORCEABLE = f"('{CHANGED}', '{MISSING}', '{REOCCUPIED}')"


def prepare(wire: Wire, part: LoggedTable) -> None:
    """The tables of the session. Few indexes: to write the lines is much of the work."""
    wire.run(
        f"CREATE TEMPORARY TABLE {part.net} (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, pre BIGINT UNSIGNED,"
        " post BIGINT UNSIGNED, some BIGINT UNSIGNED NOT NULL, m INT NOT NULL, c INT NOT NULL DEFAULT 0,"
        " was BINARY(32), became BINARY(32),"
        " state CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '') ENGINE=InnoDB"
    )
    wire.run(images_table(part))


def fill(wire: Wire, part: LoggedTable, op: int) -> int:
    """How many lines there are. The rows stay as they are now until the end of the transaction."""
    columns = "pre, post, was, became, some, m"
    if part.shape.key:
        wire.rows(
            f"SELECT COUNT(*) FROM {part.log} a STRAIGHT_JOIN {part.table} r ON {part.shape.same_key('a', 'r')}"
            f" WHERE a.tb_op = {op} FOR UPDATE"
        )
        return wire.run(f"INSERT INTO {part.net} ({columns}, state) SELECT {columns}, {_judged(part, op)}")
    many = wire.run(f"INSERT INTO {part.net} ({columns}) {lines(part, op)}")
    wire.rows(f"SELECT COUNT(*) FROM {part.table} FOR UPDATE")
    wire.run(
        f"UPDATE {part.net} s LEFT JOIN (SELECT {part.shape.live_image('r')} AS i, COUNT(*) AS c FROM {part.table} r"
        " GROUP BY i) x ON x.i = IFNULL(s.was, s.became)"
        f" SET s.c = IFNULL(x.c, 0), s.state = IF(s.post IS NULL OR IFNULL(x.c, 0) >= s.m, '{APPLY}', '{MISSING}')"
    )
    return many


def tally(wire: Wire, part: LoggedTable, op: int) -> dict[str, int]:
    """Only how many lines stand where, of a table with a key; under "", if it is not sound."""
    rows = wire.rows(
        f"SELECT IF(m = 1, state, ''), COUNT(*) FROM (SELECT m, {_judged(part, op)}) t GROUP BY 1"
    )
    return {str(state): int(many) for state, many in rows}


def _judged(part: LoggedTable, op: int) -> str:
    """The state of each line, and from where. To look at a row in every bit is most of the work: it is done once."""
    return (
        f"CASE WHEN now <=> became THEN '{APPLY}' WHEN now <=> was THEN '{NOTHING}' WHEN now IS NULL THEN '{MISSING}'"
        f" WHEN became IS NULL THEN '{REOCCUPIED}' ELSE '{CHANGED}' END AS state"
        f" FROM (SELECT g.*, {part.shape.live_image('r')} AS now FROM ({lines(part, op)}) g"
        f" STRAIGHT_JOIN {part.log} a ON a.tb_no = g.some"
        f" LEFT JOIN {part.table} r ON {part.shape.same_key('a', 'r')}) s"
    )


def lines(part: LoggedTable, op: int) -> str:
    shape = part.shape
    key = ", ".join(map(shape.logged_name, shape.key))
    left = f"{shape.logged_image('l')} AS i, MAX(tb_no) AS no, SUM(SIGN(tb_sign)) AS m"
    if not key:
        return (
            "SELECT IF(m < 0, no, NULL) AS pre, IF(m > 0, no, NULL) AS post, IF(m < 0, i, NULL) AS was,"
            " IF(m > 0, i, NULL) AS became, no AS some, ABS(m) AS m"
            f" FROM (SELECT {left} FROM {part.log} l WHERE tb_op = {op} GROUP BY i HAVING m <> 0) g"
        )
    return (
        "SELECT MAX(IF(m < 0, no, NULL)) AS pre, MAX(IF(m > 0, no, NULL)) AS post, MAX(IF(m < 0, i, NULL)) AS was,"
        " MAX(IF(m > 0, i, NULL)) AS became, MAX(no) AS some,"
        " GREATEST(SUM(IF(m < 0, -m, 0)), SUM(IF(m > 0, m, 0))) AS m"
        f" FROM (SELECT {key}, {left} FROM {part.log} l WHERE tb_op = {op} GROUP BY {key}, i HAVING m <> 0) g"
        f" GROUP BY {key}"
    )


def is_sound(wire: Wire, part: LoggedTable) -> bool:
    """With a key at most one image is left on each side; else something was changed that was not logged."""
    return not part.shape.key or not wire.rows(f"SELECT 1 FROM {part.net} WHERE m <> 1 LIMIT 1")


def states(wire: Wire, part: LoggedTable) -> dict[str, int]:
    return {
        str(state): int(many)
        for state, many in wire.rows(f"SELECT state, COUNT(*) FROM {part.net} GROUP BY state")
    }


def settle(wire: Wire, part: LoggedTable, state: str, ids: set[int]) -> None:
    """These lines stand there, whatever was found before."""
    ordered = list(map(str, sorted(ids)))
    for start in range(0, len(ordered), 1000):
        some = ", ".join(ordered[start : start + 1000])
        wire.run(f"UPDATE {part.net} SET state = '{state}' WHERE id IN ({some})")
