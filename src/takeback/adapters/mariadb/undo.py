"""Take one operation back: in one transaction, all of it or, if asked for, only rows not changed since."""

from collections.abc import Collection
from typing import NamedTuple

from takeback.adapters.database import SECONDS, obstructed
from takeback.adapters.mariadb import net, put_back
from takeback.adapters.mariadb.logs import LOG_MODE, OPS, TABLES, TOUCHED
from takeback.adapters.mariadb.net import (
    APPLY,
    CONFLICTS,
    IN_CONFLICTS,
    IN_FORCEABLE,
    NEEDED,
    ORPHANED,
    OVERWRITE,
    TAKEN,
)
from takeback.adapters.mariadb.registry import LogRegistry
from takeback.adapters.mariadb.row_report import Reasons, conflicts
from takeback.adapters.mariadb.shapes import LoggedTable, differences, fingerprint, log_of
from takeback.adapters.mariadb.wire import Wire, code_of, driver
from takeback.errors import Conflict, Corrupt, Drifted, UndoFailed
from takeback.model.change import OnConflict
from takeback.model.plan import TargetOutcome

# After rows were left out of an undo: a later operation that found what this one had left must find what was before.
# Row r: the first made A into B, the second B into C. Undo of the first leaves r out, since it is C. Undo of the second
# must then lead to A and not to B, or it would bring back what was taken back.


def leave_out(wire: Wire, taking: "Taking", op: int, by: int) -> None:
    """Rows of `op`, by an undo: the temporary tables of the session list them."""
    wire.run(f"UPDATE {OPS} SET partly = 1 WHERE no = {by}")
    for part in taking.parts:
        if part.shape.key:
            _rebase(wire, part, op)


def _rebase(wire: Wire, part: LoggedTable, op: int) -> None:
    shape = part.shape
    # The first image that a later operation, still in force, found for the row, if it is what this one had left.
    later = wire.rows(
        f"SELECT s.id, s.pre, s.post, MIN(l.tb_no) FROM {part.net} s STRAIGHT_JOIN {part.log} a ON a.tb_no = s.some"
        f" LEFT JOIN {part.log} q ON q.tb_no = s.post"
        f" STRAIGHT_JOIN {part.log} l ON {shape.same_logged_key('l', 'a')} AND l.tb_no > a.tb_no AND l.tb_op <> {op}"
        f" JOIN {OPS} o ON o.no = l.tb_op AND o.undone_by = ''"
        f" WHERE s.state IN {IN_CONFLICTS}"
        " AND (s.post IS NULL AND l.tb_sign > 0 OR s.post IS NOT NULL AND l.tb_sign < 0"
        f" AND {shape.logged_image('l')} = {shape.logged_image('q')}) GROUP BY s.id"
    )
    for _, pre, post, no in later:
        if post is None:
            # This effect deleted the row, and a later one inserted it again: the later one now counts as a replacement.
            wire.run(
                f"INSERT INTO {part.log} ({shape.image_columns}) SELECT l.tb_op, 0, -1, {', '.join(shape.logged('p'))}"
                f" FROM {part.log} l JOIN {part.log} p ON p.tb_no = {pre} WHERE l.tb_no = {no}"
            )
            _another_number(wire, part, no, "+ 1")
        elif pre is None:
            # This one made the row: to the later one it was never there.
            _another_number(wire, part, no, "- 1")
            wire.run(f"DELETE FROM {part.log} WHERE tb_no = {no}")
        else:
            values = ", ".join(f"l.{name} = p.{name}" for name in shape.logged_names)
            wire.run(
                f"UPDATE {part.log} l JOIN {part.log} p ON p.tb_no = {pre} SET {values} WHERE l.tb_no = {no}"
            )


def _another_number(wire: Wire, part: LoggedTable, no: int, by: str) -> None:
    """Record the new number of images, for the check that all are present."""
    wire.run(
        f"UPDATE {TOUCHED} t JOIN {part.log} l ON l.tb_op = t.op SET t.images = t.images {by}"
        f" WHERE l.tb_no = {no} AND t.n = {part.n}"
    )


_FEW = 10_000  # lines: below it, a plan is found by trying
_ROUNDS = 20
Bad = dict[str, dict[str, set[int]]]  # by state and table: lines that cannot be put back


class Taking(NamedTuple):
    applied: int
    already: int
    refused: tuple[TargetOutcome, ...]  # what stands in the way, or was left out
    parts: tuple[LoggedTable, ...]


def settle_session(wire: Wire, patience: int = SECONDS) -> None:
    """One way to write, read and compare, whatever the server is set to."""
    wire.run(
        f"SET SESSION sql_mode = '{LOG_MODE}', time_zone = '+00:00', foreign_key_checks = 0, unique_checks = 1,"
        f" max_sort_length = 8192, innodb_lock_wait_timeout = {patience}, lock_wait_timeout = {patience},"
        " sql_safe_updates = 0, group_concat_max_len = 1048576"
    )
    wire.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def touched(wire: Wire, registry: LogRegistry, op: int) -> tuple[dict[str, LoggedTable], list[TargetOutcome]]:
    """The tables of an operation as they are now, and those that are not what they were."""
    parts: dict[str, LoggedTable] = {}
    gone: list[TargetOutcome] = []
    for n, name, wanted in wire.rows(
        f"SELECT d.n, t.name, d.images FROM {TOUCHED} d JOIN {TABLES} t ON t.n = d.n WHERE d.op = {op} ORDER BY d.n"
    ):
        _refuse_missing(wire, op, n, int(wanted))
        shape = registry.current(n)
        if shape is None or fingerprint(shape) != registry.entries[n].shape:
            gone.append(obstructed(wire.database, _altered(registry, n), name))
        else:
            parts[shape.name] = LoggedTable(n, shape)
    return parts, gone


def names(wire: Wire, op: int) -> tuple[str, ...]:
    """Of the tables whose rows it changed, as they were called then."""
    rows = wire.rows(f"SELECT t.name FROM {TOUCHED} d JOIN {TABLES} t ON t.n = d.n WHERE d.op = {op}")
    return tuple(str(name) for (name,) in rows)


def _refuse_missing(wire: Wire, op: int, n: int, wanted: int) -> None:
    """Refuse if images are missing: the rest must not be taken for the whole."""
    there = wire.count(f"SELECT COUNT(*) FROM {log_of(n)} WHERE tb_op = {op}")
    if there != wanted:
        raise Corrupt(
            f"The effect cannot be taken back: of the {wanted} images of rows that were kept in {log_of(n)}, {there} "
            "are there.",
            hint="Nothing was changed. Someone changed what takeback keeps in the tables _tb_…; a backup of the "
            "database may have it.",
        )


def _altered(registry: LogRegistry, n: int) -> str:
    entry = registry.entries[n]
    now = registry.current(n) or registry.schema.shapes.get(entry.name)
    if now is None:
        return "is gone, so its rows cannot come back. Bring the table back first"
    if fingerprint(now) == entry.shape:
        return "is not the table that it was, so its rows cannot come back"
    told = "; ".join(differences(entry.described, now))
    return f"was altered since ({told}), so its rows cannot come back. Alter it back first"


def take_back(wire: Wire, registry: LogRegistry, op: int, policy: OnConflict, dry: bool = False) -> Taking:
    """In a transaction of the caller, under its marker if it has one. `dry`: the caller will roll it back."""
    parts, refused = touched(wire, registry, op)
    refused += _with_triggers(wire, registry, parts, policy)
    if dry and not refused and (found := _smooth(wire, parts, op)):
        return found
    lines = 0
    for name, part in tuple(parts.items()):
        net.prepare(wire, part)
        lines += net.fill(wire, part, op)
        if not net.is_sound(wire, part):
            detail = "was changed in a way that was not logged whole"
            refused.append(obstructed(wire.database, detail, name))
            del parts[name]
        elif policy is OnConflict.FORCE:
            wire.run(f"UPDATE {part.net} SET state = '{OVERWRITE}' WHERE state IN {IN_FORCEABLE}")
    reasons: Reasons = {}
    stop = policy in (OnConflict.REFUSE, OnConflict.MERGE)
    if not (stop and (refused or _count(wire, parts, CONFLICTS))) and not (dry and lines > _FEW):
        refused += _place(wire, registry, parts, stop or policy is OnConflict.FORCE, reasons)
    refused += conflicts(wire, registry.schema, list(parts.values()), op, reasons)
    applied = _count(wire, parts, (APPLY, OVERWRITE))
    return Taking(applied, _count(wire, parts, (net.NOTHING,)), tuple(refused), tuple(parts.values()))


def _smooth(wire: Wire, parts: dict[str, LoggedTable], op: int) -> Taking | None:
    """Only the counts of a large operation that has no conflicts; its undo reads the rows again. None: look at it row
    by row."""
    many = wire.one(f"SELECT SUM(inserted + updated + deleted) FROM {TOUCHED} WHERE op = {op}")
    if int(many or 0) <= _FEW or not all(part.shape.key for part in parts.values()):
        return None
    total = {APPLY: 0, net.NOTHING: 0}
    for part in parts.values():
        for state, lines in net.tally(wire, part, op).items():
            if state not in total:
                return None
            total[state] += lines
    return Taking(total[APPLY], total[net.NOTHING], (), tuple(parts.values()))


def _count(wire: Wire, parts: dict[str, LoggedTable], states: Collection[str]) -> int:
    return sum(net.states(wire, part).get(state, 0) for part in parts.values() for state in states)


def _with_triggers(
    wire: Wire, registry: LogRegistry, parts: dict[str, LoggedTable], policy: OnConflict
) -> list[TargetOutcome]:
    """Triggers cannot be switched off: those of the application would do again what they do."""
    found: list[TargetOutcome] = []
    for name in tuple(parts):
        why = registry.trouble_with(name)
        own = registry.app_triggers(name)
        if why:
            why = f"is not captured any more ({why}): run `takeback sql protect` first"
        elif own and policy is not OnConflict.FORCE:
            names = ", ".join(one.name for one in own)
            why = f"has triggers of its own ({names}), which would fire again; force lets them"
        if why:
            found.append(obstructed(wire.database, why, name))
            del parts[name]
    return found


def _place(
    wire: Wire, registry: LogRegistry, parts: dict[str, LoggedTable], stop: bool, reasons: Reasons
) -> list[TargetOutcome]:
    """Rows that cannot be put back are left out, and it is tried again without them; `stop`: they are only reported."""
    for _ in range(_ROUNDS):
        wire.run("SAVEPOINT takeback_put")
        bad: Bad = {}
        for name, part in parts.items():
            put_back.gather(wire, part)
            if lines := put_back.taken(wire, part):
                bad.setdefault(TAKEN, {})[name] = lines
        if not bad:
            if told := _all_in(wire, registry, parts, bad, reasons):
                return told
        if not bad:
            bad = {
                ORPHANED: put_back.orphaned(wire, parts, registry.schema.links),
                NEEDED: put_back.needed(wire, parts, registry.schema.links),
            }
        if not any(bad.values()):
            _check(wire, parts)
            return []
        wire.run("ROLLBACK TO SAVEPOINT takeback_put")
        for state, tables in bad.items():
            for name, lines in tables.items():
                net.settle(wire, parts[name], state, lines)
        if stop:
            return []
    raise UndoFailed(
        f"Undo gave up after {_ROUNDS} attempts: the foreign keys of the rows form a cycle.",
        hint="Nothing was changed.",
    )


def _all_in(
    wire: Wire, registry: LogRegistry, parts: dict[str, LoggedTable], bad: Bad, reasons: Reasons
) -> list[TargetOutcome]:
    """Rows that a table refuses are in `bad` afterwards; raised as an error if no row can be named."""
    for name, part in parts.items():
        try:
            put_back.place(wire, part, bool(registry.app_triggers(name)))
        except driver().Error as error:
            if code_of(error) not in put_back.RULES:
                raise
            wire.run("ROLLBACK TO SAVEPOINT takeback_put")
            put_back.gather(wire, part)
            for line, (state, says) in (put_back.refused(wire, part) if part.shape.key else {}).items():
                bad.setdefault(state, {}).setdefault(name, set()).add(line)
                reasons[name, line] = says
            if bad:
                return []
            detail = f"does not take the rows back: {error.args[1]}. Take the rule away that was added since"
            return [obstructed(wire.database, detail, name)]
    return []


def _check(wire: Wire, parts: dict[str, LoggedTable]) -> None:
    for name, part in parts.items():
        if many := put_back.differing(wire, part):
            raise UndoFailed(
                f"{many} rows of {name} were not what they must be after they were put back.",
                hint="Nothing was changed. A trigger of the table may have changed them.",
            )


def refuse_conflicts(found: Taking, policy: OnConflict, partly: bool) -> None:
    """Under locks, what was found before must still hold."""
    if not found.refused:
        if partly:
            raise Drifted("What stood in the way is gone.", hint="Nothing was changed. Try again.")
        return
    if policy.skips and partly:
        return
    if policy.skips:
        raise Drifted(
            "Someone changed a row between looking and acting.", hint="Nothing was changed. Try again."
        )
    first = found.refused[0]
    more = f", and {len(found.refused) - 1} more" if len(found.refused) > 1 else ""
    raise Conflict(
        f"{first.resource} {first.detail}{more}.",
        hint="Nothing was changed.",
        resources=tuple(one.resource for one in found.refused),
    )


def swap(wire: Wire, op: str, by: str) -> None:
    """It is taken back; what it had taken back is in force again, and so on."""
    undone = True
    taken, taker = op, by
    while taken:
        value = taker if undone else ""
        wire.run(f"UPDATE {OPS} SET undone_by = {wire.text(value)} WHERE op = {wire.text(taken)}")
        rows = wire.rows(f"SELECT undoes, partly FROM {OPS} WHERE op = {wire.text(taken)}")
        if not rows or not rows[0][0] or rows[0][1]:
            return
        taker, taken, undone = taken, str(rows[0][0]), not undone


def forget(wire: Wire, op: int) -> None:
    for n in wire.numbers(f"SELECT n FROM {TOUCHED} WHERE op = {op}"):
        wire.run(f"DELETE FROM {log_of(n)} WHERE tb_op = {op}")
    wire.run(f"DELETE FROM {TOUCHED} WHERE op = {op}")
