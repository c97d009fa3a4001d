"""The SQL that makes an object of the schema, or removes it. `home` is the table that it is part of, as it is called
now."""

from collections.abc import Sequence
from typing import Any

from takeback.adapters.postgres.definitions import Thing, word
from takeback.adapters.postgres.tables import literal, quoted


def create(thing: Thing, home: str, parts: Sequence[Thing]) -> list[str]:
    """As it was, apart from what can be set afterwards: owner, rights, comment, state."""
    if thing.kind == "relation":
        return _create_relation(thing, parts)
    if thing.kind == "column":
        return [f"alter table {home} add column {column(thing, parts)}", *default(thing, home)]
    if thing.kind == "constraint":
        to = f"domain {home}" if thing.doc.get("_domain") else f"table {home}"
        return [f"alter {to} add constraint {quoted(thing.doc['name'])} {thing.doc['definition']}"]
    if thing.kind == "schema":
        return [f"create schema if not exists {quoted(thing.doc['name'])}"]
    if thing.kind == "policy":
        return [_create_policy(thing, home)]
    if thing.kind == "type":
        return _create_type(thing)
    # With those of its partitions, if it has any.
    return (
        [thing.doc["definition"].replace(" ON ONLY ", " ON ", 1)]
        if thing.kind == "index"
        else [thing.doc["definition"]]
    )


def drop(thing: Thing, home: str) -> list[str]:
    """Only if nothing hangs on it."""
    name = quoted(thing.doc["name"])
    if thing.kind == "column":
        return [f"alter table {home} drop column {name} restrict"]
    if thing.kind == "constraint":
        to = f"domain {home}" if thing.doc.get("_domain") else f"table {home}"
        return [f"alter {to} drop constraint {name} restrict"]
    if thing.kind in ("trigger", "rule", "policy"):
        return [f"drop {thing.kind} {name} on {home}" + ("" if thing.kind == "policy" else " restrict")]
    if thing.kind == "schema":
        return [f"drop schema {name} restrict"]
    if thing.kind == "index":
        return [f"drop index {home.rpartition('.')[0]}.{name} restrict"]
    return [f"drop {word(thing)} {called(thing)} restrict"]


def called(thing: Thing) -> str:
    """With what tells it from others of the same name."""
    return f"{thing.sql}({thing.doc['arguments']})" if thing.kind == "function" else thing.sql


def options(given: Sequence[str]) -> str:
    """`{fillfactor=70}` as it is written."""
    return ", ".join(f"{name} = {literal(value)}" for name, _, value in (one.partition("=") for one in given))


def _create_relation(thing: Thing, parts: Sequence[Thing]) -> list[str]:
    doc, kind = thing.doc, thing.doc["_kind"]
    given = f" with ({options(doc['options'])})" if doc.get("options") else ""
    if kind == "S":
        return [f"create sequence {thing.sql} as {doc['sequence']['type']} {counting(doc['sequence'])}"]
    if kind == "v":
        return [f"create view {thing.sql}{given} as {doc['definition'].rstrip(';')}"]
    if kind == "m":
        data = "with data" if doc.get("populated") else "with no data"
        return [f"create materialized view {thing.sql}{given} as {doc['definition'].rstrip(';')} {data}"]
    own = {one.part: one for one in parts if one.kind == "column" and one.oid == thing.oid}
    # A place for each column that was there once, so that all have the numbers that they had.
    lines = [
        column(own[number], parts, whole=True) if number in own else f"takeback_gone_{number} int"
        for number in range(1, max(own, default=0) + 1)
    ]
    unlogged = "unlogged " if doc["persistence"] == "u" else ""
    by = f" partition by {doc['partition by']}" if "partition by" in doc else ""
    method = f" using {quoted(doc['method'])}" if kind == "r" and doc.get("method", "heap") != "heap" else ""
    place = f" tablespace {quoted(doc['tablespace'])}" if doc.get("tablespace") else ""
    made = [f"create {unlogged}table {thing.sql} ({', '.join(lines)}){by}{method}{given}{place}"]
    gone = [number for number in range(1, max(own, default=0) + 1) if number not in own]
    made += [f"alter table {thing.sql} drop column takeback_gone_{number}" for number in gone]
    for one in own.values():
        made += default(one, thing.sql)
    return made


def column(thing: Thing, parts: Sequence[Thing], whole: bool = False) -> str:
    """`whole`: with NOT NULL, because it has its values at once."""
    doc = thing.doc
    words = [quoted(doc["name"]), doc["type"]]
    if doc.get("collation"):
        words.append(f"collate {doc['collation']}")
    if doc.get("generated"):
        words.append(
            f"generated always as ({doc['default']}) {'stored' if doc['generated'] == 's' else 'virtual'}"
        )
    if doc.get("identity"):
        words.append(identity(thing, parts))
    if whole and doc["not null"]:
        words.append("not null")
    return " ".join(words)


def identity(thing: Thing, parts: Sequence[Thing]) -> str:
    when = "always" if thing.doc["identity"] == "a" else "by default"
    counter = next(
        (one for one in parts if (one.doc.get("_owned") or [0, 0, ""]) == [thing.oid, thing.part, "i"]), None
    )
    given = f" (sequence name {counter.sql} {counting(counter.doc['sequence'])})" if counter else ""
    return f"generated {when} as identity{given}"


def counting(doc: dict[str, Any]) -> str:
    return (
        f"start with {doc['start']} increment by {doc['increment']} minvalue {doc['min']} maxvalue {doc['max']} "
        f"cache {doc['cache']} {'cycle' if doc['cycle'] else 'no cycle'}"
    )


def default(thing: Thing, home: str) -> list[str]:
    if thing.doc.get("generated") or "default" not in thing.doc:
        return []
    return [f"alter table {home} alter column {quoted(thing.doc['name'])} set default {thing.doc['default']}"]


_COMMANDS = {"r": "select", "a": "insert", "w": "update", "d": "delete", "*": "all"}


def _create_policy(thing: Thing, home: str) -> str:
    doc = thing.doc
    kind = "permissive" if doc["permissive"] else "restrictive"
    using = f" using ({doc['using']})" if "using" in doc else ""
    check = f" with check ({doc['check']})" if "check" in doc else ""
    return (
        f"create policy {quoted(doc['name'])} on {home} as {kind} for {_COMMANDS[doc['command']]} "
        f"to {', '.join(doc['roles'])}{using}{check}"
    )


def _create_type(thing: Thing) -> list[str]:
    doc, kind = thing.doc, thing.doc["_kind"]
    if kind == "e":
        return [
            f"create type {thing.sql} as enum ({', '.join(literal(one) for one in doc.get('labels', ()))})"
        ]
    if kind == "c":
        inner = ", ".join(f"{quoted(name)} {type_}" for name, type_ in doc.get("attributes", ()))
        return [f"create type {thing.sql} as ({inner})"]
    if kind == "r":
        return [f"create type {thing.sql} as range (subtype = {doc['subtype']})"]
    words = [f"create domain {thing.sql} as {doc['base']}"]
    words += [f"collate {doc['collation']}"] if doc.get("collation") else []
    words += [f"default {doc['default']}"] if doc.get("default") else []
    words += ["not null"] if doc.get("not null") else []
    return [" ".join(words)]
