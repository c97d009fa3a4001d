"""The model of random histories agrees with an honest way to take back, and notices every dishonest one."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from takeback.errors import Conflict, Refused, StatementFailed
from tests.sql.engines import SQLITE
from tests.sql.history import History, histories
from tests.sql.rows import Images, Pair, Row, State, difference, named
from tests.sql.statements import SCHEMA, Statement, schema


class Naive:
    """Takes back by whole copies of all tables, and lets SQLite itself judge keys and references."""

    dialect = SQLITE._replace(hidden={})

    def __init__(self, connection: sqlite3.Connection, lie: str = "") -> None:
        self.connection, self.lie = connection, lie
        self.images: list[tuple[Images, int | None]] = []
        self.undone: set[int] = set()
        for text in schema(SQLITE):
            connection.execute(text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))

    def begin(self) -> None:
        self.images, self.undone = [], set()
        self.connection.execute("PRAGMA foreign_keys = off")
        for table in SCHEMA:
            self.connection.execute(f"DELETE FROM {table.name}")
        self.connection.execute("PRAGMA foreign_keys = on")

    def state(self) -> State:
        return {
            table.name: Counter(self.connection.execute(f"SELECT * FROM {table.name}")) for table in SCHEMA
        }

    def outside(self, statements: list[Statement]) -> None:
        self.connection.execute("BEGIN")
        try:
            for text, parameters in statements:
                self.connection.execute(text, parameters)
            self.connection.execute("COMMIT")
        except sqlite3.IntegrityError as said:
            if self.lie != "keeps half of what failed":
                self.connection.execute("ROLLBACK")
            else:
                self.connection.execute("COMMIT")
            raise StatementFailed(str(said)) from said

    def do(self, statements: list[Statement]) -> int | None:
        before = self.state()
        self.outside(statements)
        after = self.state()
        if before == after:
            return None
        images = difference(SCHEMA, before, after)
        if self.lie == "forgets what cascades":
            said = {word for text, _ in statements for word in text.replace("(", " ").split()}
            images = Images(
                {where: pair for where, pair in images.keyed.items() if where[0] in said}, images.keyless
            )
        if self.lie == "forgets twins":
            twins = {name: Counter(dict.fromkeys(net, 1)) for name, net in images.keyless.items()}
            images = Images(images.keyed, twins)
        self.images.append((images, None))
        return len(self.images) - 1

    def undo(self, effect: int, policy: str) -> int:
        images, undoes = self.images[effect]
        before = self.state()
        conflicts = (
            frozenset(self._conflicts(images)) if self.lie != "overwrites what others wrote" else frozenset()
        )
        if conflicts and policy == "refuse":
            raise Conflict("rows were changed since")
        left: frozenset[tuple[str, Row]] = conflicts if policy == "skip" else frozenset()
        if self.lie != "lets references act":
            self.connection.execute("PRAGMA foreign_keys = off")
        try:
            self.connection.execute("BEGIN")
            self.connection.execute("PRAGMA defer_foreign_keys = on")
            self._apply(images, left)
            if (
                self.lie != "looks at no references"
                and self.connection.execute("PRAGMA foreign_key_check").fetchall()
            ):
                raise sqlite3.IntegrityError("a reference would lead nowhere")
            self.connection.execute("COMMIT")
        except sqlite3.IntegrityError as said:
            self.connection.execute("ROLLBACK")
            raise Refused(str(said)) from said
        finally:
            self.connection.execute("PRAGMA foreign_keys = on")
        self.images.append((difference(SCHEMA, before, self.state()), effect))
        if left:
            self.undone.add(len(self.images) - 1)
            self._rebase(effect, left)
        else:
            self.undone.add(effect)
            self.undone.discard(-1 if undoes is None else undoes)
        return len(self.images) - 1

    def _conflicts(self, images: Images) -> Iterator[tuple[str, Row]]:
        state = self.state()
        for (name, key), pair in images.keyed.items():
            there = self.connection.execute(f"SELECT * FROM {name} WHERE {_where(name)}", key).fetchone()
            if there not in pair:
                yield name, key
        for name, net in images.keyless.items():
            yield from ((name, row) for row, count in net.items() if state[name][row] < count)

    def _apply(self, images: Images, left: frozenset[tuple[str, Row]]) -> None:
        """First everything out, then everything in."""
        wanted = [(where, pair) for where, pair in images.keyed.items() if where not in left]
        for (name, key), _ in wanted:
            self.connection.execute(f"DELETE FROM {name} WHERE {_where(name)}", key)
        for (name, _), pair in wanted:
            if pair.before is not None:
                self._insert(name, pair.before)
        for name, net in images.keyless.items():
            for row, count in net.items():
                for _ in range(max(0, -count)):
                    self._insert(name, row)
                for _ in range(max(0, count)):
                    same = " AND ".join(f"{column} IS ?" for column in named(SCHEMA, name).columns)
                    one = f"SELECT rowid FROM {name} WHERE {same} LIMIT 1"
                    self.connection.execute(f"DELETE FROM {name} WHERE rowid = ({one})", row)

    def _insert(self, name: str, row: Row) -> None:
        self.connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)

    def _rebase(self, effect: int, left: frozenset[tuple[str, Row]]) -> None:
        if self.lie == "does not rebase":
            return
        gone = self.images[effect][0].keyed
        for where in left:
            for later in range(effect + 1, len(self.images) - 1):
                images, _ = self.images[later]
                pair = images.keyed.get(where)
                if later not in self.undone and pair and pair.before == gone[where].after:
                    images.keyed[where] = Pair(gone[where].before, pair.after)
                    break


def _where(name: str) -> str:
    return " AND ".join(f"{column} = ?" for column in named(SCHEMA, name).key)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as found:
        yield found


def test_what_takes_back_by_whole_copies_does_what_the_model_says(connection: sqlite3.Connection) -> None:
    counts = histories(Naive(connection), range(100))
    # Each thing happened often; else the histories would say little.
    assert counts.done > 400 and counts.exact > 400 and counts.refused > 50 and counts.failed > 30
    assert counts.redone > 20 and counts.skipped > 5 and counts.forced > 5


@pytest.mark.parametrize(
    "lie",
    [
        "forgets what cascades",
        "forgets twins",
        "overwrites what others wrote",
        "lets references act",
        "looks at no references",
        "keeps half of what failed",
        "does not rebase",
    ],
)
def test_a_wrong_way_to_take_back_is_noticed(connection: sqlite3.Connection, lie: str) -> None:
    with pytest.raises(AssertionError, match="seed"):
        histories(Naive(connection, lie), range(1000))


def test_the_same_seed_is_the_same_history(connection: sqlite3.Connection) -> None:
    traces = [History(Naive(connection), 7) for _ in range(2)]
    for each in traces:
        each.run()
    assert traces[0].trace == traces[1].trace
