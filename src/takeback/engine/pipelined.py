"""A journal that writes the outcome of one effect together with the intent of the next: where the next is known, an
effect takes one durable commit instead of two."""

from collections.abc import Iterator, Sequence
from typing import Any

from takeback.engine.settle import unrecorded
from takeback.errors import InDoubt, LeaseLost, Refused, TakebackError, Unavailable
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.record import Draft, Kind, Record
from takeback.model.run import Lease
from takeback.storage.protocols import Journal, Query


class PipelinedJournal:
    """The same journal; a single `done` is held until the next append. Nobody may be told of it before `flush`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lease: Lease | None = None
        self._held: list[Draft] = []
        self._intended: Draft | None = None  # what the one that is held was announced as

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        if len(drafts) == 1 and drafts[0].kind is Kind.DONE and not self._held:
            self._lease, self._held = lease, list(drafts)
            return ()
        if lease != self._lease:
            self.flush()
        held, self._held = self._held, []
        try:
            records = self._journal.append(lease, [*held, *drafts])[len(held) :]
            self._intended = drafts[-1]
            return records
        except InDoubt as error:
            if not held:
                raise
            # Both or neither are written; recovery finds out, and a second `done` would be one too many.
            raise self._unrecorded(held, error) from error
        except BaseException:
            # The new one was refused, and with it what is true of the one before.
            self._held = held
            raise

    def flush(self) -> None:
        held, self._held = self._held, []
        if not held:
            return
        try:
            self._journal.append(self._lease, held)
        except LeaseLost:
            raise
        except (Unavailable, InDoubt, Refused) as error:
            raise self._unrecorded(held, error) from error

    def _unrecorded(self, held: list[Draft], error: TakebackError) -> InDoubt:
        known = self._intended.body if self._intended and self._intended.effect == held[0].effect else {}
        what = known.get("summary", f"Effect {short(held[0].effect)}")
        return unrecorded(held[0].effect, f"{what} was called", error)

    def effects(self, query: Query) -> Iterator[Effect]:
        # Who asks for another key, before each call, is not told less for what is held.
        if not query.key:
            self.flush()
        return self._journal.effects(query)

    def __getattr__(self, name: str) -> Any:
        self.flush()
        return getattr(self._journal, name)
