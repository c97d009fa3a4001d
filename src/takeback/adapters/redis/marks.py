"""What takeback keeps in the server itself: for each effect a mark, made in the same step as the change, and an index
of the keys it touched. Everything is under `takeback:`."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from takeback.adapters.redis.connection import Command, RedisLink, good
from takeback.adapters.redis.images import Image, seen_each

OWN = b"takeback:"
ID = b"takeback:id"  # of the database
OP = b"takeback:op:"
FENCE = b"takeback:fence:"
OPS = b"takeback:ops"  # sorted set: effect, by the order of the server
TOUCHED = b"takeback:touched"  # sorted set, by text: hash of a key, order, effect
WIDE = b"takeback:wide"  # sorted set like OPS: effects with too many keys for the index
COUNT = b"takeback:count"
FENCED_FOR = 7 * 24 * 3600  # seconds; longer than a process may sleep and then continue
MOST = 2000  # keys that are watched: it takes the server time with the square of their number

# Runs inside MULTI, after the commands of the change: numbers it, and looks at what it left. A crash before the images
# of that are durable leaves their fingerprint: then whether a key is still as the effect left it can be seen from the
# bytes alone.
LOOK = """
local no = redis.call('INCR', KEYS[1])
redis.call('ZADD', KEYS[2], no, ARGV[1])
local place = string.format('%016x', no) .. ARGV[1]
local found, prints = {no, redis.call('TIME')}, {}
for i = 5, #KEYS do
  local dump = redis.call('DUMP', KEYS[i])
  local expires = redis.call('PEXPIRETIME', KEYS[i])
  found[#found + 1] = dump
  found[#found + 1] = expires
  prints[#prints + 1] = (dump and redis.sha1hex(dump) or '') .. ' ' .. string.format('%.0f', expires)
  redis.call('ZADD', KEYS[3], 0, redis.sha1hex(KEYS[i]) .. place)
end
if ARGV[2] ~= '' then
  redis.call('ZADD', ARGV[2], no, ARGV[1])
end
redis.call('HSET', KEYS[4], 'no', no, 'print', redis.sha1hex(table.concat(prints, ',')))
return found
"""


class RedisOp(NamedTuple):
    no: int = 0  # none for what was lost with the server, and taken back since
    before: str = ""  # digest of the images of what it found
    after: str = ""  # of what it left, where that is not in the receipt
    print: str = ""
    undone_by: str = ""
    held: str = ""  # how many keys are put aside and not in the store yet
    many: int = 0  # how many keys, if it may be very many
    rebased: str = ""  # JSON: marks whose `before` it changed, and what it was


class LeftKeys(NamedTuple):
    """The values a change left, read in the same step."""

    no: int
    now: int
    images: tuple[Image, ...]


def op_key(effect: str) -> bytes:
    return OP + effect.encode()


def fence_key(effect: str) -> bytes:
    return FENCE + effect.encode()


def mark(effect: str, fields: dict[str, str]) -> Command:
    """The mark itself, first in the transaction: a server without memory refuses it, and with it all the rest, which a
    script would find out only when the change has been made."""
    return ("HSET", op_key(effect), *(part for pair in fields.items() for part in pair))


def look(effect: str, keys: Iterable[bytes], wide: bool = False) -> Command:
    """Last in the transaction. `wide`: it touches more than these."""
    listed = tuple(keys)
    named = (COUNT, OPS, TOUCHED, op_key(effect), *listed)
    return ("EVAL", LOOK, len(named), *named, effect, WIDE if wide else b"")


def left(keys: Iterable[bytes], reply: list[Any]) -> LeftKeys:
    no, time, *rest = reply
    return LeftKeys(no, milliseconds(time), tuple(seen_each(keys, rest)))


def milliseconds(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def print_of(images: Iterable[Image]) -> str:
    prints = (" -2" if dump is None else f"{_sha1(dump)} {expires}" for _, dump, expires in images)
    return _sha1(",".join(prints).encode())


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()  # the only one a script has


def find(link: RedisLink, effect: str) -> RedisOp | None:
    return to_op(link.one("HGETALL", op_key(effect)))


def to_op(reply: list[bytes]) -> RedisOp | None:
    fields = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
    if not fields:
        return None
    told = {name: fields[name] for name in RedisOp._fields if name in fields}
    return RedisOp(**told | {"no": int(fields.get("no", 0)), "many": int(fields.get("count", 0))})  # pyright: ignore


def later(link: RedisLink, no: int, keys: Iterable[bytes]) -> dict[bytes, list[tuple[int, str]]]:
    """For each key the effects after that place that touched it, oldest first, each with its place. Those with very
    many keys are not in it."""
    listed = tuple(keys)
    found: dict[bytes, list[tuple[int, str]]] = {}
    for start in range(0, len(listed), 500):
        chunk = listed[start : start + 500]
        prints = [_sha1(key) for key in chunk]
        replies = link.ask(*(("ZRANGEBYLEX", TOUCHED, f"({one}{no:016x}~", f"({one}~") for one in prints))
        for key, reply in zip(chunk, replies, strict=True):
            if members := good(reply):
                found[key] = [(int(member[40:56], 16), member[56:].decode()) for member in members]
    return found


def later_in(link: RedisLink, listing: bytes, no: int) -> list[tuple[int, str]]:
    """Of `OPS` or `WIDE`."""
    found = link.one("ZRANGEBYSCORE", listing, f"({no}", "+inf", "WITHSCORES")
    return [(int(place), one.decode()) for one, place in zip(found[::2], found[1::2], strict=True)]


def unmark(effect: str, no: int, keys: Iterable[bytes]) -> list[Command]:
    """Commands that remove every trace of an effect."""
    commands: list[Command] = [("DEL", op_key(effect)), ("ZREM", OPS, effect), ("ZREM", WIDE, effect)]
    members = [f"{_sha1(key)}{no:016x}{effect}" for key in keys]
    for start in range(0, len(members), 500):
        commands.append(("ZREM", TOUCHED, *members[start : start + 500]))
    return commands
