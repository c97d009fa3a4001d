"""A Redis database as a test sees it, and one change of it."""

from contextlib import closing
from typing import Any

import redis

from takeback.adapters.database import Keyring
from takeback.adapters.redis.adapter import RedisAdapter
from takeback.model.effect import Effect
from tests.memory import MemoryBlobs
from tests.servers.redis import RedisDatabase
from tests.sql.engines import made
from tests.sql.redis_cases import Case, Words


def picture(client: redis.Redis) -> dict[bytes, Any]:
    """Every key, by what the commands for its type say of it, and when it expires. Not what takeback keeps there."""
    keys = sorted(key for key in client.scan_iter(count=1000) if not key.startswith(b"takeback:"))
    return {key: (*_value(client, key), client.execute_command("PEXPIRETIME", key)) for key in keys}


def _value(client: redis.Redis, key: bytes) -> tuple[bytes, Any]:
    kind = client.type(key)
    ask = client.execute_command
    if kind == b"string":
        return kind, ask("GET", key)
    if kind == b"list":
        return kind, ask("LRANGE", key, 0, -1)
    if kind == b"set":
        return kind, ask("SMEMBERS", key)
    if kind == b"hash":
        return kind, ask("HGETALL", key)
    if kind == b"zset":
        return kind, ask("ZRANGE", key, 0, -1, "WITHSCORES")
    assert kind == b"stream", kind
    info = ask("XINFO STREAM", key)
    facts = {
        name: info[name] for name in ("length", "last-generated-id", "max-deleted-entry-id", "entries-added")
    }
    groups = ask("XINFO GROUPS", key)
    pending = {one["name"]: client.xpending_range(key, one["name"], "-", "+", 1000) for one in groups}
    for each in pending.values():
        for one in each:
            del one["time_since_delivered"]  # it goes on
    consumers = {one["name"]: {c["name"] for c in ask("XINFO CONSUMERS", key, one["name"])} for one in groups}
    return kind, (ask("XRANGE", key, "-", "+"), facts, groups, pending, consumers)


def send(client: redis.Redis, commands: tuple[Words, ...]) -> None:
    for words in commands:
        client.execute_command(*words)


class RedisScene:
    def __init__(self, database: RedisDatabase, case: Case) -> None:
        self.case = case
        self.blobs = MemoryBlobs()
        self._database = database
        self._keyring = Keyring()
        self.found = self._keyring.named(database.url)
        with closing(database.connect()) as client:
            send(client, case.before)

    def adapter(self) -> RedisAdapter:
        return RedisAdapter(self.blobs, self._keyring)

    def do(self) -> Effect | None:
        commands = ((str(words[0]), list(words[1:])) for words in self.case.commands)
        return made(self.adapter(), self.found, *commands, summary=self.case.name)

    def world(self) -> dict[bytes, Any]:
        with closing(self._database.connect()) as client:
            for key in client.scan_iter("takeback:*", count=1000):
                assert key.split(b":")[1] in (
                    b"op",
                    b"ops",
                    b"touched",
                    b"wide",
                    b"count",
                    b"fence",
                    b"id",
                ), key
            return picture(client)

    def disturb(self) -> None:
        with closing(self._database.connect()) as client:
            send(client, self.case.disturb)
