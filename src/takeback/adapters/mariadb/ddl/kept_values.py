"""Values that an ALTER TABLE takes away, and those that it left: kept in two tables of ours, by the key of the row.

`was` and `becomes` are the table before and after. Columns that are the same in both are not kept. A row without a
lasting key is kept whole, and comes back only if the table has not changed since.
"""

from typing import NamedTuple

from takeback.adapters.mariadb.shapes import WHOLE, MariaColumn, MariaShape, image
from takeback.adapters.mariadb.wire import LOCKED, Wire, code_of, driver, equal, listed, of, quoted
from takeback.errors import UndoFailed


class KeptValues(NamedTuple):
    saved: str  # names of tables
    left: str
    was: MariaShape
    becomes: MariaShape
    renamed: tuple[tuple[str, str], ...]

    @property
    def saved_name(self) -> str:
        """ "" if nothing needs to be saved."""
        return self.saved if is_whole(self) or _lost(self) else ""

    @property
    def left_name(self) -> str:
        return self.left if is_whole(self) or _gained(self) else ""


def _same(kept: KeptValues) -> dict[str, str]:
    """Columns that are the same, but perhaps for their names."""
    names = {name: name for name in kept.was.names} | dict(kept.renamed)
    there = set(kept.becomes.stored)
    return {
        column.name: names[column.name]
        for column in kept.was.stored
        if column._replace(name=names[column.name]) in there
    }


def changed(kept: KeptValues) -> set[str]:
    """Columns of both that are not the same, by the names that they get."""
    names, same = dict(kept.renamed), _same(kept)
    there = {column.name for column in kept.becomes.columns}
    was = [names.get(column.name, column.name) for column in kept.was.columns if column.name not in same]
    return {name for name in was if name in there}


def _key(kept: KeptValues) -> list[tuple[str, str]]:
    """The key before and after, if rows are found by it on both sides."""
    names, same = dict(kept.renamed), _same(kept)
    pairs = [(name, names.get(name, name)) for name in kept.was.key]
    if {new for _, new in pairs} != set(kept.becomes.key):
        return []
    was = {column.name: column.kind for column in kept.was.stored}
    becomes = {column.name: column.kind for column in kept.becomes.stored}
    return pairs if all(old in same or {was[old], becomes[new]} <= WHOLE for old, new in pairs) else []


def _lost(kept: KeptValues) -> list[MariaColumn]:
    same, key = _same(kept), {old for old, _ in _key(kept)}
    return [column for column in kept.was.stored if column.name not in same and column.name not in key]


def _gained(kept: KeptValues) -> list[MariaColumn]:
    same, key = set(_same(kept).values()), {new for _, new in _key(kept)}
    return [column for column in kept.becomes.stored if column.name not in same and column.name not in key]


def is_whole(kept: KeptValues) -> bool:
    same, stored = _same(kept), (kept.was.stored, kept.becomes.stored)
    return not _key(kept) and (len(same) != len(stored[0]) or len(same) != len(stored[1]))


def fires(taken: KeptValues) -> tuple[str, ...]:
    """What happens to rows when it is put back."""
    if is_whole(taken):
        return ("DELETE", "INSERT")
    return ("UPDATE",) if taken.saved_name else ()


def prepare(wire: Wire, kept: KeptValues) -> None:
    for name, shape, columns in (
        (kept.saved_name, kept.was, _columns_before(kept)),
        (kept.left_name, kept.becomes, _columns_after(kept)),
    ):
        if name:
            wire.run(f"DROP TABLE IF EXISTS {quoted(name)}")
            wire.run(_table(name, shape, columns))


def _columns_before(kept: KeptValues) -> list[MariaColumn]:
    key, lost = {old for old, _ in _key(kept)}, _lost(kept)
    return [one for one in kept.was.stored if is_whole(kept) or one.name in key or one in lost]


def _columns_after(kept: KeptValues) -> list[MariaColumn]:
    key, gained = {new for _, new in _key(kept)}, _gained(kept)
    return [one for one in kept.becomes.stored if is_whole(kept) or one.name in key or one in gained]


def _table(name: str, shape: MariaShape, columns: list[MariaColumn]) -> str:
    inner = ", ".join(f"{shape.logged_name(column.name)} {column.logged_type}" for column in columns)
    there = {column.name for column in columns}
    whole = shape.key and there.issuperset(shape.key)
    key = f", KEY ({', '.join(map(shape.logged_name, shape.key))})" if whole else ""
    return (
        f"CREATE TABLE {quoted(name)} (tb_keep TINYINT NOT NULL DEFAULT 1, {inner}{key})"
        " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC"
    )


def save(wire: Wire, table: str, kept: KeptValues) -> None:
    if kept.saved_name:
        _copy(wire, table, kept.saved, kept.was, _columns_before(kept))


def remember(wire: Wire, table: str, kept: KeptValues) -> None:
    if kept.left_name:
        wire.run(f"DELETE FROM {quoted(kept.left)}")
        _copy(wire, table, kept.left, kept.becomes, _columns_after(kept))


def _copy(wire: Wire, table: str, into: str, shape: MariaShape, columns: list[MariaColumn]) -> None:
    names = ", ".join(shape.logged_name(column.name) for column in columns)
    values = ", ".join(f"r.{quoted(column.name)}" for column in columns)
    wire.run(f"INSERT INTO {quoted(into)} ({names}) SELECT {values} FROM {quoted(table)} r")


def conflicts(wire: Wire, table: str, taken: KeptValues, force: bool) -> list[str]:
    """What of others would be lost if what was taken is put back."""
    for name in (taken.saved_name, taken.left_name):
        if name and not wire.rows(f"SHOW TABLES LIKE '{name}'"):
            return ["was altered, and what was kept of it was removed"]
    if is_whole(taken):
        return _differing(wire, table, taken)
    if force:
        return []
    return _written(wire, table, taken) + _unfit(wire, table, taken) + _without(wire, table, taken)


def _differing(wire: Wire, table: str, taken: KeptValues) -> list[str]:
    shape = taken.becomes._replace(key=())
    rows = wire.rows(
        f"SELECT i FROM (SELECT {shape.live_image('r')} AS i, 1 AS n FROM {quoted(table)} r UNION ALL"
        f" SELECT {shape.logged_image('l')}, -1 FROM {quoted(taken.left)} l) u GROUP BY i HAVING SUM(n) <> 0 LIMIT 1"
    )
    return ["has modified rows, and no key to identify them by"] if rows else []


def _written(wire: Wire, table: str, taken: KeptValues) -> list[str]:
    """Columns that go: somebody has written something else than the ALTER TABLE had put there."""
    found: list[str] = []
    there = {new for _, new in taken.renamed} | {column.name for column in taken.was.columns}
    for column in _gained(taken):
        if column.name in there:
            continue
        value, logged = _live([column]), _kept([column], taken.becomes, "l")
        left = (
            f"{quoted(taken.left)} l ON {_on_left(taken)} WHERE l.tb_keep IS NOT NULL AND {value} <> {logged}"
        )
        new = f"OR l.tb_keep IS NULL AND NOT ({_is_default(wire, table, column)})"
        if rows := _rows(wire, table, taken, f"{left} {new}"):
            found.append(f"has values in column {column.name} that were written since ({rows})")
    return found


def _live(columns: list[MariaColumn]) -> str:
    return image(columns, of("r", (column.name for column in columns)))


def _kept(columns: list[MariaColumn], shape: MariaShape, alias: str) -> str:
    return image(columns, shape.logged(alias, (column.name for column in columns)))


def _rows(wire: Wire, table: str, taken: KeptValues, joined: str) -> str:
    """The key of one that is found so, and how many more there are; "" if there is none."""
    parts = ", ', ', ".join(f"{wire.text(f'{new}=')}, r.{quoted(new)}" for _, new in _key(taken))
    shown = f"SELECT CONCAT({parts}), COUNT(*) OVER () FROM {quoted(table)} r"
    for key, many in wire.rows(f"{shown} LEFT JOIN {joined} LIMIT 1"):
        one = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
        return one if many == 1 else f"{one}, and {many - 1} more rows"
    return ""


def _on_left(taken: KeptValues) -> str:
    news = [new for _, new in _key(taken)]
    return equal(of("r", news), taken.becomes.logged("l", news))


def _on_saved(taken: KeptValues) -> str:
    pairs = _key(taken)
    return equal(of("r", (new for _, new in pairs)), taken.was.logged("s", (old for old, _ in pairs)))


def _is_default(wire: Wire, table: str, column: MariaColumn) -> str:
    """For a row that came later. Without a default somebody has written it."""
    try:
        wire.rows(f"SELECT DEFAULT(r.{quoted(column.name)}) FROM {quoted(table)} r LIMIT 1")
    except driver().Error:
        return "FALSE"
    return f"r.{quoted(column.name)} <=> DEFAULT(r.{quoted(column.name)})"


def _both(taken: KeptValues) -> list[tuple[MariaColumn, MariaColumn]]:
    """Columns that were changed: as they were, and as they became."""
    names = dict(taken.renamed)
    gained = {column.name: column for column in _gained(taken)}
    pairs = [(column, gained.get(names.get(column.name, column.name))) for column in _lost(taken)]
    return [(old, new) for old, new in pairs if new]


def _unfit(wire: Wire, table: str, taken: KeptValues) -> list[str]:
    """Columns that become again what they were: what others wrote there must fit."""
    pairs = _both(taken)
    if not pairs:
        return []
    inner = ", ".join(
        f"a{at} {old.logged_type}, b{at} {new.logged_type}, o{at} {new.logged_type}"
        for at, (old, new) in enumerate(pairs)
    )
    names = ", ".join(f"a{at}, o{at}" for at in range(len(pairs)))
    values = ", ".join(f"r.{quoted(new.name)}, r.{quoted(new.name)}" for _, new in pairs)
    wire.run("DROP TEMPORARY TABLE IF EXISTS _tb_fit")
    wire.run(f"CREATE TEMPORARY TABLE _tb_fit ({inner}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4")
    told = f"has values in column {pairs[0][1].name} that were written since and did not fit before"
    try:
        wire.run(
            f"INSERT INTO _tb_fit ({names}) SELECT {values} FROM {quoted(table)} r LEFT JOIN {quoted(taken.left)} l ON"
            f" {_on_left(taken)} WHERE l.tb_keep IS NULL OR NOT ({_untouched(taken)})"
        )
        wire.run("UPDATE _tb_fit SET " + ", ".join(f"b{at} = a{at}" for at in range(len(pairs))))
    except (driver().DataError, driver().OperationalError) as error:
        if code_of(error) in LOCKED:
            raise
        return [told]
    columns = [new for _, new in pairs]
    same = image(columns, [f"b{at}" for at in range(len(pairs))])
    given = " OR ".join(f"o{at} IS NULL" for at, (old, _) in enumerate(pairs) if not old.nullable) or "FALSE"
    bad = wire.rows(
        f"SELECT 1 FROM _tb_fit WHERE {given} OR {same} <> {image(columns, [f'o{at}' for at in range(len(pairs))])}"
        " LIMIT 1"
    )
    wire.run("DROP TEMPORARY TABLE _tb_fit")
    return [told] if bad else []


def _untouched(taken: KeptValues) -> str:
    """Whether a row has in the changed columns what the ALTER TABLE left there."""
    columns = [new for _, new in _both(taken)]
    return f"{_live(columns)} <=> {_kept(columns, taken.becomes, 'l')}"


def _without(wire: Wire, table: str, taken: KeptValues) -> list[str]:
    """Rows that came later have nothing for a column that must have something."""
    both = {old.name for old, _ in _both(taken)}
    bare = [column.name for column in _lost(taken) if not column.nullable and column.name not in both]
    if not bare:
        return []
    saved = f"{quoted(taken.saved)} s ON {_on_saved(taken)} WHERE s.tb_keep IS NULL"
    rows = _rows(wire, table, taken, saved)
    return [f"has rows that came since and have no value for {bare[0]} ({rows})"] if rows else []


def choose(wire: Wire, table: str, taken: KeptValues, force: bool) -> None:
    """Which rows get the saved value of a column that was changed: rows in which that column was not changed since."""
    if is_whole(taken) or not _both(taken):
        return
    wire.run(
        f"UPDATE {quoted(taken.saved)} s JOIN {quoted(table)} r ON {_on_saved(taken)} JOIN {quoted(taken.left)} l ON"
        f" {_on_left(taken)} SET s.tb_keep = {'1' if force else f'({_untouched(taken)})'}"
    )


def bring_back(wire: Wire, table: str, taken: KeptValues) -> None:
    """The table is again what it was; now its values."""
    if not taken.saved_name:
        return
    if is_whole(taken):
        put_rows_back(wire, table, taken)
        return
    shape, both = taken.was, {old.name for old, _ in _both(taken)}
    on = " AND ".join(f"r.{quoted(old)} = s.{shape.logged_name(old)}" for old, _ in _key(taken))
    values = [(column, f"s.{shape.logged_name(column.name)}", column.name in both) for column in _lost(taken)]
    sets = [
        f"r.{quoted(column.name)} = "
        + (f"IF(s.tb_keep, {value}, r.{quoted(column.name)})" if some else value)
        for column, value, some in values
    ]
    there = {column.name for column, _, _ in values}
    # Those that the server would set to the time of now.
    sets += [
        f"r.{quoted(column.name)} = r.{quoted(column.name)}"
        for column in shape.stored
        if column.kind in ("timestamp", "datetime") and column.name not in there
    ]
    wire.run(f"UPDATE {quoted(table)} r JOIN {quoted(taken.saved)} s ON {on} SET {', '.join(sets)}")
    columns = [column for column, _, some in values if not some]
    if columns:
        now, then = _live(columns), _kept(columns, shape, "s")
        many = wire.count(
            f"SELECT COUNT(*) FROM {quoted(table)} r JOIN {quoted(taken.saved)} s ON {on} WHERE {now} <> {then}"
        )
        if many:
            raise UndoFailed(
                f"{many} rows of {table} did not get their old values back.",
                hint="A trigger of the table may have changed them. The saved values are kept.",
            )


def put_rows_back(wire: Wire, table: str, taken: KeptValues) -> None:
    """All of them, into an empty table. Twice is once."""
    names = listed(taken.was.names)
    values = ", ".join(taken.was.logged("s"))
    if not wire.rows(f"SELECT 1 FROM {quoted(table)} LIMIT 1"):
        wire.run(f"INSERT INTO {quoted(table)} ({names}) SELECT {values} FROM {quoted(taken.saved)} s")


def throw_away(wire: Wire, kept: KeptValues) -> None:
    for name in (kept.saved, kept.left):
        wire.run(f"DROP TABLE IF EXISTS {quoted(name)}")
