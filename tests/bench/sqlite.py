"""SQLite: what capture adds to a small transaction, how fast a large effect is taken back, and how much memory it
takes."""

import os
import time
from collections.abc import Iterator

import apsw

import takeback
from takeback.adapters.sqlite.child.server import ChildServer
from takeback.adapters.sqlite.session import SqliteDesk
from tests.bench.measure import Line, Table, Wishes, in_turns, seconds_of

_TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INT, c REAL, d TEXT, e)"
_FILL = """
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
    INSERT INTO t SELECT i, 'name ' || i, i % 1000, i * 1.5, 'some text that is a bit longer ' || i, NULL FROM n
"""

_ONE_ROW = "UPDATE t SET b = b + 1 WHERE id = ?"


def measure(wishes: Wishes) -> Table:
    rows = 5_000 if wishes.quick else 100_000
    lines = [_small(wishes, mode) for mode in ("delete", "wal")]
    lines.append(_whole_effect(wishes))
    lines += [_undo(wishes, rows, what, statement) for what, statement in _EFFECTS.items()]
    lines.append(_one_among_many(wishes, rows * (10 if wishes.full else 1)))
    lines += _large(wishes, 10_000_000 if wishes.full else rows * 4)
    notes = (
        "small transactions: UPDATE of one row, synchronous = FULL, in turns with the same library without capture:"
        " what capture adds inside SQLite, images and marker in the same transaction",
        "as a whole effect: the same through run.sql, with the process that has SQLite in it, an intent before and a"
        " done after it in our journal (two more durable commits), and the marker read again",
        "an undo compares every row with what the effect left, puts it back and reads it again",
    )
    return Table("SQLite", tuple(lines), notes)


_EFFECTS = {
    "UPDATE": "UPDATE t SET b = b + 1, d = d || 'x'",
    "DELETE": "DELETE FROM t",
    "INSERT": "INSERT INTO t SELECT id + 100000000, a, b, c, d, e FROM t",
}


def _file(wishes: Wishes, name: str, rows: int, mode: str = "wal") -> str:
    path = os.path.join(wishes.directory, name)
    connection = apsw.Connection(path)
    connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    connection.execute(_TABLE)
    connection.execute(_FILL.format(rows=rows))
    connection.close()
    return path


def _small(wishes: Wishes, mode: str) -> Line:
    plain = apsw.Connection(_file(wishes, f"plain-{mode}", 10_000, mode))
    plain.execute("PRAGMA synchronous = FULL")
    room = ChildServer(lambda: True)
    room.open(_file(wishes, f"captured-{mode}", 10_000, mode))
    room.begin_with("first", 0, "UPDATE t SET b = 0 WHERE id = 1", (), False)
    assert room.commit()
    numbers = iter(range(10**9))
    times = 5 if wishes.quick else 100

    def without() -> None:
        plain.execute("BEGIN IMMEDIATE")
        plain.execute(_ONE_ROW, (next(numbers) * 37 % 9_999 + 1,))
        plain.execute("COMMIT")

    def captured() -> None:
        number = next(numbers)
        room.begin_with(f"op-{number}", 0, _ONE_ROW, (number * 37 % 9_999 + 1,), False)
        assert room.commit()

    taken = in_turns(
        {"without": lambda: seconds_of(without, times), "captured": lambda: seconds_of(captured, times)},
        wishes.rounds,
    )
    room.close()
    plain.close()
    what = f"small transaction, journal_mode = {mode}"
    return Line(what, taken["captured"], "s", "without capture", taken["without"], 1.4, "cost")


def _whole_effect(wishes: Wishes) -> Line:
    plain = apsw.Connection(_file(wishes, "plain-whole", 10_000))
    plain.execute("PRAGMA synchronous = FULL")
    file = _file(wishes, "whole", 10_000)
    numbers = iter(range(10**9))
    times = 5 if wishes.quick else 50

    def without() -> None:
        plain.execute("BEGIN IMMEDIATE")
        plain.execute(_ONE_ROW, (next(numbers) * 37 % 9_999 + 1,))
        plain.execute("COMMIT")

    tb = takeback.open(os.path.join(wishes.directory, "store"))
    with tb.run("bench", agent="bench") as run, run.sql(f"sqlite:///{file}") as db:
        taken = in_turns(
            {
                "without": lambda: seconds_of(without, times),
                "captured": lambda: seconds_of(
                    lambda: db.execute(_ONE_ROW, (next(numbers) * 37 % 9_999 + 1,)), times
                ),
            },
            wishes.rounds,
        )
    tb.close()
    plain.close()
    what = "the same as a whole effect, journal_mode = wal"
    return Line(what, taken["captured"], "s", "without takeback", taken["without"], None, "cost")


def _do(desk: SqliteDesk, effect: str, statement: str) -> None:
    desk.ask("begin_with", effect, 0, statement, (), False)
    assert desk.ask("commit")


def _undo(wishes: Wishes, rows: int, what: str, statement: str) -> Line:
    desk = SqliteDesk(_file(wishes, f"undo-{what}", rows))
    taken: list[float] = []
    for number in range(3):
        _do(desk, f"op-{number}", statement)
        start = time.perf_counter()
        desk.ask("undo", f"op-{number}", f"undo-{number}", "refuse", False)
        taken.append(time.perf_counter() - start)
    desk.end()
    return Line(
        f"undo {what} of {rows:,} rows", sorted(taken)[1], "s", "at 100,000 rows/s", rows / 100_000, 1.0
    )


def _one_among_many(wishes: Wishes, rows: int) -> Line:
    desk = SqliteDesk(_file(wishes, "one", rows))
    _do(desk, "one", "UPDATE t SET b = -1 WHERE id = 77")
    _do(desk, "many", "UPDATE t SET b = b + 1 WHERE id <> 77")
    start = time.perf_counter()
    assert desk.ask("standing_on", "one") == []
    desk.ask("undo", "one", "back", "refuse", False)
    seconds = time.perf_counter() - start
    desk.end()
    return Line(f"undo one row among {rows:,} logged", seconds, "s", "", 0.0, 0.05)


def _large(wishes: Wishes, rows: int) -> Iterator[Line]:
    desk = SqliteDesk(_file(wishes, "large", rows))
    _do(desk, "large", _EFFECTS["UPDATE"])
    done = _peak(desk.pid)
    start = time.perf_counter()
    desk.ask("undo", "large", "back", "refuse", False)
    seconds = time.perf_counter() - start
    undone = _peak(desk.pid)
    desk.end()
    most = 300 * 1024**2
    yield Line(f"memory for an effect of {rows:,} rows", done, "B", "", 0.0, most)
    yield Line("and for its undo", undone, "B", "", 0.0, most)
    yield Line("and of the process that asked", _peak(os.getpid()), "B", "", 0.0, most)
    yield Line(f"undo UPDATE of {rows:,} rows", seconds, "s", "at 100,000 rows/s", rows / 100_000, 1.0)


def _peak(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
