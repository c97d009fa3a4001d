"""What taking an effect back would do to each of its targets, given what is there now."""

import time
from typing import Any, NamedTuple

from takeback.adapters.file.across import goes_across
from takeback.adapters.file.build import Tools
from takeback.adapters.file.content import file_bytes
from takeback.adapters.file.hold import name_to_hold, stays_apart
from takeback.adapters.file.in_use import in_use, may_be_database
from takeback.adapters.file.look import Sight, look_closely
from takeback.adapters.file.manifest import PATH, TYPE, WHAT
from takeback.adapters.file.merge import Merged, merge
from takeback.adapters.file.mounts import Footing
from takeback.adapters.file.moving import Move, move_of, move_targets
from takeback.adapters.file.paths import Place, open_place
from takeback.adapters.file.states import (
    ABSENT,
    State,
    difference,
    lasting,
    same,
    same_inode_will_do,
    words,
)
from takeback.adapters.file.tree import Scope, Seen
from takeback.adapters.file.trouble import CannotCapture, translated
from takeback.model.effect import Effect
from takeback.model.plan import OnConflict, Outcome, TargetOutcome
from takeback.model.remedy import Target
from takeback.model.resource import display

_FINE = (Outcome.UNDONE, Outcome.ALREADY)


class Step(NamedTuple):
    """For one target: what would happen, and the change of state that does it, if any."""

    outcome: TargetOutcome
    target: Target | None = None
    seen: Seen | None = None


def plan_undo(of: Effect, on_conflict: OnConflict, tools: Tools, scope: Scope) -> list[Step]:
    """Asks the world and changes nothing; what is there goes to `scope.keep`, for redo."""
    move = move_of(of)
    footing = Footing(of.remedy.payload if of.remedy else {})
    if move is not None:
        for name in (move.old, move.new):
            if why := footing.moved(name):
                return _in_the_way(move_targets(move._replace(back=not move.back)), name, why)
        return _undo_move(move, on_conflict)
    steps = [
        _step(target, Outcome.CONFLICT, why)
        if (why := footing.moved(target.resource))
        else _undo_target(
            target,
            of.id,
            on_conflict,
            tools,
            scope._replace(
                hold=name_to_hold(tools, target.after, f"{scope.hold}-{index}") if scope.hold else ""
            ),
        )
        for index, target in enumerate(of.targets)
    ]
    steps = [_unless_in_use(each) for each in steps]
    return _all_or_none(steps) if goes_across(of) else steps


def _unless_in_use(step: Step) -> Step:
    """Not even by force: the process that has it open would go on writing to what is no longer there."""
    change = step.target
    if change is None or same_inode_will_do(change.before, change.after):
        return step
    why = _open_in(change.resource, change.before, step.seen)
    return Step(TargetOutcome(change.resource, Outcome.CONFLICT, why)) if why else step


def _open_in(resource: str, now: State, seen: Seen | None) -> str:
    """What can be said of something that is, or holds, a database which someone has open; empty if it does not."""
    paths: list[str] = []
    if now["type"] == "file" and may_be_database(resource, now.get("size", 0)):
        paths.append(resource)
    for row in seen.rows if seen else ():
        if row[TYPE] == "file" and may_be_database(row[PATH], row[WHAT]):
            paths.append(f"{resource}/{row[PATH]}")
    for path, why in in_use(paths).items():
        return why if path == resource else f"holds {display(path)}, which {why}"
    return ""


def _all_or_none(steps: list[Step]) -> list[Step]:
    """Both names of a move to another filesystem; what appears comes before what goes."""
    odd = next(
        (each.outcome for each in steps if each.target is None and each.outcome.outcome not in _FINE), None
    )
    if odd is None:
        return steps[::-1]
    why = f"stays as it is, because {display(odd.resource)} {odd.detail}"
    return [
        each
        if each.outcome.outcome is odd.outcome
        else Step(each.outcome._replace(outcome=odd.outcome, detail=why))
        for each in steps[::-1]
    ]


def _step(
    target: Target, outcome: Outcome, detail: str, change: Target | None = None, seen: Seen | None = None
) -> Step:
    return Step(TargetOutcome(target.resource, outcome, detail), change, seen)


def _undo_target(target: Target, of: str, on_conflict: OnConflict, tools: Tools, scope: Scope) -> Step:
    if "excluded" in target.before:
        return _step(target, Outcome.EXCLUDED, f"it was not captured: {target.before['excluded']}")
    with translated(target.resource):
        try:
            place = open_place(target.resource)
        except (FileNotFoundError, NotADirectoryError):
            if target.before["type"] == "absent":
                return _step(target, Outcome.ALREADY, "nothing is there")
            return _step(target, Outcome.CONFLICT, "cannot come back: the directory it was in is gone")
        with place:
            try:
                return _undo_at(place, target, of, on_conflict, tools, scope)
            except CannotCapture as trouble:
                return _step(target, Outcome.FAILED, f"cannot be captured as it is now: {trouble.reason}")


def _undo_at(
    place: Place, target: Target, of: str, on_conflict: OnConflict, tools: Tools, scope: Scope
) -> Step:
    manner = target.before if target.after["type"] == "absent" else target.after
    sight = look_closely(place, manner, scope)
    now = sight.state
    change = Target(target.resource, now, restored(target.before, target.after, now))
    if same(now, target.after):
        return _step(target, Outcome.UNDONE, back_to(target.before, tools), change, sight.seen)
    if same(now, target.before):
        return _step(target, Outcome.ALREADY, "it is as it was before")
    found = difference(target.after, now, effect=of[:8])
    if on_conflict is OnConflict.FORCE:
        detail = f"{back_to(target.before, tools)}; {words(now)} that was there is kept for redo"
        return _step(target, Outcome.UNDONE, detail, change, sight.seen)
    if on_conflict is OnConflict.MERGE:
        merged = merged_with(place, target, now, tools)
        if merged.content is not None:
            return merge_step(target, now, merged, scope)
        found = f"{found}; {merged.detail}"
    return _step(target, Outcome.CONFLICT, found)


def restored(before: State, after: State, now: State) -> State:
    """What undo aims at: the earlier state, without what only the lost inode had."""
    return (
        lasting(before)
        if "meta" not in before
        else {"type": now["type"], "meta": True, "mode": before["mode"]}
    )


def back_to(before: State, tools: Tools) -> str:
    if before["type"] == "absent":
        return "removed"
    left_out = before.get("left_out", 0)
    more = f", without {left_out} that could not be captured" if left_out else ""
    apart = stays_apart(tools, before) if before["type"] in ("file", "dir") and "meta" not in before else ""
    return f"back to {words(before)}{more}" + (f"; {apart}" if apart else "")


def merged_with(place: Place, target: Target, now: State, tools: Tools) -> Merged:
    if target.before["type"] == "absent":
        return Merged(None, "undo would remove it, so there is nothing to merge with")
    three = (target.before, target.after, now)
    if any(state["type"] != "file" or "digest" not in state for state in three):
        return Merged(None, f"only files can be merged, and {words(now)} is there")
    if not tools.blobs.has(target.after["digest"]):
        return Merged(None, "it is too large to merge")
    base = b"".join(tools.blobs.read(target.after["digest"]))
    theirs = b"".join(tools.blobs.read(target.before["digest"]))
    return merge(file_bytes(place.fd, place.name, now["size"]), base, theirs)


def merge_step(target: Target, now: State, merged: Merged, scope: Scope) -> Step:
    from takeback.model.naming import name_of

    assert merged.content is not None
    digest = name_of(merged.content).hex()
    if scope.keep:
        scope.keep.put(merged.content, like=target.resource)
    aim: dict[str, Any] = {"digest": digest, "size": len(merged.content), "mtime": time.time_ns()}
    for key in ("mode", "uid", "gid"):
        aim[key] = target.before[key] if now[key] == target.after[key] else now[key]
    goal = {key: value for key, value in lasting(now).items() if key not in ("holes", "held")} | aim
    if same(now, goal):
        return _step(target, Outcome.ALREADY, "what it did is no longer there")
    return _step(target, Outcome.UNDONE, merged.detail, Target(target.resource, now, goal))


def _undo_move(move: Move, on_conflict: OnConflict) -> list[Step]:
    """Both names together: a move is taken back whole or not at all."""
    here, there = (move.new, move.old) if not move.back else (move.old, move.new)
    targets = move_targets(move._replace(back=not move.back))
    now_here, now_there = _seen_at(here, move.what), _seen_at(there, move.what)
    waiting = move.replaced if move.back else ABSENT
    if now_here is None or now_there is None:
        gone = here if now_here is None else there
        return _in_the_way(targets, gone, "is in a directory that is gone")
    if same(now_there, move.what) and not same(now_here, move.what):
        return _both(targets, Outcome.ALREADY, "it is where it was before")
    if not same(now_here, move.what):
        if now_here["type"] == "absent":
            return _in_the_way(targets, here, "is no longer there")
        if on_conflict is not OnConflict.FORCE:
            return _in_the_way(targets, here, "is another file now")
    sight = _sight_at(there, waiting) or Sight(ABSENT)
    if not same(sight.state, waiting):
        return _in_the_way(targets, there, "is taken by something else now")
    # A directory brings along what is open in it.
    found = in_use((here,)) if now_here["type"] == "file" else {}
    if why := found.get(here, ""):
        return _in_the_way(targets, here, why)
    if why := _open_in(there, sight.state, sight.seen):
        return _in_the_way(targets, there, why)
    goal = move._replace(what=now_here, replaced=lasting(move.replaced), back=not move.back)
    again = "again" if move.back else "back"
    left = f"moved {again} to {display(there)}"
    if not move.back and move.replaced["type"] != "absent":
        left += "; what it had replaced is here again"
    return [
        Step(
            TargetOutcome(
                t.resource,
                Outcome.UNDONE,
                f"moved {again} from {display(here)}" if t.resource == there else left,
            ),
            t,
        )
        for t in move_targets(goal)
    ]


def _in_the_way(targets: tuple[Target, Target], culprit: str, what: str) -> list[Step]:
    """A conflict of both names, told of each so that it can stand behind it in a sentence."""
    why = f"stays as it is, because {display(culprit)} {what}"
    return [
        Step(TargetOutcome(target.resource, Outcome.CONFLICT, what if target.resource == culprit else why))
        for target in targets
    ]


def _both(targets: tuple[Target, Target], outcome: Outcome, detail: str) -> list[Step]:
    return [Step(TargetOutcome(target.resource, outcome, detail)) for target in targets]


def _seen_at(resource: str, manner: State) -> State | None:
    sight = _sight_at(resource, manner)
    return sight.state if sight else None


def _sight_at(resource: str, manner: State) -> Sight | None:
    with translated(resource):
        try:
            place = open_place(resource)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with place:
            return look_closely(place, manner, Scope())
