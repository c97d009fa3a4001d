"""A store and a Redis database, for tests of what a caller gets."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import redis

import takeback
from takeback.adapters.redis.adapter import RedisAdapter
from takeback.api import opened_of
from tests.servers.redis import RedisDatabase
from tests.sql.redis_world import picture


class Shop:
    """A store and a database; `others` are not captured."""

    def __init__(self, tb: takeback.Takeback, database: RedisDatabase, others: redis.Redis) -> None:
        self.tb = tb
        self.database = database
        self.others = others

    @property
    def adapter(self) -> RedisAdapter:
        found = opened_of(self.tb).parts.adapters["redis"]
        assert isinstance(found, RedisAdapter)
        return found

    def do(self, *words: Any) -> takeback.Effect:
        with self.tb.run("work") as run, run.sql(self.database.url) as db:
            effect = db.execute(words[0], list(words[1:])).effect
        assert effect is not None
        return self.tb.effect(effect.id)

    def together(self, *commands: tuple[Any, ...]) -> takeback.Effect:
        with self.tb.run("work") as run, run.sql(self.database.url) as db, db.transaction("several") as made:
            for words in commands:
                db.execute(words[0], list(words[1:]))
        return self.tb.effect(made.effect.id)

    def world(self) -> dict[bytes, Any]:
        return picture(self.others)


@contextmanager
def open_shop(database: RedisDatabase, place: Path) -> Iterator[Shop]:
    with takeback.open(place / "store") as tb, closing(database.connect()) as others:
        yield Shop(tb, database, others)
