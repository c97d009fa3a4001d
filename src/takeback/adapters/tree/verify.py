"""Where the world stands with an effect on many paths: each is read again."""

import errno
from collections.abc import Iterable, Sequence

from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.os_errors import CannotCapture, in_our_words
from takeback.adapters.file.paths import PREFIX, Place, scratch, status_at
from takeback.adapters.file.states import ABSENT, FileState, difference, same
from takeback.adapters.tree.apply import is_twin
from takeback.adapters.tree.directories import ParentDirectory, still_open
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import Mixture, alike, is_dir, is_excluded, only_time, see
from takeback.adapters.tree.targets import Unit, in_order, late_ones, units_of, with_late
from takeback.model.plan import Sighting, Standing, TargetSighting
from takeback.model.progress import SILENT, Progress
from takeback.model.remedy import Target
from takeback.model.resource import display, quote

_DETAILS = 20


def sight(
    effect: str,
    targets: Sequence[Target],
    grounds: Sequence[ParentDirectory],
    clean: bool = False,
    found: bool = False,
    beside: Iterable[str] = (),
    progress: Progress = SILENT,
) -> Sighting:
    """`clean`: the asking process carried it out itself, at the first attempt, so there is no scratch of it. `found`:
    someone else carried it out, so that a directory may have become a link and what was in it be gone. `beside`: what
    others are known to have put into its directories."""
    seen: dict[int, TargetSighting] = {}
    known = {*beside, *(target.resource for target in targets)}
    late = late_ones(targets)
    progress.expect(len(targets), sum(manner_of(target).get("size", 0) for target in targets))
    scope = ReadScope(progress=progress)
    with Places(targets, unlock=True) as places:
        for index, target in in_order(targets):
            if late:
                before, after = (with_late(state, late) for state in (target.before, target.after))
                target = target._replace(before=before, after=after)
            seen[index] = _sight_target(effect, index, target, known, places, found, scope)
            progress.moved(items=1)
        places.lock_again()
        all_seen = tuple(seen[index] for index in range(len(targets)))
        sighting = _together(targets, all_seen)
        if clean or sighting.standing not in (Standing.BEFORE, Standing.AFTER):
            return sighting
        if still_open(grounds, places):
            return Sighting(Standing.BETWEEN, "a directory was opened to work in it", all_seen)
        if sighting.standing is Standing.BEFORE and _has_scratch(effect, targets, places):
            return Sighting(Standing.BETWEEN, "something was being made ready", all_seen)
        return sighting


def is_neutral(target: Target) -> bool:
    """It is before and after at once, so it stands where the others stand."""
    if is_excluded(target.before, target.after):
        return True
    return only_time(target.before, target.after) and (
        is_dir(target.after)
        or (
            target.before.get("mtime") == target.after.get("mtime")
            and target.before.get("twin") == target.after.get("twin")
        )
    )


def _together(targets: Sequence[Target], seen: tuple[TargetSighting, ...]) -> Sighting:
    odd = [one.detail for one in seen if one.detail]
    more = f"; and {len(odd) - _DETAILS:,} more" if len(odd) > _DETAILS else ""
    detail = "; ".join(odd[:_DETAILS]) + more
    standings = {one.standing for one in seen}
    for worst in (Standing.UNKNOWN, Standing.FOREIGN, Standing.BETWEEN):
        if worst in standings:
            return Sighting(worst, detail, seen)
    deciding = {one.standing for one, target in zip(seen, targets, strict=True) if not is_neutral(target)}
    if len(deciding) > 1:
        return Sighting(Standing.BETWEEN, detail, seen)
    standing = deciding.pop() if deciding else Standing.AFTER
    if standing is Standing.BEFORE:
        seen = tuple(
            one._replace(standing=standing) if one.standing is Standing.AFTER else one for one in seen
        )
    return Sighting(standing, detail, seen)


def _sight_target(
    effect: str, index: int, target: Target, known: set[str], places: Places, found: bool, scope: ReadScope
) -> TargetSighting:
    if is_excluded(target.before, target.after):
        return TargetSighting(target.resource, Standing.AFTER, target.after)
    try:
        place = places.if_there(target.resource)
        now = see(place, manner_of(target), scope) if place else ABSENT
        judged = judge(target, now, effect, places)
        if place and now["type"] == "absent" and judged.standing is Standing.FOREIGN:
            # Where names cannot be exchanged, for a moment nothing has the name.
            if status_at(place.fd, scratch(effect, index, place.name).going):
                return judged._replace(standing=Standing.BETWEEN)
        if place and is_dir(now) and not (is_dir(target.before) and is_dir(target.after)):
            if stranger := strangers(place, known, effect, places):
                detail = f"{display(stranger[0])} is not of effect {effect[:8]}"
                return judged._replace(standing=Standing.FOREIGN, detail=detail)
        return judged._replace(cut_off=place is None and judged.standing is Standing.FOREIGN)
    except OSError as error:
        if found and error.errno == errno.ELOOP and target.after["type"] == "absent":
            return TargetSighting(target.resource, Standing.AFTER, ABSENT)
        trouble, cut_off = in_our_words(error, target.resource), error.errno == errno.ELOOP
    except CannotCapture as reason:
        trouble, cut_off = reason, False
    return TargetSighting(target.resource, Standing.UNKNOWN, {}, str(trouble), cut_off)


def manner_of(target: Target) -> FileState:
    return target.before if target.after["type"] == "absent" else target.after


def judge(target: Target, now: FileState, effect: str, places: Places) -> TargetSighting:
    before, after = target.before, target.after
    if only_time(before, after) and same(now, after):
        return TargetSighting(target.resource, _by_time(target, now, places), now)
    if same(now, after):
        return TargetSighting(target.resource, Standing.AFTER, now)
    if same(now, before):
        return TargetSighting(target.resource, Standing.BEFORE, now)
    detail = f"{display(target.resource)} {difference(after, now, effect[:8])}"
    if Mixture(before, after).holds(now) or alike(now, after) or alike(now, before):
        return TargetSighting(target.resource, Standing.BETWEEN, now, detail)
    return TargetSighting(target.resource, Standing.FOREIGN, now, detail)


def _by_time(target: Target, now: FileState, places: Places) -> Standing:
    """Someone else's time is no conflict."""
    before, after = target.before, target.after
    if before.get("twin") != after.get("twin"):
        there = is_twin(Unit(0, target.resource, before, after), places)
        return Standing.AFTER if there else Standing.BEFORE
    moved = before.get("mtime") != after.get("mtime") and now.get("mtime") == before.get("mtime")
    return Standing.BEFORE if moved else Standing.AFTER


def strangers(place: Place, known: set[str], effect: str, places: Places) -> list[str]:
    """Entries of a directory that are neither paths of the effect nor its scratch."""
    ours = f"{PREFIX}{effect}-".encode()
    try:
        names = places.names_in(place)
    except PermissionError:
        return [place.resource]  # who knows what is in it
    found = [f"{place.resource}/{quote(name)}" for name in sorted(names) if not name.startswith(ours)]
    return [resource for resource in found if resource not in known]


def _has_scratch(effect: str, targets: Sequence[Target], places: Places) -> bool:
    for unit in units_of(targets):
        place = places.if_there(unit.resource)
        if place is not None and not unit.adjusts:
            names = scratch(effect, unit.number, place.name)
            if any(status_at(place.fd, name) for name in names):
                return True
    return False
