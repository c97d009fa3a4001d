"""What an effect found and left, put together from its mark in the server, its receipt and the blobs."""

from typing import NamedTuple

from takeback.adapters.redis import marks
from takeback.adapters.redis.aside import drain
from takeback.adapters.redis.images import Image
from takeback.adapters.redis.keeping import IMAGES, kept
from takeback.adapters.redis.link import Link
from takeback.adapters.redis.marks import Op
from takeback.model.effect import Effect
from takeback.storage.protocols import Blobs


class Known(NamedTuple):
    op: Op | None  # None: the server does not know it (any more)
    before: dict[bytes, Image]
    after: dict[bytes, Image] | None  # None: not known, for it was killed before that was written down

    def left(self, current: tuple[Image, ...]) -> dict[bytes, Image] | None:
        """What the effect left. Where that was not written down, the fingerprint in the mark tells whether all of it
        is there still."""
        if self.after is not None or self.op is None:
            return self.after
        return {image.key: image for image in current} if marks.print_of(current) == self.op.print else None


def marked(link: Link, blobs: Blobs, effect: str) -> Op | None:
    """Its mark; what was put aside for it, and not kept before its process died, is kept first."""
    op = marks.find(link, effect)
    if op is not None and op.held:
        op, _ = drain(link, blobs, effect, op)
    return op


def known(link: Link, blobs: Blobs, effect: Effect) -> Known:
    op = marked(link, blobs, effect.id)
    before, after = digests(op, effect)
    if not before:
        return Known(op, {}, {})
    return Known(op, _by_key(blobs, before), _by_key(blobs, after) if after else None)


def _by_key(blobs: Blobs, digest: str) -> dict[bytes, Image]:
    return {image.key: image for image in kept(blobs, digest)}


def digests(op: Op | None, effect: Effect) -> tuple[str, str]:
    """Of what it found and of what it left; "" for what is not known."""
    told: list[str] = effect.receipt.get(IMAGES) or ["", ""]
    return (op.before if op else "") or told[0], (op.after if op else "") or told[1]


def size(op: Op | None, effect: Effect) -> int:
    """How many keys it touched, at most."""
    tables: dict[str, dict[str, int]] = effect.receipt.get("tables", {})
    return max(op.many if op else 0, sum(sum(each.values()) for each in tables.values()))


def touched(link: Link, blobs: Blobs, effect: Effect) -> tuple[int, tuple[bytes, ...]]:
    """Its place in the order of the server, and its keys."""
    op = marked(link, blobs, effect.id)
    before, _ = digests(op, effect)
    keys = tuple(image.key for image in kept(blobs, before)) if before else ()
    return (op.no if op else 0), keys
