"""The rows that say which blobs there are and where; every statement about them stands here."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from takeback.storage.blobs.codec import BlobForm, Undecodable, names_in, seal
from takeback.storage.tables import Connection, PackPlace

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


class Stored(NamedTuple):
    """One blob as it is kept: its bytes right here, or their place in a pack."""

    digest: bytes
    size: int
    form: int
    base: bytes  # empty: none
    depth: int
    data: bytes | None
    place: PackPlace | None = None

    @property
    def length(self) -> int:
        """Bytes it takes, headers and index aside."""
        return self.place.length if self.place else len(self.data or b"")


_COLUMNS = (
    "blobs.digest, blobs.size, blobs.form, below.digest, blobs.depth, blobs.data, "
    "pack, position, length, blobs.base"
)
_FROM = (
    "FROM blobs LEFT JOIN blobs AS below ON below.id = blobs.base "
    "LEFT JOIN blob_places ON blobs.data IS NULL AND blob_places.id = blobs.id"
)
_NAMED = "substr(blobs.digest, 1, 8) = substr(?1, 1, 8) AND blobs.digest = ?1"

_AT_ONCE = 200  # names in one question

# A base whose row is gone must not read as "no base".
LOST = bytes(32)


def asking(connection: Connection) -> Ask:
    return lambda sql, values: connection.execute(sql, values).fetchall()


def find(ask: Ask, digest: bytes) -> Stored | None:
    rows = ask(f"SELECT {_COLUMNS} {_FROM} WHERE {_NAMED}", (digest,))
    return to_stored(rows[0]) if rows else None


def page(ask: Ask, after: int, limit: int = 500) -> list[tuple[int, Stored]]:
    """The next rows after that id, oldest first; a base stands before what was built on it, nearly always."""
    sql = f"SELECT {_COLUMNS}, blobs.id {_FROM} WHERE blobs.id > ? ORDER BY blobs.id LIMIT ?"
    return [(row[-1], to_stored(row)) for row in ask(sql, (after, limit))]


def to_stored(row: tuple[Any, ...]) -> Stored:
    digest, size, form, base, depth, data, pack, position, length, base_id = row[:10]
    place = PackPlace(pack, position, length) if pack is not None else None
    return Stored(digest, size, form, base or (LOST if base_id else b""), depth, data, place)


def by_id(ask: Ask, id: int) -> Stored:
    return to_stored(ask(f"SELECT {_COLUMNS} {_FROM} WHERE blobs.id = ?", (id,))[0])


def find_id(ask: Ask, digest: bytes) -> int | None:
    rows = ask(f"SELECT id FROM blobs WHERE {_NAMED}", (digest,))
    return rows[0][0] if rows else None


def absent(ask: Ask, digests: Sequence[bytes]) -> list[bytes]:
    """Those of them that have no row, in the same order."""
    found: set[bytes] = set()
    for start in range(0, len(digests), _AT_ONCE):
        some = [digest[:8] for digest in digests[start : start + _AT_ONCE]]
        marks = ",".join("?" * len(some))
        rows = ask(f"SELECT digest FROM blobs WHERE substr(digest, 1, 8) IN ({marks})", some)
        found.update(digest for (digest,) in rows)
    return [digest for digest in digests if digest not in found]


def origin_of(like: str) -> int:
    """64 bits are enough: two names that share them only share a bad first guess."""
    hashed = hashlib.sha256(like.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(hashed[:8], "big", signed=True)


def newest(ask: Ask, origin: int) -> Stored | None:
    of_origin = "blobs.id = (SELECT newest FROM blob_origins WHERE origin = ?)"
    rows = ask(f"SELECT {_COLUMNS} {_FROM} WHERE {of_origin}", (origin,))
    return to_stored(rows[0]) if rows else None


def refs_of(ask: Ask, digest: bytes) -> tuple[bytes, ...]:
    rows = ask(f"SELECT digests FROM blob_refs JOIN blobs USING (id) WHERE {_NAMED}", (digest,))
    return tuple(names_in(rows[0][0], digest)) if rows else ()


def insert(connection: Connection, stored: Stored, base: int | None, at: int) -> int:
    (id,) = connection.execute(
        "INSERT INTO blobs (digest, size, form, base, depth, created_at, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " RETURNING id",
        (stored.digest, stored.size, int(stored.form), base, stored.depth, at, stored.data),
    ).fetchone()
    _put_place(connection, id, stored.place)
    return id


def data_of(connection: Connection, id: int) -> bytes | None:
    return connection.execute("SELECT data FROM blobs WHERE id = ?", (id,)).fetchone()[0]


def rewrite(connection: Connection, id: int, stored: Stored, base: int | None) -> None:
    """The same content, kept in another way or at another place."""
    connection.execute(
        "UPDATE blobs SET form = ?, base = ?, depth = ?, data = ? WHERE id = ?",
        (int(stored.form), base, stored.depth, stored.data, id),
    )
    connection.execute("DELETE FROM blob_places WHERE id = ?", (id,))
    _put_place(connection, id, stored.place)


def _put_place(connection: Connection, id: int, place: PackPlace | None) -> None:
    if place:
        connection.execute(
            "INSERT INTO blob_places (id, pack, position, length) VALUES (?, ?, ?, ?)",
            (id, place.pack, place.position, place.length),
        )


def move(connection: Connection, id: int, old: PackPlace, new: PackPlace) -> None:
    connection.execute(
        "UPDATE blob_places SET pack = ?, position = ? WHERE id = ? AND pack = ? AND position = ?",
        (new.pack, new.position, id, old.pack, old.position),
    )


def delete(connection: Connection, ids: Iterable[int]) -> None:
    gone = [(id,) for id in ids]
    if gone:
        for table in ("blobs", "blob_places", "blob_refs"):
            connection.executemany(f"DELETE FROM {table} WHERE id = ?", gone)
        connection.execute("DELETE FROM blob_origins WHERE newest NOT IN (SELECT id FROM blobs)")


def touch(connection: Connection, id: int, at: int) -> None:
    connection.execute("UPDATE blobs SET created_at = ?1 WHERE id = ?2 AND created_at < ?1", (at, id))


def add_refs(connection: Connection, id: int, digest: bytes, refs: Sequence[bytes]) -> None:
    try:
        before = refs_of(asking(connection), digest)
    except Undecodable:
        before = ()  # these are as good: the same content refers to the same blobs
    union = tuple(dict.fromkeys((*before, *refs)))
    if union != before:
        connection.execute(
            "INSERT INTO blob_refs (id, digests) VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET digests = excluded.digests",
            (id, seal(union, digest)),
        )


def set_newest(connection: Connection, origin: int, id: int) -> None:
    connection.execute(
        "INSERT INTO blob_origins (origin, newest) VALUES (?, ?)"
        " ON CONFLICT (origin) DO UPDATE SET newest = excluded.newest",
        (origin, id),
    )


def is_recipe(stored: Stored) -> bool:
    return stored.form == BlobForm.RECIPE
