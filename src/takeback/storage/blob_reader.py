"""From a name to the bytes: follows bases, checks hashes, and says which blob is to blame."""

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterator

from takeback.errors import BlobDamaged, BlobMissing
from takeback.model.naming import Naming
from takeback.storage import codec, disk
from takeback.storage.blob_rows import LOST, Stored, is_recipe
from takeback.storage.packs import EntryDamaged
from takeback.storage.tables import Shelf

REMEMBERED = 16 << 20  # bytes of content held, so that the base of the next version is at hand
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
        if not stored.base:
            return self._whole(stored)
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

    def _whole(self, stored: Stored) -> bytes:
        """Of one that stands on no other."""
        try:
            content = codec.decode(stored.form, self.encoded(stored), stored.size)
        except codec.Undecodable as problem:
            raise damaged(stored.digest, str(problem)) from problem
        if codec.name(content) != stored.digest:
            raise damaged(stored.digest, "its bytes do not have its hash")
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
        while self._weight > REMEMBERED:
            self._weight -= len(self._recent.popitem(last=False)[1])

    def remembers(self, digest: bytes) -> bool:
        return digest in self._recent

    def forget(self) -> None:
        self._recent.clear()
        self._weight = 0


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
