"""A database whose changes wait for a person: made in a transaction, shown, and then applied or discarded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from takeback.adapters.database.protocol import OPEN, Reviewing, Session
from takeback.engine import review, stretch
from takeback.engine.do import Terms
from takeback.engine.held import discard_held
from takeback.engine.holding import named
from takeback.errors import Misuse, RowsHeld, TakebackError
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.runs.sql import Hand, Made, Sql
from takeback.storage.protocols import Query

LIMIT = 300.0  # seconds


class ReviewedSql(Sql):
    """Each statement that changes something, or each `transaction()`, is an effect that is held: `run.apply` commits
    it, `run.discard` drops it. It holds the locks of its rows until then."""

    def __init__(self, hand: Hand, session: Session, limit: float) -> None:
        super().__init__(hand, session)
        if not isinstance(session, Reviewing):
            session.close()
            raise Misuse(
                "Changes of this kind of database cannot be shown before they are made.",
                hint="Nothing was changed. Made at once (without --dry-run or --review), it can be taken back.",
            )
        if not limit > 0:
            session.close()
            raise Misuse("The limit is a number of seconds.", hint="For example limit=60.")
        self._reviewing = session
        self._limit = limit
        self._open = ""  # the effect whose transaction this session holds

    def _refuse_undecided(self) -> None:
        if self._open and self._held(self._open):
            name = short(self._open)
            raise Misuse(
                f"Effect {name} is held in this session and waits for a decision.",
                hint=f'run.apply("{name}") commits it, run.discard("{name}") drops it.',
                effect=self._open,
            )
        self._open = ""

    def _held(self, id: str) -> Effect | None:
        (effect,) = self._hand.parts.journal.effects(Query(ids=(id,)))
        return effect if effect.waits_for else None

    @contextmanager
    def _made(self, change: Change, terms: Terms) -> Iterator[Made]:
        hand = self._hand
        made = Made(stretch.ready(hand.parts, hand.lease, change, terms))
        if made.before:
            yield made
            return
        try:
            self._session.begin(made.effect)
            yield made
            with hand.uninterrupted():
                made.effect = self._proposed(made.effect)
        except BaseException as error:
            with hand.uninterrupted():
                self._session.rollback()
            if isinstance(error, RowsHeld):
                raise named(hand.parts, change.resource, error) from error
            if isinstance(error, TakebackError):
                error.effect = None  # there is none
            raise
        if made.effect.state is State.PROPOSED:
            hand.took_hold(made.effect)

    def _proposed(self, effect: Effect) -> Effect:
        hand = self._hand
        shown = self._reviewing.review()
        if shown.receipt is None:
            return effect._replace(state=State.ABORTED)
        until = time.time_ns() + int(self._limit * 1e9) if shown.how == OPEN else 0
        effect = review.propose(hand.parts, hand.lease, effect, shown, until)
        try:
            self._reviewing.hold(effect, self._limit)
        except BaseException:
            self._session.rollback()
            discard_held(hand.parts, hand.lease, effect)
            raise
        if shown.how == OPEN:
            self._open = effect.id
        return effect

    def close(self) -> None:
        """What only this session holds is dropped with it."""
        with self._hand.lock:
            held = self._held(self._open) if self._open else None
            if held:
                discard_held(self._hand.parts, self._hand.lease, held)
            self._open = ""
            super().close()
