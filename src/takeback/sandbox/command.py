"""One command on the outside: its scratch directory before, its layer after."""

import os
import time
from typing import Any, NamedTuple

from takeback.model.mounts import inside
from takeback.sandbox.differences import grounds_below
from takeback.sandbox.layer import LayerForm, Mount, attributes, first_look, is_opaque, read_form, write_form
from takeback.sandbox.mounts import NAMES, OVERLAY, OWN, READ_ONLY, MountPoint
from takeback.sandbox.protocol import Stack
from takeback.sandbox.rootfs import RootScene
from takeback.sandbox.scratch import Overlay, Workshop, make_directories


class SandboxPlan(NamedTuple):
    """The environment of a command. Equal plans can share a prepared sandbox."""

    root: bytes
    overlays: tuple[tuple[bytes, tuple[bytes, ...], bool], ...]  # point, lowers, whether only names
    read_only: tuple[bytes, ...]
    masks: tuple[bytes, ...]
    terminal: bytes
    userxattr: bool
    # Of the directories that are copied, or looked up before the command is there.
    stamps: tuple[tuple[int, ...], ...]


class PreparedCommand(NamedTuple):
    scratch: str  # of this command; all in it goes when it has ended
    scene: RootScene
    mounts: tuple[Mount, ...]
    marks: dict[str, dict[str, bytes]]  # attributes of the topmost directories, by point
    started_ns: int = 0
    way: dict[str, tuple[int, int, int, int]] = {}  # the directories on the way to where it begins


class UnfitLayers(Exception):
    """Why these layers cannot be put over this world; a sentence."""


def planned(
    order: dict[str, Any], points: list[MountPoint], workshop: Workshop, terminal: bytes, userxattr: bool
) -> SandboxPlan:
    stack = Stack(order["root"], tuple(order["layers"]))
    root = os.fsencode(stack.root)
    overlaid = {one.point: one.how for one in points if one.how != READ_ONLY}
    _all_there(stack, overlaid, userxattr)
    overlays: list[tuple[bytes, tuple[bytes, ...], bool]] = []
    stamps: list[tuple[int, ...]] = []
    for point in sorted(overlaid):
        lowers = tuple(ground.root for ground in grounds_below(stack, os.fsdecode(point)))
        try:
            below = os.stat(lowers[0])
        except FileNotFoundError:
            continue  # unmounted a moment ago
        overlays.append((point, lowers, overlaid[point] == NAMES))
        stamps.append((below.st_dev, below.st_ino, below.st_ctime_ns))
    hidden = (*map(os.fsencode, order["hidden"]), os.fsencode(workshop.place))
    masks = _masks(root, hidden)
    for point in (*masks, *(one.point for one in points)):
        stamps += _ancestors(root.rstrip(b"/") + point)
    read_only = tuple(one.point for one in points if one.how == READ_ONLY)
    return SandboxPlan(root, tuple(overlays), read_only, masks, terminal, userxattr, tuple(stamps))


def _ancestors(path: bytes) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    while path.strip(b"/"):
        try:
            status = os.lstat(path)
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(())
        path = os.path.dirname(path)
    return found


def prepare(plan: SandboxPlan, workshop: Workshop) -> PreparedCommand:
    scratch = workshop.scratch()
    overlays: list[Overlay] = []
    mounts: list[Mount] = []
    marks: dict[str, dict[str, bytes]] = {}
    try:
        for name in ("", "/layer", "/work"):
            os.mkdir(scratch + name, 0o700)
        for number, (point, lowers, names) in enumerate(plan.overlays):
            name = os.fsdecode(point)
            upper, work = os.fsencode(f"{scratch}/layer/{number}"), os.fsencode(f"{scratch}/work/{number}")
            overlay = Overlay(point, lowers, upper, work, names)
            try:
                below = os.stat(overlay.lowers[0])
            except FileNotFoundError:
                continue  # unmounted a moment ago
            made = make_directories(overlay, below, plan.userxattr)
            overlays.append(overlay)
            marks[name] = attributes(overlay.upper, plan.userxattr)
            mounts.append(Mount(name, str(number), first_look(made)))
    except BaseException:
        workshop.clear(scratch)
        raise
    places, covered = (plan.root, workshop.root, workshop.aside), (plan.read_only, plan.masks)
    scene = RootScene(*places, tuple(overlays), *covered, plan.terminal, plan.userxattr)
    return PreparedCommand(scratch, scene, tuple(mounts), marks)


def begun(prepared: PreparedCommand, order: dict[str, Any]) -> PreparedCommand:
    """Now, over the world as it is now."""
    way = {} if order["layers"] else _way(prepared.scene.root, os.fsencode(order["cwd"]))
    return prepared._replace(started_ns=time.time_ns(), way=way)


def _way(root: bytes, cwd: bytes) -> dict[str, tuple[int, int, int, int]]:
    """By path inside. One layer over another is compared with that."""
    found: dict[str, tuple[int, int, int, int]] = {}
    above = root.rstrip(b"/")
    path = os.path.realpath(above + cwd)[len(os.path.realpath(above or b"/").rstrip(b"/")) :]
    while path.strip(b"/"):
        try:
            found[os.fsdecode(path)] = first_look(os.lstat(above + path))
        except OSError:
            break  # the error comes when it is entered
        path = os.path.dirname(path)
    return found


def _all_there(stack: Stack, overlaid: dict[bytes, str], userxattr: bool) -> None:
    """Every point of a layer must be one now. Those of an ordinary user depend on what others mount: they are added."""
    for layer in stack.layers:
        for one in read_form(layer).mounts:
            point = os.fsencode(one.point)
            if userxattr and os.path.isdir(point):
                overlaid.setdefault(point, OVERLAY)
            if point not in overlaid:
                raise UnfitLayers(
                    f"A layer was made over a filesystem at {one.point} that is not mounted there now."
                )


def _masks(root: bytes, hidden: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Seen from the root inside; what lies elsewhere is out of reach anyway."""
    found: set[bytes] = set()
    for path in hidden:
        real = os.path.realpath(path)
        if inside(real, root) and os.path.isdir(real):
            within = b"/" + real[len(root.rstrip(b"/")) :].lstrip(b"/")
            # /dev and the like are others inside, with nothing of the world's in them.
            if not any(inside(within, own) for own in OWN):
                found.add(within)
    outermost = (one for one in found if not any(inside(one, other) and one != other for other in found))
    return tuple(sorted(outermost))


class Finished(NamedTuple):
    there: bool  # whether there is a layer now
    problem: str = ""  # a sentence that says why there is none


def finish(prepared: PreparedCommand, layer: str, keep_empty: bool) -> Finished:
    making = os.path.join(prepared.scratch, "layer")
    moved = _moved_the_way_back(prepared)
    if moved:
        path = os.fsdecode(moved)
        return Finished(False, f"The command moved {path}, which holds the way back; nothing of it was kept.")
    kept: list[Mount] = []
    userxattr = prepared.scene.userxattr
    for one in prepared.mounts:
        upper = os.path.join(making, one.upper)
        untouched = not os.listdir(upper) and first_look(os.lstat(upper)) == one.first
        if not untouched or attributes(os.fsencode(upper), userxattr) != prepared.marks[one.point]:
            kept.append(one)
    if not kept and not keep_empty:
        return Finished(False)
    for one in set(prepared.mounts) - set(kept):
        os.rmdir(os.path.join(making, one.upper))
    write_form(making, LayerForm(tuple(kept), userxattr, not userxattr, prepared.started_ns, prepared.way))
    os.rename(making, layer)
    return Finished(True)


def _moved_the_way_back(prepared: PreparedCommand) -> bytes | None:
    """A directory above a covered one that is no longer what lies below: the next command would find it elsewhere."""
    for mask in prepared.scene.masks:
        for overlay in prepared.scene.overlays:
            if not inside(mask, overlay.point):
                continue
            names = mask[len(overlay.point.rstrip(b"/")) :].strip(b"/").split(b"/")
            for length in range(1, len(names)):
                path = overlay.upper + b"/" + b"/".join(names[:length])
                if not os.path.lexists(path):
                    break
                if not os.path.isdir(path) or is_opaque(path, prepared.scene.userxattr):
                    return overlay.point.rstrip(b"/") + b"/" + b"/".join(names[:length])
    return None
