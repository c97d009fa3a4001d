"""The part of a run that calls functions which act on the world outside."""

from _thread import get_ident
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from takeback.engine.joined import Joined
from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect, State, waits_for_approval
from takeback.model.looking import CALLING, refuse_inside_a_call
from takeback.model.run import RunInfo
from takeback.runs.changing import Changing
from takeback.runs.names import names_of, refuse_odd_key
from takeback.runs.spent import Past, answer, forked, past_of, went_back
from takeback.runs.verbs import Options
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.adapters.call.action import Action
    from takeback.adapters.call.adapter import CallAdapter
    from takeback.engine.parts import Parts


class Calling(Changing, ABC):
    _past: Past | None  # None: the journal was not asked yet

    @abstractmethod
    def outlast(self, seconds: float) -> None:
        """The lease is held for that long from now."""

    def call(
        self,
        action: "Action",
        /,
        *arguments: Any,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        **named: Any,
    ) -> Any:
        """Call an action; what it returned, as JSON gives it back. Asked again with the same key it is not called
        again: the recorded result is returned. `key` is given to the function, and to its probe; without one it is
        made from the run, the place in it, and what is asked for."""
        from takeback.adapters.call.adapter import ODD, call_change
        from takeback.adapters.call.thing import result_of

        adapter = self._call_adapter(action)
        refuse_odd_key(key)
        refuse_inside_a_call(self.id)
        if key and (forks := self._known_past().forks):
            key = f"{key}~{forks}"  # a new intent, for the other side too
        expects = _expectation(action, arguments, named, key)

        def build() -> Change:
            adapter.actions.see(action)
            self.outlast(action.terms.timeout)
            return call_change(action, arguments, named)

        inside = CALLING.set((self.id, get_ident()))
        try:
            effect = self._change(build, Options(key, names_of(needs), (), expects))
        finally:
            CALLING.reset(inside)
        assert effect
        if odd := effect.receipt.get(ODD):
            raise Misuse(
                f"{effect.change.summary} was called and is recorded, but what it returned could not be kept: {odd}",
                hint="Let it return JSON: text, numbers, lists, dicts. Its undo gets what is left of it, as text.",
            )
        return result_of(effect)

    def call_all(self, action: "Action", calls: "Iterable[Mapping[str, Any]]") -> list[Any]:
        """Call an action once for each of these arguments (one of them may be `key`), in order; what they returned.
        Each is an effect of its own, but what became of one is recorded together with the intent of the next, which
        saves every second commit. The first that fails is raised; those before it stay done."""
        calls = list(calls)
        self._refuse_odd_calls(action, calls)
        if self._replay is not None:
            return [self.call(action, **one) for one in calls]
        with self._lock:
            parts, joined = self._parts, Joined(self._parts.journal)
            self._parts = parts._replace(journal=cast(Journal, joined))
            try:
                return [self.call(action, **one) for one in calls]
            finally:
                self._parts = parts
                joined.flush()

    def _refuse_odd_calls(self, action: "Action", calls: "Sequence[Mapping[str, Any]]") -> None:
        """Before the first of them."""
        from takeback.adapters.call.adapter import call_change

        self._call_adapter(action)
        keys: set[str] = set()
        for one in calls:
            if not isinstance(one, Mapping) or not all(isinstance(name, str) for name in one):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Misuse(f"{one!r} are no arguments.", hint='Give each call as a dict: {"cents": 300}.')
            key = one.get("key", "")
            refuse_odd_key(key)
            if key and key in keys:
                raise Misuse(
                    "Two of these calls have the same key.", hint="Give each a key of its own, or none."
                )
            keys.add(key)
            call_change(
                action, (), {name: value for name, value in one.items() if name not in ("key", "needs")}
            )

    def fork(self, reason: str) -> None:
        """Say that what is called from here on is meant anew, though the run did the same before it went back: new
        keys, new approvals."""
        if not isinstance(reason, str) or not reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse("A fork needs a reason.", hint='For example run.fork("the customer asked again").')

        def fork() -> None:
            past = self._known_past()
            self._append(forked(self.id, reason))
            self._past = Past((), past.forks + 1)

        self._forked(reason, fork)

    def _known_past(self) -> Past:
        if self._past is None:
            self._past = past_of(self._parts.journal, self.id)
        return self._past

    def _answered(self, change: Change) -> Effect | None:
        """From the journal, after the run went back: what cannot come again is not called again."""
        spent = self._known_past().spent if change.adapter == "call" else ()
        found = answer(spent, change, self._now()) if spent else None
        if found and self._past:
            # Two that are the same are answered one after the other.
            self._past = self._past._replace(spent=tuple(one for one in spent if one.id != found.id))
        return found

    def _going_back(self, seq: int) -> None:
        """Said before anything is taken back: whoever goes on after a crash must know."""
        later = self._parts.journal.effects(Query(run=self.id, made=True))
        if any(one.change.adapter == "call" and one.order > seq for one in later):
            self._append(went_back(self.id, seq))
            self._past = None

    def _call_adapter(self, action: "Action") -> "CallAdapter":
        from takeback.adapters.call.action import Action

        if not isinstance(action, Action):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                f"{getattr(action, '__name__', action)!r} is no action.",
                hint="Put @takeback.action(undo=…) above the function.",
            )
        return cast("CallAdapter", self._parts.adapters["call"])


def awaiting(parts: "Parts", info: RunInfo) -> int:
    """How many of its effects wait for an approval: asked for again, each is at the place where it was."""
    if not info.effects:
        return 0
    found = parts.journal.effects(Query(run=info.id, states=(State.PROPOSED,)))
    return sum(1 for one in found if waits_for_approval(one))


def _expectation(
    action: "Action", given: tuple[Any, ...], named: dict[str, Any], key: str
) -> Callable[[], bool] | None:
    expects = action.terms.expects
    if expects is None:
        return None
    from takeback.adapters.call.calling import at_once
    from takeback.adapters.call.signature import bound, fitting

    def holds() -> bool:
        return bool(
            at_once(expects(**fitting(expects, {"key": key, **bound(action.function, given, named)})))
        )

    holds.__name__ = getattr(expects, "__name__", "the precondition")
    return holds
