"""Which path is what inside a git directory. The list is closed: any other path in it is a file like others."""

import re
import stat
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from takeback.adapters.file.content import file_bytes
from takeback.adapters.file.states import FileState, same
from takeback.adapters.tree.git.formats import MOST, NONE, meaning_of, packed_values
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir, only_time
from takeback.model.remedy import APART, BY_MEANING, Target
from takeback.model.resource import ancestors, quote, unquote
from takeback.storage.protocols import Blobs

_HEX = "[0-9a-f]"
_OBJECTS = re.compile(
    rf"(?P<home>.+)/objects/(?:(?P<fan>{_HEX}{{2}})(?:/(?P<rest>{_HEX}{{38}}(?:{_HEX}{{24}})?))?|"
    rf"pack|pack/pack-{_HEX}+\.(?:pack|idx|rev|mtimes|promisor))"
)
_CACHES = re.compile(
    r"(?P<home>.+)/(?:objects/(?:pack/(?:pack-[0-9a-f]+\.bitmap|multi-pack-index.*)|"
    r"info|info/(?:packs|commit-graph|commit-graphs(?:/.+)?))|info/refs)"
)
_ROOMS = ("/worktrees", "/modules", "/logs")
_SCRATCH = ("FETCH_HEAD", "ORIG_HEAD", "COMMIT_EDITMSG")


class GitPart(StrEnum):
    OBJECT = "object"  # a loose object, a pack, or a directory of them: never removed
    CACHE = "cache"  # git writes it again from the objects and refs
    REF = "ref"
    PACKED = "packed-refs"
    HEAD = "HEAD"
    LOG = "reflog"
    INDEX = "index"
    SCRATCH = "scratch"  # FETCH_HEAD, ORIG_HEAD, COMMIT_EDITMSG
    TABLE = "reftable"
    ROOM = "room"  # a directory that means nothing by itself


_BY_NAME = {
    "index": GitPart.INDEX,
    "packed-refs": GitPart.PACKED,
    "HEAD": GitPart.HEAD,
    **dict.fromkeys(_SCRATCH, GitPart.SCRATCH),
    **dict.fromkeys((one[1:] for one in _ROOMS), GitPart.ROOM),
}


class Spot(NamedTuple):
    home: str  # the git directory
    part: GitPart
    name: str = ""  # of a ref, also of a reflog's; of an object its id


def may_be_gits(resource: str) -> bool:
    """A cheap look at the path alone: most effects touch no git directory."""
    return (
        resource.endswith(("/index", "/packed-refs", "HEAD", "/COMMIT_EDITMSG", "/info/refs", *_ROOMS))
        or "/refs/" in resource
        or "/objects/" in resource
        or "/logs/" in resource
        or "/reftable/" in resource
    )


def ref_resource(home: str, name: str) -> str:
    return f"{home}/{quote(name.encode('utf-8', 'surrogateescape'))}"


def spots_of(targets: Iterable[Target], places: Places) -> dict[str, Spot]:
    """Of an effect's paths those that mean something to git, in git directories that stay."""
    listed = list(targets)
    dirs = GitDirs(listed, places)
    found = {target.resource: dirs.spot(target.resource) for target in listed}
    return {resource: spot for resource, spot in found.items() if spot is not None}


def objects_added(targets: Iterable[Target], places: Places) -> int:
    """How many objects and packs an undo of these would leave behind."""
    listed = list(targets)
    if not any(may_be_gits(target.resource) for target in listed):
        return 0
    spots = spots_of(listed, places)
    return sum(
        target.before["type"] == "absent" and target.after["type"] == "file"
        for target in listed
        if target.resource in spots and spots[target.resource].part is GitPart.OBJECT
    )


class GitDirs:
    """Knows which directories are git directories; each is looked at once."""

    def __init__(self, targets: Iterable[Target], places: Places) -> None:
        self._places = places
        self._known: dict[str, bool] = {}
        listed = list(targets)
        self._touched = {one.resource for one in listed}
        self._coming = {
            one.resource for one in listed if (one.before["type"] == "dir") != (one.after["type"] == "dir")
        }

    def spot(self, resource: str) -> Spot | None:
        if not may_be_gits(resource):
            return None
        return next((one for one in _candidates(resource) if self._stays(one.home)), None)

    def _stays(self, home: str) -> bool:
        if home not in self._known:
            stays = not self._coming or self._coming.isdisjoint((home, *ancestors(home)))
            self._known[home] = stays and self._is_git(home)
        return self._known[home]

    def _is_git(self, home: str) -> bool:
        head = self._kind(f"{home}/HEAD") in (stat.S_IFREG, stat.S_IFLNK) or f"{home}/HEAD" in self._touched
        if not head:
            return False
        if self._kind(f"{home}/commondir") == stat.S_IFREG:
            return True
        return all(self._kind(f"{home}/{name}") == stat.S_IFDIR for name in ("objects", "refs"))

    def _kind(self, resource: str) -> int:
        place = self._places.within_reach(resource)
        status = place.stat() if place else None
        return stat.S_IFMT(status.st_mode) if status else 0


def content_at(places: Places, resource: str) -> bytes | None:
    """None where no file is."""
    place = places.within_reach(resource)
    status = place.stat() if place else None
    if place is None or status is None or not stat.S_ISREG(status.st_mode):
        return None
    return file_bytes(place.fd, place.name, status.st_size)


def _candidates(resource: str) -> Iterable[Spot]:
    """The parts of git that a path could be, the innermost git directory first."""
    directory, _, name = resource.rpartition("/")
    if name in _BY_NAME:
        yield Spot(directory, _BY_NAME[name])
    if found := _OBJECTS.fullmatch(resource):
        yield Spot(found["home"], GitPart.OBJECT, (found["fan"] or "") + (found["rest"] or ""))
    if found := _CACHES.fullmatch(resource):
        yield Spot(found["home"], GitPart.CACHE)
    if not name.endswith(".lock"):
        yield from _under(resource, "/logs/", GitPart.LOG)
        yield from _under(resource, "/refs/", GitPart.REF)
        yield from _under(resource, "/reftable/", GitPart.TABLE)


def _under(resource: str, sign: str, kind: GitPart) -> Iterable[Spot]:
    at = len(resource)
    while (at := resource.rfind(sign, 0, at)) > 0:
        tail = resource[at + len(sign) :]
        is_ours = kind is not GitPart.LOG or tail in ("HEAD", "refs") or tail.startswith("refs/")
        if tail and is_ours:
            name = unquote(tail if kind is GitPart.LOG else sign[1:] + tail)
            yield Spot(resource[:at], kind, name.decode("utf-8", "surrogateescape"))


# Notes in the states of an effect's paths that let a later look compare them by what they mean to git.


MEANING = "meaning"  # of an index: its digest without the stat cache
PACKED = "packed"  # of a ref that has no file: what packed-refs says of it, or nothing
_APART = (GitPart.LOG, GitPart.SCRATCH, GitPart.OBJECT, GitPart.CACHE, GitPart.ROOM)
SHADOWED = "shadowed"  # of packed-refs: refs in it that have a file too, so that it says nothing of them


def with_meaning(targets: Sequence[Target], blobs: Blobs) -> list[Target]:
    """The same paths with their notes; none where git only wrote the stat cache of an index, or the time of an object
    that it has already."""
    if not any(may_be_gits(target.resource) for target in targets):
        return list(targets)
    with Places(targets) as places:
        dirs = GitDirs(targets, places)
        spots = {target.resource: dirs.spot(target.resource) for target in targets}
        noted = [_noted(target, spots, blobs, places) for target in targets]
    fresh = {target.resource for target in noted if _is_fresh(target, spots[target.resource])}
    if all(one.resource in fresh or (is_dir(one.before) and is_dir(one.after)) for one in noted):
        noted = [target for target in noted if target.resource not in fresh]
    return [marked(target, spots[target.resource]) for target in noted]


def marked(target: Target, spot: Spot | None) -> Target:
    """So that a plan over several effects leaves the comparison to us."""
    if spot is None:
        return target
    apart = spot.part in _APART or _is_refreshed(target)
    return target._replace(after=target.after | {BY_MEANING: APART if apart else spot.part.value})


def _is_fresh(target: Target, spot: Spot | None) -> bool:
    """An object that git would write once more gets the present time instead. Agents cause that with their calls."""
    is_object = spot is not None and spot.part is GitPart.OBJECT and not is_dir(target.before)
    return _is_refreshed(target) or (is_object and only_time(target.before, target.after))


def _is_refreshed(target: Target) -> bool:
    before, after = target.before, target.after
    return before.get(MEANING, 0) == after.get(MEANING, 1) and same(before, after)


def _noted(target: Target, spots: dict[str, Spot | None], blobs: Blobs, places: Places) -> Target:
    spot = spots[target.resource]
    if target.resource.endswith("/index"):
        if not spot and "/.git/" not in target.resource:
            return target
        return Target(target.resource, _indexed(target.before, blobs), _indexed(target.after, blobs))
    if spot and spot.part is GitPart.PACKED:
        return target._replace(after=target.after | {SHADOWED: _shadowed(target, spot, spots, blobs, places)})
    if spot and spot.part is GitPart.REF and f"{spot.home}/packed-refs" not in spots:
        return ref_noted(target, packed_now(spot.home, places).get(spot.name, NONE))
    return target


def ref_noted(target: Target, packed: str) -> Target:
    before, after = (
        state | {PACKED: packed} if state["type"] in ("absent", "dir") else state
        for state in (target.before, target.after)
    )
    return target._replace(before=before, after=after)


def _indexed(state: FileState, blobs: Blobs) -> FileState:
    content = content_of(state, blobs) if state.get("size", MOST + 1) <= MOST else None
    meaning = meaning_of(content) if content else ""
    return state | {MEANING: meaning} if meaning else state


def _shadowed(
    target: Target, spot: Spot, spots: dict[str, Spot | None], blobs: Blobs, places: Places
) -> list[str]:
    before, after = (packed_in(state, blobs) or {} for state in (target.before, target.after))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    names = [name for name in sorted(changed) if ref_resource(spot.home, name) not in spots]
    return [name for name in names if content_at(places, ref_resource(spot.home, name)) is not None]


def content_of(state: FileState, blobs: Blobs) -> bytes | None:
    """Of a recorded state; empty for a missing file; None if unknown."""
    if state["type"] == "absent":
        return b""
    if state["type"] != "file" or "digest" not in state or not blobs.has(state["digest"]):
        return None
    return b"".join(blobs.read(state["digest"]))


def packed_in(state: FileState, blobs: Blobs) -> dict[str, str] | None:
    """None if unknown."""
    content = content_of(state, blobs)
    return packed_values(content) if content is not None else None


def packed_now(home: str, places: Places) -> dict[str, str]:
    return packed_values(content_at(places, f"{home}/packed-refs") or b"") or {}
