"""From a name to the bytes: follows bases, checks hashes, says which blob is to blame; and the check of all blobs."""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator

from takeback.errors import BlobDamaged, BlobMissing, Corrupt, ResourceUnreachable, TakebackError
from takeback.model.content import Naming
from takeback.model.progress import SILENT, Progress
from takeback.model.record import Flaw
from takeback.storage import disk
from takeback.storage.blobs import codec, rows
from takeback.storage.blobs.codec import SEGMENT, Undecodable
from takeback.storage.blobs.packs import EntryDamaged
from takeback.storage.blobs.rows import LOST, Stored, is_recipe
from takeback.storage.tables import Shelf, Tables

REMEMBERED = 16 << 20  # bytes of content held, so that the base of the next version is at hand
LITTLE = 1 << 20  # of a process that lives long and makes a change now and then
BASE_GONE = "it is kept as a difference to a blob that is not in the store any more"
ATTEMPTS = 3  # a sweep in another process may rewrite what we are about to read
LONGEST_CHAIN = 1000  # far beyond what is ever written; a damaged row must not send us round in circles


class BlobReader:
    """Not thread-safe: the store's lock is held around it."""

    def __init__(self, find: Callable[[bytes], Stored | None], packs: Shelf) -> None:
        self._find = find
        self._packs = packs
        self._recent: OrderedDict[bytes, bytes] = OrderedDict()
        self._weight = 0
        self._most = REMEMBERED

    def content(self, digest: bytes, found: Stored | None = None) -> bytes:
        """Of one piece, found right; `BlobMissing`, `BlobDamaged`. `found` is where it was seen just now, if it was."""
        if (known := self._recent.get(digest)) is not None:
            return known
        for attempt in range(ATTEMPTS):
            stored, found = found or self._find(digest), None
            if stored is None:
                raise missing(digest)
            try:
                return self.content_of(stored)
            except BlobDamaged:
                if attempt == ATTEMPTS - 1:
                    raise
        raise missing(digest)

    def content_of(self, stored: Stored) -> bytes:
        """The same, always read from where it is kept; only its bases may come from memory."""
        chain = [stored]
        known: bytes | None = None
        while chain[-1].base and known is None:
            below = chain[-1].base
            known = self._recent.get(below)
            if known is None:
                chain.append(self._base(below, chain))
        content = known
        for link in reversed(chain):
            try:
                content = codec.decode(link.form, self.encoded(link), link.size, content)
            except codec.Undecodable as problem:
                raise self._blame(stored, link, str(problem)) from problem
        assert content is not None
        if codec.name(content) != stored.digest:
            raise self._blame(stored, self._first_wrong(chain, known), "its bytes do not have its hash")
        self.remember(stored.digest, content)
        return content

    def _base(self, digest: bytes, chain: list[Stored]) -> Stored:
        stored = self._find(digest) if digest != LOST and len(chain) < LONGEST_CHAIN else None
        if stored is None:
            raise damaged(chain[0].digest, BASE_GONE)
        return stored

    def _first_wrong(self, chain: list[Stored], content: bytes | None) -> Stored:
        for link in reversed(chain):
            content = codec.decode(link.form, self.encoded(link), link.size, content)
            if codec.name(content) != link.digest:
                return link
        return chain[0]

    def _blame(self, wanted: Stored, culprit: Stored, problem: str) -> BlobDamaged:
        if culprit.digest == wanted.digest:
            return damaged(wanted.digest, problem)
        why = f"it is kept as a difference to {culprit.digest.hex()}, which is damaged: {problem}"
        return damaged(wanted.digest, why)

    def encoded(self, stored: Stored) -> bytes:
        """Its bytes as they are kept."""
        if stored.place is None:
            if stored.data is None:
                raise damaged(stored.digest, "nothing says where its bytes are")
            return stored.data
        try:
            entry = self._packs.read(stored.place)
        except (EntryDamaged, FileNotFoundError) as problem:
            # A sweep may have moved it since we looked.
            again = self._find(stored.digest)
            if again is not None and again.place != stored.place and again.form == stored.form:
                return self.encoded(again)
            missing_pack = isinstance(problem, FileNotFoundError)
            raise damaged(stored.digest, "its pack is missing" if missing_pack else str(problem)) from problem
        except OSError as error:
            if error.errno == errno.EIO:
                raise damaged(stored.digest, "the disk cannot read it") from error
            raise disk.unreachable(self._packs.directory, "read", error) from error
        if entry.digest != stored.digest:
            raise damaged(stored.digest, "another blob stands in its place")
        return entry.data

    def pieces(self, stored: Stored) -> list[bytes]:
        """The names of what it is made of: itself, unless it was long."""
        if not is_recipe(stored):
            return [stored.digest]
        try:
            return codec.names_in(self.encoded(stored), stored.digest)
        except codec.Undecodable as problem:
            raise damaged(stored.digest, str(problem)) from problem

    def remember(self, digest: bytes, content: bytes) -> None:
        if digest in self._recent:
            self._recent.move_to_end(digest)
            return
        self._recent[digest] = content
        self._weight += len(content)
        while self._weight > self._most:
            self._weight -= len(self._recent.popitem(last=False)[1])

    def remembers(self, digest: bytes) -> bool:
        return digest in self._recent

    def keep_little(self) -> None:
        self._most = LITTLE
        self.forget()

    def forget(self) -> None:
        self._recent.clear()
        self._weight = 0


def encoded(digest: bytes, content: bytes, base: Stored | None = None, before: bytes | None = None) -> Stored:
    """As it is to be kept, on this base or on none; `before` is what the base holds."""
    form, data = codec.encode(content, before)
    if codec.decode(form, data, len(content), before) != content:
        raise damaged(digest, "it could not be decoded after it was encoded")
    if base and form == codec.BlobForm.DELTA:
        return Stored(digest, len(content), form, base.digest, base.depth + 1, data)
    return Stored(digest, len(content), form, b"", 0, data)


def stream(wanted: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Hand the pieces on, the last only when all of them together have the promised hash."""
    whole = Naming()
    last = b""
    for piece in pieces:
        if last:
            yield last
        whole.add(piece)
        last = piece
    if whole.digest() != wanted:
        raise damaged(wanted, "its pieces do not have its hash together")
    if last:
        yield last


def missing(digest: bytes | str) -> BlobMissing:
    name = digest if isinstance(digest, str) else digest.hex()
    return BlobMissing(
        f"Blob {name} is not in the store.", hint="`takeback verify` names the effects that cannot be undone."
    )


def damaged(digest: bytes, why: str) -> BlobDamaged:
    return BlobDamaged(
        f"Blob {digest.hex()} cannot be read: {why}.",
        hint="`takeback verify --read-data` names everything that is affected.",
    )


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
            _check_pieces(database, stored, reader.pieces(stored))
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


def _check_pieces(database: Tables, stored: Stored, names: list[bytes]) -> None:
    """Each piece is read as a blob of its own; the list is covered by its seal."""
    for name in names:
        if rows.find_id(database.read, name) is None:
            raise damaged(stored.digest, f"its piece {name.hex()} is not in the store")
    if not (len(names) - 1) * SEGMENT < stored.size <= len(names) * SEGMENT:
        raise damaged(stored.digest, "its length does not fit its pieces")
