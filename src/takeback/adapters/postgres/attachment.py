"""Attach the triggers of protected tables while a session works there, and remove them afterwards.

Each such session holds a shared advisory lock. The server frees it when the session ends, also after a kill, so the
next session removes triggers that a killed process left."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.adapters.database import SECONDS
from takeback.adapters.postgres.connection import APPLICATION, Connection, Question, driver
from takeback.errors import Refused, RowsHeld

LONGEST = 100  # milliseconds that we stand in front of others who want the table
_IN_USE = (1952539244, 1)
_PAUSES = (0.005, 0.02, 0.05, 0.1, 0.2)  # seconds between two tries; the last one again and again
_AT_ONCE = 3  # tries that do not wait at all
_TO_REMOVE = 1.0  # seconds; what is left then is removed by the next command
_SAYS_AFTER = 1.0
_LINGERS = 0.5

# A database that an older takeback protected has no column `always`, and its triggers stay.
ATTACHED = """
select k.relation::int8, k.relation::regclass::text from takeback.captured k join takeback.log l on l.no = k.log
where not coalesce((to_jsonb(l)->>'always')::boolean, true) and exists (
  select from pg_trigger g where g.tgrelid = k.relation and g.tgname like 'zz\\_takeback\\__')
order by 1
"""
_MISSING = """
select k.relation::int8, takeback.home(k.relation) from takeback.captured k join pg_class c on c.oid = k.relation
where 4 <> (select count(*) from pg_trigger g where g.tgrelid = k.relation and g.tgname like 'zz\\_takeback\\__'
  and g.tgenabled = 'A' and (g.tgname = 'zz_takeback_t' or ((g.tgtype & 1) = 1) = k.by_row))
order by 1
"""
# Those whose locks keep others from attaching triggers.
_HOLDERS = """
select a.pid, coalesce(nullif(a.application_name, ''), a.backend_type, 'a session'), coalesce(a.usename, ''),
  coalesce(a.state, 'active'), coalesce(extract(epoch from clock_timestamp() - a.xact_start)::int8, 0), x.gid
from pg_locks l left join pg_stat_activity a on a.pid = l.pid
left join pg_locks o on l.pid is null and o.pid is null and o.locktype = 'transactionid'
  and o.virtualtransaction = l.virtualtransaction
left join pg_prepared_xacts x on x.transaction = o.transactionid
where l.locktype = 'relation' and l.granted and l.relation = %s and l.pid is distinct from pg_backend_pid()
  and l.database = (select oid from pg_database where datname = current_database())
  and l.mode not in ('AccessShareLock', 'RowShareLock')
order by 5 desc limit 1
"""
_USERS = """
select a.pid, coalesce(a.application_name, ''), coalesce(a.usename, '') from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and (l.classid, l.objid, l.objsubid) = (%s, %s, 2)
  and l.database = (select oid from pg_database where datname = current_database())
order by 1
"""
_PROGRAMS = """
select o.run, o.started::timestamp(0)::text from takeback.op o
where o.logs is null and not o.closed and o.started > clock_timestamp() - interval '1 day' order by o.no
"""


class AttachedTable(NamedTuple):
    oid: int
    name: str


def hold(connection: Connection) -> None:
    """Attach what is missing. It stays attached until this session lets go, or ends. `RowsHeld` if others have a table
    for too long; then nothing is held."""
    questions = [
        Question("begin"),
        Question(f"set local lock_timeout = '{SECONDS}s'"),
        Question("select pg_advisory_lock_shared(%s, %s)", _IN_USE),
        Question(_MISSING),
        Question("commit"),
    ]
    try:
        *_, missing, _ = connection.ask_all(questions)
    except BaseException:
        connection.give_up()
        raise
    try:
        _attach(connection, [AttachedTable(*row) for row in missing])
    except BaseException:
        let_go(connection)
        raise


def _attach(connection: Connection, places: Sequence[AttachedTable]) -> None:
    """One table after the other, each in a transaction of its own, so that others wait for at most one of them."""
    began = time.monotonic()
    for place in places:
        try:
            patiently(connection, place, _with(connection, "select takeback.attach(%s, %s)", place), began)
        except driver().errors.InsufficientPrivilege:
            raise Refused(
                f"The triggers of {place.name} cannot be attached: it has another owner since it was protected.",
                hint="Nothing was changed. Let a superuser run `takeback sql protect`.",
            ) from None


def made_anew(connection: Connection, place: AttachedTable) -> None:
    """By the owner of the table; an older takeback may have made them."""
    patiently(connection, place, _with(connection, "select takeback.make_triggers(%s, %s, true)", place))


def _with(connection: Connection, act: str, place: AttachedTable) -> Callable[[int], Any]:
    return lambda wait: connection.ask(act, [place.oid, wait])


def patiently(
    connection: Connection, place: AttachedTable, act: Callable[[int], Any], began: float | None = None
) -> None:
    """`act` takes the lock of the table and waits for it so many milliseconds. It is tried again and again, with pauses
    in which others get what they want."""
    seconds = connection.lookout.waiting.seconds if connection.lookout else SECONDS
    unavailable = driver().errors.LockNotAvailable
    began, tries, told = began or time.monotonic(), 0, False
    while True:
        try:
            act(0 if tries < _AT_ONCE else LONGEST)
            return
        except unavailable:
            waited = time.monotonic() - began
        if 0 < seconds <= waited:
            raise _locked(place, _holder(connection, place))
        if waited > _SAYS_AFTER and not told and connection.lookout:
            told = True
            connection.lookout.waiting.tell(f"waiting for {_holder(connection, place)}")
        time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
        tries += 1


def _locked(place: AttachedTable, holder: str) -> RowsHeld:
    return RowsHeld(
        f"The triggers of {place.name} cannot be attached or removed now: the table is locked by {holder}.",
        hint="Nothing was changed. Try again when that has ended; the setting lock_seconds is how long takeback "
        "tries. With `takeback sql protect --triggers always` a run needs no lock to begin.",
    )


def _holder(connection: Connection, place: AttachedTable) -> str:
    for number, application, user, state, seconds, prepared in connection.ask(_HOLDERS, [place.oid]):
        if number is None:
            return f"the prepared transaction {prepared}"
        return f"{application} of {user or 'the server'} (process {number}, {state} for {seconds:,} s)"
    return "sessions with short transactions, one after the other"


def let_go(connection: Connection) -> None:
    """The last one removes the triggers. If the connection is lost, the server lets go, and the next command removes
    them."""
    over = Question("select pg_advisory_unlock_shared(%s, %s)", _IN_USE)
    with suppress(driver().OperationalError, driver().InterfaceError):
        _, found = connection.ask_all([over, Question(ATTACHED)])
        remove(connection, [AttachedTable(*row) for row in found])


def sweep(connection: Connection) -> None:
    """Remove unused triggers, which a killed process left."""
    remove(connection, left(connection))


def sweep_after_program(connection: Connection) -> None:
    """The server may need a moment to see that the sessions of the program have ended."""
    deadline = time.monotonic() + _LINGERS
    while any(not name.startswith(APPLICATION) for _, name, _ in connection.ask(_USERS, _IN_USE)):
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSES[0])
        connection.ask("select pg_stat_clear_snapshot()")
    sweep(connection)


def left(connection: Connection) -> list[AttachedTable]:
    """Tables that have their triggers only for now."""
    there = connection.ask("select to_regclass('takeback.captured') is not null")[0][0]
    return [AttachedTable(*row) for row in connection.ask(ATTACHED)] if there else []


def remove(connection: Connection, places: Sequence[AttachedTable]) -> None:
    """Remove those that no session uses, if others release the tables soon enough."""
    deadline = time.monotonic() + _TO_REMOVE
    waiting = list(places)
    for tries in range(_AT_ONCE + len(_PAUSES)):
        busy_ones: list[AttachedTable] = []
        for place in waiting:
            if tries and time.monotonic() > deadline:
                return
            wait = 0 if tries < _AT_ONCE else LONGEST
            try:
                removed = connection.ask("select takeback.detach(%s, %s)", [place.oid, wait])[0][0]
            except driver().errors.LockNotAvailable:
                busy_ones.append(place)
                continue
            except driver().errors.InsufficientPrivilege:
                continue  # it has another owner since
            if not removed:
                return  # somebody else works here, and removes them
        waiting = busy_ones
        if not waiting:
            return
        time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])


def in_use(connection: Connection) -> bool:
    """If not in use, no session can begin to use them before this transaction has ended."""
    alone = connection.ask("select pg_try_advisory_xact_lock(%s, %s)", _IN_USE)[0][0]
    return not alone or connection.ask("select takeback.at_work()")[0][0]


def users(connection: Connection) -> list[str]:
    """Who works here now, in words."""
    found = connection.ask(_USERS, _IN_USE)
    sessions = [f"{name or 'a session'} of {user} (process {pid})" for pid, name, user in found]
    programs = [f"a program of run {run}, since {since}" for run, since in connection.ask(_PROGRAMS)]
    return sessions + programs
