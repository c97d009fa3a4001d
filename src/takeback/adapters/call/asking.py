"""Ask the world whether a call has happened: what is seen is so, what is not seen may only be late."""

import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from takeback.adapters.call.action import Action, Compensation
from takeback.adapters.call.calling import call, under_way
from takeback.adapters.call.processes import Processes
from takeback.adapters.call.signature import KEY, fitting
from takeback.errors import InDoubt, VerifyFailed
from takeback.model.effect import Effect
from takeback.model.run import Owner

PATIENCE = 10.0  # seconds that are waited for something to appear; what takes longer is asked for again later
FIRST, SLOWEST = 0.02, 0.5
TRIES = 3


class Seen(NamedTuple):
    there: bool
    receipt: Any = None
    wrong: str = ""  # it is there and is not what was asked for


class Caller(NamedTuple):
    """Who makes a call, so that others can tell whether it may still happen."""

    owner: Owner
    network: int  # namespace


@cache
def _network() -> int:
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


class Asker:
    """Asks the probes of actions, and knows when their answer can be believed."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def here(self) -> Caller:
        return Caller(self._processes.myself(), _network())

    def look(self, effect: Effect, action: Action, arguments: Mapping[str, Any], *, expected: bool) -> Seen:
        """What the action's probe sees, once it can be believed. `expected` is what will be seen in the end: something
        that is only late. `InDoubt` while it cannot be told: nobody answers, or it may still change."""
        begun = time.time()
        pause = FIRST
        while True:
            seen = _ask(effect, action, arguments)
            settled = self._settled_at(effect, action, begun)
            if seen.wrong or seen.there is expected or time.time() >= settled:
                return seen
            if settled - begun > PATIENCE:
                until = time.strftime("%H:%M:%S", time.localtime(settled))
                raise InDoubt(
                    f"{effect.change.summary}: it is {'still' if seen.there else 'not'} there, which may change until "
                    f"{until}.",
                    hint="It is asked about again when the store is next opened; `takeback recover` asks now.",
                    effect=effect.id,
                )
            time.sleep(min(pause, max(0.0, settled - time.time())))
            pause = min(pause * 2, SLOWEST)

    def refuse_under_way(self, effect: Effect) -> None:
        """Whoever makes the call may yet send it: then that it is not there is no answer."""
        if not self.may_be_under_way(effect):
            return
        caller = caller_of(effect)
        other = caller and caller.owner != self._processes.myself()
        who = f"process {caller.owner.pid}" if caller and other else "this process"
        raise InDoubt(
            f"{effect.change.summary}: it is not there, and {who} is still in the middle of the call.",
            hint="Nothing is decided until that has ended; `takeback recover` asks again.",
            effect=effect.id,
        )

    def may_be_under_way(self, effect: Effect) -> bool:
        """On another machine that cannot be seen: there its time is waited for instead."""
        caller = caller_of(effect)
        if caller is None or not self._processes.alive(caller.owner):
            return False
        return caller.network != _network() or under_way(effect.id)

    def _settled_at(self, effect: Effect, action: Action, now: float) -> float:
        """When what is seen will not change any more. A caller on another machine may be late itself, for as long as
        its call may take; of one on this machine it is known when it has ended."""
        called = effect.at / 1e6 if effect.at else now
        caller = caller_of(effect)
        elsewhere = caller is not None and self._processes.alive(caller.owner) is None
        longest = called + action.terms.timeout
        return (longest if elsewhere else min(longest, now)) + action.terms.settles_in


def undo_seen(undo: Effect, way: Compensation, offered: Mapping[str, Any]) -> bool:
    assert way.verify
    found = _answer(undo, way.verify, fitting(way.verify, offered), way.timeout)
    return found is not None and found is not False


def caller_of(effect: Effect) -> Caller | None:
    given = effect.remedy.payload.get("caller") if effect.remedy else None
    return Caller(Owner(*given[0]), given[1]) if given else None


def _ask(effect: Effect, action: Action, arguments: Mapping[str, Any]) -> Seen:
    probe = action.terms.verify
    assert probe
    try:
        receipt = _answer(effect, probe, fitting(probe, {KEY: effect.key, **arguments}), action.terms.timeout)
    except VerifyFailed as wrong:
        return Seen(False, wrong=str(wrong))
    return Seen(receipt is not None and receipt is not False, receipt)


def _answer(effect: Effect, probe: Callable[..., Any], named: dict[str, Any], timeout: float) -> Any:
    pause = FIRST
    trouble: Exception | None = None
    for tries in range(TRIES):
        if tries:
            time.sleep(pause)
            pause *= 2
        try:
            return call(probe, (), named, timeout)
        except VerifyFailed:
            raise
        # Whatever it raises: it was asked and did not answer.
        except Exception as error:  # noqa: BLE001
            trouble = error
    raise InDoubt(
        f"{effect.change.summary}: whether it happened could not be asked ({type(trouble).__name__}: {trouble}).",
        hint="Nothing is decided. It is asked again when the store is next opened; `takeback recover` asks now.",
        effect=effect.id,
    ) from trouble
