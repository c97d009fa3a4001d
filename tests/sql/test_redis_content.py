"""What we read out of a DUMP is what the commands say, in whatever form the server keeps it."""

import random
from contextlib import closing
from typing import Any

import pytest
import redis

from takeback.adapters.redis.dump import Stream, content_of
from takeback.adapters.redis.images import Image, packed, same, unpacked
from takeback.errors import BlobDamaged
from tests.servers.redis import RedisDatabase

SEED = 20_261_117


def words(chance: random.Random, count: int) -> list[bytes]:
    return [_word(chance) for _ in range(count)]


def _word(chance: random.Random) -> bytes:
    kind = chance.randrange(8)
    if kind < 3:
        edge = chance.choice((6, 7, 8, 12, 13, 15, 16, 23, 24, 31, 32, 63))
        return b"%d" % (chance.choice((-1, 1)) * (2**edge + chance.randint(-2, 1)))
    if kind == 3:
        return chance.choice((b"", b"0", b"-0", b"007", b"+1", b" 1", b"1.0", b"1e5", b"\x00\xff", b"HYLL"))
    if kind == 4:
        return chance.choice((b"ab", b"long ", b"\xf0")) * chance.choice((1, 20, 63, 64, 65, 3000, 20_000))
    return chance.randbytes(chance.choice((1, 5, 62, 63, 64, 127, 128, 300, 4095, 4096, 9000)))


def told(client: redis.Redis, key: str) -> Any:
    kind, ask = client.type(key), client.execute_command
    if kind == b"string":
        return client.get(key)
    if kind == b"list":
        return ask("LRANGE", key, 0, -1)
    if kind == b"set":
        return ask("SMEMBERS", key)
    if kind == b"hash":
        return ask("HGETALL", key)
    return dict(ask("ZRANGE", key, 0, -1, "WITHSCORES"))


def fill(client: redis.Redis, chance: random.Random, key: str) -> None:
    count = chance.choice((1, 2, 7, 120, 130, 512, 600))
    values = words(chance, count)
    kind = chance.randrange(6)
    if kind == 0:
        client.set(key, values[0])
    elif kind == 1:
        client.rpush(key, *values)
    elif kind == 2:
        client.sadd(key, *values)
    elif kind == 3:
        client.sadd(key, *(chance.randint(-(2 ** chance.choice((7, 15, 31, 62))), 99) for _ in range(count)))
    elif kind == 4:
        client.execute_command("HSET", key, *(word for value in values for word in (value, _word(chance))))
    else:
        scores = (0, -0.0, 1.5, 3, -7, 1e300, 1 / 3, float("inf"), float("-inf"), 2**53)
        client.zadd(key, {value: chance.choice(scores) for value in values})


def test_every_form_of_every_type_is_read_as_the_commands_say(redis_database: RedisDatabase) -> None:
    chance = random.Random(SEED)
    forms: set[tuple[bytes, bytes]] = set()
    with closing(redis_database.connect()) as client:
        for number in range(50):
            key = f"k{number}"
            fill(client, chance, key)
            dump = client.dump(key)
            assert dump is not None
            forms.add((client.type(key), client.object("encoding", key)))
            found = content_of(dump)
            assert found.type.encode() == client.type(key)
            assert found.value == told(client, key), (SEED, number)
            # A copy has the same content, whatever its bytes.
            client.restore("copy", 0, dump, replace=True)
            again = client.dump("copy")
            assert again is not None and same(Image(b"k", dump), Image(b"k", again))
    assert len(forms) >= 8, forms


def test_a_change_of_any_kind_is_seen(redis_database: RedisDatabase) -> None:
    changes: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
        (("SET", "k", "1"), ("SET", "k", "01")),
        (("RPUSH", "k", "a", "b"), ("LSET", "k", 0, "b")),
        (("SADD", "k", "1", "2"), ("SREM", "k", "1")),
        (("HSET", "k", "f", "1"), ("HSET", "k", "f", "")),
        (("ZADD", "k", 1, "a"), ("ZADD", "k", 1.0000000001, "a")),
        (("XADD", "k", "1-1", "a", "b"), ("XADD", "k", "1-2", "a", "b")),
        (("XADD", "k", "1-1", "a", "b"), ("XGROUP", "CREATE", "k", "g", "0")),
        (("PFADD", "k", "a"), ("PFADD", "k", "b")),
    ]
    with closing(redis_database.connect()) as client:
        for first, then in changes:
            client.delete("k")
            client.execute_command(*first)
            before = client.dump("k")
            client.execute_command(*then)
            after = client.dump("k")
            assert before and after and content_of(before) != content_of(after), then


def test_counting_and_reading_are_no_changes(redis_database: RedisDatabase) -> None:
    with closing(redis_database.connect()) as client:
        client.pfadd("h", *range(1000))
        before = client.dump("h")
        client.pfcount("h")
        after = client.dump("h")
        assert before and after and before != after and content_of(before) == content_of(after)


def test_a_stream_is_read_with_its_groups(redis_database: RedisDatabase) -> None:
    chance = random.Random(SEED)
    with closing(redis_database.connect()) as client:
        for number in range(1, 400):
            fields = {f"f{n}": _word(chance) for n in range(chance.choice((1, 2, 2, 2, 3)))}
            client.xadd("s", fields, id=f"{number // 7}-{number % 7 + 1}")
        for id in chance.sample([id for id, _ in client.xrange("s")], 50):
            client.xdel("s", id)
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "ann", {"s": ">"}, count=5)
        client.xreadgroup("g", "bob", {"s": ">"}, count=5)
        client.xreadgroup("g", "bob", {"s": "0"})
        dump = client.dump("s")
        assert dump is not None
        found = content_of(dump).value
        assert isinstance(found, Stream)
        listed = client.execute_command("XRANGE", "s", "-", "+")
        assert {
            f"{a}-{b}".encode(): dict(zip(v[::2], v[1::2], strict=True))
            for (a, b), v in found.entries.items()
        } == dict(listed)
        pending = client.xpending_range("s", "g", "-", "+", 100)
        assert {f"{a}-{b}".encode(): (to[0], to[2]) for (a, b), to in found.groups[b"g"].pending.items()} == {
            one["message_id"]: (one["consumer"], one["times_delivered"]) for one in pending
        }
        info = client.xinfo_stream("s")
        assert found.added == info["entries-added"] and len(found.entries) == info["length"]
        assert f"{found.deleted[0]}-{found.deleted[1]}".encode() == info["max-deleted-entry-id"]


def test_what_cannot_be_read_is_compared_by_its_bytes() -> None:
    odd = b"\x63whatever" + bytes(10)
    assert content_of(odd).type == "unknown"
    assert same(Image(b"k", odd), Image(b"k", odd)) and not same(Image(b"k", odd), Image(b"k", b"x" + odd))
    for cut in range(len(odd)):
        content_of(odd[:cut])
    for kind in range(30):
        content_of(bytes((kind,)) + b"\xc3\xff\x10" * 5)


def test_images_are_packed_and_read_again_however_they_are_cut() -> None:
    images = [
        Image(b""), Image(b"a", b""), Image(b"k\x00", b"x" * 5000, 17), Image(b"y" * 300, None), Image(b"z", b"1", 0),
    ]  # fmt: skip
    whole = b"".join(packed(images))
    for size in (1, 7, 20, 4096, len(whole)):
        pieces = (whole[at : at + size] for at in range(0, len(whole), size))
        assert list(unpacked(pieces)) == images
    with pytest.raises(BlobDamaged):
        list(unpacked([whole[:-1]]))
