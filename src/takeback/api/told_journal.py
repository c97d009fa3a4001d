"""Pass on what this process records to the host's `logging` and OpenTelemetry, where the host has loaded them.

Nothing is loaded, configured or printed here. A record is passed on once it is durable, and the lock is free again.
"""

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from takeback.model.record import Draft, Record
from takeback.model.run import Lease
from takeback.storage.protocols import Journal
from takeback.storage.store import Store

if TYPE_CHECKING:
    from takeback.api.spans import Spans
    from takeback.audit.events import EventReader, StoreEvent

# By the name of the event: the rest is INFO.
_LEVELS = {
    **dict.fromkeys(("stuck", "in-doubt", "breaker"), 40),
    **dict.fromkeys(("denied", "expired", "aborted", "dropped", "stopped", "forgotten", "redacted"), 30),
    **dict.fromkeys(("began", "undo-began", "proposed", "checkpoint", "run-resumed", "run-suspended"), 10),
}
_INFO = 20
_AREAS = ("effects", "runs", "store")


class ToldJournal:
    """The same journal."""

    def __init__(self, store: Store) -> None:
        self._journal = store.journal
        self._lock: Any = store.database.lock
        self._waiting: list[Record] = []  # of a transaction that is not over
        self._reader: EventReader | None = None
        self._spans: Spans | None = None
        self._telling = threading.Lock()
        store.database.after_write.append(self._tell_waiting)
        store.database.after_rollback.append(self._waiting.clear)

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        records = self._journal.append(lease, drafts)
        if "logging" in sys.modules or "opentelemetry" in sys.modules:
            self._tell(records)
        return records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def _tell(self, records: tuple[Record, ...]) -> None:
        if (
            self._lock._is_owned()
        ):  # an outer transaction may still be rolled back, and foreign code would hold it up
            self._waiting += records
            return
        with suppress(Exception):  # no change fails because of a listener
            self._tell_now(records)

    def _tell_waiting(self) -> None:
        if self._waiting and not self._lock._is_owned():
            waiting = tuple(self._waiting)
            self._waiting.clear()
            self._tell(waiting)

    def _tell_now(self, records: Sequence[Record]) -> None:
        logging, spans = _loaded_logging(), self._loaded_spans()
        if not (logging or spans):
            return
        with self._telling:
            reader = self._reader = self._reader or _reader(self._journal)
            told = [(record, event) for record in records if (event := reader.event(record))]
        for record, event in told:
            if spans:
                spans.tell(record, event)
            if logging:
                _log(logging, event)

    def _loaded_spans(self) -> "Spans | None":
        if "opentelemetry" not in sys.modules:
            return None
        if self._spans is None:
            from takeback.api.spans import spans

            self._spans = spans()
        return self._spans


def told(store: Store) -> Journal:
    return cast("Journal", ToldJournal(store))


def _reader(journal: Journal) -> "EventReader":
    from takeback.adapters.protocol import TRAITS, Traits
    from takeback.audit.events import EventReader

    return EventReader(journal, lambda adapter: TRAITS.get(adapter, Traits()).calls)


def _loaded_logging() -> Any:
    """The module, if the host has loaded it and anything of ours is heard. Half loaded it has no loggers yet."""
    get: Any = getattr(sys.modules.get("logging"), "getLogger", None)
    # Without a handler Python would print warnings by itself, and takeback prints nothing.
    heard = get and any(
        one.hasHandlers() and one.isEnabledFor(40) for one in (get(f"takeback.{area}") for area in _AREAS)
    )
    return sys.modules["logging"] if heard else None


def _log(logging: Any, event: "StoreEvent") -> None:
    area = "runs" if event.name.startswith("run-") else "effects" if event.effect else "store"
    logger, level = logging.getLogger(f"takeback.{area}"), _LEVELS.get(event.name, _INFO)
    if logger.isEnabledFor(level):
        from takeback.audit.events import event_json, in_words

        logger.log(level, "%s", in_words(event), extra={"takeback": event_json(event)})
