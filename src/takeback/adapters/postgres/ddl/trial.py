"""A statement that may change the schema: tried first, to see and save what it would lose; then done and noted."""

import json
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from takeback.adapters.database import Rows
from takeback.adapters.postgres.connection import Connection, driver
from takeback.adapters.postgres.counts import WrittenTally
from takeback.adapters.postgres.ddl import definitions, dropped_tables
from takeback.adapters.postgres.ddl.definitions import (
    Key,
    Saved,
    SchemaStep,
    Thing,
    Things,
    differing,
    forget_rows,
    steps_of,
    to_json,
)
from takeback.adapters.postgres.ddl.dropped_tables import TableMove
from takeback.adapters.postgres.ddl.undo import Odd, reverse
from takeback.adapters.postgres.install import capture_again
from takeback.adapters.postgres.logs import log_name
from takeback.errors import NoRemedy

# Keep what a change of the schema did, so that it can be taken back: definitions before and after, and rows that are
# lost on the way.


def losses(connection: Connection, before: Iterable[Thing], after: Iterable[Thing]) -> dict[int, list[int]]:
    """Columns that lose what is in them, by table. Partitions go with the table that they are part of."""
    old = list(before)
    inner = {
        one.oid
        for one in old
        if one.kind == "column" and one.doc.get("inherited") and not one.doc.get("local", True)
    }
    partitions = {one.oid for one in old if one.kind == "relation" and "bound" in one.doc}
    found: list[tuple[int, list[int]]] = connection.ask(
        "select takeback.losses(%s, %s)", [json.dumps(to_json(old)), json.dumps(to_json(after))]
    )[0][0]
    gone = {one.oid for one in old if one.is_table} - {one.oid for one in after if one.is_table}
    return {
        oid: numbers for oid, numbers in found if oid in gone or (oid not in inner and oid not in partitions)
    }


def save(connection: Connection, lost: dict[int, list[int]]) -> Saved:
    return [
        connection.ask("select takeback.save(%s, %s)", [oid, numbers])[0][0] for oid, numbers in lost.items()
    ]


def note(
    connection: Connection,
    op: int,
    before: Things,
    after: Things,
    saved: Saved,
    without: Iterable[int] = (),
) -> SchemaStep | None:
    """`without`: relations that went to the shelf, or came from there. None if nothing differs."""
    apart = set(without)
    old, new = _without(differing(before, after), apart), _without(differing(after, before), apart)
    if not old and not new:
        return None
    was, became = json.dumps(to_json(old)), json.dumps(to_json(new))
    kept: Saved = connection.ask(
        "select takeback.left_behind(%s) || takeback.added(%s, %s)", [json.dumps(saved), was, became]
    )[0][0]
    kept += marks(connection, old, new)
    no, step = connection.ask(
        "insert into takeback.ddl (op, before, after, saved) values (%s, %s, %s, %s) returning no, step",
        [op, was, became, json.dumps(kept)],
    )[0]
    return SchemaStep(no, step, tuple(old), tuple(new), tuple(kept))


def _without(things: Iterable[Thing], apart: Set[int]) -> list[Thing]:
    return [one for one in things if one.of not in apart and one.oid not in apart]


def marks(connection: Connection, old: Iterable[Thing], new: Iterable[Thing]) -> Saved:
    """The counts of new tables, to find out later whether others wrote there."""
    before = {one.key for one in old}
    made = [one.oid for one in new if one.is_table and one.key not in before]
    return [{"relation": oid, "lost": [], "made": dropped_tables.content(connection, oid)} for oid in made]


def mark_again(connection: Connection, op: int) -> None:
    """Of a program, whose rows in tables that it made are not captured: what is in them at its end."""
    for step in steps_of(connection, op):
        here = definitions.read(connection)
        found = marks(connection, step.before, [one for one in step.after if one.key in here])
        kept = [one for one in step.saved if "made" not in one] + found
        connection.run("update takeback.ddl set saved = %s where no = %s", [json.dumps(kept), step.no])


def settle(connection: Connection, op: int) -> list[TableMove]:
    """At the end of an effect. Tables that it made go and come as a whole, whatever else it did to them; those that it
    made and dropped never were."""
    steps = steps_of(connection, op)
    # And when it was changed last: its earlier name is free again at that point.
    made: dict[int, int] = {}
    apart_from: set[int] = set()  # parts of tables that were there before, or others hang on them
    for step in steps:
        old = {thing.key for thing in step.before}
        made |= {thing.oid: step.step for thing in step.after if thing.is_table and thing.oid in made}
        for thing in step.after:
            if thing.is_table and thing.key not in old:
                made[thing.oid] = step.step
                others = thing.doc.get("parents") and not set(thing.doc["_parents"]) & made.keys()
                if others or _tangled(step.after, old):
                    apart_from.add(thing.oid)
    if not made:
        return []
    there = {
        row[0] for row in connection.ask("select oid::int8 from pg_class where oid = any (%s)", [list(made)])
    }
    gone = list(made.keys() - there)
    for (log,) in connection.ask("select no from takeback.log where relation = any (%s)", [gone]):
        connection.run(f"delete from {log_name(log)} where op = %s", [op])
    apart = made.keys() - (apart_from & there)
    for step in steps:
        _prune(connection, step, apart)
    found = [
        dropped_tables.come(connection, oid)._replace(step=number)
        for oid, number in made.items()
        if oid in apart & there
    ]
    inner = {part for move in found for part in move.parts}
    return [move for move in found if move.oid not in inner]


def _tangled(after: Iterable[Thing], before: set[Key]) -> bool:
    """Were other things made at the same moment that tables may be in, or that may hang on them?"""
    return any(
        one.key not in before
        and (
            one.kind in ("schema", "function", "type")
            or (one.doc.get("_kind") in ("v", "m") and one.kind == "relation")
        )
        for one in after
    )


def _prune(connection: Connection, step: SchemaStep, apart: Set[int]) -> None:
    old, new = _without(step.before, apart), _without(step.after, apart)
    forget_rows(connection, [one for one in step.saved if one["relation"] in apart])
    kept = [one for one in step.saved if one["relation"] not in apart]
    if old or new:
        connection.run(
            "update takeback.ddl set before = %s, after = %s, saved = %s where no = %s",
            [json.dumps(to_json(old)), json.dumps(to_json(new)), json.dumps(kept), step.no],
        )
    else:
        connection.run("delete from takeback.ddl where no = %s", [step.no])


def told(connection: Connection, op: int) -> list[str]:
    """The schema changes of an effect, in sentences."""
    steps = steps_of(connection, op)
    known = definitions.read(connection) if steps else {}
    found: list[str] = []
    for step in steps:
        names = known | {one.key: one for one in (*step.before, *step.after)}
        found += definitions.sentences(step.before, step.after, names)
    return found


# A statement that may change the schema: tried first where it can be rolled back, to see what it would lose; done when
# that is saved; and only kept if the way back was seen to work.


# What these words begin loses no row, so it need not be tried first.
_HARMLESS = frozenset(("CREATE", "COMMENT", "GRANT", "REVOKE"))
# Whatever else is written to is not known here, so that it cannot be put back.
_KNOWN = frozenset(
    ("pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_index", "pg_type", "pg_enum", "pg_range", "pg_proc",
     "pg_trigger", "pg_rewrite", "pg_policy", "pg_namespace", "pg_sequence", "pg_depend", "pg_shdepend",
     "pg_description", "pg_inherits", "pg_partitioned_table", "pg_statistic", "pg_statistic_ext",
     "pg_statistic_ext_data", "pg_cast")
)  # fmt: skip
_STATISTICS = frozenset(("pg_statistic", "pg_statistic_ext_data"))
_NAMES = {
    "pg_extension": "extensions", "pg_largeobject": "large objects", "pg_largeobject_metadata": "large objects",
    "pg_publication": "publications", "pg_publication_rel": "publications", "pg_subscription": "subscriptions",
    "pg_event_trigger": "event triggers", "pg_operator": "operators", "pg_collation": "collations",
    "pg_default_acl": "default rights", "pg_foreign_server": "foreign servers", "pg_language": "languages",
    "pg_foreign_data_wrapper": "foreign servers", "pg_user_mapping": "foreign servers", "pg_foreign_table":
    "foreign tables", "pg_authid": "roles", "pg_auth_members": "roles", "pg_db_role_setting": "settings of roles",
    "pg_database": "the database itself", "pg_ts_config": "text search", "pg_ts_dict": "text search", "pg_opclass":
    "operators", "pg_seclabel": "security labels",
}  # fmt: skip


# The first words of those that may change the schema.
MAY_CHANGE_SCHEMA = frozenset((
    "CREATE", "ALTER", "DROP", "DO", "CALL", "SELECT", "WITH", "COMMENT", "GRANT", "REVOKE", "REINDEX", "IMPORT",
    "SECURITY", "REFRESH", "EXECUTE",
))  # fmt: skip


def run_it(
    connection: Connection, op: int, words: list[str], act: Callable[[], Rows], tally: WrittenTally
) -> Rows:
    if words[0] in _HARMLESS:
        return _for_real(connection, op, act, tally, Tried(definitions.read(connection), [], frozenset()))
    tally.catalogs()
    start = tally.mark()
    counters = _counters(connection)
    connection.run("savepoint takeback_try")
    rows = act()
    _refuse_own(connection)
    _refuse_set_back(connection, counters)
    touched = tally.catalogs()
    if not touched - _STATISTICS:
        connection.run("release savepoint takeback_try")
        return rows
    _refuse_unknown(touched)
    after = definitions.read(connection)
    connection.run("rollback to savepoint takeback_try")
    before = definitions.read(connection)
    _refuse_lost_types(connection, [one for one in differing(before, after) if one.key not in after])
    lost = losses(connection, differing(before, after), differing(after, before))
    saved = save(connection, lost)
    tally.forget_since(start)
    return _for_real(connection, op, act, tally, Tried(before, saved, frozenset(lost)))


def _refuse_own(connection: Connection) -> None:
    if not connection.ask(
        "select to_regclass('takeback.op') is not null and to_regclass('takeback.log') is not null"
    )[0][0]:
        raise NoRemedy(
            "The statement drops the schema takeback, where the way back is kept.",
            hint="It was rolled back; nothing was changed. `takeback sql unprotect` removes it.",
        )


_COUNTERS = """
select c.oid::int8, format('%I.%I', n.nspname, c.relname), pg_sequence_last_value(s.seqrelid), s.seqincrement
from pg_sequence s join pg_class c on c.oid = s.seqrelid join pg_namespace n on n.oid = c.relnamespace
where c.relpersistence = 'p' and n.nspname !~ '^takeback(_[0-9_]+)?$'
  and (has_sequence_privilege(s.seqrelid, 'usage') or has_sequence_privilege(s.seqrelid, 'select'))
"""


def _counters(connection: Connection) -> dict[int, tuple[str, int | None, int]]:
    """Sequences: name, what it has reached, and by how much it counts."""
    return {oid: (name, last, by) for oid, name, last, by in connection.ask(_COUNTERS)}


def _refuse_set_back(connection: Connection, before: dict[int, tuple[str, int | None, int]]) -> None:
    """A function may call setval(), which no rollback takes back: the sequence is set forward again."""
    for oid, (name, now, by) in _counters(connection).items():
        _, was, _ = before.get(oid, ("", None, 1))
        if was is not None and (now is None or (now - was) * by < 0):
            connection.run("select setval(%s::oid::regclass, %s, true)", [oid, was])
            raise NoRemedy(
                f"The statement sets the sequence {name} back, which cannot be taken back.",
                hint=f"It was rolled back, and the sequence continues from {was}. Run it yourself, outside takeback.",
            )


def _for_real(
    connection: Connection, op: int, act: Callable[[], Rows], tally: WrittenTally, tried: "Tried"
) -> Rows:
    tally.catalogs()
    rows = act()
    touched = tally.catalogs()
    _refuse_unknown(touched)
    if "pg_trigger" in touched:
        _refuse_switched_off(connection)
    start = tally.mark()
    new = _note(connection, op, tried, touched)
    tally.forget_since(start)
    tally.known(new)
    return rows


class Tried(NamedTuple):
    """The earlier definition, and the values saved before they are lost."""

    before: Things
    saved: Saved
    lost: frozenset[int]


def _note(connection: Connection, op: int, tried: Tried, touched: set[str]) -> frozenset[int]:
    before, after = tried.before, definitions.read(connection)
    old, new = differing(before, after), differing(after, before)
    if losses(connection, old, new).keys() - tried.lost:
        raise NoRemedy(
            "The statement did something else than when it was tried.",
            hint="It was rolled back; nothing was changed.",
        )
    step = note(connection, op, before, after, tried.saved)
    if step is None:
        _refuse_unseen(connection, touched)
        return frozenset()
    _refuse_one_way(connection, step, op)
    changed = {one.of or one.oid for one in (*old, *new) if one.kind in ("relation", "column")}
    capture_again(connection, changed, new=True)
    return frozenset(one.oid for one in new if one.kind == "relation" and one.key not in before)


def _without_way_back(said: str) -> NoRemedy:
    return NoRemedy(said, hint="It was rolled back; nothing was changed. Run it yourself, outside takeback.")


def _refuse_unknown(catalogs: set[str]) -> None:
    if odd := catalogs - _KNOWN:
        names = ", ".join(sorted({_NAMES.get(one, one.removeprefix("pg_")) for one in odd}))
        raise _without_way_back(f"The statement changes {names}, which takeback cannot take back there.")


def _refuse_switched_off(connection: Connection) -> None:
    name = connection.ask("select takeback.switched_off()")[0][0]
    if name:
        raise NoRemedy(
            f"Changes to {name} would no longer be captured: the statement changes its triggers zz_takeback_….",
            hint="It was rolled back; nothing was changed. Name single triggers instead of ALL or USER. `takeback sql "
            "protect` switches the triggers of takeback on again.",
        )


def _refuse_lost_types(connection: Connection, gone: list[Thing]) -> None:
    """Images of rows are of these types too, and would go with them."""
    types = {one.oid: one.shown for one in gone if one.kind == "type"}
    rows = connection.ask(
        "select distinct coalesce(nullif(e.typelem, 0), e.oid)::int8, c.oid::regclass::text from pg_attribute a "
        "join pg_class c on c.oid = a.attrelid join pg_type e on e.oid = a.atttypid "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname ~ '^takeback(_[0-9_]+)?$' and c.relkind in ('r', 'p') and not a.attisdropped "
        "and coalesce(nullif(e.typelem, 0), e.oid) = any (%s)",
        [list(types)],
    )
    for oid, home in rows:
        raise NoRemedy(
            f"The type {types[oid]} cannot be dropped: takeback's own table {home} has a column of it.",
            hint="It was rolled back; nothing was changed. Leave the type, or run it yourself, outside takeback.",
        )


# Temporary tables do not count; TRUNCATE only gives a table new files.
_TEMPORARY = """
select exists (select from pg_class c where c.relpersistence = 't' and age(c.xmin) <= age(pg_current_xact_id()::xid)),
  coalesce(current_setting('takeback.truncated', true), '') <> ''
"""


def _refuse_unseen(connection: Connection, catalogs: set[str]) -> None:
    if catalogs - _STATISTICS and not any(connection.ask(_TEMPORARY)[0]):
        raise _without_way_back("The statement changes the schema in a way that takeback does not know.")


def _refuse_one_way(connection: Connection, step: SchemaStep, op: int) -> None:
    """Is there a way back? It is gone, and what it left is rolled back."""
    connection.run("savepoint takeback_way_back")
    why = ""
    try:
        reverse(connection, step, op)
    except Odd as odd:
        why = f"{odd.name} {odd.why}"
    except driver().Error as error:
        why = str(error.diag.message_primary)
    connection.run("rollback to savepoint takeback_way_back")
    if why:
        raise _without_way_back(
            f"The statement changes the schema in a way that cannot be taken back: {why}."
        )
