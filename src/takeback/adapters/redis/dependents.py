"""Effects that came later and touched the same keys."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from takeback.adapters.redis import marks
from takeback.adapters.redis.connection import RedisLink
from takeback.adapters.redis.images import Image, anchor, keep, kept, same
from takeback.adapters.redis.keys import KnownKeys, RedisChoice
from takeback.adapters.redis.marks import OPS, WIDE
from takeback.errors import BlobMissing
from takeback.storage.protocols import Blobs


class Rebased(NamedTuple):
    """A later effect whose earlier state is another one now, because the effect below it was taken back around it."""

    effect: str
    was: str
    to: str


def standing_on(link: RedisLink, blobs: Blobs, no: int, keys: Sequence[bytes], itself: str) -> list[str]:
    """Newest first."""
    mine = set(keys)
    is_wide = len(keys) > marks.MOST
    found = {
        one
        for one in marks.later_in(link, OPS if is_wide else WIDE, no)
        if any(image.key in mine for image in _found_by(link, blobs, one[1]))
    }
    if not is_wide:
        found.update(*marks.later(link, no, keys).values())
    return [effect for _, effect in sorted(found, reverse=True) if effect != itself]


def _found_by(link: RedisLink, blobs: Blobs, effect: str) -> Iterator[Image]:
    """Nothing for an effect of another store."""
    op = marks.find(link, effect)
    if op is None or not op.before:
        return
    try:
        yield from kept(blobs, op.before)
    except BlobMissing:
        return


def changed_by(link: RedisLink, no: int, keys: Sequence[bytes], itself: str) -> dict[bytes, str]:
    """The last effect still in force that touched each of these keys after that place."""

    @cache
    def holds(effect: str) -> bool:
        op = marks.find(link, effect)
        return op is not None and not op.undone_by

    wide = marks.later_in(link, WIDE, no) if keys else []
    found: dict[bytes, str] = {}
    touched = marks.later(link, no, keys)
    for key in keys:
        for _, effect in sorted([*touched.get(key, ()), *wide], reverse=True):
            if effect != itself and holds(effect):
                found[key] = effect
                break
    return found


def rebase(link: RedisLink, blobs: Blobs, past: KnownKeys, conflicts: Sequence[RedisChoice]) -> list[Rebased]:
    """A key went A → B by the effect that is taken back, and B → C by a later one. It stays C; but an undo of the later
    one must then restore A, or it would bring the undone value B back."""
    no = past.op.no if past.op else 0
    wanted: dict[str, dict[bytes, Image]] = {}
    touched = marks.later(link, no, [one.key for one in conflicts])
    wide = marks.later_in(link, WIDE, no) if conflicts else []
    for choice in conflicts:
        if choice.left is None:
            continue
        for _, effect in sorted([*touched.get(choice.key, ()), *wide]):
            link.one("WATCH", marks.op_key(effect))
            op = marks.find(link, effect)
            found = next((one for one in _found_by(link, blobs, effect) if one.key == choice.key), None)
            if op is None or op.undone_by or found is None:
                continue
            if same(found, choice.left if past.after is None else past.after[choice.key]):
                wanted.setdefault(effect, {})[choice.key] = past.before[choice.key]
            break
    return [_rebased(link, blobs, effect, images) for effect, images in wanted.items()]


def _rebased(link: RedisLink, blobs: Blobs, effect: str, images: dict[bytes, Image]) -> Rebased:
    op = marks.find(link, effect)
    assert op is not None
    changed: Iterable[Image] = (images.get(one.key, one) for one in kept(blobs, op.before))
    to = keep(blobs, effect, changed)
    anchor(blobs, effect, op.before, to)
    return Rebased(effect, op.before, to)
