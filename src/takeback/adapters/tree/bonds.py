"""Which paths of an effect are only taken back together: names of one file, both ends of a move, a database with its
side files, a ref of git with its reflog."""

from collections.abc import Iterable, Iterator, Sequence

from takeback.adapters.file.states import linked_names
from takeback.adapters.tree.git.layout import GitPart, Spot, may_be_gits, spots_of
from takeback.adapters.tree.places import Places
from takeback.model.plan import Bond
from takeback.model.remedy import Target

_BESIDE = ("-wal", "-shm", "-journal")

Group = tuple[Bond, frozenset[str]]


def bonds_of(targets: Sequence[Target]) -> list[Group]:
    found = [*linked_names(targets), *moves_of(targets), *_databases(targets), *_refs(targets)]
    return [(bond, names) for bond, names in found if len(names) > 1]


def moves_of(targets: Sequence[Target]) -> Iterator[Group]:
    """What went and what came with the same content. Of several with that content nothing tells which became which."""
    went: dict[object, list[str]] = {}
    came: dict[object, list[str]] = {}
    for target in targets:
        before, after = target.before, target.after
        if after["type"] == "absent" and before.get("digest") and before.get("size"):
            went.setdefault(before["digest"], []).append(target.resource)
        elif before["type"] == "absent" and after.get("digest") and after.get("size"):
            came.setdefault(after["digest"], []).append(target.resource)
    for digest, names in went.items():
        if len(names) == 1 and len(came.get(digest, ())) == 1:
            yield Bond.MOVE, frozenset((*names, *came[digest]))


def _databases(targets: Iterable[Target]) -> Iterator[Group]:
    """By what a watch said of them, or by their names."""
    resources = {target.resource: target for target in targets}
    units: dict[str, set[str]] = {}
    for resource, target in resources.items():
        unit = target.after.get("unit") or target.before.get("unit")
        if unit:
            units.setdefault(unit, set()).add(resource)
        for suffix in _BESIDE:
            if resource.endswith(suffix):
                units.setdefault(resource.removesuffix(suffix), set()).add(resource)
    for name, files in units.items():
        yield Bond.DATABASE, frozenset(files | ({name} & resources.keys()))


def _refs(targets: Sequence[Target]) -> Iterator[Group]:
    if not any(may_be_gits(target.resource) for target in targets):
        return
    with Places(targets) as places:
        spots = spots_of(targets, places)
    for home in dict.fromkeys(spot.home for spot in spots.values()):
        yield from _refs_of({one: spot for one, spot in spots.items() if spot.home == home}, targets)


def _refs_of(spots: dict[str, Spot], targets: Iterable[Target]) -> Iterator[Group]:
    files = {one.resource for one in targets if "file" in (one.before["type"], one.after["type"])}
    by_name: dict[str, set[str]] = {}
    for resource, spot in spots.items():
        if resource in files and spot.part in (GitPart.REF, GitPart.LOG, GitPart.HEAD):
            by_name.setdefault(spot.name or "HEAD", set()).add(resource)
    refs = {one for one, spot in spots.items() if spot.part is GitPart.REF and one in files}
    if any(spot.part is GitPart.PACKED for spot in spots.values()):
        # A ref may be in the list, in a file of its own, or in both: only all of them together tell what it was.
        packed = {one for one, spot in spots.items() if spot.part is GitPart.PACKED}
        logs = {one for name, names in by_name.items() if name != "HEAD" for one in names}
        yield Bond.REF, frozenset(packed | refs | logs)
    branches = [one for one in by_name if one.startswith("refs/heads/") and by_name[one] & refs]
    for name, names in by_name.items():
        # The reflog of HEAD has the lines of the branch that it points to.
        heads = by_name.get("HEAD", set[str]()) if branches == [name] else set[str]()
        yield Bond.REF, frozenset(names | heads)
    yield Bond.REF, frozenset(one for one, spot in spots.items() if spot.part is GitPart.TABLE)
