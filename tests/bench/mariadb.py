"""MariaDB: what capture costs the server for each row and each small transaction, and how fast an effect is taken back.
Processor time is that of the thread of the session: the machine's other work is not in it."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from takeback.adapters.mariadb.session import MariaSession
from takeback.testing.adapter_suite import Desk
from tests.bench.measure import Line, Table, Wishes, in_turns, seconds_of
from tests.servers import mariadb as servers
from tests.servers.fixtures import running
from tests.sql.engines import intended
from tests.sql.test_mariadb_matrix import Bench

_COLUMNS = "id INT PRIMARY KEY, name VARCHAR(60), number INT, price DECIMAL(10, 2), text TEXT, at DATETIME(6)"
_FILL = (
    "INSERT INTO {} SELECT seq, CONCAT('name ', seq), seq % 1000, seq * 1.5,"
    " CONCAT('some text that is a bit longer ', seq), '2026-01-01' + INTERVAL seq SECOND FROM seq_1_to_{}"
)
_STATEMENTS = {
    "INSERT": _FILL,
    "UPDATE": "UPDATE {} SET number = number + 1, text = CONCAT(text, 'x')",
    "DELETE": "DELETE FROM {}",
}


def measure(wishes: Wishes) -> Table:
    rows = 2_000 if wishes.quick else 100_000
    with _bench(wishes) as bench, closing(bench.place.connect()) as by_hand:
        bench.plain(
            ["CREATE DATABASE beside"]
            + [f"CREATE TABLE {name} ({_COLUMNS}, KEY (number))" for name in ("captured", "beside.plain")]
        )
        bench.adapter().protect(bench.database, ())
        lines = [*_rows(bench, by_hand, rows), _small(bench, by_hand, wishes)]
        lines += [_undo(bench, rows, event) for event in _STATEMENTS]
        lines.append(_one_among_many(bench, rows))
        lines.append(_dropped_column(bench, rows))
    notes = (
        "capture: processor time of the session's thread for each row, over the same without capture",
        "small transaction: UPDATE of one row, wall, in turns with a plain BEGIN, UPDATE, COMMIT",
        "an undo compares every row with what the effect left, puts it back and reads it again",
    )
    return Table("MariaDB", tuple(lines), notes)


@contextmanager
def _bench(wishes: Wishes) -> Iterator[Bench]:
    program = servers.of_the_system()
    if program is None:
        raise SystemExit("The numbers of MariaDB need mariadb-server-core: tools/set-up installs it.")
    # The server is another user where we are root, so that it must get there.
    with tempfile.TemporaryDirectory(
        prefix="takeback-bench-", dir=Path(wishes.directory).parent.parent
    ) as own:
        os.chmod(own, 0o755)
        template = servers.made(program, Path(own) / "shared")
        settings = {"innodb-buffer-pool-size": "256M", "innodb-log-file-size": "256M"}
        with running(servers.MariaDB(program, Path(own) / "server", template, settings)) as server:
            yield Bench(server.fresh())


def _processor(bench: Bench, cursor: Any) -> float:
    cursor.execute("SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")
    thread = cursor.fetchone()[0]
    path = Path(f"/proc/{bench.place.server.pid}/task/{thread}/schedstat")
    return int(path.read_text().split()[0]) / 1e9


def _rows(bench: Bench, by_hand: Any, rows: int) -> Iterator[Line]:
    with closing(bench.adapter().connect(bench.database)) as session:
        assert isinstance(session, MariaSession)
        own = session._wire.connection.cursor()  # pyright: ignore[reportPrivateUsage]
        plain = by_hand.cursor()
        for event, text in _STATEMENTS.items():
            start = _processor(bench, plain)
            plain.execute(text.format("beside.plain", rows))
            without = _processor(bench, plain) - start
            start = _processor(bench, own)
            session.begin(intended(bench.adapter(), session.database, "…"))
            session.execute(text.format("captured", rows), None)
            assert session.commit()
            seconds = _processor(bench, own) - start
            yield Line(f"{event}, for each of {rows:,} rows", (seconds - without) / rows, "s", "", 0.0, None)


def _small(bench: Bench, by_hand: Any, wishes: Wishes) -> Line:
    plain = by_hand.cursor()
    plain.execute(_FILL.format("beside.plain", 1_000))
    bench.plain([_FILL.format("captured", 1_000)])
    numbers = iter(range(10**9))
    times = 5 if wishes.quick else 50
    with closing(bench.adapter().connect(bench.database)) as session:

        def without() -> None:
            plain.execute("BEGIN")
            plain.execute(
                "UPDATE beside.plain SET number = number + 1 WHERE id = %s", [next(numbers) * 37 % 1_000 + 1]
            )
            plain.execute("COMMIT")

        def captured() -> None:
            session.begin(intended(bench.adapter(), session.database, "…"))
            session.execute(
                "UPDATE captured SET number = number + 1 WHERE id = %s", [next(numbers) * 37 % 1_000 + 1]
            )
            assert session.commit()

        taken = in_turns(
            {"without": lambda: seconds_of(without, times), "captured": lambda: seconds_of(captured, times)},
            wishes.rounds,
        )
    bench.plain(["DELETE FROM captured"])
    return Line(
        "small transaction", taken["captured"], "s", "without capture", taken["without"], None, "cost"
    )


def _undo(bench: Bench, rows: int, event: str) -> Line:
    bench.plain(["DELETE FROM captured", *([] if event == "INSERT" else [_FILL.format("captured", rows)])])
    desk = Desk(bench.adapter())
    effect = bench.do(_STATEMENTS[event].format("captured", rows))
    start = time.perf_counter()
    desk.undo(effect)
    return Line(f"undo {event} of {rows:,} rows", time.perf_counter() - start, "s", "", 0.0, None)


def _one_among_many(bench: Bench, rows: int) -> Line:
    bench.plain(["DELETE FROM captured", _FILL.format("captured", rows)])
    desk = Desk(bench.adapter())
    effect = bench.do("UPDATE captured SET number = -1 WHERE id = 77")
    bench.do("UPDATE captured SET number = number + 1 WHERE id <> 77")
    start = time.perf_counter()
    assert not bench.adapter().standing_on(effect)
    desk.undo(effect)
    return Line(f"undo one row among {rows:,} logged", time.perf_counter() - start, "s", "", 0.0, None)


def _dropped_column(bench: Bench, rows: int) -> Line:
    desk = Desk(bench.adapter())
    effect = bench.do("ALTER TABLE captured DROP COLUMN text")
    start = time.perf_counter()
    desk.undo(effect)
    return Line(f"undo of a dropped column of {rows:,} rows", time.perf_counter() - start, "s", "", 0.0, None)
