"""One undo from beginning to end, in one transaction; and what it would do."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from takeback.adapters.database import obstructed
from takeback.adapters.postgres import attachment, markers
from takeback.adapters.postgres.connection import Connection, Question, driver, patience, wait_no_longer
from takeback.adapters.postgres.ddl import dropped_tables
from takeback.adapters.postgres.dependents import rebase
from takeback.adapters.postgres.install import hold, outdated
from takeback.adapters.postgres.markers import PostgresOp
from takeback.adapters.postgres.programs import refuse_guest, refuse_lost
from takeback.adapters.postgres.put_back import RowsMoved
from takeback.adapters.postgres.session import close_op, commit, open_op
from takeback.adapters.postgres.tables import about_switching_off
from takeback.adapters.postgres.unwind import (
    carry_out,
    listed,
    look,
    not_as_before,
    plainly,
    refuse,
    refuse_other,
    unwind,
)
from takeback.errors import Conflict, InDoubt, NoRemedy
from takeback.model.change import OnConflict
from takeback.model.database import Database, target_of
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Obstacle, Outcome, TargetOutcome

if TYPE_CHECKING:
    Rows = list[tuple[Any, ...]]

TRIES = 5


class _Unattached(Exception):
    """The triggers are needed: what this undo changes is not just the opposite of its effect."""


_ALONE = 2  # from this attempt on


def as_planned(
    connection: Connection, database: Database, of: Effect, on_conflict: OnConflict
) -> tuple[TargetOutcome, ...]:
    whole = target_of(database, of.id)
    refuse_guest(connection)
    _, rows = connection.ask_all([Question("begin"), markers.question(of.id)])
    op = markers.found(connection, rows)
    if op is None:
        return (TargetOutcome(whole, Outcome.CONFLICT, _UNKNOWN, obstacle=Obstacle.OTHER),)
    if op.undone_by:
        return (TargetOutcome(whole, Outcome.ALREADY, f"effect {short(op.undone_by)} took it back"),)
    if op.rebased:
        return (TargetOutcome(whole, Outcome.CONFLICT, _REBASED, obstacle=Obstacle.OTHER),)
    if op.lost and on_conflict.skips:
        return (TargetOutcome(whole, Outcome.EXCLUDED, f"has lost {'; '.join(op.lost)}"),)
    refuse_lost(op)
    if op.has_schema:
        return _as_unwound(connection, database, op, on_conflict)
    seen = look(connection, op, on_conflict)
    found = [_outcome(database, one) for one in listed(connection, seen)] if seen.conflicts else []
    # A rollback would let the driver forget what the server has learnt.
    connection.run("commit" if seen.plain else "rollback")
    if seen.to_do:
        return (TargetOutcome(whole, Outcome.UNDONE, _rows(seen.to_do)), *found)
    if op.counters and not found and not op.logs:
        return (TargetOutcome(whole, Outcome.UNDONE, "sequences that were set back continue"),)
    return tuple(found) or (TargetOutcome(whole, Outcome.ALREADY, "every row has its earlier values"),)


def _as_unwound(
    connection: Connection, database: Database, op: PostgresOp, on_conflict: OnConflict
) -> tuple[TargetOutcome, ...]:
    """Tried, to the end or to what is in the way; then rolled back."""
    if outdated(connection):
        raise NoRemedy(
            "An older takeback protected this database, so an undo of its schema cannot be planned.",
            hint="Run `takeback sql protect` again; what was captured so far stays.",
        )
    wait_no_longer(connection)
    found = unwind(connection, op, op.no, on_conflict, lock=False)
    connection.give_up()
    if found.obstacles:
        return tuple(_outcome(database, one) for one in found.obstacles)
    words = ([_rows(found.to_do)] if found.to_do else []) + list(found.sentences)
    return (TargetOutcome(target_of(database, op.id), Outcome.UNDONE, ", ".join(words)),)


_UNKNOWN = "the database knows nothing of this effect: it may have been restored from a backup"
_REBASED = "later effects were given another past when it left rows out, so it cannot be brought back"


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"


def _outcome(database: Database, one: Any) -> TargetOutcome:
    what = _OBSTACLES.get(one.kind, Obstacle.OTHER)
    return obstructed(database, one.detail, one.table, one.key, what=what)


_OBSTACLES = {"changed": Obstacle.CHANGED, "reoccupied": Obstacle.CHANGED, "missing": Obstacle.GONE}


def take_back(connection: Connection, effect: Effect) -> dict[str, Any]:
    """Carry an undo out. Its own images are written under its own id, so that it can be undone in its turn."""
    refuse_guest(connection)
    asked = [
        markers.question(effect.undoes, lock=True), markers.question(effect.id), about_switching_off(connection),
    ]  # fmt: skip

    left: list[Any] = []  # triggers that a killed process left

    def tried(attached: bool) -> dict[str, Any]:
        return _tried(
            connection,
            effect.undoes,
            asked,
            lambda attempt, found: _take_back(connection, effect, attempt, found, attached, left),
        )

    try:
        told = tried(attached=False)
        if left:
            attachment.sweep(connection)
        return told
    except _Unattached:
        hold(connection)
    try:
        return tried(attached=True)
    finally:
        attachment.let_go(connection)


def _take_back(
    connection: Connection,
    effect: Effect,
    attempt: int,
    found: "Sequence[Rows]",
    attached: bool,
    left: list[Any],
) -> dict[str, Any]:
    on_conflict = effect.change.undo.on_conflict
    partial = effect.change.undo.partial
    rows, own, ((full,),) = found
    if own:
        return {}
    op = markers.found(connection, rows)
    if op is None or op.undone_by or op.rebased:
        why = _UNKNOWN if op is None else _REBASED
        if op and op.undone_by and not op.rebased:
            why = f"effect {short(op.undone_by)} took it back"
        raise Conflict(
            f"Effect {short(effect.undoes)} cannot be taken back: {why}.", hint="Nothing was changed."
        )
    refuse_lost(op)
    if not attached and (op.has_schema or partial or not full or on_conflict is OnConflict.FORCE):
        raise _Unattached
    if attempt >= _ALONE:
        _stop_others(connection, op)
    number = open_op(connection, effect)
    if op.has_schema:
        return _unwind(connection, effect, op, number, on_conflict)
    # With what is known to be in the way, or was, nothing can be presumed.
    presuming = attempt == 0 and not partial and on_conflict is not OnConflict.FORCE
    seen = look(connection, op, on_conflict, lock=True, presuming=presuming)
    refuse_other(seen, on_conflict, partial, listed(connection, seen) if seen.conflicts else [])
    plain = plainly(seen)
    if not plain and not attached:
        raise _Unattached
    done = carry_out(connection, seen, logged=not plain)
    told: dict[str, Any] = {"tables": done, "schema": []}
    logs = op.logs if plain else markers.touched(connection, number)
    ended = [close_op(number, logs, told)]
    if plain:
        ended.append(markers.mirror(number, op))
    if not partial:
        ended.append(markers.not_in_force(op, effect.id))
    left[:] = connection.ask_all([*ended, Question(attachment.ATTACHED)])[-1]
    if not partial:
        markers.follow(connection, op)
    elif rebase(connection, seen):
        connection.run("update takeback.op set rebased = true where no = %s", [number])
    return told


def _unwind(
    connection: Connection, effect: Effect, op: PostgresOp, number: int, on_conflict: OnConflict
) -> dict[str, Any]:
    """All of it or nothing: what an effect did to the schema cannot be left out."""
    found = unwind(connection, op, number, on_conflict, lock=True)
    if found.obstacles:
        raise refuse(op, found.obstacles, len(found.obstacles))
    told: dict[str, Any] = {"tables": found.tables, "schema": list(found.sentences)}
    moves = dropped_tables.marked(connection, found.moves)
    connection.run(*close_op(number, markers.touched(connection, number), told, moves))
    markers.taken_back(connection, op, effect.id)
    return told


def rehearse(connection: Connection, of: Effect) -> str:
    """Carry the undo out, read the rows again, and roll all of it back; how many rows, and what of the schema. Others
    wait for its rows as long as that takes."""
    refuse_guest(connection)
    for attempt in range(TRIES):
        connection.run(f"begin isolation level read committed; {patience(connection)}")
        try:
            return _rehearsed(connection, of)
        except (driver().errors.SerializationFailure, driver().errors.DeadlockDetected, RowsMoved):
            if attempt == TRIES - 1:
                raise not_as_before(of.id) from None
        finally:
            connection.give_up()
    raise InDoubt("unreachable")


def _rehearsed(connection: Connection, of: Effect) -> str:
    op = markers.find(connection, of.id, lock=True)
    if op is None or op.undone_by or op.rebased:
        why = _UNKNOWN if op is None else _REBASED
        if op and op.undone_by and not op.rebased:
            why = f"effect {short(op.undone_by)} took it back"
        raise Conflict(f"Effect {short(of.id)} cannot be taken back: {why}.", hint="Nothing was changed.")
    refuse_lost(op)
    if op.has_schema:
        found = unwind(connection, op, op.no, OnConflict.REFUSE, lock=True)
        if found.obstacles:
            raise refuse(op, found.obstacles, len(found.obstacles))
        return ", ".join([*([_rows(found.to_do)] if found.to_do else []), *found.sentences])
    seen = look(connection, op, OnConflict.REFUSE, lock=True)
    if seen.conflicts:
        raise refuse(op, listed(connection, seen), seen.conflicts)
    carry_out(connection, seen)
    return _rows(seen.to_do)


def reverse(connection: Connection, effect: Effect) -> None:
    """Reverse a change whose later steps failed, and delete its marker."""
    asked = [markers.question(effect.id, lock=True)]
    _tried(connection, effect.id, asked, lambda attempt, found: _reverse(connection, attempt, found[0]))


def _reverse(connection: Connection, attempt: int, rows: "Rows") -> dict[str, Any]:
    op = markers.found(connection, rows)
    if op is None:
        return {}
    if op.undone_by:
        raise Conflict(
            f"Effect {short(op.id)} was taken back by {short(op.undone_by)} already.",
            hint="Nothing was changed.",
        )
    refuse_lost(op)
    if attempt >= _ALONE:
        _stop_others(connection, op)
    if op.has_schema:
        # Its own effects belong to no one, and are removed with the marker.
        found = unwind(connection, op, op.no, OnConflict.REFUSE, lock=True)
        if found.obstacles:
            raise refuse(op, found.obstacles, len(found.obstacles))
        moves = () if op.undoes else found.moves
    else:
        seen = look(connection, op, OnConflict.REFUSE, lock=True, presuming=attempt == 0)
        if seen.conflicts:
            raise refuse(op, listed(connection, seen), seen.conflicts)
        carry_out(connection, seen)
        moves = ()
    markers.taken_back(connection, op, op.id)
    markers.erase(connection, op._replace(moves=moves))
    return {}


def _stop_others(connection: Connection, op: PostgresOp) -> None:
    """Make writers of these tables wait until the effect is undone."""
    there = connection.ask(
        "select c.oid::regclass::text from takeback.log l join pg_class c on c.oid = l.relation "
        "where l.no = any (%s) order by l.relation",
        [list(op.logs)],
    )
    for (name,) in there:
        connection.run(f"lock table {name} in share row exclusive mode")


def _tried(
    connection: Connection,
    effect: str,
    asked: Sequence[Question],
    work: "Callable[[int, Sequence[Rows]], dict[str, Any]]",
) -> dict[str, Any]:
    """Others write at the same time: rows may change between the look and the undo. Then look again; if they are
    quicker once more, they must wait. What is `asked` first is asked with the beginning."""
    begin = [Question("begin isolation level read committed"), Question(patience(connection))]
    for attempt in range(TRIES):
        left = TRIES - 1 - attempt
        try:
            found = work(attempt, connection.ask_all([*begin, *asked])[len(begin) :])
        except (driver().errors.SerializationFailure, driver().errors.DeadlockDetected):
            connection.give_up()
            if not left:
                raise
        except RowsMoved:
            connection.give_up()
            if not left:
                raise not_as_before(effect) from None
        except BaseException:
            connection.give_up()
            raise
        else:
            commit(connection)
            return found
    raise InDoubt("unreachable")
