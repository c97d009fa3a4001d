"""Erase the bodies of records, and what other tables have of them; the same statements for both kinds of database."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from takeback.model.lifecycle import BIRTHS, touched
from takeback.model.record import HASH, Kind, Record, canonical, erased
from takeback.model.resource import Project, made_markers, touched_projects
from takeback.storage.blobs.rows import origin_of
from takeback.storage.store import Store
from takeback.storage.tables import Connection

_OWN_PROJECT = (
    "SELECT p.number FROM effects e JOIN runs r ON r.number = e.run JOIN projects p ON p.root = r.project"
    " WHERE e.seq = ?"
)


class Erased(NamedTuple):
    """A record as it is, and what is left of it."""

    record: Record
    left: dict[str, Any]


def announce(connection: Connection, digests: Iterable[str]) -> None:
    """In the transaction of the REDACT records: from now on every process finishes it."""
    rows = [(0, bytes.fromhex(digest)) for digest in digests]
    connection.executemany(
        "INSERT INTO redacting (seq, digest) VALUES (?, ?) ON CONFLICT DO NOTHING", [(0, b""), *rows]
    )


def erase(store: Store, connection: Connection, going: Sequence[Erased]) -> None:
    """In one transaction."""
    roots: set[str] = set()
    for one in going:
        _erase_record(store, connection, one)
        roots |= _erase_listed(store, connection, one)
    connection.execute("DELETE FROM redacting WHERE seq > 0")
    if roots:
        _list_again(store, connection, roots)


def finished(connection: Connection, wholly: bool) -> None:
    """The blobs are gone; and then all the rest too."""
    connection.execute(
        f"DELETE FROM redacting WHERE seq = 0 AND length(digest) {'>= 0' if wholly else '> 0'}"
    )


def _erase_record(store: Store, connection: Connection, one: Erased) -> None:
    record, body = one.record, canonical(one.record.body)
    seal = record.seal if len(record.seal) == HASH else erased(record.seal, body)
    connection.execute("INSERT INTO redacting (seq, digest) VALUES (?, ?)", (record.seq, b""))
    others = store.REDACTED_COLUMNS
    connection.execute(
        f"UPDATE records SET body = ?, hash = ?{others} WHERE seq = ?",
        (store.kept_body(canonical(one.left)), record.hash + seal, record.seq),
    )


def _erase_listed(store: Store, connection: Connection, one: Erased) -> set[str]:
    """The projects that it named and may not name any more."""
    record, left = one
    if record.effect and record.kind in BIRTHS:
        return _erase_effect(connection, record, left)
    if record.kind is Kind.OPEN and "name" in record.body:
        return _erase_run(connection, record, left)
    if record.kind is Kind.CLOSE:
        for column, name in (("note", "error"), ("note", "why"), ("awaits", "awaits")):
            if record.body.get(name, "") != left.get(name, ""):
                connection.execute(
                    f"UPDATE runs SET {column} = ? WHERE id = ? AND {column} = ?",
                    (left.get(name, ""), record.run, record.body[name]),
                )
    if record.kind is Kind.SIGNAL and record.body["name"] != left["name"]:
        store.rename_signal(connection, record.seq, left["name"])
    return set()


def _erase_effect(connection: Connection, record: Record, left: dict[str, Any]) -> set[str]:
    ((effect,),) = connection.execute("SELECT seq FROM effects WHERE id = ?", (record.effect,)).fetchall()
    before = {*touched(record.body), record.body["resource"]}
    connection.executemany(
        "DELETE FROM targets WHERE resource = ? AND effect = ?", [(one, effect) for one in before]
    )
    connection.execute(
        "INSERT INTO targets (resource, effect) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (left["resource"], effect),
    )
    connection.execute("UPDATE effects SET key = '' WHERE seq = ?", (effect,))
    connection.executemany("DELETE FROM blob_origins WHERE origin = ?", [(origin_of(one),) for one in before])
    named = {one.root for one in (*touched_projects(record.body), *made_markers(record.body))}
    for root in named:
        connection.execute(
            "DELETE FROM scopes WHERE effect = ? AND project = (SELECT number FROM projects WHERE root = ?)"
            f" AND project NOT IN ({_OWN_PROJECT})",
            (effect, root, effect),
        )
    return named


def _erase_run(connection: Connection, record: Record, left: dict[str, Any]) -> set[str]:
    changed = {
        name: left.get(name, "")
        for name in ("name", "agent", "key", "workflow", "project")
        if left.get(name, "") != record.body.get(name, "")
    }
    if changed:
        columns = ", ".join(f"{name} = ?" for name in changed)
        connection.execute(f"UPDATE runs SET {columns} WHERE id = ?", (*changed.values(), record.run))
    return {record.body["project"]} if "project" in changed else set()


def _list_again(store: Store, connection: Connection, roots: set[str]) -> None:
    """What is said of these projects by the records that are left."""
    known: dict[str, Project] = {}
    named: dict[str, set[str]] = {}  # by effect
    began: dict[str, str] = {}  # by run
    for record in store.journal.records(kinds=(Kind.OPEN, *BIRTHS)):
        if record.kind is Kind.OPEN:
            if "name" not in record.body:
                continue
            root = began[record.run] = record.body.get("project", "")
            told = (Project(root, bool(record.body.get("marked")), began=True),) if root else ()
        else:
            touches = touched_projects(record.body)
            named.setdefault(record.effect, set()).update(one.root for one in touches)
            if own := began.get(record.run):
                named[record.effect].add(own)
            told = (*touches, *made_markers(record.body))
        for one in told:
            before = known.get(one.root, one)
            known[one.root] = Project(one.root, *(a or b for a, b in zip(before[1:], one[1:], strict=True)))
    for root in roots:
        _list_project(
            connection, root, known.get(root), [id for id, theirs in named.items() if root in theirs]
        )


def _list_project(connection: Connection, root: str, told: Project | None, effects: Sequence[str]) -> None:
    rows = connection.execute("SELECT number FROM projects WHERE root = ?", (root,)).fetchall()
    if not rows:
        return
    ((number,),) = rows
    staying = {
        connection.execute("SELECT seq FROM effects WHERE id = ?", (id,)).fetchone()[0] for id in effects
    }
    for (effect,) in connection.execute("SELECT effect FROM scopes WHERE project = ?", (number,)).fetchall():
        if effect not in staying:
            connection.execute("DELETE FROM scopes WHERE project = ? AND effect = ?", (number, effect))
    if told is None:
        connection.execute("DELETE FROM projects WHERE number = ?", (number,))
        return
    connection.execute(
        "UPDATE projects SET marked = ?, began = ?, made = ? WHERE number = ?", (*map(int, told[1:]), number)
    )
