"""A connection: questions to the server, values it answers with, and what its errors mean for us."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.database import SECONDS, USUAL, Waiting
from takeback.errors import (
    Misuse,
    Refused,
    ResourceUnreachable,
    ServerUnreachable,
    StatementFailed,
    StoreBusy,
    TakebackError,
)
from takeback.model.database import busy
from takeback.model.words import install_hint

if TYPE_CHECKING:
    from takeback.adapters.postgres.patient_connection import PatientConnection as Connection
else:
    Connection = Any  # its class is loaded with the driver, when the first one is opened


_TIMES = ("date", "timestamp", "timestamptz")


def read_all_times(connection: Connection) -> None:
    from psycopg import DataError, adapters
    from psycopg.abc import AdaptContext, Buffer, Loader
    from psycopg.pq import Format

    def or_text(usual: type[Loader]) -> type[Loader]:
        class OrText:
            format = Format.TEXT

            def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
                self._usual = usual(oid, context)

            def load(self, data: Buffer) -> Any:
                try:
                    return self._usual.load(data)
                except DataError:
                    return bytes(data).decode()

        return OrText

    for name in _TIMES:
        oid = adapters.types[name].oid
        usual = adapters.get_loader(oid, Format.TEXT)
        assert usual
        connection.adapters.register_loader(oid, or_text(usual))


OLDEST = 140000
_TOO_MANY = "number of parameters must be between"  # the driver says so before it sends anything
APPLICATION = "takeback"
# What we compare as text must not depend on what a role or a database has set.
PLAINLY = (
    "set datestyle = 'ISO, YMD'; set intervalstyle = postgres; set extra_float_digits = 1; set bytea_output = hex; "
    "set xmloption = content; set row_security = off; set statement_timeout = 0; set jit = off; "
    "set max_parallel_workers_per_gather = 0; "
    "set idle_in_transaction_session_timeout = 0; set default_transaction_isolation = 'read committed'; "
    "set synchronous_commit to on; set client_min_messages = warning; set work_mem = '32MB'; set temp_buffers = '64MB'"
    "; set enable_nestloop = on; set plan_cache_mode = force_generic_plan"
)


def driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise Misuse("PostgreSQL needs takeback[postgres].", hint=install_hint("postgres")) from None
    return psycopg


def connect(url: str, waiting: Waiting = USUAL, first: str = "") -> Connection:
    """In autocommit mode: every transaction is begun and ended by name. `first` is run at once."""
    driver()  # or the hint how to install it
    from takeback.adapters.postgres.patient_connection import Lookout, PatientConnection

    scheme, separator, rest = url.partition("://")
    # `postgresql+psycopg://` is what others write.
    url = f"{scheme.partition('+')[0]}{separator}{rest}"

    def another() -> Connection:
        return PatientConnection.connect(
            url, autocommit=True, connect_timeout=10, fallback_application_name=APPLICATION
        )

    try:
        connection = another()
    except driver().OperationalError as error:
        raise ServerUnreachable(
            f"PostgreSQL did not let us in: {_first_line(error)}",
            hint="Check the address, the password and that the server is running, then try again. The store keeps no "
            "password: give the address as env:NAME, or have it in TAKEBACK_SQL, PGPASSWORD or ~/.pgpass.",
        ) from None
    except driver().ProgrammingError as error:
        raise Misuse(
            # What stands in quotes may be a password.
            f"The address is not understood: {_before_quote(error)}.",
            hint="postgresql://user@host/name; % is written as %25 in a password.",
        ) from None
    if connection.info.server_version < OLDEST:
        version = connection.info.server_version // 10000
        connection.close()
        raise Refused(
            f"This is PostgreSQL {version}; takeback needs 14 or newer.", hint="Nothing was changed."
        )
    if (connection.info.parameter_status("application_name") or "").endswith(f".{APPLICATION}"):
        first = f"set application_name = '{APPLICATION}'; {first}"  # inherited from a program that we run in
    # And so is the mark of that program: what we do is not what it does.
    connection.execute(f"set standard_conforming_strings = on; set takeback.op = ''; {first}".encode())
    connection.lookout = Lookout(waiting, another)
    read_all_times(connection)
    return connection


@contextmanager
def opened(url: str, waiting: Waiting = USUAL) -> Iterator[Connection]:
    """For our own work: nothing that a role or a database has set gets in the way of comparing."""
    connection = connect(url, waiting, PLAINLY)
    try:
        yield connection
    finally:
        connection.close()


class Question(NamedTuple):
    sql: str
    parameters: Sequence[Any] | dict[str, Any] | None = None


def patience(connection: Connection) -> str:
    """A statement that sets how long this transaction waits for locks."""
    seconds = connection.lookout.waiting.seconds if connection.lookout else SECONDS
    return f"set local lock_timeout = '{seconds}s'"


def wait_no_longer(connection: Connection) -> None:
    connection.run(patience(connection))


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    connection.run("begin")
    try:
        yield
    except BaseException:
        connection.give_up()
        raise
    connection.run("commit")


@contextmanager
def understood(what: str = "") -> Iterator[None]:
    """Errors of the driver become ours. The caller has rolled back."""
    try:
        yield
    except driver().Error as error:
        raise translated(error, what) from None


def translated(error: Any, what: str = "") -> TakebackError:
    state: str = error.sqlstate or ""
    said = _first_line(error)
    about = f"{what}: " if what else ""
    if holder := getattr(error, "holder", None):
        return busy(holder, what)
    if not state and _TOO_MANY in said:
        return unfit(said, about)
    if state == "3F000" and 'schema "takeback"' in said:
        return ResourceUnreachable(
            f"{about}the database is no longer protected: the log of takeback was removed.",
            hint="Nothing was changed. Earlier changes there cannot be undone any more. `takeback sql protect` "
            "protects later ones.",
        )
    if not state and not isinstance(error, (driver().OperationalError, driver().InterfaceError)):
        return unfit(said, about)
    if not state or (state[:2] in ("08", "57") and state != "57014"):
        return ResourceUnreachable(
            f"{about}the connection was lost: {said}", hint="Trying again is safe once the server answers."
        )
    if state in ("55P03", "40P01", "40001"):
        return StoreBusy(
            f"{about}others are at work on the same rows: {said}", hint="Nothing was changed; try again."
        )
    if state[:2] == "53" or state == "58030":
        hint = "Nothing was changed. Make room on the server, then try again."
        return ResourceUnreachable(f"{about}{said}", hint=hint)
    if state == "25006":
        hint = "It is a replica, or set to read only."
        return ResourceUnreachable(f"{about}the server takes no changes: {said}", hint=hint)
    if state == "42501":
        return Refused(
            f"{about}{said}",
            hint="Nothing was changed. `takeback sql doctor` lists what this role may do. Undo needs a role that owns "
            "the tables: put its address in NAME if you used env:NAME, else in TAKEBACK_SQL.",
        )
    return StatementFailed(f"{about}{said}", hint=_hint(error))


def unfit(said: object, about: str = "") -> StatementFailed:
    """The driver did not take the statement with these parameters, or could not read the answer."""
    return StatementFailed(
        f"{about}{said}",
        hint="Nothing was changed. Look at the statement and its parameters; %% stands for a %.",
    )


def _hint(error: Any) -> str:
    diagnosis = error.diag
    words = ["Nothing was changed."]
    if diagnosis.statement_position:
        words.append(f"At character {diagnosis.statement_position} of the statement.")
    if hint := (diagnosis.message_hint or "").removeprefix(words[0]).strip():
        words.append(hint)
    words.append(f"(SQLSTATE {error.sqlstate})")
    return " ".join(words)


def _before_quote(error: Exception) -> str:
    return _first_line(error).partition('"')[0].rstrip(": ")


def _first_line(error: Any) -> str:
    """The sentence of the server. Not its detail: that quotes rows."""
    primary = error.diag.message_primary if error.diag else None
    text = primary or str(error).strip().partition("\n")[0] or type(error).__name__
    return text if text.endswith((".", "?", "!")) else f"{text}."


def by_socket(url: str) -> bool:
    """As libpq reads an address; where it names no host, that is PGHOST, or the socket of this machine."""
    from urllib.parse import parse_qs, unquote, urlsplit

    parts = urlsplit(url)
    host = unquote(parts.netloc.rpartition("@")[2].partition(":")[0])
    named = parse_qs(parts.query)
    if "hostaddr" in named:
        return False
    host = named.get("host", [host])[0] or os.environ.get("PGHOST", "")
    return not host or host.startswith(("/", "@"))
