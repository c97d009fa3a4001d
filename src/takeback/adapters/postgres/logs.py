"""The log of a table: the SQL that makes it and fills it, and how the images of one effect are found there."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.postgres.connection import Connection
from takeback.adapters.postgres.tables import SCHEMA, PostgresColumn, Table, literal, quoted

# How the images of one effect are found. An index of every image would cost as much as the image itself. So only those
# of statements that changed few rows are in one; a statement that changed many says so in `takeback.wide`, and its
# images are found by the blocks they are in.
MANY = 1000  # rows of one statement


def log_name(log: int) -> str:
    return f"{SCHEMA}.log_{log}"


def by_relation(connection: Connection, logs: Collection[int]) -> dict[int, int]:
    """These logs, by the tables that they are of."""
    asked = "select relation::int8, no from takeback.log where no = any (%s)"
    return dict(connection.ask(asked, [list(logs)]))


def is_wide(connection: Connection, op: int) -> bool:
    """Has one of its statements changed many rows?"""
    return bool(connection.ask("select 1 from takeback.wide where op = %s limit 1", [op]))


def of_op(op: int, wide: bool) -> str:
    """The condition for its images. `wide` may be said without need, never be left out."""
    return f"op = {op}" if wide else f"op = {op} and not wide"


class LogReach(NamedTuple):
    """Where in a log images are, from the first to the last of them: places that hold for this transaction. Who knows
    them need not read the images of all others."""

    first: str
    last: str

    @property
    def sql(self) -> str:
        return f"ctid between '{self.first}' and '{self.last}'"


class KeptImages(NamedTuple):
    log: int
    relation: int
    name: str  # of the table, when it was last looked at
    shape: list[Any]  # of the log
    form: list[Any]  # the shape that the table had when the first of the images was written
    first: int  # the statements that wrote them: the first and the last
    last: int
    minus: int  # rows that were, and rows that came to be
    plus: int
    minus_reach: LogReach | None  # where each of them are; of a few, an index knows better
    plus_reach: LogReach | None


def kept(connection: Connection, logs: Sequence[int], images: str, wide: bool) -> list[KeptImages]:
    """In those of the logs that have any; `images` is the condition for them, `wide` if they may be many."""
    if not logs:
        return []
    places = ", ".join(
        f"{end}(ctid) filter (where sign {sign} 0)" if wide else "null"
        for sign in "<>"
        for end in ("min", "max")
    )
    each = " union all ".join(
        f"select {log} as log, min(step) as first, max(step) as last, count(*) filter (where sign < 0) as minus, "
        f"count(*) filter (where sign > 0) as plus, array[{places}]::text[] as places "
        f"from {log_name(log)} where {images}"
        for log in logs
    )
    rows = connection.ask(
        "select l.no, l.relation::int8, l.name, l.shape, coalesce((select f.shape from takeback.form f "
        "where f.log = l.no and f.since <= k.first order by f.since desc limit 1), '[]'), "
        f"k.first, k.last, k.minus, k.plus, k.places from ({each}) k join takeback.log l on l.no = k.log "
        "where k.first is not null order by l.no"
    )
    return [
        KeptImages(*row, *(LogReach(*ends) if all(ends) else None for ends in (places[:2], places[2:])))
        for *row, places in rows
    ]


# The SQL that lets a table keep images of its rows: a log, and functions that write to it. Triggers that call
# them are attached by the database itself (attachment.sql).


EVENTS = {"i": "insert", "u": "update", "d": "delete", "t": "truncate"}
# As in attachment.sql. A program with its own driver has the setting or the name.
_ACTIVE = (
    "(current_setting('takeback.op', true) <> '' or current_setting('application_name') like 'p%.takeback')"
)
_OP = """case when starts_with(current_setting('takeback.op', true), 'p')
      then takeback.program(substr(current_setting('takeback.op'), 2)::bigint)
    when current_setting('takeback.op', true) <> '' then current_setting('takeback.op')::bigint
    else takeback.named_program() end"""

_NAMED = """(select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = tg_relid)"""
_WIDE = """
  if takeback_wide then insert into takeback.wide values (takeback_op); end if;
  """
_TOLD = """
  perform set_config('takeback.truncated',
    concat_ws(',', nullif(current_setting('takeback.truncated', true), ''), tg_relid::int8), true);"""


def trigger_name(event: str) -> str:
    return f"zz_takeback_{event}"


def log_table(log: int, table: Table) -> Iterator[str]:
    """Columns by number, so that it does not matter what they are called later."""
    columns = "".join(f", {place(column)}" for column in table.columns)
    yield (
        f"create table {log_name(log)} (op bigint not null, step bigint not null, sign smallint not null, "
        f"wide boolean not null default false{columns})"
    )
    yield f"create index on {log_name(log)} (op) where not wide"
    yield f"create index on {log_name(log)} using brin (op) with (pages_per_range = 32)"
    # A guest sees the images of its own effects, if it may read the table.
    yield f"alter table {log_name(log)} enable row level security"
    readable = f"using (takeback.own(op) and takeback.readable({log}))"
    yield f"create policy own on {log_name(log)} for select {readable}"
    yield f"grant select on {log_name(log)} to public"
    says = f"Rows of {table.shown} before (-1) and after (+1) what takeback can take back"
    yield f"comment on table {log_name(log)} is {literal(says)}"


def place(column: PostgresColumn) -> str:
    return f"c{column.number} {column.type}" + (f" collate {column.collation}" if column.collation else "")


def functions(log: int, table: Table, root: Table) -> Iterator[str]:
    """One for each event. A partition writes to the log of its root, whose columns have the same names."""
    numbers = {column.name: column.number for column in root.columns}
    into = ", ".join(f"c{numbers[column.name]}" for column in table.columns)
    into = f"{log_name(log)} (op, step, sign, wide{', ' + into if into else ''})"
    names = [f"f{place}" for place, _ in enumerate(table.columns)]
    aliases = f"({', '.join(names)})" if names else ""
    chosen = "".join(f", r.{name}" for name in names)
    old, new = ("(select old.*)", "(select new.*)") if table.by_row else ("takeback_old", "takeback_new")

    def line(sign: int, source: str) -> str:
        values = f"takeback_op, takeback_step, {sign}, takeback_wide{chosen}"
        return f"insert into {into} select {values} from {source} as r{aliases};"

    def wide(source: str) -> str:
        return (
            ""
            if table.by_row
            else f"takeback_wide := exists (select from {source} offset {MANY - 1});{_WIDE}"
        )

    yield _function(table, "i", wide(new) + line(1, new))
    yield _function(table, "u", wide(new) + line(-1, old) + "\n  " + line(1, new))
    yield _function(table, "d", wide(old) + line(-1, old))
    # Named when it runs, because it may be renamed before. A partitioned table has no rows of its own, and its
    # partitions have triggers of their own.
    copy = f"insert into {into} select $1, $2, -1, $3{chosen} from only %s as r{aliases}"
    many = f"select exists (select from only %s offset {MANY - 1})"
    counters = """insert into takeback.counter
    select takeback_op, d.objid, s.last_value, true
    from pg_depend d join pg_class k on k.oid = d.objid and k.relkind = 'S'
    cross join lateral (select pg_sequence_last_value(d.objid) as last_value) s
    where d.refobjid = tg_relid and d.deptype in ('a', 'i') and d.classid = 'pg_class'::regclass
      and s.last_value is not null;"""
    copied = (
        f"execute format({literal(many)}, {_NAMED}) into takeback_wide;{_WIDE}"
        f"execute format({literal(copy)}, {_NAMED}) using takeback_op, takeback_step, takeback_wide;"
    )
    yield _function(table, "t", f"{copied}\n  {counters}{_TOLD}")


def _function(table: Table, event: str, body: str) -> str:
    return f"""create or replace function {function_name(table.oid, event)}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $takeback$
#variable_conflict use_variable
declare
  takeback_op bigint := {_OP};
  takeback_step bigint;
  takeback_wide boolean := false;
begin
  if takeback_op is null then return null; end if;
  takeback_step := nextval('{SCHEMA}.step');
  {body}
  return null;
end $takeback$"""


def function_name(oid: int, event: str) -> str:
    return f"{SCHEMA}.capture_{oid}_{event}"


def detach(table: Table) -> Iterator[str]:
    for event in EVENTS:
        yield f"drop trigger if exists {quoted(trigger_name(event))} on {table.sql}"
    yield from drop_functions(table.oid)


def drop_functions(oid: int) -> Iterator[str]:
    for event in EVENTS:
        yield f"drop function if exists {function_name(oid, event)}()"


def guard(table: Table) -> Iterator[str]:
    """A foreign table cannot be taken back: nothing is written to it while an effect is open."""
    name = quoted(trigger_name("f"))
    yield f"drop trigger if exists {name} on {table.sql}"
    yield (
        f"create trigger {name} before insert or update or delete on {table.sql} for each statement "
        f"when ({_ACTIVE}) execute function {SCHEMA}.refuse()"
    )
    yield f"alter foreign table {table.sql} enable always trigger {name}"
