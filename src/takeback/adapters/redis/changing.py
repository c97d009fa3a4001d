"""One change of some keys: watched, looked at, kept, then made with its mark; again if someone came between."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.redis import marks
from takeback.adapters.redis.counting import receipt_of
from takeback.adapters.redis.images import Image, seen
from takeback.adapters.redis.keeping import IMAGES, keep
from takeback.adapters.redis.link import Command, Link, good
from takeback.adapters.redis.marks import Left, Op
from takeback.errors import InDoubt, Refused, ResourceUnreachable, StoreBusy
from takeback.storage.protocols import Blobs

ATTEMPTS = 50
AT_ONCE = 500  # keys in one round trip


class Seen(NamedTuple):
    """What is there now; nobody can change it before we do without our change being given up."""

    images: tuple[Image, ...]
    now: int  # of the server
    op: Op | None  # the mark of this effect: it was made before
    fenced: bool  # someone found that it had not happened, and said so


class Steps(NamedTuple):
    """What to do, now that it is known what is there."""

    commands: tuple[Command, ...]
    keys: tuple[bytes, ...] | None = None  # that it touches; None: all that were looked at
    fields: dict[str, str] = {}  # more for the mark
    also: tuple[Command, ...] = ()  # on the marks of others
    wide: bool = False  # it touches more keys than those


class Made(NamedTuple):
    before: tuple[Image, ...]
    left: Left
    replies: tuple[Any, ...]  # an error of the server stands where its reply would be
    images: tuple[str, str]  # digests

    def receipt(self) -> dict[str, Any]:
        pairs = (
            (one.at(self.left.now), other) for one, other in zip(self.before, self.left.images, strict=True)
        )
        return receipt_of(pairs) | {IMAGES: list(self.images)}

    @property
    def errors(self) -> tuple[Exception, ...]:
        return tuple(reply for reply in self.replies if isinstance(reply, Exception))


def change(
    link: Link,
    blobs: Blobs,
    effect: str,
    keys: Sequence[bytes],
    decide: Callable[[Seen], Steps | None],
    watch: Iterable[bytes] = (),
) -> Made | None:
    """None if `decide` says so. What was there is durable in the store before anything is changed."""
    for _ in range(ATTEMPTS):
        found = look(link, effect, keys, watch)
        try:
            steps = decide(found)
        except BaseException:
            let_go(link)
            raise
        if steps is None:
            let_go(link)
            return None
        touched = keys if steps.keys is None else steps.keys
        chosen = found.images if steps.keys is None else _of(touched, found.images)
        before = keep(blobs, effect, chosen)
        blobs.sync()
        replies = _executed(link, effect, touched, before, steps)
        if replies is not None:
            left = marks.left(touched, good(replies[len(steps.commands) + 1]))
            after = keep(blobs, effect, left.images)
            return Made(chosen, left, tuple(replies[1 : len(steps.commands) + 1]), (before, after))
    raise StoreBusy(
        f"Others changed the same keys {ATTEMPTS} times while this was being prepared.",
        hint="Nothing was changed. Try again when there is less traffic on these keys.",
    )


def _of(keys: Iterable[bytes], images: Iterable[Image]) -> tuple[Image, ...]:
    found = {image.key: image for image in images}
    return tuple(found[key] for key in keys)


def look(link: Link, effect: str, keys: Sequence[bytes], watch: Iterable[bytes] = ()) -> Seen:
    """In one round trip, unless there are very many keys."""
    fence, op = marks.fence_key(effect), marks.op_key(effect)
    first = keys[:AT_ONCE]
    _, fenced, mark, time, *rest = (
        good(reply)
        for reply in link.ask(
            ("WATCH", fence, op, *watch, *keys),
            ("EXISTS", fence),
            ("HGETALL", op),
            ("TIME",),
            *_asking(first),
        )
    )
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    images = (*_answered(first, rest), *images_of(link, keys[AT_ONCE:]))
    return Seen(images, now, marks.to_op(mark), bool(fenced))


def _asking(keys: Sequence[bytes]) -> Iterator[Command]:
    for key in keys:
        yield ("DUMP", key)
        yield ("PEXPIRETIME", key)


def _answered(keys: Sequence[bytes], replies: Sequence[Any]) -> Iterator[Image]:
    for key, dump, expires in zip(keys, replies[::2], replies[1::2], strict=True):
        yield seen(key, good(dump), good(expires))


def images_of(link: Link, keys: Sequence[bytes]) -> Iterator[Image]:
    for start in range(0, len(keys), AT_ONCE):
        chunk = keys[start : start + AT_ONCE]
        yield from _answered(chunk, link.ask(*_asking(chunk)))


def refuse_fenced(found: Seen) -> None:
    if found.fenced:
        raise Refused(
            "Someone has found that this did not happen, and gone on from there.",
            hint="Nothing was changed. This process was away for too long; do it again as a new effect.",
        )


def _executed(link: Link, effect: str, keys: Sequence[bytes], before: str, steps: Steps) -> list[Any] | None:
    return transact(
        link,
        (
            marks.mark(effect, {"before": before} | steps.fields),
            *steps.commands,
            marks.look(effect, keys, steps.wide),
            *steps.also,
        ),
    )


def transact(link: Link, commands: Sequence[Command]) -> list[Any] | None:
    """The replies, or None if someone came between."""
    try:
        _, *queued, done = link.ask(("MULTI",), *commands, ("EXEC",))
    except ResourceUnreachable as error:
        raise InDoubt(
            "The connection to Redis was lost while the change was being made.",
            hint="Whether it happened is found by asking the server again.",
        ) from error
    if not isinstance(done, Exception):
        return done
    for place, reply in enumerate(queued):
        if isinstance(reply, Exception):
            raise NotTaken(reply, place - 1)
    raise NotTaken(done, -1)


class NotTaken(Exception):
    """The server did not even queue a command; nothing was carried out. `place` is that of the command, if it was one
    of the caller's."""

    def __init__(self, error: Exception, place: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.place = place


def let_go(link: Link) -> None:
    if link.usable:
        link.one("UNWATCH")
