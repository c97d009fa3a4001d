"""A journal that writes the outcome of one effect together with the intent of the next: where the next is known, an
effect takes one durable commit instead of two."""

from collections.abc import Iterator, Sequence
from typing import Any

from takeback.errors import InDoubt
from takeback.model.effect import Effect
from takeback.model.record import Draft, Kind, Record
from takeback.model.run import Lease
from takeback.storage.protocols import Journal, Query


class Joined:
    """The same journal; a single `done` is held until the next append. Nobody may be told of it before `flush`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lease: Lease | None = None
        self._held: list[Draft] = []

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        if len(drafts) == 1 and drafts[0].kind is Kind.DONE and not self._held:
            self._lease, self._held = lease, list(drafts)
            return ()
        held, self._held = self._held, []
        if held and lease != self._lease:
            self._journal.append(self._lease, held)
            held = []
        try:
            return self._journal.append(lease, [*held, *drafts])[len(held) :]
        except InDoubt:
            raise  # both or neither are written; recovery finds out, and a second `done` would be one too many
        except BaseException:
            # The new one was refused, and with it what is true of the one before.
            self._held = held
            raise

    def flush(self) -> None:
        held, self._held = self._held, []
        if held:
            self._journal.append(self._lease, held)

    def effects(self, query: Query) -> Iterator[Effect]:
        # Who asks for another key, before each call, is not told less for what is held.
        if not query.key:
            self.flush()
        return self._journal.effects(query)

    def __getattr__(self, name: str) -> Any:
        self.flush()
        return getattr(self._journal, name)
