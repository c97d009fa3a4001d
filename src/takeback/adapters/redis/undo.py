"""Take an effect back: each key that is still as it left it becomes what it was, all in one step; many in parts."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from takeback.adapters.redis import marks
from takeback.adapters.redis.change import (
    AT_ONCE,
    ATTEMPTS,
    MadeChange,
    NotTaken,
    SeenKeys,
    Steps,
    bring_forward,
    build,
    change,
    clear,
    images_of,
    let_go,
    look,
    restore,
    transact,
)
from takeback.adapters.redis.connection import Command, RedisLink, good, trouble
from takeback.adapters.redis.dependents import changed_by, rebase
from takeback.adapters.redis.images import IMAGES, Image, by_key, keep, kept, receipt_of, same
from takeback.adapters.redis.keys import (
    LISTED,
    Digests,
    KnownKeys,
    RedisChoice,
    choose,
    digests,
    known,
    marked,
    of_outcome,
    size,
    text,
    told,
)
from takeback.adapters.redis.marks import RedisOp
from takeback.errors import Conflict, Drifted, Refused, StoreBusy, VerifyFailed
from takeback.model.change import OnConflict
from takeback.model.database import Database, resource_of
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Outcome, TargetOutcome
from takeback.storage.protocols import Blobs


class FoundKeys(NamedTuple):
    """What stands where; of the keys that are simply free there may be millions, so these are only counted."""

    free: int
    over: tuple[RedisChoice, ...]  # to be overwritten or removed
    already: frozenset[bytes]
    conflicts: tuple[RedisChoice, ...]

    def choices(self) -> tuple[RedisChoice, ...]:
        """Enough of them to show what would happen."""
        free = [RedisChoice(b"", Outcome.UNDONE, Image(b""), Image(b""))] if self.free else []
        return (*free, *self.over, *self.conflicts)


def pairs(blobs: Blobs, digests: Digests) -> Iterator[tuple[Image, Image]]:
    """The present and the left values; an unknown left value counts as absent."""
    after = kept(blobs, digests.after) if digests.after else None
    for before in kept(blobs, digests.before):
        yield before, next(after) if after is not None else Image(before.key)


def find_keys(
    link: RedisLink, blobs: Blobs, digests: Digests, now: int, on_conflict: OnConflict
) -> FoundKeys:
    free, over, already, conflicts = 0, list[RedisChoice](), list[bytes](), list[RedisChoice]()
    source = pairs(blobs, digests)
    while part := list(islice(source, AT_ONCE)):
        past = KnownKeys(None, *(by_key(side) for side in zip(*part, strict=True)))
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
            raise Refused(
                f"More than {marks.MOST} keys would have to be overwritten or removed in one step, which is refused.",
                hint="Nothing was changed. To flush again what an undo brought back, send FLUSHDB.",
            )
    return FoundKeys(free, tuple(over), frozenset(already), tuple(conflicts))


def put_back(
    link: RedisLink, blobs: Blobs, effect: Effect, of: Effect, digests: Digests, seen: FoundKeys, now: int
) -> dict[str, Any] | None:
    """The receipt; None if it was done before. The step checks `seen` again itself, and gives up if anything has
    changed."""
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


def _forward(link: RedisLink, effect: Effect, of: Effect, images: tuple[str, str], seen: FoundKeys) -> bool:
    over = {one.key: one for one in seen.over}
    free = tuple(key for key, one in over.items() if one.target.dump is not None)
    gone = tuple(key for key, one in over.items() if one.target.dump is None)
    fields = {"before": images[0], "after": images[1], "undoes": of.id}
    undone = "" if effect.change.undo.partial else of.id
    command = bring_forward(effect.id, free, gone, fields, undone, of.undoes if _has_undone(link, of) else "")
    for _ in range(ATTEMPTS):
        there = look(link, effect.id, (*free, *gone), (marks.op_key(of.id),))
        if there.op is not None:
            let_go(link)
            return False
        if any(over[image.key].current != image for image in there.images):
            let_go(link)
            raise _moved(of)
        with _ours():
            replies = transact(link, (command,))
        if replies is not None:
            if good(replies[0]) > 0:
                raise _moved(of)
            return True
    raise StoreBusy("Others keep changing the same keys.", hint="Try again later.")


def _has_undone(link: RedisLink, undo: Effect) -> bool:
    """Whether the mark of what it took back says so: that is in force again when the undo is taken back itself."""
    return bool(undo.undoes) and link.one("HGET", marks.op_key(undo.undoes), "undone_by") == undo.id.encode()


def _moved(of: Effect) -> Drifted:
    return Drifted(
        f"Keys of effect {short(of.id)} were written while its undo was being prepared.",
        hint="Nothing was changed. Look at it, then try again.",
    )


class RedisUndo(NamedTuple):
    link: RedisLink
    blobs: Blobs
    database: Database

    def outcomes(self, of: Effect, on_conflict: OnConflict) -> tuple[TargetOutcome, ...]:
        """What would happen. Changes nothing."""
        op = marked(self.link, self.blobs, of.id)
        if size(op, of) > marks.MOST:
            seen = find_keys(self.link, self.blobs, digests(op, of), _now(self.link), on_conflict)
            choices, conflicts = seen.choices(), seen.conflicts[:LISTED]
        else:
            past = known(self.link, self.blobs, of)
            current = tuple(images_of(self.link, tuple(past.before)))
            op, choices = past.op, choose(past, current, _now(self.link), on_conflict)
            conflicts = of_outcome(choices, Outcome.CONFLICT)
        by = changed_by(self.link, op.no if op else 0, [one.key for one in conflicts], of.id)
        return told(self.database, of.id, choices, by)

    def take_back(self, effect: Effect, of: Effect) -> dict[str, Any] | None:
        """As an effect of its own; its receipt. None: it was done before."""
        on_conflict = effect.change.undo.on_conflict
        partial = effect.change.undo.partial
        op = marked(self.link, self.blobs, of.id)
        if size(op, of) > marks.MOST:
            return self._take_much_back(effect, of, op, on_conflict, partial)
        past = known(self.link, self.blobs, of)
        chosen: tuple[RedisChoice, ...] = ()

        def decide(seen: SeenKeys) -> Steps | None:
            nonlocal chosen, past
            if seen.op is not None:
                return None
            if marks.find(self.link, of.id) != past.op:  # someone rebased it, or took it back
                past = known(self.link, self.blobs, of)
            _refuse_undone(of, past.op)
            choices = choose(past, seen.images, seen.now, on_conflict)
            conflicts = of_outcome(choices, Outcome.CONFLICT)
            self._refuse(of, conflicts, on_conflict, partial)
            chosen = tuple(of_outcome(choices, Outcome.UNDONE))
            fields, also = self._others(effect, of, past, conflicts, partial)
            return Steps(tuple(_puts_back(chosen)), tuple(one.key for one in chosen), fields, also)

        with _ours():
            watch = (marks.op_key(of.id),)
            made = change(self.link, self.blobs, effect.id, tuple(past.before), decide, watch)
        if made is None:
            return None
        _verify(made, chosen)
        return made.receipt()

    def _take_much_back(
        self, effect: Effect, of: Effect, op: RedisOp | None, on_conflict: OnConflict, partial: bool
    ) -> dict[str, Any] | None:
        if marks.find(self.link, effect.id) is not None:
            return None
        _refuse_undone(of, op)
        now = _now(self.link)
        found = digests(op, of)
        seen = find_keys(self.link, self.blobs, found, now, on_conflict)
        self._refuse(of, seen.conflicts, on_conflict, partial)
        return put_back(self.link, self.blobs, effect, of, found, seen, now)

    def _refuse(
        self, of: Effect, conflicts: Sequence[RedisChoice], on_conflict: OnConflict, partial: bool
    ) -> None:
        if on_conflict.skips:
            if bool(conflicts) != partial:
                raise Drifted(
                    f"Keys of effect {short(of.id)} were changed while its undo was being prepared.",
                    hint="Nothing was changed. Look at it, then try again.",
                )
        elif conflicts:
            raise _conflict(self.database, of, conflicts)

    def _others(
        self, effect: Effect, of: Effect, past: KnownKeys, conflicts: Sequence[RedisChoice], partial: bool
    ) -> tuple[dict[str, str], tuple[Command, ...]]:
        """What else the marks must say from now on."""
        fields = {"undoes": of.id}
        also: list[Command] = []
        if partial:
            rebased = rebase(self.link, self.blobs, past, conflicts)
            if rebased:
                fields["rebased"] = json.dumps([list(one) for one in rebased])
                also += [("HSET", marks.op_key(one.effect), "before", one.to) for one in rebased]
        else:
            also.append(("HSET", marks.op_key(of.id), "undone_by", effect.id))
        also += self._in_force_again(of, past)
        return fields, tuple(also)

    def _in_force_again(self, of: Effect, past: KnownKeys) -> list[Command]:
        """If what is taken back is itself an undo: what it had undone holds again."""
        also: list[Command] = []
        if of.undoes:
            self.link.one("WATCH", marks.op_key(of.undoes))
            if _has_undone(self.link, of):
                also.append(("HDEL", marks.op_key(of.undoes), "undone_by"))
        for effect, old, new in json.loads(past.op.rebased) if past.op and past.op.rebased else ():
            self.link.one("WATCH", marks.op_key(effect))
            if self.link.one("HGET", marks.op_key(effect), "before") == new.encode():
                also.append(("HSET", marks.op_key(effect), "before", old))
        return also

    def give_up(self, effect: Effect) -> None:
        """Take back what was just done, and every trace of it; `Conflict` if someone changed it since."""
        op = marked(self.link, self.blobs, effect.id)
        if size(op, effect) > marks.MOST:
            raise Refused(
                f"Effect {short(effect.id)} touched too many keys to be given up at once.",
                hint="Nothing was changed. Undo it.",
            )
        for _ in range(ATTEMPTS):
            past = known(self.link, self.blobs, effect)
            if past.op is None:
                return
            keys = tuple(past.before)
            seen = look(self.link, effect.id, keys)
            if seen.op is None:
                let_go(self.link)
                return
            choices = choose(past, seen.images, seen.now, OnConflict.REFUSE)
            if conflicts := of_outcome(choices, Outcome.CONFLICT):
                let_go(self.link)
                raise _conflict(self.database, effect, conflicts)
            commands = [
                *_puts_back(of_outcome(choices, Outcome.UNDONE)),
                *marks.unmark(effect.id, past.op.no, keys),
                *self._in_force_again(effect, past),
            ]
            with _ours():
                if transact(self.link, commands) is not None:
                    return
        raise StoreBusy("Others keep changing the same keys.", hint="Try again later.")


@contextmanager
def _ours() -> Iterator[None]:
    """The commands are our own: what the server says to them means something for all of it."""
    try:
        yield
    except NotTaken as refusal:
        raise trouble(refusal.error) from None


def _refuse_undone(of: Effect, op: RedisOp | None) -> None:
    if op is not None and op.undone_by:
        raise Refused(
            f"Effect {short(of.id)} was taken back already, by {short(op.undone_by)}.",
            hint="Nothing was changed.",
        )


def _now(link: RedisLink) -> int:
    return marks.milliseconds(link.one("TIME"))


def _puts_back(choices: Iterable[RedisChoice]) -> Iterator[Command]:
    return (restore(choice.target) for choice in choices)


def _verify(made: MadeChange, chosen: Sequence[RedisChoice]) -> None:
    for one, image in zip(chosen, made.left.images, strict=True):
        if not same(image.at(made.left.now), one.target.at(made.left.now)):
            raise VerifyFailed(
                f"The key {text(one.key)!r} does not hold the restored value.",
                hint="It was rolled back. The server may not accept values that another version of it wrote.",
            )


def _conflict(database: Database, of: Effect, conflicts: Sequence[RedisChoice]) -> Conflict:
    names = ", ".join(repr(text(one.key)) for one in conflicts[:5])
    more = f" and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
    return Conflict(
        f"Modified after effect {short(of.id)}, so undo would overwrite those changes: {names}{more}.",
        hint="Nothing was changed. Skip or force, or undo the later effects first.",
        resources=tuple(resource_of(database, text(one.key)) for one in conflicts[:100]),
    )
