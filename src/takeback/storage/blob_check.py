"""Whether every blob is there and right; one sentence for each that is not."""

import os
from collections.abc import Iterator

from takeback.errors import Corrupt, ResourceUnreachable, TakebackError
from takeback.model.flaw import Flaw
from takeback.model.progress import SILENT, Progress
from takeback.storage import blob_rows as rows
from takeback.storage.blob_reader import BASE_GONE, BlobReader, damaged
from takeback.storage.blob_rows import LOST, Stored, is_recipe
from takeback.storage.codec import SEGMENT, Undecodable, names_in
from takeback.storage.packs import EntryDamaged
from takeback.storage.tables import Shelf, Tables


def check_blobs(
    database: Tables, packs: Shelf, reader: BlobReader, read_data: bool, progress: Progress = SILENT
) -> Iterator[Flaw]:
    """Holds the lock for one blob at a time. With `read_data` every byte is read, decoded and hashed."""
    after = 0
    while True:
        try:
            found = rows.page(database.read, after)
        except Corrupt as error:
            yield Flaw(f"The list of blobs cannot be read: {error}", unreadable=True)
            return
        if not found:
            return
        after = found[-1][0]
        for _, stored in found:
            # A recipe has no bytes of its own.
            progress.moved(stored.size if read_data and not is_recipe(stored) else 0, 1)
            with database.lock:
                problems = list(_problems(database, packs, reader, stored, read_data))
            # Read again, because another process may have rewritten or swept it since the page was read.
            if problems and (again := rows.find(database.read, stored.digest)) != stored:
                if again is None:
                    continue
                with database.lock:
                    problems = list(_problems(database, packs, reader, again, read_data))
            yield from problems


def _problems(
    database: Tables, packs: Shelf, reader: BlobReader, stored: Stored, read_data: bool
) -> Iterator[Flaw]:
    try:
        if stored.base == LOST:
            raise damaged(stored.digest, BASE_GONE)
        if is_recipe(stored):
            _check_pieces(database, stored, reader.encoded(stored))
        elif read_data:
            reader.content_of(stored)
        else:
            _look(packs, stored)
    except (Corrupt, ResourceUnreachable) as error:
        yield Flaw(str(error), blob=stored.digest.hex())
    try:
        for ref in rows.refs_of(database.read, stored.digest):
            if rows.find_id(database.read, ref) is None:
                text = f"Blob {stored.digest.hex()} refers to blob {ref.hex()}, which is not in the store."
                yield Flaw(text, blob=stored.digest.hex())
    except Undecodable:
        text = f"Blob {stored.digest.hex()} has a damaged list of the blobs it refers to."
        yield Flaw(text, blob=stored.digest.hex())


def _look(packs: Shelf, stored: Stored) -> None:
    """Without reading its bytes: that they are there, and say that they are what they should be."""
    if stored.place is None:
        if stored.data is None:
            raise damaged(stored.digest, "nothing says where its bytes are")
        return
    try:
        entry = packs.peek(stored.place)
    except EntryDamaged as problem:
        raise damaged(stored.digest, str(problem)) from problem
    except OSError as error:
        raise damaged(stored.digest, f"its pack cannot be read ({os.strerror(error.errno or 0)})") from error
    except TakebackError as error:
        raise damaged(stored.digest, f"its pack cannot be used: {error}") from error
    if entry[:4] != (stored.digest, stored.base, stored.form, stored.size):
        raise damaged(stored.digest, "another blob stands in its place")


def _check_pieces(database: Tables, stored: Stored, recipe: bytes) -> None:
    """Each piece is read as a blob of its own; the list is covered by its seal."""
    try:
        names = names_in(recipe, stored.digest)
    except Undecodable as problem:
        raise damaged(stored.digest, str(problem)) from problem
    for name in names:
        if rows.find_id(database.read, name) is None:
            raise damaged(stored.digest, f"its piece {name.hex()} is not in the store")
    if not (len(names) - 1) * SEGMENT < stored.size <= len(names) * SEGMENT:
        raise damaged(stored.digest, "its length does not fit its pieces")
