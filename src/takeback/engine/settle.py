"""From the intent to the outcome: how an effect is carried out and comes to rest: finished, taken back, or stuck."""

from typing import Any

from takeback.adapters.protocol import Adapter, Doubting, traits_of
from takeback.engine.parts import Parts, stage_of
from takeback.errors import (
    ApplyFailed,
    ByHand,
    Corrupt,
    DidNotHappen,
    Drifted,
    InDoubt,
    LeaseLost,
    Refused,
    RowsHeld,
    Stuck,
    TakebackError,
    Unavailable,
    UndoFailed,
    VerifyFailed,
)
from takeback.model.change import Staged
from takeback.model.effect import Effect, State, drop_body
from takeback.model.ids import new_id, short
from takeback.model.plan import Standing
from takeback.model.record import Draft, Kind
from takeback.model.resource import display
from takeback.model.run import Lease
from takeback.policy.checks import AFTER, Check, run_checks

BEGUN = "Its undo was started; the outcome is unknown."


def carry_out(
    parts: Parts,
    lease: Lease,
    adapter: Adapter,
    effect: Effect,
    staged: tuple[Staged, ...] = (),
    checks: tuple[Check, ...] = (),
) -> Effect:
    """From the intent to the outcome."""
    receipt = None
    try:
        with stage_of(parts, adapter, "Restoring" if effect.is_undo else "Changing"):
            receipt = adapter.apply(effect)
        effect = effect._replace(receipt=receipt.data)
        with stage_of(parts, adapter, "Checking"):
            sighting = adapter.verify(effect)
        if sighting.standing is not Standing.AFTER:
            seen = (sighting.detail or sighting.standing).removesuffix(".")
            raise VerifyFailed(
                f"{display(effect.change.resource)} is not what was written: {seen}.",
                effect=effect.id,
            )
        for one in staged:
            run_checks(checks, one, AFTER)
    except LeaseLost:
        raise  # the process that holds the run now settles it
    except InDoubt as error:
        return found_out(parts, lease, adapter, effect, error)
    except ByHand as error:
        raise stick(parts, lease, effect, str(error), error.hint) from error
    except Drifted as error:
        withdraw(parts, lease, adapter, effect, sentence_of(error))
        raise
    except BaseException as error:
        if receipt is None and isinstance(error, (RowsHeld, DidNotHappen)):
            # Known without a query; a session that has the rows could block a query, too.
            abort(parts, lease, adapter, effect, sentence_of(error))
            raise
        take_back(parts, lease, adapter, effect, sentence_of(error))
        if isinstance(error, OSError):
            kind = UndoFailed if effect.is_undo else ApplyFailed
            raise kind(
                f"{effect.change.summary}: {error.strerror or error}.",
                hint="It was taken back; nothing has changed.",
                effect=effect.id,
            ) from error
        raise
    try:
        return finish(parts, lease, adapter, effect, receipt.data)
    except Corrupt:
        # The journal is damaged just where the outcome belongs, and nothing of it was written: what cannot be
        # recorded must not stand. Other errors leave open whether it was written; recovery finds out.
        adapter.undo(effect)
        adapter.tidy(effect)
        raise


def found_out(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, error: InDoubt) -> Effect:
    """The answer was lost, so the world is asked. If it cannot be asked either, the effect stays open, and
    recovery asks again."""
    sighting = adapter.verify(effect)
    if sighting.standing is Standing.AFTER:
        return finish(parts, lease, adapter, effect, sighting.receipt)
    if sighting.standing is Standing.UNKNOWN:
        raise stick(parts, lease, effect, f"{sentence_of(error)} {_capital(sighting.detail)}.") from error
    if sighting.standing is Standing.BETWEEN:
        take_back(parts, lease, adapter, effect, f"{sentence_of(error)} {_capital(sighting.detail)}.")
        raise VerifyFailed(
            f"{effect.change.summary}: {sighting.detail}.", hint="It was taken back.", effect=effect.id
        ) from error
    abort(parts, lease, adapter, effect, f"{sentence_of(error)} It did not happen.")
    raise ApplyFailed(
        _about(effect, sentence_of(error)),
        hint="It did not happen, as was found by asking; trying again is safe.",
        effect=effect.id,
    ) from error


def _about(effect: Effect, sentence: str) -> str:
    """Many say it already."""
    about = effect.change.summary
    return sentence if sentence.startswith(about) else f"{about}: {sentence}"


def _capital(detail: str) -> str:
    return detail[:1].upper() + detail[1:]


def sentence_of(error: BaseException) -> str:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "It was interrupted."
    return str(error) if isinstance(error, TakebackError) else f"{type(error).__name__}: {error}"


def finish(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, receipt: dict[str, Any]) -> Effect:
    """It was seen to hold: scratch goes first, so that nothing is left when the record says done."""
    adapter.tidy(effect)
    body = {"receipt": receipt} if receipt else {}
    _record(parts, lease, effect, Kind.DONE, body)
    return effect._replace(state=State.DONE, receipt=receipt)


def abort(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, why: str) -> Effect:
    """It is not made. One that was dropped and was being applied is dropped again, as it was. One that was held is held
    again, in the same step: the work is not lost for that."""
    adapter.tidy(effect)
    if effect.dropped and effect.state is State.INTENDED:
        _record(parts, lease, effect, Kind.DROP, drop_body(effect.dropped, why))
        return effect._replace(state=State.DROPPED, note=why)
    again = _held_again(parts, effect) if was_held(effect) and effect.state is State.INTENDED else ()
    _record(parts, lease, effect, Kind.ABORT, {"why": why}, *again)
    return effect._replace(state=State.ABORTED, note=why)


def was_held(effect: Effect) -> bool:
    return effect.phase.was_held and not effect.dropped


def _held_again(parts: Parts, effect: Effect) -> tuple[Draft, ...]:
    """As it was proposed: an attempt with force expected something else, and must not be what is expected later."""
    (first, *_) = parts.journal.records(kinds=(Kind.PROPOSE,), effect=effect.id)
    return (Draft(Kind.PROPOSE, effect.run, new_id(), first.body),)


def stick(parts: Parts, lease: Lease, effect: Effect, why: str, hint: str = "") -> Stuck:
    """Recorded, and handed to a person; the error to raise."""
    if effect.state is not State.STUCK:
        _record(parts, lease, effect, Kind.STICK, {"why": why})
    return Stuck(
        f"Effect {short(effect.id)} on {display(effect.change.resource)} is stuck: {why}",
        hint=hint or way_out(effect),
        effect=effect.id,
    )


def _record(
    parts: Parts, lease: Lease, effect: Effect, kind: Kind, body: dict[str, Any], *with_it: Draft
) -> None:
    try:
        parts.journal.append(lease, [Draft(kind, effect.run, effect.id, body), *with_it])
    except LeaseLost:
        raise  # the process that holds the run now settles it
    except (Unavailable, InDoubt, Refused) as error:  # refused by a store that was moved in between
        if effect.state is not State.INTENDED:
            raise
        called = traits_of(effect.change).calls and not effect.is_undo
        begun = "called" if called else "made" if kind is Kind.DONE else "begun"
        raise unrecorded(effect.id, f"{effect.change.summary} was {begun}", error) from error


def unrecorded(effect: str, what: str, error: TakebackError) -> InDoubt:
    """The world is not untouched, as the error of the store alone would say."""
    return InDoubt(
        f"{what}, but the outcome could not be recorded: {error}",
        hint="Do not repeat it. Once the store is writable again, `takeback recover` finds out.",
        effect=effect,
    )


def way_out(effect: Effect) -> str:
    name = short(effect.id)
    if traits_of(effect.change).calls:
        return (
            f"`takeback show {name}` shows what is known. Look whether it happened, then say so: "
            f"`takeback settle {name} --happened` or `--did-not-happen`."
        )
    return (
        f"`takeback show {name}` shows why. Fix it and run `takeback recover`, or run `takeback undo` "
        "with `--merge`, `--skip-conflicts` or `--force`."
    )


def take_back(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, why: str) -> Effect:
    """After something went wrong: back to before, seen to be there, recorded as aborted. Stuck if that fails."""
    effect = _said_first(parts, lease, adapter, effect, why)
    try:
        standing = adapter.verify(effect).standing
        if standing in (Standing.AFTER, Standing.BETWEEN):
            adapter.undo(effect)
            standing = adapter.verify(effect).standing
    except (OSError, TakebackError) as trouble:
        if adapter.traits.marks and isinstance(trouble, (Unavailable, InDoubt)):
            raise  # it stays open: the marker will tell when it can be asked
        raise stick(parts, lease, effect, f"{why} Taking it back failed too: {trouble}") from trouble
    if standing is not Standing.BEFORE:
        raise stick(
            parts, lease, effect, f"{why} It could not be taken back: the target is {standing.value}."
        )
    return abort(parts, lease, adapter, effect, why)


def _said_first(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, why: str) -> Effect:
    """Record a call that must not run twice before its first try, so that recovery leaves an unfinished one to a
    person."""
    if not isinstance(adapter, Doubting) or not adapter.must_be_settled(effect, effect):
        return effect
    if effect.state is State.STUCK:
        raise stick(parts, lease, effect, effect.note)
    note = f"{why} {BEGUN}"
    _record(parts, lease, effect, Kind.STICK, {"why": note, "begun": True})
    return effect._replace(state=State.STUCK, note=note, begun=True)


def withdraw(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, why: str) -> Effect:
    """After a lost race: the target that drifted is someone else's and stays; ours of the others go back."""
    try:
        if any(seen.standing is Standing.AFTER for seen in adapter.verify(effect).targets):
            adapter.undo(effect)
            if any(seen.standing is Standing.AFTER for seen in adapter.verify(effect).targets):
                raise stick(parts, lease, effect, f"{why} Part of it could not be taken back.")
    except (OSError, TakebackError) as trouble:
        if isinstance(trouble, Stuck):
            raise
        raise stick(parts, lease, effect, f"{why} Taking it back failed too: {trouble}") from trouble
    return abort(parts, lease, adapter, effect, why)
