"""Kill whoever pays at one of its system calls, let another process go on, and count what the bank says."""

import json
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import takeback
from examples.office import BankOffice
from takeback.model.effect import Effect, State
from takeback.model.run import RunState
from tests.calls.own import order
from tests.calls.tracer import Tell, Traced, Work, in_a_child, traced
from tests.damage import put_back_store, save_store
from tests.servers.process import wait_until

CENTS = 300
BEFORE, INTENDED, CALLED, DONE = "before the intent", "intent to call", "call to done", "after done"
PHASES = (BEFORE, INTENDED, CALLED, DONE)


class Variant(NamedTuple):
    action: takeback.Action
    on_death: str = "accept"
    parks: bool = False  # nobody can be asked, so that a person has to look
    undo: bool = False  # it is the undo that is killed
    manners: str = "ok"  # of the bank, while the one works that is killed


class Murders:
    """A bank and a store; for each murder a copy of the store and a key of its own."""

    def __init__(self, variant: Variant, bank: BankOffice, place: Path, url: str = "") -> None:
        """With a `url` it is the store there, always the same one: what was before is in nobody's way."""
        self.variant, self.bank = variant, bank
        self._place, self._template = place / "store", place / "template"
        self.store = url or str(self._place)
        self._number = 0
        self.key = "first"
        self.counts: Counter[str] = Counter()
        self._phases: dict[int, str] = {}
        bank.fund("anna", 10**9)
        others = set(threading.enumerate())
        # So that nothing is special about being the first; and here, so that no child has to load anything.
        for one in (self.pay(), self.go_on(), self.take_back(), self.look()):
            one(lambda told: None)
        for thread in set(threading.enumerate()) - others:
            if thread.name.startswith("takeback-lease"):
                thread.join()  # it ends with its run; a child gets none of them
        if not url:
            save_store(self._place, self._template)

    def calls(self) -> int:
        """How many there are; a thread that is slower than another one makes some more."""
        return max(self._killed(0).calls for _ in range(3))

    def intent(self, calls: int) -> int:
        """The first call at which the intent is durable, found by killing at some before."""
        low, high = 1, calls
        while low < high:
            middle = (low + high) // 2
            before = self.counts[BEFORE]
            self.sweep((middle,))
            low, high = (middle + 1, high) if self.counts[BEFORE] > before else (low, middle)
        return low

    def sweep(self, points: Iterable[int]) -> None:
        for at in points:
            end = self._killed(at)
            where = f"{'killed' if end.killed else 'not killed'} at call {at}"
            assert not end.error, f"{where}: {end.error}"
            self.counts["killed" if end.killed else "not killed"] += 1
            phase = self._phase()
            self.counts[phase] += end.killed
            self._phases[at] = phase
            if self.variant.undo:
                self._judge_undo(f"{where}, {phase}")
            elif self.variant.manners == "wrong":
                self._judge_wrong(f"{where}, {phase}")
            elif self.variant.on_death == "undo":
                self._judge_taken_back(end, f"{where}, {phase}")
            else:
                self._judge(end, phase, f"{where}, {phase}")
        self._nothing_twice()

    def sweep_what_was_missed(self) -> None:
        """A sample may step over a phase of a few calls: then all of them between the two beside it."""
        for phase in PHASES:
            if not self.counts[phase]:
                far = [PHASES.index(one) for one in self._phases.values()]
                at = [*self._phases]
                last = max(a for a, f in zip(at, far, strict=True) if f < PHASES.index(phase))
                first = min(a for a, f in zip(at, far, strict=True) if f > PHASES.index(phase) and a > last)
                self.sweep(range(last + 1, first))

    def _nothing_twice(self) -> None:
        """Also nothing that arrived only after it had been looked for."""
        wait_until(self.bank.idle, "nothing is under way any more")
        rows = self.bank.ledger()
        twice = Counter(row["key"] for row in rows if not row["reverses"] and row["key"] != "funding")
        twice += Counter(f"reversal of {row['reverses']}" for row in rows if row["reverses"])
        assert not [key for key, times in twice.items() if times > 1]

    def _killed(self, at: int) -> Traced:
        if self._template.exists():
            put_back_store(self._template, self._place)
        self._number += 1
        self.key = f"order-{self._number}"
        if self.variant.undo:
            alone(self.pay())
        self.bank.misbehave(f"always {self.variant.manners}")
        end = traced(self.take_back() if self.variant.undo else self.pay(), at)
        self.bank.misbehave()
        return end

    def _phase(self) -> str:
        """How far it came, by what is durable: the journal, and the ledger of the bank."""
        with takeback.open(self.store, recover=False) as tb:
            effects = self._ours(tb)
        if not effects or (self.variant.undo and len(effects) == 1):
            return BEFORE
        if effects[-1].state is not State.INTENDED:
            return DONE
        return CALLED if (self._reversals() if self.variant.undo else self._paid()) else INTENDED

    def _judge(self, end: Traced, phase: str, where: str) -> None:
        told = json.loads(alone(self.go_on()))
        self.counts["parked for a person"] += told["stuck"]
        assert not told["stuck"] or (self.variant.parks and phase in (INTENDED, CALLED)), where
        paid = self._paid()
        assert len(paid) == 1, f"{where}: {paid}"
        assert told["receipt"] in paid, where
        if end.told:
            self.counts["acknowledged"] += 1
            assert json.loads(end.told) == told["receipt"], f"{where}: {end.told!r} was answered"

    def _judge_taken_back(self, end: Traced, where: str) -> None:
        """The process that died takes its payment with it, unless the run had ended."""
        told = json.loads(alone(self.look()))
        paid, stays = self._paid(), told["run"] == RunState.ACCEPTED and told["states"] == ["done"]
        assert stays or end.killed, where
        assert len(paid) == stays or len(self._reversals()) == len(paid) == 1, f"{where}: {told} {paid}"
        assert not stays or not self._reversals(), f"{where}: {told}"
        self.counts["taken back"] += len(paid) - stays

    def _judge_wrong(self, where: str) -> None:
        """Whatever the bank did wrong is made up for, once, by whoever comes to it."""
        told = json.loads(alone(self.look()))
        assert told["states"] in ([], ["aborted"]), f"{where}: {told}"
        assert len(self._paid()) == len(self._reversals()) <= 1, f"{where}: {self._reversals()}"
        self.counts["made up for"] += len(self._paid())

    def _judge_undo(self, where: str) -> None:
        alone(self.look())
        alone(self.take_back())
        assert len(self._reversals()) == 1, f"{where}: {self._reversals()}"

    def _paid(self) -> list[dict[str, Any]]:
        return self.bank.with_key(self.key)

    def _reversals(self) -> list[dict[str, Any]]:
        return [one for first in self._paid() for one in self.bank.reversals(first["id"])]

    def _ours(self, tb: takeback.Takeback) -> list[Effect]:
        found = [one for one in tb.effects() if one.key == self.key]
        return found + [one for one in tb.effects() if found and one.undoes == found[0].id]

    # What processes do.

    def _call(self, tb: takeback.Takeback, name: str) -> Any:
        with tb.run(name, on_death=self.variant.on_death) as run:
            return run.call(self.variant.action, "anna", "shop", CENTS, key=self.key)

    def pay(self) -> Work:
        def work(tell: Tell) -> None:
            with takeback.open(self.store) as tb:
                try:
                    tell(json.dumps(self._call(tb, "pay")).encode())
                except takeback.VerifyFailed:
                    assert self.variant.manners == "wrong"

        return work

    def go_on(self) -> Work:
        """The next one: recovery, a person where there must be one, and the same call again."""

        def work(tell: Tell) -> None:
            with takeback.open(self.store) as tb:
                tb.recover()
                stuck = [one for one in self._ours(tb) if one.state is State.STUCK]
                for one in stuck:
                    paid = self._paid()
                    tb.settle(one, bool(paid), receipt=paid[0] if paid else None, by="bea")
                receipt = self._call(tb, "again")
                assert tb.verify().sound
                assert not [one for one in tb.runs() if one.state is RunState.OPEN]
            tell(json.dumps({"receipt": receipt, "stuck": len(stuck)}).encode())

        return work

    def take_back(self) -> Work:
        def work(tell: Tell) -> None:
            with takeback.open(self.store) as tb:
                tb.recover()
                effect = self._ours(tb)[0]
                if effect.state is not State.UNDONE:
                    assert tb.undo(effect).outcome == "done"

        return work

    def look(self) -> Work:
        def work(tell: Tell) -> None:
            with takeback.open(self.store) as tb:
                tb.recover()
                states = [one.state.value for one in self._ours(tb) if not one.is_undo]
                assert not [one for one in tb.runs() if one.state is RunState.OPEN]
                run = tb.runs()[-1]
                assert tb.verify().sound
            tell(json.dumps({"states": states, "run": run.state}).encode())

        return work


class WorkerMurders(Murders):
    """It is a worker that is killed, in the middle of a workflow; the next one goes on with it."""

    def _call(self, tb: takeback.Takeback, name: str) -> Any:
        run = tb.submit(order, self.key, key=self.key)
        tb.work(order, until_idle=True)
        return tb.result(run, timeout=0)

    def _judge(self, end: Traced, phase: str, where: str) -> None:
        super()._judge(end, phase, where)
        assert len(self.bank.with_key(f"{self.key}-postage")) == 1, where


def alone(work: Work) -> bytes:
    """In a process that nobody kills."""
    end = in_a_child(work)
    assert not end.error, end.error
    return end.told
