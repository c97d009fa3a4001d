"""Remove packs that nothing names, cut off tails that nothing names, and copy what is needed out of packs that are
mostly dead or very small.

The order is what keeps it safe: new pack, fsync, one transaction that lets the rows point there, then the old
file goes.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from takeback.errors import Refused, ResourceUnreachable
from takeback.storage import blob_rows as rows
from takeback.storage import disk
from takeback.storage.packs import CAP, HEADER, EntryDamaged, Packs, Place, pack_path, packs_in, read_entry
from takeback.storage.tables import Tables

SMALL = CAP // 4
TOGETHER = CAP * 3 // 4  # bytes copied before the packs they come from are removed
MANY = 4  # small packs that are worth putting together


class Victim(NamedTuple):
    pack: int
    needed: int  # bytes


def tidy_packs(database: Tables, packs: Packs, in_use: set[int], oldest: int, copying: bool) -> None:
    """`in_use` had rows during this sweep; another pack without rows goes only if older than `oldest`."""
    packs.forget_handles()
    needed: dict[int, int] = dict(
        database.read("SELECT pack, sum(length + ?) FROM blob_places GROUP BY pack", (HEADER.size,))
    )
    in_use.update(needed)
    victims: list[Victim] = []
    small: list[Victim] = []
    for pack in packs_in(packs.directory):
        try:
            status = os.stat(pack_path(packs.directory, pack), follow_symlinks=False)
        except FileNotFoundError:
            continue
        if pack not in needed:
            if pack in in_use or int(status.st_mtime) <= oldest:
                _switch(database, packs.directory, [pack], [])
        elif (status.st_size - needed[pack]) * 3 >= status.st_size:
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
    """What a writer left that died, and what was deleted there. It needs no room, unlike copying the rest."""
    for pack in needed:
        handle = _locked(directory, pack, os.O_RDWR)
        if handle is None:
            continue
        try:
            ((end,),) = database.read(
                "SELECT max(position + length) FROM blob_places WHERE pack = ?", (pack,)
            )
            if end is not None and os.fstat(handle).st_size > end + HEADER.size:
                with disk.reachable(pack_path(directory, pack), "cut"):
                    os.ftruncate(handle, end + HEADER.size)
        finally:
            os.close(handle)


def _rewrite(database: Tables, packs: Packs, group: list[int]) -> None:
    """Copy every sound entry that a row names; a damaged one stays, with its pack, for verify to report."""
    handles = {pack: handle for pack in group if (handle := _locked(packs.directory, pack)) is not None}
    fresh = Packs(packs.directory, packs.on_io_error)
    moves: list[tuple[int, Place, Place]] = []
    try:
        for id, pack, position, length in database.read(
            "SELECT id, pack, position, length FROM blob_places ORDER BY pack, position"
        ):
            if pack not in handles:
                continue
            old = Place(pack, position, length)
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
    moves: list[tuple[int, Place, Place]],
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
