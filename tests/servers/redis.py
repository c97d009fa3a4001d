"""Redis, from the tools of the system: the program that checks a dump is the server under another name."""

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.servers.process import PASSWORD, owned
from tests.servers.server import Server

if TYPE_CHECKING:
    import redis

_DATABASES = 1000
# What was answered is on the disk.
_SETTINGS = {
    "bind": "127.0.0.1",
    "databases": str(_DATABASES),
    "requirepass": PASSWORD,
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "daemonize": "no",
}


def of_the_system() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


class Redis(Server):
    def __init__(self, program: str, directory: Path, settings: Mapping[str, str] = {}) -> None:
        super().__init__(directory, settings)
        owned(directory / "data")
        (directory / "redis-server").symlink_to(program)

    def url(self, database: int = 0, password: str = PASSWORD) -> str:
        return f"redis://:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: int = 0, **options: Any) -> "redis.Redis":
        """A connection of someone who is not captured; answers are bytes; close it."""
        import redis

        return redis.Redis.from_url(self.url(database), socket_connect_timeout=120, **options)

    def _command(self) -> list[str]:
        settings = _SETTINGS | {"dir": str(self.directory / "data"), "port": str(self.port)} | self.settings
        command = [str(self.directory / "redis-server")]
        return command + [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _answers(self) -> bool:
        import redis

        with closing(self.connect()) as connection:
            try:
                return bool(connection.ping())
            except redis.ConnectionError:  # also while it reads what it had
                return False

    def fresh(self) -> "RedisDatabase":
        """An empty database; `drop` it."""
        self.start()
        self._made += 1
        found = RedisDatabase(self, self._made % _DATABASES)
        with closing(found.connect()) as connection:
            connection.flushdb()
        return found


class RedisDatabase(NamedTuple):
    server: Redis
    number: int

    @property
    def url(self) -> str:
        return self.server.url(self.number)

    def connect(self, **options: Any) -> "redis.Redis":
        """A connection of someone who is not captured; answers are bytes; close it."""
        return self.server.connect(self.number, **options)

    def drop(self) -> None:
        self.server.start()
        with closing(self.connect()) as connection:
            connection.flushdb()
