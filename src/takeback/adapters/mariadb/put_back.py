"""Put the rows back and read them again; rows that a foreign key or another rule does not let back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from takeback.adapters.mariadb.logs import GATE
from takeback.adapters.mariadb.net import APPLY, OVERWRITE, REOCCUPIED, TAKEN, UNFIT
from takeback.adapters.mariadb.shapes import WHOLE, LoggedTable, MariaForeignKey
from takeback.adapters.mariadb.wire import DUPLICATE, Wire, code_of, driver, equal, listed, of, quoted


def orphaned(
    wire: Wire, parts: dict[str, LoggedTable], links: Sequence[MariaForeignKey]
) -> dict[str, set[int]]:
    """Lines, by table, whose row was put back and refers to nothing."""
    found: dict[str, set[int]] = {}
    for link in links:
        part = parts.get(link.child)
        if part is None or not part.stores(link.columns):
            continue  # of a computed column: the row itself is checked when it is put back
        columns = part.shape.logged("p", link.columns)
        on = equal(of("x", link.refers), columns)
        given = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        if lines := wire.numbers(
            f"SELECT p.tb_op FROM {part.put} p LEFT JOIN {link.refers_to} x ON {on} WHERE p.tb_sign < 0 AND {given}"
            f" AND x.{quoted(link.refers[0])} IS NULL LOCK IN SHARE MODE"
        ):
            found.setdefault(link.child, set()).update(lines)
    return found


def needed(
    wire: Wire, parts: dict[str, LoggedTable], links: Sequence[MariaForeignKey]
) -> dict[str, set[int]]:
    """Lines, by table, whose row was removed, or changed, although others refer to it."""
    found: dict[str, set[int]] = {}
    for link in links:
        part = parts.get(link.parent)
        if link.elsewhere or part is None or not part.stores(link.refers):
            continue
        on = equal(of("y", link.columns), part.shape.logged("p", link.refers))
        again = equal(of("x", link.refers), of("y", link.columns))
        if lines := wire.numbers(
            f"SELECT DISTINCT p.tb_op FROM {part.put} p STRAIGHT_JOIN {quoted(link.child)} y ON {on}"
            f" LEFT JOIN {part.table} x ON {again} WHERE p.tb_sign > 0 AND x.{quoted(link.refers[0])} IS NULL"
        ):
            found.setdefault(link.parent, set()).update(lines)
    return found


_ACTED = f"state IN ('{APPLY}', '{OVERWRITE}')"


def gather(wire: Wire, part: LoggedTable) -> None:
    """The images at hand, apart from the log: no statement may read a table that its own triggers write to.
    `tb_op` is the line, `tb_sign` -1 what is put back and 1 what is removed."""
    shape = part.shape
    wire.run(f"DELETE FROM {part.put}")
    for column, sign in (("pre", -1), ("post", 1)):
        wire.run(
            f"INSERT INTO {part.put} ({shape.image_columns}) SELECT s.id, 0, {sign}, {', '.join(shape.logged('l'))}"
            f" FROM {part.net} s STRAIGHT_JOIN {part.log} l ON l.tb_no = s.{column} WHERE s.{_ACTED}"
        )
    if shape.key:
        wire.run(
            f"INSERT INTO {part.put} ({shape.image_columns}) SELECT s.id, 0, 1, {listed(shape.names, 'r')}"
            f" FROM {part.net} s STRAIGHT_JOIN {part.log} a ON a.tb_no = s.some"
            f" STRAIGHT_JOIN {part.table} r ON {shape.same_key('a', 'r')} WHERE s.state = '{OVERWRITE}'"
        )


def taken(wire: Wire, part: LoggedTable) -> set[int]:
    """Lines whose row cannot come back because another, which stays, has a value that must be unique."""
    shape = part.shape
    found: set[int] = set()
    if not shape.key:
        return found
    for unique in shape.uniques:
        if not unique or not part.stores(unique):
            continue  # told by the server, when the row is put back
        same = equal(of("x", unique), shape.logged("p", unique))
        found |= wire.numbers(
            f"SELECT DISTINCT p.tb_op FROM {part.put} p STRAIGHT_JOIN {part.table} x ON {same}"
            f" LEFT JOIN {part.put} k ON {shape.same_key('k', 'x')} WHERE p.tb_sign < 0 AND k.tb_no IS NULL"
        )
    return found


def place(wire: Wire, part: LoggedTable, has_triggers: bool) -> None:
    """`has_triggers`: of the application, which must see no more than is done, and whose doing is captured as well."""
    if not part.shape.key:
        _place_keyless(wire, part)
    elif has_triggers or wire.rows(f"SELECT 1 FROM {part.net} WHERE state = '{OVERWRITE}' LIMIT 1"):
        _place_one_by_one(wire, part)
    else:
        _place_at_once(wire, part)


def _place_at_once(wire: Wire, part: LoggedTable) -> None:
    """The removed and the restored rows are known, so our triggers need not log them row by row, which takes longer
    than all the rest."""
    with _unlogged(wire) as op:
        _remove(wire, part)
        _put_back(wire, part)
    if op != "NULL":
        wire.run(
            f"INSERT INTO {part.log} ({part.shape.image_columns}) SELECT {op}, 0,"
            f" IF(s.pre IS NULL OR s.post IS NULL, -1, -2) * p.tb_sign, {', '.join(part.shape.logged('p'))}"
            f" FROM {part.put} p STRAIGHT_JOIN {part.net} s ON s.id = p.tb_op ORDER BY p.tb_op, p.tb_sign DESC"
        )


@contextmanager
def _unlogged(wire: Wire) -> Iterator[str]:
    """Our triggers write nothing down. Gives the number of the operation, in SQL."""
    op = wire.one(f"SELECT {GATE}")
    number = "NULL" if op is None else str(int(op))
    wire.run(f"SET {GATE} = NULL")
    try:
        yield number
    finally:
        wire.run(f"SET {GATE} = {number}")


def _put_back(wire: Wire, part: LoggedTable) -> None:
    shape = part.shape
    put = (
        f"INSERT INTO {part.table} ({listed(shape.names)}) SELECT {', '.join(shape.logged('p'))}"
        f" FROM {part.put} p STRAIGHT_JOIN {part.net} s ON s.id = p.tb_op WHERE p.tb_sign < 0"
    )
    if shape.uniques:
        wire.run(put)
        return
    wire.run(f"{put} AND s.post IS NULL")  # if someone made such a row since, the server says no
    # These are there, and locked. An UPDATE of a join would gather all of them once more before it changes one.
    # A number in a key that is found by it is what it was; letters may be others that are taken for the same.
    changing = [
        one.name for one in shape.stored if one.name not in shape.key or one.kind not in WHOLE
    ] or shape.key
    values = ", ".join(f"{name} = VALUES({name})" for name in map(quoted, changing))
    wire.run(f"{put} AND s.post IS NOT NULL ON DUPLICATE KEY UPDATE {values}")


def _remove(wire: Wire, part: LoggedTable) -> None:
    """What only goes; and if another row may be in the way, what comes back differently too: two of them may have to
    change places."""
    only = "" if part.shape.uniques else " AND s.pre IS NULL"
    wire.run(
        f"DELETE r FROM {part.put} p STRAIGHT_JOIN {part.net} s ON s.id = p.tb_op"
        f" STRAIGHT_JOIN {part.table} r ON {part.shape.same_key('p', 'r')} WHERE p.tb_sign > 0{only}"
    )


def _place_one_by_one(wire: Wire, part: LoggedTable) -> None:
    shape = part.shape
    same = shape.same_key("p", "r")
    _remove(wire, part)
    if not shape.uniques:
        pairs = zip(of("r", shape.names), shape.logged("p"), strict=True)
        values = ", ".join(f"{live} = {logged}" for live, logged in pairs)
        wire.run(
            f"UPDATE {part.put} p STRAIGHT_JOIN {part.table} r ON {same} SET {values} WHERE p.tb_sign < 0"
        )
    wire.run(
        f"INSERT INTO {part.table} ({listed(shape.names)}) SELECT {', '.join(shape.logged('p'))}"
        f" FROM {part.put} p LEFT JOIN {part.table} r ON {same}"
        f" WHERE p.tb_sign < 0 AND r.{quoted(shape.key[0])} IS NULL"
    )


def _place_keyless(wire: Wire, part: LoggedTable) -> None:
    """Identical rows are interchangeable: all of a kind go, and as many come back as must be there."""
    shape = part.shape
    wire.run(
        f"DELETE r FROM {part.table} r JOIN (SELECT {shape.logged_image('p')} AS i FROM {part.put} p"
        f" WHERE p.tb_sign > 0) x ON x.i = {shape.live_image('r')}"
    )
    for sign, copies in ((1, "GREATEST(CAST(s.c AS SIGNED) - s.m, 0)"), (-1, "s.m")):
        source = f"{part.put} p JOIN {part.net} s ON s.id = p.tb_op WHERE p.tb_sign = {sign}"
        most = wire.one(f"SELECT MAX({copies}) FROM {source}") or 0
        for copy in range(1, int(most) + 1):
            wire.run(
                f"INSERT INTO {part.table} ({listed(shape.names)}) SELECT {', '.join(shape.logged('p'))}"
                f" FROM {source} AND {copies} >= {copy}"
            )


def differing(wire: Wire, part: LoggedTable) -> int:
    """How many lines are not as they must be now."""
    shape = part.shape
    if not shape.key:
        return wire.count(
            f"SELECT COUNT(*) FROM {part.net} s LEFT JOIN"
            f" (SELECT {shape.live_image('r')} AS i, COUNT(*) AS c FROM {part.table} r GROUP BY i) x"
            f" ON x.i = IFNULL(s.was, s.became) WHERE s.{_ACTED}"
            " AND IFNULL(x.c, 0) <> IF(s.pre IS NULL, GREATEST(CAST(s.c AS SIGNED) - s.m, 0), s.c + s.m)"
        )
    return wire.count(
        f"SELECT COUNT(*) FROM {part.net} s STRAIGHT_JOIN {part.log} a ON a.tb_no = s.some"
        f" LEFT JOIN {part.table} r ON {shape.same_key('a', 'r')}"
        f" WHERE s.{_ACTED} AND NOT ({shape.live_image('r')} <=> s.was)"
    )


_CHECK, _CHECK_IN_MYSQL, _NOT_NULL = 4025, 3819, 1048
RULES = (DUPLICATE, _CHECK, _CHECK_IN_MYSQL, _NOT_NULL)
_MOST = 100  # lines that are looked for

Lines = dict[int, tuple[str, str]]  # where each stands, and what the server said


def refused(wire: Wire, part: LoggedTable) -> Lines:
    """By trying, halves of halves. The caller has the images at hand, and rolls it back."""
    with _unlogged(wire):
        wire.run(
            f"DELETE r FROM {part.put} p STRAIGHT_JOIN {part.table} r ON {part.shape.same_key('p', 'r')}"
            " WHERE p.tb_sign > 0"
        )
        return _tried(wire, part)


def _tried(wire: Wire, part: LoggedTable) -> Lines:
    put = (
        f"INSERT INTO {part.table} ({listed(part.shape.names)}) SELECT {', '.join(part.shape.logged_names)}"
        f" FROM {part.put} WHERE tb_sign < 0 AND tb_op BETWEEN"
    )
    waiting = [sorted(wire.numbers(f"SELECT tb_op FROM {part.put} WHERE tb_sign < 0"))]
    found: Lines = {}
    while waiting and len(found) < _MOST:
        lines = waiting.pop()
        try:
            wire.run(f"{put} {lines[0]} AND {lines[-1]}")
        except driver().Error as error:
            if code_of(error) not in RULES:
                raise
            half = len(lines) // 2
            if half:
                waiting += [lines[half:], lines[:half]]
            else:
                found[lines[0]] = _state(error), str(error.args[1])
    return found


def _state(error: BaseException) -> str:
    if code_of(error) != DUPLICATE:
        return UNFIT
    # The server speaks the language of `lc_messages`; the name of the key is the same in all of them.
    return REOCCUPIED if str(error.args[1]).endswith("'PRIMARY'") else TAKEN
