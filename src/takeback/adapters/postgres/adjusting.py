"""The SQL that turns an object of the schema into what it was, attribute by attribute."""

from collections.abc import Iterator

from takeback.adapters.postgres.definitions import Thing, word
from takeback.adapters.postgres.tables import literal, quoted
from takeback.adapters.postgres.writing import called, counting, identity, options

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


def replaced(now: Thing, want: Thing) -> bool:
    return differs(now, want, *REPLACED.get(want.kind, ()))


def rename(now: Thing, want: Thing, home: str) -> Iterator[str]:
    """Its name first, then its schema."""
    old, new = quoted(now.doc["name"]), quoted(want.doc["name"])
    if differs(now, want, "name"):
        if now.kind == "column":
            yield f"alter table {home} rename column {old} to {new}"
        elif now.kind == "constraint":
            to = "domain" if now.doc.get("_domain") else "table"
            yield f"alter {to} {home} rename constraint {old} to {new}"
        elif now.kind in ("trigger", "rule", "policy"):
            yield f"alter {now.kind} {old} on {home} rename to {new}"
        elif now.kind == "index":
            if not now.doc.get("_constraint"):
                yield f"alter index {home.rpartition('.')[0]}.{old} rename to {new}"
        elif now.kind == "schema":
            yield f"alter schema {old} rename to {new}"
        else:
            yield f"alter {word(now)} {called(now)} rename to {new}"
    if "schema" in want.doc and differs(now, want, "schema"):
        moved = now._replace(doc={**now.doc, "name": want.doc["name"]})
        yield f"alter {word(now)} {called(moved)} set schema {quoted(want.doc['schema'])}"


def settle(now: Thing, want: Thing, home: str) -> Iterator[str]:
    """What every kind of object has."""
    if "owner" in want.doc and differs(now, want, "owner"):
        what = quoted(now.doc["name"]) if now.kind == "schema" else called(now)
        yield f"alter {word(now)} {what} owner to {quoted(want.doc['owner'])}"
    if differs(now, want, "rights"):
        yield from _rights(now, want, home)
    if differs(now, want, "comment"):
        text = literal(want.doc["comment"]) if want.doc.get("comment") else "null"
        yield f"comment on {_commented(now, home)} is {text}"


def _commented(now: Thing, home: str) -> str:
    name = quoted(now.doc["name"])
    if now.kind == "column":
        return f"column {home}.{name}"
    if now.kind == "constraint":
        return f"constraint {name} on {'domain ' if now.doc.get('_domain') else ''}{home}"
    if now.kind in ("trigger", "rule", "policy"):
        return f"{now.kind} {name} on {home}"
    if now.kind == "index":
        return f"index {home.rpartition('.')[0]}.{name}"
    return f"schema {name}" if now.kind == "schema" else f"{word(now)} {called(now)}"


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
    """What is peculiar to its kind. Names are as they were by now, and types too."""
    if now.kind == "relation":
        yield from _adjust_relation(now, want)
    elif now.kind == "column":
        yield from _adjust_column(now, want, home, parts)
    elif now.kind in ("trigger", "rule") and differs(now, want, "enabled"):
        state = {"O": "enable", "A": "enable always", "R": "enable replica", "D": "disable"}
        yield f"alter table {home} {state[want.doc['enabled']]} {now.kind} {quoted(now.doc['name'])}"
    elif now.kind == "index":
        if differs(now, want, "clustered"):
            to = (
                f"cluster on {quoted(now.doc['name'])}"
                if want.doc.get("clustered")
                else "set without cluster"
            )
            yield f"alter table {home} {to}"
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
    if differs(now, want, "options"):
        extra = {one.partition("=")[0] for one in now.doc.get("options", ())}
        extra -= {one.partition("=")[0] for one in doc.get("options", ())}
        if extra:
            yield f"alter {what} reset ({', '.join(sorted(extra))})"
        if doc.get("options"):
            yield f"alter {what} set ({options(doc['options'])})"
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
    if differs(now, want, "options"):
        if now.doc.get("options"):
            yield f"{this} reset ({', '.join(one.partition('=')[0] for one in now.doc['options'])})"
        if doc.get("options"):
            yield f"{this} set ({options(doc['options'])})"


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
