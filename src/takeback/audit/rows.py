"""The rows that an effect on a database changed: as a table for people, as data for programs."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from takeback.adapters.database import Databases, RowChange
from takeback.audit.diff import DiffPart
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.review import MOST_ROWS, shown_rows
from takeback.errors import Forgotten, Misuse, Refused
from takeback.model.database import from_json, resource_of
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import Standing

_WIDEST = 60
_NULL = "NULL"


class ChangedRows(NamedTuple):
    """The first rows of an effect, and whether there are more."""

    rows: tuple[RowChange, ...]
    more: bool


def changed_rows(parts: Parts, effect: Effect, table: str = "", limit: int = MOST_ROWS) -> ChangedRows:
    if type(limit) is not int or limit < 1:
        raise Misuse(f"{limit!r} is no number of rows.", hint="For example limit=100.")
    adapter = adapter_of(parts, effect.change.adapter)
    if not isinstance(adapter, Databases):
        raise Misuse("This effect touched no database.", hint="`takeback show` lists what it touched.")
    if effect.forgotten:
        raise Forgotten(
            f"Effect {short(effect.id)} was forgotten: the rows that it changed are no longer kept.",
            hint=f"`takeback show {short(effect.id)}` still says how many there were.",
            effect=effect.id,
        )
    rows = shown_rows(parts.blobs, effect) if effect.waits_for else adapter.rows(effect)
    found = (row for row in rows if not table or _named(row.table, table))
    first = tuple(islice(found, limit + 1))
    if not first and effect.state is State.DONE and adapter.verify(effect).standing is not Standing.AFTER:
        raise Refused(
            f"The database knows nothing of effect {short(effect.id)}.",
            hint="It may have been restored from an older copy, or replaced by another one.",
            effect=effect.id,
        )
    return ChangedRows(first[:limit], len(first) > limit)


def _named(table: str, wanted: str) -> bool:
    return table == wanted or table.rpartition(".")[2] == wanted


def row_json(row: RowChange) -> dict[str, Any]:
    return {"table": row.table, "key": row.key, "before": row.before, "after": row.after}


def as_parts(effect: Effect, changed: ChangedRows) -> tuple[DiffPart, ...]:
    """One for each table, with a line for each row, or for each column of a row that was updated."""
    database = from_json(effect.change.args["database"])
    told = dict(counts_of(effect)) if changed.more else {}
    by_table: dict[str, list[RowChange]] = {}
    for row in changed.rows:
        by_table.setdefault(row.table, []).append(row)
    found = [
        DiffPart(
            resource_of(database, table),
            (told.get(table) or _counted(rows),),
            tuple(line.encode() for line in _table(rows)),
        )
        for table, rows in by_table.items()
    ]
    if changed.more:
        shown = f"only the first {len(changed.rows):,} rows are shown"
        found.append(DiffPart(resource_of(database), (shown,)))
    schema: list[str] = receipt_of(effect).get("schema", [])
    found += [DiffPart(resource_of(database), (sentence,)) for sentence in (*schema, *no_way_back(effect))]
    return tuple(found)


def no_way_back(effect: Effect) -> tuple[str, ...]:
    """Why what a program did in a database cannot be taken back, in sentences; empty for all others."""
    receipt = receipt_of(effect) if "database" in effect.change.args else {}
    gone: list[str] = receipt.get("lost", [])
    found = [f"This cannot be taken back, because it is lost: {'; '.join(gone)}."] if gone else []
    found += [f"As it is now this cannot be taken back: {why}." for why in receipt.get("one_way", [])]
    return tuple(found)


def receipt_of(effect: Effect) -> dict[str, Any]:
    """Of one that waits for a person, what it would be."""
    return effect.receipt or (effect.phase.reviewed.receipt if effect.phase.reviewed else {})


def counts_of(effect: Effect, turned: bool = False) -> tuple[tuple[str, str], ...]:
    """Each table of an effect, and what was done in it, in words; or `turned`, what its undo does there."""
    tables: dict[str, dict[str, int]] = receipt_of(effect).get("tables", {})
    opposite = {"inserted": "deleted", "deleted": "inserted"} if turned else {}
    return tuple(
        (name, _in_words({opposite.get(word, word): count for word, count in counts.items()}))
        for name, counts in tables.items()
    )


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "nothing"


def _counted(rows: Iterable[RowChange]) -> str:
    counts = {"inserted": 0, "updated": 0, "deleted": 0}
    for row in rows:
        counts["inserted" if row.before is None else "deleted" if row.after is None else "updated"] += 1
    return _in_words(counts)


def _table(rows: list[RowChange]) -> Iterator[str]:
    lines = [line for row in rows for line in _lines(row)]
    widths = [max(len(line[place]) for line in lines) for place in range(3)]
    for mark, key, column, rest in lines:
        cells = (cell.ljust(width) for cell, width in zip((mark, key, column), widths, strict=True))
        yield f"{' '.join(cells)} {rest}".rstrip()


def _lines(row: RowChange) -> Iterator[tuple[str, str, str, str]]:
    before, after = row.before, row.after
    if before is None or after is None:
        whole = after if before is None else before
        told = ", ".join(f"{_plain(name)}={_shown(value)}" for name, value in (whole or {}).items())
        yield ("+" if before is None else "-", _plain(row.key), "", told)
        return
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name) or (name in before) != (name in after):
            told = f"{_shown(before.get(name))} → {_shown(after.get(name))}"
            yield "~", _plain(row.key), _plain(name), told


def _shown(value: str | None) -> str:
    if value is None:
        return _NULL
    text = _plain(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _plain(text: str) -> str:
    """In one line, and unable to paint on someone's terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
