"""Make the remedy of an effect on many paths: what each was, what it will be, and the directories around them."""

import os
import time
from collections.abc import Sequence
from typing import Any

from takeback.adapters.file.build import NOT_HELD, Tools, can_hold, name_to_hold
from takeback.adapters.file.capture import inherited_residue, refuse_conflicts, told_merged
from takeback.adapters.file.mounts import ground_of
from takeback.adapters.file.os_errors import CannotCapture, translated
from takeback.adapters.file.states import counted, difference, same
from takeback.adapters.tree.directories import ParentDirectory, from_json, to_json, under
from takeback.adapters.tree.git.layout import objects_added
from takeback.adapters.tree.hard_links import groups, is_joined, is_unchanged, led
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import (
    closed_mode,
    in_place,
    is_closed,
    is_dir,
    is_excluded,
    only_time,
    see,
    signed_alike,
)
from takeback.adapters.tree.swap import AGAIN, drifted
from takeback.adapters.tree.targets import WATCH, contents, in_order, read_targets, units_of
from takeback.adapters.tree.undo import PathStep
from takeback.errors import Drifted
from takeback.model.effect import Effect
from takeback.model.progress import Progress
from takeback.model.remedy import HARMLESS, Remedy, Strategy, Target
from takeback.model.resource import ancestors, display

VERSION = 2  # 1: nothing is said of mounts
GROUNDS = "grounds"


def grounds_of(effect: Effect) -> list[ParentDirectory]:
    return from_json(effect.remedy.payload.get(GROUNDS, ())) if effect.remedy else []


def capture_change(
    effect: Effect, name: str, tools: Tools, listed: tuple[Target, ...] | None = None
) -> Remedy:
    """`listed`: its targets, if they were read just now."""
    change = effect.change
    listed = listed or read_targets(tools.blobs, change.args["targets"])
    timed = [target for target in listed if is_timed(target)]
    targets = [target for target in listed if not is_timed(target)]
    residue = [change.args["residue"]] if change.args.get("residue") else []
    with Places(targets) as places:
        if change.kind != WATCH:
            demand_before(targets, places, tools.progress)
            targets = held(effect.id, targets, tools, places, residue)
        targets = [target for target in led(targets) if not is_unchanged(target)]
        times = {target.resource: (target.before["mtime"], target.after["mtime"]) for target in timed}
        grounds = _grounds(targets, times, places, look=change.kind != WATCH)
        objects = objects_added(targets, places)
    exact = bool(change.args.get("exact", True)) and not residue
    payload: dict[str, Any] = {GROUNDS: to_json(grounds)}
    if objects:
        if not residue:
            payload[HARMLESS] = True
        residue.append(f"{counted(objects, 'git object')}, which git itself removes when nothing uses them")
    return _remedy(name, targets, payload, exact, "; ".join(dict.fromkeys(residue)))


def is_timed(target: Target) -> bool:
    """A directory of which only the time differs: no target, or it would stand in the way of all that is in it."""
    return is_dir(target.before) and is_dir(target.after) and only_time(target.before, target.after)


def demand_before(targets: Sequence[Target], places: Places, progress: Progress) -> None:
    """Whether they are unchanged since they were read."""
    progress.expect(len(targets))
    for _, target in in_order(targets):
        if not is_excluded(target.before, target.after):
            with translated(target.resource):
                _demand_before(target, places)
        progress.moved(items=1)


def _demand_before(target: Target, places: Places) -> None:
    place = places.if_there(target.resource)
    status = place.stat() if place else None
    if place is None or status is None:
        if target.before["type"] == "absent":
            return
        raise Drifted(f"{display(target.resource)} is no longer there.", hint=AGAIN)
    if signed_alike(status, target.before):
        return
    try:
        now = see(place, target.before)
    except CannotCapture as trouble:
        raise drifted(target.resource, trouble.reason) from trouble
    if not same(now, target.before):
        raise drifted(target.resource, f"it {difference(target.before, now)}")


def held(
    effect: str, targets: list[Target], tools: Tools, places: Places, residue: list[str]
) -> list[Target]:
    """Of a file with several names all may be among the targets: then they come back as one. If not, the inode that is
    displaced is kept, so that it is the same file again as the names that stay."""
    found = groups((target.resource, target.before) for target in targets)
    nlinks = {(t.before["dev"], t.before["ino"]): t.before["nlink"] for t in targets if "nlink" in t.before}
    first = {resource: names[0] for names in found.values() for resource in names}
    # Of anything but a file the count is not known: then only names that are among the targets come back as one.
    whole = {names[0] for inode, names in found.items() if len(names) >= nlinks.get(inode, 1)}
    result: list[Target] = []
    for index, target in enumerate(targets):
        leader = first.get(target.resource)
        before = target.before
        if leader is not None and leader in whole:
            if leader != target.resource:
                before = before | {"twin": leader}
        elif leader is not None and "twin" not in before and not in_place(before, target.after):
            place = places.at(target.resource)
            if can_hold(tools, place):
                before = before | {"held": name_to_hold(tools, before, f"{effect}-{index}")}
            else:
                residue.append(NOT_HELD.format(name=display(target.resource)))
        result.append(target._replace(before=before))
    return result


def _grounds(
    targets: list[Target], times: dict[str, tuple[int, int]], places: Places, look: bool
) -> list[ParentDirectory]:
    """The directories in which names come and go, and those of which only the time is known to have changed."""
    now = time.time_ns()
    units = units_of(targets)
    moved = {unit.parent for unit in units if "absent" in (unit.start["type"], unit.goal["type"])}
    shells = {t.resource: t for t in targets if is_dir(t.before) and is_dir(t.after)}
    found: dict[str, ParentDirectory] = {
        resource: ParentDirectory(resource, pair) for resource, pair in times.items()
    }
    closed = {one: t for one, t in shells.items() if os.geteuid() != 0 and is_closed(t.before, t.after)}
    if closed:
        for resource in closed.keys() & {above for unit in units for above in ancestors(unit.resource)}:
            before, after = closed[resource].before, closed[resource].after
            pair = (before["mtime"], after["mtime"])
            found[resource] = ParentDirectory(resource, pair, (before["mode"], after["mode"]))
    for resource in under(units):
        if resource in shells:
            continue
        place = places.if_there(resource) if look else None
        status = place.stat() if place else None
        if status is not None:
            # Where no name comes or goes a command that writes into files moves no time.
            later = now if resource in moved else status.st_mtime_ns
            pair = times.get(resource, (status.st_mtime_ns, later))
            mode = closed_mode(status)
            found[resource] = ParentDirectory(resource, pair, (mode, mode))
    return [found[resource] for resource in sorted(found, key=lambda one: one.split("/"))]


def capture_undo(effect: Effect, of: Effect, steps: list[PathStep], name: str, tools: Tools) -> Remedy:
    """The remedy of an undo: the present state and the state it will leave. So redo is the undo of the undo."""
    refuse_conflicts(of, (step.outcome for step in steps), effect.change.undo)
    targets = [step.target for step in steps if step.target is not None]
    known = {target.resource: target for target in of.targets}
    with Places(targets) as places:
        named = [_named(one, known.get(one.resource), places) for one in targets]
        targets = led(held(effect.id, named, tools, places, []))
        around = grounds_of(of)
        if effect.change.undo.partial:
            # Only the directories that these paths are in: names of others still stand elsewhere.
            parents = {target.resource.rpartition("/")[0] for target in of.targets}
            around = [ground for ground in around if ground.resource in parents]
        times = _times_back(around, places)
        grounds = _grounds(targets, times, places, look=True)
    residue = inherited_residue(of)
    payload = {"undo": of.id, GROUNDS: to_json(grounds)}
    remedy = _remedy(name, targets, payload, not residue, residue)
    return told_merged(remedy, [step.outcome for step in steps if step.target is not None])


def _named(target: Target, of: Target | None, places: Places) -> Target:
    """The file that the effect left may be another name of a file that stays, or was held before under one of our
    names."""
    if of is None or target.before.get("nlink", 1) < 2:
        return target
    twin: str = of.after.get("twin", "")
    if twin and is_joined(target.resource, twin, places):
        return target._replace(before=target.before | {"twin": twin})
    if "held" in of.after:
        return target._replace(before=target.before | {"held": of.after["held"]})
    return target


def _times_back(grounds: list[ParentDirectory], places: Places) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    now = time.time_ns()
    for ground in grounds:
        place = places.within_reach(ground.resource)
        status = place.stat() if place else None
        if status is not None:
            # The time of before was put back by an undo of other paths in it.
            untouched = status.st_mtime_ns in (ground.times[0], ground.times[1])
            found[ground.resource] = (status.st_mtime_ns, ground.times[0] if untouched else now)
    return found


def _remedy(name: str, targets: list[Target], payload: dict[str, Any], exact: bool, residue: str) -> Remedy:
    return Remedy(
        adapter=name,
        version=VERSION,
        strategy=Strategy.SNAPSHOT,
        targets=tuple(targets),
        payload=payload | ground_of(target.resource for target in targets),
        blobs=tuple(contents(targets)),
        exact=exact and not residue,
        residue=residue,
    )
