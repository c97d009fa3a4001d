"""Notes in the states of an effect's paths that let a later look compare them by what they mean to git."""

from collections.abc import Sequence

from takeback.adapters.file.states import State, same
from takeback.adapters.tree.git.index import MOST, meaning_of
from takeback.adapters.tree.git.layout import GitDirs, GitPart, Spot, content_at, may_be_gits, ref_resource
from takeback.adapters.tree.git.refs import NONE, packed_values
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir
from takeback.model.remedy import APART, BY_MEANING, Target
from takeback.storage.protocols import Blobs

MEANING = "meaning"  # of an index: its digest without the stat cache
PACKED = "packed"  # of a ref that has no file: what packed-refs says of it, or nothing
_APART = (GitPart.LOG, GitPart.SCRATCH, GitPart.OBJECT, GitPart.CACHE, GitPart.ROOM)
SHADOWED = "shadowed"  # of packed-refs: refs in it that have a file too, so that it says nothing of them


def with_meaning(targets: Sequence[Target], blobs: Blobs) -> list[Target]:
    """The same paths with their notes; none where only the stat cache of an index was written."""
    if not any(may_be_gits(target.resource) for target in targets):
        return list(targets)
    with Places(targets) as places:
        dirs = GitDirs(targets, places)
        spots = {target.resource: dirs.spot(target.resource) for target in targets}
        noted = [_noted(target, spots, blobs, places) for target in targets]
    if all(_is_refreshed(target) or (is_dir(target.before) and is_dir(target.after)) for target in noted):
        noted = [target for target in noted if not _is_refreshed(target)]
    return [marked(target, spots[target.resource]) for target in noted]


def marked(target: Target, spot: Spot | None) -> Target:
    """So that a plan over several effects leaves the comparison to us."""
    if spot is None:
        return target
    apart = spot.part in _APART or _is_refreshed(target)
    return target._replace(after=target.after | {BY_MEANING: APART if apart else spot.part.value})


def _is_refreshed(target: Target) -> bool:
    before, after = target.before, target.after
    return before.get(MEANING, 0) == after.get(MEANING, 1) and same(before, after)


def _noted(target: Target, spots: dict[str, Spot | None], blobs: Blobs, places: Places) -> Target:
    spot = spots[target.resource]
    if target.resource.endswith("/index"):
        return _indexed(target, blobs) if spot or "/.git/" in target.resource else target
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


def _indexed(target: Target, blobs: Blobs) -> Target:
    before, after = (_with_digest(state, blobs) for state in (target.before, target.after))
    return target._replace(before=before, after=after)


def _with_digest(state: State, blobs: Blobs) -> State:
    if state["type"] != "file" or state.get("size", MOST + 1) > MOST or not blobs.has(state["digest"]):
        return state
    meaning = meaning_of(b"".join(blobs.read(state["digest"])))
    return state | {MEANING: meaning} if meaning else state


def _shadowed(
    target: Target, spot: Spot, spots: dict[str, Spot | None], blobs: Blobs, places: Places
) -> list[str]:
    before, after = (packed_in(state, blobs) or {} for state in (target.before, target.after))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    names = [name for name in sorted(changed) if ref_resource(spot.home, name) not in spots]
    return [name for name in names if content_at(places, ref_resource(spot.home, name)) is not None]


def packed_in(state: State, blobs: Blobs) -> dict[str, str] | None:
    """None if nobody can tell."""
    if state["type"] == "absent":
        return {}
    if state["type"] != "file" or "digest" not in state or not blobs.has(state["digest"]):
        return None
    return packed_values(b"".join(blobs.read(state["digest"])))


def packed_now(home: str, places: Places) -> dict[str, str]:
    content = content_at(places, f"{home}/packed-refs")
    return (packed_values(content) if content is not None else {}) or {}
