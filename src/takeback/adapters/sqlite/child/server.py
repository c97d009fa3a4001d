"""The requests that the process answers. One database at a time."""

import time
from collections.abc import Callable
from typing import Any

import apsw

from takeback.adapters.database import SECONDS
from takeback.adapters.sqlite.child import programs, questions, undo
from takeback.adapters.sqlite.child.driver import Cursor, Patience
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.transaction import Recording
from takeback.adapters.sqlite.wire import Tell, silently
from takeback.errors import Misuse, StoreBusy

_OF_THE_FILE: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *questions.QUESTIONS, programs.snapshot, programs.recall, programs.compare, undo.assess_undo, undo.undo,
        undo.take_back,
    )
}  # fmt: skip


class ChildServer:
    def __init__(self, has_parent: Callable[[], bool], tell: Tell = silently) -> None:
        self._has_parent = has_parent
        self._tell = tell
        self._path = ""
        self._seconds = SECONDS
        self._place: OpenFile | None = None
        self._recording: Recording | None = None
        self._held = ""  # the effect whose transaction waits for a decision
        self._until = 0.0  # and until when

    def answer(self, what: str, *given: Any) -> Any:
        """To a question about the file, or to one that a method here answers."""
        if asked := _OF_THE_FILE.get(what):
            return asked(self.place, *given)
        return getattr(self, what)(*given)

    # -- the file

    def open(self, path: str, patience: int = SECONDS) -> None:
        """`patience`: seconds to wait for someone else's transaction; 0: no limit."""
        if self._place is not None and self._place.path == path:
            return
        self.close()
        self._path, self._seconds = path, patience
        self._place = self._opened()

    def close(self) -> None:
        if self._recording is not None:
            self.rollback()
        if self._place is not None:
            self._place.close()
            self._place = None

    @property
    def place(self) -> OpenFile:
        if self._place is not None and self._recording is None and self._place.is_replaced:
            self._place.close()
            self._place = None
        if self._place is None:
            self._place = self._opened()
        return self._place

    def _opened(self) -> OpenFile:
        return OpenFile(self._path, Patience(self._path, self._seconds, self._has_parent, self._tell))

    # -- statements

    def read(self, statement: str, parameters: Any) -> tuple[list[Any], list[str], int] | None:
        """None if it would write."""
        place = self.place
        place.watchman.fresh()
        columns: list[str] = []
        rows: list[Any] = []
        cursor = place.connection.cursor()
        writes = False

        def before_each(cursor: Cursor, text: str, bindings: Any) -> bool:
            nonlocal writes
            watchman = place.watchman
            writes = not (cursor.is_readonly or cursor.is_explain) or bool(watchman.header) or watchman.nests
            columns[:] = [one[0] for one in cursor.get_description()]
            rows.clear()  # the answer is that of the last one
            return not writes

        cursor.exec_trace = before_each
        try:
            rows.extend(cursor.execute(statement, parameters or None, can_cache=False))
        except apsw.ExecTraceAbort:
            return None
        except apsw.Error as error:
            raise place.trouble(error) from None
        finally:
            cursor.close(True)
        return rows, columns, len(rows)

    def begin(self, id: str, most: int = 0) -> None:
        if self._recording is not None:
            raise Misuse("There is a transaction open already.")
        self._recording = Recording(self.place, id, most)

    def begin_with(
        self, id: str, most: int, statement: str, parameters: Any, many: bool
    ) -> tuple[list[Any], list[str], int]:
        """Asked together: a message there and back takes as long as a small statement."""
        self.begin(id, most)
        return self.execute(statement, parameters, many)

    def execute(self, statement: str, parameters: Any, many: bool) -> tuple[list[Any], list[str], int]:
        return (self._recording or self._open_recording()).execute(statement, parameters, many)

    def commit(self) -> dict[str, Any] | None:
        recording = self._recording or self._open_recording()
        try:
            receipt = recording.commit()
        except BaseException:
            self.rollback()
            raise
        self._recording = None
        return receipt

    def rollback(self) -> None:
        recording, self._recording = self._recording, None
        self._held = ""
        if recording is not None:
            recording.rollback()

    # -- a transaction that waits for a person

    def review(self) -> dict[str, Any] | None:
        """The receipt that `commit` would return. None: it changes nothing, and is rolled back."""
        try:
            receipt = self._open_recording().log()
        except BaseException:
            self.rollback()
            raise
        if receipt is None:
            self.rollback()
        return receipt

    def hold(self, id: str, seconds: float) -> None:
        self._open_recording()
        self._held, self._until = id, time.monotonic() + seconds

    def holds(self, id: str) -> bool:
        return self._held == id != ""

    def keep(self, id: str) -> bool:
        """Commits it; False if it is not held any more. A reader in the way leaves it held."""
        if not self.holds(id):
            return False
        try:
            self._open_recording().finish()
        except StoreBusy:
            raise
        except BaseException:
            self.rollback()
            raise
        self._recording, self._held = None, ""
        return True

    def drop(self, id: str) -> None:
        if self.holds(id):
            self.rollback()

    def due(self) -> float | None:
        """Seconds until the held transaction expires; after that this call rolls it back."""
        if not self._held:
            return None
        if (left := self._until - time.monotonic()) > 0:
            return left
        self.rollback()
        return None

    def _open_recording(self) -> Recording:
        if self._recording is None:
            raise Misuse("There is no transaction open.")
        return self._recording
