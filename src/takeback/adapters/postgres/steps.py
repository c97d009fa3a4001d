"""Changes of the schema as they are kept, with the rows that were saved; read with the numbers that things have now."""

from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.postgres import definitions
from takeback.adapters.postgres.connecting import ask, run
from takeback.adapters.postgres.definitions import Key, Thing

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

Saved = list[dict[str, Any]]


class Step(NamedTuple):
    """One change of the schema."""

    no: int
    step: int
    before: tuple[Thing, ...]
    after: tuple[Thing, ...]
    saved: tuple[dict[str, Any], ...]


Again = dict[Key, tuple[int, int]]


def steps_of(connection: "Connection", op: int) -> list[Step]:
    rows = ask(
        connection,
        "select no, step, before, after, saved from takeback.ddl where op = %s order by step",
        [op],
    )
    return [
        Step(
            no, step, tuple(definitions.from_json(before)), tuple(definitions.from_json(after)), tuple(saved)
        )
        for no, step, before, after, saved in rows
    ]


def where_it_is_now(connection: "Connection", step: Step) -> Step:
    """With the numbers that things have by now."""
    again = _again(connection)
    return step._replace(
        before=tuple(_moved(one, again) for one in step.before),
        after=tuple(_moved(one, again) for one in step.after),
        saved=tuple(_moved_rows(one, again) for one in step.saved),
    )


def _again(connection: "Connection") -> Again:
    rows = ask(connection, "select kind, oid, part, new_oid, new_part from takeback.again")
    return {(kind, oid, part): (new_oid, new_part) for kind, oid, part, new_oid, new_part in rows}


def _resolved(kind: str, oid: int, part: int, again: Again) -> tuple[int, int]:
    """Where it is now."""
    if part and (table := _resolved("relation", oid, 0, again)[0]) != oid:
        return _resolved(kind, table, part, again)
    while (kind, oid, part) in again:
        oid, part = again[(kind, oid, part)]
    return oid, part


def _moved(thing: Thing, again: Again) -> Thing:
    oid, part = _resolved(thing.kind, thing.oid, thing.part, again)
    doc: dict[str, Any] = {**thing.doc, "_was": thing.part}
    for name, kind in (("_relation", "relation"), ("_domain", "type"), ("_target", "relation")):
        if doc.get(name):
            doc[name] = _resolved(kind, doc[name], 0, again)[0]
    if doc.get("_owned"):
        table, number, how = doc["_owned"]
        doc["_owned"] = [*_resolved("column", table, number, again), how]
    return Thing(thing.kind, oid, part, doc)


def _moved_rows(saved: dict[str, Any], again: Again) -> dict[str, Any]:
    """In the copy columns have the numbers that they had; `now` has those of today."""
    relation = saved["relation"]
    numbers = {*saved.get("kept", ()), *saved.get("lost", ()), *map(int, saved.get("added", ()))}
    now = {number: _resolved("column", relation, number, again)[1] for number in numbers}
    return {**saved, "relation": _resolved("relation", relation, 0, again)[0], "now": now}


def forget_rows(connection: "Connection", saved: Saved) -> None:
    for one in saved:
        numbers = [one["no"]] if "no" in one else []
        numbers += [info["saved"]["no"] for info in one.get("added", {}).values() if "saved" in info]
        for number in numbers:
            run(connection, f"drop table if exists takeback.saved_{int(number)}, takeback.left_{int(number)}")


def forget(connection: "Connection", op: int) -> None:
    """Of an effect that can never be undone."""
    for (saved,) in ask(connection, "select saved from takeback.ddl where op = %s", [op]):
        forget_rows(connection, saved)
    run(connection, "delete from takeback.ddl where op = %s", [op])
