"""A change that is ready and waits for a person, who applies or discards it."""

from takeback.adapters.protocol import Assessment
from takeback.engine.drop import drop_held, size_of
from takeback.engine.gate import refuse_drifted, refuse_unapproved
from takeback.engine.guards import APPLY, HOLD, policy_says, refuse_assessed
from takeback.engine.parts import Parts, adapter_of, assessed
from takeback.engine.settle import abort, carry_out
from takeback.engine.stop import refuse_stopped
from takeback.engine.write import Ready, Terms, announced, prepared, propose, ready
from takeback.errors import Conflict, Drifted, Failed, InDoubt, Refused, Unavailable
from takeback.model.change import Change
from takeback.model.effect import PERSON, DropReason, Effect, State, waits_for_approval
from takeback.model.ids import short
from takeback.model.resource import display
from takeback.model.ruling import NO_RULE
from takeback.model.run import Lease
from takeback.storage.protocols import Query

_LISTED = 5
_OVER = ", `takeback apply --force {}` also over what others changed"


def hold(parts: Parts, lease: Lease, change: Change, terms: Terms) -> Effect | None:
    """Ready, and not made until a person says so. The one that is held, or was made, under the same key."""
    change = change._replace(phase=change.phase._replace(waits=PERSON))
    made = ready(parts, lease, change, terms, HOLD)
    if made is None or made.earlier:
        return made and made.effect
    return propose(parts, lease, made.effect)


def apply_held(parts: Parts, lease: Lease, effect: Effect, change: Change, terms: Terms) -> Effect:
    """Make it after all. `change` is the one that was held, or one that was brought up to date with the world. Where
    all of it is there already nothing is recorded, and it stays as it was."""
    if change.phase.reviewed and effect.waits_for == PERSON:
        refuse_unapproved(parts, effect)
        from takeback.engine.review import apply

        return apply(parts, lease, effect, terms)
    adapter = adapter_of(parts, effect.change.adapter)
    as_it_was = effect
    effect, assessment = judged(parts, effect, change)
    if assessment.changes_nothing:
        return as_it_was
    # The key of one that was dropped is free, and may be another's by now.
    effect = effect._replace(key="" if effect.dropped else effect.key)
    made = Ready(adapter, prepared(parts, adapter, effect, assessment), APPLY)
    refuse_drifted(adapter, made.effect)
    with terms.held_back():
        effect = announced(parts, lease, made, terms)
        try:
            return carry_out(parts, lease, adapter, effect)
        except InDoubt:
            raise  # it may well be made
        except (Refused, Failed, Unavailable) as error:
            again = effect if effect.dropped else held_again(parts, effect)
            error.effect = again.id
            name = short(again.id)
            how = f"{name} {'can still be applied' if effect.dropped else 'is held again'}"
            forced = bool(change.phase.first_targets)
            once_more = f"`takeback apply {'--force ' if forced else ''}{name}` tries once more"
            over = "" if forced or not isinstance(error, Drifted) else _OVER.format(name)
            error.hint = f"Nothing was changed. {how}: {once_more}{over}."
            raise


def judged(parts: Parts, effect: Effect, change: Change) -> tuple[Effect, Assessment]:
    """As it would be made now. Raises where it cannot be; changes nothing."""
    parts.refuse_if_suspect()
    refuse_stopped(parts, effect.agent, effect.run)
    if effect.waits_for != PERSON and effect.state is not State.DROPPED:
        raise _not_held(effect)
    refuse_unapproved(parts, effect)
    _refuse_conflicts(effect, change)
    effect = effect._replace(change=change._replace(phase=change.phase._replace(waits="", was_held=True)))
    assessment = assessed(parts, adapter_of(parts, effect.change.adapter), effect.change)
    if not assessment.changes_nothing:
        refuse_assessed(parts, effect.change, assessment, APPLY)
        ruling = policy_says(parts, effect.run, effect.agent, effect.change, assessment)
        if ruling is not NO_RULE:
            from takeback.engine.ruling import refuse_denied

            refuse_denied(effect.change, ruling)
    return effect, assessment


def held_again(parts: Parts, effect: Effect) -> Effect:
    """As what the work of one is held that was to be made, and could not be."""
    return next(parts.journal.effects(Query(run=effect.run, states=(State.PROPOSED,), newest=True)))


def discard_held(parts: Parts, lease: Lease, effect: Effect) -> Effect:
    """Not made; it can be applied after all for a while. A database rolls back for good."""
    if effect.waits_for != PERSON:
        raise _not_held(effect)
    if is_final(parts, effect):
        why = "It was held and then dropped."
        return abort(parts, lease, adapter_of(parts, effect.change.adapter), effect, why)
    return drop_held(parts, lease, effect, DropReason.DISCARDED)


def is_final(parts: Parts, effect: Effect) -> bool:
    """Whether a drop of it cannot be taken back."""
    limits = parts.drops
    too_large = not limits.seconds or size_of(effect) > limits.bytes
    return too_large or effect.phase.reviewed is not None or waits_for_approval(effect)


def _refuse_conflicts(effect: Effect, change: Change) -> None:
    if conflicts := change.facts.conflicts:
        names = "; ".join(f"{display(resource)} {detail}" for resource, detail in conflicts[:_LISTED])
        more = f"; and {len(conflicts) - _LISTED:,} more" if len(conflicts) > _LISTED else ""
        raise Conflict(
            f"Others changed the same while the command ran: {names}{more}.",
            hint=f"Nothing was changed. `takeback apply --force {short(effect.id)}` saves their content and "
            "overwrites it, so that undo brings it back.",
            effect=effect.id,
            resources=tuple(resource for resource, _ in conflicts),
        )


def _not_held(effect: Effect) -> Refused:
    return Refused(
        f"Effect {short(effect.id)} is {effect.state.value}, not held.",
        hint=f"`takeback show {short(effect.id)}` shows its state.",
        effect=effect.id,
    )
