"""Is the journal sound? Everything that is wrong, one sentence each."""

from collections.abc import Iterator

from takeback.errors import TakebackError
from takeback.model.life import OF_EFFECTS, Life, consequences
from takeback.model.record import GENESIS, Kind, chained
from takeback.model.run import RunState, run_state_after
from takeback.storage.bodies import whole
from takeback.storage.database import Database, Row
from takeback.storage.sqlite import to_record

_PAGE = 2000


def check_journal(database: Database) -> Iterator[str]:
    """The file, then the chain, then whether the projections say what the records say."""
    try:
        for (finding,) in database.read("PRAGMA integrity_check(50)"):
            if finding != "ok":
                yield f"The database file is damaged: {finding}."
        yield from _check_records(database)
    except TakebackError as error:
        # Unreadable pages end the walk; what was found so far has been told.
        yield str(error)


def _check_records(database: Database) -> Iterator[str]:
    lives: dict[str, Life] = {}
    runs: dict[str, RunState] = {}
    previous, seq = GENESIS, 0
    while rows := database.read(
        f"SELECT seq, kind, run, effect, at, body, hash FROM records WHERE seq > ? ORDER BY seq LIMIT {_PAGE}",
        (seq,),
    ):
        for row in rows:
            if row[0] != seq + 1:
                yield f"Records {seq + 1} to {row[0] - 1} are missing."
            seq, kind, run, effect, _, _, stored = row
            if not _has_its_hash(row, previous):
                yield f"Record {seq} ({kind} of {effect or run}) is not what was written: its hash does not fit."
            previous = stored
            try:
                record = to_record(row)
                if record.kind in OF_EFFECTS:
                    for life in consequences(record, lives.get):
                        lives[life.id] = life
                elif record.kind in (Kind.OPEN, Kind.CLOSE):
                    runs[run] = run_state_after(
                        runs.get(run), record.kind, record.body.get("outcome", ""), f"Record {seq}"
                    )
                    if runs[run] is RunState.KEPT:
                        _keep_all(lives, run)
            except (TakebackError, KeyError, ValueError) as error:
                yield f"Record {seq} ({kind} of {effect or run}) does not fit: {error}"
    yield from _compare(database, lives, runs)


def _has_its_hash(row: Row, previous: bytes) -> bool:
    seq, kind, run, effect, at, body, stored = row
    try:
        return chained(previous, seq, at, kind, run, effect, whole(body)) == stored
    except ValueError:
        return False


def _keep_all(lives: dict[str, Life], run: str) -> None:
    for life in list(lives.values()):
        if life.run == run and life.state == "done" and not life.kept_by:
            lives[life.id] = life._replace(kept_by="run")


def _compare(database: Database, lives: dict[str, Life], runs: dict[str, RunState]) -> Iterator[str]:
    seen: set[str] = set()
    for id, state, kept_by, forgotten, undone_by in database.read(
        "SELECT id, state, kept_by, forgotten, undone_by FROM effects"
    ):
        seen.add(id)
        life = lives.get(id)
        if life is None:
            yield f"Effect {id} is listed but has no record."
        elif (life.state, life.kept_by, life.forgotten, life.undone_by) != (
            state,
            kept_by,
            bool(forgotten),
            undone_by,
        ):
            yield f"Effect {id} is listed as {state}, but its records say {life.state.value}."
    for missing in lives.keys() - seen:
        yield f"Effect {missing} has records but is not listed."
    listed = dict(database.read("SELECT id, state FROM runs"))
    for id in listed.keys() | runs.keys():
        if listed.get(id) != runs.get(id):
            yield f"Run {id} is listed as {listed.get(id)}, but its records say {runs.get(id)}."
