"""Keys of Redis and Valkey as effects: images in the store, a mark in the server that says whether it happened."""

from collections.abc import Iterator, Sequence
from typing import Any

from takeback.adapters.database import (
    Cover,
    DatabaseAdapter,
    DatabaseSession,
    GiveUp,
    Keyring,
    RowChange,
    asked_for,
    database_of,
    nothing_to_give_up,
    sighted,
)
from takeback.adapters.protocol import TRAITS, Assessment, Receipt, demand_remedy
from takeback.adapters.redis import marks
from takeback.adapters.redis.change import images_of, send, transact
from takeback.adapters.redis.connection import Command, RedisLink, good
from takeback.adapters.redis.dependents import standing_on
from takeback.adapters.redis.images import IMAGES, anchor, keep, receipt_of, same
from takeback.adapters.redis.keys import digests, known, marked, row, touched
from takeback.adapters.redis.marks import RedisOp
from takeback.adapters.redis.server import EVERY_KEY, RedisLinks, cover, refuse_unfit
from takeback.adapters.redis.session import RedisSession
from takeback.adapters.redis.undo import RedisUndo, pairs
from takeback.errors import Misuse
from takeback.model.change import UNDO, Change
from takeback.model.database import Database
from takeback.model.effect import Effect
from takeback.model.plan import Sighting, TargetOutcome
from takeback.model.remedy import Offer, Remedy, Strategy
from takeback.storage.protocols import Blobs

_WHY = "the values of the keys are in the store, and a mark in the server says whether it happened"
_BARE = (
    "Every mark of takeback was removed: what was made here before cannot be taken back any more.",
    "Nothing is installed in a Redis server: what goes through takeback from now on is covered again.",
)


class RedisAdapter(DatabaseAdapter):
    name = "redis"
    traits = TRAITS["redis"]

    def __init__(self, blobs: Blobs, keyring: Keyring) -> None:
        self._blobs = blobs
        self._links = RedisLinks(keyring)
        self._written: set[str] = set()  # effects made here, whose images are on their way into the journal

    # As every adapter.

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        database = asked_for(change, of)
        outcomes: tuple[TargetOutcome, ...] = ()
        if change.kind == UNDO:
            with self._links.to(database) as link:
                undo = RedisUndo(link, self._blobs, database)
                outcomes = undo.outcomes(demand_remedy(of), change.undo.on_conflict)
        return Assessment((change.resource,), (Offer(Strategy.SNAPSHOT, why=_WHY),), outcomes=outcomes)

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        return super().capture(effect, offer)._replace(blobs=(anchor(self._blobs, effect.id),))

    def apply(self, effect: Effect) -> Receipt:
        if effect.of is None:
            raise Misuse("The commands of this effect are not kept, so it cannot be made again.")
        database = database_of(effect)
        with self._links.to(database) as link:
            receipt = RedisUndo(link, self._blobs, database).take_back(effect, effect.of)
        if receipt is None:
            return Receipt()
        self._written.add(effect.id)
        return Receipt(receipt)

    def verify(self, effect: Effect) -> Sighting:
        """The mark decides. If there is none, the fence keeps a slow process from making one later."""
        with self._links.to(database_of(effect)) as link:
            op = marks.find(link, effect.id) or _fenced(link, effect.id)
            there = op is not None and not op.undone_by
            receipt = self._receipt(link, effect) if there and effect.id not in self._written else {}
        return sighted(effect, receipt if there else None)

    def _receipt(self, link: RedisLink, effect: Effect) -> dict[str, Any]:
        """The receipt of an effect whose process died, with the images it left, recorded while they can still be
        read."""
        if effect.receipt:
            return effect.receipt
        past = known(link, self._blobs, effect)
        current = tuple(images_of(link, tuple(past.before))) if past.after is None else ()
        left = past.left(current)
        if past.op is None or left is None:
            return {}
        after = past.op.after
        if not after:
            after = keep(self._blobs, effect.id, left.values())
            self._blobs.sync()
            link.one("HSET", marks.op_key(effect.id), "after", after)
        return receipt_of((one, left[key]) for key, one in past.before.items()) | {
            IMAGES: [past.op.before, after]
        }

    def undo(self, effect: Effect) -> None:
        database = database_of(effect)
        with self._links.to(database) as link:
            RedisUndo(link, self._blobs, database).give_up(effect)
        self._written.discard(effect.id)

    def tidy(self, effect: Effect) -> None:
        self._written.discard(effect.id)

    def release(self, effect: Effect) -> None:
        with self._links.to(database_of(effect)) as link:
            no, keys = touched(link, self._blobs, effect)
            if no:
                listed = keys if len(keys) <= marks.MOST else ()  # very many are not in the index
                send(link, marks.unmark(effect.id, no, listed))

    # As an adapter for databases.

    def connect(self, database: Database) -> DatabaseSession:
        with self._links.to(database) as link:
            refuse_unfit(link)
        return RedisSession(database, self._links, self._blobs, self._written)

    def standing_on(self, effect: Effect) -> Sequence[str]:
        with self._links.to(database_of(effect)) as link:
            no, keys = touched(link, self._blobs, effect)
            return standing_on(link, self._blobs, no, keys, effect.id)

    def rows(self, effect: Effect) -> Iterator[RowChange]:
        with self._links.to(database_of(effect)) as link:
            found = digests(marked(link, self._blobs, effect.id), effect)
            if found.before and not found.after:
                self._receipt(link, effect)
                found = digests(marked(link, self._blobs, effect.id), effect)
        if found.before and found.after:
            yield from (row(*pair) for pair in pairs(self._blobs, found) if not same(*pair))

    def cover(self, database: Database) -> Cover:
        with self._links.to(database) as link:
            return cover(link)

    def protect(self, database: Database, tables: Sequence[str]) -> Cover:
        """There is nothing to install."""
        _refuse_named(tables)
        with self._links.to(database) as link:
            refuse_unfit(link)
            return cover(link)

    def unprotect(
        self, database: Database, tables: Sequence[str], give_up: GiveUp = nothing_to_give_up
    ) -> Cover:
        """Every mark goes, and with it the power to undo what was made there."""
        _refuse_named(tables)
        with self._links.to(database) as link:
            give_up()
            _remove_marks(link)
        return Cover("", (), (), _BARE)

    def lost_by_unprotect(
        self, database: Database, tables: Sequence[str], effects: Sequence[Effect]
    ) -> Sequence[Effect]:
        _refuse_named(tables)
        with self._links.to(database) as link:
            known = {one.decode() for one in link.one("ZRANGE", marks.OPS, 0, -1)}
        return [one for one in effects if one.id in known]

    def close(self) -> None:
        self._links.close()


def _refuse_named(tables: Sequence[str]) -> None:
    if tables and tuple(tables) != (EVERY_KEY,):
        raise Misuse(
            "Redis has no tables: every key of the database is covered, or none.",
            hint="Name only the address.",
        )


def _fenced(link: RedisLink, effect: str) -> RedisOp | None:
    """Set a fence, so that a process that has read the keys but not written yet cannot write any more; read the mark
    again in the same step."""
    fence: Command = ("SET", marks.fence_key(effect), "1", "EX", marks.FENCED_FOR)
    replies = transact(link, (fence, ("HGETALL", marks.op_key(effect))))
    assert replies is not None  # nothing was watched
    return marks.to_op(good(replies[1]))


def _remove_marks(link: RedisLink) -> None:
    while found := link.one("ZRANGE", marks.OPS, 0, 499):
        good(link.one("DEL", *(marks.OP + one for one in found)))
        link.one("ZREM", marks.OPS, *found)
    link.one("DEL", marks.OPS, marks.TOUCHED, marks.WIDE, marks.COUNT, marks.ID)
    link.identity = None
