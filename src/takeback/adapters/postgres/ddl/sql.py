"""The SQL that makes an object of the schema, removes it, or turns it into what it was."""

from collections.abc import Iterator, Sequence
from typing import Any

from takeback.adapters.postgres.ddl.definitions import Thing, word
from takeback.adapters.postgres.tables import literal, quoted

# The SQL that makes an object of the schema, or removes it. `home` is the table that it is part of, as it is
# called now.


def create(thing: Thing, home: str, parts: Sequence[Thing]) -> list[str]:
    """As it was, apart from what can be set afterwards: owner, rights, comment, state."""
    if thing.kind == "relation":
        return _create_relation(thing, parts)
    if thing.kind == "column":
        return [f"alter table {home} add column {column(thing, parts)}", *default(thing, home)]
    if thing.kind == "constraint":
        return [f"{_alter(thing, home)} add constraint {quoted(thing.doc['name'])} {thing.doc['definition']}"]
    if thing.kind == "schema":
        return [f"create schema if not exists {quoted(thing.doc['name'])}"]
    if thing.kind == "policy":
        return [_create_policy(thing, home)]
    if thing.kind == "type":
        return _create_type(thing)
    if thing.kind == "index":  # with those of its partitions, if it has any
        return [thing.doc["definition"].replace(" ON ONLY ", " ON ", 1)]
    return [thing.doc["definition"]]


def _alter(thing: Thing, home: str) -> str:
    return f"alter {'domain' if thing.doc.get('_domain') else 'table'} {home}"


def drop(thing: Thing, home: str) -> str:
    """Only if nothing hangs on it."""
    if thing.kind in ("column", "constraint"):
        return f"{_alter(thing, home)} drop {thing.kind} {quoted(thing.doc['name'])} restrict"
    return f"drop {address(thing, home)} restrict"


def address(thing: Thing, home: str) -> str:
    """Kind and name, as most statements need them."""
    name = quoted(thing.doc["name"])
    if thing.kind == "column":
        return f"column {home}.{name}"
    if thing.kind == "constraint":
        return f"constraint {name} on {'domain ' if thing.doc.get('_domain') else ''}{home}"
    if thing.kind in ("trigger", "rule", "policy"):
        return f"{thing.kind} {name} on {home}"
    if thing.kind == "index":
        return f"index {home.rpartition('.')[0]}.{name}"
    return f"schema {name}" if thing.kind == "schema" else f"{word(thing)} {called(thing)}"


def called(thing: Thing) -> str:
    """With its signature, which distinguishes it from others of the same name."""
    return f"{thing.sql}({thing.doc['arguments']})" if thing.kind == "function" else thing.sql


def options(given: Sequence[str]) -> str:
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
    counter = next((one for one in parts if one.owned == (thing.oid, thing.part, "i")), None)
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


# These are made again when they differ.
REPLACED = {
    "constraint": ("definition",),
    "index": ("definition", "tablespace"),
    "trigger": ("definition",),
    "rule": ("definition",),
    "policy": ("permissive", "command", "roles", "using", "check"),
    "statistics": ("definition",),
}


def differs(now: Thing, want: Thing, *names: str) -> bool:
    return any(now.doc.get(name) != want.doc.get(name) for name in names)


def rename(now: Thing, want: Thing, home: str) -> Iterator[str]:
    """Its name first, then its schema."""
    old, new = quoted(now.doc["name"]), quoted(want.doc["name"])
    if differs(now, want, "name"):
        if now.kind in ("column", "constraint"):
            yield f"{_alter(now, home)} rename {now.kind} {old} to {new}"
        elif not (now.kind == "index" and now.doc.get("_constraint")):
            yield f"alter {address(now, home)} rename to {new}"
    if "schema" in want.doc and differs(now, want, "schema"):
        moved = now._replace(doc={**now.doc, "name": want.doc["name"]})
        yield f"alter {word(now)} {called(moved)} set schema {quoted(want.doc['schema'])}"


def settle(now: Thing, want: Thing, home: str) -> Iterator[str]:
    """What every kind of object has."""
    if "owner" in want.doc and differs(now, want, "owner"):
        yield f"alter {address(now, home)} owner to {quoted(want.doc['owner'])}"
    if differs(now, want, "rights"):
        yield from _rights(now, want, home)
    if differs(now, want, "comment"):
        text = literal(want.doc["comment"]) if want.doc.get("comment") else "null"
        yield f"comment on {address(now, home)} is {text}"


_ON = {"schema": "schema", "function": "routine", "type": "type", "relation": "table"}


def _rights(now: Thing, want: Thing, home: str) -> Iterator[str]:
    have, wanted = set(now.doc.get("rights", ())), set(want.doc.get("rights", ()))
    on = _ON.get(now.kind, "table")
    if now.kind == "relation" and now.doc["_kind"] == "S":
        on = "sequence"
    name = home if now.kind == "column" else quoted(now.doc["name"]) if now.kind == "schema" else called(now)
    part = f" ({quoted(now.doc['name'])})" if now.kind == "column" else ""
    for line in sorted(have - wanted):
        who, right, *_ = _right(line)
        yield f"revoke {right}{part} on {on} {name} from {who}"
    for line in sorted(wanted - have | {one for one in wanted if f"{one} *" in have}):
        who, right, grantable = _right(line)
        yield f"grant {right}{part} on {on} {name} to {who}{' with grant option' if grantable else ''}"


def _right(line: str) -> tuple[str, str, bool]:
    grantable = line.endswith(" *")
    who, _, right = line.removesuffix(" *").rpartition(" ")
    return who, right, grantable


def adjust(now: Thing, want: Thing, home: str, parts: list[Thing]) -> Iterator[str]:
    """Settings of its kind only; names and types are restored before."""
    if now.kind == "relation":
        yield from _adjust_relation(now, want)
    elif now.kind == "column":
        yield from _adjust_column(now, want, home, parts)
    elif now.kind in ("trigger", "rule") and differs(now, want, "enabled"):
        state = {"O": "enable", "A": "enable always", "R": "enable replica", "D": "disable"}
        yield f"alter table {home} {state[want.doc['enabled']]} {now.kind} {quoted(now.doc['name'])}"
    elif now.kind == "index":
        if differs(now, want, "clustered"):
            on = f"cluster on {quoted(now.doc['name'])}"
            yield f"alter table {home} {on if want.doc.get('clustered') else 'set without cluster'}"
        if want.doc.get("identity") and differs(now, want, "identity"):
            yield f"alter table {home} replica identity using index {quoted(now.doc['name'])}"
    elif now.kind == "function" and differs(now, want, "definition"):
        yield want.doc["definition"]
    elif now.kind == "type":
        yield from _adjust_type(now, want)


_IDENTITIES = {"d": "default", "f": "full", "n": "nothing"}


def _adjust_relation(now: Thing, want: Thing) -> Iterator[str]:
    what, doc = f"{word(now)} {now.sql}", want.doc
    if differs(now, want, "definition") and doc["_kind"] == "v":
        given = f" with ({options(doc['options'])})" if doc.get("options") else ""
        yield f"create or replace view {now.sql}{given} as {doc['definition'].rstrip(';')}"
    if differs(now, want, "persistence"):
        yield f"alter {what} set {'unlogged' if doc['persistence'] == 'u' else 'logged'}"
    yield from _adjust_options(now, want, f"alter {what}")
    if differs(now, want, "security"):
        yield f"alter {what} {'enable' if doc['security'] else 'disable'} row level security"
    if differs(now, want, "forced"):
        yield f"alter {what} {'' if doc['forced'] else 'no '}force row level security"
    if differs(now, want, "identity") and doc.get("identity") in ("d", "f", "n"):
        yield f"alter {what} replica identity {_IDENTITIES[doc['identity']]}"
    yield from _adjust_place(now, want)


def _adjust_place(now: Thing, want: Thing) -> Iterator[str]:
    what, doc = f"{word(now)} {now.sql}", want.doc
    if differs(now, want, "tablespace"):
        yield f"alter {what} set tablespace {quoted(doc.get('tablespace') or 'pg_default')}"
    if differs(now, want, "sequence"):
        yield f"alter {what} as {doc['sequence']['type']} {counting(doc['sequence'])}"
    if differs(now, want, "owned by") and not doc.get("owned by", "").endswith(" i"):
        yield f"alter {what} owned by {doc['owned by'].rpartition(' ')[0] if 'owned by' in doc else 'none'}"
    if differs(now, want, "parents", "bound"):
        for parent in now.doc.get("parents", ()):
            kind = "detach partition" if "bound" in now.doc else ""
            yield f"alter table {parent} {kind} {now.sql}" if kind else f"alter {what} no inherit {parent}"
        for parent in doc.get("parents", ()):
            if "bound" in doc:
                yield f"alter table {parent} attach partition {now.sql} {doc['bound']}"
            else:
                yield f"alter {what} inherit {parent}"
    if differs(now, want, "populated"):
        yield f"refresh {what}{'' if doc['populated'] else ' with no data'}"


def _adjust_column(now: Thing, want: Thing, home: str, parts: list[Thing]) -> Iterator[str]:
    doc = want.doc
    if doc.get("_of") not in ("r", "p", "f"):
        return
    this = f"alter table {home} alter column {quoted(now.doc['name'])}"
    if now.doc.get("identity") and not doc.get("identity"):
        yield f"{this} drop identity"
    if differs(now, want, "default") and not doc.get("generated") and not now.doc.get("generated"):
        yield f"{this} set default {doc['default']}" if "default" in doc else f"{this} drop default"
    if differs(now, want, "not null"):
        yield f"{this} {'set' if doc['not null'] else 'drop'} not null"
    if differs(now, want, "identity") and doc.get("identity"):
        if now.doc.get("identity"):
            yield f"{this} set generated {'always' if doc['identity'] == 'a' else 'by default'}"
        else:
            yield f"{this} add {identity(want, parts)}"
    yield from _adjust_storage(now, want, this)


def _adjust_storage(now: Thing, want: Thing, this: str) -> Iterator[str]:
    doc = want.doc
    if differs(now, want, "storage"):
        names = {"p": "plain", "m": "main", "e": "external", "x": "extended"}
        yield f"{this} set storage {names[doc['storage']] if 'storage' in doc else 'extended'}"
    if differs(now, want, "compression"):
        names = {"p": "pglz", "l": "lz4"}
        yield f"{this} set compression {names[doc['compression']] if 'compression' in doc else 'default'}"
    if differs(now, want, "statistics"):
        yield f"{this} set statistics {doc.get('statistics', -1)}"
    yield from _adjust_options(now, want, this)


def _adjust_options(now: Thing, want: Thing, this: str) -> Iterator[str]:
    if differs(now, want, "options"):
        extra = {one.partition("=")[0] for one in now.doc.get("options", ())}
        extra -= {one.partition("=")[0] for one in want.doc.get("options", ())}
        if extra:
            yield f"{this} reset ({', '.join(sorted(extra))})"
        if want.doc.get("options"):
            yield f"{this} set ({options(want.doc['options'])})"


def _adjust_type(now: Thing, want: Thing) -> Iterator[str]:
    doc = want.doc
    if doc["_kind"] == "e" and differs(now, want, "labels"):
        have, wanted = now.doc.get("labels", []), doc.get("labels", [])
        if len(have) == len(wanted):
            for one, other in zip(have, wanted, strict=True):
                if one != other:
                    yield f"alter type {now.sql} rename value {literal(one)} to {literal(other)}"
    if doc["_kind"] == "d":
        yield from _adjust_domain(now, want)
    if doc["_kind"] == "c" and differs(now, want, "attributes"):
        yield from _adjust_attributes(now, want)


def _adjust_domain(now: Thing, want: Thing) -> Iterator[str]:
    doc = want.doc
    if differs(now, want, "default"):
        to = f"set default {doc['default']}" if doc.get("default") else "drop default"
        yield f"alter domain {now.sql} {to}"
    if differs(now, want, "not null"):
        yield f"alter domain {now.sql} {'set' if doc.get('not null') else 'drop'} not null"


def _adjust_attributes(now: Thing, want: Thing) -> Iterator[str]:
    doc = want.doc
    have, wanted = dict(now.doc.get("attributes", ())), dict(doc.get("attributes", ()))
    for name in have.keys() - wanted.keys():
        yield f"alter type {now.sql} drop attribute {quoted(name)} restrict"
    for name, type_ in wanted.items():
        if name not in have:
            yield f"alter type {now.sql} add attribute {quoted(name)} {type_}"
        elif have[name] != type_:
            yield f"alter type {now.sql} alter attribute {quoted(name)} set data type {type_}"
