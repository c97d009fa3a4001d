"""A Redis database as a test sees it, and one change of it."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import redis

from takeback.adapters.database import Keyring
from takeback.adapters.redis.adapter import RedisAdapter
from takeback.model.change import Change
from takeback.model.database import resource_of, to_json
from tests.servers.redis import RedisDatabase
from tests.sql.redis_cases import Case, Words
from tests.sql.shared_blobs import SharedBlobs


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
    """As the laws want it. The same number of database each time; other tests have others."""

    def __init__(self, database: RedisDatabase, place: Path, case: Case) -> None:
        self.case = case
        self.blobs = SharedBlobs(place / "blobs")
        self._database = database
        self._keyring = Keyring()
        self.found = self._keyring.named(database.url)
        self.reset()

    def adapter(self) -> RedisAdapter:
        return RedisAdapter(self.blobs, self._keyring)

    def change(self) -> Change:
        script = self.blobs.put(
            json.dumps([[words[0], list(words[1:])] for words in self.case.commands]).encode()
        )
        args = {"database": to_json(self.found), "script": script}
        return Change("redis", "script", resource_of(self.found), self.case.name, args)

    def world(self) -> dict[bytes, Any]:
        with closing(self._database.connect()) as client:
            for key in client.scan_iter("takeback:*", count=1000):
                assert key.split(b":")[1] in (b"op", b"ops", b"touched", b"wide", b"count", b"fence"), key
            return picture(client)

    def reset(self) -> None:
        with closing(self._database.connect()) as client:
            client.flushdb()
            send(client, self.case.before)

    def disturb(self) -> None:
        with closing(self._database.connect()) as client:
            send(client, self.case.disturb)
