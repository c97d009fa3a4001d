"""MariaDB, from the core package of the system."""

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.servers.process import PASSWORD, copy, once, run
from tests.servers.server import Server

if TYPE_CHECKING:
    import pymysql

# As a server is by default, in small. A commit is on the disk when it is answered.
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-use-native-aio": "0",
    "max-connections": "60",
    "skip-name-resolve": "1",
}
_FIRST = (
    f"CREATE USER IF NOT EXISTS admin@'%' IDENTIFIED BY '{PASSWORD}';\n"
    "GRANT ALL PRIVILEGES ON *.* TO admin@'%' WITH GRANT OPTION;\n"
)


def of_the_system() -> str | None:
    return shutil.which("mariadbd") if shutil.which("mariadb-install-db") else None


class MariaDB(Server):
    def __init__(
        self, program: str, directory: Path, template: Path, settings: Mapping[str, str] = {}
    ) -> None:
        super().__init__(directory, settings)
        self._program = program
        (directory / "first.sql").write_text(_FIRST)
        copy(template, directory / "data")

    def url(self, database: str = "", user: str = "admin", password: str = PASSWORD) -> str:
        """Over TCP, with a password that is asked for."""
        return f"mariadb://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None, **options: Any) -> "pymysql.Connection[Any]":
        """A connection of someone who is not captured, each statement its own transaction; close it."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="admin", password=PASSWORD, database=database,
            **{"autocommit": True, "charset": "utf8mb4", "connect_timeout": 120} | options,
        )  # fmt: skip

    def _command(self) -> list[str]:
        here = self.directory
        settings = _SETTINGS | {
            "datadir": here / "data", "socket": here / "s", "pid-file": here / "pid", "tmpdir": here,
            "port": self.port, "init-file": here / "first.sql",
        } | self.settings  # fmt: skip
        return [
            self._program,
            "--no-defaults",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connect().close()
        except pymysql.OperationalError:
            return False
        return True

    def fresh(self, name: str = "") -> "MariaDatabase":
        """An empty database; `drop` it."""
        self.start()
        self._made += 1
        name = name or f"fresh_{self._made}"
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}`")
        return MariaDatabase(self, name)


class MariaDatabase(NamedTuple):
    server: MariaDB
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def connect(self, **options: Any) -> "pymysql.Connection[Any]":
        """A connection of someone who is not captured, each statement its own transaction; close it."""
        return self.server.connect(self.name, **options)

    def drop(self) -> None:
        """Whoever still uses it is thrown out: a lock that somebody holds must not stop the tests."""
        import pymysql

        self.server.start()
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (self.name,))
            for (thread,) in cursor.fetchall():
                try:
                    cursor.execute(f"KILL {thread}")
                except pymysql.OperationalError:
                    continue  # it went by itself
            cursor.execute(f"DROP DATABASE IF EXISTS `{self.name}`")


def made(program: str, shared: Path) -> Path:
    """A data directory that was never used, to be copied."""
    with once(shared, "mariadb") as making:
        if making:
            options = [
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--force",
            ]
            options += ["--skip-name-resolve", f"--datadir={making / 'data'}", f"--tmpdir={making}"]
            options += ["--innodb-log-file-size=16M", "--innodb-use-native-aio=0"]
            run(["mariadb-install-db", *options], home=making)
    return shared / "mariadb" / "data"
