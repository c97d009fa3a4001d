"""People in the loop: what waits for an approval, and what only a person can tell."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse
from takeback.model.attention import DECIDED
from takeback.model.effect import Effect
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease, OnDeath, RunState
from takeback.runs.names import name_of
from takeback.storage.process import myself
from takeback.storage.store import Store
from takeback.upkeep import now

if TYPE_CHECKING:
    from takeback.engine.parts import Parts


class Deciding(ABC):
    """The part of a store opened where a person decides."""

    store: Store

    @property
    @abstractmethod
    def parts(self) -> "Parts": ...

    @property
    @abstractmethod
    def _lease_lasts(self) -> int: ...

    @abstractmethod
    def effect(self, id: str) -> Effect: ...

    @abstractmethod
    def _before_change(self) -> None: ...

    @abstractmethod
    def _tell(self, words: str) -> None: ...

    @abstractmethod
    def _wake_settled(self) -> None:
        """Whoever waited for what is settled now."""

    @abstractmethod
    def _go_on_undoing(self, run: str) -> None: ...

    @abstractmethod
    def _leased(self, run: str) -> AbstractContextManager[Lease]: ...

    def pending(self) -> tuple[Effect, ...]:
        """What waits for an approval, oldest first."""
        from takeback.engine.approval import proposals

        found = proposals(self.parts, now())
        return tuple(one.effect for one in found if not one.decision and not one.never)

    def approve(self, id: "Effect | str", *, by: str, answer: str = "") -> Effect:
        """Say yes to exactly what was proposed. For what cannot be undone `answer` has to say so. The run that asked
        then makes it, when it asks again; refused if that has ended."""
        return self._decide(id, True, by, answer)

    def deny(self, id: "Effect | str", *, by: str, why: str = "") -> Effect:
        """Say no to this proposal; the run that asked is told so. Asked for again, it is another proposal."""
        return self._decide(id, False, by, "", why)

    def _decide(self, id: "Effect | str", approved: bool, by: str, answer: str, why: str = "") -> Effect:
        from takeback.engine.approval import decide, refuse_undecidable

        self.store.refuse_if_suspect()
        effect = self.effect(name_of(id))
        refuse_undecidable(self.parts, effect, now())
        self._before_change()
        decide(self.parts, effect, approved, by, answer, why, now=now())
        self._wake(effect)
        return self.effect(effect.id)

    def settle(self, effect: "Effect | str", happened: bool, *, receipt: Any = None, by: str = "") -> Effect:
        """Say of a call that is in doubt whether it happened; `receipt` is what it would have returned. Then its run,
        if that is over, follows its policy, and whoever waited for it goes on."""
        from takeback.engine.recover import recover
        from takeback.engine.word import refuse_unsettleable, settle

        self.store.refuse_if_suspect()
        if not isinstance(happened, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                f"Whether it happened is True or False, not {happened!r}.", hint="Nothing was recorded."
            )
        found = self.effect(name_of(effect))
        self._before_change()
        found = self.effect(found.id)
        refuse_unsettleable(found)
        with self._leased(found.run) as lease:
            settle(self.parts, lease, found, happened, receipt, by)
        recover(self.parts, myself(), now(), self._lease_lasts, only=found.run, tell=self._tell)
        self._wake_settled()
        self._go_on_undoing(found.run)
        return self.effect(found.id)

    def _wake(self, effect: Effect) -> None:
        """The workflow that waits for the decision."""
        for info in self.store.journal.runs((effect.run,)):
            if info.on_death is OnDeath.RESUME and info.state in (RunState.OPEN, RunState.SUSPENDED):
                body = {"name": f"{DECIDED}{effect.id}", "data": "null"}
                self.store.journal.append(None, [Draft(Kind.SIGNAL, effect.run, "", body)])
