"""What the undo of an effect does inside git directories, where paths are compared by what they mean to git.

A pass over the plan of a tree's undo. If nothing was changed since, the plan stays as it is, to the byte; only objects
that the effect added are left in place.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from takeback.adapters.file.adapter import sync_directory
from takeback.adapters.file.build import Tools
from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.paths import Place
from takeback.adapters.file.states import ABSENT, FileState
from takeback.adapters.tree.git.formats import (
    GITLINK,
    INTENT_TO_ADD,
    GitIndex,
    IndexEntry,
    cached_trees,
    loose_value,
    meaning_of,
    oids_in,
    parse_index,
    without_changes,
    without_lines,
    written,
)
from takeback.adapters.tree.git.layout import (
    MEANING,
    GitDirs,
    GitPart,
    Spot,
    content_at,
    marked,
    may_be_gits,
    ref_resource,
    spots_of,
)
from takeback.adapters.tree.git.repository import GitDesk, is_whole
from takeback.adapters.tree.git.undo_refs import holds_more, is_a_ref, plan_refs
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir, only_time
from takeback.adapters.tree.undo import PathStep
from takeback.errors import StoreBusy
from takeback.model.change import OnConflict
from takeback.model.effect import Effect
from takeback.model.plan import Outcome
from takeback.model.remedy import Target
from takeback.model.resource import display, quote

_PATIENCE = 1.0  # seconds; git holds a lock for milliseconds
_PAUSE = 0.01
_LIVE = (GitPart.INDEX, GitPart.HEAD, GitPart.REF, GitPart.PACKED, GitPart.LOG, GitPart.TABLE)
_ALWAYS = ("index.lock", "HEAD.lock", "packed-refs.lock")


def refuse_while_git_runs(targets: Sequence[Target], changed: Iterable[str], places: Places) -> None:
    """Before anything is changed. `targets`: of the effect; `changed`: the paths that an undo would change."""
    locks = locks_for(targets, changed, places)
    for lock in locks:
        until = time.monotonic() + _PATIENCE
        while (place := places.within_reach(lock)) and place.stat() is not None:
            if time.monotonic() >= until:
                raise _busy(lock)
            time.sleep(_PAUSE)
    for home in {lock.rpartition("/")[0] for lock in locks}:
        # `git gc` is at work; a file that a killed one left names a process that is gone.
        number = next(iter((content_at(places, f"{home}/gc.pid") or b"").split()), b"")
        if number.isdigit() and os.path.exists(b"/proc/" + number):
            raise _busy(f"{home}/gc.pid")


def locks_for(targets: Sequence[Target], changed: Iterable[str], places: Places) -> list[str]:
    """In the order in which they are taken. A lock that the effect itself made or removed is a file like others."""
    dirs = GitDirs(targets, places)
    known = {target.resource: target for target in targets}
    found: set[str] = set()
    for resource in changed:
        spot = dirs.spot(resource) if may_be_gits(resource) else None
        target = known.get(resource)
        if spot is None or spot.part not in _LIVE:
            continue
        found.update(f"{spot.home}/{name}" for name in _ALWAYS)
        if target is not None and (is_dir(target.before) or is_dir(target.after)):
            continue
        if spot.part is GitPart.LOG:
            found.add(ref_resource(spot.home, spot.name) + ".lock")
        elif spot.part is GitPart.TABLE:
            found.add(f"{spot.home}/reftable/tables.list.lock")
        else:
            found.add(resource + ".lock")
    return sorted(found.difference(known))


@contextmanager
def locked(effect: str, targets: Sequence[Target], changed: Iterable[str], places: Places) -> Iterator[None]:
    """Raises StoreBusy, with nothing changed, if git does not let go of one in time."""
    taken: list[_Lock] = []
    try:
        for resource in locks_for(targets, changed, places):
            if places.within_reach(resource) is not None:  # else git cannot be in its directory either
                taken.append(_Lock(resource, effect, places))
                taken[-1].take()
        yield
    finally:
        for lock in reversed(taken):
            lock.release()
        _make_durable((lock.resource for lock in taken), places)


def release_left(effect: str, targets: Sequence[Target], changed: Iterable[str], places: Places) -> None:
    """Remove locks that a dead process left."""
    left = [_Lock(resource, effect, places) for resource in locks_for(targets, changed, places)]
    _make_durable([lock.resource for lock in left if lock.release()], places)


def _make_durable(locks: Iterable[str], places: Places) -> None:
    """A lock that is there again after a power cut would keep git out."""
    for directory in {lock.rpartition("/")[0] for lock in locks}:
        place = places.within_reach(f"{directory}/x")
        if place is not None:
            sync_directory(place)


class _Lock:
    def __init__(self, resource: str, effect: str, places: Places) -> None:
        self.resource = resource
        self._sign = f"takeback-{effect}".encode()
        self._places = places
        self._times = (0, 0)  # of its directory, before and after it was made

    def take(self) -> None:
        place = self._places.at(self.resource)
        until = time.monotonic() + _PATIENCE
        before = os.fstat(place.fd).st_mtime_ns
        while True:
            try:
                os.symlink(self._sign, place.name, dir_fd=place.fd)
                self._times = (before, os.fstat(place.fd).st_mtime_ns)
                return
            except FileExistsError:
                if self._is_ours(place):
                    return
                if time.monotonic() >= until:
                    raise _busy(self.resource) from None
                time.sleep(_PAUSE)

    def _is_ours(self, place: Place) -> bool:
        try:
            return os.readlink(place.name, dir_fd=place.fd) == self._sign
        except OSError:
            return False

    def release(self) -> bool:
        """Whether it was there. Its directory gets the time that it had, unless that was changed since."""
        place = self._places.within_reach(self.resource)
        if place is None or not self._is_ours(place):
            return False
        status = os.fstat(place.fd)
        before, made = self._times
        os.unlink(place.name, dir_fd=place.fd)
        with suppress(OSError):  # someone else's directory: its time is not ours to choose
            time_back = before if status.st_mtime_ns == made else status.st_mtime_ns
            os.utime(place.fd, ns=(status.st_atime_ns, time_back))
        return True


def _busy(lock: str) -> StoreBusy:
    directory, _, name = display(lock).rpartition("/")
    return StoreBusy(
        f"git is at work in {directory}: {name} exists.",
        hint=f"Nothing was changed. Try again when git has finished; if no git runs, remove {display(lock)}.",
    )


_FINE = (Outcome.UNDONE, Outcome.ALREADY)
_UNPARSED = "it is no index that takeback can read entry by entry"


def git_aware(
    steps: list[PathStep], of: Effect, on_conflict: OnConflict, tools: Tools, keep: bool
) -> list[PathStep]:
    """The same steps, with those inside git directories planned by meaning."""
    if not any(may_be_gits(one.resource) for one in of.targets):
        return steps
    targets = {target.resource: target for target in of.targets}
    with Places(of.targets, unlock=True) as places:
        spots = spots_of(of.targets, places)
        if not spots:
            return steps
        by_resource = {step.outcome.resource: step for step in steps}
        scope = ReadScope(tools.blobs if keep else None)
        for home in dict.fromkeys(spot.home for spot in spots.values()):
            force = on_conflict is OnConflict.FORCE
            desk = GitDesk(home, spots, targets, by_resource, places, tools, scope, force)
            _plan(desk)
        changed = [step.target.resource for step in by_resource.values() if step.target is not None]
        refuse_while_git_runs(of.targets, changed, places)
        dirs = GitDirs(of.targets, places)
        return [_marked(step, dirs) for step in by_resource.values()]


def _marked(step: PathStep, dirs: GitDirs) -> PathStep:
    if step.target is None:
        return step
    return PathStep(step.outcome, marked(step.target, dirs.spot(step.target.resource)))


def _plan(desk: GitDesk) -> None:
    _plan_objects(desk)
    plan_refs(desk)
    desk.each(GitPart.HEAD, lambda resource, _: _plan_head(desk, resource))
    desk.each(GitPart.LOG, lambda resource, spot: _plan_log(desk, resource, spot))
    desk.each(GitPart.INDEX, lambda resource, _: _plan_index(desk, resource))
    for resource, _ in desk.of(GitPart.SCRATCH):
        if desk.outcome(resource) is Outcome.CONFLICT and not desk.force:
            desk.stay(resource, "git has written it again since")
    _keep_tables_together(desk)
    _settle_directories(desk)


def _plan_objects(desk: GitDesk) -> None:
    """Added objects stay: a later commit by someone else may need them."""
    staying: list[str] = []
    for resource, spot in desk.of(GitPart.OBJECT, GitPart.CACHE):
        target, step = desk.targets[resource], desk.steps.get(resource)
        if step is None:
            continue
        if target.before["type"] == "absent" and resource != f"{desk.home}/info/refs":
            del desk.steps[resource]
            if not is_dir(target.after):
                staying.append(resource)
        elif only_time(target.before, target.after) and len(desk.steps) > 1:
            del desk.steps[resource]  # git only noted that it is still in use
        elif step.outcome.outcome is Outcome.CONFLICT and _is_good(desk, resource, spot):
            desk.stay(resource, "the repository has it")
    if len(staying) == 1:
        desk.stay(staying[0], "stays: 1 git object, which git itself removes when nothing uses it")
    elif staying:
        what = f"{len(staying):,} git objects, which git itself removes when nothing uses them"
        desk.stay(staying[0], f"stays, with the others: {what}")


def _is_good(desk: GitDesk, resource: str, spot: Spot) -> bool:
    if spot.part is GitPart.CACHE or is_dir(desk.targets[resource].before):
        return True
    content = desk.content_now(resource) or b""
    return bool(content) and len(spot.name) > 2 and is_whole(spot.name, content)


def _plan_head(desk: GitDesk, resource: str) -> None:
    target = desk.targets[resource]
    value, left = (loose_value(desk.content(state) or b"") for state in (target.before, target.after))
    if desk.outcome(resource) is Outcome.CONFLICT and value and value == left:
        desk.stay(resource, "the effect wrote it again as it was")
    if desk.outcome(resource) is Outcome.UNDONE and value and not value.startswith("ref: "):
        desk.demand(resource, (value,))


def _plan_log(desk: GitDesk, resource: str, spot: Spot) -> None:
    target = desk.targets[resource]
    if not is_a_ref(desk, resource):
        return
    # A ref and its reflog go together; the reflog of HEAD has lines of every branch.
    refs = desk.of(GitPart.REF, GitPart.HEAD)
    mine = [one for one, other in refs if spot.name in (other.name or "HEAD", "HEAD")]
    if any(desk.outcome(one) is Outcome.CONFLICT for one in mine):
        del desk.steps[resource]  # the ref is reported, and its reflog goes with it
        return
    before, after = desk.content(target.before), desk.content(target.after)
    now = desk.content_now(resource) or b""
    if before is None or after is None:
        return
    found = without_lines(before, after, now)
    oids = [oid for line in found.lines for oid in oids_in(line)]
    if desk.is_plain(resource):
        desk.demand(resource, oids)
        return
    if desk.outcome(resource) not in (Outcome.CONFLICT, Outcome.UNDONE) or found.content is None:
        return
    if found.content == now:
        desk.stay(resource, "its lines are no longer there")
        return
    if not desk.demand(resource, oids):
        return
    there = desk.now(resource)
    like = there if there["type"] == "file" else target.before
    gone = not found.content and target.before["type"] == "absent"
    goal = ABSENT if gone else desk.written(found.content, like, resource)
    desk.change(resource, there, goal, "without the lines of the effect; the others stay")


def _plan_index(desk: GitDesk, resource: str) -> None:
    target = desk.targets[resource]
    outcome = desk.outcome(resource)
    if outcome is Outcome.UNDONE and not is_dir(target.before):
        _demand_entries(desk, resource, target.before)
        return
    if outcome is not Outcome.CONFLICT:
        return
    contents = (desk.content(target.before), desk.content(target.after), desk.content_now(resource))
    before, after, now = (parse_index(one) if one else None for one in contents)
    there = desk.now(resource)
    if now is None or there["type"] != "file":
        return
    was, left = (
        _or_empty(state, one, now) for state, one in ((target.before, before), (target.after, after))
    )
    taken = without_changes(was, left, now) if was and left else None
    if taken is None:
        desk.refuse(resource, f"{desk.steps[resource].outcome.detail}; {_UNPARSED}")
        return
    if taken.conflicts:
        names = ", ".join(display(quote(name)) for name in taken.conflicts[:3])
        more = f" and {len(taken.conflicts) - 3:,} more" if len(taken.conflicts) > 3 else ""
        desk.refuse(resource, f"was staged otherwise since: {names}{more}")
        return
    if not taken.restored:
        desk.stay(resource, "its entries are as they were before")
        return
    entries = (taken.entries[key] for key in taken.restored if key in taken.entries)
    if not desk.demand(resource, _objects_of(entries)):
        return
    content = written(now, taken.entries, taken.restored)
    goal = desk.written(content, there, resource) | {MEANING: meaning_of(content)}
    count = len(taken.restored)
    desk.change(
        resource, there, goal, f"{count:,} {'entry' if count == 1 else 'entries'} back; the others stay"
    )


def _objects_of(entries: Iterable[IndexEntry]) -> list[str]:
    return [one.oid.hex() for one in entries if one.mode != GITLINK and not one.flags & INTENT_TO_ADD]


def _or_empty(state: FileState, index: GitIndex | None, like: GitIndex) -> GitIndex | None:
    """No index is one without entries."""
    if state["type"] != "absent":
        return index
    return like._replace(entries={}, stats={}, extensions={})


def _demand_entries(desk: GitDesk, resource: str, before: FileState) -> None:
    """An index goes back only to objects that are there."""
    content = desk.content(before)
    index = parse_index(content) if content else None
    if index is None:
        return
    now = parse_index(desk.content_now(resource) or b"")
    known = {entry.oid for entry in now.entries.values()} if now else set[bytes]()
    if not desk.demand(resource, _objects_of(one for one in index.entries.values() if one.oid not in known)):
        return
    if b"link" not in index.extensions and desk.missing(tree.hex() for tree in cached_trees(index)):
        fresh = written(index, index.entries, ())
        goal = desk.written(fresh, before, resource) | {MEANING: meaning_of(fresh)}
        desk.change(resource, desk.now(resource), goal, "back, without its cache of trees")


def _keep_tables_together(desk: GitDesk) -> None:
    """Refs in reftables are files like others, but only all of them together mean something."""
    tables = [resource for resource, _ in desk.of(GitPart.TABLE) if resource in desk.steps]
    odd = next((one for one in tables if desk.outcome(one) not in _FINE), "")
    for resource in tables if odd else ():
        if desk.outcome(resource) in _FINE:
            desk.refuse(resource, f"stays unchanged: {display(odd)} {desk.steps[odd].outcome.detail}")


def _settle_directories(desk: GitDesk) -> None:
    """Directories of refs, reflogs, worktrees mean nothing by themselves: they go if they are empty then."""
    inside = [
        resource
        for resource, _ in desk.of(GitPart.REF, GitPart.LOG, GitPart.ROOM)
        if resource in desk.steps and not is_a_ref(desk, resource)
    ]
    for resource in sorted(inside, key=len, reverse=True):
        step, target = desk.steps[resource], desk.targets[resource]
        conflict = step.outcome.outcome is Outcome.CONFLICT
        if is_dir(target.after) and not is_dir(target.before):
            if (conflict or desk.goes(resource)) and holds_more(desk, resource):
                desk.stay(resource, "others use it")
        elif conflict:
            desk.stay(resource, "git needs it no more, or has made it again")
