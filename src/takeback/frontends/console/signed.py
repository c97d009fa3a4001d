"""A hand for one visitor: the same store, in whose journal each decision says who took it, and how that is known."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from takeback.api import Takeback, opened_of
from takeback.model.progress import SILENT, Progress
from takeback.model.record import Draft, Kind, Record
from takeback.model.run import Lease
from takeback.storage.protocols import Journal

if TYPE_CHECKING:
    from takeback.frontends.console.visitor import Visitor

# What follows from a decision is found by its run; what an adapter did has no other author than that run.
_SIGNED = (
    Kind.OPEN, Kind.CLOSE, Kind.DECIDE, Kind.ACCEPT, Kind.PIN, Kind.UNPIN, Kind.DROP, Kind.ERASE, Kind.SIGNAL,
    Kind.FORGET, Kind.STOP, Kind.LIFT, Kind.TRUST, Kind.REHEARSE, Kind.CLIMB,
)  # fmt: skip


class SignedJournal:
    def __init__(self, journal: Journal, said: Mapping[str, str]) -> None:
        self._journal = journal
        self._said = said

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        return self._journal.append(lease, [self._signed(one) for one in drafts])

    def _signed(self, draft: Draft) -> Draft:
        decided = draft.kind in _SIGNED or draft.body.get("by") == self._said["by"]
        return draft._replace(body={**draft.body, **self._said}) if decided else draft

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def hand_of(
    tb: Takeback,
    visitor: "Visitor",
    progress: Progress = SILENT,
    tell: Callable[[str], None] = lambda words: None,
) -> Takeback:
    """Not to be closed: the store is that of the console."""
    _ = tb.store.blobs  # made once: what is put through one handle is committed through it
    store = copy(tb.store)
    hand = Takeback(store)
    store.journal = cast(Journal, SignedJournal(tb.store.journal, visitor.said))
    opened_of(hand).settles = True
    opened_of(hand).progress = progress
    hand.tell = tell
    return hand
