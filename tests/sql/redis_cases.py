"""What each kind of Redis command does under takeback, as data: the tests go through it, and the documentation prints
it."""

from typing import NamedTuple

Words = tuple[str | int | float, ...]
LATER = 4_102_444_800_000  # milliseconds since 1970, in the year 2100
EXACT, REFUSED, FAILS, NOTHING, READS = "exact", "refused", "fails", "nothing changed", "reads"


class Case(NamedTuple):
    name: str
    before: tuple[Words, ...]
    commands: tuple[Words, ...]
    disturb: tuple[Words, ...] = (("SET", "k", "someone else's"),)
    expect: str = EXACT


_LONG = "x" * 10_000
_MEMBERS = tuple(f"member-{number}" for number in range(700))
_STREAM: tuple[Words, ...] = (
    ("XADD", "k", "1-1", "a", "1", "b", "2"),
    ("XADD", "k", "1-2", "a", "3", "b", "4"),
    ("XADD", "k", "2-0", "other", "5"),
    ("XADD", "k", "3-0", "a", "6", "b", "7"),
    ("XDEL", "k", "1-2"),
    ("XGROUP", "CREATE", "k", "readers", "0"),
    ("XREADGROUP", "GROUP", "readers", "ann", "COUNT", "2", "STREAMS", "k", ">"),
    ("XGROUP", "CREATE", "k", "idle", "$"),
    ("XGROUP", "CREATECONSUMER", "k", "idle", "bob"),
)

CASES: tuple[Case, ...] = (
    # Strings.
    Case("SET a new key", (), (("SET", "k", "v"),)),
    Case("SET over a string", (("SET", "k", "old"),), (("SET", "k", "new"),)),
    Case("SET over a hash", (("HSET", "k", "f", "1"),), (("SET", "k", "new"),)),
    Case("SET with an expiry", (("SET", "k", "old"),), (("SET", "k", "new", "PXAT", LATER),)),
    Case("SET drops an expiry", (("SET", "k", "old", "PXAT", LATER),), (("SET", "k", "new"),)),
    Case("SET … KEEPTTL GET", (("SET", "k", "old", "PXAT", LATER),), (("SET", "k", "new", "KEEPTTL", "GET"),)),
    Case("SET … NX that does not apply", (("SET", "k", "old"),), (("SET", "k", "new", "NX"),), expect=NOTHING),
    Case("APPEND", (("SET", "k", _LONG),), (("APPEND", "k", "more"),)),
    Case("SETRANGE", (("SET", "k", "hello"),), (("SETRANGE", "k", "10", "x"),)),
    Case("INCRBYFLOAT", (("SET", "k", "1.5"),), (("INCRBYFLOAT", "k", "0.25"),)),
    Case("INCR", (("SET", "k", "41"),), (("INCR", "k"),)),
    Case("GETDEL", (("SET", "k", "v"),), (("GETDEL", "k"),)),
    Case("GETEX", (("SET", "k", "v"),), (("GETEX", "k", "PXAT", LATER),)),
    Case("SETBIT", (("SET", "k", "abc"),), (("SETBIT", "k", "8", "1"),)),
    Case("BITFIELD", (("SET", "k", "abc"),), (("BITFIELD", "k", "SET", "u8", "0", "255"),)),
    Case("BITOP", (("SET", "a", "abc"), ("SET", "b", "xyz")), (("BITOP", "AND", "k", "a", "b"),)),
    Case("MSET", (("SET", "k", "1"), ("SET", "c", "3")), (("MSET", "k", "x", "b", "y", "c", "z"),)),
    Case("MSETNX", (), (("MSETNX", "k", "x", "b", "y"),)),
    # Keys.
    Case("DEL of several", (("SET", "k", "1"), ("RPUSH", "l", "a", "b")), (("DEL", "k", "l", "absent"),)),
    Case("UNLINK", (("SADD", "k", *_MEMBERS),), (("UNLINK", "k"),)),
    Case("RENAME over another", (("SET", "k", "1"), ("RPUSH", "to", "a", "b")), (("RENAME", "k", "to"),)),
    Case("RENAMENX", (("SET", "k", "1"),), (("RENAMENX", "k", "to"),)),
    Case("COPY … REPLACE", (("SET", "a", "1", "PXAT", LATER), ("SADD", "k", "x")), (("COPY", "a", "k", "REPLACE"),)),
    Case("PEXPIREAT", (("HSET", "k", "f", "1"),), (("PEXPIREAT", "k", LATER),)),
    Case("PERSIST", (("SET", "k", "1", "PXAT", LATER),), (("PERSIST", "k"),)),

    # Lists.
    Case("LPUSH to a new list", (), (("LPUSH", "k", "a", "b", 3),)),
    Case("RPUSH", (("RPUSH", "k", "a", 7, _LONG),), (("RPUSH", "k", "c"),)),
    Case("LPOP of the last", (("RPUSH", "k", "a"),), (("LPOP", "k"),)),
    Case("LREM", (("RPUSH", "k", "a", "b", "a"),), (("LREM", "k", "0", "a"),)),
    Case("LSET", (("RPUSH", "k", *range(300)),), (("LSET", "k", "-1", "x"),)),
    Case("LTRIM", (("RPUSH", "k", *_MEMBERS),), (("LTRIM", "k", "5", "20"),)),
    Case("LINSERT", (("RPUSH", "k", "a", "c"),), (("LINSERT", "k", "BEFORE", "c", "b"),)),
    Case("LMOVE", (("RPUSH", "k", "a", "b"), ("RPUSH", "to", "x")), (("LMOVE", "k", "to", "LEFT", "RIGHT"),)),
    Case("LMPOP", (("RPUSH", "k", "a", "b"),), (("LMPOP", "2", "none", "k", "LEFT", "COUNT", "2"),)),
    # Hashes.
    Case("HSET", (("HSET", "k", "f", "1", "g", _LONG),), (("HSET", "k", "f", "2", "h", "3"),)),
    Case("HDEL of the last field", (("HSET", "k", "f", "1"),), (("HDEL", "k", "f"),)),
    Case("HINCRBY", (("HSET", "k", "f", "1"),), (("HINCRBY", "k", "f", "5"),)),
    Case("HSET in a large hash", (("HSET", "k", *(str(n) for n in range(2000))),), (("HSET", "k", "0", "x"),)),
    # Sets.
    Case("SADD to numbers", (("SADD", "k", 1, -5, 100_000, 10_000_000_000),), (("SADD", "k", "2"),)),
    Case("SADD to a large set", (("SADD", "k", *_MEMBERS),), (("SADD", "k", "x"),)),
    Case("SREM", (("SADD", "k", *_MEMBERS),), (("SREM", "k", "member-3"),)),
    Case("SPOP", (("SADD", "k", *_MEMBERS),), (("SPOP", "k", "3"),)),
    Case("SMOVE", (("SADD", "k", "a", "b"), ("SADD", "to", "c")), (("SMOVE", "k", "to", "a"),)),
    Case("SINTERSTORE", (("SADD", "a", "x", "y"), ("SADD", "b", "y"), ("SET", "k", "1")),
         (("SINTERSTORE", "k", "a", "b"),)),
    Case("SDIFFSTORE to nothing", (("SADD", "a", "x"), ("SET", "k", "1")), (("SDIFFSTORE", "k", "a", "a"),)),
    # Sorted sets.
    Case("ZADD", (("ZADD", "k", "1.5", "a", "-inf", "b", "3", "c"),), (("ZADD", "k", "0.1", "a", "7", "d"),)),
    Case("ZADD to a large one", (("ZADD", "k", *(w for n in range(300) for w in (n / 7, f"m{n}"))),),
         (("ZADD", "k", "9", "m1"),)),
    Case("ZINCRBY", (("ZADD", "k", "1", "a"),), (("ZINCRBY", "k", "0.5", "a"),)),
    Case("ZREMRANGEBYRANK", (("ZADD", "k", "1", "a", "2", "b", "3", "c"),), (("ZREMRANGEBYRANK", "k", "0", "1"),)),
    Case("ZPOPMIN", (("ZADD", "k", "1", "a", "2", "b"),), (("ZPOPMIN", "k"),)),
    Case("ZUNIONSTORE", (("ZADD", "a", "1", "x"), ("ZADD", "k", "2", "y")),
         (("ZUNIONSTORE", "k", "2", "a", "k", "WEIGHTS", "2", "3"),)),
    Case("ZRANGESTORE", (("ZADD", "a", "1", "x", "2", "y"),), (("ZRANGESTORE", "k", "a", "0", "0"),)),
    # Others.
    Case("GEOADD", (("GEOADD", "k", "13.36", "38.11", "Palermo"),), (("GEOADD", "k", "15.08", "37.50", "Catania"),)),
    Case("GEOSEARCHSTORE", (("GEOADD", "a", "13.36", "38.11", "Palermo"),),
         (("GEOSEARCHSTORE", "k", "a", "FROMLONLAT", "13", "38", "BYRADIUS", "200", "km"),)),
    Case("PFADD", (("PFADD", "k", *_MEMBERS),), (("PFADD", "k", "x", "y"),)),
    Case("PFMERGE", (("PFADD", "a", "1", "2"), ("PFADD", "k", "2", "3")), (("PFMERGE", "k", "a"),)),
    Case("SORT … STORE", (("RPUSH", "a", "3", "1", "2"), ("SET", "k", "1")), (("SORT", "a", "STORE", "k"),)),
    # Streams.
    Case("XADD", _STREAM, (("XADD", "k", "5-0", "a", "x"),)),
    Case("XADD to a new stream", (), (("XADD", "k", "*", "a", "x"),)),
    Case("XDEL", _STREAM, (("XDEL", "k", "3-0"),)),
    Case("XTRIM", _STREAM, (("XTRIM", "k", "MAXLEN", "1"),)),
    Case("XACK", _STREAM, (("XACK", "k", "readers", "1-1"),)),
    Case("XREADGROUP", _STREAM, (("XREADGROUP", "GROUP", "readers", "eve", "STREAMS", "k", ">"),)),
    Case("XCLAIM", _STREAM, (("XCLAIM", "k", "readers", "eve", "0", "1-1"),)),
    Case("XAUTOCLAIM", _STREAM, (("XAUTOCLAIM", "k", "readers", "eve", "0", "0"),)),
    Case("XGROUP DESTROY", _STREAM, (("XGROUP", "DESTROY", "k", "readers"),)),
    Case("XGROUP SETID", _STREAM, (("XGROUP", "SETID", "k", "idle", "0"),)),
    Case("XSETID", _STREAM, (("XSETID", "k", "9-9"),)),
    Case("DEL of a stream with groups", _STREAM, (("DEL", "k"),)),
    # All of it.
    Case("FLUSHDB",
         (("SET", "k", "1", "PXAT", LATER), ("SADD", "s", *_MEMBERS), *(("SET", f"n{n}", n) for n in range(50))),
         (("FLUSHDB",),)),
    Case("FLUSHDB ASYNC", (("SET", "k", "1"), ("HSET", "h", "f", "1")), (("FLUSHDB", "ASYNC"),)),
    # Several in one.
    Case("a transaction of several", (("SET", "k", "1"), ("RPUSH", "l", "a")),
         (("INCR", "k"), ("RPUSH", "l", "b"), ("DEL", "k"), ("HSET", "k", "f", "1"))),
    Case("a transaction that flushes", (("SET", "k", "1"),), (("SET", "new", "1"), ("FLUSHDB",), ("SET", "k", "2"))),
    # What changes nothing.
    Case("DEL of what is not there", (("SET", "k", "1"),), (("DEL", "absent"),), expect=NOTHING),
    Case("SET to the same", (("SET", "k", "1"),), (("SET", "k", "1"),), expect=NOTHING),
    Case("HSET to the same", (("HSET", "k", "f", "1"),), (("HSET", "k", "f", "1"),), expect=NOTHING),
    # What fails as a whole.
    Case("a command for another type", (("SET", "k", "x"),), (("LPUSH", "k", "a"),), expect=FAILS),
    Case("a command that is not known", (), (("NOSUCH", "k"),), expect=FAILS),
    Case("too few arguments", (), (("SET", "k"),), expect=FAILS),
    Case("a wrong option", (), (("SET", "k", "v", "NOPE"),), expect=FAILS),
    Case("a transaction whose second command fails", (("SET", "k", "x"), ("SET", "n", "1")),
         (("INCR", "n"), ("INCR", "k"), ("SET", "z", "1")), expect=FAILS),
    # What is refused.
    *(
        Case(" ".join(str(word) for word in words[:2]), (("SET", "k", "1"),), (words,), expect=REFUSED)
        for words in (
            ("EVAL", "return redis.call('SET', 'hidden', 1)", 0), ("EVALSHA", "abc", 0), ("FCALL", "f", 0),
            ("SCRIPT", "FLUSH"), ("FUNCTION", "FLUSH"),
            ("BLPOP", "l", 0), ("BRPOP", "l", 0), ("BLMOVE", "a", "b", "LEFT", "LEFT", 0), ("BZPOPMIN", "z", 0),
            ("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
            ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">"),
            ("PUBLISH", "news", "hello"), ("SUBSCRIBE", "news"), ("MONITOR",),
            ("MULTI",), ("EXEC",), ("WATCH", "k"), ("DISCARD",),
            ("MOVE", "k", 1), ("SWAPDB", 0, 1), ("SELECT", 1), ("COPY", "k", "k", "DB", 1),
            ("CONFIG", "SET", "appendonly", "no"), ("ACL", "SETUSER", "x"), ("DEBUG", "SLEEP", 0), ("SHUTDOWN",),
            ("REPLICAOF", "NO", "ONE"), ("CLUSTER", "RESET"), ("MIGRATE", "h", 1, "k", 0, 1),
            ("CLIENT", "KILL", "ID", 1), ("AUTH", "x"), ("SET", "takeback:op:x", "1"),
        )
    ),
    # What only reads.
    *(
        Case(str(words[0]), (("SET", "k", "1"),), (words,), expect=READS)
        for words in (
            ("GET", "k"), ("MGET", "k", "l"), ("SCAN", 0), ("TTL", "k"), ("TYPE", "k"), ("EXISTS", "k"), ("DBSIZE",),
            ("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "k"), ("PING",), ("TIME",), ("INFO",),
            ("XREAD", "STREAMS", "s", "0"), ("SORT_RO", "l"), ("SORT", "l"), ("RANDOMKEY",),
            ("OBJECT", "ENCODING", "k"), ("KEYS", "*"), ("PFCOUNT", "absent"), ("MEMORY", "USAGE", "k"), ("DUMP", "k"),
            ("BITCOUNT", "k"), ("LCS", "k", "k"),
        )
    ),
)  # fmt: skip


def named(*names: str) -> list[Case]:
    found = [case for case in CASES if case.name in names]
    assert len(found) == len(names)
    return found
