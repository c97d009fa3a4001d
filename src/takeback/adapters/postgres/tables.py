"""Tables from the catalog: columns, keys, foreign keys, sizes, rights."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from takeback.adapters.postgres.connection import Connection, Question

SCHEMA = "takeback"


class PostgresColumn(NamedTuple):
    number: int
    name: str
    type: str  # as it is written in SQL
    collation: str  # "" for that of the type
    generated: bool
    identity: str  # "a" always, "d" by default, "" none
    shape: tuple[int, int, int, int, str]  # number, type, modifier, collation, name


Side = Callable[[int], str]  # of a comparison: a column of a row, by the number of the column


def _compared(left: Iterable[str], operators: Sequence[str], right: Iterable[str]) -> str:
    pairs = zip(left, operators, right, strict=True)
    return " and ".join(f"{one} operator({operator}) {other}" for one, operator, other in pairs)


class Unique(NamedTuple):
    name: str
    columns: tuple[int, ...]  # empty: of expressions, or of some rows only, or an exclusion constraint
    operators: tuple[str, ...]  # that decide whether two are the same
    primary: bool
    never_null: bool

    def same(self, one: Side, other: Side) -> str:
        """That two rows have the same values there."""
        return _compared(map(one, self.columns), self.operators, map(other, self.columns))


class Foreign(NamedTuple):
    """A foreign key: rows of `child` point to rows of `parent`."""

    name: str
    child: int
    child_columns: tuple[int, ...]
    parent: int
    parent_columns: tuple[int, ...]
    operators: tuple[str, ...]
    on_delete: str
    on_update: str
    valid: bool = True  # False: NOT VALID, so rows that were there before it may point nowhere

    def points(self, parent: Side, child: Side) -> str:
        """That the row of the child points to that of the parent."""
        return _compared(map(parent, self.parent_columns), self.operators, map(child, self.child_columns))


class Table(NamedTuple):
    oid: int
    schema: str
    name: str
    kind: str  # "r" ordinary, "p" partitioned, "f" foreign
    owned: bool  # by us, or by a role that we are a member of
    root: int  # of a partition; itself otherwise
    by_row: bool  # part of a tree of plain inheritance
    columns: tuple[PostgresColumn, ...]
    uniques: tuple[Unique, ...] = ()
    triggers: tuple[tuple[str, str], ...] = ()  # of the application: name, and whether it is enabled
    rules: tuple[tuple[str, str], ...] = ()

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def source(self) -> str:
        """To read from, or to write to: its own rows, or those of all its partitions."""
        return self.sql if self.kind == "p" else f"only {self.sql}"

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def key(self) -> Unique | None:
        """The key of its rows: the primary key, or else a unique index of columns that are never null."""
        whole = [one for one in self.uniques if one.columns and one.never_null]
        return next((one for one in whole if one.primary), whole[0] if whole else None)

    @property
    def shape(self) -> list[list[int | str]]:
        return [list(column.shape) for column in self.columns]

    def at(self, alias: str) -> Side:
        return lambda number: f"{alias}.{quoted(self.column(number).name)}"

    def column(self, number: int) -> PostgresColumn:
        return next(column for column in self.columns if column.number == number)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f" E'{escaped.replace(chr(92), chr(92) * 2)}'" if chr(92) in text else f"'{escaped}'"


_TABLES = f"""
select c.oid::int8, n.nspname, c.relname, c.relkind::text,
  pg_has_role(c.relowner, 'usage'),
  coalesce(case when c.relispartition then pg_partition_root(c.oid)::oid end, c.oid)::int8,
  not c.relispartition and c.relkind = 'r' and exists (
    select from pg_inherits i join pg_class k on k.oid in (i.inhparent, i.inhrelid)
    where c.oid in (i.inhparent, i.inhrelid) and k.relkind in ('r', 'f') and not k.relispartition)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'f') and c.relpersistence <> 't'
  and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast', '{SCHEMA}')
  and n.nspname not like 'pg\\_temp\\_%%' and n.nspname !~ '^takeback_[0-9_]+$'
  and (%(oids)s::int8[] is null or c.oid = any (%(oids)s::int8[]))
order by n.nspname, c.relname
"""

# A virtual column is computed when it is read, so there is nothing to keep of it.
_COLUMNS = """
select a.attrelid::int8, a.attnum::int, a.attname, format_type(a.atttypid, a.atttypmod),
  case when a.attcollation <> t.typcollation and a.attcollation <> 0
    then quote_ident(cn.nspname) || '.' || quote_ident(co.collname) else '' end,
  a.attgenerated <> '', a.attidentity::text, a.atttypid::int8, a.atttypmod::int, a.attcollation::int8
from pg_attribute a
join pg_type t on t.oid = a.atttypid
left join pg_collation co on co.oid = a.attcollation
left join pg_namespace cn on cn.oid = co.collnamespace
where a.attrelid = any (%s::int8[]) and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
order by a.attrelid, a.attnum
"""

_UNIQUES = """
select i.indrelid::int8, c.relname,
  i.indpred is null and i.indexprs is null and not i.indisexclusion, i.indisprimary,
  array(select k::int from unnest(i.indkey::int2[]) with ordinality u(k, p) where p <= i.indnkeyatts order by p),
  array(select coalesce((select quote_ident(n.nspname) || '.' || o.oprname from pg_amop m
      join pg_operator o on o.oid = m.amopopr join pg_namespace n on n.oid = o.oprnamespace
      where m.amopfamily = oc.opcfamily and m.amoplefttype = oc.opcintype and m.amoprighttype = oc.opcintype
        and m.amopstrategy = 3 and m.amopmethod = (select oid from pg_am where amname = 'btree')), '')
    from unnest(i.indclass::oid[]) with ordinality u(k, p) join pg_opclass oc on oc.oid = u.k order by p),
  not exists (select from unnest(i.indkey::int2[]) with ordinality u(k, p)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = u.k
    where p <= i.indnkeyatts and not a.attnotnull)
from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = any (%s::int8[]) and (i.indisunique or i.indisexclusion) and i.indisvalid
order by i.indrelid, i.indisprimary desc, i.indimmediate desc, i.indnkeyatts, c.relname
"""

_TRIGGERS = """
select tgrelid::int8, tgname, tgenabled::text from pg_trigger
where tgrelid = any (%s::int8[]) and not tgisinternal and tgname not like 'zz\\_takeback\\_%%'
order by tgrelid, tgname
"""

_RULES = """
select ev_class::int8, rulename, ev_enabled::text from pg_rewrite
where ev_class = any (%s::int8[]) and rulename <> '_RETURN' order by ev_class, rulename
"""

_FOREIGN = """
select k.conname, k.conrelid::int8, k.conkey::int[], k.confrelid::int8, k.confkey::int[],
  array(select quote_ident(n.nspname) || '.' || o.oprname from unnest(k.conpfeqop) with ordinality u(op, p)
    join pg_operator o on o.oid = u.op join pg_namespace n on n.oid = o.oprnamespace order by p),
  k.confdeltype::text, k.confupdtype::text, k.convalidated
from pg_constraint k
where k.contype = 'f' and k.conparentid = 0
  and (k.conrelid = any (%(oids)s::int8[]) or k.confrelid = any (%(oids)s::int8[]))
order by k.conname
"""


def tables(connection: Connection, oids: Sequence[int] | None = None) -> tuple[Table, ...]:
    """Those that can hold rows of users, with their columns, keys and triggers."""
    if oids is None:
        found = connection.ask(_TABLES, {"oids": None})
        rest = connection.ask_all(questions([row[0] for row in found])[1:])
        return made_of([found, *rest])
    return made_of(connection.ask_all(questions(oids)))


def questions(oids: Sequence[int]) -> list[Question]:
    """The questions, for a caller that sends several at once."""
    numbers = list(oids)
    parts = (_COLUMNS, _UNIQUES, _TRIGGERS, _RULES)
    return [Question(_TABLES, {"oids": numbers}), *(Question(part, [numbers]) for part in parts)]


def made_of(answers: Sequence[list[tuple[Any, ...]]]) -> tuple[Table, ...]:
    found = answers[0]
    columns, uniques, triggers, rules = map(_grouped, answers[1:])
    return tuple(
        Table(
            oid, schema, name, kind, owned, root, by_row,
            tuple(map(_column, columns[oid])), tuple(map(_unique, uniques[oid])),
            tuple(triggers[oid]), tuple(rules[oid]),
        )
        for oid, schema, name, kind, owned, root, by_row in found
    )  # fmt: skip


def _grouped(rows: list[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for oid, *rest in rows:
        found[oid].append(tuple(rest))
    return found


def _column(row: tuple[Any, ...]) -> PostgresColumn:
    number, name, kind, collation, generated, identity, *typed = row
    shape: Any = (number, *typed, name)
    return PostgresColumn(number, name, kind, collation, generated, identity, shape)


def _unique(row: tuple[Any, ...]) -> Unique:
    name, plain, primary, columns, operators, never_null = row
    used = tuple(operators[: len(columns)])
    whole = plain and all(columns) and all(used)
    return Unique(name, tuple(columns) if whole else (), used, primary, never_null)


_SIZES = """
select o, coalesce((select sum(pg_relation_size(relid)) from pg_partition_tree(o::oid::regclass)),
  pg_relation_size(o::oid::regclass), 0)::int8
from unnest(%s::int8[]) o
"""


class UndoLayout(NamedTuple):
    tables: dict[int, Table]
    foreign: tuple[Foreign, ...]  # that start or end at one of them
    sizes: dict[int, int]  # in bytes
    full: bool  # we may switch off all triggers of a session, foreign keys included


def layout(connection: Connection, oids: Sequence[int]) -> UndoLayout:
    """An undo looks twice, before it is announced and when it is carried out: again, for anything may have changed."""
    asked = [
        *questions(oids),
        Question(_FOREIGN, {"oids": list(oids)}),
        Question(_SIZES, [list(oids)]),
        about_switching_off(connection),
    ]
    *found, foreign, sizes, full = connection.ask_all(asked, again=True)
    known = {one.oid: one for one in made_of(found)}
    keys = tuple(
        Foreign(name, child, tuple(ours), parent, tuple(theirs), tuple(operators), *acts)
        for name, child, ours, parent, theirs, operators, *acts in foreign
    )
    return UndoLayout(known, keys, dict(sizes), full[0][0])


def more(connection: Connection, oids: Sequence[int]) -> dict[int, Table]:
    """Tables at the other end of foreign keys."""
    return {one.oid: one for one in made_of(connection.ask_all(questions(oids), again=True))} if oids else {}


def may_switch_off(connection: Connection) -> bool:
    """All triggers of a session, foreign keys included."""
    return connection.ask(*about_switching_off(connection))[0][0]


def about_switching_off(connection: Connection) -> Question:
    version = connection.info.server_version
    grant = " or has_parameter_privilege('session_replication_role', 'set')" if version >= 150000 else ""
    return Question(f"select rolsuper{grant} from pg_roles where rolname = current_user")
