"""Which table has which log, whether its triggers are as they must be, and statements refused where not."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from takeback.adapters.database import first_words, frozen
from takeback.adapters.mariadb.logs import (
    META,
    OPS,
    TABLES,
    capture_triggers,
    reached,
    refusing_triggers,
    trigger_name,
    walks,
)
from takeback.adapters.mariadb.shapes import (
    OURS,
    LoggedTable,
    MariaColumn,
    MariaShape,
    Schema,
    fingerprint,
    survey,
)
from takeback.adapters.mariadb.wire import Wire, code_of, driver, quoted
from takeback.errors import NoRemedy

_NO_TABLE = 1146


class Trigger(NamedTuple):
    name: str
    table: str
    event: str  # "BEFORE UPDATE"
    order: int
    body: str | None  # None: this account may not see it


class RegisteredTable(NamedTuple):
    """A table that once got a number; the newest of its name counts."""

    n: int
    name: str  # as it was then
    shape: str
    captured: bool
    described: MariaShape


class LogRegistry(NamedTuple):
    identity: str
    schema: Schema
    entries: dict[int, RegisteredTable]
    triggers: tuple[Trigger, ...]
    numbers: dict[str, int]  # of the tables that have triggers of ours

    def current(self, n: int) -> MariaShape | None:
        """The table as it is now, whatever it is called now; None if it is gone, or is another."""
        for name, number in self.numbers.items():
            if number == n:
                return self.schema.shapes.get(name)
        return None

    def walked(self) -> dict[str, LoggedTable]:
        return {
            name: LoggedTable(n, self.schema.shapes[name])
            for name, n in self.numbers.items()
            if n in self.entries and self.entries[n].captured and name in self.schema.shapes
        }

    def wanted_triggers(self, name: str) -> dict[str, str]:
        """The statements that make the triggers which this table must have."""
        n = self.numbers[name]
        if not self.entries[n].captured:
            return refusing_triggers(n, name)
        tables = self.walked()
        return capture_triggers(tables[name], walks(tables[name], tables, self.schema.links))

    def trouble_with(self, name: str) -> str:
        """Why what is changed in this table would not be captured as it must; "" if it would."""
        n = self.numbers.get(name)
        if n is None or n not in self.entries:
            return "it is new"
        if self.entries[n].captured and fingerprint(self.schema.shapes[name]) != self.entries[n].shape:
            return "its columns were changed since"
        try:
            wanted = self.wanted_triggers(name)
        except KeyError:
            return "a table whose rows go with its rows is not protected"
        here = {one.name: one for one in self.triggers if one.table == name}
        for event, statement in wanted.items():
            found = here.get(trigger_name(event, n))
            if found is None:
                return "a trigger of takeback is gone"
            if found.body is None:
                return "this account may not see its triggers, for which it needs the right TRIGGER"
            if found.body.strip() != statement.partition(" FOR EACH ROW ")[2].strip():
                return "its triggers or foreign keys were changed since"
            last = max(one.order for one in here.values() if one.event == found.event)
            if found.event.startswith("BEFORE") and found.order != last:
                return "another trigger was added, which comes after ours"
        return ""

    def troubles(self) -> dict[str, str]:
        """The tables of which what is changed would be neither captured nor refused by a trigger, and why."""
        return {name: why for name in self.schema.shapes if (why := self.trouble_with(name))}

    def app_triggers(self, name: str) -> list[Trigger]:
        return [one for one in self.triggers if one.table == name and not one.name.startswith(OURS)]

    def drop_triggers(self, wire: Wire, table: str) -> None:
        for one in self.triggers:
            if one.table == table and one.name.startswith(OURS):
                wire.run(f"DROP TRIGGER IF EXISTS {quoted(one.name)}")


def identity_of(wire: Wire) -> str:
    """The id that `protect` gave this database; "" if it never was protected."""
    try:
        return wire.one(f"SELECT value FROM {META} WHERE name = 'identity'") or ""
    except driver().Error as error:
        if code_of(error) == _NO_TABLE:
            return ""
        raise


def read(wire: Wire) -> LogRegistry:
    identity = identity_of(wire)
    tables = wire.rows(f"SELECT n, name, shape, captured, described FROM {TABLES}") if identity else []
    entries = {
        n: RegisteredTable(n, name, shape, bool(captured), shape_from(json.loads(described)))
        for n, name, shape, captured, described in tables
    }
    triggers = tuple(Trigger(*row) for row in wire.rows(_TRIGGERS))
    numbers = {
        trigger.table: int(trigger.name.rpartition("_")[2])
        for trigger in triggers
        if trigger.name.startswith(OURS) and trigger.event in ("AFTER INSERT", "BEFORE INSERT")
    }
    return LogRegistry(identity, survey(wire), entries, triggers, numbers)


_TRIGGERS = (
    "SELECT TRIGGER_NAME, EVENT_OBJECT_TABLE, CONCAT(ACTION_TIMING, ' ', EVENT_MANIPULATION), ACTION_ORDER,"
    " ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()"
)


def shape_from(data: list[Any]) -> MariaShape:
    name, engine, kind, columns, key, uniques = frozen(data)
    return MariaShape(name, engine, kind, tuple(MariaColumn(*one) for one in columns), key, uniques)


def refuse_unprotected(registry: LogRegistry) -> None:
    if not registry.identity:
        raise NoRemedy(
            "The database is not protected: nothing that is changed in it could be taken back.",
            hint="`takeback sql protect URL` installs the capture.",
        )


def op_number(wire: Wire, effect: str, lock: bool = False) -> tuple[int, str, str] | None:
    """Its number, what it undoes, and what has undone it; None: it never happened, or it was taken back whole."""
    rows = wire.rows(
        f"SELECT no, undoes, undone_by FROM {OPS} WHERE op = {wire.text(effect)}{' FOR UPDATE' if lock else ''}"
    )
    return (int(rows[0][0]), str(rows[0][1]), str(rows[0][2])) if rows else None


# Which statements could change a table that is not captured as it must be: they are refused, the others are not.
# Names are looked for as words, anywhere in a text. What is a column of that name is refused too; what could change
# the table is not let through.
_DYNAMIC = re.compile(r"\b(?:EXECUTE|PREPARE)\b", re.IGNORECASE)
_DEFINED = (
    "SELECT TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE() UNION ALL"
    " SELECT ROUTINE_NAME, ROUTINE_DEFINITION FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()"
)


class Bare(NamedTuple):
    """A table that is not captured as it must be."""

    table: str
    why: str

    def told(self, how: str = "") -> str:
        through = f" ({how})" if how else ""
        return f"Changes to table {self.table} would not be captured: {self.why}{through}."


def refuse_reaching(wire: Wire, registry: LogRegistry, statements: Iterable[str]) -> None:
    bad = registry.troubles()
    if not bad:
        return
    names = leading(wire, registry, bad)
    for statement in statements:
        if _is_dynamic(statement):
            raise _refused(next(iter(names.values())), "that statement may change any table")
        for name, bare in names.items():
            if _mentions(statement, name):
                raise _refused(bare, "" if name == bare.table else f"{name} may change it")


def leading(wire: Wire, registry: LogRegistry, bad: Mapping[str, str]) -> dict[str, Bare]:
    """The names by which these tables can be changed: their own, and those of views, routines, and tables whose
    triggers or foreign keys lead there. What a routine does that cannot be read, or that puts statements together, is
    not known."""
    found = {name: Bare(name, why) for name, why in bad.items()}
    some = next(iter(found.values()), None)
    if some is None:
        return {}
    defined = [(str(name), text and str(text)) for name, text in wire.rows(_DEFINED)]
    defined += [(name, one.body) for name in registry.schema.shapes for one in registry.app_triggers(name)]
    found |= {name: some for name, text in defined if not text or _DYNAMIC.search(text)} | found
    grew = True
    while grew:
        before = len(found)
        for name, text in defined:
            led = next((found[one] for one in found if _mentions(text or "", one)), None)
            if led and name not in found:
                found[name] = led
        for name in registry.schema.shapes:
            for child in reached(name, registry.schema.links):
                if child in found and name not in found:
                    found[name] = found[child]
        grew = len(found) > before
    return found


def _is_dynamic(statement: str) -> bool:
    """Which tables it changes stands in no text. Only a block can hold another statement."""
    word = first_words(statement)
    return word in ("EXECUTE", "PREPARE") or (word == "BEGIN" and bool(_DYNAMIC.search(statement)))


def _mentions(text: str, name: str) -> bool:
    spelled = {name, name.replace("`", "``")}
    return any(re.search(rf"(?<![\w$]){re.escape(one)}(?![\w$])", text, re.IGNORECASE) for one in spelled)


def _refused(bare: Bare, how: str) -> NoRemedy:
    hint = "Nothing was changed. `takeback sql protect URL` updates the capture."
    return NoRemedy(bare.told(how), hint=hint)
