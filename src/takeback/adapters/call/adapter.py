"""Calls of registered functions: known by what the world says, and taken back by another call."""

import json
import time
from typing import Any

from takeback.adapters.call.action import (
    IRREVERSIBLE,
    MANUAL,
    Action,
    Compensation,
    about,
    arguments_of,
    result_of,
    thing_of,
    told_apart,
)
from takeback.adapters.call.ask import MOST, Asker, Processes
from takeback.adapters.call.compensator import BACK_OFF, Actions, Compensator, in_words, just_now
from takeback.adapters.call.functions import KEY, Hands, TimedOut, bound
from takeback.adapters.protocol import TRAITS, Assessment, Receipt
from takeback.errors import (
    DidNotHappen,
    InDoubt,
    LeaseLost,
    Misuse,
    NoRemedy,
    Refused,
    Unavailable,
)
from takeback.model.change import UNDO, Change, Staged
from takeback.model.effect import Effect
from takeback.model.functions import as_json, kept
from takeback.model.ids import short
from takeback.model.plan import Outcome, Sighting, Standing, TargetOutcome
from takeback.model.remedy import Offer, Remedy, Strategy, Target

ODD = "odd"  # in a receipt: why it is not what was returned


def call_change(action: Action, given: tuple[Any, ...], named: dict[str, Any]) -> Change:
    arguments = bound(action.function, given, named)
    try:
        text = as_json(arguments, "The arguments")
    except Misuse:
        for name, value in arguments.items():
            as_json(value, f"The argument {name}")  # says which one
        raise
    shown = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    summary = f"call {action.name.rpartition(':')[2]}({shown})"
    args: dict[str, Any] = {
        "action": action.name,
        "arguments": text,
        "home": [action.module, action.where, action.script],
        **about(action, arguments),
    }
    return Change("call", "call", f"call://{action.name}", summary, args)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}…"


class CallAdapter:
    name = "call"
    version = 1
    traits = TRAITS["call"]

    def __init__(self, processes: Processes) -> None:
        self.actions = Actions(processes.trusted)
        self._hands = Hands()
        self._asker = Asker(processes, self._hands)
        self._processes = processes
        self._back = Compensator(self.actions, self._asker, self._hands, processes)
        self._made_up_for: set[str] = set()  # here, just now

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        if change.kind == UNDO:
            return self._assess_undo(change, of)
        action = self.actions.of(change)
        way = action.way_back
        if way is None:
            raise NoRemedy(
                f"{action.name} does not say how it is taken back.",
                hint="Nothing was called. Give it an undo: a function (@….undo), takeback.MANUAL(steps) or "
                "takeback.IRREVERSIBLE(why).",
            )
        return Assessment((change.resource,), (_offer(action),), risk=action.terms.risk)

    def _assess_undo(self, change: Change, of: Effect | None) -> Assessment:
        if of is None or of.is_undo:
            raise Refused(
                "A compensated call cannot be redone.",
                hint="Nothing was called. Let its program call it again, under a key of its own.",
                effect=of.id if of else None,
            )
        resources = tuple(target.resource for target in of.targets)
        way = self._back.way_of(of)
        outcome, detail = Outcome.UNDONE, f"by hand: {way.steps}" if isinstance(way, MANUAL) else ""
        offers = (Offer(Strategy.MANUAL, exact=False, why="a compensated call cannot be redone"),)
        if isinstance(way, IRREVERSIBLE):
            outcome, detail, offers = Outcome.EXCLUDED, f"cannot be undone: {way.why}", ()
        outcomes = tuple(TargetOutcome(one, outcome, detail, of.id) for one in resources)
        return Assessment(resources, offers, outcomes=outcomes)

    def may_be_about_one(self, effect: Effect, later: Effect) -> bool:
        if later.change.kind == UNDO or effect.change.args.get("action") != later.change.args.get("action"):
            return False
        if thing_of(effect.change.args) or thing_of(later.change.args):
            return False  # the journal names what they are about
        return not (
            told_apart(arguments_of(effect), arguments_of(later))
            or told_apart(result_of(effect), result_of(later))
        )

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        return ()

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        """The way back is a name and what was given; that it can be found is seen now."""
        owner, *more = self._asker.here()
        payload: dict[str, Any] = {"caller": [list(owner), *more]}
        targets = (Target(thing_of(effect.change.args) or f"{effect.change.resource}/{effect.id}", {}, {}),)
        if effect.of:
            targets = tuple(Target(one.resource, one.after, one.before) for one in effect.of.targets)
        else:
            terms = self.actions.of(effect.change).terms
            payload |= {
                "version": terms.version,
                "milliseconds": int(terms.timeout * 1000),
                "risk": terms.risk,
            }
        return Remedy(
            self.name, self.version, offer.strategy, targets, payload, exact=False, residue=offer.residue
        )

    def apply(self, effect: Effect) -> Receipt:
        if effect.of:
            return self._back.make_up_for(effect, effect.of)
        action = self.actions.of(effect.change)
        terms = action.terms
        self._hold_before(effect, terms.timeout)
        for tries in range(terms.retries + 1):
            named = arguments_of(effect)  # copied for each try: the one before may have changed them
            if KEY in action.signature.names or action.signature.open:
                named[KEY] = effect.key
            try:
                return Receipt(
                    _kept(action, self._hands.call(action.function, (), named, terms.timeout, effect.id))
                )
            except DidNotHappen:
                raise
            except terms.certain as error:
                raise DidNotHappen(
                    f"{effect.change.summary}: {in_words(error)}.",
                    hint="Nothing happened, as this error means; trying again is safe.",
                    effect=effect.id,
                ) from error
            # Whatever else it raises leaves open how far it came.
            except Exception as error:
                is_last = isinstance(error, InDoubt) or tries == terms.retries
                if is_last or not self._may_try_again(effect, action):
                    raise _lost(effect, error) from error
            time.sleep(min(BACK_OFF * 2**tries, MOST))
            self._processes.hold(effect.run, terms.timeout)
        raise AssertionError("unreachable")

    def _hold_before(self, effect: Effect, seconds: float) -> None:
        """Renew the lease before the call: the earlier steps may have taken long, and a process that takes over the run
        must find ours ended."""
        try:
            self._processes.hold(effect.run, seconds)
        except LeaseLost:
            raise
        except (Unavailable, InDoubt) as error:
            raise DidNotHappen(
                f"{effect.change.summary} was not called, because its run could not be held: {error}",
                hint="Nothing was begun; trying again is safe.",
                effect=effect.id,
            ) from error

    def _may_try_again(self, effect: Effect, action: Action) -> bool:
        if self._asker.may_be_under_way(effect):
            return False
        if action.terms.honours_key:
            return True
        seen = self._asker.look(effect, action, arguments_of(effect), expected=True)
        return not seen.there and not seen.wrong

    def verify(self, effect: Effect) -> Sighting:
        if effect.of:
            return self._back.verify(effect, effect.of)
        if effect.id in self._made_up_for:
            return self._verify_made_up_for(effect)
        action = self.actions.of(effect.change)
        if action.terms.verify is None:
            return self._asker.by_its_word(effect, action.terms.honours_key)
        seen = self._asker.look(effect, action, arguments_of(effect), expected=True)
        if seen.wrong:
            return Sighting(Standing.BETWEEN, seen.wrong)
        if seen.there:
            return Sighting(Standing.AFTER, receipt=effect.receipt or {"result": kept(seen.receipt)})
        if effect.receipt:
            # It was reported as done and is not there: compensate what may still come of it.
            return Sighting(Standing.BETWEEN, "the call returned, but its verify= does not find it")
        self._asker.refuse_under_way(effect)
        return Sighting(Standing.BEFORE, "it is not there")

    def undo(self, effect: Effect) -> None:
        """It was made and did not pass: taken back at once."""
        if not self._was_made_up_for(effect):
            effect = self._with_receipt(effect)
            self._back.compensate(effect, effect)
        self._made_up_for.add(effect.id)

    def _was_made_up_for(self, effect: Effect) -> bool:
        """By a process that did not live to record it; one that has the receipt has only just called."""
        way = self._back.way_of(effect)
        if effect.receipt or not isinstance(way, Compensation) or not way.verify:
            return False
        effect = self._with_receipt(effect)
        return self._back.verify(just_now(effect), effect).standing is Standing.AFTER

    def _with_receipt(self, effect: Effect) -> Effect:
        """With the receipt that the probe found, if the process died before it recorded one."""
        action = self.actions.of(effect.change)
        if effect.receipt or action.terms.verify is None:
            return effect
        seen = self._asker.look(effect, action, arguments_of(effect), expected=True)
        return effect._replace(receipt={"result": kept(seen.receipt)}) if seen.receipt else effect

    def _verify_made_up_for(self, effect: Effect) -> Sighting:
        """As an undo is looked at: a payment stays to be seen beside its refund."""
        way = self._back.way_of(effect)
        if self.actions.of(effect.change).terms.verify is None and not getattr(way, "verify", None):
            return Sighting(Standing.BEFORE)
        seen = self._back.verify(just_now(effect), effect)
        if seen.standing is Standing.AFTER:
            return Sighting(Standing.BEFORE)
        return Sighting(Standing.BETWEEN, seen.detail)

    def must_be_settled(self, undo: Effect, of: Effect) -> bool:
        way = self._back.way_of(of)
        return not (isinstance(way, Compensation) and way.sure)

    def tidy(self, effect: Effect) -> None:
        """Nothing is held."""


def _offer(action: Action) -> Offer:
    way = action.way_back
    if isinstance(way, IRREVERSIBLE):
        return Offer(Strategy.IRREVERSIBLE, exact=False, residue=f"cannot be undone: {way.why}", why=way.why)
    if isinstance(way, MANUAL):
        return Offer(Strategy.MANUAL, exact=False, residue=f"by hand: {way.steps}", why=way.steps)
    assert way
    residue = "what others saw of it, or did because of it, before it was compensated"
    if not action.everywhere:
        residue += "; and it can be undone by this process only, because no other can import it"
    undo = getattr(way.function, "__qualname__", "undo")
    return Offer(Strategy.COMPENSATION, exact=False, residue=residue, why=f"{undo} compensates it")


def _kept(action: Action, result: Any) -> dict[str, Any]:
    try:
        return {"result": as_json(result, f"What {action.name} returned")}
    except Misuse as odd:
        # It has happened by now: that is recorded, and then told.
        return {"result": kept(result), ODD: str(odd)}


def _lost(effect: Effect, error: BaseException) -> InDoubt:
    how = str(error) if isinstance(error, TimedOut) else in_words(error)
    return InDoubt(
        f"{effect.change.summary}: the outcome is unknown ({how}).",
        hint=f"`takeback show {short(effect.id)}` shows what is known.",
        effect=effect.id,
    )
