"""Bring one target from one state to another by compare and swap, so that no one's work is ever lost.

The new file is prepared beside the target and the two are exchanged in one step. Only then is the old file compared
with the capture. If it differs, the two are exchanged back and nothing has happened.
"""

import os
import stat

from takeback.adapters.file.build import Tools, build, chmod_inode, dress, file_fd, link_held, restore_entries
from takeback.adapters.file.directory import SeenDirectory, extra
from takeback.adapters.file.kernel import exchange, flush_filesystem, rename_new
from takeback.adapters.file.look import look
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Place, Scratch
from takeback.adapters.file.remove import (
    Custody,
    Intruder,
    is_captured,
    remove_built,
    remove_file,
    remove_tree,
    remove_what_is_ours,
    unchanged_at_a_glance,
)
from takeback.adapters.file.states import ABSENT, FileState, difference, same, same_inode_will_do
from takeback.errors import Drifted, Stuck, TakebackError
from takeback.model.resource import display

AGAIN = "Nothing was changed. Look at it, then try again."


def bring(
    place: Place,
    names: Scratch,
    start: FileState,
    goal: FileState,
    tools: Tools,
    ready: int = -1,
    seen: SeenDirectory | None = None,
    first: bool = False,
) -> bool:
    """From `start` to `goal`; False if the target was at `goal` already. `ready`: the goal as a file without a name.
    `first`: this is certainly the first attempt."""
    if not first:
        _finish_earlier(place, names, start, goal, tools)
    if not unchanged_at_a_glance(place, start):
        now = _now(place, start, goal)
        if same(now, goal):
            return False
        if not same(now, start):
            raise drifted(place, start, now)
    if same_inode_will_do(start, goal):
        _adjust(place, start, goal)
    elif goal["type"] == "absent":
        _displace(place, names, start, tools, seen)
    else:
        _replace(place, names, start, goal, tools, ready, seen)
    return True


def drifted(place: Place, expected: FileState, found: FileState) -> Drifted:
    return Drifted(
        f"{display(place.resource)} is not what it was: it {difference(expected, found)}.", hint=AGAIN
    )


def _now(place: Place, start: FileState, goal: FileState) -> FileState:
    manner = goal if start["type"] == "absent" else start
    try:
        return look(place, manner)
    except CannotCapture as trouble:
        raise Drifted(
            f"{display(place.resource)} is not what it was: {trouble.reason}.", hint=AGAIN
        ) from trouble


def _adjust(place: Place, start: FileState, goal: FileState) -> None:
    """On the inode, which keeps its hard links and its open readers."""
    if "meta" in goal:
        chmod_inode(place.fd, place.name, goal["mode"])
        # Neither a device nor a file we may not read can be opened to be synced on its own.
        flush_filesystem(place.fd)
        return
    fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
    try:
        status = os.fstat(fd)
        mtime = goal["mtime"] if status.st_mtime_ns == start["mtime"] else status.st_mtime_ns
        dress(fd, goal | {"mtime": mtime})
        os.fsync(fd)
    finally:
        os.close(fd)


def _displace(
    place: Place, names: Scratch, start: FileState, tools: Tools, seen: SeenDirectory | None
) -> None:
    """Away: first aside, then looked at, then gone."""
    aside = place.beside(names.swapping)
    rename_new(place.fd, place.name, place.fd, aside.name)
    try:
        _demand_captured(place, aside, start, tools, seen)
    except (TakebackError, OSError):
        _back(aside, place)
        raise
    _remove(place, aside, names, start, tools, seen)


def _demand_captured(
    place: Place, aside: Place, start: FileState, tools: Tools, seen: SeenDirectory | None
) -> None:
    if not is_captured(aside, start, tools.blobs, seen):
        raise drifted(place, start, _describe(aside, start))


def _back(aside: Place, place: Place) -> None:
    try:
        rename_new(aside.fd, aside.name, place.fd, place.name)
    except FileExistsError:
        raise Stuck(
            f"{display(place.resource)} was changed twice by someone else while it was being moved aside.",
            hint=f"The first change is beside it, as {os.fsdecode(aside.name)}; both are whole.",
        ) from None


def _remove(
    place: Place,
    aside: Place,
    names: Scratch,
    start: FileState,
    tools: Tools,
    seen: SeenDirectory | None,
    goal: FileState = ABSENT,
) -> None:
    if start["type"] != "dir":
        remove_file(aside, start, tools)
        return
    going = place.beside(names.going)
    os.rename(aside.name, going.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    custody = Custody(start, tools.blobs, seen)
    try:
        remove_tree(going, custody, tools)
    except (Intruder, TakebackError, OSError) as trouble:
        # Someone is still at work inside, or it cannot be removed: make it whole again and give it back.
        _make_whole(going, start, custody, tools)
        if goal["type"] == "absent":
            _back(going, place)
        else:
            exchange(place.fd, going.name, place.fd, place.name)
            _discard_ours(going, start, goal, tools)
        if not isinstance(trouble, Intruder):
            raise
        where = f"{display(place.resource)}/{trouble}".rstrip("/")
        raise Drifted(f"Someone changed {where} while it was being removed.", hint=AGAIN) from trouble


def _make_whole(going: Place, start: FileState, custody: Custody, tools: Tools) -> None:
    fd = os.open(going.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=going.fd)
    try:
        rows = [row for row in custody.rows().values() if "excluded" not in extra(row)]
        restore_entries(fd, rows, tools, owners=not start.get("owner_lost"), existing=True)
        dress(fd, start)
    finally:
        os.close(fd)


def _replace(
    place: Place,
    names: Scratch,
    start: FileState,
    goal: FileState,
    tools: Tools,
    ready: int,
    seen: SeenDirectory | None,
) -> None:
    made = ready
    if made < 0 and goal["type"] == "file" and "held" not in goal and not _is_named(place, names):
        made = file_fd(place, goal, tools)
    try:
        if start["type"] == "absent":
            _publish(place, names, goal, tools, made)
        else:
            _swap_in(place, names, start, goal, tools, made, seen)
    finally:
        if made >= 0 and made != ready:
            os.close(made)


def _is_named(place: Place, names: Scratch) -> bool:
    """Whether the new content was staged under a name, for checks to look at."""
    return place.beside(names.building).stat() is not None


def _publish(place: Place, names: Scratch, goal: FileState, tools: Tools, made: int) -> None:
    try:
        if made >= 0:
            link_nameless(made, place)
        elif not ("held" in goal and link_held(tools, goal["held"], place, goal)):
            rename_new(place.fd, _built(place, names, goal, tools).name, place.fd, place.name)
    except FileExistsError:
        remove_built(place.beside(names.building))
        raise drifted(place, ABSENT, _describe(place, goal)) from None


def link_nameless(fd: int, place: Place) -> None:
    os.link(f"/proc/self/fd/{fd}", place.name, dst_dir_fd=place.fd, follow_symlinks=True)


def _built(place: Place, names: Scratch, goal: FileState, tools: Tools) -> Place:
    building = place.beside(names.building)
    if goal["type"] == "file" and building.stat() is not None:
        if same(look(building, goal), goal):
            return building
    remove_built(building)
    try:
        build(building, goal, tools)
    except BaseException:
        remove_built(building)
        raise
    return building


def _swap_in(
    place: Place,
    names: Scratch,
    start: FileState,
    goal: FileState,
    tools: Tools,
    made: int,
    seen: SeenDirectory | None,
) -> None:
    aside = place.beside(names.swapping)
    if made >= 0:
        link_nameless(made, aside)
    elif not ("held" in goal and link_held(tools, goal["held"], aside, goal)):
        rename_new(place.fd, _built(place, names, goal, tools).name, place.fd, aside.name)
    # From here to the removal of `aside` a crash leaves both whole, and verify tells which is which.
    try:
        swapped = exchange(place.fd, aside.name, place.fd, place.name)
    except OSError:
        remove_built(aside)
        raise
    if not swapped:
        _swap_in_two_steps(place, names, start, goal, tools, seen)
        return
    try:
        _demand_captured(place, aside, start, tools, seen)
    except (TakebackError, OSError):
        exchange(place.fd, aside.name, place.fd, place.name)
        _discard_ours(aside, start, goal, tools)
        raise
    _remove(place, aside, names, start, tools, seen, goal)


def _swap_in_two_steps(
    place: Place, names: Scratch, start: FileState, goal: FileState, tools: Tools, seen: SeenDirectory | None
) -> None:
    """Where a filesystem cannot exchange: look, then rename over; a change in between would be lost, so look late."""
    aside = place.beside(names.swapping)
    try:
        _demand_captured(place, place, start, tools, seen)
    except (TakebackError, OSError):
        remove_built(aside)
        raise
    if start["type"] == "dir" or goal["type"] == "dir" or "held" in start:
        old = place.beside(names.going)
        os.rename(place.name, old.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        os.rename(aside.name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        if start["type"] == "dir":
            remove_tree(old, Custody(start, tools.blobs, seen), tools)
        else:
            remove_file(old, start, tools)
    else:
        os.rename(aside.name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)


def _finish_earlier(place: Place, names: Scratch, start: FileState, goal: FileState, tools: Tools) -> None:
    """Finish what a dead process left half done."""
    if place.beside(names.swapping).stat() is not None:
        _settle(place, names, start, goal, tools)
    for state in (start, goal):
        if "held" in state or "holds" in state:
            _finish_removal(place.beside(names.going), state, tools)


def _settle(place: Place, names: Scratch, start: FileState, goal: FileState, tools: Tools) -> None:
    """Something under the swapping name: a process died between exchange and removal."""
    aside = place.beside(names.swapping)
    if _matches(aside, goal, tools) and place.stat() is None and start["type"] == "absent":
        rename_new(aside.fd, aside.name, place.fd, place.name)
        return
    if _discard_ours(aside, start, goal, tools):
        return
    found = _describe(aside, start)
    if place.stat() is None:
        _back(aside, place)
    elif _matches(place, start, tools) or _matches(place, goal, tools):
        exchange(place.fd, aside.name, place.fd, place.name)
        _discard_ours(aside, start, goal, tools)
    else:
        raise Stuck(
            f"{display(place.resource)} was changed by someone else while an effect on it was interrupted.",
            hint=f"An earlier version that is in no store is beside it, as {os.fsdecode(aside.name)}.",
        )
    raise drifted(place, start, found)


def _finish_removal(going: Place, state: FileState, tools: Tools) -> None:
    """A process died while it removed this: inodes with names elsewhere are held first, to be given back from there."""
    status = going.stat()
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode) and "holds" in state:
        remove_what_is_ours(going, Custody(state, tools.blobs, None), tools)
    elif "held" in state and _matches(going, state, tools):
        remove_file(going, state, tools)


def _discard_ours(aside: Place, start: FileState, goal: FileState, tools: Tools) -> bool:
    """Remove a scratch thing if it is one of the two states in the store; anything else stays."""
    for state in (goal, start):
        if state["type"] == "absent" or "identity" in state or not _matches(aside, state, tools):
            continue
        if state["type"] == "dir":
            remove_tree(aside, Custody(state, tools.blobs, None), tools)
        else:
            remove_file(aside, state, tools)
        return True
    return False


def _matches(aside: Place, state: FileState, tools: Tools) -> bool:
    if "left_out" in state and "ino" in state:
        return is_captured(aside, state, tools.blobs, None)
    try:
        return same(look(aside, state), state)
    except CannotCapture:
        return False


def _describe(place: Place, manner: FileState) -> FileState:
    try:
        return look(place, manner)
    except CannotCapture as trouble:
        return {"type": "file", "excluded": trouble.reason}
