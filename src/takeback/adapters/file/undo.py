"""What an undo would do to each target of an effect, in its present state."""

import stat
import time
from collections.abc import Sequence
from typing import NamedTuple

from takeback.adapters.file.build import Tools, name_to_hold, stays_apart
from takeback.adapters.file.content import MERGEABLE, file_bytes
from takeback.adapters.file.directory import PATH, TYPE, WHAT, ReadScope, SeenDirectory
from takeback.adapters.file.look import Sight, look_closely
from takeback.adapters.file.mounts import Footing
from takeback.adapters.file.move import FileMove, goes_across, move_of, move_targets
from takeback.adapters.file.os_errors import CannotCapture, protected, translated
from takeback.adapters.file.paths import Place, open_place
from takeback.adapters.file.remove import unchanged_at_a_glance
from takeback.adapters.file.sqlite_files import in_use, may_be_database
from takeback.adapters.file.states import (
    ABSENT,
    FileState,
    difference,
    lasting,
    same,
    same_inode_will_do,
    words,
)
from takeback.errors import TakebackError
from takeback.model.change import OnConflict, UndoTerms
from takeback.model.effect import Effect
from takeback.model.plan import Obstacle, Outcome, TargetOutcome
from takeback.model.remedy import Target
from takeback.model.resource import display, path_of

_FINE = (Outcome.UNDONE, Outcome.ALREADY)


class FileStep(NamedTuple):
    """For one target: what would happen, and the change of state that does it, if any."""

    outcome: TargetOutcome
    target: Target | None = None
    seen: SeenDirectory | None = None


class SeenFiles(NamedTuple):
    """The state that an undo was planned on, if a later glance can show that it still holds."""

    steps: tuple[FileStep, ...]


def recognisable(steps: Sequence[FileStep], terms: UndoTerms) -> SeenFiles | None:
    """Of plain files with one name, and of what is absent; not where it matters what the journal says of others."""
    plain = not terms.on_conflict.merges and all(
        step.target is not None and step.outcome.exact and _is_plain(step.target.before) for step in steps
    )
    return SeenFiles(tuple(steps)) if plain and steps else None


def _is_plain(state: FileState) -> bool:
    if state["type"] == "absent":
        return True
    return (
        state["type"] == "file"
        and state.get("nlink") == 1
        and not any(name in state for name in ("meta", "identity", "excluded", "left_out"))
    )


def unchanged(of: Effect, seen: SeenFiles) -> bool:
    # Another mount over a file that is there would show another file.
    missing = any(step.target and step.target.before["type"] == "absent" for step in seen.steps)
    footing = Footing(of.remedy if missing else None)
    for step in seen.steps:
        target = step.target
        if target is None or footing.moved(target.resource) or _unless_in_use(step) is not step:
            return False
        try:
            with open_place(target.resource) as place:
                if not unchanged_at_a_glance(place, target.before):
                    return False
        except OSError:
            return False
    return True


def kept_as_seen(of: Effect, seen: SeenFiles, tools: Tools) -> list[FileStep]:
    """The same steps, with the present content saved for redo; empty if it is no longer as seen."""
    manners = {target.resource: target for target in of.targets}
    found: list[FileStep] = []
    for step in seen.steps:
        target = step.target
        assert target
        own = manners[target.resource]
        try:
            with open_place(target.resource) as place:
                status = place.stat()
                if status and stat.S_ISREG(status.st_mode):
                    tools.progress.expect(bytes=status.st_size)
                manner = own.before if own.after["type"] == "absent" else own.after
                now = look_closely(
                    place, manner, ReadScope(tools.blobs, progress=tools.progress), status
                ).state
        except (OSError, TakebackError):
            return []
        # A file that was too young when it was seen had no ctime to go by.
        if {**now, "ctime": 0} != {**target.before, "ctime": 0}:
            return []
        found.append(step._replace(target=target._replace(before=now)))
    return found


def plan_undo(of: Effect, terms: UndoTerms, tools: Tools, scope: ReadScope) -> list[FileStep]:
    """Looks and changes nothing; the present content goes to `scope.keep`, for redo."""
    move = move_of(of)
    footing = Footing(of.remedy)
    if move is not None:
        for name in (move.old, move.new):
            if why := footing.moved(name):
                return _in_the_way(move_targets(move._replace(back=not move.back)), name, why, Obstacle.MOUNT)
        return _undo_move(move, terms.on_conflict)
    steps = [
        FileStep(TargetOutcome(target.resource, Outcome.CONFLICT, why, obstacle=Obstacle.MOUNT))
        if (why := footing.moved(target.resource))
        else _undo_target(
            target,
            of.id,
            terms,
            tools,
            scope._replace(
                hold=name_to_hold(tools, target.after, f"{scope.hold}-{index}") if scope.hold else ""
            ),
        )
        for index, target in enumerate(of.targets)
    ]
    steps = [_unless_in_use(each) for each in steps]
    if terms.on_conflict.skips:
        steps = [_unless_protected(each) for each in steps]
    return _all_or_none(steps) if goes_across(of) else steps


def _unless_in_use(step: FileStep) -> FileStep:
    """Not even by force: the process that has it open would keep writing to the removed file."""
    change = step.target
    if change is None or same_inode_will_do(change.before, change.after):
        return step
    why = _open_in(change.resource, change.before, step.seen)
    if not why:
        return step
    return FileStep(TargetOutcome(change.resource, Outcome.CONFLICT, why, obstacle=Obstacle.OPEN))


def _unless_protected(step: FileStep) -> FileStep:
    """Then the rest can be done without it."""
    why = protected(step.target.resource) if step.target else ""
    if not why:
        return step
    detail = f"cannot be changed: {why}"
    return FileStep(
        step.outcome._replace(outcome=Outcome.CONFLICT, detail=detail, obstacle=Obstacle.PROTECTED)
    )


def _open_in(resource: str, now: FileState, seen: SeenDirectory | None) -> str:
    """Why a path cannot be changed that is, or contains, a database in use; empty if none is."""
    paths: list[str] = []
    if now["type"] == "file" and may_be_database(resource, now.get("size", 0)):
        paths.append(resource)
    for row in seen.rows if seen else ():
        if row[TYPE] == "file" and may_be_database(row[PATH], row[WHAT]):
            paths.append(f"{resource}/{row[PATH]}")
    for path, why in in_use(paths).items():
        return why if path == resource else f"holds {display(path)}, which {why}"
    return ""


def _all_or_none(steps: list[FileStep]) -> list[FileStep]:
    """Both names of a move to another filesystem; what appears comes before what goes."""
    odd = next(
        (each.outcome for each in steps if each.target is None and each.outcome.outcome not in _FINE), None
    )
    if odd is None:
        return steps[::-1]
    why = f"stays unchanged: {display(odd.resource)} {odd.detail}"
    return [
        each
        if each.outcome.outcome is odd.outcome
        else FileStep(each.outcome._replace(outcome=odd.outcome, detail=why, obstacle=Obstacle.COMPANION))
        for each in steps[::-1]
    ]


def _step(
    target: Target,
    outcome: Outcome,
    detail: str,
    change: Target | None = None,
    seen: SeenDirectory | None = None,
) -> FileStep:
    return FileStep(TargetOutcome(target.resource, outcome, detail), change, seen)


def _undo_target(target: Target, of: str, terms: UndoTerms, tools: Tools, scope: ReadScope) -> FileStep:
    if "excluded" in target.before:
        return _step(target, Outcome.EXCLUDED, f"it was not captured: {target.before['excluded']}")
    with translated(target.resource):
        try:
            place = open_place(target.resource)
        except (FileNotFoundError, NotADirectoryError):
            if target.before["type"] == "absent":
                return _step(target, Outcome.ALREADY, "nothing is there")
            return FileStep(directory_gone(target.resource))
        with place:
            try:
                return _undo_at(place, target, of, terms, tools, scope)
            except CannotCapture as trouble:
                return FileStep(uncaptured(target.resource, trouble))


def directory_gone(resource: str) -> TargetOutcome:
    why = "cannot come back: the directory it was in is gone"
    return TargetOutcome(resource, Outcome.CONFLICT, why, obstacle=Obstacle.DIRECTORY)


def uncaptured(resource: str, trouble: CannotCapture) -> TargetOutcome:
    own = trouble.resource == resource
    reason = trouble.reason if own else f"{display(trouble.resource)}: {trouble.reason}"
    obstacle = Obstacle.UNREADABLE if own and not trouble.readable else Obstacle.UNCAPTURED
    detail = f"cannot be captured as it is now: {reason}"
    return TargetOutcome(resource, Outcome.FAILED, detail, obstacle=obstacle)


def differs(target: Target, now: FileState, of: str) -> TargetOutcome:
    obstacle = Obstacle.GONE if now["type"] == "absent" else Obstacle.CHANGED
    found = difference(target.after, now, effect=of[:8])
    return TargetOutcome(target.resource, Outcome.CONFLICT, found, obstacle=obstacle)


def _undo_at(
    place: Place, target: Target, of: str, terms: UndoTerms, tools: Tools, scope: ReadScope
) -> FileStep:
    manner = target.before if target.after["type"] == "absent" else target.after
    status = place.stat()
    if status and stat.S_ISREG(status.st_mode):
        scope.progress.expect(bytes=status.st_size)
    sight = look_closely(place, manner, scope, status)
    now = sight.state
    change = Target(target.resource, now, restored(target.before, target.after, now))
    if same(now, target.after):
        if why := changed_later(target, terms, tools):
            return _step(target, Outcome.CONFLICT, why)
        return _step(target, Outcome.UNDONE, back_to(target.before, tools), change, sight.seen)
    if same(now, target.before) and not is_explained(target, now, terms):
        return _step(target, Outcome.ALREADY, "it is in the earlier state")
    if terms.on_conflict is OnConflict.FORCE:
        detail = f"{back_to(target.before, tools)}; {words(now)} that was there is saved"
        return _step(target, Outcome.UNDONE, detail, change, sight.seen)
    if terms.on_conflict.merges or is_explained(target, now, terms):
        merged = merge_step(place, target, now, tools, scope)
        why = changed_later(target, terms, tools) if merged.target else ""
        return _step(target, Outcome.CONFLICT, why) if why else merged
    return FileStep(differs(target, now, of))


def is_explained(target: Target, now: FileState, terms: UndoTerms) -> bool:
    """Whether nothing but merges of ours made it what it is now."""
    explained = terms.explained.get(target.resource)
    return explained is not None and same(now, explained)


def restored(before: FileState, after: FileState, now: FileState) -> FileState:
    """What undo aims at: the earlier state, without what only the lost inode had."""
    return (
        lasting(before)
        if "meta" not in before
        else {"type": now["type"], "meta": True, "mode": before["mode"]}
    )


def back_to(before: FileState, tools: Tools) -> str:
    if before["type"] == "absent":
        return "removed"
    left_out = before.get("left_out", 0)
    more = f", without {left_out} that could not be captured" if left_out else ""
    apart = stays_apart(tools, before) if before["type"] in ("file", "dir") and "meta" not in before else ""
    return f"back to {words(before)}{more}" + (f"; {apart}" if apart else "")


def changed_later(target: Target, terms: UndoTerms, tools: Tools) -> str:
    """Why a merge must not be trusted though it is clean: a later effect that stays has changed the same part, and the
    part is as it was only because someone wrote the same again. Empty if none has."""
    later = terms.later.get(target.resource)
    if not later or "digest" not in target.before or "digest" not in target.after:
        return ""
    is_there = {target.after["digest"]: True}
    for effect, *digests in later:
        for digest in digests:
            if digest not in is_there:
                is_there[digest] = _is_in(target, digest, tools)
        if is_there[digests[0]] and not is_there[digests[1]]:
            return f"effect {effect[:8]} changed the same part of it later"
    return ""


def _is_in(target: Target, digest: str, tools: Tools) -> bool:
    """Whether what the effect did could be taken out of this content; True if that cannot be known."""
    three = (digest, target.after["digest"], target.before["digest"])
    if max(target.before["size"], target.after["size"]) > MERGEABLE or not all(map(tools.blobs.has, three)):
        return True
    from takeback.adapters.three_way import merge

    content, base, theirs = (b"".join(tools.blobs.read(one)) for one in three)
    return merge(content, base, theirs, path_of(target.resource)).content not in (None, content)


class _Aim(NamedTuple):
    """The result of a merge; no state if there is a conflict."""

    state: FileState | None
    detail: str
    diff: str = ""


def merge_step(place: Place, target: Target, now: FileState, tools: Tools, scope: ReadScope) -> FileStep:
    """Take only the changes of the effect out of the present content."""
    aim = _merged(place, target, now, tools, scope)
    if aim.state is None:
        return _step(target, Outcome.CONFLICT, aim.detail)
    if same(now, aim.state):
        return _step(target, Outcome.ALREADY, "what it did is no longer there")
    outcome = TargetOutcome(target.resource, Outcome.UNDONE, aim.detail, exact=False, diff=aim.diff)
    return FileStep(outcome, Target(target.resource, now, aim.state))


def _merged(place: Place, target: Target, now: FileState, tools: Tools, scope: ReadScope) -> _Aim:
    before, after = target.before, target.after
    if before["type"] == "absent":
        return _Aim(None, "would be removed by the undo, so there is nothing to merge with")
    if any(state["type"] != "file" or "digest" not in state for state in (before, after, now)):
        return _Aim(None, f"cannot be merged, because {words(now)} is there")
    kept = {key: value for key, value in lasting(now).items() if key not in ("holes", "held", "twin")}
    for key in ("mode", "uid", "gid", "xattrs"):
        if before.get(key) == after.get(key):
            continue
        if now.get(key) != after.get(key) and now.get(key) != before.get(key):
            return _Aim(None, f"does not merge: {_PROPERTIES[key]} changed since")
        kept.pop(key, None)
        if key in before:
            kept[key] = before[key]
    content = _merged_content(place, target, now, tools, scope)
    if content.state is None:
        return content
    if content.state["digest"] == now["digest"]:
        return content._replace(state=kept | {key: now[key] for key in ("holes",) if key in now})
    if now.get("nlink", 1) > 1:
        return _Aim(None, f"has {now['nlink']} names, which a merge would separate")
    return content._replace(state=kept | content.state | {"mtime": time.time_ns()})


_PROPERTIES = {"mode": "its mode", "uid": "its owner", "gid": "its group", "xattrs": "its attributes"}


def _merged_content(place: Place, target: Target, now: FileState, tools: Tools, scope: ReadScope) -> _Aim:
    before, after = target.before, target.after
    for state, other in ((now, before), (before, now)):
        if state["digest"] == after["digest"]:
            keys = ("digest", "size", "holes")
            return _Aim({key: other[key] for key in keys if key in other}, "merged; other changes stay")
    if max(state["size"] for state in (before, after, now)) > MERGEABLE:
        return _Aim(None, f"is too large to merge (over {MERGEABLE >> 20} MB)")
    if not all(tools.blobs.has(state["digest"]) for state in (before, after)):
        return _Aim(None, "cannot be merged, because its earlier content is no longer in the store")
    from takeback.adapters.three_way import merge
    from takeback.model.content import name_of

    ours = file_bytes(place.fd, place.name, now["size"])
    if name_of(ours).hex() != now["digest"]:
        raise CannotCapture(target.resource, "it changes while it is being read")
    base, theirs = (b"".join(tools.blobs.read(state["digest"])) for state in (after, before))
    merged = merge(ours, base, theirs, path_of(target.resource))
    if merged.content is None:
        return _Aim(None, merged.detail)
    if scope.keep:
        scope.keep.put(merged.content, like=target.resource)
    digest = name_of(merged.content).hex()
    return _Aim({"digest": digest, "size": len(merged.content)}, merged.detail, merged.diff)


def _undo_move(move: FileMove, on_conflict: OnConflict) -> list[FileStep]:
    """Both names together: a move is taken back whole or not at all."""
    here, there = (move.new, move.old) if not move.back else (move.old, move.new)
    targets = move_targets(move._replace(back=not move.back))
    now_here, now_there = _seen_at(here, move.what), _seen_at(there, move.what)
    waiting = move.replaced if move.back else ABSENT
    if now_here is None or now_there is None:
        gone = here if now_here is None else there
        return _in_the_way(targets, gone, "is in a directory that is gone", Obstacle.DIRECTORY)
    if same(now_there, move.what) and not same(now_here, move.what):
        return _both(targets, Outcome.ALREADY, "it is in its earlier place")
    if not same(now_here, move.what):
        if now_here["type"] == "absent":
            return _in_the_way(targets, here, "is no longer there", Obstacle.MOVED_ON, there)
        if on_conflict is not OnConflict.FORCE:
            why = "was replaced since and is not what was moved there"
            return _in_the_way(targets, here, why, Obstacle.REPLACED)
    sight = _sight_at(there, waiting) or Sight(ABSENT)
    if not same(sight.state, waiting):
        return _in_the_way(targets, there, "is taken by something else now")
    # A directory brings along what is open in it.
    found = in_use((here,)) if now_here["type"] == "file" else {}
    if why := found.get(here, ""):
        return _in_the_way(targets, here, why, Obstacle.OPEN)
    if why := _open_in(there, sight.state, sight.seen):
        return _in_the_way(targets, there, why, Obstacle.OPEN)
    goal = move._replace(what=now_here, replaced=lasting(move.replaced), back=not move.back)
    again = "again" if move.back else "back"
    left = f"moved {again} to {display(there)}"
    if not move.back and move.replaced["type"] != "absent":
        left += "; what it had replaced is here again"
    return [
        FileStep(
            TargetOutcome(
                t.resource,
                Outcome.UNDONE,
                f"moved {again} from {display(here)}" if t.resource == there else left,
            ),
            t,
        )
        for t in move_targets(goal)
    ]


def _in_the_way(
    targets: tuple[Target, Target],
    culprit: str,
    what: str,
    obstacle: Obstacle = Obstacle.CHANGED,
    aim: str = "",
) -> list[FileStep]:
    """A conflict of both names of a move; each detail continues a sentence that begins with the name. `aim`: where the
    culprit would go."""
    so = f", so it cannot be moved back to {display(aim)}" if aim else ""
    why = f"stays unchanged: {display(culprit)} {what}"
    told = {True: (what + so, obstacle), False: (why, Obstacle.COMPANION)}
    outcomes = [(target.resource, *told[target.resource == culprit]) for target in targets]
    return [
        FileStep(TargetOutcome(resource, Outcome.CONFLICT, detail, obstacle=hinders))
        for resource, detail, hinders in outcomes
    ]


def _both(targets: tuple[Target, Target], outcome: Outcome, detail: str) -> list[FileStep]:
    return [FileStep(TargetOutcome(target.resource, outcome, detail)) for target in targets]


def _seen_at(resource: str, manner: FileState) -> FileState | None:
    sight = _sight_at(resource, manner)
    return sight.state if sight else None


def _sight_at(resource: str, manner: FileState) -> Sight | None:
    with translated(resource):
        try:
            place = open_place(resource)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with place:
            return look_closely(place, manner, ReadScope())
