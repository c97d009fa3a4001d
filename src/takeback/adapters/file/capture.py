"""Save what undo will need, and say exactly what the change will leave."""

import os
import stat
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from takeback.adapters.file.assess import may_own, place_of, topmost_missing
from takeback.adapters.file.build import NOT_HELD, Tools, can_hold, nameless_file, umask
from takeback.adapters.file.content import MERGEABLE, PIECE, read_xattrs
from takeback.adapters.file.directory import (
    GID,
    TYPE,
    UID,
    ReadScope,
    Row,
    SeenDirectory,
    content_digest,
    encoded,
    extra,
    with_names_elsewhere,
)
from takeback.adapters.file.look import Sight, look, look_closely, meta_state
from takeback.adapters.file.mounts import ground_of
from takeback.adapters.file.move import ACROSS, FileMove, across_targets, is_across, move_targets
from takeback.adapters.file.os_errors import CannotCapture, translated
from takeback.adapters.file.paths import Place
from takeback.adapters.file.stage import StagedFile
from takeback.adapters.file.states import ABSENT, FileState, blobs_of
from takeback.adapters.file.undo import SeenFiles, kept_as_seen, plan_undo
from takeback.errors import Drifted, Misuse
from takeback.model.change import UndoTerms
from takeback.model.effect import Effect
from takeback.model.plan import Outcome, TargetOutcome, refused
from takeback.model.remedy import Offer, Remedy, Strategy, Target
from takeback.model.resource import display, path_of, quote

VERSION = 2  # 1: nothing is said of mounts
MERGED, INHERITED = "merged", "inherited"  # in the payload of an undo
_DEFAULT_ACL = "system.posix_acl_default"


class CapturedFiles(NamedTuple):
    """A remedy, and what only this process needs: how the captured directories looked to the kernel."""

    remedy: Remedy
    seen: dict[int, SeenDirectory]


class _Saved(NamedTuple):
    state: FileState
    seen: SeenDirectory | None
    residue: list[str]


def capture_change(effect: Effect, offer: Offer, ready: list[StagedFile], tools: Tools) -> CapturedFiles:
    change = effect.change
    with translated(change.resource):
        if change.kind in ("write", "write_all"):
            return _write(effect, ready, tools)
        if change.kind == "undo":
            return capture_undo(effect, offer, tools)
        if change.kind == "delete":
            with place_of(change.resource) as place:
                saved = _save(effect, 0, place, tools)
            if saved.state["type"] == "absent":
                raise Drifted(f"{display(change.resource)} is no longer there.", hint="Nothing was changed.")
            return _captured([Target(change.resource, saved.state, ABSENT)], [saved])
        if change.kind == "move":
            return _move(effect, tools)
        if change.kind == "mkdir":
            return _captured([_mkdir(effect, tools)], [])
        if change.kind == "symlink":
            return _captured([_symlink(effect)], [])
        return _captured([_chmod(effect)], [])


def _captured(
    targets: list[Target], saved: list[_Saved], payload: dict[str, Any] | None = None
) -> CapturedFiles:
    needed = dict.fromkeys(blob for target in targets for blob in blobs_of(target.before))
    for target in targets:
        # What the change leaves is kept while small: it is the base of a later merge.
        most = MERGEABLE if target.before["type"] == "file" else PIECE
        if target.after.get("size", 0) <= most or (payload and "undo" in payload):
            needed.update(dict.fromkeys(blobs_of(target.after)))
    residue = "; ".join(dict.fromkeys(words for each in saved for words in each.residue))
    remedy = Remedy(
        adapter="file",
        version=VERSION,
        strategy=Strategy.SNAPSHOT,
        targets=tuple(targets),
        payload=(payload or {}) | ground_of(target.resource for target in targets),
        blobs=tuple(blob for blob in needed if blob),
        exact=not residue,
        residue=residue,
    )
    return CapturedFiles(remedy, {index: each.seen for index, each in enumerate(saved) if each.seen})


def _save(effect: Effect, index: int, place: Place, tools: Tools) -> _Saved:
    """The present state, its bytes in the store. Bytes that cannot be saved are an error unless allowed."""
    inexact = effect.change.facts.allow_inexact
    lost: list[CannotCapture] = []
    status = place.stat()
    if status is None:
        return _Saved(ABSENT, None, [])
    grouped = stat.S_ISDIR(status.st_mode) or status.st_nlink > 1
    holds = f"{effect.id}-{index}" if grouped and can_hold(tools, place) else ""
    scope = ReadScope(
        tools.blobs,
        tools.limit,
        lost=lost if inexact else None,
        hold=holds,
        progress=tools.progress,
    )
    if stat.S_ISREG(status.st_mode):
        tools.progress.expect(bytes=status.st_size)
    sight = look_closely(place, ABSENT, scope, status)
    residue = [f"{display(trouble.resource)} was not captured: {trouble.reason}" for trouble in lost]
    if inexact and not _owners_last(sight):
        sight = _without_owners(sight)
        residue.append(f"owners in {display(place.resource)} are not restored")
    if not holds and (
        sight.state.get("nlink", 1) > 1 or (sight.seen and with_names_elsewhere(sight.seen.rows))
    ):
        residue.append(NOT_HELD.format(name=display(place.resource)))
    return _Saved(sight.state, sight.seen, residue)


def _owners_last(sight: Sight) -> bool:
    """Whether we could give everything that was captured its owner again."""
    state = sight.state
    if state["type"] == "absent" or "excluded" in state:
        return True
    rows = sight.seen.rows if sight.seen else []
    # A further name of a file is listed without an owner: the file has one already.
    owned = {(row[UID], row[GID]) for row in rows if row[TYPE] != "link" and "excluded" not in extra(row)}
    return all(may_own(uid, gid) for uid, gid in owned | {(state["uid"], state["gid"])})


def _without_owners(sight: Sight) -> Sight:
    state = sight.state | {"owner_lost": True}
    if sight.seen:
        state["content"] = content_digest(sight.seen.rows, owners=False)
    return sight._replace(state=state)


def _write(effect: Effect, ready: list[StagedFile], tools: Tools) -> CapturedFiles:
    targets: list[Target] = []
    saved: list[_Saved] = []
    for index, new in enumerate(ready):
        with translated(new.resource), place_of(new.resource) as place:
            each = _save(effect, index, place, tools)
        saved.append(each)
        after = new.state
        if each.state.get("digest") == after["digest"] and each.state["type"] == "file":
            # The same bytes: then only the mode is changed, on the file that is there.
            after = {key: value for key, value in each.state.items() if key not in ("ctime", "held")}
            after["mode"] = new.state["mode"]
        targets.append(Target(new.resource, each.state, after))
    return _captured(targets, saved)


def _move(effect: Effect, tools: Tools) -> CapturedFiles:
    goal: str = effect.change.args["to"]
    with place_of(effect.change.resource) as old, place_of(goal) as new:
        if is_across(old, new):
            return _move_across(effect, old, new, tools)
        what = look(old, {"type": "", "identity": True})
        if what["type"] == "absent":
            raise Drifted(f"{display(old.resource)} is no longer there.", hint="Nothing was changed.")
        saved = _save(effect, 0, new, tools)
        if saved.state["type"] != "absent" and not effect.change.args.get("replace"):
            raise Drifted(f"Something is now at {display(goal)}.", hint="Nothing was changed.")
    targets = move_targets(FileMove(effect.change.resource, goal, what, saved.state, back=False))
    return _captured(list(targets), [saved], {"move": "there"})


def _move_across(effect: Effect, old: Place, new: Place, tools: Tools) -> CapturedFiles:
    saved = [_save(effect, 0, new, tools), _save(effect, 1, old, tools)]
    replaced, what = (each.state for each in saved)
    if what["type"] == "absent":
        raise Drifted(f"{display(old.resource)} is no longer there.", hint="Nothing was changed.")
    if replaced["type"] != "absent" and not effect.change.args.get("replace"):
        raise Drifted(f"Something is now at {display(new.resource)}.", hint="Nothing was changed.")
    if any(key in what for key in ("excluded", "left_out", "owner_lost")):
        raise CannotCapture(old.resource, "a copy of it would not be whole")
    return _captured(across_targets(old.resource, new.resource, what, replaced), saved, {ACROSS: "there"})


def _mkdir(effect: Effect, tools: Tools) -> Target:
    change = effect.change
    top, status = topmost_missing(change.resource, bool(change.args.get("parents")))
    if status is not None:
        raise Drifted(f"{display(top)} exists by now.", hint="Nothing was changed.")
    below = path_of(change.resource)[len(path_of(top)) + 1 :]
    with place_of(top) as place:
        shell, xattrs = _new_directory(place)
    now = time.time_ns()
    names = [quote(name) for name in below.split(b"/") if name]
    more = [{"xattrs": xattrs}] if xattrs else []
    # Directories on the way must let us in, whatever the umask says.
    modes = [shell["mode"] | stat.S_IWUSR | stat.S_IXUSR for _ in names] + [
        change.args.get("mode", shell["mode"])
    ]
    rows: list[Row] = [
        ["dir", "/".join(names[: depth + 1]), modes[depth + 1], shell["uid"], shell["gid"], now, 0, "", *more]
        for depth in range(len(names))
    ]
    after = shell | {
        "mode": modes[0],
        "mtime": now,
        "manifest": tools.blobs.put(encoded(rows)),
        "content": content_digest(rows, owners=True),
        "entries": len(rows),
        "bytes": 0,
    }
    if xattrs:
        after["xattrs"] = xattrs
    return Target(top, ABSENT, after)


def _new_directory(place: Place) -> tuple[FileState, dict[str, str]]:
    """The properties that mkdir would give here: a file without a name shows umask, group and ACL, and leaves no
    trace."""
    parent = os.fstat(place.fd)
    fd = nameless_file(place, 0o777)
    if fd >= 0:
        try:
            made, xattrs = os.fstat(fd), read_xattrs(fd)
        finally:
            os.close(fd)
        natural, uid, gid = stat.S_IMODE(made.st_mode), made.st_uid, made.st_gid
    else:
        natural, xattrs = 0o777 & ~umask(), {}
        uid, gid = os.geteuid(), parent.st_gid if parent.st_mode & stat.S_ISGID else os.getegid()
    handed_down = read_xattrs(place.fd)
    if _DEFAULT_ACL in handed_down:
        xattrs[_DEFAULT_ACL] = handed_down[_DEFAULT_ACL]
    natural |= parent.st_mode & stat.S_ISGID
    return {"type": "dir", "mode": natural, "uid": uid, "gid": gid}, xattrs


def _symlink(effect: Effect) -> Target:
    change = effect.change
    with place_of(change.resource) as place:
        if place.stat() is not None:
            raise Drifted(f"{display(change.resource)} exists by now.", hint="Nothing was changed.")
        parent = os.fstat(place.fd)
    gid = parent.st_gid if parent.st_mode & stat.S_ISGID else os.getegid()
    after: FileState = {"type": "symlink", "target": change.args["target"], "uid": os.geteuid(), "gid": gid}
    return Target(change.resource, ABSENT, after | {"mode": 0o777, "mtime": time.time_ns()})


def _chmod(effect: Effect) -> Target:
    with place_of(effect.change.resource) as place:
        status = place.stat()
        if status is None:
            raise Drifted(f"{display(place.resource)} is no longer there.", hint="Nothing was changed.")
        if stat.S_ISLNK(status.st_mode):
            raise Drifted(f"{display(place.resource)} is now a symbolic link.", hint="Name the path again.")
        before = meta_state(status)
    return Target(effect.change.resource, before, before | {"mode": effect.change.args["mode"]})


def capture_undo(effect: Effect, offer: Offer, tools: Tools) -> CapturedFiles:
    """The remedy of an undo: the present state and the state it will leave. So redo is the undo of the undo."""
    of = effect.of
    if of is None or of.remedy is None:
        raise Misuse(
            "There is nothing to take back: the effect has no remedy.", hint="Name an effect that was done."
        )
    terms = effect.change.undo
    steps = kept_as_seen(of, offer.seen, tools) if isinstance(offer.seen, SeenFiles) else []
    if not steps:
        hold = effect.id if tools.held else ""
        steps = plan_undo(of, terms, tools, ReadScope(tools.blobs, hold=hold, progress=tools.progress))
    refuse_conflicts(of, (step.outcome for step in steps), terms)
    moving = [step for step in steps if step.target is not None]
    targets = [step.target for step in moving if step.target is not None]
    payload: dict[str, Any] = {"undo": of.id}
    if "move" in of.remedy.payload:
        payload["move"] = "there" if of.remedy.payload["move"] == "back" else "back"
    if ACROSS in of.remedy.payload:
        payload[ACROSS] = "there" if of.remedy.payload[ACROSS] == "back" else "back"
    saved = [_Saved(step.target.before, step.seen, []) for step in moving if step.target is not None]
    captured = _captured(targets, saved, payload)
    return captured._replace(remedy=told_merged(captured.remedy, [step.outcome for step in moving]))


def refuse_conflicts(of: Effect, outcomes: Iterable[TargetOutcome], terms: UndoTerms) -> None:
    odd = [one for one in outcomes if one.outcome in (Outcome.CONFLICT, Outcome.FAILED)]
    if odd and not terms.on_conflict.skips:
        hint = "Nothing was changed. Merge, skip or force, or undo the later changes first."
        raise refused(odd, "redo" if of.is_undo else "undo", hint=hint)


def told_merged(remedy: Remedy, outcomes: Iterable[TargetOutcome]) -> Remedy:
    """The remedy says if a merge was not exact."""
    merged = [one.resource for one in outcomes if not one.exact]
    if not merged:
        return remedy
    more = f" and {len(merged) - 1:,} more" if len(merged) > 1 else ""
    told = f"{display(merged[0])}{more} was merged with later changes"
    return remedy._replace(
        payload=remedy.payload | {MERGED: merged, INHERITED: remedy.residue},
        exact=False,
        residue="; ".join(filter(None, (remedy.residue, told))),
    )


def inherited_residue(of: Effect) -> str:
    """The residue that an undo takes over from its effect; a merge by the undo itself does not count."""
    remedy = of.remedy
    if remedy is None:
        return ""
    return remedy.payload[INHERITED] if MERGED in remedy.payload else remedy.residue
