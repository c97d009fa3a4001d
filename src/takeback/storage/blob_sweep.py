"""Delete the blobs that nothing needs any more, and give their space back.

In rounds, each of them one transaction that asks anew what is needed: another process may have put or named a
blob since the round before. Killed anywhere, nothing needed is lost and the next sweep finishes the work.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from takeback.errors import Corrupt, ResourceUnreachable
from takeback.model.progress import SILENT, Progress
from takeback.storage import blob_rows as rows
from takeback.storage import codec
from takeback.storage.blob_holding import INLINE, to_entry
from takeback.storage.blob_reader import BlobReader, damaged
from takeback.storage.blob_rows import Ask, Stored
from takeback.storage.codec import Form
from takeback.storage.packs import CAP, HEADER
from takeback.storage.tables import Connection, Shelf, Tables

ROUND = CAP // 4  # bytes of content encoded anew in one round, while others wait for the database
ROUNDS = 4  # after which packs are copied as well; before, most entries of a pack may be about to go


class Erasure(NamedTuple):
    """Blobs that go however young they are, unless something needs them."""

    digests: frozenset[bytes] = frozenset()
    put_until: int = 0  # seconds since 1970; what was put again later is someone's who has not named it yet


class Marks(NamedTuple):
    lengths: dict[int, int]  # of every blob, as it is kept
    needed: set[int]
    propping: set[int]  # nothing needs their content, but a difference stands on them
    bases: dict[int, int]


class Sweeper:
    def __init__(
        self,
        database: Tables,
        packs: Shelf,
        reader: BlobReader,
        grace: int,
        now: int,
        erase: Erasure,
        progress: Progress = SILENT,
    ) -> None:
        self._database = database
        self._packs = packs
        self._reader = reader
        self._grace = grace
        self._now = now
        self._progress = progress
        self._erase = erase
        self._worth_keeping: set[int] = set()

    def sweep(self, live: Callable[[], Iterable[bytes | None]], settle: Callable[[], None]) -> int:
        freed = 0
        with self._packs.alone():
            in_use = {row[0] for row in self._database.read("SELECT DISTINCT pack FROM blob_places")}
            more, rounds = True, 0
            while more:
                rounds += 1
                with self._database.write() as connection:
                    marks = self._mark(connection, live())
                    freed += self._delete(connection, marks)
                    gained, more = self._replace_props(connection, marks)
                    freed += gained
                    self._packs.sync()
                settle()
                copying = not more or rounds % ROUNDS == 0
                self._packs.tidy(self._database, in_use, self._now - self._grace, copying)
            self._database.shrink()
        return freed

    def _mark(self, connection: Connection, live: Iterable[bytes | None]) -> Marks:
        ask = rows.asking(connection)
        lengths: dict[int, int] = dict(
            connection.execute(
                "SELECT blobs.id, coalesce(length(data), length + ?, 0) "
                "FROM blobs LEFT JOIN blob_places USING (id)",
                (HEADER.size,),
            ).fetchall()
        )
        bases: dict[int, int] = dict(
            connection.execute("SELECT id, base FROM blobs WHERE base IS NOT NULL").fetchall()
        )
        waiting = [id for digest in live if digest and (id := rows.find_id(ask, digest))]
        # Whole seconds are kept, so one more is granted.
        youngest = self._now - self._grace if self._grace else self._now + 1
        young = ask("SELECT id, created_at FROM blobs WHERE created_at >= ?", (youngest,))
        going = self._going(ask)
        until = self._erase.put_until
        waiting += (id for id, created_at in young if id not in going or created_at > until)
        needed = self._reachable(ask, waiting)
        propping: set[int] = set()
        for id in needed:
            base = bases.get(id)
            while base is not None and base not in needed and base not in propping:
                propping.add(base)
                base = bases.get(base)
        return Marks(lengths, needed, propping, bases)

    def _going(self, ask: Ask) -> set[int]:
        """What is to be erased, with the pieces of it."""
        found = [id for digest in self._erase.digests if (id := rows.find_id(ask, digest))]
        return self._reachable(ask, found) if found else set()

    def _reachable(self, ask: Ask, waiting: list[int]) -> set[int]:
        recipes = {row[0] for row in ask("SELECT id FROM blobs WHERE form = ?", (int(Form.RECIPE),))}
        referring = {row[0] for row in ask("SELECT id FROM blob_refs", ())}
        ids: dict[bytes, int] = {}
        needed: set[int] = set()
        while waiting:
            id = waiting.pop()
            if id in needed:
                continue
            needed.add(id)
            self._progress.moved(items=1)
            if id in recipes or id in referring:
                for name in self._named_by(ask, id, id in recipes):
                    if name not in ids:
                        ids[name] = self._id_of(ask, id, name)
                    waiting.append(ids[name])
        return needed

    def _named_by(self, ask: Ask, id: int, is_recipe: bool) -> list[bytes]:
        stored = rows.by_id(ask, id)
        try:
            names = list(rows.refs_of(ask, stored.digest))
        except codec.Undecodable as problem:
            raise self._refusal(stored.digest, str(problem)) from problem
        return names + self._reader.pieces(stored) if is_recipe else names

    def _id_of(self, ask: Ask, id: int, name: bytes) -> int:
        found = rows.find_id(ask, name)
        if found is None:
            why = f"it needs blob {name.hex()}, which is not in the store"
            raise self._refusal(rows.by_id(ask, id).digest, why)
        return found

    def _refusal(self, digest: bytes, why: str) -> Corrupt:
        # A list that is wrong here names too little elsewhere; deleting by it could turn damage into loss.
        error = damaged(digest, why)
        error.hint = "Nothing was swept. Run `takeback verify`, and forget the effects it names."
        return error

    def _delete(self, connection: Connection, marks: Marks) -> int:
        dead = [id for id in marks.lengths if id not in marks.needed and id not in marks.propping]
        rows.delete(connection, dead)
        return sum(marks.lengths[id] for id in dead)

    def _replace_props(self, connection: Connection, marks: Marks) -> tuple[int, bool]:
        """Encode anew what stands on blobs that nothing else needs, where that is shorter than keeping them.

        The bytes gained, and whether another round has more to do.
        """
        gained = work = 0
        for members, children in _groups(marks):
            if not members.isdisjoint(self._worth_keeping):
                continue
            if work >= ROUND:
                return gained, True
            top_base = marks.bases.get(min(members, key=lambda id: marks.bases.get(id) in members), None)
            fresh, effort = self._encode_anew(rows.asking(connection), children, top_base)
            work += effort
            propped = sum(marks.lengths[id] for id in members)
            before = sum(marks.lengths[id] for id in children)
            after = sum(stored.length for stored in fresh)
            if len(fresh) < len(children) or after >= before + propped:
                self._worth_keeping |= members
                continue
            self._rewrite(connection, children, fresh)
            rows.delete(connection, members)
            gained += before + propped - after
        return gained, False

    def _encode_anew(self, ask: Ask, children: list[int], top_base: int | None) -> tuple[list[Stored], int]:
        """The first stands on what the group stood on, others on the first. Fewer if one cannot be read."""
        fresh: list[Stored] = []
        effort = 0
        base = rows.by_id(ask, top_base) if top_base else None
        for id in children:
            old = rows.by_id(ask, id)
            try:
                content = self._reader.content(old.digest)
                below = self._reader.content(base.digest) if base else None
            except (Corrupt, ResourceUnreachable):
                break
            form, data = codec.encode(content, below)
            if codec.decode(form, data, len(content), below) != content:
                break
            if base and form == Form.DELTA:
                fresh.append(Stored(old.digest, old.size, form, base.digest, base.depth + 1, data))
            else:
                fresh.append(Stored(old.digest, old.size, form, b"", 0, data))
            effort += len(content)
            self._progress.moved(len(content))
            if len(fresh) == 1:
                base = fresh[0]
        return fresh, effort

    def _rewrite(self, connection: Connection, ids: list[int], fresh: list[Stored]) -> None:
        ask = rows.asking(connection)
        for id, stored in zip(ids, fresh, strict=True):
            base = rows.find_id(ask, stored.base) if stored.base else None
            if stored.length > INLINE:
                stored = stored._replace(data=None, place=self._packs.append([to_entry(stored)])[0])
            rows.rewrite(connection, id, stored, base)


def _groups(marks: Marks) -> Iterator[tuple[set[int], list[int]]]:
    """Props that stand on each other, and the needed blobs that stand on them, oldest first."""
    top: dict[int, int] = {}
    for id in marks.propping:
        path = [id]
        while path[-1] not in top and marks.bases.get(path[-1]) in marks.propping:
            path.append(marks.bases[path[-1]])
        end = top.get(path[-1], path[-1])
        top.update((step, end) for step in path)
    members: dict[int, set[int]] = {}
    children: dict[int, list[int]] = {}
    for id, end in top.items():
        members.setdefault(end, set()).add(id)
    for id in sorted(marks.needed):
        if (base := marks.bases.get(id)) in top:
            children.setdefault(top[base], []).append(id)
    for end in sorted(members):
        yield members[end], children.get(end, [])
