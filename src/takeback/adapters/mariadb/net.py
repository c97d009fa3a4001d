"""What is left of an operation when everything in it that cancels out is left out, and where the rows stand now.

One table of the session for each table that the operation touched: a line for each key with the image that was there
before and the one that it left; for a table without a key a line for each image, and how often.
"""

from typing import NamedTuple

from takeback.adapters.mariadb.images import live_image, logged_image, logged_name, logged_names, same_key
from takeback.adapters.mariadb.logs import images_table, log_of
from takeback.adapters.mariadb.shapes import Shape
from takeback.adapters.mariadb.wire import Wire, quoted

# Where a line stands.
APPLY, NOTHING, CHANGED, MISSING, REOCCUPIED = "A", "N", "C", "M", "R"
TAKEN, NEEDED, ORPHANED = (
    "U",
    "F",
    "P",
)  # a unique value, by a row that refers to it, without what it refers to
UNFIT = "X"
OVERWRITE = "O"
CONFLICTS = {
    CHANGED: "was changed since",
    MISSING: "is gone",
    REOCCUPIED: "was deleted, and there is another in its place",
    TAKEN: "cannot be put back: another row has taken a value that must be unique",
    NEEDED: "cannot be removed: rows that were written since refer to it",
    ORPHANED: "cannot be put back: the row that it refers to is not there",
    UNFIT: "cannot be put back: the table does not take it any more",
}
FORCEABLE = (CHANGED, MISSING, REOCCUPIED)


class Part(NamedTuple):
    """One table that is touched."""

    n: int
    shape: Shape  # as it is now

    @property
    def log(self) -> str:
        return log_of(self.n)

    @property
    def net(self) -> str:
        return f"_tb_net_{self.n}"

    @property
    def put(self) -> str:
        return f"_tb_put_{self.n}"

    @property
    def table(self) -> str:
        return quoted(self.shape.name)


def prepare(wire: Wire, part: Part) -> None:
    """The tables of the session. Few indexes: to write the lines is much of the work."""
    wire.run(
        f"CREATE TEMPORARY TABLE {part.net} (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, pre BIGINT UNSIGNED,"
        " post BIGINT UNSIGNED, some BIGINT UNSIGNED NOT NULL, m INT NOT NULL, c INT NOT NULL DEFAULT 0,"
        " was BINARY(32), became BINARY(32),"
        " state CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '') ENGINE=InnoDB"
    )
    wire.run(images_table(part.put, part.shape, bool(part.shape.uniques)))


def fill(wire: Wire, part: Part, op: int) -> int:
    """How many lines there are. The rows stay as they are now until the end of the transaction."""
    columns = "pre, post, was, became, some, m"
    if part.shape.key:
        wire.rows(
            f"SELECT COUNT(*) FROM {part.log} a STRAIGHT_JOIN {part.table} r ON {same_key(part.shape, 'a', 'r')}"
            f" WHERE a.tb_op = {op} FOR UPDATE"
        )
        return wire.run(f"INSERT INTO {part.net} ({columns}, state) SELECT {columns}, {_judged(part, op)}")
    many = wire.run(f"INSERT INTO {part.net} ({columns}) {lines(part, op)}")
    wire.rows(f"SELECT COUNT(*) FROM {part.table} FOR UPDATE")
    wire.run(
        f"UPDATE {part.net} s LEFT JOIN (SELECT {live_image(part.shape, 'r')} AS i, COUNT(*) AS c FROM {part.table} r"
        " GROUP BY i) x ON x.i = IFNULL(s.was, s.became)"
        f" SET s.c = IFNULL(x.c, 0), s.state = IF(s.post IS NULL OR IFNULL(x.c, 0) >= s.m, '{APPLY}', '{MISSING}')"
    )
    return many


def tally(wire: Wire, part: Part, op: int) -> dict[str, int]:
    """Only how many lines stand where, of a table with a key; under "", if it is not sound."""
    rows = wire.rows(
        f"SELECT IF(m = 1, state, ''), COUNT(*) FROM (SELECT m, {_judged(part, op)}) t GROUP BY 1"
    )
    return {str(state): int(many) for state, many in rows}


def _judged(part: Part, op: int) -> str:
    """The state of each line, and from where. To look at a row in every bit is most of the work: it is done once."""
    return (
        f"CASE WHEN now <=> became THEN '{APPLY}' WHEN now <=> was THEN '{NOTHING}' WHEN now IS NULL THEN '{MISSING}'"
        f" WHEN became IS NULL THEN '{REOCCUPIED}' ELSE '{CHANGED}' END AS state"
        f" FROM (SELECT g.*, {live_image(part.shape, 'r')} AS now FROM ({lines(part, op)}) g"
        f" STRAIGHT_JOIN {part.log} a ON a.tb_no = g.some"
        f" LEFT JOIN {part.table} r ON {same_key(part.shape, 'a', 'r')}) s"
    )


def lines(part: Part, op: int) -> str:
    """As a SELECT."""
    shape = part.shape
    image = logged_image(shape, "l")
    key = ", ".join(logged_name(shape, name) for name in shape.key)
    left = f"{image} AS i, MAX(tb_no) AS no, SUM(SIGN(tb_sign)) AS m"
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


def is_sound(wire: Wire, part: Part) -> bool:
    """With a key at most one image is left on each side; else something was changed that was not logged."""
    return not part.shape.key or not wire.rows(f"SELECT 1 FROM {part.net} WHERE m <> 1 LIMIT 1")


def states(wire: Wire, part: Part) -> dict[str, int]:
    return {
        str(state): int(many)
        for state, many in wire.rows(f"SELECT state, COUNT(*) FROM {part.net} GROUP BY state")
    }


def settle(wire: Wire, part: Part, state: str, ids: "set[int] | frozenset[int]") -> None:
    """These lines stand there, whatever was found before."""
    for some in _several(sorted(ids)):
        wire.run(f"UPDATE {part.net} SET state = '{state}' WHERE id IN ({some})")


def _several(ids: list[int]) -> list[str]:
    return [", ".join(str(id) for id in ids[start : start + 1000]) for start in range(0, len(ids), 1000)]


def names_of(part: Part) -> tuple[str, str]:
    """The columns that are logged: in the log, and in the table."""
    logged = ", ".join(logged_names(part.shape))
    return logged, ", ".join(quoted(column.name) for column in part.shape.stored)
