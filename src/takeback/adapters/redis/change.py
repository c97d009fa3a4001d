"""One change of some keys: watched, kept, made with its mark. Very many are put aside, not watched one by one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.redis import marks
from takeback.adapters.redis.connection import Command, RedisLink, good
from takeback.adapters.redis.images import (
    IMAGES,
    NEVER,
    Image,
    by_key,
    counted,
    keep,
    kept,
    receipt_of,
    seen_each,
)
from takeback.adapters.redis.marks import OWN, LeftKeys, RedisOp
from takeback.errors import InDoubt, ResourceUnreachable, StoreBusy
from takeback.storage.protocols import Blobs

ATTEMPTS = 50


class SeenKeys(NamedTuple):
    """The present values; if someone changes them before we do, our change is abandoned."""

    images: tuple[Image, ...]
    now: int  # of the server
    op: RedisOp | None  # the mark of this effect: it was made before
    fenced: bool  # someone found that it had not happened, and said so


class Steps(NamedTuple):
    """The commands to send, now that the present values are known."""

    commands: tuple[Command, ...]
    keys: tuple[bytes, ...] | None = None  # that it touches; None: all that were looked at
    fields: dict[str, str] = {}  # more for the mark
    also: tuple[Command, ...] = ()  # on the marks of others
    wide: bool = False  # it touches more keys than those


class MadeChange(NamedTuple):
    before: tuple[Image, ...]
    left: LeftKeys
    replies: tuple[Any, ...]  # an error of the server stands where its reply would be
    images: tuple[str, str]  # digests

    def receipt(self) -> dict[str, Any]:
        pairs = (
            (one.at(self.left.now), other) for one, other in zip(self.before, self.left.images, strict=True)
        )
        return receipt_of(pairs) | {IMAGES: list(self.images)}


def change(
    link: RedisLink,
    blobs: Blobs,
    effect: str,
    keys: Sequence[bytes],
    decide: Callable[[SeenKeys], Steps | None],
    watch: Iterable[bytes] = (),
) -> MadeChange | None:
    """None if `decide` says so. The earlier values are durable in the store before anything is changed."""
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
        touched, chosen = keys, found.images
        if steps.keys is not None:
            images = by_key(chosen)
            touched, chosen = steps.keys, tuple(images[key] for key in steps.keys)
        before = keep(blobs, effect, chosen)
        blobs.sync()
        mark = marks.mark(effect, {"before": before} | steps.fields)
        after_them = marks.look(effect, touched, steps.wide)
        replies = transact(link, (mark, *steps.commands, after_them, *steps.also))
        if replies is not None:
            left = marks.left(touched, good(replies[len(steps.commands) + 1]))
            after = keep(blobs, effect, left.images)
            return MadeChange(chosen, left, tuple(replies[1 : len(steps.commands) + 1]), (before, after))
    raise StoreBusy(
        f"Others changed the same keys {ATTEMPTS} times while this was being prepared.",
        hint="Nothing was changed. Try again when there is less traffic on these keys.",
    )


def look(link: RedisLink, effect: str, keys: Sequence[bytes], watch: Iterable[bytes] = ()) -> SeenKeys:
    """In one round trip, unless there are very many keys."""
    fence, op = marks.fence_key(effect), marks.op_key(effect)
    first = keys[:AT_ONCE]
    watching: Command = ("WATCH", fence, op, *watch, *keys)
    replies = link.ask(watching, ("EXISTS", fence), ("HGETALL", op), ("TIME",), *_asking(first))
    _, fenced, mark, time, *rest = map(good, replies)
    images = (*seen_each(first, rest), *images_of(link, keys[AT_ONCE:]))
    return SeenKeys(images, marks.milliseconds(time), marks.to_op(mark), bool(fenced))


def _asking(keys: Sequence[bytes]) -> Iterator[Command]:
    for key in keys:
        yield ("DUMP", key)
        yield ("PEXPIRETIME", key)


def images_of(link: RedisLink, keys: Sequence[bytes]) -> Iterator[Image]:
    for start in range(0, len(keys), AT_ONCE):
        chunk = keys[start : start + AT_ONCE]
        yield from seen_each(chunk, list(map(good, link.ask(*_asking(chunk)))))


def transact(link: RedisLink, commands: Sequence[Command]) -> list[Any] | None:
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


def let_go(link: RedisLink) -> None:
    if link.usable:
        link.one("UNWATCH")


# Very many keys at once. They are not watched one by one, which takes the server time with the square of
# their number: they are put aside under other names in one step, as they are, and copied into the store from
# there. On the way back they are built under such names first, and get their own in one step.


HELD = b"takeback:held:"
KEPT = "kept"  # in the mark, instead of a number: the held commands are in the store, and no longer needed
AT_ONCE = 500

# A key may be seen twice by SCAN, and one that has expired cannot be renamed: neither is an error.
ASIDE = """
local cursor, count = '0', 0
repeat
  local found = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    if string.sub(key, 1, #ARGV[2]) ~= ARGV[2] then
      if not redis.pcall('RENAME', key, ARGV[1] .. key).err then
        count = count + 1
      end
    end
  end
until cursor == '0'
redis.call('HSET', KEYS[1], 'held', count)
return count
"""

# All of it with its mark, or nothing and how many keys are in the way. KEYS: count, all marks, wide ones, the mark,
# that of what is taken back, and that of what is in force again. ARGV: prefix, effect, what is taken back (or ''), what
# is in force again (or ''), how many fields for the mark, these, how many keys may be overwritten, these, and those
# that must go. The mark comes first: a server without memory refuses it, and with it all the rest.
FORWARD = """
local prefix, at = ARGV[1], 5
local fields, free, odd, ready, cursor = {}, {}, 0, {}, '0'
for i = at + 1, at + tonumber(ARGV[at]) do fields[#fields + 1] = ARGV[i] end
at = at + 1 + tonumber(ARGV[at])
for i = at + 1, at + tonumber(ARGV[at]) do free[ARGV[i]] = true end
at = at + 1 + tonumber(ARGV[at])
repeat
  local found = redis.call('SCAN', cursor, 'MATCH', prefix .. '*', 'COUNT', 1000)
  cursor = found[1]
  for _, name in ipairs(found[2]) do
    local key = string.sub(name, #prefix + 1)
    if not free[key] and redis.call('EXISTS', key) == 1 then odd = odd + 1 end
    ready[#ready + 1] = key
  end
until cursor == '0'
if odd > 0 then return odd end
redis.call('HSET', KEYS[4], 'count', #ready + #ARGV - at + 1, unpack(fields))
local no = redis.call('INCR', KEYS[1])
redis.call('HSET', KEYS[4], 'no', no)
redis.call('ZADD', KEYS[2], no, ARGV[2])
redis.call('ZADD', KEYS[3], no, ARGV[2])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[5], 'undone_by', ARGV[2]) end
if ARGV[4] ~= '' then redis.call('HDEL', KEYS[6], 'undone_by') end
for _, key in ipairs(ready) do redis.pcall('RENAME', prefix .. key, key) end
for i = at, #ARGV do redis.call('DEL', ARGV[i]) end
return 0
"""


def prefix_of(effect: str) -> bytes:
    return HELD + effect.encode() + b":"


def put_aside(effect: str) -> Command:
    """Every key of the database that is not takeback's own."""
    return ("EVAL", ASIDE, 1, marks.op_key(effect), prefix_of(effect), OWN)


def bring_forward(
    effect: str, free: Sequence[bytes], gone: Sequence[bytes], fields: dict[str, str], undone: str, again: str
) -> Command:
    """`undone` is taken back by it, `again` is in force again; the keys `free` may be overwritten, `gone` must go."""
    parts = [part for pair in fields.items() for part in pair]
    own = (marks.COUNT, marks.OPS, marks.WIDE, *map(marks.op_key, (effect, undone, again)))
    told = (prefix_of(effect), effect, undone, again, len(parts), *parts, len(free), *free, *gone)
    return ("EVAL", FORWARD, len(own), *own, *told)


def build(link: RedisLink, effect: str, images: Iterable[Image]) -> None:
    """Build the values under scratch names."""
    prefix = prefix_of(effect)
    waiting: list[Command] = []
    for image in images:
        if image.dump is not None:
            waiting.append(restore(image._replace(key=prefix + image.key)))
        if len(waiting) >= AT_ONCE:
            send(link, waiting)
            waiting = []
    send(link, waiting)


def restore(image: Image) -> Command:
    if image.dump is None:
        return ("DEL", image.key)
    expires = 0 if image.expires == NEVER else image.expires
    return ("RESTORE", image.key, expires, image.dump, "REPLACE", "ABSTTL")


def send(link: RedisLink, commands: Sequence[Command]) -> None:
    """All of them, in one round trip."""
    if commands:
        for reply in link.ask(*commands):
            good(reply)


def drain(link: RedisLink, blobs: Blobs, effect: str, op: RedisOp) -> tuple[RedisOp, dict[str, Any]]:
    """Move the keys put aside into the store, then remove them. They stay aside until they are durable, so this works
    after a crash too."""
    tables: dict[str, Any] = {}
    if op.held != KEPT:
        others = by_key(kept(blobs, op.before))
        names = dict.fromkeys(key for key in _held(link, effect) if key not in others)
        held: list[bytes] = []
        before = keep(blobs, effect, _all(link, effect, others, names, held))
        now = tuple(images_of(link, tuple(others)))
        after = ""
        if marks.print_of(now) == op.print:  # else someone changed those since, and what we left is not known
            after = keep(blobs, effect, (*now, *map(Image, held)))
            left = by_key(now)
            tables = counted((one, left.get(one.key, Image(one.key))) for one in kept(blobs, before))
        blobs.sync()
        fields = {"before": before, "after": after, "held": KEPT, "count": str(len(held) + len(others))}
        link.one("HSET", marks.op_key(effect), *(part for pair in fields.items() for part in pair))
    clear(link, effect)
    link.one("HDEL", marks.op_key(effect), "held")
    found = marks.find(link, effect)
    assert found is not None
    return found, tables


def _all(
    link: RedisLink, effect: str, others: dict[bytes, Image], names: Iterable[bytes], held: list[bytes]
) -> Iterator[Image]:
    """`held` becomes those that are there still: some may have expired."""
    yield from others.values()
    prefix = prefix_of(effect)
    for image in images_of(link, tuple(prefix + key for key in names)):
        if image.dump is not None:
            held.append(image.key[len(prefix) :])
            yield image._replace(key=held[-1])


def _held(link: RedisLink, effect: str) -> Iterator[bytes]:
    prefix, cursor = prefix_of(effect), b"0"
    while True:
        cursor, found = link.one("SCAN", cursor, "MATCH", prefix + b"*", "COUNT", 1000)
        yield from (name[len(prefix) :] for name in found)
        if cursor == b"0":
            return


def clear(link: RedisLink, effect: str) -> None:
    prefix = prefix_of(effect)
    names = [prefix + key for key in dict.fromkeys(_held(link, effect))]
    for start in range(0, len(names), AT_ONCE):
        link.one("UNLINK", *names[start : start + AT_ONCE])
