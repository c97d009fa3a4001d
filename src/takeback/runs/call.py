"""Calls of functions that act on the world outside."""

from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.functions import CALLING, refuse_inside_a_call
from takeback.model.record import Draft, Kind
from takeback.runs.change import Options, TakenStep, make_change, make_step, take_step
from takeback.runs.core import RunCore
from takeback.runs.selection import names_of, refuse_odd_key
from takeback.runs.workflows import rewind
from takeback.runs.workflows.durable import once, raise_again
from takeback.runs.workflows.function import digest_of
from takeback.runs.workflows.replay import FORK, Replay

if TYPE_CHECKING:
    from takeback.adapters.call.action import Action
    from takeback.adapters.call.adapter import CallAdapter


def call(
    core: RunCore,
    action: "Action",
    arguments: tuple[Any, ...] = (),
    key: str = "",
    needs: "Sequence[str | Effect]" = (),
    named: dict[str, Any] | None = None,
) -> Any:
    from takeback.adapters.call.action import result_of
    from takeback.adapters.call.adapter import ODD

    build, options = _asked_for(core, action, arguments, key, needs, named or {})
    effect = _called(core, lambda: make_change(core, build, options))
    if odd := effect.receipt.get(ODD):
        raise Misuse(
            f"{effect.change.summary} was called and is recorded, but what it returned could not be kept: {odd}",
            hint="Let it return JSON: text, numbers, lists, dicts. Its undo gets what is left of it, as text.",
        )
    return result_of(effect)


def _called(core: RunCore, make: Callable[[], Effect | None]) -> Effect:
    inside = CALLING.set((core.id, get_ident()))
    try:
        effect = make()
    finally:
        CALLING.reset(inside)
    assert effect
    return effect


def _asked_for(
    core: RunCore,
    action: "Action",
    arguments: tuple[Any, ...],
    key: str,
    needs: "Sequence[str | Effect]",
    named: dict[str, Any],
) -> tuple[Callable[[], Change], Options]:
    from takeback.adapters.call.adapter import call_change

    adapter = _adapter(core, action)
    refuse_odd_key(key)
    refuse_inside_a_call(core.id)
    if key and (forks := core.calls.past.forks):
        key = f"{key}~{forks}"  # a new intent, for the other side too
    expects = _expectation(action, arguments, named, key)

    def build() -> Change:
        adapter.actions.see(action)
        core.outlast(action.terms.timeout)
        return call_change(action, arguments, named)

    return build, Options(key, names_of(needs), (), expects, apart=True)


def call_all(
    core: RunCore, action: "Action", calls: "Iterable[Mapping[str, Any]]", at_once: int
) -> list[Any]:
    calls = list(calls)
    _refuse_odd_calls(core, action, calls)
    if type(at_once) is not int or at_once < 1:
        raise Misuse(f"{at_once!r} calls at a time make no sense.", hint="For example at_once=8.")
    todo = [partial(call, core, action, (), *_apart(one)) for one in calls]
    if at_once > 1 and core.replay is not None:
        return _steps_at_once(core, core.replay, action, calls, at_once)
    if at_once > 1:
        return _at_the_same_time(todo, at_once)
    if core.replay is not None:
        return [make() for make in todo]
    with core.calls.one_by_one():
        return [make() for make in todo]


def _apart(call: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Its key, what it needs, and the arguments of the function."""
    named = {name: value for name, value in call.items() if name not in ("key", "needs")}
    return call.get("key", ""), call.get("needs", ()), named


def _steps_at_once(
    core: RunCore, replay: Replay, action: "Action", calls: "Sequence[Mapping[str, Any]]", at_once: int
) -> list[Any]:
    """All of them are steps before the first is made: in the order given, whichever is quicker."""
    from takeback.adapters.call.action import result_of

    steps: list[tuple[TakenStep, Options]] = []
    for one in calls:
        build, options = _asked_for(core, action, (), *_apart(one))
        steps.append((take_step(core, replay, build, options, beside=True), options))
    for taken, _ in steps:
        if taken.recorded:
            raise_again(taken.recorded)  # after a failure none was begun

    def make(taken: TakenStep, options: Options) -> Any:
        effect = _called(core, lambda: make_step(core, replay, taken, options))
        replay.progress()
        return result_of(effect)

    replay.beside = True
    try:
        return _at_the_same_time([partial(make, *one) for one in steps], at_once)
    finally:
        replay.beside = False


def _refuse_odd_calls(core: RunCore, action: "Action", calls: "Sequence[Mapping[str, Any]]") -> None:
    from takeback.adapters.call.adapter import call_change

    _adapter(core, action)
    keys: set[str] = set()
    for one in calls:
        if not isinstance(one, Mapping) or not all(isinstance(name, str) for name in one):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"{one!r} are no arguments.", hint='Give each call as a dict: {"cents": 300}.')
        key, _, named = _apart(one)
        refuse_odd_key(key)
        if key and key in keys:
            raise Misuse("Two of these calls have the same key.", hint="Give each a key of its own, or none.")
        keys.add(key)
        call_change(action, (), named)


def fork(core: RunCore, reason: str) -> None:
    if not isinstance(reason, str) or not reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse("A fork needs a reason.", hint='For example run.fork("the customer asked again").')

    def fork() -> None:
        core.append(Draft(Kind.REMEMBER, core.id, "", {rewind.FORK: reason}))
        core.calls.fork()

    if core.replay is not None:
        once(core, core.replay, FORK, reason, digest_of(reason), fork, lambda _: {}, lambda _: None)
        return
    core.refuse_ended()
    fork()


def _adapter(core: RunCore, action: "Action") -> "CallAdapter":
    from takeback.adapters.call.action import Action

    if not isinstance(action, Action):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(
            f"{getattr(action, '__name__', action)!r} is no action.",
            hint="Put @takeback.action(undo=…) above the function.",
        )
    return cast("CallAdapter", core.parts.adapters["call"])


def _at_the_same_time(calls: Sequence[Callable[[], Any]], most: int) -> list[Any]:
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
