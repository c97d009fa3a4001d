"""What a person decides: accept, apply or discard what is held, pin, approve, say what became of a doubt."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

from takeback.errors import Misuse, Renamed, TakebackError
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.record import Draft, Kind
from takeback.model.run import DECIDED, Lease, OnDeath, RunState
from takeback.runs.selection import name_of, names_of
from takeback.storage.owners import myself
from takeback.storage.sqlite.store import Store
from takeback.upkeep import now

if TYPE_CHECKING:
    from takeback.engine.parts import Parts


class Acceptance(ABC):
    """The part of a store opened where someone says what stays, what is made, and what is never forgotten."""

    store: Store

    @property
    @abstractmethod
    def parts(self) -> "Parts": ...

    @abstractmethod
    def effect(self, id: str) -> Effect: ...

    @abstractmethod
    def _before_change(self) -> None: ...

    @abstractmethod
    def _leased(self, run: str) -> AbstractContextManager[Lease]: ...

    def accept(
        self, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Say that these stay: no longer taken back when their run fails, and forgettable after their time."""
        from takeback.runs.held import refuse_unmade

        effects = self._meant(what, dry_run)
        for effect in effects:
            refuse_unmade(effect, "accepted")
        return tuple(effects) if dry_run else self._say(Kind.ACCEPT, effects)

    def apply(
        self, what: "Effect | str | Sequence[Effect | str]", *, force: bool = False, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Make what is held, or was dropped and is not erased yet; with `force` also over what others changed since:
        undo brings that back. One of which all is there already stays held, or dropped."""
        from takeback.runs.held import make_held, refuse_unheld

        held = self._meant(what, dry_run)
        for effect in held:
            refuse_unheld(effect)
        if dry_run:
            for effect in held[:1]:  # what a later one finds depends on those before it
                make_held(self.parts, effect, force, self._leased, dry_run=True)
            return tuple(held)
        for place, effect in enumerate(held):
            try:
                make_held(self.parts, effect, force, self._leased)
            except TakebackError as error:
                if made := self._made(held[:place]):
                    names = ", ".join(short(one.id) for one in self._say(Kind.ACCEPT, made))
                    error.hint = f"Before it {names} was made, and stays. Of this one: {error.hint}"
                raise
        self._say(Kind.ACCEPT, self._made(held))
        return tuple(self.effect(one.id) for one in held)

    def _made(self, held: Sequence[Effect]) -> list[Effect]:
        """Without those of which all was there already: they stay held, or dropped."""
        return [one for one in held if self.effect(one.id).state is State.DONE]

    def discard(
        self, what: "Effect | str | Sequence[Effect | str]", *, now: bool = False, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Drop what is held: it is not made, and for a day `apply` can make it after all. With `now` it is erased at
        once, also if it was dropped before."""
        from takeback.runs.held import discard_all, refuse_unheld

        effects = self._meant(what, dry_run)
        for effect in effects:
            refuse_unheld(effect, dropped=now)
        if dry_run:
            return tuple(effects)
        self.store.use_spare()
        held = [one for one in effects if one.state is not State.DROPPED]
        gone = {one.id: one for one in discard_all(self.parts, held, False, self._leased).effects}
        if now:
            self._erase([gone.get(one.id, one) for one in effects])
        else:
            self._expire_drops()
        return tuple(self.effect(one.id) for one in effects)

    @abstractmethod
    def _erase(self, effects: Sequence[Effect]) -> None: ...

    @abstractmethod
    def _expire_drops(self) -> int: ...

    def pin(
        self, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Never forget the way back of these, or what that way back needs."""
        return self._pinned(what, Kind.PIN, dry_run)

    def unpin(
        self, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """From now on these are forgotten like any other effect."""
        return self._pinned(what, Kind.UNPIN, dry_run)

    def _pinned(
        self, what: "Effect | str | Sequence[Effect | str]", kind: Kind, dry_run: bool
    ) -> tuple[Effect, ...]:
        from takeback.runs.held import refuse_forgotten, refuse_unmade

        effects = self._meant(what, dry_run)
        for effect in effects:
            refuse_unmade(effect, f"{kind.value}ned")
            refuse_forgotten(effect)
        return tuple(effects) if dry_run else self._say(kind, effects)

    def keep(self, *what: object, **wishes: object) -> NoReturn:
        """Renamed: says which word is meant, and does nothing."""
        raise Renamed(
            "tb.keep was renamed.", hint="tb.accept accepts what was made, tb.apply makes what is held."
        )

    def _meant(self, what: "Effect | str | Sequence[Effect | str]", dry_run: bool) -> list[Effect]:
        """As they stand after what a crash left is settled; `@` is what it was before that."""
        ids = [self.effect(name).id for name in names_of(what)]
        if not dry_run:
            self._before_change()
        return [self.effect(id) for id in ids]

    def _say(self, kind: Kind, effects: "Sequence[Effect]") -> tuple[Effect, ...]:
        """Record it of those of which it is not said yet."""
        said: dict[Kind, Callable[[Effect], bool]] = {
            Kind.ACCEPT: lambda one: one.accepted_by == "person",
            Kind.PIN: lambda one: one.pinned,
            Kind.UNPIN: lambda one: not one.pinned,
        }
        fresh = [self.effect(one.id) for one in effects]
        drafts = [Draft(kind, one.run, one.id) for one in fresh if not said[kind](one)]
        if drafts:
            self.store.journal.append(None, drafts)
        return tuple(self.effect(one.id) for one in fresh)


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
        from takeback.engine.approval import refuse_unsettleable, settle
        from takeback.engine.recover import recover

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
