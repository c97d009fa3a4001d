"""SQL about the images of one op in one table: which rows are as it left them, which are not, and how to put them
back. Everything is done in sets by SQLite: no row passes through Python."""

from typing import NamedTuple

from takeback.adapters.sqlite.child.driver import quoted
from takeback.adapters.sqlite.child.log import NOTHING, image_columns
from takeback.adapters.sqlite.child.shapes import SqliteShape

SKIP = "temp.takeback_skip"
MAKE_SKIP = (
    "CREATE TEMP TABLE IF NOT EXISTS takeback_skip (no INTEGER PRIMARY KEY, kind NOT NULL, forced NOT NULL)"
)

ALREADY, CHANGED, MISSING, REOCCUPIED = "already", "changed", "missing", "reoccupied"
FORCEABLE = (CHANGED, MISSING, REOCCUPIED)


class Images(NamedTuple):
    number: int  # of the table in takeback_table
    shape: SqliteShape  # as the table is now
    first: int
    last: int
    only: str = ""  # of what was done
    all: bool = False  # none is left out and none forced

    @property
    def width(self) -> int:
        return len(self.shape.columns)

    @property
    def table(self) -> str:
        return f"main.{quoted(self.shape.name)}"

    @property
    def span(self) -> str:
        # The plus keeps SQLite from going through all images of the table that were ever taken.
        only = f" AND i.did = '{self.only}'" if self.only else f" AND i.did <> '{NOTHING}'"
        return f"i.no BETWEEN {self.first} AND {self.last} AND +i.tbl = {self.number}{only}"

    @property
    def active(self) -> str:
        if self.all:
            return self.span
        return f"{self.span} AND NOT EXISTS (SELECT 1 FROM {SKIP} s WHERE s.no = i.no AND NOT s.forced)"

    @property
    def forced(self) -> str:
        return "0" if self.all else f"EXISTS (SELECT 1 FROM {SKIP} s WHERE s.no = i.no AND s.forced)"

    @property
    def before(self) -> str:
        """The columns of an image: what the row was."""
        return ", ".join(f"i.c{at}" for at in range(self.width))

    @property
    def keys(self) -> tuple[str, ...]:
        if self.shape.rowid:
            return ("i.k",)
        return tuple(
            f"CASE WHEN i.did = 'D' THEN i.c{at} ELSE i.c{self.width + at} END" for at in self.shape.key
        )

    @property
    def on(self) -> str:
        return " AND ".join(
            f"t.{name} = {value}" for name, value in zip(self.shape.key_names, self.keys, strict=True)
        )

    @property
    def present(self) -> str:
        return f"t.{self.shape.key_names[0]} IS NOT NULL"

    def same(self, offset: int) -> str:
        """As strictly as it goes: 1 is not 1.0, and a letter is not its capital."""
        pairs = [(f"t.{quoted(name)}", f"i.c{offset + at}") for at, name in enumerate(self.shape.columns)]
        # The column of the image first: it has no collation. The plus takes the type of the column away.
        equal = [f"{then} IS +{now}" for now, then in pairs]
        return " AND ".join(
            (*equal, *(f"typeof({pairs[at][0]}) = typeof({pairs[at][1]})" for at in self.shape.mixed))
        )

    @property
    def joined(self) -> str:
        return f"main.takeback_image i LEFT JOIN {self.table} t ON {self.on}"

    def find_conflicts(self) -> str:
        """Every row that is not as the op left it, and in what way."""
        # A row without a key may be somewhere else by now: VACUUM gives other rowids.
        gone = f"'{ALREADY}'" if self.shape.stable else f"'{MISSING}'"
        return f"""
            INSERT INTO {SKIP} SELECT i.no, CASE
                WHEN i.did = 'I' THEN CASE WHEN {self.present} THEN '{CHANGED}' ELSE {gone} END
                WHEN i.did = 'U' AND NOT {self.present} THEN '{MISSING}'
                WHEN {self.same(0)} THEN '{ALREADY}'
                WHEN i.did = 'U' THEN '{CHANGED}'
                ELSE '{REOCCUPIED}' END, 0
            FROM {self.joined}
            WHERE {self.span} AND NOT
                (CASE WHEN i.did = 'D' THEN NOT {self.present} ELSE {self.present} AND {self.same(self.width)} END)"""

    def log_back(self, further: int) -> str:
        """Images of the taking back: what the op left is what it finds. Their numbers are so much higher."""
        after = ", ".join(f"i.c{self.width + at}" for at in range(self.width))
        return f"""{self._adding(further)}
                CASE i.did WHEN 'I' THEN 'D' WHEN 'D' THEN 'I' ELSE 'U' END, {after}, {self.before}
            FROM main.takeback_image i WHERE {self.active} AND NOT {self.forced}"""

    def log_forced(self, further: int) -> str:
        """Log the present rows, which are about to be overwritten."""
        now = ", ".join(f"t.{quoted(name)}" for name in self.shape.columns)
        return f"""{self._adding(further)}
                CASE WHEN NOT {self.present} THEN 'I' WHEN i.did = 'I' THEN 'D' ELSE 'U' END, {now}, {self.before}
            FROM {self.joined}
            WHERE {self.active} AND {self.forced} AND ({self.present} OR i.did <> 'I')"""

    def _adding(self, further: int) -> str:
        columns = image_columns(0, 2 * self.width)
        return f"""
            INSERT INTO main.takeback_image (no, tbl, k, did, {columns}) SELECT i.no + {further}, i.tbl, i.k,"""

    def delete(self) -> str:
        """Rows that were not there, and those that would be in the way of what comes back."""
        names = ", ".join(self.shape.key_names)
        there = f"SELECT {', '.join(self.keys)} FROM main.takeback_image i WHERE {self.active}"
        which = f"(i.did <> 'D' OR {self.forced})" if self.shape.unique else "i.did = 'I'"
        return f"DELETE FROM {self.table} WHERE ({names}) IN ({there} AND {which})"

    def insert(self, one: bool = False) -> str:
        """`one`: of the image whose number is given."""
        names, values = self.shape.selected, self.before
        if self.shape.rowid and not self.shape.stable:
            names, values = f"{self.shape.rowid}, {names}", f"i.k, {values}"
        only = " AND i.no = ?" if one else ""
        verb = "INSERT" if self.shape.unique else "INSERT OR REPLACE"
        return (
            f"{verb} INTO {self.table} ({names}) SELECT {values} FROM main.takeback_image i "
            f"WHERE {self.active} AND i.did <> 'I'{only}"
        )

    def count_wrong(self) -> str:
        """How many rows are not back."""
        return f"""
            SELECT count(*) FROM {self.joined} WHERE {self.active} AND NOT
                (CASE WHEN i.did = 'I' THEN NOT {self.present} ELSE {self.present} AND {self.same(0)} END)"""
