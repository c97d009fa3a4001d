"""Is the journal sound? Everything that is wrong, one sentence each."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from takeback.errors import RecordInvalid, TakebackError
from takeback.model.lifecycle import BIRTHS, OF_EFFECTS, Life, consequences, touched
from takeback.model.record import GENESIS, HASH, UNSALTED, Flaw, Kind, Record, is_erased, is_tied
from takeback.model.resource import Project, display, made_markers, touched_projects
from takeback.model.run import OF_RUNS, RunInfo, RunState, run_after
from takeback.storage import tables
from takeback.storage.bodies import whole
from takeback.storage.sqlite.append import RUN, to_record, to_run
from takeback.storage.sqlite.database import SCHEMAS, Row, SqliteDatabase, schema
from takeback.storage.tables import Reading

_PAGE = 2000
_SCHEMA = (
    "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
)
_RECORDS = "SELECT seq, kind, run, effect, at, body, hash FROM records WHERE"


def check_journal(database: SqliteDatabase) -> Iterator[Flaw]:
    """The file, then the chain, then whether the projections say what the records say.

    An unreadable page ends one of these, not the others. A repeated error is reported once.
    """
    told: set[str] = set()
    for part in (_check_file, _check_schema, check_records):
        try:
            yield from part(database)
        except TakebackError as error:
            if str(error) not in told:
                yield Flaw(str(error), unreadable=True)
            told.add(str(error))


def _check_file(database: SqliteDatabase) -> Iterator[Flaw]:
    try:
        for (finding,) in database.read("PRAGMA integrity_check(50)"):
            if finding != "ok":
                yield Flaw(f"The database file is damaged: {finding}.")
    except TakebackError:
        for (table,) in database.read("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"):
            try:
                database.read(f'PRAGMA integrity_check("{table}")')
            except TakebackError:
                yield Flaw(f"The table {table!r} of the journal cannot be read to its end.", unreadable=True)
        raise


def _check_schema(database: SqliteDatabase) -> Iterator[Flaw]:
    """A trigger, a view or an index that we did not make can change what every statement of ours means."""
    found = {(kind, name): sql for kind, name, sql in database.read(_SCHEMA)}
    ours, current = _our_schema()
    same = database.read("PRAGMA user_version")[0][0] == current
    retired = {("table", "retired")} | {("trigger", sql.split()[2]) for sql in tables.SQLITE[1:]}
    for kind, name in sorted(found.keys() - ours.keys() - retired):
        yield Flaw(f"The journal has a {kind} {name!r} that takeback did not make.")
    for kind, name in sorted(ours.keys() - found.keys()) if same else ():
        yield Flaw(f"The {kind} {name!r} of the journal is missing.")
    for kind, name in sorted(found.keys() & ours.keys()) if same else ():
        if _plain(found[kind, name]) != _plain(ours[kind, name]):
            yield Flaw(f"The {kind} {name!r} of the journal is not as takeback makes it.")


def _our_schema() -> tuple[dict[tuple[str, str], str], int]:
    """And its number: that of an older store may differ in its details."""
    import sqlite3

    memory = sqlite3.connect(":memory:")
    try:
        for name in SCHEMAS:
            memory.executescript(schema(name))
        made = {(kind, name): sql for kind, name, sql in memory.execute(_SCHEMA)}
        return made, memory.execute("PRAGMA user_version").fetchone()[0]
    finally:
        memory.close()


def _plain(sql: str) -> str:
    """Without what means nothing: SQLite puts quotes around a name when a table is renamed."""
    return " ".join(re.sub(r"--[^\n]*", "", sql).replace('"', "").split())


def check_records(database: Reading) -> Iterator[Flaw]:
    lives: dict[str, Life] = {}
    runs: dict[str, RunInfo] = {}
    index, belonging = _Index(), _Belonging()
    erasures = Erasures()
    signals: dict[tuple[str, str], int] = {}  # run and name: the newest
    previous: bytes | None = GENESIS  # None: it could not be read
    seq = 0
    while rows := page_of_records(database, seq):
        for row in rows:
            if row[0] != seq + 1:
                yield Flaw(f"Records {seq + 1} to {row[0] - 1} are missing.")
            if len(row) == 1:
                seq, previous = row[0], None
                yield Flaw(f"Record {seq} cannot be read.", unreadable=True)
                continue
            seq, kind, run, effect, _, _, stored = row
            if previous is not None and not has_its_hash(row, previous):
                text = f"Record {seq} ({kind} of {effect or run}) is not what was written: its hash does not fit."
                yield Flaw(text, effect=effect, run=run)
            before, previous = previous, stored[:HASH]
            try:
                record = to_record(row)
                erasures.add(record, before)
                if record.kind in OF_EFFECTS:
                    for life in consequences(record, lives.get):
                        lives[life.id] = life
                        index.add(record, life.seq)
                        belonging.add(record, life.seq)
                elif record.kind in OF_RUNS:
                    runs[run] = _run_after(runs.get(run), record, signals)
                    belonging.began(record, runs[run])
                    if record.kind is Kind.CLOSE and runs[run].state is RunState.ACCEPTED:
                        _accept_all(lives, run)
            except (TakebackError, KeyError, ValueError) as error:
                text = f"Record {seq} ({kind} of {effect or run}) does not fit: {error}"
                yield Flaw(text, effect=effect, run=run)
    yield from erasures.compare()
    yield from _compare(database, lives, runs)
    by_seq = {life.seq: life for life in lives.values()}
    yield from index.compare(database, by_seq)
    yield from belonging.compare(database, by_seq)


def _run_after(info: RunInfo | None, record: Record, signals: dict[tuple[str, str], int]) -> RunInfo:
    after = run_after(info, record, lambda name, read: signals.get((record.run, name), 0) > read)
    if record.kind is Kind.SIGNAL:
        signals[record.run, record.body["name"]] = record.seq
    return after


def page_of_records(database: Reading, after: int) -> list[Row]:
    """The next records; one that stands on an unreadable page is only its number."""
    try:
        return database.read(f"{_RECORDS} seq > ? ORDER BY seq LIMIT {_PAGE}", (after,))
    except TakebackError:
        last: int = database.read("SELECT coalesce(max(seq), 0) FROM records")[0][0]
    found: list[Row] = []
    for seq in range(after + 1, min(last, after + _PAGE) + 1):
        try:
            found += database.read(f"{_RECORDS} seq = ?", (seq,))
        except TakebackError:
            found.append((seq,))
    return found


def has_its_hash(row: Row, previous: bytes) -> bool:
    seq, kind, run, effect, at, body, stored = row
    try:
        return is_tied(previous, (seq, kind, run, effect, at, whole(body), stored[:HASH]), stored[HASH:])
    except ValueError:
        return False


class Erasures:
    """What is left of each record that was erased, compared with what the records that erased it say of that."""

    def __init__(self) -> None:
        self._left: dict[int, tuple[Record, bytes | None]] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._unsealed_after = 0  # the first record that has a seal

    def add(self, record: Record, before: bytes | None) -> None:
        if len(record.seal) > len(UNSALTED):
            self._unsealed_after = self._unsealed_after or record.seq
        elif self._unsealed_after:
            raise RecordInvalid(f"it has no seal, and record {self._unsealed_after} has one.")
        if is_erased(record.seal):
            self._left[record.seq] = record, before
        if record.kind is Kind.REDACT:
            self._told |= {one["seq"]: one for one in record.body.get("records", ())}

    def compare(self) -> Iterator[Flaw]:
        for seq, (record, before) in self._left.items():
            told = self._told.get(seq)
            if told is None:
                text = f"Record {seq} was erased, and no record says who erased it."
            elif told.get("left") != record.body:
                text = f"Record {seq} was erased, and says something else than what was left of it."
            elif "hash" in told and [told.get("before"), told["hash"]] != [
                (before or b"").hex(),
                record.hash.hex(),
            ]:
                text = f"Record {seq} was erased, and it or the one before has another hash than then."
            else:
                continue
            yield Flaw(text, effect=record.effect, run=record.run)


def _accept_all(lives: dict[str, Life], run: str) -> None:
    for life in list(lives.values()):
        if life.run == run and life.state == "done" and not life.accepted_by:
            lives[life.id] = life._replace(accepted_by="run")


def _compare(database: Reading, lives: dict[str, Life], runs: dict[str, RunInfo]) -> Iterator[Flaw]:
    seen: set[str] = set()
    for id, state, accepted_by, forgotten, pinned, undone_by in database.read(
        "SELECT id, state, accepted_by, forgotten, pinned, undone_by FROM effects"
    ):
        seen.add(id)
        life = lives.get(id)
        if life is None:
            yield Flaw(f"Effect {id} is listed but has no record.", effect=id)
            continue
        told = life.state, life.accepted_by, life.forgotten, life.pinned, life.undone_by
        if told != (state, accepted_by, bool(forgotten), bool(pinned), undone_by):
            text = f"Effect {id} is listed as {state}, but its records say {life.state.value}."
            yield Flaw(text, effect=id, run=life.run)
    for missing in lives.keys() - seen:
        text = f"Effect {missing} has records but is not listed."
        yield Flaw(text, effect=missing, run=lives[missing].run)
    yield from _compare_runs(database, runs)


def _compare_runs(database: Reading, runs: dict[str, RunInfo]) -> Iterator[Flaw]:
    listed: dict[str, RunInfo | None] = {}
    for row in database.read(f"SELECT {RUN} FROM runs"):
        try:
            listed[row[0]] = to_run(row)
        except RecordInvalid:
            listed[row[0]] = None  # a word in it that no version of ours writes
    for id in listed.keys() | runs.keys():
        row, told = listed.get(id), runs.get(id)
        if row is None or told is None or row.state is not told.state:
            states = [one.state.value if one else "nothing that is known" for one in (row, told)]
            yield Flaw(f"Run {id} is listed as {states[0]}, but its records say {states[1]}.", run=id)
        elif row != told:
            names = [name for name, a, b in zip(row._fields, row, told, strict=True) if a != b]
            yield Flaw(f"Run {id} is listed with another {', '.join(names)} than its records say.", run=id)


def _lists_others(what: str, effect: int, lives: dict[int, Life]) -> Flaw:
    life = lives.get(effect)
    text = f"The index of {life.id if life else f'record {effect}'} lists other {what} than its records say."
    return Flaw(text, effect=life.id if life else "", run=life.run if life else "")


class _Index:
    """The paths and needs of each effect in the tables, compared with its records. One number for each effect, so that
    a million of them can be compared."""

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}
        self._proposed: dict[int, set[str]] = {}

    def add(self, record: Record, effect: int) -> None:
        if record.kind not in BIRTHS:
            return
        resources = set(touched(record.body))
        before = self._proposed.pop(effect, set[str]())
        after = before | resources | {f"needs {one}" for one in record.body.get("needs", ())}
        if record.kind is Kind.PROPOSE or before:  # what was dropped may be intended more than once
            self._proposed[effect] = after
        if record.kind is Kind.INTENT and record.body["resource"] not in resources:
            # The proposal knew no paths yet, and named what is around them.
            after.discard(record.body["resource"])
        self._sum(effect, before ^ after)

    def _sum(self, effect: int, words: Iterable[str]) -> None:
        """The same word twice takes itself back."""
        for word in words:
            self._sums[effect] = self._sums.get(effect, 0) ^ hash(word)

    def compare(self, database: Reading, lives: dict[int, Life]) -> Iterator[Flaw]:
        for resource, effect in database.read("SELECT resource, effect FROM targets"):
            self._sum(effect, [resource])
        for needed, effect in database.read("SELECT needed, effect FROM needs"):
            self._sum(effect, [f"needs {needed}"])
        for effect in sorted(seq for seq, rest in self._sums.items() if rest):
            yield _lists_others("paths or needs", effect, lives)


class _Belonging:
    """The projects and their effects in the tables, compared with the records. Of a run that recorded no project (in a
    store of format 1) it was derived from the directories of that time, and cannot be compared."""

    def __init__(self) -> None:
        self._began: dict[str, str] = {}  # by run: its project
        self._of: dict[int, set[str]] = {}  # by effect: the projects that its records name
        self._projects: dict[str, Project] = {}

    def began(self, record: Record, info: RunInfo) -> None:
        self._began[info.id] = info.project
        if info.project and record.kind is Kind.OPEN and "name" in record.body:
            self._know(Project(info.project, bool(record.body.get("marked")), began=True))

    def add(self, record: Record, effect: int) -> None:
        if record.kind not in BIRTHS:
            return
        named = touched_projects(record.body)
        for one in (*named, *made_markers(record.body)):
            self._know(one)
        own = self._began.get(record.run, "")
        self._of.setdefault(effect, set()).update(one.root for one in named)
        if own:
            self._of[effect].add(own)

    def _know(self, project: Project) -> None:
        known = self._projects.get(project.root, project)
        flags = (a or b for a, b in zip(known[1:], project[1:], strict=True))
        self._projects[project.root] = Project(project.root, *flags)

    def compare(self, database: Reading, lives: dict[int, Life]) -> Iterator[Flaw]:
        derived = {effect for effect, roots in self._of.items() if not roots}
        listed: dict[int, set[str]] = {}
        sql = "SELECT p.root, s.effect FROM scopes s LEFT JOIN projects p ON p.number = s.project"
        for root, effect in database.read(sql):
            listed.setdefault(effect, set()).add(root)
        for effect in sorted(listed.keys() | self._of.keys()):
            if effect not in derived and listed.get(effect, set()) != self._of.get(effect, set()):
                yield _lists_others("projects", effect, lives)
        rows = database.read("SELECT root, marked, began, made FROM projects")
        there = {root: Project(root, *map(bool, flags)) for root, *flags in rows}
        for root in sorted(there.keys() | self._projects.keys()):
            if not self._is_so(there.get(root), self._projects.get(root), bool(derived)):
                yield Flaw(f"The project {display(root)} is not listed as the records say.")

    @staticmethod
    def _is_so(listed: Project | None, told: Project | None, derived: bool) -> bool:
        if not derived or listed is None:
            return listed == told
        told = told or Project(listed.root)
        return (listed.began, listed.made) == (told.began, told.made) and listed.marked >= told.marked
