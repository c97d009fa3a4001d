"""Tables that come and go. One that is dropped is put on a shelf instead, a schema of its own, with everything that is
part of it: indexes, triggers, rights, sequences, comments, rows. Undo takes it back from there."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from takeback.adapters.database import frozen
from takeback.adapters.postgres.connection import Connection, driver
from takeback.adapters.postgres.statements import tokens
from takeback.adapters.postgres.tables import quoted, tables

GONE, COME = "gone", "come"


class TableMove(NamedTuple):
    """A table that was put on a shelf (gone), or that was not there before (come). Its record is JSON."""

    kind: str
    oid: int
    schema: str
    name: str
    parts: tuple[int, ...]  # partitions, which move with it
    foreign: tuple[tuple[str, str], ...] = ()  # foreign keys to other tables: name and definition
    content: str = ""  # of one that came: a mark of all its rows, when the effect had ended
    step: int = 0  # when, among all that the effect did
    back: tuple[str, ...] = ()  # what else is to be done when it is taken from the shelf

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sentence(self) -> str:
        return f"table {self.shown} was {'dropped' if self.kind == GONE else 'created'}"


def to_json(moves: Sequence[TableMove]) -> list[list[Any]]:
    return [list(move) for move in moves]


def from_json(data: Sequence[Any] | None) -> list[TableMove]:
    return [TableMove(*frozen(one)) for one in data or ()]


def dropped_names(statement: str) -> tuple[list[str], bool] | None:
    """Of DROP TABLE [IF EXISTS] a, b [CASCADE]: the names as they are written, and whether they may be missing. None:
    it is another statement."""
    words = [(kind, statement[begin:end]) for kind, begin, end in tokens(statement)]
    words = [(kind, text) for kind, text in words if kind not in ("line", "block") and text.strip()]
    plain = [text.upper() for _, text in words]
    if plain[:2] != ["DROP", "TABLE"]:
        return None
    maybe = plain[2:4] == ["IF", "EXISTS"]
    rest = words[4:] if maybe else words[2:]
    if rest and rest[-1][0] == "word" and rest[-1][1].upper() in ("CASCADE", "RESTRICT"):
        rest = rest[:-1]
    names = "".join(text for _, text in rest).split(",")
    return (names, maybe) if all(names) else None


def drop(connection: Connection, statement: str, op: int) -> list[TableMove] | None:
    """Put on the shelf what the statement would drop. None: it is about something else, or other things hang on it, and
    nothing was done."""
    parsed = dropped_names(statement)
    if parsed is None:
        return None
    oids = [connection.ask("select to_regclass(%s)::oid::int8", [name])[0][0] for name in parsed[0]]
    found = {one.oid: one for one in tables(connection, [oid for oid in oids if oid])}
    if any(oid is not None and oid not in found for oid in oids) or any(
        one.kind == "f" or one.root != one.oid or one.by_row for one in found.values()
    ):
        return None  # a temporary table, a partition: as it is
    connection.run("savepoint takeback_drop")
    try:
        # Asked first: is it allowed, and does nothing else hang on it?
        connection.run(re.sub(r"(?i)\bcascade\s*$", "", statement))
    except driver().errors.DependentObjectsStillExist:
        connection.run("rollback to savepoint takeback_drop")
        return None
    connection.run("rollback to savepoint takeback_drop")
    return [put(connection, op, oid) for oid in dict.fromkeys(oids) if oid is not None]


def put(connection: Connection, op: int, oid: int) -> TableMove:
    return _somewhere(connection, op, lambda place: _put(connection, place, oid))


_PLACES = 100  # shelves of one effect, at most


def _somewhere(connection: Connection, op: int, act: Callable[[str], Any]) -> Any:
    """On the first shelf of the effect where the name is free: it may put two things of one name away."""
    for number in range(_PLACES):
        place = f"takeback_{op}_{number}" if number else f"takeback_{op}"
        fresh = not connection.ask("select to_regnamespace(%s) is not null", [place])[0][0]
        connection.run("savepoint takeback_put")
        try:
            connection.run(f"create schema if not exists {place}")
            return act(place)
        except (driver().errors.DuplicateTable, driver().errors.DuplicateObject):
            if fresh or number == _PLACES - 1:
                raise
            connection.run("rollback to savepoint takeback_put")
    return None


def _put(connection: Connection, place: str, oid: int) -> TableMove:
    schema, name, parts = _place(connection, oid)
    foreign = connection.ask(
        "select conname, pg_get_constraintdef(oid) from pg_constraint "
        "where conrelid = %s and contype = 'f' and conparentid = 0 and confrelid <> conrelid order by conname",
        [oid],
    )
    for constraint, _ in foreign:
        # On the shelf it must not hold on to rows of others.
        connection.run(f"alter table {_sql(schema, name)} drop constraint {quoted(constraint)}")
    back = _apart(connection, oid)
    _move(connection, (oid, *parts), place)
    return TableMove(GONE, oid, schema, name, parts, tuple(map(tuple, foreign)), back=back)


def _apart(connection: Connection, oid: int) -> tuple[str, ...]:
    """A partition leaves the table that it is part of; what must be done when it comes back."""
    rows = connection.ask(
        "select format('%%I.%%I', n.nspname, k.relname), format('%%I.%%I', m.nspname, c.relname), "
        "pg_get_expr(c.relpartbound, c.oid) from pg_inherits i "
        "join pg_class k on k.oid = i.inhparent join pg_namespace n on n.oid = k.relnamespace "
        "join pg_class c on c.oid = i.inhrelid join pg_namespace m on m.oid = c.relnamespace where c.oid = %s",
        [oid],
    )
    back: list[str] = []
    for parent, this, bound in rows:
        if bound:
            connection.run(f"alter table {parent} detach partition {this}")
            back.append(f"alter table {parent} attach partition {this} {bound}")
        else:
            connection.run(f"alter table {this} no inherit {parent}")
            back.append(f"alter table {this} inherit {parent}")
    return tuple(back)


def put_type(connection: Connection, op: int, name: str) -> None:
    """A type too: images of rows may be of it."""
    _somewhere(connection, op, lambda place: connection.run(f"alter type {name} set schema {place}"))


def take_type(connection: Connection, oid: int, schema: str) -> bool:
    """False: it is not there."""
    rows = connection.ask(
        "select n.nspname, t.typname from pg_type t join pg_namespace n on n.oid = t.typnamespace "
        "where t.oid = %s and n.nspname ~ '^takeback_[0-9_]+$'",
        [oid],
    )
    for place, name in rows:
        connection.run(f"alter type {_sql(place, name)} set schema {quoted(schema)}")
        _remove_empty(connection, place)
    return bool(rows)


def take(connection: Connection, move: TableMove) -> TableMove | str:
    """Back from the shelf; or why not."""
    place = _name(connection, move.oid)
    if not place or not place[0].startswith("takeback_"):
        return "it is not where it was kept any more"
    connection.run("savepoint takeback_take")
    try:
        connection.run(f"create schema if not exists {quoted(move.schema)}")
        _move(connection, (move.oid, *move.parts), quoted(move.schema))
        for constraint, definition in move.foreign:
            connection.run(
                f"alter table {_sql(move.schema, move.name)} add constraint {quoted(constraint)} {definition}"
            )
        for statement in move.back:
            connection.run(statement)
    except (driver().errors.DuplicateTable, driver().errors.InvalidSchemaName) as error:
        connection.run("rollback to savepoint takeback_take")
        return f"its place is taken: {error.diag.message_primary}"
    except driver().errors.IntegrityError as error:
        connection.run("rollback to savepoint takeback_take")
        return f"rows that it points to are gone: {error.diag.message_primary}"
    _remove_empty(connection, place[0])
    # Rows of a partition are those of the table that it is part of, and are put back with that.
    mark = content(connection, move.oid) if move.back else ""
    return TableMove(COME, move.oid, move.schema, move.name, move.parts, content=mark)


def _remove_empty(connection: Connection, schema: str) -> None:
    if not connection.ask(
        "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s "
        "union all select 1 from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname = %s limit 1",
        [schema, schema],
    ):
        connection.run(f"drop schema {quoted(schema)} restrict")


def content(connection: Connection, oid: int) -> str:
    """A mark of all rows of a table, whatever their order."""
    return connection.ask("select takeback.content(%s)", [oid])[0][0]


def reverse(
    connection: Connection, moves: Sequence[TableMove], op: int
) -> tuple[list[TableMove], list[tuple[str, str]]]:
    """The other way round, the last one first: what was done, and what stands in the way of the rest."""
    done: list[TableMove] = []
    odd: list[tuple[str, str]] = []
    for move in reversed(moves):
        if move.kind == GONE:
            taken = take(connection, move)
            odd += [(move.shown, f"cannot come back: {taken}")] if isinstance(taken, str) else []
            done += [taken] if isinstance(taken, TableMove) else []
        elif not connection.ask("select 1 from pg_class where oid = %s", [move.oid]):
            odd.append((move.shown, "was dropped since"))
        elif move.content and content(connection, move.oid) != move.content:
            odd.append((move.shown, "was made by the effect and has other rows since"))
        elif held := pointing(connection, move.oid):
            odd.append((move.shown, f"was made by the effect, and {held} came since and hangs on it"))
        else:
            done.append(put(connection, op, move.oid))
    return done, odd


def pointing(connection: Connection, oid: int) -> str:
    found = connection.ask(
        "select pg_describe_object(d.classid, d.objid, d.objsubid) from pg_depend d "
        "left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid "
        "left join pg_constraint k on d.classid = 'pg_constraint'::regclass and k.oid = d.objid "
        "where d.refobjid = %s and d.refclassid = 'pg_class'::regclass and d.deptype = 'n' "
        "and (w.ev_class <> d.refobjid or k.contype = 'f' and k.conrelid <> d.refobjid) limit 1",
        [oid],
    )
    return found[0][0] if found else ""


def _name(connection: Connection, oid: int) -> tuple[str, str] | None:
    """None: it is no more."""
    rows = connection.ask(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = %s",
        [oid],
    )
    return rows[0] if rows else None


def _place(connection: Connection, oid: int) -> tuple[str, str, tuple[int, ...]]:
    parts = connection.ask(
        "select relid::oid::int8 from pg_partition_tree(%s::oid) where relid <> %s::oid order by level, relid",
        [oid, oid],
    )
    named = _name(connection, oid)
    assert named
    return *named, tuple(part for (part,) in parts)


def _move(connection: Connection, oids: Sequence[int], schema: str) -> None:
    for oid in oids:
        named = _name(connection, oid)
        assert named
        connection.run(f"alter table {_sql(*named)} set schema {schema}")


def _sql(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}"


def come(connection: Connection, oid: int) -> TableMove:
    return TableMove(COME, oid, *_place(connection, oid))


def marked(connection: Connection, moves: Sequence[TableMove]) -> list[TableMove]:
    """With a mark of the rows that each new table has now."""
    return [
        move._replace(content=content(connection, move.oid))
        if move.kind == COME and not move.content
        else move
        for move in moves
    ]


def clear(connection: Connection, moves: Sequence[TableMove], op: int) -> None:
    """Let go of what lies on the shelf for an effect that can never be undone."""
    for move in moves:
        place = _name(connection, move.oid)
        if move.kind == GONE and place and place[0].startswith("takeback_"):
            connection.run(f"drop table {_sql(*place)} cascade")
            _remove_empty(connection, place[0])
