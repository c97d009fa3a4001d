"""The part of a run that calls functions which act on the world outside."""

import hashlib
from _thread import get_ident
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.engine.pipelined import PipelinedJournal
from takeback.errors import Misuse
from takeback.model.change import Change, intent
from takeback.model.effect import OPEN_STATES, Effect, State, waits_for_approval
from takeback.model.functions import CALLING, refuse_inside_a_call
from takeback.model.record import canonical
from takeback.model.resource import function_in
from takeback.model.run import RunInfo
from takeback.runs.change import Changing, TakenStep
from takeback.runs.selection import names_of, refuse_odd_key
from takeback.runs.verbs import Options
from takeback.runs.workflows.durable import raise_again
from takeback.runs.workflows.rewind import Past, answer, forked, past_of, went_back
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.adapters.call.action import Action
    from takeback.adapters.call.adapter import CallAdapter
    from takeback.engine.parts import Parts


class OneByOne(NamedTuple):
    """A thread's calls of one list: the parts that it makes them with, and their keys."""

    parts: "Parts"
    journal: PipelinedJournal
    keys: list[str]


class Calling(Changing, ABC):
    _past: Past | None  # None: the journal was not asked yet
    _calls: int  # that had no key of their own, under this lease
    _again: (
        dict[bytes, list[str]] | None
    )  # keys of calls that failed or were left open, by what was asked for
    _joined: dict[int, OneByOne]  # by thread

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
        made from the run and what is asked for. Threads may call at the same time."""
        from takeback.adapters.call.action import result_of
        from takeback.adapters.call.adapter import ODD

        build, options = self._asked_for(action, arguments, key, needs, named)
        inside = CALLING.set((self.id, get_ident()))
        try:
            effect = self._change(build, options)
        finally:
            CALLING.reset(inside)
        assert effect
        if odd := effect.receipt.get(ODD):
            raise Misuse(
                f"{effect.change.summary} was called and is recorded, but what it returned could not be kept: {odd}",
                hint="Let it return JSON: text, numbers, lists, dicts. Its undo gets what is left of it, as text.",
            )
        return result_of(effect)

    def _asked_for(
        self,
        action: "Action",
        arguments: tuple[Any, ...],
        key: str,
        needs: "Sequence[str | Effect]",
        named: dict[str, Any],
    ) -> tuple[Callable[[], Change], Options]:
        from takeback.adapters.call.adapter import call_change

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

        return build, Options(key, names_of(needs), (), expects, apart=True)

    def call_all(
        self, action: "Action", calls: "Iterable[Mapping[str, Any]]", *, at_once: int = 1
    ) -> list[Any]:
        """Call an action once for each of these arguments (one of them may be `key`); what they returned, in order.
        Each is an effect of its own. With `at_once` that many are under way at the same time, in threads; else one
        after the other, and what became of one is recorded together with the intent of the next, which saves every
        second commit. The first that fails is raised; those that were begun stay done, no other is begun."""
        calls = list(calls)
        self._refuse_odd_calls(action, calls)
        if type(at_once) is not int or at_once < 1:
            raise Misuse(f"{at_once!r} calls at a time make no sense.", hint="For example at_once=8.")
        if at_once > 1:
            return self._call_at_once(action, calls, at_once)
        if self._replay is not None:
            return [self.call(action, **one) for one in calls]
        mine, joined = get_ident(), PipelinedJournal(self._parts.journal)
        self._joined[mine] = OneByOne(self._parts._replace(journal=cast(Journal, joined)), joined, [])
        try:
            return [self.call(action, **one) for one in calls]
        finally:
            try:
                joined.flush()
            finally:
                self._lock.end_calls(*self._joined.pop(mine).keys)

    def _call_at_once(
        self, action: "Action", calls: "Sequence[Mapping[str, Any]]", at_once: int
    ) -> list[Any]:
        """In a workflow all of them are steps before the first is made: in the order given, whichever is quicker."""
        replay = self._replay
        if replay is None:
            return at_the_same_time([partial(self.call, action, **one) for one in calls], at_once)
        from takeback.adapters.call.action import result_of

        steps: list[tuple[TakenStep, Options]] = []
        for one in calls:
            given = {name: value for name, value in one.items() if name not in ("key", "needs")}
            build, options = self._asked_for(action, (), one.get("key", ""), one.get("needs", ()), given)
            steps.append((self._take_step(replay, build, options, beside=True), options))
        for taken, _ in steps:
            if taken.recorded:
                raise_again(taken.recorded)  # after a failure none was begun

        def make(taken: TakenStep, options: Options) -> Any:
            inside = CALLING.set((self.id, get_ident()))
            try:
                effect = self._make_step(replay, taken, options)
            finally:
                CALLING.reset(inside)
            replay.progress()
            assert effect
            return result_of(effect)

        replay.beside = True
        try:
            return at_the_same_time([partial(make, *one) for one in steps], at_once)
        finally:
            replay.beside = False

    # Calls that are under way.

    @property
    def _books(self) -> "Parts":
        mine = self._joined.get(get_ident())
        return mine.parts if mine else self._parts

    def _call_key(self, change: Change) -> str:
        """From the run, the lease under which it works, and a number that no other call under it has: whichever thread
        is quicker, none is taken for another. Asked again after an error, the same call has the same key; so has one
        that was left open by whoever had the run before."""
        told = canonical(intent(change))
        if self._again is None:
            self._again = left_open(self._parts.journal, self.id)
        if keys := self._again.get(told):
            return keys.pop(0)
        self._calls += 1
        place = f"{self.id} {self._lease.generation} {self._calls} "
        return hashlib.sha256(place.encode() + told).hexdigest()[:16]

    def _begin_call(self, key: str) -> None:
        if key in self._lock.under_way:
            self._flush_calls()
        self._lock.begin_call(key)

    def _flush_calls(self) -> None:
        """Before this thread waits for another one, which may wait for what this one has made: that is recorded."""
        if mine := self._joined.get(get_ident()):
            mine.journal.flush()
            self._lock.end_calls(*mine.keys)
            mine.keys.clear()

    def _call_failed(self, change: Change, key: str) -> None:
        with self._lock:
            again = self._again if self._again is not None else {}
            again.setdefault(canonical(intent(change)), []).append(key)
            self._again = again

    def _call_ended(self, key: str) -> None:
        if mine := self._joined.get(get_ident()):
            mine.keys.append(
                key
            )  # what came of it is recorded with the next one, and until then nobody may ask
        else:
            self._lock.end_calls(key)

    def _quiet(self) -> None:
        """Before the run ends or goes back, with the lock held: no call is under way, and what came of each is
        recorded."""
        self._flush_calls()
        self._lock.wait_for_calls()

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
            self._again = {}

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


def left_open(journal: Journal, run: str) -> dict[bytes, list[str]]:
    """Calls of this run of which nobody knows yet what came of them, or that wait for an approval."""
    found: dict[bytes, list[str]] = {}
    for one in journal.effects(Query(run=run, states=OPEN_STATES)):
        if one.key and not one.is_undo and function_in(one.change.resource):
            found.setdefault(canonical(intent(one.change)), []).append(one.key)
    return found


def at_the_same_time(calls: Sequence[Callable[[], Any]], most: int) -> list[Any]:
    """What they return, in order. They are begun in that order; after the first error none is begun any more."""
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context
    from threading import Event

    over = Event()

    def one(call: Callable[[], Any]) -> Any:
        if over.is_set():
            return None
        try:
            return call()
        except BaseException:
            over.set()
            raise

    try:
        with ThreadPoolExecutor(min(most, len(calls) or 1), "takeback-calls") as pool:
            begun = [pool.submit(copy_context().run, one, call) for call in calls]
    except BaseException:
        over.set()  # interrupted while it waited: those under way are waited for when the run ends
        raise
    return [one.result() for one in begun]


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
    from takeback.adapters.call.functions import at_once, bound, fitting

    def holds() -> bool:
        return bool(
            at_once(expects(**fitting(expects, {"key": key, **bound(action.function, given, named)})))
        )

    holds.__name__ = getattr(expects, "__name__", "the precondition")
    return holds
