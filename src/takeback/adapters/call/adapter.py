"""Calls of registered functions: known by what the world says, and taken back by another call."""

import json
import time
from typing import Any

from takeback.adapters.call.action import IRREVERSIBLE, MANUAL, Action, Compensation
from takeback.adapters.call.asking import MOST, Asker
from takeback.adapters.call.calling import Hands, TimedOut, under_way
from takeback.adapters.call.finding import Actions
from takeback.adapters.call.processes import Processes
from takeback.adapters.call.signature import KEY, bound, fitting
from takeback.adapters.call.thing import about, may_be_one, thing_of
from takeback.adapters.protocol import Assessment, Receipt, Traits
from takeback.errors import (
    ActionMissing,
    ByHand,
    DidNotHappen,
    InDoubt,
    LeaseLost,
    Misuse,
    NoRemedy,
    Refused,
    Unavailable,
)
from takeback.model.change import UNDO, Change
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plain import as_json, kept
from takeback.model.plan import Outcome, TargetOutcome
from takeback.model.remedy import Offer, Remedy, Strategy, Target
from takeback.model.staged import Staged
from takeback.model.standing import Sighting, Standing

ODD = "odd"  # in a receipt: why it is not what was returned
BACK_OFF = 0.1  # seconds before the second try; each further one waits twice as long


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


def result_of(effect: Effect) -> Any:
    """What the call returned."""
    text = effect.receipt.get("result")
    return json.loads(text) if text is not None else None


def arguments_of(effect: Effect) -> dict[str, Any]:
    return json.loads(effect.change.args["arguments"])


class CallAdapter:
    name = "call"
    version = 1
    traits = Traits(exact=False, marks=True, redoes=False, calls=True)

    def __init__(self, processes: Processes) -> None:
        self.actions = Actions(processes.trusted)
        self._hands = Hands()
        self._asker = Asker(processes, self._hands)
        self._processes = processes
        self._made_up_for: set[str] = set()  # here, just now

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        if change.kind == UNDO:
            return self._assess_undo(change, of)
        action = self._action(change)
        way = action.way_back
        if way is None:
            raise NoRemedy(
                f"{action.name} does not say how it is taken back.",
                hint="Nothing was called. Give it an undo: a function (@….undo), takeback.MANUAL(steps) or "
                "takeback.IRREVERSIBLE(why).",
            )
        return Assessment((change.resource,), (_offer(action),))

    def _assess_undo(self, change: Change, of: Effect | None) -> Assessment:
        if of is None or of.is_undo:
            raise Refused(
                "A compensated call cannot be redone.",
                hint="Nothing was called. Call it again with `run.call`, under a key of its own.",
                effect=of.id if of else None,
            )
        resources = tuple(target.resource for target in of.targets)
        way = self._way_back(of)
        if isinstance(way, IRREVERSIBLE):
            outcomes = tuple(
                TargetOutcome(one, Outcome.EXCLUDED, f"cannot be undone: {way.why}", of.id)
                for one in resources
            )
            return Assessment(resources, (), outcomes=outcomes)
        detail = f"by hand: {way.steps}" if isinstance(way, MANUAL) else ""
        outcomes = tuple(TargetOutcome(one, Outcome.UNDONE, detail, of.id) for one in resources)
        offer = Offer(Strategy.MANUAL, exact=False, why="a compensated call cannot be redone")
        return Assessment(resources, (offer,), outcomes=outcomes)

    def may_be_about_one(self, effect: Effect, later: Effect) -> bool:
        if later.change.kind == UNDO or effect.change.args.get("action") != later.change.args.get("action"):
            return False
        if thing_of(effect.change.args) or thing_of(later.change.args):
            return False  # the journal names what they are about
        mine, its = ((arguments_of(one), result_of(one)) for one in (effect, later))
        return may_be_one(mine, its)

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
            terms = self._action(effect.change).terms
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
            return self._make_up_for(effect, effect.of)
        action = self._action(effect.change)
        terms = action.terms
        self._hold_before(effect, terms.timeout)
        for tries in range(terms.retries + 1):
            named = arguments_of(effect)  # each time anew: the try before may have changed them
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
                    f"{effect.change.summary}: {_told(error)}.",
                    hint="Nothing happened, as this error means; trying again is safe.",
                    effect=effect.id,
                ) from error
            # Whatever else it raises leaves open how far it came.
            except Exception as error:
                if tries == terms.retries or not self._may_try_again(effect, action):
                    raise _lost(effect, error) from error
            time.sleep(min(BACK_OFF * 2**tries, MOST))
            self._processes.hold(effect.run, terms.timeout)
        raise AssertionError("unreachable")

    def _hold_before(self, effect: Effect, seconds: float) -> None:
        """The intent may have taken long, or what was asked before it: whoever takes the run over once our lease has
        ended must find that we have, too."""
        try:
            self._processes.hold(effect.run, seconds)
        except LeaseLost:
            raise
        except Unavailable as error:
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
            return self._verify_undo(effect, effect.of)
        if effect.id in self._made_up_for:
            return self._verify_made_up_for(effect)
        action = self._action(effect.change)
        if action.terms.verify is None:
            return self._by_its_word(effect, action.terms.honours_key)
        seen = self._asker.look(effect, action, arguments_of(effect), expected=True)
        if seen.wrong:
            return Sighting(Standing.BETWEEN, seen.wrong)
        if seen.there:
            return Sighting(Standing.AFTER, receipt=effect.receipt or {"result": kept(seen.receipt)})
        if effect.receipt:
            # It was told to have happened and is not there: what may still come of it is made up for.
            return Sighting(Standing.BETWEEN, "it was answered as done, and is not there")
        self._asker.refuse_under_way(effect)
        return Sighting(Standing.BEFORE, "it is not there")

    def _by_its_word(self, effect: Effect, again: bool) -> Sighting:
        """Nobody can be asked: what the call returned is all there is."""
        if effect.receipt:
            return Sighting(Standing.AFTER, receipt=effect.receipt)
        self._asker.refuse_under_way(effect)
        return Sighting(
            Standing.UNKNOWN,
            "it has no verify=, so takeback cannot find out whether it happened",
            again=again,
        )

    def undo(self, effect: Effect) -> None:
        """It was made and did not pass: taken back at once."""
        if not self._was_made_up_for(effect):
            effect = self._with_receipt(effect)
            self._compensate(effect, effect)
        self._made_up_for.add(effect.id)

    def _was_made_up_for(self, effect: Effect) -> bool:
        """By a process that did not live to record it; one that has the receipt has only just called."""
        way = self._way_back(effect)
        if effect.receipt or not isinstance(way, Compensation) or not way.verify:
            return False
        effect = self._with_receipt(effect)
        return self._verify_undo(just_now(effect), effect).standing is Standing.AFTER

    def _with_receipt(self, effect: Effect) -> Effect:
        """What its process did not live to tell, the probe may have seen."""
        action = self._action(effect.change)
        if effect.receipt or action.terms.verify is None:
            return effect
        seen = self._asker.look(effect, action, arguments_of(effect), expected=True)
        return effect._replace(receipt={"result": kept(seen.receipt)}) if seen.receipt else effect

    def _verify_made_up_for(self, effect: Effect) -> Sighting:
        """As an undo is looked at: a payment stays to be seen beside its refund."""
        way = self._way_back(effect)
        if self._action(effect.change).terms.verify is None and not getattr(way, "verify", None):
            return Sighting(Standing.BEFORE)
        seen = self._verify_undo(just_now(effect), effect)
        if seen.standing is Standing.AFTER:
            return Sighting(Standing.BEFORE)
        return Sighting(Standing.BETWEEN, seen.detail)

    def must_be_settled(self, undo: Effect, of: Effect) -> bool:
        way = self._way_back(of)
        return not (isinstance(way, Compensation) and way.sure)

    def tidy(self, effect: Effect) -> None:
        """Nothing is held."""

    # Taking back.

    def _make_up_for(self, undo: Effect, of: Effect) -> Receipt:
        way = self._way_back(of)
        if isinstance(way, MANUAL):
            raise ByHand(
                f"It is taken back by hand: {way.steps}",
                hint=f"When that is done: `takeback settle {short(undo.id)} --happened`.",
                effect=undo.id,
            )
        return Receipt({"result": kept(self._compensate(undo, of))})

    def _compensate(self, undo: Effect, of: Effect) -> Any:
        way = self._way_back(of)
        if not isinstance(way, Compensation):
            raise NoRemedy(
                f"{of.change.summary} cannot be taken back: {way[0]}.", hint="A person has to look."
            )
        first = way.signature.names[0] if way.signature.names else ""
        if way.verify and undo.of and self._verify_undo(just_now(undo), of).standing is Standing.AFTER:
            return None  # an earlier undo did, and did not live to tell
        why = ""
        for tries in range(way.retries + 1):
            if tries:
                time.sleep(min(BACK_OFF * 2 ** (tries - 1), MOST))
            self._processes.hold(undo.run, way.timeout)
            named = fitting(way.function, {KEY: undo_key(of), **arguments_of(of)})
            named.pop(first, None)
            given = (result_of(of),) if first else ()
            try:
                returned = self._hands.call(way.function, given, named, way.timeout, f"{undo.id}-undo")
                told = just_now(undo)._replace(receipt={"result": kept(returned)})
                if undo.of is None or self._verify_undo(told, of).standing is Standing.AFTER:
                    return returned
                why = "it was answered as done, and what it takes back is still there"
                if not way.sure:
                    why += ", or only still to be seen (then its undo needs a verify= of its own)"
                    break
            # Whatever it raises leaves open how far it came; the probe tells, or the other side honours the key.
            except Exception as error:  # noqa: BLE001
                why = str(error) if isinstance(error, (TimedOut, InDoubt)) else _told(error)
                standing = self._after_trouble(undo, of, way)
                if standing is Standing.AFTER:
                    return None
                if standing is Standing.UNKNOWN and not way.honours_key:
                    break
        again = "`takeback recover` tries again. " if way.sure else "It is not called again by itself. "
        raise ByHand(
            f"{of.change.summary} could not be taken back: {why}.",
            hint=f"`takeback show {short(undo.id)}` tells what is known. {again}Once you know what happened, say so: "
            f"`takeback settle {short(undo.id)} --happened`, or `--did-not` and undoes it again.",
            effect=undo.id,
        )

    def _after_trouble(self, undo: Effect, of: Effect, way: Compensation) -> Standing:
        if under_way(f"{undo.id}-undo"):
            return Standing.UNKNOWN
        if undo.of is None:
            return Standing.BEFORE if way.honours_key else Standing.UNKNOWN
        try:
            return self._verify_undo(just_now(undo), of).standing
        except InDoubt:
            return Standing.UNKNOWN

    def _verify_undo(self, undo: Effect, of: Effect) -> Sighting:
        action = self._action(of.change)
        way = self._way_back(of)
        arguments = arguments_of(of)
        if isinstance(way, Compensation) and way.verify:
            done = self._asker.look_for_undo(
                undo, way, {KEY: undo_key(of), "receipt": result_of(of), **arguments}
            )
            return self._taken_back(undo, done, "its undo is not there")
        if action.terms.verify:
            seen = self._asker.look(of, action, arguments, expected=False, undo=undo)
            gone = not seen.there and not seen.wrong
            if not gone and undo.state is State.STUCK and isinstance(way, Compensation) and not way.sure:
                # It was called before; that the thing is still to be seen does not tell what came of that.
                return Sighting(Standing.UNKNOWN, seen.wrong or "it is still to be seen")
            return self._taken_back(undo, gone, seen.wrong or "it is still there")
        again = isinstance(way, Compensation) and way.honours_key
        return self._by_its_word(undo, again)

    def _taken_back(self, undo: Effect, done: bool, detail: str) -> Sighting:
        if done:
            return Sighting(Standing.AFTER, receipt=undo.receipt)
        if under_way(f"{undo.id}-undo"):
            raise InDoubt(f"{undo.change.summary}: it is still under way.", effect=undo.id)
        return Sighting(Standing.BEFORE, detail)

    def _way_back(self, of: Effect) -> "Compensation | IRREVERSIBLE | MANUAL":
        action = self._action(of.change)
        way = action.way_back
        if way is None:
            raise _changed(action, "has no undo any more")
        kept = of.remedy.payload.get("version", 1) if of.remedy else 1
        if action.terms.version != kept:
            raise _changed(action, f"is version {action.terms.version}, and was called in version {kept}")
        if isinstance(way, Compensation):
            _refuse_changed(action, way, arguments_of(of))
        return way

    def _action(self, change: Change) -> Action:
        args = change.args
        return self.actions.find(args["action"], *args["home"])


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
    return Offer(Strategy.COMPENSATION, exact=False, residue=residue, why=f"{undo} makes up for it")


def _refuse_changed(action: Action, way: Compensation, arguments: dict[str, Any]) -> None:
    first = (way.signature.names or ("",))[0]
    missing = [one for one in way.signature.required if one not in (first, KEY) and one not in arguments]
    if missing:
        raise _changed(action, f"has an undo that needs {missing[0]!r}, which the call did not have")


def _changed(action: Action, how: str) -> ActionMissing:
    return ActionMissing(
        f"The action {action.name} was changed since: it {how}.",
        hint="Nothing was called. Run the version that made the call, or take it back by hand.",
    )


def just_now(effect: Effect) -> Effect:
    """As if it had been begun now: the last try of it may have been."""
    return effect._replace(at=0)


def undo_key(of: Effect) -> str:
    """The same for every try to take this one back, whoever tries."""
    return f"undo-{of.key or of.id}"


def _kept(action: Action, result: Any) -> dict[str, Any]:
    try:
        return {"result": as_json(result, f"What {action.name} returned")}
    except Misuse as odd:
        # It has happened by now: that is recorded, and then told.
        return {"result": kept(result), ODD: str(odd)}


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": .")


def _lost(effect: Effect, error: BaseException) -> InDoubt:
    how = str(error) if isinstance(error, TimedOut) else _told(error)
    return InDoubt(
        f"{effect.change.summary}: whether it happened is not known ({how}).",
        hint=f"`takeback show {short(effect.id)}` tells what is known.",
        effect=effect.id,
    )
