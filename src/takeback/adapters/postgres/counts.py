"""How many rows a transaction wrote, as the server counts them: was all of it captured, what came of it?"""

from collections.abc import Collection
from typing import Any, NamedTuple

from takeback.adapters.postgres.connection import Connection, Question
from takeback.adapters.postgres.install import captures
from takeback.adapters.postgres.logs import by_relation, is_wide, log_name, of_op
from takeback.adapters.postgres.row_report import net_counts
from takeback.adapters.postgres.tables import SCHEMA, quoted, tables
from takeback.errors import NoRemedy

# Was everything that a transaction wrote captured? The server counts what a transaction writes to each table, no matter
# who writes and which triggers are switched off; the same number of images must have been written to the logs.


class WrittenTable(NamedTuple):
    """To one table, since the transaction began (or since the server was last told by this session)."""

    oid: int
    root: int
    schema: str
    name: str
    log: int | None
    inserted: int
    updated: int
    deleted: int
    logs: str | None = None  # the table whose log it is

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def images(self) -> int:
        return self.inserted + 2 * self.updated + self.deleted


# Rows that were rolled back to a savepoint are counted too, on both sides. Temporary tables do not count.
_WRITTEN = """
select c.oid::int8, r.root::int8, n.nspname, c.relname, l.no, c.i, c.u, c.d, k.name
from (
  select oid, relname, relnamespace, relispartition, pg_stat_get_xact_tuples_inserted(oid) as i,
    pg_stat_get_xact_tuples_updated(oid) as u, pg_stat_get_xact_tuples_deleted(oid) as d
  from pg_class where relkind in ('r', 'm') and relpersistence <> 't' offset 0
) c
join pg_namespace n on n.oid = c.relnamespace
cross join lateral (select coalesce(case when c.relispartition then pg_partition_root(c.oid)::oid end, c.oid) as root) r
left join takeback.log l on l.relation = r.root
left join takeback.log k on n.nspname = 'takeback' and c.relname = 'log_' || k.no
where c.i <> 0 or c.u <> 0 or c.d <> 0
"""


class Counted(NamedTuple):
    """The changes of a transaction: the logs they are in, and the number of rows by table."""

    logs: tuple[int, ...]
    tables: dict[str, dict[str, int]]


def written(connection: Connection) -> dict[int, WrittenTable]:
    return as_written(connection.ask(*ABOUT_WRITTEN))


ABOUT_WRITTEN = Question(_WRITTEN)


def as_written(rows: list[tuple[Any, ...]]) -> dict[int, WrittenTable]:
    return {row[0]: WrittenTable(*row) for row in rows}


def since(now: dict[int, WrittenTable], before: dict[int, WrittenTable]) -> list[WrittenTable]:
    found: list[WrittenTable] = []
    for oid, one in now.items():
        if earlier := before.get(oid):
            one = one._replace(
                inserted=one.inserted - earlier.inserted,
                updated=one.updated - earlier.updated,
                deleted=one.deleted - earlier.deleted,
            )
        if one.inserted or one.updated or one.deleted:
            found.append(one)
    return found


def counted(connection: Connection, op: int, before: dict[int, WrittenTable]) -> Counted:
    """`NoRemedy` if something was written that no log has. Asked right before the commit; what is deferred to it
    happens first, while it can still be captured and counted."""
    settled = Question("set constraints all immediate")
    _, settings, rows = connection.ask_all([settled, Question(_SETTINGS), ABOUT_WRITTEN])
    told, counts, names = settings[0]
    _refuse_untold(op, told, counts)
    found = since(as_written(rows), before)
    truncated = _numbers(names)
    _refuse_schema(connection, [one for one in found if one.schema == "pg_catalog"], truncated)
    logged = _logged([one for one in found if one.schema == SCHEMA])
    changed: dict[int | None, list[WrittenTable]] = {}
    for one in found:
        if one.schema not in (SCHEMA, "pg_catalog", "information_schema"):
            changed.setdefault(one.log, []).append(one)
    if None in changed:
        raise _not_protected([one.shown for one in changed[None]])
    for log, rows in changed.items():
        assert log is not None
        wrote, kept = sum(one.images for one in rows), logged.get(log, 0)
        if wrote > kept and not _explained(connection, op, log, rows):
            raise _not_captured([one.shown for one in rows])
        if wrote < kept and not truncated:
            raise _not_captured([one.shown for one in rows])
    logs = tuple(sorted(log for log, rows in logged.items() if rows))
    called = {one.name: one.logs or "" for one in found if one.schema == SCHEMA}
    tables = _summed(connection, op, {log: called[f"log_{log}"] for log in logs}, changed, logged)
    return Counted(logs, tables)


def refuse_schema(connection: Connection, before: dict[int, WrittenTable]) -> None:
    """Refuse if the schema was changed so far in a way that takeback does not know."""
    found = since(written(connection), before)
    truncated = _numbers(connection.ask("select current_setting('takeback.truncated', true)")[0][0])
    _refuse_schema(connection, [one for one in found if one.schema == "pg_catalog"], truncated)


_SETTINGS = (
    "select current_setting('takeback.op', true), current_setting('track_counts'), "
    "current_setting('takeback.truncated', true)"
)


def _refuse_untold(op: int, told: str, counts: str) -> None:
    if told != str(op):
        raise NoRemedy(
            "The statement took away the mark by which its changes are known (takeback.op).",
            hint="It was rolled back; nothing was changed. Leave out RESET ALL, and set_config of takeback.op.",
        )
    if counts != "on":
        raise NoRemedy(
            "The server does not count what is written (track_counts is off), so captures cannot be confirmed.",
            hint="It was rolled back; nothing was changed. Switch track_counts on.",
        )


def _numbers(told: str | None) -> set[int]:
    return {int(one) for one in (told or "").split(",") if one}


def _logged(ours: list[WrittenTable]) -> dict[int, int]:
    """Images by log. Any other write to our tables is refused."""
    found: dict[int, int] = {}
    for one in ours:
        number = one.name.removeprefix("log_")
        if one.name.startswith("log_") and number.isdigit() and not one.updated and not one.deleted:
            found[int(number)] = one.inserted
        elif one.name in ("counter", "wide") and not one.deleted and not one.updated:
            continue
        elif not (one.name == "op" and one.inserted == 1 and not one.updated and not one.deleted):
            raise NoRemedy(
                f"The statement changed {one.shown}, which is where the way back is kept.",
                hint="It was rolled back; nothing was changed. Leave the schema `takeback` alone.",
            )
    return found


# A TRUNCATE gives a table new files, and so do the sequences it restarts: only these rows may differ.
_OTHER_RELATIONS = """
select c.oid::regclass::text from pg_class c
where age(c.xmin) <= age(pg_current_xact_id()::xid)
  and not exists (
    select from unnest(%(truncated)s::int8[]) t(oid)
    join pg_class k on k.oid = t.oid
    where c.oid in (k.oid, k.reltoastrelid)
      or exists (select from pg_index i where i.indexrelid = c.oid and i.indrelid in (k.oid, k.reltoastrelid))
      or c.relkind = 'S' and exists (select from pg_depend d where d.objid = c.oid and d.refobjid = k.oid))
"""
# Tables that have new files, and of which nothing is captured: they were truncated.
_UNPROTECTED = """
select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relpersistence <> 't' and age(c.xmin) <= age(pg_current_xact_id()::xid)
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^takeback(_[0-9_]+)?$'
  and not exists (select from takeback.captured k where k.relation = c.oid)
"""
_XIDS = 1 << 32  # then they begin again
_HARMLESS = ("pg_statistic", "pg_statistic_ext_data")


def _refuse_schema(connection: Connection, catalogs: list[WrittenTable], truncated: set[int]) -> None:
    odd = [one for one in catalogs if one.name not in _HARMLESS]
    if not odd:
        return
    if [one.name for one in odd] == ["pg_class"] and not odd[0].inserted and not odd[0].deleted and truncated:
        others = connection.ask(_OTHER_RELATIONS, {"truncated": list(truncated)})
        if not others:
            return
    names = {one.name for one in odd}
    if names == {"pg_class"} and (others := connection.ask(_UNPROTECTED)):
        raise _not_protected([name for (name,) in others])
    what = "large objects" if names <= {"pg_largeobject", "pg_largeobject_metadata"} else "the schema"
    raise NoRemedy(
        f"The statement changes {what}, which takeback cannot take back there.",
        hint="It was rolled back; nothing was changed.",
    )


def _not_protected(names: list[str]) -> NoRemedy:
    shown = ", ".join(sorted(names)[:10])
    return NoRemedy(
        f"Rows were written to {shown}, which takeback does not protect.",
        hint="It was rolled back; nothing was changed. `takeback sql protect` installs the capture for new tables too.",
    )


def _not_captured(names: list[str]) -> NoRemedy:
    shown = ", ".join(sorted(names)[:10])
    return NoRemedy(
        f"Not all that was written to {shown} was captured: a trigger of takeback is missing or switched off there.",
        hint="It was rolled back; nothing was changed. Try again; `takeback sql doctor` lists tables whose triggers "
        "are not as they should be.",
    )


def _explained(connection: Connection, op: int, log: int, rows: list[WrittenTable]) -> bool:
    """More was written than kept. A statement that failed inside a savepoint (or a block with EXCEPTION) wrote rows
    that are gone again, and its triggers never fired. So: are the triggers whole, and is every row that this
    transaction wrote and that is still there in the log?"""
    known = captures(connection)
    if any(one.oid in known and not known[one.oid].attached for one in rows):
        return False
    wide = is_wide(connection, op)
    for table in tables(connection, sorted({one.root for one in rows})):
        ours = ", ".join(f"r.{quoted(column.name)}" for column in table.columns)
        kept = ", ".join(f"l.c{column.number}" for column in table.columns)
        lost = connection.ask(
            f"with top as (select pg_current_xact_id()::text::int8 as xid) "
            f"select 1 from top, {table.source} r where age(r.xmin) <= age(pg_current_xact_id()::xid) "
            f"and pg_xact_status((top.xid + (((r.xmin::text::int8 - top.xid) % {_XIDS}) + {_XIDS}) % {_XIDS})"
            f"::text::xid8) = 'in progress' and not exists (select from {log_name(log)} l "
            f"where {of_op(op, wide)} and l.sign > 0 and row({kept})::text = row({ours})::text) limit 1"
        )
        if lost:
            return False
    return True


def _summed(
    connection: Connection,
    op: int,
    names: dict[int, str],
    changed: dict[int | None, list[WrittenTable]],
    logged: dict[int, int],
) -> dict[str, dict[str, int]]:
    """As the server counted; from the log where it counted something else as well."""
    found: dict[str, dict[str, int]] = {}
    for log, name in names.items():
        rows = changed.get(log, [])
        words = ("inserted", "updated", "deleted")
        numbers = {word: sum(getattr(one, word) for one in rows) for word in words}
        if sum(one.images for one in rows) != logged[log]:
            numbers = by_images(connection, log, of_op(op, is_wide(connection, op)))
        if any(numbers.values()):
            found[name] = numbers
    return found


def by_images(connection: Connection, log: int, which: str) -> dict[str, int]:
    plus, minus = connection.ask(
        f"select count(*) filter (where sign > 0), count(*) filter (where sign < 0) from {log_name(log)} where {which}"
    )[0]
    return from_images(plus, minus)


def from_images(plus: int, minus: int) -> dict[str, int]:
    """At least so many rows: those after, and those before."""
    both = min(plus, minus)
    return {"inserted": plus - both, "updated": both, "deleted": minus - both}


# How many rows an effect changed in the end: a row that was written twice counts once, one that is as it was
# not at all. Without a key, rows that look alike are one as good as the other.


class Netting:
    """For one session, which knows the tables that it has met."""

    def __init__(self) -> None:
        self._keyless: dict[int, bool] = {}  # by log

    def netted(self, connection: Connection, op: int, found: Counted, statements: int) -> Counted:
        """The net counts. The counts of the server are right if one statement wrote to rows with a key."""
        if statements > 1:
            wanted: Collection[int] = found.logs
        else:
            unknown = [log for log in found.logs if log not in self._keyless]
            self._keyless |= _keyless(connection, unknown)
            wanted = [log for log in found.logs if self._keyless.get(log)]
        counts = dict(found.tables)
        if wanted:
            wide = is_wide(connection, op)
            for _, name, one in net_counts(connection, op, list(wanted), wide):
                if name in counts:
                    counts[name] = one
        return found._replace(tables={name: one for name, one in counts.items() if any(one.values())})

    def forget(self) -> None:
        """The schema may have been changed."""
        self._keyless.clear()


def _keyless(connection: Connection, logs: Collection[int]) -> dict[int, bool]:
    if not logs:
        return {}
    by_oid = by_relation(connection, logs)
    return {by_oid[table.oid]: table.key is None for table in tables(connection, list(by_oid))}


class WrittenTally:
    def __init__(self, connection: Connection, before: dict[int, WrittenTable]) -> None:
        self._connection = connection
        # The server counts for a session, and forgets it at most once a second.
        self.before = before
        self._asked = before

    def catalogs(self) -> set[str]:
        """Which of the server's own tables were written to since this was asked last."""
        now = written(self._connection)
        found = {one.name for one in since(now, self._asked) if one.schema == "pg_catalog"}
        self._asked = now
        return found

    def mark(self) -> dict[int, WrittenTable]:
        return written(self._connection)

    def forget_since(self, mark: dict[int, WrittenTable]) -> None:
        """Ignore writes since then."""
        for one in since(written(self._connection), mark):
            self._forget(one)

    def known(self, new: frozenset[int]) -> None:
        """The schema was changed in a known way. The first rows of a new table are part of its creation."""
        for one in since(written(self._connection), self.before):
            if one.schema == "pg_catalog" or one.oid in new:
                self._forget(one)

    def _forget(self, one: WrittenTable) -> None:
        earlier = self.before.get(one.oid, one._replace(inserted=0, updated=0, deleted=0))
        self.before = {
            **self.before,
            one.oid: one._replace(
                inserted=earlier.inserted + one.inserted,
                updated=earlier.updated + one.updated,
                deleted=earlier.deleted + one.deleted,
            ),
        }
