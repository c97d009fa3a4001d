"""Stop a program before it makes a change without a way back: changes the schema where no event trigger could save rows
first, or writes to large objects, roles and databases, which no trigger reports.

A connection of ours reads every table, and holds the catalogs of the rest against writers, so no session can change
them without waiting for us. If the program waits, its statement is ended; if another session waits, we release the
locks and come back. If the guard dies, the loss is still reported when the program has ended (`losing`, `witness`)."""

import threading

from takeback.adapters.database import SECONDS, Tell, Waiting
from takeback.adapters.postgres.connection import PLAINLY, Connection, connect, driver
from takeback.adapters.postgres.install import hold
from takeback.adapters.postgres.statements import first_words, split

NAME = "takeback guard"
_LOOKS_AFTER = 0.05
_COMES_BACK = 10  # looks, between two tries to have a table again that somebody else wants for himself
# If this process is stopped or its machine is gone, the server ends the guard, so that no session waits for a dead
# process.
_ALIVE = (
    "set idle_in_transaction_session_timeout = '30s'; set lock_timeout = '%s'; set application_name = '%s'"
)
_AT_ONCE = "set local lock_timeout = '1ms'"
# They need the table for themselves, and lose nothing: truncated rows were captured before.
_HARMLESS = ("TRUNCATE", "LOCK", "VACUUM", "CLUSTER")
_LONGEST = 1000  # of a statement as the server tells it; longer ones are cut off

_TABLE, _SEQUENCE, _CATALOG = "table", "sequence", "catalog"
_OWN = """
select c.oid::int8, case c.relkind when 'S' then 'sequence' else 'table' end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'S') and c.relpersistence <> 't' and pg_has_role(c.relowner, 'usage')
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^takeback_[0-9_]+$'
  and (n.nspname <> 'takeback' or c.relname ~ '^(op$|log_|saved_|left_)')
"""
# Who writes to these is seen by no trigger. Only a superuser may hold them, so only then are they named here.
_CATALOGS = """
select c.oid::int8, 'catalog' from pg_class c where c.relnamespace = 'pg_catalog'::regnamespace
  and c.relname in ('pg_largeobject', 'pg_largeobject_metadata', 'pg_authid', 'pg_auth_members', 'pg_db_role_setting',
    'pg_database', 'pg_tablespace')
  and exists (select from pg_roles r where r.rolname = current_user and r.rolsuper)
"""
_SAYS = {
    "pg_largeobject": "large objects",
    "pg_largeobject_metadata": "large objects",
    "pg_authid": "roles",
    "pg_auth_members": "roles",
    "pg_db_role_setting": "settings of roles",
    "pg_database": "databases",
    "pg_tablespace": "tablespaces",
}
_NAMES = """
select c.oid::int8, format('%%I.%%I', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = any (%s::int8[]) order by c.oid
"""
# The program's sessions are those of our role that began after us; takeback's own say who they are. Catalogs are of the
# whole server, so there only a session that has the program's name is stopped.
_WAITING = """
select l.pid, l.relation::int8, a.query, case when l.relation < 16384 then a.application_name = %s
  else a.usename = session_user and a.backend_start > %s and not starts_with(a.application_name, 'takeback') end
from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and not l.granted and l.relation = any (%s::int8[])
  and l.database in (0, (select oid from pg_database where datname = current_database()))
  and pg_backend_pid() = any (pg_blocking_pids(l.pid))
"""
_GOES_ON = "select 1 from takeback.find(%s) where no is not null and told is null"


class Guard:
    """From before the program starts until it has ended; then `stop` it. All the time the triggers are attached."""

    def __init__(self, url: str, effect: str, tell: Tell, waiting: Waiting) -> None:
        self._effect = effect
        self._name = ""
        self._tell = tell
        self._connection: Connection = connect(url, waiting)
        self._told: set[int] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=NAME, daemon=True)

    def attach(self) -> None:
        """Before the program has a number: what the number is younger than was there when it began."""
        hold(self._connection)

    def start(self, name: str, tables: bool) -> None:
        """`name`: of the program's sessions; `tables`: no event trigger reports changes of tables."""
        self._name = name
        try:
            self._connection.execute(PLAINLY.encode())
            self._connection.execute((_ALIVE % (f"{SECONDS}s", NAME)).encode())
            self._role, self._since = self._connection.ask("select session_user, clock_timestamp()")[0]
            own = self._connection.ask(_OWN) if tables else []
            self._kinds: dict[int, str] = dict([*own, *self._connection.ask(_CATALOGS)])
            self._away = set(self._kinds)  # those that we do not hold
            self._connection.run("begin")
            self._hold(list(self._away))
            self._away.clear()
            self._connection.run(_AT_ONCE)
        except BaseException:
            self._connection.close()
            raise
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        self._connection.close()

    def _hold(self, oids: list[int]) -> None:
        """A table that was dropped in between cannot be held."""
        names = self._connection.ask(_NAMES, [oids])
        for kind, mode in ((_TABLE, "access share"), (_CATALOG, "share")):
            if tables := ", ".join(f"only {name}" for oid, name in names if self._kinds[oid] == kind):
                self._connection.run(f"lock table {tables} in {mode} mode")
        for oid, name in names:
            if self._kinds[oid] == _SEQUENCE:
                self._connection.run(f"select from {name} limit 0")

    def _watch(self) -> None:
        looks = 0
        try:
            while not self._end.wait(_LOOKS_AFTER):
                looks += 1
                try:
                    if not self._connection.ask(_GOES_ON, [self._effect]):
                        return
                    self._look()
                    if self._away and looks % _COMES_BACK == 0:
                        self._come_back()
                except driver().Error:
                    if self._connection.closed:
                        return
                    self._stand_aside()
        except driver().Error:
            return  # the connection is gone
        finally:
            self._connection.close()

    def _look(self) -> None:
        self._connection.ask("select pg_stat_clear_snapshot()")
        held = [oid for oid in self._kinds if oid not in self._away]
        for pid, oid, query, is_program in self._connection.ask(_WAITING, [self._name, self._since, held]):
            if is_program and (self._kinds[oid] == _CATALOG or not _harmless(query)):
                self._connection.ask("select pg_cancel_backend(%s)", [pid])
                self._say(oid)
            else:
                self._stand_aside()
                return

    def _say(self, oid: int) -> None:
        if oid in self._told:
            return
        self._told.add(oid)
        for _, name in self._connection.ask(_NAMES, [[oid]]):
            if self._kinds[oid] == _CATALOG:
                what = _SAYS[name.removeprefix("pg_catalog.")]
                self._tell(
                    f"The program tried to change {what}; that has no way back, so it was stopped.", _OUTSIDE
                )
                return
            self._tell(
                f"The program tried to change the schema of {name}; role {self._role} cannot have that captured, "
                "so it was stopped.",
                "Send it through `takeback sql exec`, which saves what is lost first, or give the address of a "
                "superuser that protected the database (tier full).",
            )

    def _stand_aside(self) -> None:
        """Release the tables that others wait for; hold the rest again at once, and those when they are free."""
        self._connection.run("rollback")
        self._connection.run("begin")
        self._connection.run(_AT_ONCE)
        self._away = set(self._kinds)
        self._come_back()

    def _come_back(self) -> None:
        for oid in sorted(self._away):
            self._connection.run("savepoint back")
            try:
                self._hold([oid])
            except driver().Error:
                self._connection.run("rollback to savepoint back")
            else:
                self._away.discard(oid)
            self._connection.run("release savepoint back")


_OUTSIDE = "Do it yourself, outside takeback."


def _harmless(query: str | None) -> bool:
    if not query or len(query) > _LONGEST:
        return False
    statements = split(query)
    return len(statements) == 1 and first_words(statements[0], 1)[:1] in [[word] for word in _HARMLESS]
