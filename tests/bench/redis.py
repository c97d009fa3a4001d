"""Redis: what a command costs as an effect of its own, how fast a database that was emptied comes back."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import takeback
from tests.bench.measure import Line, Table, Wishes, in_turns, seconds_of
from tests.servers import redis as servers
from tests.servers.fixtures import running

if TYPE_CHECKING:
    import redis


def measure(wishes: Wishes) -> Table:
    keys = 1_000 if wishes.quick else 50_000
    with _server(wishes) as database, closing(database.connect()) as others:
        store = os.path.join(wishes.directory, "store")
        with takeback.open(store) as tb:
            lines = [_small(tb, database, others, wishes, size) for size in (100, 10_000)]
            lines.append(_flush(tb, database, others, keys))
    notes = (
        "SET: wall, with the journal and the image durable before the command is sent, in turns with a plain SET",
        "FLUSHDB puts the keys aside under other names; its undo brings them back",
    )
    return Table("Redis", tuple(lines), notes)


@contextmanager
def _server(wishes: Wishes) -> Iterator[servers.RedisDatabase]:
    program = servers.of_the_system()
    if program is None:
        raise SystemExit("The numbers of Redis need redis-server: tools/set-up installs it.")
    # The server is another user where we are root, so that it must get there.
    with tempfile.TemporaryDirectory(
        prefix="takeback-bench-", dir=Path(wishes.directory).parent.parent
    ) as own:
        os.chmod(own, 0o755)
        with running(servers.Redis(program, Path(own) / "server")) as server:
            yield server.fresh()


def _small(
    tb: takeback.Takeback, database: servers.RedisDatabase, others: "redis.Redis", wishes: Wishes, size: int
) -> Line:
    value, times = "x" * size, 5 if wishes.quick else 50
    numbers = iter(range(10**9))
    with tb.run("bench") as run, run.sql(database.url) as db:
        taken = in_turns(
            {
                "without": lambda: seconds_of(lambda: others.set(f"b{next(numbers) % 100}", value), times),
                "effect": lambda: seconds_of(
                    lambda: db.execute("SET", [f"a{next(numbers) % 100}", value]), times
                ),
            },
            wishes.rounds,
        )
    return Line(
        f"SET of {size:,} bytes as an effect",
        taken["effect"],
        "s",
        "a plain SET",
        taken["without"],
        None,
        "cost",
    )


def _flush(tb: takeback.Takeback, database: servers.RedisDatabase, others: "redis.Redis", keys: int) -> Line:
    others.flushdb()
    with others.pipeline(transaction=False) as pipe:
        for number in range(keys):
            pipe.hset(f"key {number}", mapping={"a": number, "b": "some text"})
        pipe.execute()
    with tb.run("bench") as run, run.sql(database.url) as db:
        effect = db.execute("FLUSHDB").effect
    assert effect
    assert not others.exists("key 1")
    start = time.perf_counter()
    tb.undo(effect)
    seconds = time.perf_counter() - start
    assert others.exists("key 1")
    return Line(f"undo of FLUSHDB with {keys:,} keys", seconds, "s", "", 0.0, None)
