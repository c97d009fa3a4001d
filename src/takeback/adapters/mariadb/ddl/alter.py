"""ALTER TABLE and its like. takeback tries the statement on an empty table, to see its effect and that it can be
undone. Values that it would lose are saved first; undo is another ALTER TABLE, which brings them back."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from takeback.adapters.database import frozen
from takeback.adapters.mariadb.ddl import kept_values
from takeback.adapters.mariadb.ddl.kept_values import KeptValues
from takeback.adapters.mariadb.ddl.layout import TableLayout, clauses, layout
from takeback.adapters.mariadb.ddl.rename import added, names_by_columns, orphans
from takeback.adapters.mariadb.logs import LOG_MODE
from takeback.adapters.mariadb.registry import LogRegistry, shape_from
from takeback.adapters.mariadb.shapes import MariaForeignKey, MariaShape, exists, links_from, one_shape
from takeback.adapters.mariadb.statements import AskedDefinition, bare, renamed_columns
from takeback.adapters.mariadb.wire import Wire, listed, quoted
from takeback.errors import Conflict, NoRemedy, StatementFailed

ALTERED = "reshape"
_BEYOND = re.compile(
    r"\b(PARTITION\w*|TABLESPACE|VERSIONING|PERIOD|IGNORE|RENAME(?!\s+(?:COLUMN|INDEX|KEY)\b)|ORDER\s+BY)\b",
    re.IGNORECASE,
)
_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_UNTIES = re.compile(
    rf"\s+DROP\s+(?:FOREIGN\s+KEY|CONSTRAINT)\s+{_NAME}(?:\s*,\s*DROP\s+(?:FOREIGN\s+KEY|CONSTRAINT)\s+{_NAME})*\s*",
    re.IGNORECASE,
)


class TableState(NamedTuple):
    layout: TableLayout
    shape: MariaShape
    links: tuple[MariaForeignKey, ...]


class Reshape(NamedTuple):
    table: str
    before: TableState
    after: TableState
    forth: tuple[str, ...]  # of an ALTER TABLE; without the foreign keys
    back: tuple[str, ...]
    kept: KeptValues
    taken: KeptValues | None = None  # what was kept by the one that this takes back
    statement: str = ""  # as it was asked for; never kept

    @property
    def names(self) -> tuple[str, ...]:
        return (self.table,)

    def inverse(self, effect: str) -> "Reshape":
        renamed = tuple((new, old) for old, new in self.kept.renamed)
        saved, left = f"_tb_kept_{effect}", f"_tb_left_{effect}"
        kept = KeptValues(saved, left, self.kept.becomes, self.kept.was, renamed)
        return Reshape(self.table, self.after, self.before, self.back, self.forth, kept, self.kept)

    def obstacles(self, wire: Wire, registry: LogRegistry, force: bool) -> list[tuple[str, str]]:
        name = self.table
        if name not in registry.schema.shapes:
            return [(name, "is gone")]
        if not _is_same(state_of(wire, name), self.before):
            return [(name, "was altered since")]
        found: list[tuple[str, str]] = []
        for link in _missing(self.after, self.before):
            if not link.elsewhere and link.parent not in registry.schema.shapes:
                found.append((name, f"cannot refer to {link.parent}, which is gone"))
            elif self.taken and (rows := orphans(wire, name, link)):
                found.append((name, f"has {rows} rows that refer to rows of {link.parent} which are gone"))
        if self.taken and not found:
            found += [(name, why) for why in kept_values.conflicts(wire, name, self.taken, force)]
            found += [(name, why) for why in _doubled(wire, self)]
            events = kept_values.fires(self.taken)
            own = [one for one in registry.app_triggers(name) if one.event.split()[1] in events]
            if own and not force:
                names = ", ".join(one.name for one in own)
                found.append((name, f"has triggers of its own ({names}), which would fire; force lets them"))
        return found

    def carry_out(self, wire: Wire, registry: LogRegistry, force: bool) -> None:
        """Called while no one else can use the table."""
        kept_values.prepare(wire, self.kept)
        with _locked(wire, self):
            if not _is_same(state_of(wire, self.table), self.before):
                raise Conflict(
                    f"{self.table} was altered at the same time.", hint="Nothing was changed. Try again."
                )
            if self.taken:
                bad = kept_values.conflicts(wire, self.table, self.taken, force)
                if bad:
                    raise Conflict(f"{self.table} {bad[0]}.", hint="Nothing was changed.")
            kept_values.save(wire, self.table, self.kept)
            if self.taken:
                kept_values.choose(wire, self.table, self.taken, force)
            registry.drop_triggers(wire, self.table)
            if self.taken and kept_values.is_whole(self.kept):
                wire.run(f"DELETE FROM {quoted(self.table)}")
            _alter(wire, self)
            _after(wire, self)

    def is_made(self, wire: Wire) -> bool:
        return exists(wire, self.table) and not _is_same(state_of(wire, self.table), self.before)

    def withdraw(self, wire: Wire) -> None:
        """It was not made: nothing of it stays. Rows that were to be replaced may be gone already."""
        if self.taken and kept_values.is_whole(self.kept) and exists(wire, self.kept.saved):
            wire.run(f"SET SESSION sql_mode = '{LOG_MODE}'")
            kept_values.put_rows_back(wire, self.table, self.kept)
        kept_values.throw_away(wire, self.kept)

    def resume(self, wire: Wire) -> None:
        """It was made, and what comes after it perhaps was not."""
        with _locked(wire, self):
            _after(wire, self)

    def finish(self, wire: Wire) -> "Reshape":
        """As it is to be remembered: with the names that foreign keys were given."""
        return self._replace(after=self.after._replace(links=links_from(wire, self.table)))

    def throw_away(self, wire: Wire, undone: bool) -> None:
        kept_values.throw_away(wire, self.kept)

    def says(self) -> list[str]:
        name, renamed = self.table, dict(self.kept.renamed)
        old, new = dict(self.before.layout.columns), dict(self.after.layout.columns)
        found = [f"Column {name}.{one} is {two} now." for one, two in renamed.items()]
        found += [f"Column {name}.{one} was dropped." for one in old if one not in new and one not in renamed]
        found += [
            f"Column {name}.{one} was added." for one in new if one not in old and one not in renamed.values()
        ]
        found += [f"Column {name}.{one} was changed." for one in new if one in old and old[one] != new[one]]
        pairs = (("was dropped", self.before, self.after), ("was added", self.after, self.before))
        for what, one, other in pairs:
            found += [
                f"Index {key or 'PRIMARY'} of {name} {what}."
                for key, line in one.layout.keys
                if (key, line) not in other.layout.keys
            ]
            found += [f"Foreign key {link.name} of {name} {what}." for link in _missing(one, other)]
        return found or [f"Table {name} was altered."]

    def to_json(self) -> list[Any]:
        kept = [list(self.kept), list(self.taken) if self.taken else None]
        return [ALTERED, self.table, list(self.before), list(self.after), self.forth, self.back, *kept]


class UntriedAlter(NamedTuple):
    table: str
    wanted: AskedDefinition
    effect: str

    @property
    def scratch(self) -> str:
        return f"_tb_try_{self.effect}"


def plan_alter(registry: LogRegistry, wanted: AskedDefinition, effect: str) -> UntriedAlter:
    (name,) = wanted.names
    if name not in registry.schema.shapes:
        raise StatementFailed(f"There is no table {name}.", hint="Nothing was changed.")
    if found := _BEYOND.search(bare(wanted.tail)):
        raise _beyond(f"ALTER TABLE with {found[0].upper()}")
    return UntriedAlter(name, wanted, effect)


def _beyond(what: str) -> NoRemedy:
    return NoRemedy(
        f"{what} could not be taken back.",
        hint="Nothing was changed. takeback can undo changes of columns, keys, checks and foreign keys.",
    )


def state_of(wire: Wire, name: str) -> TableState:
    return TableState(layout(wire, name), one_shape(wire, name), links_from(wire, name))


def _is_same(one: TableState, other: TableState) -> bool:
    """Names of foreign keys do not count: InnoDB gives some of them by itself."""
    return one.layout == other.layout and _bare_links(one.links) == _bare_links(other.links)


def _bare_links(links: tuple[MariaForeignKey, ...]) -> set[MariaForeignKey]:
    return {link._replace(name="", child="") for link in links}


def tried(wire: Wire, trial: UntriedAlter) -> Reshape:
    """On an empty table of the same form, there and back and there again."""
    name, wanted, scratch = trial.table, trial.wanted, trial.scratch
    before = state_of(wire, name)
    kept = KeptValues(f"_tb_kept_{trial.effect}", f"_tb_left_{trial.effect}", before.shape, before.shape, ())
    whole = Reshape(name, before, before, (), (), kept, None, wanted.on(name))
    if gone := _untied(before, wanted):
        links = tuple(link for link in before.links if link.name not in gone)
        return whole._replace(after=before._replace(links=links))
    wire.run(f"CREATE TABLE {quoted(scratch)} LIKE {quoted(name)}")
    wire.run("SET SESSION foreign_key_checks = 1")
    wire.run(wanted.on(scratch))
    wire.run("SET SESSION foreign_key_checks = 0")
    if not exists(wire, scratch):
        raise _beyond("That")
    new = state_of(wire, scratch)
    links = tuple(link._replace(child=name) for link in new.links)
    after = TableState(new.layout, new.shape._replace(name=name), (*before.links, *links))
    if new.shape.engine != before.shape.engine or new.shape.kind != before.shape.kind:
        raise _beyond("Another engine or kind of table")
    if _is_same(before, after):
        raise _beyond("ALTER TABLE that changes nothing which can be seen")
    if new.links:
        drops = ", ".join(f"DROP FOREIGN KEY {quoted(link.name)}" for link in new.links)
        wire.run(f"ALTER TABLE {quoted(scratch)} {drops}")
    renamed = {
        old: new
        for old, new in renamed_columns(wanted).items()
        if old in _names(before) - _names(after) and new in _names(after) - _names(before)
    }
    kept = kept._replace(becomes=after.shape, renamed=tuple(renamed.items()))
    changed = kept_values.changed(kept)
    forth = tuple(clauses(before.layout, after.layout, changed, renamed))
    back = tuple(clauses(after.layout, before.layout, changed, {new: old for old, new in renamed.items()}))
    for steps, end in ((back, before), (forth, after)):
        if steps:
            wire.run(f"ALTER TABLE {quoted(scratch)} {', '.join(steps)}")
        if layout(wire, scratch) != end.layout:
            raise _beyond("What this ALTER TABLE does")
    wire.run(f"DROP TABLE {quoted(scratch)}")
    return whole._replace(after=after, forth=forth, back=back, kept=kept)


def _names(state: TableState) -> set[str]:
    return {name for name, _ in state.layout.columns}


def _untied(before: TableState, wanted: AskedDefinition) -> set[str]:
    """The foreign keys that are dropped, if that is all that is asked for."""
    if not _UNTIES.fullmatch(wanted.tail):
        return set()
    names = {
        name.strip("`").replace("``", "`")
        for name in re.findall(rf"(?:KEY|CONSTRAINT)\s+({_NAME})", wanted.tail, re.IGNORECASE)
    }
    return names if names.issubset(link.name for link in before.links) else set()


def _doubled(wire: Wire, plan: Reshape) -> list[str]:
    """Keys that must be unique again and have duplicates. For columns that do not exist now the server reports it
    later."""
    found: list[str] = []
    there = {column.name for column in plan.before.shape.stored}
    old, new = plan.before.shape, plan.after.shape
    for names in (new.key, *new.uniques):
        if not names or names == old.key or names in old.uniques or not there.issuperset(names):
            continue
        given = " AND ".join(f"r.{quoted(name)} IS NOT NULL" for name in names)
        if wire.rows(
            f"SELECT 1 FROM {quoted(plan.table)} r WHERE {given} GROUP BY {listed(names, 'r')}"
            " HAVING COUNT(*) > 1 LIMIT 1"
        ):
            found.append(f"has rows with the same {', '.join(names)}, which must be unique again")
    return found


def _missing(one: TableState, other: TableState) -> list[MariaForeignKey]:
    """Foreign keys that the one has and the other has not."""
    there = _bare_links(other.links)
    return [link for link in one.links if link._replace(name="", child="") not in there]


@contextmanager
def _locked(wire: Wire, plan: Reshape) -> Iterator[None]:
    """No one else uses the table, and no value is changed on its way."""
    used = [(plan.table, ""), (plan.table, "r"), (plan.kept.saved_name, ""), (plan.kept.left_name, "")]
    if plan.taken:
        used += [(plan.taken.saved_name, "s"), (plan.taken.left_name, "l")]
    wire.run(f"SET @takeback_mode = @@sql_mode, SESSION sql_mode = '{LOG_MODE}'")
    wire.run("LOCK TABLES " + ", ".join(f"{quoted(name)} {alias} WRITE" for name, alias in used if name))
    try:
        yield
    finally:
        wire.run("UNLOCK TABLES")
        wire.run("SET SESSION sql_mode = @takeback_mode")


def _alter(wire: Wire, plan: Reshape) -> None:
    if plan.statement:
        wire.run("SET SESSION sql_mode = @takeback_mode, foreign_key_checks = 1")
        wire.run(plan.statement)
        wire.run(f"SET SESSION sql_mode = '{LOG_MODE}', foreign_key_checks = 0")
        return
    names = names_by_columns(wire, plan.table)
    steps = [f"DROP FOREIGN KEY {quoted(names[link.columns])}" for link in _missing(plan.before, plan.after)]
    steps += [*plan.forth, *(added(link) for link in _missing(plan.after, plan.before))]
    wire.run(f"ALTER TABLE {quoted(plan.table)} {', '.join(steps)}")


def _after(wire: Wire, plan: Reshape) -> None:
    if plan.taken:
        kept_values.bring_back(wire, plan.table, plan.taken)
    kept_values.remember(wire, plan.table, plan.kept)


def from_json(data: list[Any]) -> Reshape:
    _, table, before, after, forth, back, kept, taken = data
    steps = tuple(forth), tuple(back)
    return Reshape(table, _state(before), _state(after), *steps, _kept(kept), _kept(taken) if taken else None)


def _state(data: list[Any]) -> TableState:
    links = tuple(MariaForeignKey(*frozen(one)) for one in data[2])
    return TableState(TableLayout(*frozen(data[0])), shape_from(data[1]), links)


def _kept(data: list[Any]) -> KeptValues:
    saved, left, was, becomes, renamed = data
    return KeptValues(saved, left, shape_from(was), shape_from(becomes), frozen(renamed))
