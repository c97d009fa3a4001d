"""SQLite files: rows and tables are changed and taken back by SQLite itself, in a process of its own."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from takeback.adapters.database import (
    USUAL,
    Cover,
    DatabaseAdapter,
    GiveUp,
    Keyring,
    RowChange,
    Tell,
    Waiting,
    asked_for,
    database_of,
    found_with,
    nothing_to_give_up,
    obstructed,
    quiet,
    sighted,
)
from takeback.adapters.protocol import TRAITS, Assessment, FoundChange, Receipt, demand_remedy
from takeback.adapters.sqlite.process import Gone
from takeback.adapters.sqlite.session import Sessions, SqliteDesk, SqliteSession, changes, path_of, resolved
from takeback.errors import Conflict, InDoubt, Misuse, Refused, ResourceUnreachable, StoreBusy
from takeback.model.change import UNDO, Change, OnConflict
from takeback.model.database import Database, Holder, resource_of, target_of
from takeback.model.effect import Effect, State
from takeback.model.plan import Obstacle, Outcome, Sighting, TargetOutcome
from takeback.model.remedy import Offer, Strategy
from takeback.storage.protocols import Blobs

# Whether a program still lives whose watcher has died: the file does not show who will write to it next.
#
# It is started with a variable that names its effect, which whatever it starts inherits.


MARK = "TAKEBACK_PROGRAM"


def at_work(effect: str) -> list[int]:
    """Of the processes that may be looked at, which is those of this user."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _bears(name, effect)]


def _bears(process: str, effect: str) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False  # it has ended, or is someone else's
    return any(
        one.startswith(f"{MARK}=".encode()) and effect.encode() in one.partition(b"=")[2].split()
        for one in variables
    )


PROGRAM = "program"
_THEN = ".then"  # the files of a database as they were
_ENDS = ("", "-wal", "-shm", "-journal")
# By kind of a conflict, as `child.conflicts` names it.
_OBSTACLES = {
    "changed": Obstacle.CHANGED, "reoccupied": Obstacle.CHANGED, "table": Obstacle.CHANGED, "missing": Obstacle.GONE
}  # fmt: skip
_WHY = "what each row was and became is kept in the file itself, in the same transaction"


class SqliteAdapter(DatabaseAdapter):
    name = "sqlite"
    traits = TRAITS["sqlite"]

    def __init__(self, blobs: Blobs, keyring: Keyring, waiting: Waiting = USUAL) -> None:
        self._blobs = blobs
        self._waiting = waiting
        self._keyring = keyring
        self._desk: SqliteDesk | None = None
        self._lock = threading.RLock()  # one question at a time
        self._held: Sessions = {}  # what waits for a person, by effect
        self._committed: Sessions = {}  # by what they committed last
        self._tell = _telling(self._held, waiting)

    # -- Databases

    def connect(self, database: Database) -> SqliteSession:
        return SqliteSession(
            self._there(database), self._held, self._committed, self._waiting.seconds, self._tell
        )

    def standing_on(self, effect: Effect) -> Sequence[str]:
        return tuple(self._ask(database_of(effect), "standing_on", effect.id))

    def rows(self, effect: Effect) -> Iterator[RowChange]:
        return changes(partial(self._ask, database_of(effect)), effect.id)

    def cover(self, database: Database) -> Cover:
        found = self._ask(self._there(database), "cover")
        says = [
            "Every statement through takeback is captured, with its triggers, cascades and changes of tables.",
            "What other programs write is not captured; undo finds it and does not overwrite it.",
        ]
        if not found["set_up"]:
            says.append(
                "The first effect makes four tables in the file: takeback_op, takeback_table, "
                "takeback_image and takeback_recent."
            )
        return Cover("", tuple(found["protected"]), tuple(found["unprotected"]), tuple(says))

    def protect(self, database: Database, tables: Sequence[str]) -> Cover:
        self._ask(self._there(database), "protect")
        return self.cover(database)

    def unprotect(
        self, database: Database, tables: Sequence[str], give_up: GiveUp = nothing_to_give_up
    ) -> Cover:
        if tables:
            raise Misuse(
                "A SQLite file is protected as a whole, so single tables cannot be left out.",
                hint="Name no tables to remove the log, and with it every way back in this file.",
            )
        place = self._resolved(database)
        with self._lock:  # nothing else may be asked of a transaction that is half-way
            self._ask(place, "remove_log")
            try:
                give_up()
            except BaseException:
                self._ask(place, "keep_log")
                raise
            self._ask(place, "commit_removal")
        return self.cover(database)

    def lost_by_unprotect(
        self, database: Database, tables: Sequence[str], effects: Sequence[Effect]
    ) -> Sequence[Effect]:
        path = path_of(self._resolved(database))
        return [one for one in effects if path_of(database_of(one)) == path]

    # -- Adapter

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        offers = (Offer(Strategy.SNAPSHOT, why=_WHY),)
        if change.kind == UNDO:
            return self._assess_undo(change, demand_remedy(of), offers)
        database = asked_for(change, None)
        if change.phase.reviewed:
            return Assessment((resource_of(database),), offers)
        path = path_of(database)
        if not os.path.isfile(path):
            raise _missing(path)
        if not os.access(path, os.W_OK) or not os.access(os.path.dirname(path) or ".", os.W_OK):
            raise ResourceUnreachable(
                f"{path} cannot be written.", hint="Check the rights of the file and its directory."
            )
        return Assessment((resource_of(database),), offers)

    def _assess_undo(self, change: Change, of: Effect, offers: tuple[Offer, ...]) -> Assessment:
        database = database_of(of)
        found = self._ask(database, "assess_undo", of.id, _policy(change))
        outcomes: list[TargetOutcome] = []
        if found["undone"] or found["already"]:
            outcome = Outcome.UNDONE if found["undone"] else Outcome.ALREADY
            outcomes.append(TargetOutcome(target_of(database, of.id), outcome, "", of.id))
        for table, key, kind, detail in found["conflicts"]:
            what = _OBSTACLES.get(kind, Obstacle.OTHER)
            outcomes.append(obstructed(database, detail, table, key, what=what, effect=of.id))
        if (more := found["count"] - len(found["conflicts"])) > 0:
            outcomes.append(
                outcomes[-1]._replace(resource=resource_of(database), detail=f"and {more} more rows")
            )
        return Assessment((resource_of(database),), offers, outcomes=tuple(outcomes))

    def apply(self, effect: Effect) -> Receipt:
        if effect.of is not None:
            given = (effect.of.id, effect.id, _policy(effect.change), effect.change.undo.partial)
            return Receipt(self._made(effect, "undo", *given))
        if effect.phase.reviewed is not None:
            return self._keep(effect)
        raise Misuse("These statements came through a connection that has ended.", hint="Make them again.")

    def _keep(self, effect: Effect) -> Receipt:
        """What its session holds open is committed. Twice is once."""
        if (session := self._held.get(effect.id)) is not None and session.keep(effect.id):
            del self._held[effect.id]
        there, receipt = self._ask(database_of(effect), "marker", effect.id)
        if not there:
            raise Refused(
                f"Effect {effect.id[:8]} is not held any more: SQLite has rolled it back.",
                hint="Nothing was changed. Only the session that made it can hold it, and for a limited time.",
            )
        return Receipt(receipt)

    def _drop(self, effect: Effect) -> bool:
        session = self._held.pop(effect.id, None)
        if session is None or not session.holds(effect.id):
            return False
        session.drop(effect.id)
        return True

    def verify(self, effect: Effect) -> Sighting:
        if (session := self._held.get(effect.id)) is not None and session.holds(effect.id):
            return sighted(effect, None, held=True)._replace(detail="It is held, and waits for a decision.")
        # Right after the commit the process that made it answers, which has the file open.
        session = self._committed.pop(effect.id, None)
        found = session.reread(effect.id) if session is not None else None
        there, receipt = found or self._ask(database_of(effect), "marker", effect.id)
        return sighted(effect, receipt if there else None)

    def undo(self, effect: Effect) -> None:
        if not self._drop(effect):
            self._made(effect, "take_back", effect.id)

    def tidy(self, effect: Effect) -> None:
        """The file is not held open longer than needed: others may look who has it open."""
        if effect.change.kind == PROGRAM:
            copy = _copy(database_of(effect), effect)
            for name in (copy, f"{copy}.part", *(f"{copy}{_THEN}{end}" for end in _ENDS)):
                with suppress(FileNotFoundError):
                    os.unlink(name)
        if effect.state is State.PROPOSED:
            self._drop(effect)
        self._close_file()

    def _close_file(self) -> None:
        with self._lock:
            if self._desk is not None:
                self._desk.close_file()

    def release(self, effect: Effect) -> None:
        self._ask(database_of(effect), "release", effect.id)

    # -- Programs

    def enter(self, effect: Effect, tell: Tell = quiet) -> Mapping[str, str]:
        """The file is copied beside it: whatever is changed until the program ends is taken for its doing. By the
        variable it is only found again, should we die before it."""
        database = database_of(effect)
        self._ask(database, "snapshot", _copy(database, effect))
        self._close_file()
        # A program can be inside another one: then it belongs to both.
        around = os.environ.get("TAKEBACK_PROGRAM", "")
        return {MARK: f"{around} {effect.id}".strip()}

    def recall(self, effect: Effect, files: Mapping[str, Iterable[bytes]]) -> None:
        """Instead of `enter`, afterwards: the files of the database as they were, by the ends of their names."""
        database = database_of(effect)
        copy = _copy(database, effect)
        for end, pieces in files.items():
            name = f"{copy}{_THEN}{end}"
            with open(
                name, "xb", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o600)
            ) as file:
                file.writelines(pieces)
        self._ask(database, "recall", f"{copy}{_THEN}", copy)

    def out_of_reach(self, database: Database) -> str:
        return "a sandbox cannot change a SQLite file"

    def leave(self, effect: Effect) -> dict[str, Any] | None:
        database = database_of(effect)
        return self._ask(database, "compare", _copy(database, effect), effect.id)

    def found(self, effect: Effect, others: Sequence[Effect]) -> FoundChange | None:
        if processes := at_work(effect.id):
            raise StoreBusy(
                f"The program is still running (process {processes[0]}); its changes are not recorded yet.",
                hint="End it, or wait until it has ended; then run `takeback recover`.",
                effect=effect.id,
            )
        return found_with(effect, self.leave(effect))

    # -- the process

    def _made(self, effect: Effect, what: str, *given: Any) -> Any:
        database = database_of(effect)
        try:
            return self._exchange(database, InDoubt, what, *given)
        except Conflict as error:
            named = (one.partition("\0") for one in error.resources)
            resources = tuple(
                resource_of(database, table, *([key] if key else [])) for table, _, key in named
            )
            raise Conflict(str(error), hint=error.hint, resources=resources) from None

    def _ask(self, database: Database, what: str, *given: Any) -> Any:
        return self._exchange(database, ResourceUnreachable, what, *given)

    def _exchange(self, database: Database, lost: Callable[[str], Exception], what: str, *given: Any) -> Any:
        with self._lock:
            if self._desk is None:
                self._desk = SqliteDesk(path_of(database), self._waiting.seconds, self._tell)
            self._desk.turn_to(path_of(database))
            try:
                return self._desk.ask(what, *given)
            except Gone:
                raise lost("The process that works on the database ended before it answered.") from None

    def close(self) -> None:
        if self._desk is not None:
            self._desk.end()
            self._desk = None

    def _resolved(self, database: Database) -> Database:
        return resolved(database._replace(url=self._keyring.url(database)))

    def _there(self, database: Database) -> Database:
        """An address that names no file is a mistake of the caller, and not a server that may come back."""
        place = self._resolved(database)
        if not os.path.exists(path_of(place)):
            raise _missing(path_of(place))
        return place


def _telling(held: Sessions, waiting: Waiting) -> Callable[[int, str], None]:
    """Report what a statement waits for; our own held changes are named by their effect. The function does not refer to
    the adapter: a circle would keep the child process alive longer than both."""

    def tell(process: int, words: str) -> None:
        effect = next((id for id, session in held.items() if session.pid == process), "")
        waiting.tell(f"waiting for {Holder(effect, session=words).words}")

    return tell


def _copy(database: Database, effect: Effect) -> str:
    """Of the file as it was before a program. Scratch carries the name of its effect."""
    directory, name = os.path.split(path_of(database))
    return os.path.join(directory, f".takeback-{effect.id}-{name}")


def _policy(change: Change) -> str:
    policy = change.undo.on_conflict
    if policy.merges:  # rows are compared one by one, and never merged
        policy = OnConflict.SKIP if policy.skips else OnConflict.REFUSE
    return policy.value


def _missing(path: str) -> Misuse:
    return Misuse(
        f"There is no database at {path}.",
        hint="Check the path. An empty file is a database too: make one first if it is to be a new one.",
    )
