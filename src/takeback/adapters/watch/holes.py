"""What is there and was not captured: named before anything is changed, and a reason to refuse if it could be lost."""

import os
from collections.abc import Sequence

from takeback.adapters.watch.index import CHANGING, MOUNT, MOUNTED, REGENERABLE, STORE, Hole
from takeback.adapters.watch.roots import path_in, resource_in
from takeback.errors import NoRemedy
from takeback.model.resource import display

_NAMED = 3

At = tuple[str, Hole]  # the root's resource, and a hole in it


def refuse_destroyable(holes: Sequence[At], roots: Sequence[str], force: bool) -> list[At]:
    """Those that count; a filesystem that is watched as a root of its own is no hole."""
    kept = [(root, hole) for root, hole in holes if resource_in(root, hole.path) not in roots]
    lost = [one for one in kept if _could_be_lost(*one)]
    if lost and not force:
        named = "; ".join(
            f"{display(resource_in(root, hole.path))}: {hole.reason}" for root, hole in lost[:_NAMED]
        )
        more = f"; and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else ""
        hint = f"{_way_out(lost)}, or go ahead without it by --force (force=True)."
        raise NoRemedy(
            f"What is lost here could not be brought back: {named}{more}.", hint=f"Nothing was done. {hint}"
        )
    return kept


def _way_out(lost: Sequence[At]) -> str:
    if any(hole.kind == MOUNTED for _, hole in lost):
        return "Unmount it"
    if any(hole.kind == MOUNT for _, hole in lost):
        return "Name what is mounted there as a root of its own"
    if any(hole.kind == CHANGING for _, hole in lost):
        return "Wait until no process writes to it"
    if all(_is_ours(path_in(root, hole.path)) for root, hole in lost):
        return "Make it readable"
    return "Have its owner or root make it readable for you"


def _is_ours(path: bytes) -> bool:
    try:
        return os.geteuid() in (0, os.lstat(path).st_uid)
    except OSError:
        return True


def _could_be_lost(root: str, hole: Hole) -> bool:
    """Whether what runs as we do could destroy it."""
    if hole.kind in (REGENERABLE, STORE):
        return False
    path = path_in(root, hole.path)
    try:
        if hole.kind in (MOUNT, MOUNTED):
            return not os.statvfs(path).f_flag & os.ST_RDONLY
        me = os.geteuid()
        parent = os.path.dirname(path)
        if me == 0 or me in (os.lstat(path).st_uid, os.stat(parent).st_uid):
            return True
        return os.access(parent, os.W_OK) or os.access(path, os.W_OK)
    except OSError:
        return True
