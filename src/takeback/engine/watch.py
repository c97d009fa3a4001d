"""A change that someone else makes while we watch: proposed with the earlier state, recorded when it has ended."""

from collections.abc import Callable

from takeback.adapters.protocol import Assessment, FoundChange, Watcher
from takeback.engine.guards import WATCH, policy_says, refuse_assessed, refuse_unmet
from takeback.engine.parts import Parts, adapter_of, as_draft, assessed, stage_of
from takeback.engine.settle import abort
from takeback.engine.stop import refuse_stopped
from takeback.engine.write import Terms, prepared, propose, proposed, recorded
from takeback.errors import Corrupt, KeyReused, Misuse, Refused, StoreBusy
from takeback.model.change import ASKED, Change
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Standing
from takeback.model.record import Draft, Kind
from takeback.model.ruling import NO_RULE
from takeback.model.run import Lease
from takeback.storage.protocols import Query

_LOOKS = 5
NOTHING = "No change of it was seen."  # someone else's: there may be some that we did not see


def begin(parts: Parts, lease: Lease, change: Change, terms: Terms) -> Effect:
    """Durable before the first change: the proposal names the baseline, from which recovery can tell what was done."""
    parts.refuse_if_suspect()
    if not terms.happened:
        refuse_stopped(parts, terms.agent, lease.run)
    if not terms.fresh and (earlier := recorded(parts, change, terms.key, WATCH)):
        raise KeyReused(
            f"The change with key {terms.key!r} was made before: {earlier.change.summary}.",
            hint="Nothing was changed. A watched change happens again, so it needs its own key.",
            effect=earlier.id,
        )
    parts.refuse_without_room(0)  # what it captures asks for its own
    if not (terms.judged or terms.happened):
        ruling = policy_says(parts, lease.run, terms.agent, change, None, terms.known)
        if ruling is not NO_RULE:
            from takeback.engine.ruling import refuse_denied, refuse_unheld

            refuse_denied(change, ruling)
            refuse_unheld(change, ruling, WATCH.name)
            if ruling.place == "sandbox" and "argv" in change.args:
                raise Refused(
                    f"{change.summary}: a rule wants it in a sandbox.",
                    hint="Nothing was run. Run it without --in-place.",
                )
    refuse_unmet(terms.expects)
    change = change._replace(phase=change.phase._replace(waits=COMMAND))
    return propose(parts, lease, proposed(lease, change, terms))


def finish(
    parts: Parts, lease: Lease, effect: Effect, found: Callable[[], FoundChange | None]
) -> Effect | None:
    """Record the changes as done; None if there are none. `found` compares the baseline with the world, and runs again
    if the world changed before the second look."""
    adapter = adapter_of(parts, effect.change.adapter)
    for _ in range(_LOOKS):
        seen = found()
        if seen is None:
            abort(parts, lease, adapter, effect, NOTHING)
            return None
        receipt = seen.receipt
        made = effect._replace(change=seen.change._replace(phase=ASKED))
        assessment = assessed(parts, adapter, made.change)
        refuse_assessed(parts, made.change, assessment, WATCH)
        # It is in the world already, so that no rule can keep it out: the record says which one would have.
        made = _judged(parts, made, assessment)
        made = parts.belonging(prepared(parts, adapter, made, assessment))
        with stage_of(parts, adapter, "Checking"):
            sighting = adapter.verify(made)
        if sighting.standing is Standing.AFTER:
            # The world is there already, so intent and outcome are one step: nothing can come between them.
            done = Draft(Kind.DONE, made.run, made.id, {"receipt": receipt} if receipt else {})
            intent, _ = parts.journal.append(lease, [as_draft(Kind.INTENT, made), done])
            adapter.tidy(made)
            return made._replace(state=State.DONE, told=intent.seq, receipt=receipt)
    raise StoreBusy(
        f"What effect {short(effect.id)} watches is still being changed, so it cannot be recorded yet.",
        hint="End what is writing there, then run `takeback recover`.",
        effect=effect.id,
    )


def _judged(parts: Parts, effect: Effect, assessment: Assessment) -> Effect:
    """Neither a broken file of rules nor a budget that is used up keeps it from being recorded."""
    try:
        ruling = policy_says(parts, effect.run, effect.agent, effect.change, assessment)
    except (Misuse, Refused):
        return effect
    if ruling is NO_RULE:
        return effect
    from takeback.engine.ruling import noted

    return effect._replace(change=noted(effect.change, ruling))


def settle(parts: Parts, lease: Lease, effect: Effect) -> Effect | None:
    """The watching process is gone: what was changed since the baseline is found by comparing."""
    adapter = adapter_of(parts, effect.change.adapter)
    if not isinstance(adapter, Watcher):
        raise Corrupt(
            f"Effect {short(effect.id)} was watched by {effect.change.adapter!r}, which cannot watch.",
            hint="It was recorded by another version.",
        )

    def found() -> FoundChange | None:
        since = Query(told_after=effect.watched_since, states=(State.DONE, State.UNDONE))
        return adapter.found(effect, [one for one in parts.journal.effects(since) if one.id != effect.id])

    return finish(parts, lease, effect, found)
