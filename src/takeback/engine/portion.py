"""Part of an effect: which of its paths still stand after undos of some of them, and which paths an undo means.

Every undo of some paths records them. So what stands is always computed from the journal: the paths of the effect,
without those that an undo took, but with those that a redo brought back since, in whatever order that happened.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, cast

from takeback.adapters.protocol import Dividing, Enclosing
from takeback.engine.parts import Parts, adapter_of
from takeback.errors import Drifted, Misuse, Refused, StoreBusy
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import Bond, Companion
from takeback.model.remedy import Target, doubt_of, without_doubt
from takeback.model.resource import SCHEME, ancestors, display, without_fragment
from takeback.storage.protocols import Journal, Query

_MADE = (State.DONE, State.UNDONE)
_NEAREST = 3
_COMPARED = 5_000  # names; comparing more takes longer than a hint is worth


class Chosen(NamedTuple):
    effects: tuple[Effect, ...]
    only: frozenset[str]  # resources, with those that go along
    along: tuple[Companion, ...]


def takes(undo: Effect) -> Collection[str] | None:
    """The paths that an undo took back; None if it took all that it found."""
    terms = undo.change.undo
    if terms.only is not None:
        return terms.only
    return [one.resource for one in undo.targets] if terms.partial else None


def remaining(journal: Journal, effect: Effect, resources: set[str]) -> set[str]:
    """Of what an effect did to these resources: what no undo has taken back, or a redo has brought back since."""
    left = set(resources)
    for undo in journal.effects(Query(undoing=(effect.id,), states=_MADE)):
        taken = takes(undo)
        left -= remaining(journal, undo, left if taken is None else left.intersection(taken))
        if not left:
            break
    return left


def undone_paths(journal: Journal, effects: Sequence[Effect]) -> dict[str, tuple[str, ...]]:
    """By effect: the paths that are taken back, while others of it stand. Only effects that are partly undone."""
    shown = [one for one in effects if one.state in _MADE and one.targets]
    if not shown:
        return {}
    undos = journal.effects(Query(undoing=tuple(one.id for one in shown), states=_MADE))
    parted = {one.undoes for one in undos if takes(one) is not None}
    found: dict[str, tuple[str, ...]] = {}
    for effect in (one for one in shown if one.id in parted):
        everything = {target.resource for target in effect.targets}
        stands = remaining(journal, effect, everything)
        if stands and stands != everything:
            found[effect.id] = tuple(sorted(everything - stands))
    return found


def standing(parts: Parts, effect: Effect) -> Effect:
    """With only those targets that still stand."""
    if not effect.targets or not _divides(parts, effect):
        return effect
    left = remaining(parts.journal, effect, {one.resource for one in effect.targets})
    return with_only(effect, left)


def with_only(effect: Effect, resources: Collection[str]) -> Effect:
    remedy = effect.remedy
    if remedy is None:
        return effect
    targets = tuple(one for one in remedy.targets if one.resource in resources)
    if len(targets) == len(remedy.targets):
        return effect
    return effect._replace(remedy=remedy._replace(targets=targets), narrowed=True)


def meant(parts: Parts, effect: Effect, only: Collection[str] | None) -> Effect:
    """The targets for an undo: those that still stand, and of them the requested paths."""
    stands = standing(parts, effect)
    if only is None:
        return stands
    return _undoubted(with_only(stands, only) if _divides(parts, effect) else stands)


def _undoubted(effect: Effect) -> Effect:
    """Who names a path decides about it, also if others may have changed it."""
    remedy = effect.remedy
    if remedy is None or not any(map(doubt_of, remedy.targets)):
        return effect
    return effect._replace(remedy=remedy._replace(targets=tuple(map(without_doubt, remedy.targets))))


def part_taken(
    parts: Parts, effect: Effect, left_out: Collection[str], also: Collection[str] = ()
) -> tuple[bool, list[str] | None]:
    """Of an undo: whether something of the effect still stands afterwards, and the paths that it takes, if these are
    not all. `also`: taken before by one that was given up."""
    if not effect.narrowed and not (left_out and _divides(parts, effect)):
        return bool(left_out), None
    taken = {one.resource for one in effect.targets}.union(also).difference(left_out)
    (whole,) = parts.journal.effects(Query(ids=(effect.id,)))
    stands = remaining(parts.journal, whole, {one.resource for one in whole.targets})
    return not stands <= taken, sorted(taken)


def decided(
    parts: Parts, effect: Effect, left_out: Collection[str], also: Collection[str], change: Change
) -> Change:
    """The undo, by what the journal says right before its intent. Others may have taken back paths of the same effect
    since it was planned. The journal takes the intent only if nothing was recorded in between."""
    newest = parts.journal.newest()
    for other in parts.journal.effects(Query(undoing=(effect.id,), states=(State.INTENDED, State.STUCK))):
        raise being_undone(other)
    refuse_already(parts, effect)
    partial, only = part_taken(parts, effect, left_out, also)
    return change._replace(undo=change.undo._replace(partial=partial, only=only, decided_at=newest))


def may_be_shared(parts: Parts, effect: Effect) -> bool:
    """Whether several undos can each take back some of its paths."""
    return (effect.narrowed or len(effect.targets) > 1) and _divides(parts, effect)


def being_undone(undo: Effect) -> StoreBusy:
    who = f" of {undo.agent}" if undo.agent else ""
    return StoreBusy(
        f"Effect {short(undo.undoes)} is already being undone, by effect {short(undo.id)}{who}.",
        hint="Nothing was changed. Wait until that has ended; if its process died, `takeback recover` finishes it. "
        f"`takeback show {short(undo.undoes)}` shows its state.",
        effect=undo.undoes,
    )


def refuse_already(parts: Parts, effect: Effect) -> None:
    """Of paths that an undo wants: others have taken them back, or some of them, since it was planned."""
    wanted = {one.resource for one in effect.targets}
    gone = wanted - remaining(parts.journal, effect, wanted)
    if gone and gone == wanted:
        raise already_undone(effect, min(gone))
    if gone:
        raise Drifted(
            f"{display(min(gone))} was taken back by another undo while this one was being prepared.",
            hint="Nothing was changed. Try again.",
            effect=effect.id,
        )


def brought_back(journal: Journal, effect: Effect) -> tuple[Effect, ...]:
    """Of an effect that is undone: redos of earlier undos of some paths, by which these stand again. Newest first."""
    if effect.state is not State.UNDONE or not effect.targets:
        return ()
    left = remaining(journal, effect, {one.resource for one in effect.targets})
    found: list[Effect] = []
    for undo in journal.effects(Query(undoing=(effect.id,), states=(State.UNDONE,), newest=True)):
        if not left:
            break
        (redo,) = journal.effects(Query(ids=(undo.undone_by,)))
        if redo.state is State.DONE and left.intersection(one.resource for one in redo.targets):
            found.append(redo)
            left.difference_update(one.resource for one in redo.targets)
    return tuple(found)


def chosen(parts: Parts, named: Effect, resources: Sequence[Sequence[str]]) -> Chosen:
    """The effects that an undo of some paths takes back in part, and these paths with all that goes together.
    `resources`: for each path its names, of which the first that the effect touched counts."""
    if not resources:
        raise Misuse("No path was named.", hint="Name the paths to take back, or leave the list out.")
    named = _with_paths(parts, named)
    effects = brought_back(parts.journal, named) or (named,)
    stands = [standing(parts, one) for one in effects]
    only: set[str] = set()
    along: dict[str, Companion] = {}
    for names in resources:
        found = (tuple(one for effect in stands for one in _touched(parts, effect, name)) for name in names)
        touched = next(filter(None, found), ())
        if not touched:
            raise _untouched(parts, named, names)
        only.update(touched)
        around = set(ancestors(names[0])).intersection(touched)
        along |= {one: Companion(one, names[0], Bond.WHOLE) for one in around}
    for effect in stands:
        _join(parts, effect, only, along)
    kept = tuple(
        one for one, now in zip(effects, stands, strict=True) if only & {t.resource for t in now.targets}
    )
    return Chosen(kept, frozenset(only), tuple(along.values()))


def chosen_among(parts: Parts, effects: Sequence[Effect], resources: Sequence[Sequence[str]]) -> Chosen:
    """The same for an undo of several effects: each goes with what it did to these paths, and with all that goes
    together with it in any of them."""
    found = [one for one in effects if adapter_of(parts, one.change.adapter).traits.merges]
    stands = [standing(parts, one) for one in found]
    only: set[str] = set()
    along: dict[str, Companion] = {}
    for names in resources:
        touched = {one for name in names for effect in stands for one in _touched(parts, effect, name)}
        if not touched:
            raise _untouched_by_all(parts, found, names)
        only.update(touched)
        around = set(ancestors(names[0])).intersection(touched)
        along |= {one: Companion(one, names[0], Bond.WHOLE) for one in around}
    # What one of them moved away, an earlier one may have made under its first name.
    known = -1
    while known != len(only):
        known = len(only)
        for effect in stands:
            _join(parts, effect, only, along)
    kept = tuple(
        one for one, now in zip(found, stands, strict=True) if only & {t.resource for t in now.targets}
    )
    return Chosen(kept, frozenset(only), tuple(along.values()))


def _untouched_by_all(parts: Parts, effects: Sequence[Effect], resources: Sequence[str]) -> Misuse | Refused:
    path = display(resources[0])
    for effect in effects:
        if any(_touched(parts, effect, resource) for resource in resources):
            return already_undone(effect, resources[0])
    touched = list(dict.fromkeys(display(one.resource) for effect in effects for one in effect.targets))
    near = _nearest_of(path, touched)
    return Misuse(f"None of these effects touched {path}.", hint=f"Nothing was changed. They touched {near}.")


def _with_paths(parts: Parts, effect: Effect) -> Effect:
    """Itself, or what it merged: the commit of a box is recorded as two effects."""
    if merged := effect.change.facts.merged:
        effect = next(parts.journal.effects(Query(ids=(merged,))), effect)
    name = short(effect.id)
    traits = adapter_of(parts, effect.change.adapter).traits
    if not traits.merges:
        what = "a call" if traits.calls else "a step of a box" if traits.boxes else "rows of a database"
        raise Refused(
            f"Effect {name} ({effect.change.summary}) has no paths of its own: it is {what}.",
            hint=f"Nothing was changed. `takeback undo {name}` takes back the whole of it.",
            effect=effect.id,
        )
    return effect


def touched_at(effect: Effect, resource: str) -> list[str]:
    """Targets at a path and below it; or the one around it, which was changed as one."""
    inside = f"{resource.rstrip('/')}/"
    found = [
        one.resource
        for one in effect.targets
        if without_fragment(one.resource) == resource or one.resource.startswith(inside)
    ]
    if found:
        return found
    around = set(ancestors(resource))
    return [one.resource for one in effect.targets if one.resource in around and not _is_shell(one)]


def _touched(parts: Parts, effect: Effect, resource: str) -> list[str]:
    """As `touched_at`; but of a directory that was changed as one, only what is known to have been in it, or may."""
    found = touched_at(effect, resource)
    around = set(ancestors(resource)).intersection(found)
    adapter = adapter_of(parts, effect.change.adapter)
    if not around or not isinstance(adapter, Enclosing):
        return found
    lacking = {
        one.resource for one in effect.targets if one.resource in around and adapter.never_held(one, resource)
    }
    return [one for one in found if one not in lacking]


def _is_shell(target: Target) -> bool:
    """A directory without what is in it: that is listed by itself."""
    return all("shell" in state or state["type"] != "dir" for state in (target.before, target.after))


def _join(parts: Parts, effect: Effect, only: set[str], along: dict[str, Companion]) -> None:
    """All that goes together with what was chosen."""
    known = {one.resource: one for one in effect.targets}
    if not _divides(parts, effect):
        named = next((one for one in known if one in only), "")
        for resource in known if named else ():
            _add(resource, named, Bond.WHOLE, only, along)
        return
    groups = cast("Dividing", adapter_of(parts, effect.change.adapter)).bonds(effect)
    by_name: dict[str, list[tuple[Bond, frozenset[str]]]] = {}
    for bond, names in groups:
        for name in names:
            by_name.setdefault(name, []).append((bond, names))
    inside: dict[str, list[str]] = {}
    for one in known:
        inside.setdefault(one.rpartition("/")[0], []).append(one)
    pending = [one for one in known if one in only]
    while pending:
        resource = pending.pop()
        found = [(name, bond) for bond, names in by_name.get(resource, ()) for name in names]
        found += [(one, Bond.DIRECTORY) for one in _missing_above(known, resource)]
        if _came_as_directory(known[resource]):
            found += [(one, Bond.INSIDE) for one in inside.get(resource, ())]
        for name, bond in found:
            if name in known and name not in only:
                _add(name, resource, bond, only, along)
                pending.append(name)


def _add(resource: str, named: str, bond: Bond, only: set[str], along: dict[str, Companion]) -> None:
    if resource not in only:
        only.add(resource)
        along[resource] = Companion(resource, named, bond)


def _missing_above(known: dict[str, Target], resource: str) -> Iterable[str]:
    """Directories that the effect took away, and that it needs to come back."""
    if known[resource].before["type"] == "absent":
        return
    for above in ancestors(resource):
        target = known.get(above)
        if target and target.before["type"] == "dir" and target.after["type"] != "dir":
            yield above


def _came_as_directory(target: Target) -> bool:
    """Its undo takes a directory away, so that all in it has to go."""
    return target.after["type"] == "dir" and target.before["type"] != "dir"


def _untouched(parts: Parts, effect: Effect, resources: Sequence[str]) -> Misuse | Refused:
    name, path = short(effect.id), display(resources[0])
    if any(_touched(parts, effect, resource) for resource in resources):
        return already_undone(effect, resources[0])
    near = _nearest_of(path, [display(one.resource) for one in effect.targets])
    return Misuse(f"Effect {name} did not touch {path}.", hint=f"Nothing was changed. It touched {near}.")


def already_undone(effect: Effect, resource: str) -> Refused:
    name, path = short(effect.id), display(resource)
    return Refused(
        f"What effect {name} did to {path} is already undone.",
        hint=f"Nothing was changed. `takeback show {name}` lists what still stands.",
        effect=effect.id,
    )


def undone_before(journal: Journal, effect: Effect) -> Refused:
    """Of an effect that is undone as a whole: by what, and what brings it back."""
    name, by = short(effect.id), short(effect.undone_by)
    hint = f"`takeback redo {name}` brings it back."
    if effect.is_undo:
        (of,) = journal.effects(Query(ids=(effect.undoes,)))
        hint = f"`takeback show {name}` shows its state."
        if not of.is_undo:
            hint = f"The effect that it undid is in force again. `takeback undo {by}` takes that back again."
    else:
        undos = list(journal.effects(Query(undoing=(effect.id,), states=(State.DONE,), newest=True)))
        if len(undos) > 1:
            by = f"{len(undos):,} undos, the last is {by}"
            others = ", ".join(short(one.id) for one in undos[1 : _NEAREST + 1])
            more = f" and {len(undos) - _NEAREST - 1:,} more" if len(undos) > _NEAREST + 1 else ""
            hint = (
                f"`takeback redo {name}` brings back what the last one took. The others are {others}{more}."
            )
    return Refused(f"Effect {name} is already undone (by {by}).", hint=hint, effect=effect.id)


def _nearest_of(path: str, touched: list[str]) -> str:
    """The paths that are most like it, and how many more there are."""
    from difflib import get_close_matches

    found = get_close_matches(path, touched[:_COMPARED], n=_NEAREST, cutoff=0.4) or touched[:_NEAREST]
    more = f" and {len(touched) - _NEAREST:,} more" if len(touched) > _NEAREST else ""
    return f"{', '.join(found) or 'no path'}{more}"


def _divides(parts: Parts, effect: Effect) -> bool:
    adapter = parts.adapters.get(effect.change.adapter)
    return adapter is not None and adapter.traits.divides and effect.change.resource.startswith(SCHEME)
