"""What undo must do to rows, said once more and in the plainest way: whole states, compared key by key."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

Row = tuple[Any, ...]
State = dict[str, Counter[Row]]  # of each table its rows, and how often each is there


class Reference(NamedTuple):
    column: str
    to: str  # a table; its key is meant
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()  # those of the columns that are no numbers
    key: tuple[str, ...] = ()  # none: rows that are equal cannot be told apart
    unique: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    by_place: bool = (
        False  # its key is only where a row happens to be: one that is not there may be elsewhere
    )

    def at(self, row: Row, column: str) -> Any:
        return row[self.columns.index(column)]

    def key_of(self, row: Row) -> Row:
        return tuple(self.at(row, column) for column in self.key)


class Pair(NamedTuple):
    """One key: the row before and after. None: it is not there."""

    before: Row | None
    after: Row | None


class Images(NamedTuple):
    """What an effect did, net."""

    keyed: dict[tuple[str, Row], Pair]  # table and key
    keyless: dict[str, Counter[Row]]  # how many more of each row; fewer is negative

    @property
    def nothing(self) -> bool:
        return not self.keyed and not any(self.keyless.values())


class Verdict(NamedTuple):
    """What must come of an undo."""

    state: State | None  # None: refused, and nothing changed
    conflicts: frozenset[tuple[str, Row]] = frozenset()  # keys; of a table without key the row
    why: str = ""


def difference(tables: tuple[Table, ...], before: State, after: State) -> Images:
    keyed: dict[tuple[str, Row], Pair] = {}
    keyless: dict[str, Counter[Row]] = {}
    for table in tables:
        if not table.key:
            net = Counter(after[table.name])
            net.subtract(before[table.name])
            keyless[table.name] = Counter({row: count for row, count in net.items() if count})
            continue
        old, new = by_key(table, before), by_key(table, after)
        for key in old.keys() | new.keys():
            if old.get(key) != new.get(key):
                keyed[table.name, key] = Pair(old.get(key), new.get(key))
    return Images(keyed, keyless)


def by_key(table: Table, state: State) -> dict[Row, Row]:
    return {table.key_of(row): row for row in state[table.name]}


def taken_back(tables: tuple[Table, ...], images: Images, state: State, policy: str = "refuse") -> Verdict:
    """`refuse`: all or nothing. `skip`: all but what conflicts. `force`: all, whatever is there now."""
    conflicts = frozenset(conflicting(tables, images, state))
    if conflicts and policy == "refuse":
        return Verdict(None, conflicts, "rows were changed since")
    result = {name: Counter(rows) for name, rows in state.items()}
    for (name, key), pair in images.keyed.items():
        if (name, key) in conflicts and policy == "skip":
            continue
        table = named(tables, name)
        current = by_key(table, state).get(key)
        if current is not None:
            del result[name][current]
        if pair.before is not None:
            result[name][pair.before] = 1
    for name, net in images.keyless.items():
        for row, count in net.items():
            if (name, row) in conflicts and policy == "skip":
                continue
            result[name][row] = max(0, result[name][row] - count)
        result[name] = +result[name]
    for sentence in broken(tables, result):
        return Verdict(None, conflicts, sentence)
    return Verdict(result, conflicts)


def conflicting(tables: tuple[Table, ...], images: Images, state: State) -> Iterator[tuple[str, Row]]:
    for (name, key), pair in images.keyed.items():
        table = named(tables, name)
        current = by_key(table, state).get(key)
        lost = table.by_place and current is None and pair.after is not None
        if lost or current not in (pair.before, pair.after):
            yield name, key
    for name, net in images.keyless.items():
        yield from ((name, row) for row, count in net.items() if state[name][row] < count)


def broken(tables: tuple[Table, ...], state: State) -> Iterator[str]:
    """What the database would never have allowed."""
    for table in tables:
        rows = list(state[table.name].elements())
        for columns in [*([table.key] if table.key else []), *((column,) for column in table.unique)]:
            seen = Counter(tuple(table.at(row, column) for column in columns) for row in rows)
            yield from (
                f"{table.name}: {columns} = {value} is there {count} times"
                for value, count in seen.items()
                if count > 1 and None not in value
            )
        for reference in table.references:
            there = by_key(named(tables, reference.to), state)
            wanted = {table.at(row, reference.column) for row in rows} - {None}
            yield from (
                f"{table.name}.{reference.column} = {value}: no such row in {reference.to}"
                for value in wanted
                if (value,) not in there
            )


def rebased(images: Images, skipped: Images, conflicts: frozenset[tuple[str, Row]]) -> Images:
    """The images of the next effect on rows that an undo left as they were: what it would put back is what the undo
    would have put back, not what the effect that was taken back had left."""
    keyed = dict(images.keyed)
    for where in conflicts:
        pair, gone = keyed.get(where), skipped.keyed.get(where)
        if pair and gone and pair.before == gone.after:
            keyed[where] = Pair(gone.before, pair.after)
    return Images(keyed, images.keyless)


def named(tables: tuple[Table, ...], name: str) -> Table:
    return next(table for table in tables if table.name == name)


def told(before: State, after: State) -> str:
    """How two states differ, for whoever reads the failure of a test."""
    lines: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        less, more = before.get(name, Counter()), after.get(name, Counter())
        lines += [f"  {name} - {row} ×{count}" for row, count in sorted((less - more).items(), key=repr)]
        lines += [f"  {name} + {row} ×{count}" for row, count in sorted((more - less).items(), key=repr)]
    return "\n".join(lines) or "  (no difference)"
