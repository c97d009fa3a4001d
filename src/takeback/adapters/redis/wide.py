"""Take back an effect on very many keys: looked at and built in parts, put in place in one step."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from takeback.adapters.redis import marks
from takeback.adapters.redis.aside import bring_forward, build, clear
from takeback.adapters.redis.changing import ATTEMPTS, NotTaken, images_of, let_go, look, transact
from takeback.adapters.redis.choosing import Choice, choose
from takeback.adapters.redis.counting import receipt_of
from takeback.adapters.redis.images import Image
from takeback.adapters.redis.keeping import IMAGES, keep, kept
from takeback.adapters.redis.known import Known
from takeback.adapters.redis.link import Link, good, trouble
from takeback.errors import Drifted, Refused, StoreBusy
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import OnConflict, Outcome
from takeback.storage.protocols import Blobs

AT_ONCE = 500


class Digests(NamedTuple):
    before: str
    after: str


class Found(NamedTuple):
    """What stands where; of the keys that are simply free there may be millions, so these are only counted."""

    free: int
    over: tuple[Choice, ...]  # to be overwritten or removed
    already: frozenset[bytes]
    conflicts: tuple[Choice, ...]

    def choices(self) -> tuple[Choice, ...]:
        """Enough of them to tell what would happen."""
        free = [Choice(b"", Outcome.UNDONE, Image(b""), Image(b""))] if self.free else []
        return (*free, *self.over, *self.conflicts)


def pairs(blobs: Blobs, digests: Digests) -> Iterator[tuple[Image, Image]]:
    """What was found and what was left; where that is not known, as if nothing had been left."""
    after = kept(blobs, digests.after) if digests.after else None
    for before in kept(blobs, digests.before):
        yield before, next(after) if after is not None else Image(before.key)


def found(link: Link, blobs: Blobs, digests: Digests, now: int, on_conflict: OnConflict) -> Found:
    free, over, already, conflicts = 0, list[Choice](), list[bytes](), list[Choice]()
    source = pairs(blobs, digests)
    while part := list(islice(source, AT_ONCE)):
        past = Known(None, {one.key: one for one, _ in part}, {one.key: one for _, one in part})
        for choice in choose(past, tuple(images_of(link, tuple(past.before))), now, on_conflict):
            if choice.outcome is Outcome.ALREADY:
                already.append(choice.key)
            elif choice.outcome is Outcome.CONFLICT:
                conflicts.append(choice)
            elif choice.current.dump is None:
                free += 1
            else:
                over.append(choice)
                if len(over) > marks.MOST:
                    raise _too_many()
    return Found(free, tuple(over), frozenset(already), tuple(conflicts))


def _too_many() -> Refused:
    return Refused(
        f"More than {marks.MOST} keys would have to be overwritten or removed in one step, which is refused.",
        hint="Nothing was changed. To flush again what an undo brought back, send FLUSHDB.",
    )


def put_back(
    link: Link, blobs: Blobs, effect: Effect, of: Effect, digests: Digests, seen: Found, now: int
) -> dict[str, Any] | None:
    """The receipt; None if it was done before. `seen` is looked at again in the step itself: whatever is in the way by
    then makes it be given up."""
    left_out = seen.already | {one.key for one in seen.conflicts}
    over = {one.key: one for one in seen.over}

    def targets() -> Iterator[Image]:
        return (one.at(now) for one in kept(blobs, digests.before) if one.key not in left_out)

    before = keep(
        blobs, effect.id, (over[one.key].current if one.key in over else Image(one.key) for one in targets())
    )
    after = keep(blobs, effect.id, targets())
    blobs.sync()
    try:
        clear(link, effect.id)
        build(link, effect.id, targets())
        made = _forward(link, effect, of, (before, after), seen)
    finally:
        if link.usable:
            clear(link, effect.id)
    if not made:
        return None
    return receipt_of(pairs(blobs, Digests(before, after))) | {IMAGES: [before, after]}


def _forward(link: Link, effect: Effect, of: Effect, images: tuple[str, str], seen: Found) -> bool:
    free = tuple(one.key for one in seen.over if one.target.dump is not None)
    gone = tuple(one.key for one in seen.over if one.target.dump is None)
    fields = {"before": images[0], "after": images[1], "undoes": of.id}
    partial = bool(effect.change.args.get("partial"))
    command = bring_forward(effect.id, free, gone, fields, "" if partial else of.id, _undone_by(link, of))
    for _ in range(ATTEMPTS):
        there = look(link, effect.id, (*free, *gone), (marks.op_key(of.id),))
        if there.op is not None:
            let_go(link)
            return False
        if any(
            one.current != image
            for one, image in zip(_ordered(seen.over, free, gone), there.images, strict=True)
        ):
            let_go(link)
            raise _moved(of)
        try:
            replies = transact(link, (command,))
        except NotTaken as refusal:
            raise trouble(refusal.error) from None
        if replies is not None:
            if good(replies[0]) > 0:
                raise _moved(of)
            return True
    raise StoreBusy("Others keep changing the same keys.", hint="Try again later.")


def _undone_by(link: Link, of: Effect) -> str:
    """If what is taken back is itself an undo, the effect that is in force again."""
    if of.undoes and link.one("HGET", marks.op_key(of.undoes), "undone_by") == of.id.encode():
        return of.undoes
    return ""


def _ordered(over: Sequence[Choice], *keys: Iterable[bytes]) -> Iterator[Choice]:
    by_key = {one.key: one for one in over}
    return (by_key[key] for key in chain(*keys))


def _moved(of: Effect) -> Drifted:
    return Drifted(
        f"Keys of effect {short(of.id)} were written while its undo was being prepared.",
        hint="Nothing was changed. Look at it, then try again.",
    )
