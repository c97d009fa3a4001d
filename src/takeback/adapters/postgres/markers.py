"""The markers in the database: which effects happened, which were taken back, whose images are gone."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from takeback.adapters.postgres.connection import Connection, Question
from takeback.adapters.postgres.ddl import definitions, dropped_tables
from takeback.adapters.postgres.ddl.dropped_tables import TableMove
from takeback.adapters.postgres.logs import is_wide, log_name, of_op
from takeback.errors import Corrupt
from takeback.model.ids import short


class PostgresOp(NamedTuple):
    no: int
    id: str
    undoes: str | None
    undone_by: str | None
    partial: bool
    forgotten: bool
    rebased: bool
    logs: tuple[int, ...]
    moves: tuple[TableMove, ...]
    source: int  # the op whose images are also this one's, or itself
    turned: bool  # with before and after exchanged
    wide: bool  # one of the statements that the images are of changed many rows
    steps: bool  # it changed the schema
    counters: bool  # it set sequences back
    images: dict[str, list[int]] | None  # how many there were in each log, before and after; None: not known
    lost: tuple[str, ...] = ()  # what it destroyed without a copy, in words; such an effect cannot be undone

    @property
    def has_schema(self) -> bool:
        return self.steps or bool(self.moves)


_COLUMNS = (
    "o.no, o.id, o.undoes, o.undone_by, o.partial, o.forgotten, o.rebased, o.logs, o.moves, "
    "coalesce(o.mirrors, o.no), o.turned, "
    "exists (select from takeback.wide w where w.op = coalesce(o.mirrors, o.no)), "
    "exists (select from takeback.ddl d where d.op = o.no), "
    "exists (select from takeback.counter c where c.op = o.no), "
    "case when o.mirrors is null then o.images else (select s.images from takeback.op s where s.no = o.mirrors) end, "
    "o.told->'lost'"
)


def find(connection: Connection, effect: str, lock: bool = False) -> PostgresOp | None:
    return found(connection, connection.ask(*question(effect, lock)))


def question(effect: str, lock: bool = False) -> Question:
    """The question, for a caller that sends several at once."""
    return Question(
        f"select {_COLUMNS} from takeback.op o where o.id = %s{' for update' if lock else ''}", [effect]
    )


def found(connection: Connection, rows: list[tuple[Any, ...]]) -> PostgresOp | None:
    if not rows:
        return None
    op = PostgresOp(*rows[0])
    known: Any = op.logs  # NULL until it is closed
    return op._replace(
        logs=touched(connection, op.no) if known is None else tuple(known),
        moves=tuple(dropped_tables.from_json(op.moves)),
        lost=tuple(op.lost or ()),
    )


def touched(connection: Connection, op: int) -> tuple[int, ...]:
    """Which logs have images of it, by asking each."""
    numbers = [row[0] for row in connection.ask("select no from takeback.log order by no")]
    if not numbers:
        return ()
    few, all_of_it = (of_op(op, wide) for wide in (False, is_wide(connection, op)))
    each = " union all ".join(
        f"select {number} where exists (select from {log_name(number)} where {few}) "
        f"or exists (select from {log_name(number)} where {all_of_it})"
        for number in numbers
    )
    return tuple(row[0] for row in connection.ask(each))


def taken_back(connection: Connection, op: PostgresOp, by: str) -> None:
    """It is no longer in force, so what it had taken back is, and so on."""
    connection.run(*not_in_force(op, by))
    follow(connection, op)


def not_in_force(op: PostgresOp, by: str | None) -> Question:
    return Question("update takeback.op set undone_by = %s where no = %s", [by, op.no])


def follow(connection: Connection, op: PostgresOp) -> None:
    """The effect that an undo took back, the undo that took that back, and so on."""
    brought_back = True
    while op.undoes and not op.partial:
        earlier = find(connection, op.undoes)
        if earlier is None:
            return
        connection.run(*not_in_force(earlier, None if brought_back else op.id))
        op, brought_back = earlier, not brought_back


def erase(connection: Connection, op: PostgresOp) -> None:
    """Delete the marker of an effect that was rolled back, and its images."""
    erase_images(connection, op)
    connection.run("delete from takeback.op where no = %s", [op.no])


def erase_images(connection: Connection, op: PostgresOp) -> None:
    _give_mirrors_their_own(connection, op)
    dropped_tables.clear(connection, op.moves, op.no)
    definitions.forget(connection, op.no)
    own = of_op(op.no, is_wide(connection, op.no))
    for log in op.logs:
        connection.run(f"delete from {log_name(log)} where {own}")
    connection.run("delete from takeback.wide where op = %s", [op.no])
    connection.run("delete from takeback.counter where op = %s", [op.no])


def mirror(op: int, of: PostgresOp) -> Question:
    """It did just the opposite, row by row, so its images need not be kept twice."""
    return Question(
        "update takeback.op set mirrors = %s, turned = %s where no = %s", [of.source, not of.turned, op]
    )


def _give_mirrors_their_own(connection: Connection, op: PostgresOp) -> None:
    """Effects that share these images get a copy before they are removed."""
    sharing = connection.ask(
        "select no, turned from takeback.op where mirrors = %s and not forgotten", [op.no]
    )
    shapes = connection.ask("select no, shape from takeback.log where no = any (%s)", [list(op.logs)])
    wide = is_wide(connection, op.no)
    for number, turned in sharing:
        if wide:
            connection.run("insert into takeback.wide values (%s)", [number])
        for log, shape in shapes:
            columns = "".join(f", c{column[0]}" for column in shape)
            connection.run(
                f"insert into {log_name(log)} (op, step, sign, wide{columns}) "
                f"select {number}, step, {'-' if turned else ''}sign, wide{columns} from {log_name(log)} "
                f"where {of_op(op.no, wide)}"
            )
        counts = "(select jsonb_object_agg(l, takeback.numbers(no, l)) from unnest(logs) l)"
        connection.run(
            f"update takeback.op set mirrors = null, turned = false, images = {counts} where no = %s",
            [number],
        )


def refuse_missing(op: PostgresOp, found: Mapping[int, list[int]]) -> None:
    """`found`: how many images each log has, before and after."""
    for log, wanted in (op.images or {}).items():
        have = found.get(int(log), [0, 0])
        if have != wanted:
            raise Corrupt(
                f"Effect {short(op.id)} cannot be taken back: of the {sum(wanted)} images of rows that were kept in "
                f"{log_name(int(log))}, {sum(have)} are there.",
                hint="Nothing was changed. Someone changed what takeback keeps in the schema `takeback`; a backup of "
                "the database may have it.",
                effect=op.id,
            )


def look_for_missing(connection: Connection, op: PostgresOp) -> None:
    if op.images:
        rows = connection.ask(
            "select l, takeback.numbers(%s, l) from unnest(%s::int[]) l", [op.source, [*map(int, op.images)]]
        )
        refuse_missing(op, dict(rows))
