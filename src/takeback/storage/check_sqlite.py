"""Is the journal sound? Everything that is wrong, one sentence each."""

from collections.abc import Iterator

from takeback.errors import TakebackError
from takeback.model.life import OF_EFFECTS, Life, consequences
from takeback.model.record import GENESIS, Kind, Record, chained
from takeback.model.run import OF_RUNS, RunInfo, RunState, run_after
from takeback.storage.appending import RUN, to_run
from takeback.storage.bodies import whole
from takeback.storage.database import Database, Row
from takeback.storage.sqlite import to_record
from takeback.storage.tables import Reading

_PAGE = 2000
_RECORDS = "SELECT seq, kind, run, effect, at, body, hash FROM records WHERE"


def check_journal(database: Database) -> Iterator[str]:
    """The file, then the chain, then whether the projections say what the records say.

    Unreadable pages end one of these and not the others; what is told twice is told once.
    """
    told: set[str] = set()
    for part in (_check_file, check_records):
        try:
            yield from part(database)
        except TakebackError as error:
            if str(error) not in told:
                yield str(error)
            told.add(str(error))


def _check_file(database: Database) -> Iterator[str]:
    try:
        for (finding,) in database.read("PRAGMA integrity_check(50)"):
            if finding != "ok":
                yield f"The database file is damaged: {finding}."
    except TakebackError:
        for (table,) in database.read("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"):
            try:
                database.read(f'PRAGMA integrity_check("{table}")')
            except TakebackError:
                yield f"The table {table!r} of the journal cannot be read to its end."
        raise


def check_records(database: Reading) -> Iterator[str]:
    lives: dict[str, Life] = {}
    runs: dict[str, RunInfo] = {}
    signals: dict[tuple[str, str], int] = {}  # run and name: the newest
    previous: bytes | None = GENESIS  # None: it could not be read
    seq = 0
    while rows := _page(database, seq):
        for row in rows:
            if row[0] != seq + 1:
                yield f"Records {seq + 1} to {row[0] - 1} are missing."
            if len(row) == 1:
                seq, previous = row[0], None
                yield f"Record {seq} cannot be read."
                continue
            seq, kind, run, effect, _, _, stored = row
            if previous is not None and not _has_its_hash(row, previous):
                yield f"Record {seq} ({kind} of {effect or run}) is not what was written: its hash does not fit."
            previous = stored
            try:
                record = to_record(row)
                if record.kind in OF_EFFECTS:
                    for life in consequences(record, lives.get):
                        lives[life.id] = life
                elif record.kind in OF_RUNS:
                    runs[run] = _run_after(runs.get(run), record, signals)
                    if record.kind is Kind.CLOSE and runs[run].state is RunState.ACCEPTED:
                        _accept_all(lives, run)
            except (TakebackError, KeyError, ValueError) as error:
                yield f"Record {seq} ({kind} of {effect or run}) does not fit: {error}"
    yield from _compare(database, lives, runs)


def _run_after(info: RunInfo | None, record: Record, signals: dict[tuple[str, str], int]) -> RunInfo:
    after = run_after(info, record, lambda name, read: signals.get((record.run, name), 0) > read)
    if record.kind is Kind.SIGNAL:
        signals[record.run, record.body["name"]] = record.seq
    return after


def _page(database: Reading, after: int) -> list[Row]:
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


def _has_its_hash(row: Row, previous: bytes) -> bool:
    seq, kind, run, effect, at, body, stored = row
    try:
        return chained(previous, seq, at, kind, run, effect, whole(body)) == stored
    except ValueError:
        return False


def _accept_all(lives: dict[str, Life], run: str) -> None:
    for life in list(lives.values()):
        if life.run == run and life.state == "done" and not life.accepted_by:
            lives[life.id] = life._replace(accepted_by="run")


def _compare(database: Reading, lives: dict[str, Life], runs: dict[str, RunInfo]) -> Iterator[str]:
    seen: set[str] = set()
    for id, state, accepted_by, forgotten, pinned, undone_by in database.read(
        "SELECT id, state, accepted_by, forgotten, pinned, undone_by FROM effects"
    ):
        seen.add(id)
        life = lives.get(id)
        if life is None:
            yield f"Effect {id} is listed but has no record."
        elif (life.state, life.accepted_by, life.forgotten, life.pinned, life.undone_by) != (
            state,
            accepted_by,
            bool(forgotten),
            bool(pinned),
            undone_by,
        ):
            yield f"Effect {id} is listed as {state}, but its records say {life.state.value}."
    for missing in lives.keys() - seen:
        yield f"Effect {missing} has records but is not listed."
    yield from _compare_runs(database, runs)


def _compare_runs(database: Reading, runs: dict[str, RunInfo]) -> Iterator[str]:
    listed = {row[0]: to_run(row) for row in database.read(f"SELECT {RUN} FROM runs")}
    for id in listed.keys() | runs.keys():
        row, told = listed.get(id), runs.get(id)
        if row is None or told is None or row.state is not told.state:
            states = [one.state.value if one else "nothing" for one in (row, told)]
            yield f"Run {id} is listed as {states[0]}, but its records say {states[1]}."
        elif row != told:
            names = [name for name, a, b in zip(row._fields, row, told, strict=True) if a != b]
            yield f"Run {id} is listed with another {', '.join(names)} than its records say."
