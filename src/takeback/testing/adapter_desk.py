"""Carry changes out with one adapter, as the engine does: for tests of adapters that need no journal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from takeback.adapters.protocol import Adapter
from takeback.model.change import UNDO, Change
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id
from takeback.model.plan import OnConflict, Outcome
from takeback.model.record import canonical
from takeback.model.remedy import from_json, to_json
from takeback.model.standing import Standing
from takeback.storage.protocols import Blobs


class AdapterScene(Protocol):
    """One world and one change of it."""

    @property
    def blobs(self) -> Blobs: ...

    def adapter(self) -> Adapter:
        """A new one each time, as a fresh process would have it, over the same world and blobs."""
        ...

    def change(self) -> Change:
        """What is asked for; the same each time while the world is the same. It changes something."""
        ...

    def world(self) -> Any:
        """Everything the adapter promises to bring back, to be compared with `==`; scratch of any kind included."""
        ...

    def reset(self) -> None:
        """The world as it was at first, equal in `world()`."""
        ...

    def disturb(self) -> None:
        """Someone else changes what the change is about, so that it is neither as before nor as after."""
        ...


class Desk:
    """Carries changes out as the engine does, without a journal; every step with the adapter it is given."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def propose(self, change: Change, of: Effect | None = None) -> Effect:
        return Effect(
            id=new_id(), run="run", agent="agent", seq=1, state=State.PROPOSED, change=change,
            undoes=of.id if of else "", of=of,
        )  # fmt: skip

    def intend(self, change: Change, of: Effect | None = None, named: bool = False) -> Effect:
        """Up to the intent: assessed, staged, captured; the remedy has been through JSON, as in the journal."""
        effect = self.propose(change, of)
        assessment = self.adapter.assess(change, of)
        if self.adapter.traits.stages:
            self.adapter.stage(effect, named)
        remedy = self.adapter.capture(effect, assessment.offers[0])
        return effect._replace(state=State.INTENDED, remedy=from_json(json.loads(canonical(to_json(remedy)))))

    def do(self, change: Change, of: Effect | None = None, named: bool = False) -> Effect:
        effect = self.intend(change, of, named)
        receipt = self.adapter.apply(effect)
        assert self.adapter.verify(effect).standing is Standing.AFTER, self.adapter.verify(effect)
        self.adapter.tidy(effect)
        return effect._replace(state=State.DONE, receipt=receipt.data)

    def undo(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Effect:
        """Take a done effect back; what comes back is the effect that did it, and taking that back is redo."""
        change = undo_of(effect, on_conflict)
        if self.adapter.traits.marks and on_conflict.skips:
            outcomes = self.adapter.assess(change, effect).outcomes
            if any(one.outcome not in (Outcome.UNDONE, Outcome.ALREADY) for one in outcomes):
                change = change._replace(args=change.args | {"partial": True})
        return self.do(change, of=effect)


def undo_of(effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Change:
    args = {"on_conflict": on_conflict.value}
    return Change(effect.change.adapter, UNDO, effect.change.resource, f"undo: {effect.change.summary}", args)


@contextmanager
def raises(*kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds:
        return
    raise AssertionError(f"nothing of {', '.join(kind.__name__ for kind in kinds)} was raised")


def settle(adapter: Adapter, effect: Effect) -> Standing:
    """As recovery does for an effect that has an intent and no outcome; where it ended."""
    standing = adapter.verify(effect).standing
    if standing is Standing.BETWEEN:
        adapter.undo(effect)
    adapter.tidy(effect)
    return adapter.verify(effect).standing


def keep_only(blobs: Blobs, listed: tuple[str, ...]) -> None:
    """Forget whatever these blobs do not need."""
    blobs.sync()
    blobs.sweep(lambda: listed, 0)
