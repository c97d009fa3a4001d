"""Take a change of the schema back: what it made goes, what it altered is altered back, what it dropped is made again
with the rows that were saved; then everything is read again and compared."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from takeback.adapters.postgres import install
from takeback.adapters.postgres.connection import Connection, driver
from takeback.adapters.postgres.ddl import definitions, dropped_tables, refill
from takeback.adapters.postgres.ddl.definitions import TABLES, Key, SchemaStep, Thing, Things
from takeback.adapters.postgres.ddl.refill import UnfitRows
from takeback.adapters.postgres.ddl.sql import REPLACED, adjust, create, differs, drop, rename, settle
from takeback.adapters.postgres.tables import quoted

# Whether an object of the schema is still what a change made of it.


def all_names(*things: Thing) -> list[str]:
    return list(dict.fromkeys(name for thing in things for name in thing.core))


def three_way(was: Thing | None, became: Thing) -> list[str]:
    """Which attributes must still be what the change left."""
    if was is not None:
        names = [name for name in all_names(was, became) if was.core.get(name) != became.core.get(name)]
        return [*[name for name in names if name != "type"], *_TYPE] if became.kind == "column" else names
    if became.kind == "column":
        return _TYPE
    return [*REPLACED.get(became.kind, ()), "definition", "labels", "attributes", "base"]


_TYPE = ["_type", "_modifier"]


class Odd(Exception):
    """Why it cannot be taken back: the name of the object, and the reason."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why


# Advice to the planner and to storage. No row, rule or right depends on it, so a server that writes it in a new way
# does not take the way back away: the undo says what differs.
_ADVICE = frozenset(("options", "statistics", "storage", "compression"))
_LONGEST = 60  # of a value in a sentence


def reverse(
    connection: Connection, step: SchemaStep, op: int
) -> tuple[list[dropped_tables.TableMove], list[str]]:
    """Tables that it made are put on the shelf of `op`; `Odd` if something is in the way, and then nothing is left of
    it only if the caller rolls back. Returns those tables, and what is not as it was, in sentences."""
    return _Reversal(connection, step, op).carry_out()


class _Reversal:
    def __init__(self, connection: Connection, step: SchemaStep, op: int) -> None:
        self._connection = connection
        self._op = op
        self._step = step
        self._before: Things = {one.key: one for one in step.before}
        self._after: Things = {one.key: one for one in step.after}
        self._now: Things = definitions.read(connection)
        self._moves: list[dropped_tables.TableMove] = []
        self._new: dict[Key, Key] = {}  # what is made again, by what it was
        self._left: list[str] = []

    def carry_out(self) -> tuple[list[dropped_tables.TableMove], list[str]]:
        self._refuse_changed()
        self._rename()
        self._remove()
        self._retype()
        self._make()
        self._adjust()
        self._remember()
        self._compare()
        return self._moves, self._left

    # -- looking

    def _refuse_changed(self) -> None:
        for key, became in self._after.items():
            now, was = self._now.get(key), self._before.get(key)
            if now is None:
                if was is not None:
                    raise Odd(self._shown(became), "was dropped since")
                continue
            here, left = now.doc, became.doc
            other = [name for name in three_way(was, became) if here.get(name) != left.get(name)]
            # An object that is already in its earlier state is no obstacle.
            if other := [name for name in other if was is None or here.get(name) != was.doc.get(name)]:
                raise Odd(self._shown(now), f"was changed since ({', '.join(other).replace('_', '')})")
        for saved in self._step.saved:
            left = saved.get("content") if saved.get("whole") else None  # of a table without a key
            if left is not None and left != dropped_tables.content(self._connection, saved["relation"]):
                table = self._now.get(("relation", saved["relation"], 0))
                name = table.shown if table else str(saved["relation"])
                raise Odd(name, "has no key, and was written to since")
            self._refuse_filled(saved)

    def _refuse_filled(self, saved: dict[str, Any]) -> None:
        """A column that was added, and that others have filled since."""
        for number, value in saved.get("added", {}).items():
            here = saved.get("now", {}).get(int(number), int(number))
            thing = self._now.get(("column", saved["relation"], here))
            if thing is None:
                continue
            asked = [saved["relation"], here, int(number), json.dumps(value)]
            if self._connection.ask("select takeback.filled(%s, %s, %s, %s)", asked)[0][0]:
                raise Odd(self._shown(thing), "was added by the effect, and others have written to it since")

    # -- doing

    def _rename(self) -> None:
        """Until all are called what they were called: one name may have to be free before another can be given."""
        wanted = [
            (key, was)
            for key, was in self._before.items()
            if key in self._after and differs(self._after[key], was, "name", "schema")
        ]

        def act(pair: tuple[Key, Thing]) -> None:
            self._now = definitions.read(self._connection)
            now = self._now[pair[0]]
            self._connection.run_all(rename(now, pair[1], self._home(now)))

        self._all(wanted, act, lambda pair: self._shown(pair[1]))
        if wanted:
            self._now = definitions.read(self._connection)

    def _remove(self) -> None:
        gone = [self._now[key] for key in self._after if key not in self._before and key in self._now]
        made = {one.oid for one in gone if one.is_table}
        gone = [one for one in gone if one.is_table or one.of not in made]
        gone += [
            self._now[key]
            for key, was in self._before.items()
            if key in self._after
            and key in self._now
            and (differs(self._now[key], was, *REPLACED.get(was.kind, ())) or self._narrower(was))
            and not was.doc.get("inherited")
        ]
        columns = {(one.oid, one.part) for one in gone if one.kind == "column"}

        def act(one: Thing) -> None:
            if one.is_table:
                self._put_away(one)
            elif one.kind == "type":
                dropped_tables.put_type(self._connection, self._op, one.sql)
            elif one.key in definitions.read(self._connection):
                self._connection.run(drop(one, self._home(one)))

        # A counter goes with its column.
        gone = [one for one in gone if not one.implied and one.owned[:2] not in columns]
        self._all(sorted(gone, key=lambda one: _LAST.index(one.kind)), act, self._shown)
        if gone:
            self._now = definitions.read(self._connection)

    def _narrower(self, was: Thing) -> bool:
        """A view that was given more columns cannot be replaced by one with fewer."""
        return was.doc.get("_kind") == "v" and any(
            key[:2] == ("column", was.oid) and key not in self._before for key in self._after
        )

    def _put_away(self, one: Thing) -> None:
        for saved in self._step.saved:
            made = saved.get("made") if saved["relation"] == one.oid else ""
            if made and made != dropped_tables.content(self._connection, one.oid):
                raise Odd(one.shown, "was made by the effect, and has other rows since")
        if pointing := dropped_tables.pointing(self._connection, one.oid):
            raise Odd(one.shown, f"was made by the effect, and {pointing} came since and hangs on it")
        self._moves.append(dropped_tables.put(self._connection, self._op, one.oid))

    def _retype(self) -> None:
        retyped = False
        for key, was in self._before.items():
            now = self._now.get(key)
            own = was.kind == "column" and not was.doc.get("inherited") and was.doc.get("_of") in TABLES
            if not own or now is None or not differs(now, was, "_type", "_modifier", "collation"):
                continue
            saved = self._saved(was)
            if "default" in now.doc and not now.doc.get("generated"):
                self._connection.run(
                    f"alter table {self._home(now)} alter column {quoted(now.doc['name'])} drop default"
                )
            try:
                refill.retype(self._connection, saved, _number(was), was.doc)
            except UnfitRows as why:
                raise Odd(self._shown(was), str(why)) from None
            retyped = True
        if retyped:
            self._now = definitions.read(self._connection)

    def _make(self) -> None:
        lost = [was for key, was in self._before.items() if key not in self._now]
        tables = {one.oid for one in lost if one.kind == "relation"}
        wanted = [one for one in lost if not one.implied and not (one.kind == "column" and one.oid in tables)]
        # Reading the catalog takes most of the time: each new object has read the catalog of its moment.
        self._all(sorted(wanted, key=lambda one: _FIRST.index(one.kind)), self._make_one, self._shown)
        for one in lost:
            self._find_again(one)

    def _make_one(self, thing: Thing) -> None:
        parts = list(self._before.values())
        if thing.kind == "type" and dropped_tables.take_type(
            self._connection, thing.oid, thing.doc["schema"]
        ):
            self._now = definitions.read(self._connection)
            return
        self._connection.run_all(create(thing, self._home(thing), parts))
        self._now = definitions.read(self._connection)
        self._find_again(thing)
        if thing.is_table:
            for one in self._step.saved:
                if one["relation"] == thing.oid and "no" in one:
                    refill.refill_table(self._connection, one, self._new[thing.key][1])
        elif thing.kind == "column" and not thing.doc.get("generated"):
            saved = self._saved(thing)
            _, oid, part = self._new[thing.key]
            refill.refill_column(self._connection, saved, oid, _number(thing), part)

    def _find_again(self, thing: Thing) -> None:
        if thing.key in self._now:
            return
        home = self._at(thing.of)
        for key, now in self._now.items():
            if (
                key[0] == thing.kind
                and key not in self._before
                and not differs(now, thing, "name", "schema", "arguments")
                and (thing.kind in ("relation", "function", "type", "schema", "statistics") or now.of == home)
                and now.doc.get("_domain") == self._type_at(thing.doc.get("_domain"))
            ):
                self._new[thing.key] = key
                return

    def _adjust(self) -> None:
        parts = list(self._before.values())

        def act(was: Thing) -> None:
            now = self._now.get(self._new.get(was.key, was.key))
            if now is None:
                return
            home = self._home(now)
            self._connection.run_all([*adjust(now, was, home, parts), *settle(now, was, home)])

        wanted = [
            was
            for was in self._before.values()
            if not (was.doc.get("inherited") and was.kind != "column")
            and (now := self._now.get(self._new.get(was.key, was.key))) is not None
            and now.core != was.core
        ]
        self._all(sorted(wanted, key=lambda one: _FIRST.index(one.kind)), act, self._shown)
        # Some are made along with others: the counter of an identity, an index of a partition.
        if wanted:
            self._now = definitions.read(self._connection)
        for key, was in self._before.items():
            if key not in self._now and self._new.get(key) not in self._now:
                self._find_again(was)
        for was in self._before.values():
            if was.kind == "relation" and "_last" in was.doc and was.key in self._new:
                # A counter continues from its earlier value.
                here = [self._new[was.key][1], was.doc["_last"]]
                self._connection.run("select setval(%s::oid::regclass, %s, true)", here)

    def _remember(self) -> None:
        for old, new in self._new.items():
            if old != new:
                self._connection.run(
                    "insert into takeback.again values (%s, %s, %s, %s, %s)", [*old, new[1], new[2]]
                )
        for (kind, oid, part), (_, new_oid, new_part) in self._new.items():
            if kind == "relation":
                install.follow(self._connection, oid, new_oid)
            elif kind == "column" and oid == new_oid:
                install.renumber(self._connection, oid, part, new_part)

    def _compare(self) -> None:
        self._now = definitions.read(self._connection)
        for key, was in self._before.items():
            now = self._now.get(self._new.get(key, key))
            if now is None:
                raise Odd(self._shown(was), "did not come back")
            other = [name for name in all_names(now, was) if now.core.get(name) != was.core.get(name)]
            if not other or (was.kind == "statistics" and other == ["definition"]):
                continue  # of statistics: columns in another order
            differences = "; ".join(_difference(name, was, now) for name in other)
            if set(other) - _ADVICE:
                raise Odd(self._shown(was), f"did not become what it was ({differences})")
            self._left.append(
                f"{definitions.word(was)} {self._shown(was)} differs from before ({differences})"
            )
        for key, became in self._after.items():
            if key not in self._before and key in self._now:
                raise Odd(self._shown(became), "did not go")

    # -- who is who

    def _at(self, oid: int) -> int:
        return self._new.get(("relation", oid, 0), ("relation", oid, 0))[1]

    def _type_at(self, oid: int | None) -> int | None:
        return oid if not oid else self._new.get(("type", oid, 0), ("type", oid, 0))[1]

    def _table(self, thing: Thing) -> Thing | None:
        """The table that it is part of, as it is now."""
        return self._now.get(("relation", self._at(thing.of), 0)) if thing.of else None

    def _home(self, thing: Thing) -> str:
        """The present name of the object that it is part of."""
        domain = self._type_at(thing.doc.get("_domain"))
        home = self._now.get(("type", domain, 0)) if domain else self._table(thing)
        return home.sql if home else ""

    def _saved(self, column: Thing) -> dict[str, Any]:
        """The rows that have its values of before."""
        for one in self._step.saved:
            if one["relation"] == column.oid and _number(column) in one.get("lost", ()):
                return one
        raise Odd(self._shown(column), "has lost its values of before")

    def _shown(self, thing: Thing) -> str:
        home = self._table(thing)
        return f"{home.shown}.{thing.doc['name']}" if home and thing.kind != "relation" else thing.shown

    def _all(self, things: Sequence[Any], act: Callable[[Any], None], shown: Callable[[Any], str]) -> None:
        """Whatever order they need: those that do not go yet are tried again when others have gone."""
        left = list(things)
        errors: dict[str, str] = {}
        while left:
            later: list[Any] = []
            for one in left:
                self._connection.run("savepoint takeback_one")
                try:
                    act(one)
                    self._connection.run("release savepoint takeback_one")
                except (driver().Error, Odd) as error:
                    if not isinstance(error, Odd) and (error.sqlstate or "")[:2] in _BUSY:
                        raise
                    self._connection.run("rollback to savepoint takeback_one")
                    self._now = definitions.read(self._connection)
                    later.append(one)
                    errors[shown(one)] = (
                        error.why
                        if isinstance(error, Odd)
                        else f"the server says no: {error.diag.message_primary}"
                    )
            if len(later) == len(left):
                name = shown(left[0])
                raise Odd(name, errors[name])
            left = later


_FIRST = [
    "schema", "type", "relation", "function", "column", "index", "constraint", "statistics", "trigger", "rule", "policy"
]  # fmt: skip
_LAST = list(reversed(_FIRST))


def _number(column: Thing) -> int:
    """That it had when its values were saved."""
    return int(column.doc.get("_was", column.part))


_BUSY = ("", "08", "57", "55", "40", "53")  # not a matter of what is done


def _difference(name: str, was: Thing, now: Thing) -> str:
    values = [json.dumps(thing.core.get(name), ensure_ascii=False) for thing in (was, now)]
    return f"{name}: {values[0]} before, {values[1]} now" if max(map(len, values)) <= _LONGEST else name
