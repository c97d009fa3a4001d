"""Ask the world whether a call has happened: what is seen is so, what is not seen may only be late."""

import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from takeback.adapters.call.action import Action, Compensation
from takeback.adapters.call.functions import KEY, Hands, TimedOut, fitting, under_way
from takeback.errors import InDoubt, VerifyFailed
from takeback.model.boot_clock import since_boot
from takeback.model.effect import Effect
from takeback.model.plan import Sighting, Standing
from takeback.model.run import Owner

# What calls need to know of processes; the store knows how to find out.


class Processes(NamedTuple):
    """Who we are, and whether someone else still lives; None where that cannot be seen from here."""

    myself: Callable[[], Owner]
    alive: Callable[[Owner], bool | None]
    # The lease of that run is ours for so many seconds from now, or LeaseLost: asked before each further try.
    hold: Callable[[str, float], None] = lambda run, seconds: None
    # Whether modules that only the journal names may be imported: a store from elsewhere could name any.
    trusted: Callable[[], bool] = lambda: True


MOST = 10.0  # seconds that are waited before another try
PATIENCE = 10.0  # seconds that are waited for something to appear; what takes longer is asked for again later
FIRST, SLOWEST = 0.02, 0.5
TRIES = 3
LONGEST = 10.0  # seconds that a probe has, if its action has more


class CallSeen(NamedTuple):
    there: bool
    receipt: Any = None
    wrong: str = ""  # it is there and is not what was asked for


class Caller(NamedTuple):
    """The process that makes a call, so that others can find out whether the call may still happen."""

    owner: Owner
    network: int  # namespace
    # When it was about to call, in microseconds: by the clock on the wall, and since the machine was started.
    at: int = 0
    ticks: int = 0


@cache
def _network() -> int:
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


class Asker:
    """Asks the probes of actions, and knows when their answer can be believed."""

    def __init__(self, processes: Processes, hands: Hands) -> None:
        self._processes = processes
        self._hands = hands

    def here(self) -> Caller:
        return Caller(self._processes.myself(), _network(), time.time_ns() // 1000, since_boot())

    def look(
        self,
        effect: Effect,
        action: Action,
        arguments: Mapping[str, Any],
        *,
        expected: bool,
        undo: Effect | None = None,
    ) -> CallSeen:
        """The answer of the action's probe, once it is final. `expected` is the answer that a late result would change
        to. Raises `InDoubt` while the probe does not answer, or the answer may still change. With `undo`, the undo may
        be late."""
        terms, probe = action.terms, action.terms.verify
        assert probe
        named = fitting(probe, {KEY: effect.key, **arguments})

        def ask() -> CallSeen:
            try:
                return self._answer(effect, probe, named, terms.timeout)
            except VerifyFailed as wrong:
                return CallSeen(False, wrong.receipt, str(wrong))

        longest = _longest(terms.timeout, terms.retries)
        return self._believed(undo or effect, ask, longest, terms.settles_in, expected)

    def look_for_undo(self, undo: Effect, way: Compensation, offered: Mapping[str, Any]) -> bool:
        probe = way.verify
        assert probe
        named = fitting(probe, offered)

        def ask() -> CallSeen:
            return self._answer(undo, probe, named, way.timeout)

        # Where keys are honoured it does no harm to be too early: it is called again, and is the same call.
        longest = 0.0 if way.honours_key else _longest(way.timeout, way.retries)
        return self._believed(undo, ask, longest, way.settles_in, expected=True).there

    def _answer(
        self, effect: Effect, probe: Callable[..., Any], named: dict[str, Any], timeout: float
    ) -> CallSeen:
        trouble: Exception | None = None
        for tries in range(TRIES):
            if tries:
                time.sleep(FIRST * 2 ** (tries - 1))
            try:
                answer = self._hands.call(probe, (), named, min(timeout, LONGEST))
            except VerifyFailed:
                raise
            except TimedOut as error:
                trouble = error
                break  # it has had its time
            # Whatever it raises: it was asked and did not answer.
            except Exception as error:  # noqa: BLE001
                trouble = error
            else:
                return _seen(effect, answer)
        raise InDoubt(
            f"{effect.change.summary}: whether it happened could not be asked ({type(trouble).__name__}: {trouble}).",
            hint="It stays in doubt. takeback asks again when the store is next opened; `takeback recover` asks now.",
            effect=effect.id,
        ) from trouble

    def _believed(
        self, effect: Effect, ask: Callable[[], CallSeen], longest: float, settles_in: float, expected: bool
    ) -> CallSeen:
        begun = time.monotonic()
        left = self._settled_in(effect, longest, settles_in)
        pause = FIRST
        while True:
            seen = ask()
            waited = time.monotonic() - begun
            if seen.wrong or seen.there is expected or waited >= left:
                return seen
            if left > PATIENCE:
                until = time.strftime("%H:%M:%S", time.localtime(time.time() + left - waited))
                raise InDoubt(
                    f"{effect.change.summary}: it is {'still' if seen.there else 'not'} there, which may change until "
                    f"{until}.",
                    hint="takeback asks again when the store is next opened; `takeback recover` asks now.",
                    effect=effect.id,
                )
            time.sleep(min(pause, left - waited))
            pause = min(pause * 2, SLOWEST)

    def by_its_word(self, effect: Effect, again: bool) -> Sighting:
        """Without a probe: decide by what the call returned."""
        if effect.receipt:
            return Sighting(Standing.AFTER, receipt=effect.receipt)
        self.refuse_under_way(effect)
        why = "it has no verify=, so takeback cannot find out whether it happened"
        return Sighting(Standing.UNKNOWN, why, again=again)

    def refuse_under_way(self, effect: Effect) -> None:
        """Raise `InDoubt` while the calling process may still send the call: "not found" is no answer then."""
        if not self.may_be_under_way(effect):
            return
        caller = caller_of(effect)
        other = caller and caller.owner != self._processes.myself()
        who = f"process {caller.owner.pid}" if caller and other else "this process"
        raise InDoubt(
            f"{effect.change.summary}: it is not there, and {who} is still in the middle of the call.",
            hint="It is settled when that process has ended; `takeback recover` asks again.",
            effect=effect.id,
        )

    def may_be_under_way(self, effect: Effect) -> bool:
        """On another machine that cannot be seen: there its time is waited for instead."""
        caller = caller_of(effect)
        if caller is None or not self._processes.alive(caller.owner):
            return False
        return caller.network != _network() or under_way(effect.id)

    def _settled_in(self, effect: Effect, longest: float, settles_in: float) -> float:
        """Seconds until what is seen will not change any more. A caller on another machine may be late itself, for as
        long as its call may take; of one on this machine it is known when it has ended."""
        caller = caller_of(effect)
        elsewhere = caller is not None and self._processes.alive(caller.owner) is None
        left = longest - _ago(effect, None if elsewhere else caller, self.here())
        return (left if elsewhere else min(left, 0.0)) + settles_in


def _longest(timeout: float, retries: int) -> float:
    """Seconds after the intent until the last try has ended: before each further one it is waited and asked."""
    return timeout + retries * (timeout * (1 + TRIES) + MOST + PATIENCE)


def _ago(effect: Effect, caller: Caller | None, here: Caller) -> float:
    """Seconds since the intent; by the monotonic clock if both times are of the same boot."""
    if not effect.at:
        return 0.0
    if caller is None or not caller.ticks or caller.owner.boot != here.owner.boot:
        return time.time() - effect.at / 1e6
    until_intent = max(0.0, (effect.at - caller.at) / 1e6)
    return (here.ticks - caller.ticks) / 1e6 - until_intent


def caller_of(effect: Effect) -> Caller | None:
    given = effect.remedy.payload.get("caller") if effect.remedy else None
    return Caller(Owner(*given[0]), *given[1:]) if given else None


def _seen(effect: Effect, answer: Any) -> CallSeen:
    """Refuse an empty answer: an empty list may mean a search without results, or an empty receipt."""
    there = answer is not None and answer is not False
    if there and not answer and isinstance(answer, (str, bytes, int, float, list, tuple, dict, set)):
        raise InDoubt(
            f"{effect.change.summary}: its probe answered {answer!r}, which is neither a receipt nor None.",
            hint="Let verify= return what it found, and None when there is nothing. Nothing is decided until then.",
            effect=effect.id,
        )
    return CallSeen(there, answer)
