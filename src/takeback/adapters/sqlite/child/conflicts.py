"""What stands in the way of an undo, row by row, in words for a person."""

from typing import Any, NamedTuple

from takeback.adapters.sqlite.child.driver import quoted
from takeback.adapters.sqlite.child.foreign_keys import DEPENDENT, PARENT_GONE
from takeback.adapters.sqlite.child.images_sql import ALREADY, CHANGED, MISSING, REOCCUPIED, SKIP, Images
from takeback.adapters.sqlite.child.log import SqliteOp
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.questions import halves, key_words
from takeback.adapters.sqlite.wire import plain, text

TAKEN = "taken"
TABLE = "table"  # of a table without a key: its rows are not those that the effect left
OVERWRITABLE = (CHANGED, REOCCUPIED, TABLE)
LISTED = 100
_LONG = 120


class One(NamedTuple):
    table: str
    key: str
    kind: str
    detail: str


class Conflicts:
    def __init__(self) -> None:
        self.first: list[One] = []
        self.count = 0

    def add(self, table: str, key: str, kind: str, detail: str) -> None:
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append(One(table, key, kind, detail))


def gather(
    place: OpenFile, op: SqliteOp, tables: list[Images], left_out: dict[int, tuple[str, str]], into: Conflicts
) -> None:
    odd = (
        f"FROM {SKIP} s JOIN main.takeback_image i USING (no) "
        f"WHERE s.kind <> '{ALREADY}' AND NOT s.forced AND +i.tbl = ?"
    )
    for images in tables:
        total = place.connection.execute(f"SELECT count(*) {odd}", (images.number,)).get
        if not total:
            continue
        rows = place.connection.execute(
            f"SELECT s.kind, i.* {odd} ORDER BY no LIMIT ?", (images.number, LISTED)
        ).fetchall()
        for kind, no, _, key, did, *columns in rows:
            into.first.append(_one(place, op, images, (kind, no, key, did, columns), left_out))
        into.count += total
    del into.first[LISTED:]


def gather_whole(
    place: OpenFile, op: SqliteOp, left_out: dict[int, tuple[str, str]], into: Conflicts
) -> bool:
    """Rows that would be missed by a table which comes back as a whole. Whether there are any."""
    whole = set(op.about.get("whole", ()))
    tables = {no: (name, shape) for no, name, _, shape in place.log.tables_of(op) if name.lower() in whole}
    found = False
    for no, (kind, other) in left_out.items() if tables else ():
        (_, number, key, did, *columns) = place.ours(
            "SELECT * FROM main.takeback_image WHERE no = ?", (no,)
        ).fetchone()
        if number not in tables:
            continue
        name, shape = tables[number]
        words = key_words(shape, key, halves(shape, did, columns)[0])
        into.add(name, words, kind, f"refers to a row of {other} that is gone")
        found = True
    return found


def _one(
    place: OpenFile,
    op: SqliteOp,
    images: Images,
    found: tuple[str, int, Any, str, list[Any]],
    left_out: dict[int, tuple[str, str]],
) -> One:
    kind, no, key, did, columns = found
    shape = images.shape
    as_told = {"columns": shape.columns, "key": shape.key}
    before, after = halves(as_told, did, columns)
    now = place.connection.execute(
        f"SELECT {', '.join(f't.{quoted(one)}' for one in shape.columns)} FROM {images.joined} "
        f"WHERE i.no = ? AND {images.present}",
        (no,),
    ).fetchone()
    name = key_words(as_told, key, before or after)
    if kind == TAKEN:
        detail = f"cannot be put back: {left_out[no][1]}"
    elif kind == PARENT_GONE:
        detail = f"refers to a row of {left_out[no][1]} that is gone"
    elif kind == DEPENDENT:
        detail = f"rows written since refer to it: {left_out[no][1]}"
    else:
        difference = _difference(shape.columns, before, after, now)
        detail = f"{_WORDS[kind]}: {difference}; {_who(place, op, images, key, now)}"
    return One(shape.name, name, kind, detail)


_WORDS = {
    CHANGED: "was changed since",
    MISSING: "is not there any more",
    REOCCUPIED: "is there again",
}


def _difference(columns: tuple[str, ...], before: Any, after: Any, now: Any) -> str:
    """Expected, found, and where undo would go; only columns that differ."""
    odd = [
        at for at in range(len(columns))
        if after is None or now is None or plain(after[at]) != plain(now[at])
    ]  # fmt: skip
    return (
        f"expected {_words(columns, after, odd)}, found {_words(columns, now, odd)}, "
        f"would go back to {_words(columns, before, odd)}"
    )


def _words(columns: tuple[str, ...], row: Any, odd: list[int]) -> str:
    if row is None:
        return "no row"
    said = ", ".join(f"{columns[at]}={_short(row[at])}" for at in odd)
    return said if len(said) <= _LONG else f"{said[:_LONG]}…"


def _short(value: Any) -> str:
    if value is None:
        return "NULL"
    shown = text(value) or ""
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    return repr(shown) if isinstance(value, str) else shown


def _who(place: OpenFile, op: SqliteOp, images: Images, key: Any, now: Any) -> str:
    """The last recorded op on this row, if the row is still as that op left it."""
    found = place.connection.execute(
        "SELECT i.*, (SELECT o.id FROM main.takeback_op o WHERE o.no <= i.no ORDER BY o.no DESC LIMIT 1) "
        "FROM main.takeback_image i WHERE i.tbl = ? AND i.k = ? AND i.no > ? ORDER BY i.no DESC LIMIT 1",
        (images.number, key, op.last),
    ).fetchone()
    if found is None:
        return "by someone who is not recorded"
    _, _, _, did, *columns, id = found
    _, after = halves({"columns": images.shape.columns}, did, columns)
    return f"changed by effect {id[:8]}" if plain(after) == plain(now) else "by someone who is not recorded"
