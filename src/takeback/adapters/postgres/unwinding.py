"""Take an effect back from its end to its beginning: the rows that it wrote last, the change of the schema before that,
the rows before that, and so on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.postgres import definitions, noting, ops, shelf
from takeback.adapters.postgres.connecting import ask, driver, run
from takeback.adapters.postgres.following import capture_again
from takeback.adapters.postgres.logs import log_name, of_op
from takeback.adapters.postgres.missing import look_for_missing
from takeback.adapters.postgres.net import EVER, Stretch
from takeback.adapters.postgres.ops import Op
from takeback.adapters.postgres.restoring import Odd, reverse
from takeback.adapters.postgres.shelf import Move
from takeback.adapters.postgres.steps import Step, steps_of, where_it_is_now
from takeback.adapters.postgres.telling import Obstacle
from takeback.adapters.postgres.undoing import Look, carry_out, listed, look
from takeback.model.plan import OnConflict

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


class Unwound(NamedTuple):
    looks: tuple[Look, ...]
    moves: tuple[Move, ...]  # of tables that went or came
    tables: dict[str, dict[str, int]]
    sentences: tuple[str, ...]  # what became of the schema
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def to_do(self) -> int:
        return sum(one.to_do for one in self.looks)


def unwind(connection: "Connection", op: Op, number: int, on_conflict: OnConflict, lock: bool) -> Unwound:
    """What is done belongs to op `number`. It ends at the first stage where something is in the way."""
    record = again(connection, op)
    look_for_missing(connection, record)
    events: list[Move | Step] = [*record.moves, *steps_of(connection, record.no)]
    events = sorted(events, key=lambda one: one.step)[::-1]  # of equal ones the last first
    looks: list[Look] = []
    moves: list[Move] = []
    said: list[str] = []
    done: dict[str, dict[str, int]] = {}
    obstacles: Sequence[Obstacle] = ()
    until = EVER.until
    for event in [*events, None]:
        stretch = Stretch(event.step if event else EVER.since, until)
        obstacles = _rows(connection, record, stretch, on_conflict, lock, looks, done)
        if obstacles or event is None:
            break
        until = stretch.since
        try:
            moved, sentences = _event(connection, event, number)
        except Odd as odd:
            obstacles = (Obstacle(odd.name, "", "schema", odd.why),)
            break
        moves += moved
        said += sentences
    return Unwound(tuple(looks), tuple(moves), done, tuple(said), tuple(obstacles))


def one_way(connection: "Connection", op: Op, moves: Sequence[Move]) -> str:
    """Why an effect cannot be taken back as it is now; empty if it can. Its undo is carried out and rolled back."""
    psycopg = driver()
    run(connection, "savepoint takeback_way_back")
    try:
        whole = op._replace(logs=ops.touched(connection, op.no), moves=tuple(moves))
        found = unwind(connection, whole, op.no, OnConflict.REFUSE, lock=False)
        why = "; ".join(
            f"{one.table} {one.key} {one.detail}".replace("  ", " ") for one in found.obstacles[:3]
        )
    except psycopg.Error as error:
        why = str(error.diag.message_primary)
    run(connection, "rollback to savepoint takeback_way_back")
    return why


def again(connection: "Connection", op: Op) -> Op:
    """An effect that was taken back and brought again happened the second time as that redo says."""
    while True:
        rows = ask(
            connection,
            "select r.id from takeback.op u join takeback.op r on r.undoes = u.id "
            "where u.undoes = %s and r.undone_by is null and not r.partial and not r.forgotten "
            "order by r.no desc limit 1",
            [op.id],
        )
        later = ops.find(connection, rows[0][0]) if rows else None
        if later is None or not later.has_schema:
            return op
        op = later


def _rows(
    connection: "Connection",
    op: Op,
    stretch: Stretch,
    on_conflict: OnConflict,
    lock: bool,
    looks: list[Look],
    done: dict[str, dict[str, int]],
) -> Sequence[Obstacle]:
    if not any(_wrote(connection, op, log, stretch) for log in op.logs):
        return ()
    seen = look(connection, op, on_conflict, lock=lock, stretch=stretch)
    looks.append(seen)
    if seen.conflicts:
        return listed(connection, seen)
    for name, counts in carry_out(connection, seen).items():
        sums = done.setdefault(name, {"inserted": 0, "updated": 0, "deleted": 0})
        for word, count in counts.items():
            sums[word] += count
    return ()


def _wrote(connection: "Connection", op: Op, log: int, stretch: Stretch) -> bool:
    own = f"{of_op(op.source, op.wide)} and {stretch.sql}"
    return bool(ask(connection, f"select 1 from {log_name(log)} where {own} limit 1"))


def _event(connection: "Connection", event: Move | Step, number: int) -> tuple[list[Move], list[str]]:
    before = definitions.read(connection)
    if isinstance(event, Move):
        moved, odd = shelf.reverse(connection, [event], number)
        if odd:
            raise Odd(*odd[0])
        said: list[str] = []
        # Its schema may have come with it.
        apart = [oid for move in moved for oid in (move.oid, *move.parts)]
        noting.note(connection, number, before, definitions.read(connection), [], without=apart)
    else:
        event = where_it_is_now(connection, event)
        lost = noting.losses(connection, event.after, event.before)
        gone = {one.oid for one in event.after if one.is_table} - {
            one.oid for one in event.before if one.is_table
        }
        here = {key[1] for key in before if key[0] == "relation"}
        saved = noting.save(connection, {oid: lost[oid] for oid in lost if oid not in gone and oid in here})
        moved, left = reverse(connection, event, number)
        after = definitions.read(connection)
        step = noting.note(connection, number, before, after, saved, without=[move.oid for move in moved])
        said = left + (definitions.sentences(step.before, step.after, before | after) if step else [])
        differ = [*definitions.differing(after, before), *definitions.differing(before, after)]
        changed = {one.oid for one in differ if one.kind in ("relation", "column")}
        capture_again(connection, changed, new=False)
    at = ask(connection, "select nextval('takeback.step')")[0][0]
    return [move._replace(step=at) for move in moved], [*said, *(move.sentence for move in moved)]
