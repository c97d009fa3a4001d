"""Images in the store. Which they are is known only after the intent is written, so the remedy lists one small blob,
the anchor, and they become what that one refers to."""

from collections.abc import Iterable, Iterator

from takeback.adapters.redis.images import Image, packed, unpacked
from takeback.storage.protocols import Blobs

IMAGES = "images"  # in a receipt: digests of what was found and of what was left


def anchor(blobs: Blobs, effect: str, *images: str) -> str:
    return blobs.put(f"what the Redis keys of effect {effect} were\n".encode(), refs=images)


def keep(blobs: Blobs, effect: str, images: Iterable[Image]) -> str:
    digest = blobs.put(packed(images))
    anchor(blobs, effect, digest)
    return digest


def kept(blobs: Blobs, digest: str) -> Iterator[Image]:
    return unpacked(blobs.read(digest))
