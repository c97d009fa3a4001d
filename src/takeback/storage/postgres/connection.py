"""The address of a store in PostgreSQL, a connection to it, how long to wait, and its errors in our own words."""

import json
import select
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import (
    Corrupt,
    Misuse,
    RecordInvalid,
    Refused,
    ResourceUnreachable,
    ServerUnreachable,
    TakebackError,
)
from takeback.model.database import refuse_unclear, without_password
from takeback.model.effect import State
from takeback.model.lifecycle import in_the_way, key_reused, overtaken, superseded, taken_over
from takeback.model.words import install_hint
from takeback.storage import tables

if TYPE_CHECKING:
    from psycopg import Connection


# Waiting for what the server answers, but not for ever: one that hears us and says nothing is as good as gone.
#
# The network notices when it is away. A stopped server, or one whose answers are lost, is not noticed: the network
# accepts what is sent, and all seems well.


SILENCE = 60.0  # seconds without a word; it is longer than any wait of the server for its own locks
_READ, _WRITE = 1, 2  # as the driver has them
_EVENTS = {_READ: select.POLLIN, _WRITE: select.POLLOUT, _READ | _WRITE: select.POLLIN | select.POLLOUT}


@cache
def connections() -> Any:
    """The driver's, which do not wait for ever."""
    import psycopg

    class Patient(psycopg.Connection[Any]):
        def wait(self, gen: Any, *others: Any, **named: Any) -> Any:
            if others or named:  # somebody who knows for how long
                return super().wait(gen, *others, **named)
            try:
                wanted = next(gen)
                while True:
                    wanted = gen.send(_ready(self.pgconn, wanted))
            except StopIteration as end:
                return end.value
            except _Silent:
                self.close()
                raise _silent() from None
            except (KeyboardInterrupt, SystemExit):
                self.close()  # else the statement continues, and may hold a lock that others wait for
                raise

    return Patient


def exec_prepared(speaker: Any, name: bytes, values: Any, formats: list[int]) -> Any:
    """As the driver's, with an end."""
    speaker.send_query_prepared(name, values, formats, 1)
    return _result(speaker)


def prepare(speaker: Any, name: bytes, sql: bytes) -> Any:
    speaker.send_prepare(name, sql)
    return _result(speaker)


def _result(speaker: Any) -> Any:
    try:
        while speaker.flush():
            if _ready(speaker, _READ | _WRITE) & _READ:
                speaker.consume_input()
        last = None
        while True:
            while speaker.is_busy():
                _ready(speaker, _READ)
                speaker.consume_input()
            result = speaker.get_result()
            if result is None:
                return last
            last = result
    except _Silent:
        speaker.finish()
        raise _silent() from None
    except (KeyboardInterrupt, SystemExit):
        speaker.finish()
        raise


class _Silent(Exception):
    pass


def _ready(speaker: Any, wanted: int) -> int:
    poll = select.poll()
    poll.register(speaker.socket, _EVENTS[wanted])
    for _, event in poll.poll(SILENCE * 1000):
        # An error of the connection reaches the next reader.
        return (_READ if event & ~select.POLLOUT else 0) | (_WRITE if event & select.POLLOUT else 0)
    raise _Silent


def _silent() -> Exception:
    import psycopg

    return psycopg.OperationalError(f"The server has not answered for {SILENCE:g} seconds")


SCHEMA = "takeback_store"
OLDEST = 140000
LOCK_SECONDS = 10  # for the turn to append; as long as one waits for a store on disk
# No plan depends on what was counted when the tables were small. Read committed: after the wait for the turn, what the
# one before has committed must be seen. The server ends a transaction that its client does not continue, because all
# others wait for it; and it looks whether the client is still there. Commits are on the disk when they are answered,
# whatever a role has set.
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
            "A store in PostgreSQL needs takeback[postgres].", hint=install_hint("postgres")
        ) from None
    return psycopg


def connect(address: Address) -> "Connection[Any]":
    """Each statement is its own transaction unless one is begun by name."""
    driver()  # or the hint how to install it
    said = {pair.partition("=")[0] for pair in address.url.partition("?")[2].split("&")}
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
    except driver().OperationalError as error:
        raise ServerUnreachable(
            f"The store at {address.shown} cannot be reached: {first_line(error)}",
            hint="Check the address, the password (PGPASSWORD, ~/.pgpass) and that the server is running.",
        ) from None
    except driver().ProgrammingError as error:
        raise Misuse(
            # What stands in quotes may be a password.
            f"The address of the store is not understood: {first_line(error).partition(chr(34))[0].rstrip(': ')}.",
            hint="postgresql://user@host/name; % is written as %25 in a password.",
        ) from None
    return connection


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


_DAMAGED = ("XX001", "XX002")


def is_lost(error: Any) -> bool:
    """Whether the connection was lost: then the outcome of the statement is unknown."""
    state: str = error.sqlstate or ""
    if isinstance(error, driver().InterfaceError):
        return True
    return isinstance(error, driver().OperationalError) and (
        not state or (state[:2] in ("08", "57") and state != "57014")
    )


def translated(error: Any, run: str = "") -> TakebackError:
    state: str = error.sqlstate or ""
    said = first_line(error)
    if state.startswith("TB"):
        return _ours(state, said, json.loads(error.diag.message_detail or "{}"), run)
    if state == "23505":
        return _not_unique(error, said)
    if is_lost(error):
        return ServerUnreachable(
            f"The connection to the store was lost: {said}",
            hint="Trying again is safe once the server answers.",
        )
    if state in ("55P03", "40P01", "40001", "57014"):
        return tables.busy()
    if state in _DAMAGED:
        return tables.damaged(said)
    if state == "25006":
        return ResourceUnreachable(
            f"The store takes no changes: {said}",
            hint="It is a replica, or set to read only. Looking still works.",
        )
    if state == "42501":
        return Refused(f"The store may not be used by this role: {said}", hint="Ask the owner of its schema.")
    if state[:2] in ("53", "58"):
        return ResourceUnreachable(
            f"The store could not be written: {said}", hint="Nothing was changed. Make room on the server."
        )
    if state == "42P01" or state == "3F000":
        return Corrupt(f"The store has lost a table: {said}", hint="Restore it from a backup.")
    if not state or state in ("22021", "22P05"):
        return Misuse(f"The store does not take this: {said}", hint="Text in it holds no NUL characters.")
    return tables.refused_record(said)


def _ours(state: str, said: str, detail: dict[str, Any], run: str) -> TakebackError:
    """The errors that the functions in schema/ raise."""
    effect: str = detail.get("effect", "")
    if state == "TB001":
        return taken_over(run)
    if state in ("TB004", "TB005"):
        return in_the_way(effect, State.STUCK if state == "TB004" else State.INTENDED, detail["resource"])
    if state == "TB006":
        return overtaken(effect)
    if state == "TB010":
        return superseded(effect)
    if state == "TB007":
        return Refused(said, hint="Nothing was recorded.")
    if state == tables.STATE:
        return tables.refused()
    if state == "TB008":
        return Misuse(said, hint="Resume it, or submit another one.")
    return RecordInvalid(said, hint="Run `takeback verify` to see how far the damage goes.")


def _not_unique(error: Any, said: str) -> TakebackError:
    detail: str = error.diag.message_detail or ""
    key = detail.partition("=(")[2].rpartition(")")[0]
    of = {"one_effect_per_key": "effect", "one_run_per_key": "run"}.get(error.diag.constraint_name or "")
    return key_reused(key, of) if of else tables.refused_record(said)
