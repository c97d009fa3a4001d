"""A connection that looks, while it waits for an answer, for whom it waits."""

import re
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

import psycopg

from takeback.adapters.database import Waiting
from takeback.model.database import Holder

FIRST_LOOK = 1.0  # seconds: most waits are shorter
_AGAIN = 1.0
HELD = "takeback_"  # and the effect: the name of a held transaction, prepared or of a session
_NAMED = re.compile(rf"{HELD}([0-9a-z]+)\Z")

# Those in the way, and those in their way.
_CHAIN = """
with recursive chain (pid) as (
  select unnest(pg_blocking_pids(%(pid)s))
  union select b.pid from chain c, unnest(pg_blocking_pids(c.pid)) b (pid) where c.pid <> 0)
"""
_SESSIONS = f"""{_CHAIN}
select a.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(a.state, ''),
  coalesce(extract(epoch from clock_timestamp() - a.xact_start)::int8, 0)
from chain c join pg_stat_activity a on a.pid = c.pid
"""
# A transaction that was prepared has no process; it is known by the lock on its own number.
_PREPARED = f"""{_CHAIN}
select distinct x.gid from pg_locks w
join pg_locks h on h.granted and h.pid is null and h.locktype = w.locktype
  and (h.database, h.relation, h.page, h.tuple, h.transactionid, h.classid, h.objid, h.objsubid)
    is not distinct from (w.database, w.relation, w.page, w.tuple, w.transactionid, w.classid, w.objid, w.objsubid)
join pg_locks o on o.pid is null and o.locktype = 'transactionid' and o.virtualtransaction = h.virtualtransaction
join pg_prepared_xacts x on x.transaction = o.transactionid
where not w.granted and (w.pid = %(pid)s or w.pid in (select pid from chain))
"""
_NOT_AVAILABLE = "55P03"
_STOP = "select pg_cancel_backend(pid) from pg_locks where pid = %s and not granted limit 1"


class Waited(psycopg.OperationalError):
    """It waited for a lock until its time was over, and it is known who has that."""

    sqlstate = _NOT_AVAILABLE

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder.words)
        self.holder = holder


class Lookout:
    """For one connection; `found` is who was in the way of the last one that waited long, `stopped` whether we ended
    the waiting for it. `seconds`: how long a held transaction may last; an ordinary session has no limit of ours."""

    def __init__(self, waiting: Waiting, another: "Callable[[], psycopg.Connection[Any]]") -> None:
        self.waiting = waiting
        self._another = another
        self.found: Holder | None = None
        self.stopped = False

    def watched(self, waits: Generator[Any, Any, Any], pid: int) -> Generator[Any, Any, Any]:
        """The same, told now and then that nothing has come yet."""
        self.found, self.stopped = None, False
        began = time.monotonic()
        look_at = began + min(FIRST_LOOK, self.waiting.seconds / 2 or FIRST_LOOK)
        try:
            wanted = next(waits)
            while True:
                ready = yield wanted
                if not ready and (now := time.monotonic()) >= look_at:
                    self._look(pid, now - began)
                    look_at = time.monotonic() + _AGAIN
                wanted = waits.send(ready)
        except StopIteration as end:
            return end.value
        except psycopg.Error as error:
            if self.found and (self.stopped or error.sqlstate == _NOT_AVAILABLE):
                raise Waited(self.found) from error
            raise

    def _look(self, pid: int, waited: float) -> None:
        """Whatever goes wrong here, the statement waits on as it did."""
        try:
            with self._another() as witness:
                holder = _holder(witness, pid)
                if holder is None:
                    return
                if holder != self.found:
                    self.waiting.tell(f"waiting for {holder.words}")
                self.found = holder
                if holder.effect and 0 < self.waiting.seconds <= waited and not self.stopped:
                    self.stopped = bool(witness.execute(_STOP.encode(), [pid]).fetchone())
        except psycopg.Error:
            return


def _holder(witness: "psycopg.Connection[Any]", pid: int) -> Holder | None:
    """Held changes first, because they do not end by themselves."""
    asked = {"pid": pid}
    for (name,) in witness.execute(_PREPARED.encode(), asked):
        if named := _NAMED.match(name):
            return Holder(named[1], lasting=True)
        return Holder(session=f"a prepared transaction, {name}")
    sessions = witness.execute(_SESSIONS.encode(), asked).fetchall()
    for _, application, *_ in sessions:
        if named := _NAMED.match(application):
            return Holder(named[1])
    for number, application, user, state, seconds in sessions:
        return Holder(
            session=f"{application or 'a session'} of {user} (process {number}, {state} for {seconds:,} s)"
        )
    return None


Parameters = Sequence[Any] | dict[str, Any] | None
Questions = Sequence[tuple[str, Parameters]]


class ServerAnswer(NamedTuple):
    rows: list[tuple[Any, ...]]
    number: int  # of rows that were read or written


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    lookout: Lookout | None = None
    keeper: bool | None = None  # may its role see and put back what takeback keeps? Asked once

    def wait(self, gen: Any, *limits: Any, **more: Any) -> Any:
        if self.lookout is None:
            return super().wait(gen, *limits, **more)
        return super().wait(self.lookout.watched(gen, self.info.backend_pid), *limits, **more)

    def ask(self, sql: str, parameters: Parameters = None) -> list[tuple[Any, ...]]:
        cursor = self.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []  # not for queries without columns

    def run(self, sql: str, parameters: Parameters = None) -> int:
        return self.execute(sql.encode(), parameters).rowcount

    def run_all(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self.run(statement)

    def ask_all(self, questions: Questions, again: bool = False) -> list[list[tuple[Any, ...]]]:
        return [one.rows for one in self.answers(questions, again)]

    def answers(self, questions: Questions, again: bool = False) -> list[ServerAnswer]:
        """One after the other, in one trip to the server and back. `again`: the same will be asked on this connection
        once more, so that the server remembers how it finds the answers."""
        with self.pipeline():
            cursors = [
                self.execute(sql.encode(), parameters, prepare=again or None) for sql, parameters in questions
            ]
        return [
            ServerAnswer(cursor.fetchall() if cursor.description else [], cursor.rowcount)
            for cursor in cursors
        ]

    def give_up(self) -> None:
        """Roll back; a connection that is gone has done so."""
        try:
            self.execute(b"rollback")
        except psycopg.Error:
            self.close()
