"""Which path is what inside a git directory. The list is closed: any other path in it is a file like others."""

import re
import stat
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from takeback.adapters.file.content import file_bytes
from takeback.adapters.tree.places import Places
from takeback.model.remedy import Target
from takeback.model.resource import ancestors, quote, unquote

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


def ref_name(quoted: str) -> str:
    return unquote(quoted).decode("utf-8", "surrogateescape")


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
        self._coming: set[str] = set()
        self._touched: set[str] = set()
        for target in targets:
            self._touched.add(target.resource)
            if (target.before["type"] == "dir") != (target.after["type"] == "dir"):
                self._coming.add(target.resource)

    def spot(self, resource: str) -> Spot | None:
        if not may_be_gits(resource):
            return None
        return next((one for one in _candidates(resource) if self._stays(one.home)), None)

    def _stays(self, home: str) -> bool:
        if home not in self._known:
            moved = self._coming and not self._coming.isdisjoint((home, *ancestors(home)))
            self._known[home] = not moved and self._is_git(home)
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
    """What it could be, the innermost git directory first."""
    directory, _, name = resource.rpartition("/")
    if name in _BY_NAME:
        yield Spot(directory, _BY_NAME[name])
    if found := _OBJECTS.fullmatch(resource):
        yield Spot(found["home"], GitPart.OBJECT, (found["fan"] or "") + (found["rest"] or ""))
    if found := _CACHES.fullmatch(resource):
        yield Spot(found["home"], GitPart.CACHE)
    if not name.endswith(".lock"):
        yield from _under(resource, "/logs/", lambda tail: GitPart.LOG if _is_logged(tail) else None)
        yield from _under(resource, "/refs/", lambda tail: GitPart.REF)
        yield from _under(resource, "/reftable/", lambda tail: GitPart.TABLE)


def _is_logged(tail: str) -> bool:
    return tail == "HEAD" or tail.startswith("refs/") or tail == "refs"


def _under(resource: str, sign: str, part: Callable[[str], GitPart | None]) -> Iterable[Spot]:
    at = len(resource)
    while (at := resource.rfind(sign, 0, at)) > 0:
        tail = resource[at + len(sign) :]
        kind = part(tail)
        if kind is not None and tail:
            name = ref_name(tail if kind is GitPart.LOG else sign[1:] + tail)
            yield Spot(resource[:at], kind, name)
