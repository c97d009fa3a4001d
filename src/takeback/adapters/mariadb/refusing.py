"""Rows that their table does not take any more: a rule was added since, or someone else was quicker."""

from takeback.adapters.mariadb.images import logged_names, same_key
from takeback.adapters.mariadb.logs import GATE
from takeback.adapters.mariadb.net import REOCCUPIED, TAKEN, UNFIT, Part, names_of
from takeback.adapters.mariadb.wire import DUPLICATE, Wire, code_of

_CHECK, _CHECK_IN_MYSQL, _NOT_NULL = 4025, 3819, 1048
RULES = (DUPLICATE, _CHECK, _CHECK_IN_MYSQL, _NOT_NULL)
_MOST = 100  # lines that are looked for

Lines = dict[int, tuple[str, str]]  # where each stands, and what the server said


def refused(wire: Wire, part: Part) -> Lines:
    """By trying, halves of halves. The caller has the images at hand, and rolls it back."""
    op = wire.one(f"SELECT {GATE}")
    wire.run(f"SET {GATE} = NULL")
    try:
        wire.run(
            f"DELETE r FROM {part.put} p STRAIGHT_JOIN {part.table} r ON {same_key(part.shape, 'p', 'r')}"
            " WHERE p.tb_sign > 0"
        )
        return _tried(wire, part)
    finally:
        wire.run(f"SET {GATE} = {'NULL' if op is None else int(op)}")


def _tried(wire: Wire, part: Part) -> Lines:
    from pymysql import err

    put = (
        f"INSERT INTO {part.table} ({names_of(part)[1]}) SELECT {', '.join(logged_names(part.shape))}"
        f" FROM {part.put} WHERE tb_sign < 0 AND tb_op BETWEEN"
    )
    rows = wire.rows(f"SELECT tb_op FROM {part.put} WHERE tb_sign < 0 ORDER BY tb_op")
    waiting = [[int(line) for (line,) in rows]]
    found: Lines = {}
    while waiting and len(found) < _MOST:
        lines = waiting.pop()
        try:
            wire.run(f"{put} {lines[0]} AND {lines[-1]}")
        except err.Error as error:
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
    return REOCCUPIED if str(error.args[1]).endswith("for key 'PRIMARY'") else TAKEN
