"""A schema with everything that makes taking back hard, and random statements on it, the same for every SQL engine."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tests.sql.rows import Reference, Row, State, Table, by_key, named

Statement = tuple[str, tuple[Any, ...]]

CASCADE = "CASCADE"
SCHEMA = (
    Table("team", ("id", "name", "size"), texts=("name",), key=("id",), unique=("name",)),
    Table(
        "person", ("id", "team", "boss", "seat", "note"), texts=("note",), key=("id",), unique=("seat",),
        references=(Reference("team", "team", CASCADE, CASCADE), Reference("boss", "person", "SET NULL")),
    ),
    Table(
        "task", ("id", "person", "title"), texts=("title",), key=("id",),
        references=(Reference("person", "person", CASCADE),),
    ),
    Table("badge", ("id", "person"), key=("id",), references=(Reference("person", "person"),)),
    Table(
        "node", ("id", "parent", "label"), texts=("label",), key=("id",),
        references=(Reference("parent", "node", CASCADE),),
    ),
    Table("score", ("a", "b", "points"), key=("a", "b")),
    Table("loose", ("a", "b"), texts=("b",)),
)  # fmt: skip
TEXTS = ("", "x", "it's", 'two "words"', "zwölf", "日本", "a\nb", "🙂", "long " * 30)
# No two are equal in any collation.
NAMES = ("red", "green", "blue", "o'clock", "semi;colon", "dash--dash", "tab\tbed", "größer", "東京")


class Dialect(NamedTuple):
    """How one engine says it."""

    name: str
    mark: str  # where a parameter stands: "%s" or "?"
    text: str = "TEXT"
    unique_text: str = "TEXT"
    options: dict[str, str] = {}  # of a table, after its closing bracket: {"score": "WITHOUT ROWID"}
    upsert: str = "ON CONFLICT (a, b) DO UPDATE SET points = excluded.points"
    replace: bool = False  # has REPLACE INTO
    hidden: dict[
        str, str
    ] = {}  # what a table without a key has instead, unless it is asked for by name: "rowid"
    first: tuple[str, ...] = ()  # what each connection is told first
    truncate: str = ""  # the command, where it is a statement like others


def tables(dialect: Dialect) -> tuple[Table, ...]:
    """As the engine sees them."""
    return tuple(
        table._replace(columns=(hidden, *table.columns), key=(hidden,), by_place=True)
        if (hidden := dialect.hidden.get(table.name))
        else table
        for table in SCHEMA
    )


def schema(dialect: Dialect) -> list[str]:
    return [_create(table, dialect) for table in SCHEMA]


def _create(table: Table, dialect: Dialect) -> str:
    parts: list[str] = []
    for column in table.columns:
        kind = "INTEGER"
        if column in table.texts:
            kind = dialect.unique_text if column in table.unique else dialect.text
        parts.append(f"{column} {kind}{' NOT NULL' if column in table.key else ''}")
    if table.key:
        parts.append(f"PRIMARY KEY ({', '.join(table.key)})")
    parts += [f"UNIQUE ({column})" for column in table.unique]
    for one in table.references:
        key = named(SCHEMA, one.to).key[0]
        acts = f"ON DELETE {one.on_delete} ON UPDATE {one.on_update}"
        parts.append(f"FOREIGN KEY ({one.column}) REFERENCES {one.to} ({key}) {acts}")
    return f"CREATE TABLE {table.name} ({', '.join(parts)}) {dialect.options.get(table.name, '')}".rstrip()


class _Values:
    """Values of one statement, some written into it, some handed over beside it."""

    def __init__(self, random: Random, dialect: Dialect) -> None:
        self.random, self.dialect = random, dialect
        self.given: list[Any] = []

    def __call__(self, value: Any) -> str:
        if self.random.random() < 0.5:
            self.given.append(value)
            return self.dialect.mark
        if value is None:
            return "NULL"
        return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

    def row(self, *values: Any) -> str:
        return f"({', '.join(self(value) for value in values)})"

    def say(self, text: str) -> Statement:
        return text, tuple(self.given)


class Maker:
    """Makes statements that mostly fit what is in the tables; some the database will refuse, and that is a case too."""

    def __init__(self, random: Random, dialect: Dialect) -> None:
        self.random, self.dialect = random, dialect
        self._last = 0

    def effect(self, state: State) -> list[Statement]:
        """One transaction."""
        found: list[Statement] = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            found += self.random.choice(_KINDS)(self, state)
        return found

    def values(self) -> _Values:
        return _Values(self.random, self.dialect)

    def number(self) -> int:
        """One that was not there, or one that perhaps is."""
        self._last += 1
        return self._last if self.random.random() < 0.8 else self.random.randint(1, 30)

    def text(self) -> str | None:
        return self.random.choice((*TEXTS, None))

    def some(self, table: str, state: State, column: str = "", none: float = 0.0) -> Any:
        """A value of this column, or of the key, that is there; at times one that is not."""
        found = named(SCHEMA, table)
        there = sorted({found.at(row, column or found.key[0]) for row in state[table]} - {None})
        if not there or self.random.random() < none:
            return None if none else self.random.randint(1, 40)
        return self.random.choice(there)


def _teams(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    free = [name for name in NAMES if name not in {row[1] for row in state["team"]}] or list(NAMES)
    names = make.random.sample(free, k=min(len(free), make.random.randint(1, 3)))
    rows = ", ".join(values.row(make.number(), name, make.random.randint(0, 9)) for name in names)
    return [values.say(f"INSERT INTO team (id, name, size) VALUES {rows}")]


def _people(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    rows = ", ".join(
        values.row(
            make.number(), make.some("team", state, none=0.2), make.some("person", state, none=0.5),
            make.number() if make.random.random() < 0.7 else None, make.text(),
        )
        for _ in range(make.random.randint(1, 4))
    )  # fmt: skip
    return [values.say(f"INSERT INTO person (id, team, boss, seat, note) VALUES {rows}")]


def _tasks(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    rows = ", ".join(
        values.row(make.number(), make.some("person", state, none=0.1), make.text()) for _ in range(3)
    )
    return [values.say(f"INSERT INTO task (id, person, title) VALUES {rows}")]


def _badge(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [
        values.say(
            f"INSERT INTO badge (id, person) VALUES {values.row(make.number(), make.some('person', state))}"
        )
    ]


def _nodes(make: Maker, state: State) -> list[Statement]:
    """Each the child of the one before: deep."""
    values, parent, rows = make.values(), make.some("node", state, none=0.4), list[str]()
    for _ in range(make.random.randint(1, 4)):
        number = make.number()
        rows.append(values.row(number, parent, make.text()))
        parent = number
    return [values.say(f"INSERT INTO node (id, parent, label) VALUES {', '.join(rows)}")]


def _scores(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    pair = lambda: (make.random.randint(1, 4), make.random.randint(1, 4))  # noqa: E731
    taken = by_key(named(SCHEMA, "score"), state)
    new = {key for key in (pair() for _ in range(4)) if key not in taken} or {pair()}
    rows = ", ".join(values.row(*key, make.random.randint(0, 99)) for key in sorted(new))
    return [values.say(f"INSERT INTO score (a, b, points) VALUES {rows}")]


def _upsert(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    row = values.row(make.random.randint(1, 4), make.random.randint(1, 4), make.random.randint(0, 99))
    if make.dialect.replace and make.random.random() < 0.5:
        return [values.say(f"REPLACE INTO score (a, b, points) VALUES {row}")]
    return [values.say(f"INSERT INTO score (a, b, points) VALUES {row} {make.dialect.upsert}")]


def _points(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [
        values.say(
            f"UPDATE score SET points = points + {values(7)} WHERE a <= {values(make.random.randint(1, 4))}"
        )
    ]


def _grow(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [
        values.say(
            f"UPDATE team SET size = size + {values(1)} WHERE id <= {values(make.some('team', state))}"
        )
    ]


def _note(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [
        values.say(
            f"UPDATE person SET note = {values(make.text())} WHERE id = {values(make.some('person', state))}"
        )
    ]


def _move(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    team, boss = make.some("team", state, none=0.2), make.some("person", state, none=0.3)
    where = values.row  # filled from left to right, as the marks stand
    change = f"team = {values(team)}, boss = {values(boss)}"
    return [values.say(f"UPDATE person SET {change} WHERE id IN {where(*_two(make, 'person', state))}")]


def _two(make: Maker, table: str, state: State) -> tuple[int, int]:
    return make.some(table, state), make.some(table, state)


def _remove_team(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [values.say(f"DELETE FROM team WHERE id IN {values.row(*_two(make, 'team', state))}")]


def _remove_person(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [values.say(f"DELETE FROM person WHERE id = {values(make.some('person', state))}")]


def _remove_node(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [values.say(f"DELETE FROM node WHERE id = {values(make.some('node', state))}")]


def _remove_badges(make: Maker, state: State) -> list[Statement]:
    return [("DELETE FROM badge", ())]


def _empty(make: Maker, state: State) -> list[Statement]:
    table = make.random.choice(("task", "score", "loose", "node", "person"))
    if make.dialect.truncate and table in ("task", "score", "loose") and make.random.random() < 0.5:
        return [(f"{make.dialect.truncate} {table}", ())]
    return [(f"DELETE FROM {table}", ())]


def _other_key(make: Maker, state: State) -> list[Statement]:
    """The people of the team follow."""
    values = make.values()
    return [
        values.say(
            f"UPDATE team SET id = {values(make.number() + 1000)} WHERE id = {values(make.some('team', state))}"
        )
    ]


def _swap_seats(make: Maker, state: State) -> list[Statement]:
    seated = [row for row in sorted(state["person"], key=repr) if row[3] is not None]
    if len(seated) < 2:
        return _people(make, state)
    one, two = make.random.sample(seated, k=2)
    return [_seat(make, one, -1), _seat(make, two, one[3]), _seat(make, one, two[3])]


def _seat(make: Maker, person: Row, seat: int) -> Statement:
    values = make.values()
    return values.say(f"UPDATE person SET seat = {values(seat)} WHERE id = {values(person[0])}")


def _anew(make: Maker, state: State) -> list[Statement]:
    """Deleted, and there again under the same key, otherwise."""
    team, values, others = make.some("team", state), make.values(), make.values()
    row = others.row(team, make.random.choice(NAMES), make.random.randint(10, 19))
    return [
        values.say(f"DELETE FROM team WHERE id = {values(team)}"),
        others.say(f"INSERT INTO team (id, name, size) VALUES {row}"),
    ]


def _there_and_back(make: Maker, state: State) -> list[Statement]:
    return [("UPDATE team SET size = size + 5", ()), ("UPDATE team SET size = size - 5", ())]


def _the_same(make: Maker, state: State) -> list[Statement]:
    return [("UPDATE node SET label = label", ())]


def _twins(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    a, b = make.random.randint(1, 3), make.random.choice(TEXTS[:3])
    rows = ", ".join(values.row(a, b) for _ in range(make.random.randint(1, 3)))
    return [values.say(f"INSERT INTO loose (a, b) VALUES {rows}")]


def _merge_twins(make: Maker, state: State) -> list[Statement]:
    """Rows that were different become equal."""
    values = make.values()
    return [
        values.say(
            f"UPDATE loose SET a = {values(make.random.randint(1, 3))} WHERE a = {values(make.random.randint(1, 3))}"
        )
    ]


def _fewer_twins(make: Maker, state: State) -> list[Statement]:
    values = make.values()
    return [
        values.say(f"DELETE FROM loose WHERE a = {values(make.random.randint(1, 3))} AND b <> {values('x')}")
    ]


def _from_others(make: Maker, state: State) -> list[Statement]:
    return [("INSERT INTO loose (a, b) SELECT team, note FROM person WHERE team IS NOT NULL", ())]


_KINDS: tuple[Callable[[Maker, State], list[Statement]], ...] = (
    _teams, _teams, _people, _people, _people, _tasks, _tasks, _badge, _nodes, _nodes, _scores, _upsert, _upsert,
    _points, _points, _points, _grow, _grow, _grow, _note, _note, _note, _move, _move, _remove_team, _remove_person,
    _remove_node, _remove_badges, _empty, _other_key, _swap_seats, _anew, _there_and_back, _the_same, _twins, _twins,
    _merge_twins, _fewer_twins, _from_others,
)  # fmt: skip
