"""One connection to a server, and what its errors mean for us."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from takeback.errors import (
    Misuse,
    ResourceUnreachable,
    ServerUnreachable,
    StatementFailed,
    StoreBusy,
    TakebackError,
)
from takeback.model.database import Database, without_password
from takeback.model.words import install_hint

if TYPE_CHECKING:
    from pymysql.connections import Connection

PATIENCE = 10  # seconds: to connect, and for a lock
READ_ONLY_TRANSACTION = 1792
COMMITS_IMPLICITLY = 1399  # in an XA transaction whatever would commit is refused
DUPLICATE = 1062
SIGNALLED = 1644
OVERDUE = 1205  # it has waited for a lock as long as it may
LOCKED = (OVERDUE, 1213, 3572)
_LOST = (0, 2003, 2006, 2013, 2014, 2055, 1053, 1927, 4031)
# What keeps us out, by the number that the server gives it.
_UNREACHABLE = (
    ((1049,), "There is no such database: {where}.", "Look at the name in the address."),
    (
        (1044, 1045, 1142, 1143, 1227, 1370, 1410, 1698),
        "{where}: no right to do that: {says}",
        "Use an account that may. The store keeps no password: give the address as env:NAME, or with its password in "
        "TAKEBACK_SQL.",
    ),
    ((1290, 1836), "{where} takes no changes: {says}", "Is it a replica? Use the primary server."),
    ((1021, 1114, 28), "{where}: no room: {says}", "Make room on the server, then try again."),
)


class Wire:
    def __init__(self, connection: "Connection[Any]", database: Database) -> None:
        self.connection = connection
        self.database = database

    def run(self, statement: str) -> int:
        """How many rows it changed or found. Ours only: it has no parameters."""
        return self.cursor_run(statement)[1]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.cursor_run(statement)[0]

    def one(self, statement: str) -> Any:
        """The first value of the first row; None if there is no row."""
        found = self.rows(statement)
        return found[0][0] if found else None

    def count(self, statement: str) -> int:
        return int(self.one(statement) or 0)

    def numbers(self, statement: str) -> set[int]:
        """The first value of each row."""
        return {int(row[0]) for row in self.rows(statement)}

    def attempt(self, statement: str) -> None:
        """Whatever comes of it: the server may have done it by itself, or be gone."""
        try:
            self.run(statement)
        except (driver().Error, OSError):
            pass

    def cursor_run(self, statement: str) -> tuple[list[tuple[Any, ...]], int]:
        with self.connection.cursor() as cursor:
            count = cursor.execute(statement)
            return list(cursor.fetchall()), count

    def together(self, statements: Sequence[str]) -> list[list[tuple[Any, ...]]]:
        """In one journey where the server can (MariaDB); none comes after one that fails. The rows of those that
        have any."""
        connection: Any = self.connection
        if "MariaDB" in str(connection.get_server_info()):
            statements = [f"BEGIN NOT ATOMIC {'; '.join(statements)}; END"]
        found: list[list[tuple[Any, ...]]] = []
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                more: bool | None = True
                while more:
                    if cursor.description:
                        found.append(list(cursor.fetchall()))
                    more = cursor.nextset()
        return found

    def last_number(self) -> int:
        """Which the last INSERT of ours was given."""
        connection: Any = self.connection
        return int(connection.insert_id())

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Row by row, however many there are."""
        from pymysql.cursors import SSCursor

        with self.connection.cursor(SSCursor) as cursor:
            cursor.execute(statement)
            yield from cursor

    def text(self, value: str) -> str:
        return f"CONVERT(x'{value.encode().hex()}' USING utf8mb4)" if value else "''"

    def close(self) -> None:
        try:
            self.connection.close()
        except (driver().Error, OSError):
            pass  # the other end has hung up first


def driver() -> Any:
    """Its errors; loaded with the first connection."""
    from pymysql import err

    return err


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def connected(database: Database, url: str) -> Wire:
    try:
        import pymysql
    except ImportError:
        raise Misuse(
            "A MariaDB or MySQL database needs takeback[mariadb].", hint=install_hint("mariadb")
        ) from None
    options = _options(url)
    try:
        with words(database):
            connection: Any = pymysql.connect(**options)
            # It was only for the greeting: what else would be silent for long is at work.
            connection._read_timeout = None
            return Wire(connection, database)
    except ResourceUnreachable as error:
        raise ServerUnreachable(str(error), hint=error.hint) from None


def _options(url: str) -> dict[str, Any]:
    from urllib.parse import parse_qs, unquote, urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:
        raise Misuse(f"{without_password(url)!r} is no address of a database.", hint=_EXAMPLE) from None
    name = unquote(parts.path.lstrip("/"))
    if not name or "/" in name:
        raise Misuse(f"{without_password(url)!r} names no database on the server.", hint=_EXAMPLE)
    query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
    for key in sorted(query.keys() - _KNOWN):
        raise Misuse(
            f"{without_password(url)!r} has an option that is not known: {key}.",
            hint=f"Known are {', '.join(sorted(_KNOWN))}.",
        )
    options: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password or ""),
        "database": name,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": PATIENCE,
        "read_timeout": PATIENCE,
        "program_name": "takeback",
    }
    if socket := query.get("unix_socket") or query.get("socket"):
        options["unix_socket"] = socket
    local = "unix_socket" in options or options["host"] in ("localhost", "127.0.0.1", "::1")
    if local and not any(key.startswith("ssl") for key in query):
        options["ssl_disabled"] = True  # the certificates of the machine take a quarter of a second to read
    return options | {key: query[key] for key in ("ssl_ca", "ssl_cert", "ssl_key") if key in query}


# `charset` and `ssl` are for other drivers that use the same address: text is text here, and TLS is used anyway.
_KNOWN = frozenset(("unix_socket", "socket", "ssl", "ssl_ca", "ssl_cert", "ssl_key", "charset"))
_EXAMPLE = "For example mariadb://user:password@host:3306/database."


@contextmanager
def words(database: Database) -> Iterator[None]:
    """Errors of the driver as errors of ours. The message of the server is repeated: the statement is the caller's."""
    try:
        yield
    except (driver().Error, OSError) as error:
        raise told(error, database) from error


def code_of(error: BaseException) -> int:
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, and with it the answer."""
    if isinstance(error, driver().ProgrammingError):
        return False  # the driver did not even send it
    return isinstance(error, (OSError, driver().InterfaceError)) or code_of(error) in _LOST


def told(error: BaseException, database: Database) -> TakebackError:
    code = code_of(error)
    says = str(error.args[1]) if len(error.args) > 1 else str(error)
    where = without_password(database.url)
    if code in LOCKED:
        return StoreBusy(f"{where}: someone else is changing the same rows: {says}", hint="Try again.")
    for codes, sentence, hint in _UNREACHABLE:
        if code in codes:
            return ResourceUnreachable(sentence.format(where=where, says=says), hint=hint)
    if is_lost(error):
        return ResourceUnreachable(
            f"{where} does not answer: {says}", hint="Is the server running? Then try again."
        )
    return StatementFailed(
        f"The database said no ({code}): {says}", hint="It was rolled back: nothing was changed."
    )


def of(alias: str, names: Iterable[str]) -> list[str]:
    return [f"{alias}.{quoted(name)}" for name in names]


def equal(ones: Iterable[str], others: Iterable[str]) -> str:
    return " AND ".join(f"{one} = {other}" for one, other in zip(ones, others, strict=True))


def listed(names: Sequence[str], alias: str = "") -> str:
    before = f"{alias}." if alias else ""
    return ", ".join(before + quoted(name) for name in names)
