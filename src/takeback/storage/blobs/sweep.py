"""Delete the blobs that nothing needs any more, and give the space of their packs back."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from takeback.errors import Corrupt, Refused, ResourceUnreachable, StoreBusy
from takeback.model.descriptor import Descriptor
from takeback.model.progress import SILENT, Progress
from takeback.storage import disk
from takeback.storage.blobs import codec, rows
from takeback.storage.blobs.codec import BlobForm
from takeback.storage.blobs.packs import (
    CAP,
    HEADER,
    OPENING,
    EntryDamaged,
    Packs,
    pack_path,
    packs_in,
    read_entry,
)
from takeback.storage.blobs.reader import BlobReader, damaged, encoded
from takeback.storage.blobs.rows import Ask, Stored
from takeback.storage.blobs.uncommitted import INLINE, to_entry
from takeback.storage.tables import Connection, PackPlace, Shelf, Tables

# In rounds, each of them one transaction that asks again what is needed: another process may have put or named a blob
# since the round before. Killed anywhere, nothing needed is lost and the next sweep finishes the work.


ROUND = CAP // 4  # bytes of content encoded again in one round, while others wait for the database
ROUNDS = 4  # after which packs are copied as well; before, most entries of a pack may be about to go


class Erasure(NamedTuple):
    """Blobs that go however young they are, unless something needs them."""

    digests: frozenset[bytes] = frozenset()
    put_until: int = 0  # seconds since 1970; what was put again later is someone's who has not named it yet
    for_good: bool = (
        False  # nothing of them may be left: no difference stands on them, and no pack has a hole
    )


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

    def unneeded(self, live: Iterable[bytes | None]) -> int:
        """How many bytes a sweep would delete at least; encoding again may gain more."""
        marks = self._mark(self._database.read, live)
        return sum(marks.lengths[id] for id in _dead(marks))

    def sweep(self, live: Callable[[], Iterable[bytes | None]], settle: Callable[[], None]) -> int:
        freed = 0
        with self._packs.alone():
            in_use = {row[0] for row in self._database.read("SELECT DISTINCT pack FROM blob_places")}
            more, rounds = True, 0
            while more:
                rounds += 1
                with self._database.write() as connection:
                    marks = self._mark(rows.asking(connection), live())
                    freed += self._delete(connection, marks)
                    gained, more = self._replace_props(connection, marks)
                    freed += gained
                    self._packs.sync()
                settle()
                copying = not more or rounds % ROUNDS == 0
                old = self._now - self._grace
                self._packs.tidy(self._database, in_use, old, copying, self._erase.for_good and not more)
            self._database.shrink()
        return freed

    def _mark(self, ask: Ask, live: Iterable[bytes | None]) -> Marks:
        with_places = "blobs LEFT JOIN blob_places USING (id)"
        sql = f"SELECT blobs.id, coalesce(length(data), length + ?, 0) FROM {with_places}"
        lengths: dict[int, int] = dict(ask(sql, (HEADER.size,)))
        bases: dict[int, int] = dict(ask("SELECT id, base FROM blobs WHERE base IS NOT NULL", ()))
        waiting = [id for digest in live if digest and (id := rows.find_id(ask, digest))]
        # Whole seconds are kept, so one more is granted.
        youngest = self._now - self._grace if self._grace else self._now + 1
        young = ask("SELECT id, created_at FROM blobs WHERE created_at >= ?", (youngest,))
        # The blobs to erase, with their pieces.
        erased = [id for digest in self._erase.digests if (id := rows.find_id(ask, digest))]
        going = self._reachable(ask, erased) if erased else set[int]()
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

    def _reachable(self, ask: Ask, waiting: list[int]) -> set[int]:
        recipes = {row[0] for row in ask("SELECT id FROM blobs WHERE form = ?", (int(BlobForm.RECIPE),))}
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
        dead = _dead(marks)
        rows.delete(connection, dead)
        return sum(marks.lengths[id] for id in dead)

    def _replace_props(self, connection: Connection, marks: Marks) -> tuple[int, bool]:
        """Encode blobs again that are the only ones to need another blob, if that is shorter than keeping it.

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
            if len(fresh) < len(children) or (after >= before + propped and not self._erase.for_good):
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
                fresh.append(encoded(old.digest, content, base, below))
            except (Corrupt, ResourceUnreachable):
                break
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


def _dead(marks: Marks) -> list[int]:
    return [id for id in marks.lengths if id not in marks.needed and id not in marks.propping]


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


# Remove packs that nothing names, cut off tails that nothing names, and copy what is needed out of packs that
# are mostly dead or very small.
#
# The order is what keeps it safe: new pack, fsync, one transaction that lets the rows point there, then the old
# file goes.


SMALL = CAP // 4
TOGETHER = CAP * 3 // 4  # bytes copied before the packs they come from are removed
MANY = 4  # small packs that are worth putting together


class Victim(NamedTuple):
    pack: int
    needed: int  # bytes


def tidy_packs(
    packs: Packs, database: Tables, in_use: set[int], oldest: int, copying: bool, for_good: bool = False
) -> None:
    """`in_use` had rows during this sweep; another pack without rows goes only if older than `oldest`. `for_good`:
    every pack that has bytes which no row names is rewritten."""
    packs.forget_handles()
    sql = "SELECT pack, sum(length + ?) FROM blob_places GROUP BY pack"
    needed: dict[int, int] = dict(database.read(sql, (HEADER.size,)))
    in_use.update(needed)
    victims: list[Victim] = []
    small: list[Victim] = []
    for pack, status in _packs_with_status(packs.directory):
        if pack not in needed:
            if for_good or pack in in_use or int(status.st_mtime) <= oldest:
                _switch(database, packs.directory, [pack], [])
        elif _is_worth_it(status.st_size, needed[pack], for_good):
            victims.append(Victim(pack, needed[pack]))
        elif needed[pack] < SMALL:
            small.append(Victim(pack, needed[pack]))
    if not copying:
        return
    if len(small) >= MANY:
        victims += small
    try:
        for group in _grouped(victims):
            _rewrite(database, packs, group)
    except ResourceUnreachable as error:
        if not disk.is_without_room(error):
            raise
        # A later sweep may have more.
        _cut_tails(database, packs.directory, needed)
    if for_good:
        _refuse_holes(database, packs.directory)


def _packs_with_status(directory: str) -> Iterator[tuple[int, os.stat_result]]:
    for pack in packs_in(directory):
        with suppress(FileNotFoundError):
            yield pack, os.stat(pack_path(directory, pack), follow_symlinks=False)


def _is_worth_it(size: int, needed: int, for_good: bool) -> bool:
    return (size - needed) * 3 >= size or (for_good and size > needed + len(OPENING))


def _refuse_holes(database: Tables, directory: str) -> None:
    sql = "SELECT pack, sum(length + ?) FROM blob_places GROUP BY pack"
    needed: dict[int, int] = dict(database.read(sql, (HEADER.size,)))
    for pack, status in _packs_with_status(directory):
        if status.st_size > needed.get(pack, 0) + len(OPENING):
            raise still_held(pack_path(directory, pack))


def still_held(place: str) -> StoreBusy:
    return StoreBusy(
        f"{place} holds more than what is needed, and could not be rewritten: another process is writing to it.",
        hint="When that process has ended, the next change or `takeback recover` finishes the redaction.",
    )


def _grouped(victims: list[Victim]) -> Iterator[list[int]]:
    group: list[int] = []
    weight = 0
    for victim in victims:
        if group and weight + victim.needed > TOGETHER:
            yield group
            group, weight = [], 0
        group.append(victim.pack)
        weight += victim.needed
    if group:
        yield group


def _cut_tails(database: Tables, directory: str, needed: Iterable[int]) -> None:
    """Cut the tails that a dead writer left, and deleted ones. It needs no room, unlike copying the rest."""
    for pack in needed:
        handle = _locked(directory, pack, os.O_RDWR)
        if handle is None:
            continue
        with Descriptor(handle):
            sql = "SELECT max(position + length) FROM blob_places WHERE pack = ?"
            ((end,),) = database.read(sql, (pack,))
            if end is not None and os.fstat(handle).st_size > end + HEADER.size:
                with disk.reachable(pack_path(directory, pack), "cut"):
                    os.ftruncate(handle, end + HEADER.size)


def _rewrite(database: Tables, packs: Packs, group: list[int]) -> None:
    """Copy every sound entry that a row names; a damaged one stays, with its pack, for verify to report."""
    handles = {pack: handle for pack in group if (handle := _locked(packs.directory, pack)) is not None}
    fresh = Packs(packs.directory, packs.on_io_error)
    moves: list[tuple[int, PackPlace, PackPlace]] = []
    try:
        for id, pack, position, length in database.read(
            "SELECT id, pack, position, length FROM blob_places ORDER BY pack, position"
        ):
            if pack not in handles:
                continue
            old = PackPlace(pack, position, length)
            try:
                entry = read_entry(handles[pack], position, length)
            except (EntryDamaged, OSError):
                continue
            moves.append((id, old, fresh.append([entry])[0]))
        fresh.sync()
        _switch(database, packs.directory, list(handles), moves, locked=True)
    finally:
        fresh.close()
        for handle in handles.values():
            os.close(handle)


def _switch(
    database: Tables,
    directory: str,
    old: list[int],
    moves: list[tuple[int, PackPlace, PackPlace]],
    locked: bool = False,
) -> None:
    """Let the rows point to the new places, then remove each old pack that no row names."""
    handles = {} if locked else {pack: _locked(directory, pack) for pack in old}
    try:
        with database.write() as connection:
            for id, before, after in moves:
                rows.move(connection, id, before, after)
            named = {row[0] for row in connection.execute("SELECT DISTINCT pack FROM blob_places").fetchall()}
        for pack in old:
            if pack not in named and handles.get(pack, 0) is not None:
                disk.remove(pack_path(directory, pack))
    finally:
        for handle in handles.values():
            if handle is not None:
                os.close(handle)


def _locked(directory: str, pack: int, flags: int = os.O_RDONLY) -> int | None:
    """A handle with the lock; None while its writer has something there that is not committed."""
    try:
        handle = disk.open_private(pack_path(directory, pack), flags)
    except (OSError, Refused):
        return None
    if disk.try_lock(handle):
        return handle
    os.close(handle)
    return None
