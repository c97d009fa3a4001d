"""A change that waited for a person meets a world that has moved on: what is at each path now is what it was before."""

from collections.abc import Iterable

from takeback.adapters.file.states import ABSENT
from takeback.adapters.file.tree import Scope
from takeback.adapters.file.trouble import translated
from takeback.adapters.tree.git.meaning import with_meaning
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_excluded, see
from takeback.adapters.tree.twins import is_joined, is_unchanged
from takeback.adapters.tree.units import in_order
from takeback.model.remedy import Target
from takeback.storage.protocols import Blobs


def renewed(blobs: Blobs, targets: Iterable[Target]) -> tuple[Target, ...]:
    """The same paths with what is there now, its contents in the store; without those that are there already."""
    listed = list(targets)
    found: list[Target] = []
    with Places(listed) as places:
        for _, target in in_order(listed):
            if is_excluded(target.before, target.after):
                found.append(target)
                continue
            with translated(target.resource):
                place = places.if_there(target.resource)
                before = see(place, ABSENT, Scope(blobs)) if place else ABSENT
            twin: str = target.before.get("twin", "")
            if twin and is_joined(target.resource, twin, places):
                before = before | {"twin": twin}
            now = target._replace(before=before)
            if not is_unchanged(now):
                found.append(now)
    return tuple(with_meaning(found, blobs))
