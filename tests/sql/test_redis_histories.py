"""Random histories against a model of keys: effects, other people's writes, undos and redos in any order."""

import random
from contextlib import closing
from typing import Any

import pytest
import redis

from takeback.adapters.database import Keyring
from takeback.adapters.redis.adapter import RedisAdapter
from takeback.errors import Conflict, StatementFailed
from takeback.model.change import OnConflict
from takeback.model.effect import Effect
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.memory import MemoryBlobs
from tests.servers.redis import RedisDatabase
from tests.sql.engines import made
from tests.sql.redis_world import picture

KEYS = ("a", "b", "c", "d")
LATER = 4_102_444_800_000
World = dict[bytes, Any]


class Done:
    """An effect, and what the model knows of it: for each key what it found and what it left."""

    def __init__(
        self, effect: Effect, found: World, left: World, named: set[bytes], of: "Done | None"
    ) -> None:
        self.effect, self.of = effect, of
        self.keys = named
        self.found = {key: found.get(key) for key in named}
        self.left = {key: left.get(key) for key in named}
        self.undone_by: Done | None = None
        self.rebased: list[tuple[Done, bytes, Any, Any]] = []


class History:
    def __init__(self, seed: int, client: redis.Redis, url: str) -> None:
        self.chance = random.Random(seed)
        self.client = client
        keyring = Keyring()
        self.blobs = MemoryBlobs()
        self.adapter = RedisAdapter(self.blobs, keyring)
        self.database = keyring.named(url)
        self.done: list[Done] = []
        self.told = {"undone": 0, "refused": 0, "skipped": 0, "forced": 0}

    def command(self) -> tuple[Any, ...]:
        pick, key = self.chance.choice, self.chance.choice(KEYS)
        value = self.chance.randrange(4)
        return pick(
            (
                ("SET", key, value), ("SET", key, value, "PXAT", LATER + value), ("DEL", key, pick(KEYS)),
                ("HSET", key, f"f{value}", value), ("HDEL", key, f"f{value}"), ("SADD", key, value),
                ("SREM", key, value), ("RPUSH", key, value), ("LPOP", key), ("RENAME", key, pick(KEYS)),
                ("COPY", key, pick(KEYS), "REPLACE"), ("PEXPIREAT", key, LATER + value), ("PERSIST", key),
                ("ZADD", key, value, "m"), ("XADD", key, "*", "f", value), ("INCR", key), ("APPEND", key, "x"),
            )
        )  # fmt: skip

    def someone_else(self) -> None:
        try:
            self.client.execute_command(*self.command())
        except redis.ResponseError:
            return

    def effect(self) -> None:
        commands = [self.command() for _ in range(self.chance.choice((1, 1, 2, 3)))]
        if self.chance.random() < 0.08:
            commands.append(("FLUSHDB",))
        before = picture(self.client)
        asked = ((str(words[0]), list(words[1:])) for words in commands)
        try:
            effect = made(self.adapter, self.database, *asked, summary="a step")
        except StatementFailed:
            effect = None
        if effect is None:
            assert picture(self.client) == before
            return
        # What is copied from is only read.
        named = {
            str(w).encode()
            for words in commands
            for w in words[2 if words[0] == "COPY" else 1 :]
            if w in KEYS
        }
        named |= {key for key in before if ("FLUSHDB",) in commands}
        self.done.append(Done(effect, before, picture(self.client), named, None))

    def undo(self) -> None:
        standing = [one for one in self.done if one.undone_by is None and self._holds(one)]
        if not standing:
            return
        of = self.chance.choice(standing)
        policy = self.chance.choice((OnConflict.REFUSE, OnConflict.REFUSE, OnConflict.SKIP, OnConflict.FORCE))
        before = picture(self.client)
        changed = {
            key for key in of.keys if of.found[key] != of.left[key] and before.get(key) != of.found[key]
        }
        conflicts = {key for key in changed if before.get(key) != of.left[key]}
        outcomes = {
            one.outcome for one in self.adapter.assess(undo_of(of.effect, policy), of.effect).outcomes
        }
        if policy is not OnConflict.FORCE:
            assert (Outcome.CONFLICT in outcomes) == bool(conflicts)
        expected = dict(before)
        for key in changed - conflicts if policy is OnConflict.SKIP else changed:
            expected[key] = of.found[key]
        expected = {key: value for key, value in expected.items() if value is not None}
        if (conflicts and policy is OnConflict.REFUSE) or not changed - (
            conflicts if policy is OnConflict.SKIP else set()
        ):
            if conflicts and policy is OnConflict.REFUSE:
                with pytest.raises(Conflict):
                    Desk(self.adapter).undo(of.effect, policy)
                assert picture(self.client) == before
                self.told["refused"] += 1
            return
        effect = self._taken_back(of, policy, bool(conflicts))
        assert picture(self.client) == expected
        partial = policy is OnConflict.SKIP and bool(conflicts)
        undo = Done(effect, before, expected, changed - conflicts if partial else changed, of)
        self.told["skipped" if partial else "forced" if conflicts else "undone"] += 1
        if partial:
            self._rebase(of, conflicts, undo)
        else:
            of.undone_by = undo
        if of.of is not None and of.of.undone_by is of:
            of.of.undone_by = None
        for later, key, was, to in of.rebased:
            if later.found[key] == to:
                later.found[key] = was
        self.done.append(undo)

    def _taken_back(self, of: Done, policy: OnConflict, conflicts: bool) -> Effect:
        change = undo_of(of.effect, policy)
        if policy is OnConflict.SKIP and conflicts:
            change = change._replace(undo=change.undo._replace(partial=True))
        return Desk(self.adapter).do(change, of=of.effect)

    def _holds(self, one: Done) -> bool:
        """What an undo took back must still be taken back by it."""
        return one.of is None or one.of.undone_by in (one, None)

    def _rebase(self, of: Done, conflicts: set[bytes], undo: Done) -> None:
        for key in conflicts:
            for later in self.done[self.done.index(of) + 1 :]:
                if key in later.keys and later.undone_by is None:
                    if later.found[key] == of.left[key]:
                        undo.rebased.append((later, key, later.found[key], of.found[key]))
                        later.found[key] = of.found[key]
                    break

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choices((self.effect, self.undo, self.someone_else), (5, 4, 1))[0]()


@pytest.mark.parametrize("seed", range(3))
def test_a_random_history_is_as_the_model_says(redis_database: RedisDatabase, seed: int) -> None:
    _run(redis_database, seed, 25)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_random_histories_are_as_the_model_says(redis_database: RedisDatabase, part: int) -> None:
    for seed in range(1000 + part * 10, 1010 + part * 10):
        _run(redis_database, seed, 30)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_a_thousand_random_histories_are_as_the_model_says(redis_database: RedisDatabase, part: int) -> None:
    for seed in range(10_000 + part * 50, 10_050 + part * 50):
        _run(redis_database, seed, 40)


def _run(database: RedisDatabase, seed: int, steps: int) -> None:
    with closing(database.connect()) as client:
        client.flushdb()
        history = History(seed, client, database.url)
        try:
            history.run(steps)
        except Exception as error:
            error.add_note(f"seed {seed}, step {len(history.done)}: {history.told}")
            raise
        finally:
            history.adapter.close()
