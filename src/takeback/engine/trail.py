"""How the journal explains that a file is not as an effect left it: merges of ours changed it since.

An undo with merge takes an edit out from under later effects, so these no longer find what they left. Each such undo
recorded what it found and what it left. If these records lead without a gap from the state that an effect left to the
present one, every byte of the difference is known. Then a plain undo takes the effect back by a merge.
"""

from collections.abc import Collection, Iterable
from typing import Any, cast

from takeback.adapters.protocol import Assessment, Merging
from takeback.engine.parts import Parts, adapter_of, assessed
from takeback.engine.portion import standing
from takeback.model.change import UNDO, Change, OnConflict, UndoTerms
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import BY_KEY, Outcome
from takeback.model.remedy import Target
from takeback.model.resource import without_fragment
from takeback.storage.protocols import Query

_FEW = 64
_TOLD = ("type", "digest", "size", "mode", "uid", "gid", "xattrs", "target")


def undo_change(effect: Effect, on_conflict: OnConflict) -> Change:
    original = effect.of or effect
    summary = f"{'redo' if effect.is_undo else 'undo'} {short(original.id)}: {original.change.summary}"
    terms = UndoTerms(on_conflict)
    return Change(effect.change.adapter, UNDO, effect.change.resource, summary, undo=terms)


def assess_undo(parts: Parts, change: Change, effect: Effect) -> tuple[Change, Assessment]:
    """The plan of an undo for each target. If one is not as the effect left it, the journal may explain that; then the
    change says so."""
    adapter = adapter_of(parts, effect.change.adapter)
    if adapter.traits.merges and change.undo.on_conflict.merges and (over := _standing_over(parts, effect)):
        change = change._replace(undo=change.undo._replace(later=over))
    assessment = assessed(parts, adapter, change, effect)
    odd = {one.resource for one in assessment.outcomes if one.outcome in (Outcome.CONFLICT, Outcome.ALREADY)}
    if not odd or not adapter.traits.merges or change.undo.on_conflict is OnConflict.FORCE:
        return change, assessment
    known = explained(parts, effect, odd)
    if not known:
        return change, assessment
    change = change._replace(undo=change.undo._replace(explained=known))
    return change, assessed(parts, adapter, change, effect)


def explained(
    parts: Parts, effect: Effect, resources: Collection[str], until: int = 0
) -> dict[str, dict[str, Any]]:
    """By file: the state to which merges led it since the effect was made, and nothing else did. `until`: what came
    from that record on does not count."""
    wanted = {without_fragment(resource) for resource in resources}
    states: dict[str, dict[str, Any] | None] = {
        one.resource: one.after for one in _files(parts, effect) if one.resource in wanted
    }
    passed = {effect.id: effect.undoes}  # and what each undoes
    merged: set[str] = set()
    for later in _later(parts, effect, states):
        if until and later.order >= until:
            break
        passed[later.id] = later.undoes
        again = passed.get(later.undoes) == effect.id  # it was taken back, and this brought it back
        for target in _files(parts, later):
            if target.resource not in states or "identity" in target.before or "identity" in target.after:
                continue
            by_merge = _merged(later, target.resource)
            # An exact undo of something older than the effect leaves a difference that no merge explains.
            strange = later.is_undo and not by_merge and later.undoes not in passed
            before = target.before if again else states[target.resource]
            states[target.resource] = None if strange or before is None else _after(before, target)
            merged |= {target.resource} if by_merge else set()
    return {
        resource: {name: state[name] for name in _TOLD if name in state}
        for resource, state in states.items()
        if state is not None and resource in merged
    }


def _standing_over(parts: Parts, effect: Effect) -> dict[str, list[list[str]]]:
    """By file: what each later effect that stands found there and left. A comparison with the present content would
    miss an effect that wrote the same bytes again."""
    found: dict[str, list[list[str]]] = {}
    own = {one.resource for one in _files(parts, effect)}
    for later in _later(parts, effect, own):
        if later.state is State.DONE and not later.is_undo:
            for one in _files(parts, standing(parts, later)):
                if one.resource in own and "digest" in one.before and "digest" in one.after:
                    pair = [later.id, one.before["digest"], one.after["digest"]]
                    found.setdefault(one.resource, []).append(pair)
    return found


def _files(parts: Parts, effect: Effect) -> tuple[Target, ...]:
    adapter = parts.adapters.get(effect.change.adapter)
    if adapter is None or effect.remedy is None or not adapter.traits.merges:
        return ()
    return cast("Merging", adapter).whole_files(effect)


def _later(parts: Parts, effect: Effect, resources: Collection[str]) -> Iterable[Effect]:
    """What touched these files since, in the order in which it took hold; undone or not."""
    if parts.journal.newest() <= effect.order + 1:
        return ()  # nothing was recorded since, but that it was done
    since = Query(states=(State.DONE, State.UNDONE), told_after=effect.order)
    queries = [since._replace(resource=one) for one in resources] if len(resources) <= _FEW else [since]
    found = {one.id: one for query in queries for one in parts.journal.effects(query)}
    return sorted(found.values(), key=lambda one: one.order)


def _merged(effect: Effect, resource: str) -> bool:
    """Whether it is an undo that left in what others changed in the file."""
    if not effect.is_undo or effect.remedy is None:
        return False
    terms = effect.change.undo
    return terms.on_conflict.merges or resource in terms.explained or BY_KEY in effect.remedy.payload


def _after(state: dict[str, Any], target: Target) -> dict[str, Any] | None:
    """The state that a later change left; None if it did not start from exactly this."""
    before, after = target.before, target.after
    if "meta" in before:
        return state | {"mode": after["mode"]} if state.get("mode") == before["mode"] else None
    unknown = ("uid", "gid") if "owner_lost" in state or "owner_lost" in before else ()
    same = all(state.get(name) == before.get(name) for name in _TOLD if name not in unknown)
    return after if same else None
