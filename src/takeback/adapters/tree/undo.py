"""What an undo would do to each path of an effect, in its present state. Changes nothing."""

import errno
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from takeback.adapters.file.build import Tools
from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.mounts import Footing
from takeback.adapters.file.os_errors import CannotCapture, protected, translated
from takeback.adapters.file.paths import Place
from takeback.adapters.file.sqlite_files import in_use
from takeback.adapters.file.states import ABSENT, FileState, lasting, same, words
from takeback.adapters.file.undo import (
    back_to,
    changed_later,
    differs,
    directory_gone,
    is_explained,
    merge_step,
    uncaptured,
)
from takeback.adapters.tree.hard_links import is_joined
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import (
    as_closed,
    in_place,
    is_dir,
    is_excluded,
    only_time,
    see,
    seems_alike,
)
from takeback.adapters.tree.targets import in_order, moves_of
from takeback.adapters.tree.verify import manner_of, strangers
from takeback.errors import TakebackError
from takeback.model.change import OnConflict, UndoTerms
from takeback.model.effect import Effect
from takeback.model.plan import Bond, Obstacle, Outcome, TargetOutcome, only_forced
from takeback.model.remedy import OTHERS_TOO, UNKNOWN, Target, doubt_of
from takeback.model.resource import display

_GOOD = (Outcome.UNDONE, Outcome.ALREADY)
_DOUBTS = {
    OTHERS_TOO: "was changed by someone else at the same time; it goes back only if you name it",
    UNKNOWN: "may have been changed by someone else at the same time; it goes back only if you name it",
}


class PathStep(NamedTuple):
    """For one path: what would happen, and the change of state that does it, if any."""

    outcome: TargetOutcome
    target: Target | None = None


class SeenPath(NamedTuple):
    state: FileState
    ctime: int  # also of a file that is too young to be judged by it


class TreeUndo:
    def __init__(
        self,
        of: Effect,
        terms: UndoTerms,
        tools: Tools,
        keep: bool,
        lately: Mapping[str, SeenPath],
    ) -> None:
        """`lately` is what was seen a moment ago: files that were not touched since need not be read again."""
        self._of = of
        self._terms = terms
        self._on_conflict = terms.on_conflict
        self._tools = tools
        self._scope = ReadScope(tools.blobs if keep else None, progress=tools.progress)
        self._known = {target.resource for target in of.targets}
        self._leaders = {target.before["twin"] for target in of.targets if "twin" in target.before}
        self._lately = lately
        self._footing = Footing(of.remedy)
        self.seen: dict[str, SeenPath] = {}
        self._steps: dict[str, PathStep] = {}  # by resource; a directory before what is in it
        self._children: dict[str, list[str]] = {}

    def plan(self) -> list[PathStep]:
        progress = self._tools.progress
        sizes = sum(self._manner(target).get("size", 0) for target in self._of.targets)
        progress.expect(len(self._of.targets), sizes)
        with Places(self._of.targets, unlock=True) as places:
            for _, target in in_order(self._of.targets):
                self._steps[target.resource] = self._step(target, places)
                progress.moved(items=1)
            self._leave_what_is_in_use()
            self._keep_together()
            while True:
                self._need_directories(places)
                self._empty_directories(places)
                if not self._keep_together():  # each time fewer paths change
                    break
        return list(self._steps.values())

    def _leave_what_is_in_use(self) -> None:
        """Not even by force: the process that has it open would keep writing to the removed file."""
        changed = [step.target for step in self._steps.values() if step.target]
        files = [target.resource for target in changed if target.before["type"] == "file"]
        for resource, why in in_use(files).items():
            self._steps[resource] = _blocked(resource, why, Obstacle.OPEN)

    def _step(self, target: Target, places: Places) -> PathStep:
        if is_excluded(target.before, target.after) and not only_forced(target):
            why = target.before.get("excluded") or target.after.get("excluded")
            return _told(target, Outcome.EXCLUDED, f"it was not captured: {why}")
        if why := self._footing.moved(target.resource):
            return _blocked(target.resource, why, Obstacle.MOUNT)
        try:
            with translated(target.resource):
                try:
                    place = places.if_there(target.resource)
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                    return _by_a_link(target.resource)
                now = self._now(target, place) if place else ABSENT
                if now["type"] == "symlink":
                    places.note_link(target.resource)
                if (doubt := doubt_of(target)) and not self._is_decided(target, now):
                    return _told(target, Outcome.EXCLUDED, _DOUBTS[doubt])
                step = self._judged(target, now, place, places)
                if step.target and self._on_conflict.skips and (why := protected(target.resource)):
                    return _blocked(target.resource, f"cannot be changed: {why}", Obstacle.PROTECTED)
                return step
        except CannotCapture as trouble:
            return PathStep(uncaptured(target.resource, trouble))
        except TakebackError as trouble:
            if not only_forced(target):
                raise
            return _told(target, Outcome.EXCLUDED, f"it was not captured: {trouble}")

    def _now(self, target: Target, place: Place) -> FileState:
        known = self._lately.get(target.resource)
        status = place.stat()
        # Also where it is too young to be sure: it is read again when it is captured, and then it must be the same.
        if known is None or status is None or not seems_alike(status, *known):
            known = SeenPath(
                see(place, self._manner(target), self._scope), status.st_ctime_ns if status else 0
            )
        self.seen[target.resource] = known
        return known.state

    def _manner(self, target: Target) -> FileState:
        return target.before if only_forced(target) else manner_of(target)

    def _is_decided(self, target: Target, now: FileState) -> bool:
        """Where someone else may have had a part in it."""
        return self._on_conflict is OnConflict.FORCE or same(now, target.before)

    def _judged(self, target: Target, now: FileState, place: Place | None, places: Places) -> PathStep:
        before, after = target.before, target.after
        change = Target(target.resource, now, _aim(target, now))
        if only_forced(target):
            return self._forced(target, now, change)
        if only_time(before, after) and same(now, after):
            if self._is_moved(target, now, places):
                return _told(target, Outcome.UNDONE, f"its time is put back{_ownerless(target, now)}", change)
            return _told(target, Outcome.ALREADY, "it is in the earlier state")
        if same(as_closed(now, after), after):
            as_then = _is_then(target, now) and (place or self._has_room(target.resource))
            if self._on_conflict is not OnConflict.FORCE and not as_then and (why := _why_mixed(target)):
                return _told(target, Outcome.EXCLUDED, why)
            if why := changed_later(target, self._terms, self._tools):
                return _told(target, Outcome.CONFLICT, why)
            return _told(target, Outcome.UNDONE, self._back(target) + _ownerless(target, now), change)
        explained = is_explained(target, now, self._terms)
        if same(now, before) and not explained:
            return _told(target, Outcome.ALREADY, "it is in the earlier state")
        if place and _is_then(target, now):
            return _told(target, Outcome.UNDONE, self._back(target) + _ownerless(target, now), change)
        if self._on_conflict is OnConflict.FORCE:
            return self._told_saved(target, now, change)
        if (self._on_conflict.merges or explained) and place and "unit" not in before:
            step = merge_step(place, target, now, self._tools, self._scope)
            why = changed_later(target, self._terms, self._tools) if step.target else ""
            return _told(target, Outcome.CONFLICT, why) if why else PathStep(step.outcome, step.target)
        return self._differs(target, now, place)

    def _differs(self, target: Target, now: FileState, place: Place | None) -> PathStep:
        if place is None and target.before["type"] != "absent" and not self._has_room(target.resource):
            return PathStep(directory_gone(target.resource))
        return PathStep(differs(target, now, self._of.id))

    def _forced(self, target: Target, now: FileState, change: Target) -> PathStep:
        if same(now, target.before):
            return _told(target, Outcome.ALREADY, "it is in the earlier state")
        if self._on_conflict is not OnConflict.FORCE or now["type"] not in ("file", "absent"):
            why = f"was not captured when the command ended ({target.after['excluded']})"
            return _told(target, Outcome.EXCLUDED, f"{why}; only force goes back to how it was before")
        return self._told_saved(target, now, change)

    def _told_saved(self, target: Target, now: FileState, change: Target) -> PathStep:
        detail = f"{self._back(target)}; {words(now)} that was there is saved"
        return _told(target, Outcome.UNDONE, detail, change)

    def _has_room(self, resource: str) -> bool:
        """Its directory comes back too."""
        above = self._steps.get(resource.rpartition("/")[0])
        return above is not None and above.target is not None and is_dir(above.target.after)

    def _back(self, target: Target) -> str:
        before = target.before
        if "twin" in before or (target.resource in self._leaders and "held" not in before):
            before = before | {"nlink": 1}  # its other names are known, so they come together again
        return back_to(before, self._tools)

    def _is_moved(self, target: Target, now: FileState, places: Places) -> bool:
        """Of a path where only the time or the twin tells before from after."""
        before, after = target.before, target.after
        if before.get("twin") != after.get("twin"):
            twin = after.get("twin") or before.get("twin") or ""
            return is_joined(target.resource, twin, places) == ("twin" in after)
        return before.get("mtime") != after.get("mtime") and now.get("mtime") == after.get("mtime")

    def _keep_together(self) -> bool:
        """A database and its journal: if one of the files stays as it is, all do. So do both names of a move, where
        conflicts are skipped. Whether that changed anything."""
        bad = {one for one, step in self._steps.items() if step.outcome.outcome not in _GOOD}
        changed = False
        for bond, names in self._groups() if bad else ():
            culprits = [self._steps[one].outcome for one in names if one in bad]
            for resource in names if culprits else ():
                if resource not in bad:
                    self._steps[resource] = _staying(resource, bond, culprits[0])
                    bad.add(resource)
                    changed = True
        return changed

    def _groups(self) -> Iterable[tuple[Bond, Iterable[str]]]:
        units: dict[str, list[str]] = {}
        for target in self._of.targets:
            if "unit" in target.after:
                units.setdefault(target.after["unit"], []).append(target.resource)
        yield from ((Bond.DATABASE, names) for names in units.values())
        if self._on_conflict.skips:
            yield from moves_of(self._of.targets)

    def _need_directories(self, places: Places) -> None:
        """What comes back needs a directory to come back to."""
        for resource, step in list(self._steps.items()):
            if step.target is None or step.target.after["type"] == "absent":
                continue
            parent = resource.rpartition("/")[0]
            above = self._steps.get(parent)
            if above is None or above.target is None:
                there = places.within_reach(resource) is not None
            else:
                there = is_dir(above.target.after)
            if not there:
                self._steps[resource] = PathStep(directory_gone(resource))

    def _empty_directories(self, places: Places) -> None:
        """A directory goes only if everything in it goes. Innermost first: what stays keeps those around it."""
        for resource, step in reversed(list(self._steps.items())):
            change = step.target
            if change is None or is_dir(change.after) or not is_dir(change.before):
                continue
            place = places.within_reach(resource)
            if place is None:
                self._steps[resource] = _by_a_link(resource)
                continue
            with translated(resource):
                foreign = strangers(place, self._known, self._of.id, places)
            staying = [one for one in self._inside(resource) if self._stays(one, places)]
            if foreign and self._on_conflict is OnConflict.FORCE and not staying:
                self._take_along(foreign, places)
            elif foreign or staying:
                culprit = display((foreign + staying)[0])
                more = f" and {len(foreign + staying) - 1:,} more" if len(foreign + staying) > 1 else ""
                outcomes = {self._steps[one].outcome.outcome for one in staying}
                excluded = not foreign and outcomes == {Outcome.EXCLUDED}
                why = "was not captured" if excluded else f"effect {self._of.id[:8]} did not make"
                outcome = Outcome.EXCLUDED if excluded else Outcome.CONFLICT
                detail = f"stays, because it holds {culprit}{more}, which {why}"
                self._steps[resource] = PathStep(TargetOutcome(resource, outcome, detail))

    def _inside(self, resource: str) -> Iterable[str]:
        """Paths of the effect directly in a directory."""
        if not self._children:
            for one in self._steps:
                self._children.setdefault(one.rpartition("/")[0], []).append(one)
        return self._children.get(resource, ())

    def _stays(self, resource: str, places: Places) -> bool:
        step = self._steps[resource]
        if step.target is not None:
            return step.target.after["type"] != "absent"
        place = places.within_reach(resource)
        return place is not None and place.stat() is not None

    def _take_along(self, foreign: list[str], places: Places) -> None:
        """Remove files of others too, after they were captured; each path by itself."""
        pending = list(foreign)
        while pending:
            resource = pending.pop()
            place = places.at(resource)
            with translated(resource):
                now = see(place, ABSENT, self._scope)
                if is_dir(now):
                    pending += strangers(place, self._known, self._of.id, places)
            target = Target(resource, now, ABSENT)
            detail = f"removed; {words(now)} that someone else made is saved"
            self._steps[resource] = _told(target, Outcome.UNDONE, detail, target)


def _blocked(resource: str, why: str, obstacle: Obstacle) -> PathStep:
    return PathStep(TargetOutcome(resource, Outcome.CONFLICT, why, obstacle=obstacle))


def _by_a_link(resource: str) -> PathStep:
    why = "cannot be reached: a directory on the way to it is now a symbolic link"
    return _blocked(resource, why, Obstacle.LINK)


def _staying(resource: str, bond: Bond, culprit: TargetOutcome) -> PathStep:
    name = display(culprit.resource)
    why = f"stays unchanged: {name} {culprit.detail}"
    if bond is Bond.MOVE:
        why = f"stays as it is with {name}, its other name in a move"
    return PathStep(TargetOutcome(resource, culprit.outcome, why, obstacle=Obstacle.COMPANION))


def _told(target: Target, outcome: Outcome, detail: str, change: Target | None = None) -> PathStep:
    return PathStep(TargetOutcome(target.resource, outcome, detail), change)


def _why_mixed(target: Target) -> str:
    """Empty if no other effect had a part in it."""
    for state in (target.after, target.before):
        if "then" in state:
            return f"was changed by effect {state['mixed']} after that: undo both together, or force"
        if "mixed" in state:
            return (
                f"was changed by effect {state['mixed']} too; only force goes back to how it was before both"
            )
    return ""


def _is_then(target: Target, now: FileState) -> bool:
    """Whether it is as another effect found it, which changed it after this one, and was taken back since."""
    then = target.after.get("then") or target.before.get("then")
    return then is not None and all(now.get(key) == then[key] for key in then)


def _ownerless(target: Target, now: FileState) -> str:
    """What to say where it belonged to someone else, and will be ours."""
    before = target.before
    stays = all(now.get(key) == before.get(key) for key in ("uid", "gid"))
    if "owner_lost" not in before or (stays and in_place(now, _aim(target, now))):
        return ""
    return f"; only root can give it back to its owner and group ({before['uid']}:{before['gid']})"


def _aim(target: Target, now: FileState) -> FileState:
    """The earlier state, without what only the lost inode had."""
    before, after = target.before, target.after
    if "meta" in before:
        return {"type": now["type"], "meta": True, "mode": before["mode"]}
    aim = lasting(before)
    for note in ("mixed", "then", "over"):
        aim.pop(note, None)
    if is_dir(before) and is_dir(now) and now.get("mtime") != after.get("mtime"):
        # Names came or went since: a time from before that would hide it.
        aim["mtime"] = now["mtime"]
    return aim
