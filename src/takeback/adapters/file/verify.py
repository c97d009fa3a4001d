"""Where the world stands with an effect: every target read again, scratch of a killed process taken into account."""

import errno
import time
from collections.abc import Callable

from takeback.adapters.file.look import look
from takeback.adapters.file.mounts import Footing
from takeback.adapters.file.move import FileMove, halfway, move_of
from takeback.adapters.file.os_errors import CannotCapture, in_our_words
from takeback.adapters.file.paths import Place, open_place, scratch
from takeback.adapters.file.states import ABSENT, FileState, difference, same
from takeback.errors import TakebackError
from takeback.model.effect import Effect
from takeback.model.plan import Sighting, Standing, TargetSighting, together
from takeback.model.remedy import Target
from takeback.model.resource import display

# Seconds between looks. Someone who exchanges a directory for a moment has put it back within this, or means it.
_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.03, 0.03)
_CUT_OFF = (errno.ELOOP, errno.ENOENT, errno.ENOTDIR)
_PATIENCE = 0.5  # seconds: no further look is begun after that


def look_again(seen: Callable[[], Sighting]) -> Sighting:
    """The present standing. While a directory above a target is missing or a link, look again, a few times; the last
    look counts."""
    sighting = seen()
    until = time.monotonic() + _PATIENCE
    for pause in _PAUSES:
        if time.monotonic() > until or not any(one.cut_off for one in sighting.targets):
            break
        time.sleep(pause)
        sighting = seen()
    return sighting


def open_again(resource: str) -> Place:
    """Like `open_place`, for taking back; tries again while a directory on the way is missing or a link."""
    for pause in _PAUSES:
        try:
            return open_place(resource)
        except OSError as error:
            if error.errno not in _CUT_OFF:
                raise
        time.sleep(pause)
    return open_place(resource)


def sight(effect: Effect, clean: bool = False) -> Sighting:
    """`clean`: the asking process carried it out itself, at the first attempt, so there is no scratch of it."""
    if effect.remedy is None:
        return Sighting(Standing.BEFORE, "nothing was begun")
    if not clean and (moved := off_its_ground(effect)):
        return moved
    move = move_of(effect)
    seen = tuple(
        _sight_target(effect.id, index, target, clean) for index, target in enumerate(effect.targets)
    )
    if move is not None and move.replaced["type"] != "absent" and _is_halfway(move):
        return Sighting(Standing.BETWEEN, f"the move of {display(move.old)} was interrupted", seen)
    return together(_with_the_others(effect.targets, seen))


def off_its_ground(effect: Effect) -> Sighting | None:
    """Where another filesystem is mounted now, the state of the effect cannot be seen."""
    footing = Footing(effect.remedy)
    if not any(footing.moved(target.resource) for target in effect.targets):
        return None
    return together(
        tuple(
            TargetSighting(
                one.resource, Standing.UNKNOWN, {}, f"{display(one.resource)} {why}" if why else ""
            )
            for one in effect.targets
            for why in (footing.moved(one.resource),)
        )
    )


def _with_the_others(
    targets: tuple[Target, ...], seen: tuple[TargetSighting, ...]
) -> tuple[TargetSighting, ...]:
    """A file that the effect leaves as it was is before and after at once: it stands where the others stand."""
    if all(one.standing is not Standing.BEFORE for one in seen):
        return seen
    unchanged = [same(target.before, target.after) for target in targets]
    others = {one.standing for one, is_unchanged in zip(seen, unchanged, strict=True) if not is_unchanged}
    if others != {Standing.BEFORE}:
        return seen
    return tuple(
        one._replace(standing=Standing.BEFORE) if is_unchanged and one.standing is Standing.AFTER else one
        for one, is_unchanged in zip(seen, unchanged, strict=True)
    )


def _sight_target(effect: str, index: int, target: Target, clean: bool) -> TargetSighting:
    try:
        place = open_place(target.resource)
    except (FileNotFoundError, NotADirectoryError):
        judged = _judged(target, ABSENT, effect)
        return judged._replace(cut_off=judged.standing is Standing.FOREIGN)
    except OSError as error:
        unknown = _unknown(target, in_our_words(error, target.resource))
        return unknown._replace(cut_off=error.errno == errno.ELOOP)
    with place:
        try:
            judged = _judged(target, look(place, manner_of(target)), effect)
            if clean or judged.standing not in (Standing.BEFORE, Standing.AFTER):
                return judged
            if _foreign_aside(place, effect, index, target):
                detail = f"{display(target.resource)}: the effect was interrupted and what it displaced was not ours"
                return judged._replace(standing=Standing.BETWEEN, detail=detail)
            return judged
        except OSError as error:
            return _unknown(target, in_our_words(error, target.resource))
        except CannotCapture as trouble:
            return _unknown(target, trouble)


def manner_of(target: Target) -> FileState:
    """How deep to look: as the recorded states ask for."""
    return target.before if target.after["type"] == "absent" else target.after


def _unknown(target: Target, trouble: TakebackError) -> TargetSighting:
    return TargetSighting(target.resource, Standing.UNKNOWN, {}, str(trouble))


def _judged(target: Target, now: FileState, effect: str) -> TargetSighting:
    if same(now, target.after):
        return TargetSighting(target.resource, Standing.AFTER, now)
    if same(now, target.before):
        return TargetSighting(target.resource, Standing.BEFORE, now)
    detail = f"{display(target.resource)} {difference(target.after, now, effect[:8])}"
    return TargetSighting(target.resource, Standing.FOREIGN, now, detail)


def _foreign_aside(place: Place, effect: str, index: int, target: Target) -> bool:
    """A scratch thing that is neither what was captured nor what we made: it must be given back, never removed."""
    aside = place.beside(scratch(effect, index, place.name).swapping)
    if aside.stat() is None:
        return False
    try:
        found = look(aside, manner_of(target))
    except CannotCapture:
        return True
    return not (same(found, target.before) or same(found, target.after))


def _is_halfway(move: FileMove) -> bool:
    try:
        with open_place(move.old) as old, open_place(move.new) as new:
            return halfway(old, new, move, look(old, move.what), look(new, move.what))
    except (OSError, CannotCapture):
        return False
