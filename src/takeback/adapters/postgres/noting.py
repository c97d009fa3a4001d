"""Keep what a change of the schema did, so that it can be taken back: definitions before and after, and rows that are
lost on the way."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from takeback.adapters.postgres import definitions, shelf
from takeback.adapters.postgres.connecting import ask, run
from takeback.adapters.postgres.definitions import Key, Thing, Things, differing, from_json, to_json
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.shelf import Move
from takeback.adapters.postgres.steps import Saved, Step, forget_rows

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def losses(connection: "Connection", before: Iterable[Thing], after: Iterable[Thing]) -> dict[int, list[int]]:
    """Columns that lose what is in them, by table. Partitions go with the table that they are part of."""
    old = list(before)
    inner = {
        one.oid
        for one in old
        if one.kind == "column" and one.doc.get("inherited") and not one.doc.get("local", True)
    }
    partitions = {one.oid for one in old if one.kind == "relation" and "bound" in one.doc}
    found: list[tuple[int, list[int]]] = ask(
        connection, "select takeback.losses(%s, %s)", [json.dumps(to_json(old)), json.dumps(to_json(after))]
    )[0][0]
    gone = {one.oid for one in old if one.is_table} - {one.oid for one in after if one.is_table}
    return {
        oid: numbers for oid, numbers in found if oid in gone or (oid not in inner and oid not in partitions)
    }


def save(connection: "Connection", lost: dict[int, list[int]]) -> Saved:
    return [
        ask(connection, "select takeback.save(%s, %s)", [oid, numbers])[0][0] for oid, numbers in lost.items()
    ]


def note(
    connection: "Connection",
    op: int,
    before: Things,
    after: Things,
    saved: Saved,
    without: Iterable[int] = (),
) -> Step | None:
    """`without`: relations that went to the shelf, or came from there. None if nothing differs."""
    apart = set(without)
    old = [one for one in differing(before, after) if one.of not in apart and one.oid not in apart]
    new = [one for one in differing(after, before) if one.of not in apart and one.oid not in apart]
    if not old and not new:
        return None
    was, became = json.dumps(to_json(old)), json.dumps(to_json(new))
    kept: Saved = ask(
        connection,
        "select takeback.left_behind(%s) || takeback.added(%s, %s)",
        [json.dumps(saved), was, became],
    )[0][0]
    kept += marks(connection, old, new)
    no, step = ask(
        connection,
        "insert into takeback.ddl (op, before, after, saved) values (%s, %s, %s, %s) returning no, step",
        [op, was, became, json.dumps(kept)],
    )[0]
    return Step(no, step, tuple(old), tuple(new), tuple(kept))


def marks(connection: "Connection", old: Iterable[Thing], new: Iterable[Thing]) -> Saved:
    """What is in tables that were made, so that it is known later whether others wrote there."""
    before = {one.key for one in old}
    made = [one.oid for one in new if one.is_table and one.key not in before]
    return [{"relation": oid, "lost": [], "made": shelf.content(connection, oid)} for oid in made]


def mark_again(connection: "Connection", op: int) -> None:
    """Of a program, whose rows in tables that it made are not captured: what is in them at its end."""
    for no, before, after, saved in ask(
        connection, "select no, before, after, saved from takeback.ddl where op = %s", [op]
    ):
        here = definitions.read(connection)
        new = [one for one in from_json(after) if one.key in here]
        found = marks(connection, from_json(before), new)
        kept = [one for one in saved if "made" not in one] + found
        run(connection, "update takeback.ddl set saved = %s where no = %s", [json.dumps(kept), no])


def settle(connection: "Connection", op: int) -> list[Move]:
    """At the end of an effect. Tables that it made go and come as a whole, whatever else it did to them; those that it
    made and dropped never were."""
    rows = ask(
        connection,
        "select no, step, before, after, saved from takeback.ddl where op = %s order by step",
        [op],
    )
    made: dict[
        int, int
    ] = {}  # and when it was changed last: what it was called before that is free again by then
    apart_from: set[int] = set()
    for _, step, before, after, _ in rows:
        old = {thing.key for thing in from_json(before)}
        made |= {thing.oid: step for thing in from_json(after) if thing.is_table and thing.oid in made}
        for thing in from_json(after):
            if thing.is_table and thing.key not in old:
                made[thing.oid] = step
                others = thing.doc.get("parents") and not set(thing.doc["_parents"]) & made.keys()
                if others or _tangled(from_json(after), old):
                    apart_from.add(
                        thing.oid
                    )  # it is part of a table that was there before, or others hang on it
    if not made:
        return []
    there = {
        row[0] for row in ask(connection, "select oid::int8 from pg_class where oid = any (%s)", [list(made)])
    }
    _forget_images(connection, op, list(made.keys() - there))
    apart = made.keys() - (apart_from & there)
    for no, _, before, after, saved in rows:
        _prune(connection, no, before, after, saved, apart)
    found = [
        shelf.come(connection, oid)._replace(step=step) for oid, step in made.items() if oid in apart & there
    ]
    inner = {part for move in found for part in move.parts}
    return [move for move in found if move.oid not in inner]


def _forget_images(connection: "Connection", op: int, gone: list[int]) -> None:
    for (log,) in ask(connection, "select no from takeback.log where relation = any (%s)", [gone]):
        run(connection, f"delete from {log_name(log)} where op = %s", [op])


def _tangled(after: list[Thing], before: set[Key]) -> bool:
    """Were other things made at the same moment that tables may be in, or that may hang on them?"""
    return any(
        one.key not in before
        and (
            one.kind in ("schema", "function", "type")
            or (one.doc.get("_kind") in ("v", "m") and one.kind == "relation")
        )
        for one in after
    )


def _prune(connection: "Connection", no: int, before: Any, after: Any, saved: Saved, apart: set[int]) -> None:
    old = [one for one in from_json(before) if one.of not in apart and one.oid not in apart]
    new = [one for one in from_json(after) if one.of not in apart and one.oid not in apart]
    for one in saved:
        if one["relation"] in apart:
            forget_rows(connection, [one])
    kept = [one for one in saved if one["relation"] not in apart]
    if old or new:
        run(
            connection,
            "update takeback.ddl set before = %s, after = %s, saved = %s where no = %s",
            [json.dumps(to_json(old)), json.dumps(to_json(new)), json.dumps(kept), no],
        )
    else:
        run(connection, "delete from takeback.ddl where no = %s", [no])


def told(connection: "Connection", op: int) -> list[str]:
    """What an effect did to the schema, in sentences."""
    rows = ask(connection, "select before, after from takeback.ddl where op = %s order by step", [op])
    known = definitions.read(connection) if rows else {}
    found: list[str] = []
    for before, after in rows:
        old, new = from_json(before), from_json(after)
        names = known | {one.key: one for one in old} | {one.key: one for one in new}
        found += definitions.sentences(old, new, names)
    return found
