"""Take one effect back from its end to its beginning: rows it wrote last, then the schema change before them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from takeback.adapters.postgres import constraints, markers, put_back
from takeback.adapters.postgres import net as nets
from takeback.adapters.postgres.connection import Connection, Question, driver, patience
from takeback.adapters.postgres.ddl import definitions, dropped_tables, trial
from takeback.adapters.postgres.ddl.definitions import SchemaStep, steps_of, where_it_is_now
from takeback.adapters.postgres.ddl.dropped_tables import COME, TableMove
from takeback.adapters.postgres.ddl.undo import Odd, reverse
from takeback.adapters.postgres.install import capture_again, kinds
from takeback.adapters.postgres.logs import KeptImages, kept, log_name, of_op
from takeback.adapters.postgres.markers import PostgresOp, look_for_missing, refuse_missing
from takeback.adapters.postgres.net import CONFLICTS, EVER, IN_OVERWRITABLE, OVERWRITABLE, Net, Stretch
from takeback.adapters.postgres.row_report import RowObstacle, obstacles
from takeback.adapters.postgres.tables import Table, UndoLayout, layout, more
from takeback.errors import Conflict, Drifted, Forgotten, UndoFailed
from takeback.model.change import OnConflict
from takeback.model.ids import short

MOST = 100


class Look(NamedTuple):
    """The plan of an undo, in temporary tables of this transaction."""

    op: PostgresOp
    ties: constraints.Ties
    odd: tuple[RowObstacle, ...]  # tables that are not what they were
    counts: dict[str, int]  # rows by status
    full: bool  # we may switch off all triggers
    presumed: bool = False  # not yet checked whether the rows are as the effect left them

    @property
    def conflicts(self) -> int:
        return sum(self.counts.get(kind, 0) for kind in CONFLICTS) + len(self.odd)

    @property
    def plain(self) -> bool:
        """Nothing stands in the way, and no temporary table was needed to find that out."""
        return not self.odd and all(net.tally for net in self.ties.nets.values())

    @property
    def to_do(self) -> int:
        return self.counts.get("apply", 0) + self.counts.get("force", 0)


def look(
    connection: Connection,
    op: PostgresOp,
    on_conflict: OnConflict,
    lock: bool = False,
    stretch: Stretch = EVER,
    presuming: bool = False,
) -> Look:
    """`presuming` saves reading the rows before they are put back, since only those that are as the effect left them
    will be: if not all are, `carry_out` raises `Moved`, and it must be looked at without presuming anything."""
    if op.forgotten:
        raise Forgotten(
            f"The rows of effect {short(op.id)} were given up.", hint="Nothing was changed.", effect=op.id
        )
    made = {move.oid for move in op.moves if move.kind == COME}  # what was made goes with all that is in it
    own = f"{of_op(op.source, op.wide)} and {stretch.sql}"
    all_of_it = kept(connection, op.logs, own, op.wide)
    if stretch == EVER:
        refuse_missing(op, {one.log: [one.minus, one.plus] for one in all_of_it})
    known = [one for one in all_of_it if one.relation not in made]
    found: dict[int, Net] = {}
    odd: list[RowObstacle] = []
    there = layout(connection, [one.relation for one in known])
    for one in known:
        table = there.tables.get(one.relation)
        if table is None:
            odd.append(RowObstacle(one.name, "", "schema", "the table was dropped since"))
        elif not kinds(one.shape) == kinds(one.form) == kinds(table.shape):
            odd.append(RowObstacle(table.shown, "", "schema", _other_columns(one.form, table.shape)))
        else:
            found[table.oid] = _net(table, one, op, stretch, there.sizes[table.oid])
    ties = _ties(connection, found, there)
    if lock:
        _lock(connection, ties, there.full)
    plain = None if odd else constraints.plain(connection, ties, presuming)
    if plain:
        ties = plain
    else:
        for net in found.values():
            nets.build(connection, net)
            if on_conflict is OnConflict.FORCE:  # overwrite the present rows, also those of others
                fewer = "" if net.keyed else ", copies = least(copies, there)"
                there_now = f"where status in {IN_OVERWRITABLE}"
                connection.run(f"update {net.name} set status = 'force'{fewer} {there_now}")
        constraints.mark(connection, ties)
    counts: dict[str, int] = {}
    for net in ties.nets.values():
        for status, count in nets.counts(connection, net).items():
            counts[status] = counts.get(status, 0) + count
    return Look(op, ties, tuple(odd), counts, there.full, presuming and plain is not None)


# Of a table, for each row that is asked for: up to here reading all of it is quicker than looking each up.
_READ_AT_ONCE = 3000


def _net(table: Table, one: KeptImages, op: PostgresOp, stretch: Stretch, size: int) -> Net:
    before, after = (one.minus, one.minus_reach), (one.plus, one.plus_reach)
    (olds, olds_reach), (news, news_reach) = (after, before) if op.turned else (before, after)
    once = one.first == one.last
    net = Net(
        table, one.log, op.source, op.turned, op.wide, once, olds, news, olds_reach, news_reach,
        stretch=stretch,
    )  # fmt: skip
    # The server does not know how many images an effect that just happened has, takes them for a few, and would look up
    # each row of the table for itself.
    return net._replace(joined=size < _READ_AT_ONCE * (olds + news))


def _lock(connection: Connection, ties: constraints.Ties, full: bool) -> None:
    """Rows with a key are compared again in the statement that changes them, so that others may keep writing. Without a
    key, or with foreign keys that cascade, others must wait."""
    touched = {oid for oid, one in ties.nets.items() if not full or not one.keyed}
    if not full:
        touched |= {one.child for one in ties.foreign if one.parent in touched} & set(ties.tables)
    for oid in sorted(touched):
        connection.run(f"lock table {ties.tables[oid].sql} in share row exclusive mode")


def _ties(connection: Connection, found: dict[int, Net], there: UndoLayout) -> constraints.Ties:
    # NOT VALID says nothing of old rows. Where triggers cannot be switched off, the server checks each row anyway.
    foreign = tuple(
        one._replace(valid=one.valid or not there.full)
        for one in there.foreign
        if one.child in found or one.parent in found
    )
    ends = {oid for one in foreign for oid in (one.child, one.parent)} - set(found)
    known = more(connection, sorted(ends)) | {oid: one.table for oid, one in found.items()}
    return constraints.Ties(foreign, known, found)


def _other_columns(before: list[Any], now: list[Any]) -> str:
    old, new = {one[0]: one for one in before}, {one[0]: one for one in now}
    added = [one[4] for number, one in new.items() if number not in old]
    gone = [one[4] for number, one in old.items() if number not in new]
    other = [one[4] for number, one in new.items() if number in old and old[number][1:4] != one[1:4]]
    parts = [
        f"{word} {', '.join(map(str, names))}"
        for word, names in (("added", added), ("dropped", gone), ("of another type", other))
        if names
    ]
    return (
        f"the table has other columns since ({'; '.join(parts)}); if an undo or an effect did that, it goes back first"
        if parts
        else "the table has other columns since"
    )


def listed(connection: Connection, seen: Look) -> list[RowObstacle]:
    """At most a hundred, and then how many more."""
    found = list(seen.odd)
    for one in seen.ties.nets.values():
        if len(found) < MOST:
            found += constraints.named(
                connection, seen.ties, one, obstacles(connection, one, MOST - len(found))
            )
    if seen.conflicts > len(found):
        found.append(RowObstacle("", "", "more", f"and {seen.conflicts - len(found)} more rows"))
    return found


def plainly(seen: Look) -> bool:
    """Will just the opposite of the effect be done, to every row of it and to nothing else? Then the images of the
    effect are also those of its undo."""
    if seen.op.moves or seen.odd or set(seen.counts) - {"apply"} or not seen.full:
        return False
    touched = [one.table for one in seen.ties.nets.values()]
    return not any(state in "AR" for table in touched for _, state in (*table.triggers, *table.rules))


def carry_out(connection: Connection, seen: Look, logged: bool = True) -> dict[str, dict[str, int]]:
    """Put the rows back. The writes belong to the op that is open on the connection, unless they need not be
    `logged`."""
    touched = [one.table for one in seen.ties.nets.values()]
    off, on = put_back.switches(touched, seen.full)
    first = [patience(connection), *([] if logged else ["set local takeback.op = ''"])]
    first += [*off, "set constraints all deferred"]
    first += [nets.loops(one).sql for one in list(seen.ties.nets.values())[:1] if seen.plain]
    # What is deferred happens first: it may change the rows once more.
    settled = Question("set constraints all immediate")
    again = [
        asked for one in seen.ties.nets.values() for asked in (nets.loops(one), put_back.about_differing(one))
    ]
    last = [settled, *again, *map(Question, on)]
    broken: list[str] = []
    try:
        if seen.plain and seen.full:
            done, found = put_back.apply_at_once(connection, seen.ties, list(map(Question, first)), last)
        else:
            connection.run("; ".join(first))
            done = put_back.apply(connection, seen.ties, seen.full)
            broken = constraints.violated(connection, seen.ties) if seen.full else []
            found = connection.ask_all(last)
        differing = found[1 : len(again) + 1][1::2]
    except (driver().errors.IntegrityError, driver().errors.RaiseException) as error:
        if seen.presumed:
            raise put_back.RowsMoved from None  # it will be seen which rows are in the way
        raise Conflict(
            f"The database does not take the rows back: {error.diag.message_primary}.",
            hint="Nothing was changed. Fix the named rows, then undo again.",
            effect=seen.op.id,
        ) from None
    if broken:
        raise Conflict(
            f"Rows would point to others that are not there: {', '.join(sorted(set(broken)))}.",
            hint="Nothing was changed. Fix the named rows, then undo again.",
            effect=seen.op.id,
        )
    if any(rows[0][0] for rows in differing):
        raise put_back.RowsMoved
    if seen.op.counters:
        _set_counters(connection, seen.op)
    return done


def _set_counters(connection: Connection, op: PostgresOp) -> None:
    """A sequence that was set back goes forward again: never back, others draw from it."""
    connection.run(
        "select setval(c.sequence::regclass, c.value, true) from takeback.counter c "
        "join pg_sequence s on s.seqrelid = c.sequence where c.op = %s and "
        "(pg_sequence_last_value(c.sequence) is null "
        " or (pg_sequence_last_value(c.sequence) - c.value) * sign(s.seqincrement) < 0)",
        [op.no],
    )


def refuse(op: PostgresOp, found: Sequence[RowObstacle], conflicts: int) -> Conflict:
    names = "; ".join(one.sentence for one in found[:5])
    more = f"; and {conflicts - 5} more" if conflicts > 5 else ""
    changed = all(one.kind in OVERWRITABLE for one in found)
    head = "Modified after this effect, so undo would overwrite those changes: " if changed else ""
    return Conflict(
        f"{head}{names}{more}.",
        hint="Nothing was touched.",
        effect=op.id,
        resources=tuple(f"{one.table}/{one.key}" for one in found),
    )


def refuse_other(seen: Look, on_conflict: OnConflict, partial: bool, found: Sequence[RowObstacle]) -> None:
    """Refuse if the rows are no longer as planned, now that no one can change them."""
    if on_conflict.skips:
        if bool(seen.conflicts) != partial:
            raise Drifted(
                "Rows were changed while their undo was being prepared.",
                hint="Nothing was changed. Look at it, then try again.",
                effect=seen.op.id,
            )
    elif seen.conflicts:
        raise refuse(seen.op, found, seen.conflicts)


def not_as_before(effect: str) -> UndoFailed:
    return UndoFailed(
        f"After the undo of effect {short(effect)} the rows were not as before: something changes them again, or "
        "others write to them all the time.",
        hint="It was rolled back; nothing was changed. A trigger that is enabled ALWAYS may be the cause.",
        effect=effect,
    )


# Take an effect back from its end to its beginning: the rows that it wrote last, the change of the schema before that,
# the rows before that, and so on.


class Unwound(NamedTuple):
    looks: tuple[Look, ...]
    moves: tuple[TableMove, ...]  # of tables that went or came
    tables: dict[str, dict[str, int]]
    sentences: tuple[str, ...]  # what became of the schema
    obstacles: tuple[RowObstacle, ...] = ()

    @property
    def to_do(self) -> int:
        return sum(one.to_do for one in self.looks)


def unwind(
    connection: Connection, op: PostgresOp, number: int, on_conflict: OnConflict, lock: bool
) -> Unwound:
    """The writes belong to op `number`. It stops at the first stage with a conflict."""
    record = again(connection, op)
    look_for_missing(connection, record)
    events: list[TableMove | SchemaStep] = [*record.moves, *steps_of(connection, record.no)]
    events = sorted(events, key=lambda one: one.step)[::-1]  # of equal ones the last first
    looks: list[Look] = []
    moves: list[TableMove] = []
    said: list[str] = []
    done: dict[str, dict[str, int]] = {}
    obstacles: Sequence[RowObstacle] = ()
    until = EVER.until
    for event in [*events, None]:
        stretch = Stretch(event.step if event else EVER.since, until)
        own = f"{of_op(record.source, record.wide)} and {stretch.sql}"
        if any(connection.ask(f"select 1 from {log_name(log)} where {own} limit 1") for log in record.logs):
            seen = look(connection, record, on_conflict, lock=lock, stretch=stretch)
            looks.append(seen)
            if seen.conflicts:
                obstacles = listed(connection, seen)
            else:
                _add(done, carry_out(connection, seen))
        if obstacles or event is None:
            break
        until = stretch.since
        try:
            moved, sentences = _event(connection, event, number)
        except Odd as odd:
            obstacles = [RowObstacle(odd.name, "", "schema", odd.why)]
            break
        moves += moved
        said += sentences
    return Unwound(tuple(looks), tuple(moves), done, tuple(said), tuple(obstacles))


def one_way(connection: Connection, op: PostgresOp, moves: Sequence[TableMove]) -> str:
    """Why an effect cannot be taken back as it is now; empty if it can. Its undo is carried out and rolled back."""
    connection.run("savepoint takeback_way_back")
    try:
        whole = op._replace(logs=markers.touched(connection, op.no), moves=tuple(moves))
        found = unwind(connection, whole, op.no, OnConflict.REFUSE, lock=False)
        why = "; ".join(one.sentence for one in found.obstacles[:3])
    except driver().Error as error:
        why = str(error.diag.message_primary)
    connection.run("rollback to savepoint takeback_way_back")
    return why


def again(connection: Connection, op: PostgresOp) -> PostgresOp:
    """An effect that was taken back and brought again happened the second time as that redo says."""
    while True:
        rows = connection.ask(
            "select r.id from takeback.op u join takeback.op r on r.undoes = u.id "
            "where u.undoes = %s and r.undone_by is null and not r.partial and not r.forgotten "
            "order by r.no desc limit 1",
            [op.id],
        )
        later = markers.find(connection, rows[0][0]) if rows else None
        if later is None or not later.has_schema:
            return op
        op = later


def _add(done: dict[str, dict[str, int]], more: dict[str, dict[str, int]]) -> None:
    for name, counts in more.items():
        sums = done.setdefault(name, {"inserted": 0, "updated": 0, "deleted": 0})
        for word, count in counts.items():
            sums[word] += count


def _event(
    connection: Connection, event: TableMove | SchemaStep, number: int
) -> tuple[list[TableMove], list[str]]:
    before = definitions.read(connection)
    if isinstance(event, TableMove):
        moved, odd = dropped_tables.reverse(connection, [event], number)
        if odd:
            raise Odd(*odd[0])
        said: list[str] = []
        # Its schema may have come with it.
        apart = [oid for move in moved for oid in (move.oid, *move.parts)]
        trial.note(connection, number, before, definitions.read(connection), [], without=apart)
    else:
        event = where_it_is_now(connection, event)
        lost = trial.losses(connection, event.after, event.before)
        gone = {one.oid for one in event.after if one.is_table} - {
            one.oid for one in event.before if one.is_table
        }
        here = {key[1] for key in before if key[0] == "relation"}
        saved = trial.save(connection, {oid: lost[oid] for oid in lost if oid not in gone and oid in here})
        moved, left = reverse(connection, event, number)
        after = definitions.read(connection)
        step = trial.note(connection, number, before, after, saved, without=[move.oid for move in moved])
        said = left + (definitions.sentences(step.before, step.after, before | after) if step else [])
        differ = [*definitions.differing(after, before), *definitions.differing(before, after)]
        changed = {one.oid for one in differ if one.kind in ("relation", "column")}
        capture_again(connection, changed, new=False)
    at = connection.ask("select nextval('takeback.step')")[0][0]
    return [move._replace(step=at) for move in moved], [*said, *(move.sentence for move in moved)]
