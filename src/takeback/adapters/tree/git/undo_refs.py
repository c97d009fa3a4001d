"""Refs of an undo, one by one, whether they are loose or packed."""

import os
from typing import NamedTuple

from takeback.adapters.file.states import ABSENT, FileState
from takeback.adapters.tree.git.formats import NONE, in_the_way, loose_value, packed_without
from takeback.adapters.tree.git.layout import (
    PACKED,
    SHADOWED,
    GitPart,
    packed_in,
    packed_now,
    ref_noted,
    ref_resource,
)
from takeback.adapters.tree.git.repository import GitDesk
from takeback.adapters.tree.states import is_dir, shell_of
from takeback.adapters.tree.undo import PathStep
from takeback.model.plan import Outcome
from takeback.model.resource import ancestors, quote

STASH = "refs/stash"
_NOTES = ("held", "twin", "mixed", "then", "over")
_ONE_BY_ONE = "its refs are compared one by one"


class _Moved(NamedTuple):
    name: str
    before: str
    after: str


def plan_refs(desk: GitDesk) -> None:
    loose = {spot.name: resource for resource, spot in desk.of(GitPart.REF) if is_a_ref(desk, resource)}
    packed = f"{desk.home}/packed-refs" if desk.of(GitPart.PACKED) else ""
    if packed and desk.is_doubted(packed):
        return
    loose = {name: resource for name, resource in loose.items() if not desk.is_doubted(resource)}
    if not loose and not packed:
        return
    moved = _moved(desk, loose, packed)
    if moved is None:
        return
    now = packed_now(desk.home, desk.places)
    if _all_plain(desk, loose, packed, now) and _has_room(desk, moved, loose, now):
        _tell(desk, moved, loose)
    else:
        _one_by_one(desk, moved, loose, packed, now)
    _demand_objects(desk, moved)
    _note_packed(desk, [ref.name for ref in moved], now)


def is_a_ref(desk: GitDesk, resource: str) -> bool:
    """Not a directory of refs, before and after."""
    target = desk.targets[resource]
    return "file" in (target.before["type"], target.after["type"])


def _moved(desk: GitDesk, loose: dict[str, str], packed: str) -> list[_Moved] | None:
    """None where a value is not known: then the files are compared by their bytes."""
    lists: list[dict[str, str] | None] = [None, None]
    names = set(loose)
    if packed:
        target = desk.targets[packed]
        before, after = (packed_in(state, desk.blobs) for state in (target.before, target.after))
        if before is None or after is None or SHADOWED not in target.after:
            return None
        lists = [before, after]
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        names |= changed.difference(target.after[SHADOWED])
    found: list[_Moved] = []
    for name in sorted(names):
        target = desk.targets.get(loose.get(name, ""))
        states = (target.before, target.after) if target else (ABSENT, ABSENT)
        was, left = (_value(desk, state, name, known) for state, known in zip(states, lists, strict=True))
        if was is None or left is None:
            return None
        found.append(_Moved(name, was, left))
    return found


def _value(desk: GitDesk, state: FileState, name: str, packed: dict[str, str] | None) -> str | None:
    if state["type"] in ("absent", "dir"):
        return packed.get(name, NONE) if packed is not None else state.get(PACKED)
    content = desk.content(state)
    return loose_value(content) if content is not None else None


def _all_plain(desk: GitDesk, loose: dict[str, str], packed: str, now: dict[str, str]) -> bool:
    """Whether all of them are unchanged: then they go back to the byte."""
    if not all(desk.is_plain(resource) for resource in (*loose.values(), *([packed] if packed else ()))):
        return False
    if packed:
        return True
    return all(
        now.get(name, NONE) == desk.targets[resource].before.get(PACKED, NONE)
        for name, resource in loose.items()
        if desk.targets[resource].before["type"] != "file"
    )


def _has_room(desk: GitDesk, moved: list[_Moved], loose: dict[str, str], now: dict[str, str]) -> bool:
    """Whether no ref that others made since has the same name, or one that is a directory of it."""
    others = {name: oid for name, oid in now.items() if all(name != ref.name for ref in moved)}
    for ref in moved:
        resource = ref_resource(desk.home, ref.name)
        place = desk.places.within_reach(resource) if ref.name not in loose else None
        if ref.before != NONE and in_the_way(ref.name, others):
            return False
        if place is not None and place.stat() is not None:
            return False
    return True


def _tell(desk: GitDesk, moved: list[_Moved], loose: dict[str, str]) -> None:
    """The value of a ref says more than the size of its file."""
    for ref in moved:
        step = desk.steps.get(loose.get(ref.name, ""))
        if step is not None and ref.before and ref.before != ref.after:
            told = step.outcome._replace(detail=f"back to {ref.before[:10]}")
            desk.steps[told.resource] = PathStep(told, step.target)


def _one_by_one(
    desk: GitDesk, moved: list[_Moved], loose: dict[str, str], packed: str, now: dict[str, str]
) -> None:
    going: set[str] = set()
    for resource in (*loose.values(), *([packed] if packed else ())):
        desk.stay(resource, _ONE_BY_ONE)
    for ref in sorted(moved, key=lambda one: one.before != NONE):  # what goes makes room for what comes
        resource = ref_resource(desk.home, ref.name)
        content = desk.content_now(resource)
        there = loose_value(content) if content is not None else now.get(ref.name, NONE)
        if ref.before == ref.after:
            _keep(desk, resource, loose, "git packed it or unpacked it, which changes nothing")
        elif there == ref.before:
            _keep(desk, resource, loose, "it is in the earlier state")
        elif there != ref.after and not desk.force:
            if not (ref.name == STASH and _is_below(desk)):
                desk.refuse(resource, _moved_since(ref, there))
        elif ref.before == NONE:
            if content is not None:
                desk.change(resource, desk.now(resource), ABSENT, "removed")
            if ref.name in now:
                going.add(ref.name)
                if content is None:
                    _keep(desk, resource, loose, "it is no longer packed")
        else:
            _set(desk, ref, resource, now, going)
    if going:
        resource = f"{desk.home}/packed-refs"
        there = desk.now(resource)
        goal = desk.written(packed_without(desk.content_now(resource) or b"", going), there, resource)
        names = ", ".join(sorted(going)[:3]) + (f" and {len(going) - 3} more" if len(going) > 3 else "")
        desk.change(resource, there, goal, f"without {names}")


def _keep(desk: GitDesk, resource: str, loose: dict[str, str], why: str) -> None:
    if resource in loose.values():
        desk.stay(resource, why)


def _moved_since(ref: _Moved, there: str | None) -> str:
    told = {None: "something that is no ref", NONE: "gone"}.get(there, (there or "")[:10])
    left = ref.after[:10] if ref.after else "nothing"
    return f"was moved since: it is {told}, and the effect left {left}"


def _is_below(desk: GitDesk) -> bool:
    """Whether others only stashed more since: then the entry comes back, or goes, below theirs."""
    log = f"{desk.home}/logs/{STASH}"
    target = desk.targets.get(log)
    after = desk.content(target.after) if target else None
    now = desk.content_now(log)
    if after is None or now is None or not (now.startswith(after) and len(now) > len(after)):
        return False
    desk.stay(ref_resource(desk.home, STASH), "newer stashes are on top of it")
    return True


def _set(desk: GitDesk, ref: _Moved, resource: str, now: dict[str, str], going: set[str]) -> None:
    others = {name: oid for name, oid in now.items() if name != ref.name and name not in going}
    if blocking := in_the_way(ref.name, others) or _file_above(desk, resource):
        desk.refuse(resource, f"cannot come back: {blocking} is there now")
        return
    place = desk.places.within_reach(resource)
    there = desk.now(resource) if place else ABSENT
    if is_dir(there) and holds_more(desk, resource):
        desk.refuse(resource, "cannot come back: a directory of refs is there now")
        return
    target = desk.targets.get(resource)
    if target and target.before["type"] == "file":
        goal = {key: value for key, value in target.before.items() if key not in _NOTES}
    else:
        goal = desk.written(
            f"{ref.before}\n".encode("utf-8", "surrogateescape"), _like(desk, there), resource
        )
    _make_directories(desk, resource)
    desk.change(resource, there, goal, f"back to {ref.before[:10]}")


def _file_above(desk: GitDesk, resource: str) -> str:
    for above in ancestors(resource):
        if above == f"{desk.home}/refs":
            return ""
        if desk.content_now(above) is not None and not desk.goes(above):
            return above[len(desk.home) + 1 :]
    return ""


def _like(desk: GitDesk, there: FileState) -> FileState:
    """Whose mode and owner a new ref gets."""
    for state in (there, desk.now(f"{desk.home}/packed-refs"), desk.now(f"{desk.home}/HEAD")):
        if state["type"] == "file":
            return state
    return {"mode": 0o644, "uid": os.geteuid(), "gid": os.getegid()}


def _make_directories(desk: GitDesk, resource: str) -> None:
    place = desk.places.if_there(f"{desk.home}/refs")
    status = place.stat() if place else None
    for above in ancestors(resource):
        if above == f"{desk.home}/refs" or status is None:
            return
        outer = desk.places.within_reach(above)
        step = desk.steps.get(above)
        if outer is not None and outer.stat() is not None:
            if desk.goes(above) and desk.content_now(above) is not None:
                desk.change(above, desk.now(above), shell_of(status, {}), "a directory of refs again")
            elif desk.goes(above):
                desk.stay(above, "a ref in it stays")
        elif step is None or step.target is None:
            desk.change(above, ABSENT, shell_of(status, {}), "made again for a ref")


def holds_more(desk: GitDesk, resource: str) -> bool:
    """Whether a directory would not be empty after the undo."""
    place = desk.places.within_reach(resource)
    if place is None or place.stat() is None:
        return False
    return any(not desk.goes(f"{resource}/{quote(name)}") for name in desk.places.names_in(place))


def _demand_objects(desk: GitDesk, moved: list[_Moved]) -> None:
    """A ref goes back only to an object that is there."""
    for ref in moved:
        resource = ref_resource(desk.home, ref.name)
        if ref.before == ref.after or not ref.before or ref.before.startswith("ref: "):
            continue
        by_file = desk.outcome(resource) is Outcome.UNDONE
        by_list = desk.outcome(f"{desk.home}/packed-refs") is Outcome.UNDONE and resource not in desk.steps
        if (by_file or by_list) and (lost := desk.missing((ref.before,))):
            desk.refuse(resource if by_file else f"{desk.home}/packed-refs", lost)


def _note_packed(desk: GitDesk, names: list[str], now: dict[str, str]) -> None:
    """So that a redo knows what a ref without a file was."""
    listed = desk.steps.get(f"{desk.home}/packed-refs")
    if listed is not None and listed.target is not None:
        refs = {name: ref_resource(desk.home, name) for name in now}
        others = [name for name in now if (step := desk.steps.get(refs[name])) is None or step.target is None]
        shadowed = [name for name in others if desk.content_now(refs[name]) is not None]
        after = listed.target.after | {SHADOWED: sorted(shadowed)}
        desk.steps[listed.target.resource] = PathStep(listed.outcome, listed.target._replace(after=after))
        return
    for name in names:
        step = desk.steps.get(ref_resource(desk.home, name))
        if step is not None and step.target is not None:
            noted = ref_noted(step.target, now.get(name, NONE))
            desk.steps[noted.resource] = PathStep(step.outcome, noted)
