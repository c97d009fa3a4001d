"""The schema object by object, as the server has it, and changes of it as they are kept."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from takeback.adapters.postgres.connection import Connection
from takeback.adapters.postgres.tables import quoted

Key = tuple[str, int, int]
TABLES = ("r", "p")


class Thing(NamedTuple):
    """One object of the schema. What in its document begins with `_` is not compared."""

    kind: str
    oid: int
    part: int
    doc: dict[str, Any]

    @property
    def key(self) -> Key:
        return (self.kind, self.oid, self.part)

    @property
    def of(self) -> int:
        """The relation that it is part of, or 0."""
        if self.kind == "column":
            return self.oid
        if self.kind == "relation":
            return self.owned[0]
        # Statistics have a name of their own, and do not move with their table.
        return 0 if self.kind == "statistics" else int(self.doc.get("_relation", 0))

    @property
    def owned(self) -> tuple[int, int, str]:
        """The table and the column that a counter belongs to; "i" for that of an identity."""
        table, number, how = self.doc.get("_owned") or (0, 0, "")
        return int(table), int(number), how

    @property
    def implied(self) -> bool:
        """It comes and goes with what it is inherited from, with its constraint, its column or its view."""
        if self.kind == "column" and self.doc.get("_of") not in ("r", "p", "f"):
            return True
        return bool(self.doc.get("inherited") or self.doc.get("_constraint") or self.owned[2] == "i")

    @property
    def is_table(self) -> bool:
        return self.kind == "relation" and self.doc["_kind"] in TABLES

    @property
    def core(self) -> dict[str, Any]:
        return {name: value for name, value in self.doc.items() if not name.startswith("_")}

    @property
    def shown(self) -> str:
        return f"{self.doc['schema']}.{self.doc['name']}" if "schema" in self.doc else self.doc["name"]

    @property
    def sql(self) -> str:
        """Of those that have a name of their own in a schema."""
        return f"{quoted(self.doc['schema'])}.{quoted(self.doc['name'])}"


Things = dict[Key, Thing]


def read(connection: Connection) -> Things:
    rows = connection.ask("select kind, oid, part, doc from takeback.objects()")
    return {thing.key: thing for thing in from_json(rows)}


def from_json(data: Sequence[Any]) -> list[Thing]:
    return [Thing(kind, oid, part, _comparable(doc)) for kind, oid, part, doc in data]


def _comparable(doc: dict[str, Any]) -> dict[str, Any]:
    """Options in any order, without the server's own, which older records still have."""
    if not doc.get("options"):
        return doc
    given = sorted(one for one in doc["options"] if not one.startswith(_OF_THE_SERVER))
    rest = {name: value for name, value in doc.items() if name != "options"}
    return rest | ({"options": given} if given else {})


_OF_THE_SERVER = "pg_"  # PostgreSQL 15.20 counts changes of a column in its option pg_attver


def to_json(things: Iterable[Thing]) -> list[list[Any]]:
    return [list(thing) for thing in things]


def differing(one: Things, other: Things) -> list[Thing]:
    """What `one` has and `other` has not, or has otherwise."""
    return [thing for key, thing in one.items() if key not in other or thing.core != other[key].core]


_WORDS = {
    "r": "table",
    "p": "table",
    "v": "view",
    "m": "materialized view",
    "S": "sequence",
    "f": "foreign table",
}
_ROUTINES = {"p": "procedure", "a": "aggregate"}


def word(thing: Thing) -> str:
    kind = thing.doc.get("_kind", "")
    if thing.kind == "relation":
        return _WORDS[kind]
    if thing.kind == "function":
        return _ROUTINES.get(kind, "function")
    return "domain" if thing.kind == "type" and kind == "d" else thing.kind


def sentences(before: Sequence[Thing], after: Sequence[Thing], known: Things) -> list[str]:
    """What happened, one sentence for each object; parts of one that came or went go without saying. `known`: where the
    names of relations are found."""
    old, new = {one.key: one for one in before}, {one.key: one for one in after}
    moved = {key[1] for key in old.keys() ^ new.keys() if key[0] == "relation"}
    found: list[str] = []
    for key in dict.fromkeys([*old, *new]):
        was, became = old.get(key), new.get(key)
        thing = was or became
        assert thing
        if thing.of in moved or thing.doc.get("inherited"):
            continue
        if thing.kind == "index" and thing.doc.get("_constraint"):
            continue
        home = known.get(("relation", thing.of, 0)) if thing.kind != "relation" else None
        name = f"{home.shown}.{thing.doc['name']}" if home else thing.shown
        if was and became:
            if changes := _changes(was, became):
                found.append(f"{word(thing)} {name} was changed ({changes})")
        else:
            found.append(f"{word(thing)} {name} was {'created' if became else 'dropped'}")
    return found


def _changes(was: Thing, became: Thing) -> str:
    one, other = was.core, became.core
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    if names == ["name"]:
        return f"now {became.doc['name']}"
    return ", ".join(names)


Saved = list[dict[str, Any]]


class SchemaStep(NamedTuple):
    no: int
    step: int
    before: tuple[Thing, ...]
    after: tuple[Thing, ...]
    saved: tuple[dict[str, Any], ...]


Again = dict[Key, tuple[int, int]]


def steps_of(connection: Connection, op: int) -> list[SchemaStep]:
    rows = connection.ask(
        "select no, step, before, after, saved from takeback.ddl where op = %s order by step", [op]
    )
    return [
        SchemaStep(no, step, tuple(from_json(before)), tuple(from_json(after)), tuple(saved))
        for no, step, before, after, saved in rows
    ]


def where_it_is_now(connection: Connection, step: SchemaStep) -> SchemaStep:
    """With the numbers that things have by now."""
    rows = connection.ask("select kind, oid, part, new_oid, new_part from takeback.again")
    again = {(kind, oid, part): (new_oid, new_part) for kind, oid, part, new_oid, new_part in rows}
    return step._replace(
        before=tuple(_moved(one, again) for one in step.before),
        after=tuple(_moved(one, again) for one in step.after),
        saved=tuple(_moved_rows(one, again) for one in step.saved),
    )


def _resolved(kind: str, oid: int, part: int, again: Again) -> tuple[int, int]:
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


def forget_rows(connection: Connection, saved: Saved) -> None:
    for one in saved:
        numbers = [one["no"]] if "no" in one else []
        numbers += [info["saved"]["no"] for info in one.get("added", {}).values() if "saved" in info]
        for number in numbers:
            connection.run(f"drop table if exists takeback.saved_{int(number)}, takeback.left_{int(number)}")


def forget(connection: Connection, op: int) -> None:
    """Of an effect that can never be undone."""
    for (saved,) in connection.ask("select saved from takeback.ddl where op = %s", [op]):
        forget_rows(connection, saved)
    connection.run("delete from takeback.ddl where op = %s", [op])
