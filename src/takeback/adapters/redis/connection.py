"""One connection to a server: commands go out together, replies come back as the server sent them."""

import os
from collections.abc import Sequence
from typing import Any

from takeback.errors import Misuse, Refused, ResourceUnreachable, ServerUnreachable, StoreBusy, TakebackError
from takeback.model.words import install_hint

Argument = bytes | str | int | float
Command = Sequence[Argument]

ANSWER_WITHIN = 120  # seconds: a DUMP of a large key, or a long queue before ours
CONNECT_WITHIN = 10
NEW_ENOUGH = 7  # PEXPIRETIME, COMMAND GETKEYSANDFLAGS, COPY, key specifications
_NOT_NOW = ("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "MISCONF")


class RedisLink:
    """Not thread-safe. Of the process that made it: a child does not speak on its parent's socket."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._process = os.getpid()
        self.facts: dict[str, str] = {}  # what INFO says, as far as it was asked
        self.identity: str | None = None  # of the database, once it was asked
        self.known: dict[bytes, Any] = {}  # what the server says of its commands

    @property
    def usable(self) -> bool:
        return self._process == os.getpid() and self._connection.is_connected

    @property
    def is_stale(self) -> bool:
        """The server has closed the connection, or sent an unexpected reply."""
        try:
            return self._connection.can_read(timeout=0)
        except _lost():
            return True

    def ask(self, *commands: Command) -> list[Any]:
        """All of them in one round trip. An error of the server stands where its reply would be."""
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
            return [self._reply() for _ in commands]
        except BaseException as error:
            self.close()  # whatever is still to come would be taken for the answer to something else
            if isinstance(error, _lost()):
                raise ResourceUnreachable(
                    f"The connection to Redis was lost ({type(error).__name__}).",
                    hint="Try again when the server answers.",
                ) from None
            raise

    def one(self, *command: Argument) -> Any:
        (reply,) = self.ask(command)
        return good(reply)

    def _reply(self) -> Any:
        from redis.exceptions import ResponseError

        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def close(self) -> None:
        self._connection.disconnect()


def good(reply: Any) -> Any:
    from redis.exceptions import ResponseError

    if isinstance(reply, ResponseError):
        raise trouble(reply)
    return reply


def open_link(url: str, shown: str) -> RedisLink:
    """`shown` is the address without its password."""
    try:
        from redis import connection as driver
        from redis.exceptions import AuthenticationError, ResponseError
    except ImportError:
        raise Misuse("Redis needs takeback[redis].", hint=install_hint("redis")) from None
    settings = _settings(driver, url, shown)
    # The answers of the server, without messages that were not asked for.
    settings |= {"protocol": 2, "decode_responses": False, "client_name": "takeback"}
    settings.setdefault("socket_connect_timeout", CONNECT_WITHIN)
    settings.setdefault("socket_timeout", ANSWER_WITHIN)
    connection = _made(settings.pop("connection_class", driver.Connection), settings)
    try:
        connection.connect()
    except AuthenticationError:
        raise ResourceUnreachable(
            f"{shown} did not accept the user or the password.",
            hint="The store keeps no password: give the address as env:NAME, or with its password in TAKEBACK_SQL.",
        ) from None
    except ResponseError as error:
        if "index" in str(error) and "out of range" in str(error):
            raise ResourceUnreachable(
                f"There is no such database on the server: {shown}.",
                hint="Look at the number at the end of the address; a server has 16 databases, from 0, unless it is "
                "set otherwise.",
            ) from None
        raise trouble(error) from None
    except _lost() as error:
        raise ServerUnreachable(
            f"{shown} does not answer ({type(error).__name__}).",
            hint="Is the server running, and is this its address?",
        ) from None
    return RedisLink(connection)


def _settings(driver: Any, url: str, shown: str) -> dict[str, Any]:
    from urllib.parse import urlsplit

    try:
        settings: dict[str, Any] = driver.parse_url(_for_driver(url))
    except ValueError as error:
        raise Misuse(
            f"{shown} is no address of a Redis server.", hint="For example redis://localhost:6379/0."
        ) from error
    # What the driver cannot read as the number of a database is 0 to it, and 1/2 is 12.
    path = "" if "path" in settings else urlsplit(url).path.strip("/")
    if path and not path.isdecimal():
        raise Misuse(
            f"{shown} names no database of a Redis server: {path!r} is no number.",
            hint="For example redis://localhost:6379/0.",
        )
    return settings


def _made(kind: Any, settings: dict[str, Any]) -> Any:
    """Without telling the server which driver it is: to find that out costs more than all the rest."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    settings["retry"] = Retry(NoBackoff(), 0)
    try:
        return kind(**settings, driver_info=None)
    except TypeError:  # before 7.2 of the driver
        return kind(**settings, lib_name=None, lib_version=None)


def _for_driver(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme.endswith("+unix"):
        return f"unix{separator}{rest}"
    return f"{scheme.replace('valkey', 'redis')}{separator}{rest}"


def _lost() -> tuple[type[Exception], ...]:
    from redis.exceptions import ConnectionError as Lost
    from redis.exceptions import InvalidResponse, TimeoutError

    return (Lost, TimeoutError, InvalidResponse, OSError)


def trouble(error: Exception) -> TakebackError:
    """The error for a server's refusal of one of our own commands."""
    says = str(error)
    code = says.partition(" ")[0]
    if code in _NOT_NOW:
        return StoreBusy(f"Redis cannot do it now: {says}", hint="Try again later.")
    if code == "READONLY":
        return Refused(
            "This Redis server is a replica that takes no changes.", hint="Connect to its primary."
        )
    if code in ("NOPERM", "NOAUTH", "WRONGPASS"):
        return ResourceUnreachable(
            f"The Redis user lacks a right that takeback needs: {says}",
            hint="It needs WATCH, MULTI, EXEC, EVAL, DUMP, RESTORE, COMMAND, INFO, and the keys takeback:*.",
        )
    if code == "OOM":
        return Refused("The Redis server has no memory left for this.", hint="Nothing was changed.")
    return Refused(f"Redis refused a command of takeback: {says}", hint="Nothing was changed.")
