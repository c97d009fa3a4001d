"""The address of a store in PostgreSQL, and a connection to it."""

from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse, Refused, ServerUnreachable
from takeback.model.database import refuse_unclear, without_password
from takeback.model.extras import install_hint
from takeback.storage.postgres.answering import connections

if TYPE_CHECKING:
    from psycopg import Connection

SCHEMA = "takeback_store"
OLDEST = 140000
LOCK_SECONDS = 10  # for the turn to append; as long as one waits for a store on disk
_PREFIXES = ("postgresql://", "postgres://")
# No plan depends on what was counted when the tables were small. Read committed: after the wait for the turn, what the
# one before has committed must be seen. The server ends a transaction that its client does not go on with, because
# everybody else waits for it; and it looks whether the client is still there. Commits are on the disk when they are
# answered, whatever a role has set.
_FIRST = (
    "set search_path = {schema}, pg_catalog; set default_transaction_isolation = 'read committed'; set jit = off;"
    " set enable_seqscan = off;"
    " set lock_timeout = '{lock}s'; set statement_timeout = 0; set idle_in_transaction_session_timeout = '30s';"
    " set client_min_messages = warning; set bytea_output = hex; set standard_conforming_strings = on;"
    " set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3;"
    " select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
)
# A server that has vanished is noticed, however quiet it is; what the address says of this counts more.
_ALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class Address(NamedTuple):
    url: str  # for the driver; may hold a password
    schema: str = SCHEMA

    @property
    def shown(self) -> str:
        """For people, and what this store is called: without a password."""
        plain = without_password(self.url)
        if self.schema == SCHEMA:
            return plain
        return f"{plain}{'&' if '?' in plain else '?'}schema={self.schema}"


def is_address(path: str) -> bool:
    return path.startswith(_PREFIXES)


def address_of(path: str) -> Address:
    """`?schema=` names another schema than the usual one; all other options are the driver's."""
    refuse_unclear(path)
    place, _, query = path.partition("?")
    schema, kept = SCHEMA, list[str]()
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name == "schema":
            schema = value
        else:
            kept.append(pair)
    if not schema.isascii() or not schema.isidentifier() or len(schema) > 60 or schema.startswith("pg_"):
        raise Misuse(
            f"{schema!r} cannot be the schema of a store.",
            hint="Use letters, digits and _, for example ?schema=team_a.",
        )
    if schema == "takeback":
        raise Misuse(
            "The schema takeback is for what is kept of protected databases.",
            hint=f"Leave ?schema= away ({SCHEMA} is used then), or give another name.",
        )
    return Address(place + ("?" + "&".join(kept) if kept else ""), schema.lower())


def driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise Misuse(
            "A store in PostgreSQL needs takeback[postgres].",
            hint=install_hint("postgres"),
        ) from None
    return psycopg


def connect(address: Address) -> "Connection[Any]":
    """Each statement is its own transaction unless one is begun by name."""
    psycopg = driver()
    said = _options_of(address.url)
    usual = {name: value for name, value in _ALIVE.items() if name not in said}
    try:
        connection = connections().connect(
            address.url,
            autocommit=True,
            application_name="takeback store",
            # What the driver prepares by itself it gives up after a rollback, and all that we have prepared with it.
            prepare_threshold=None,
            **usual,
        )
        _greet(connection, address)
    except psycopg.OperationalError as error:
        raise ServerUnreachable(
            f"The store at {address.shown} cannot be reached: {first_line(error)}",
            hint="Check the address, the password (PGPASSWORD, ~/.pgpass) and that the server is running.",
        ) from None
    except psycopg.ProgrammingError as error:
        raise Misuse(
            # What stands in quotes may be a password.
            f"The address of the store is not understood: {first_line(error).partition(chr(34))[0].rstrip(': ')}.",
            hint="postgresql://user@host/name; % is written as %25 in a password.",
        ) from None
    return connection


def _options_of(url: str) -> set[str]:
    return {pair.partition("=")[0] for pair in url.partition("?")[2].split("&")}


def _greet(connection: "Connection[Any]", address: Address) -> None:
    try:
        if connection.info.server_version < OLDEST:
            version = connection.info.server_version // 10000
            raise Refused(
                f"This is PostgreSQL {version}; a store needs 14 or newer.", hint="Nothing was changed."
            )
        connection.execute(_FIRST.format(schema=address.schema, lock=LOCK_SECONDS).encode())
    except BaseException:
        connection.close()
        raise


def first_line(error: Any) -> str:
    """The sentence of the server. Not its detail: that quotes rows."""
    primary = error.diag.message_primary if error.diag else None
    text = primary or str(error).strip().partition("\n")[0] or type(error).__name__
    return text if text.endswith((".", "?", "!")) else f"{text}."
