"""What others changed while a command was watched: told apart where the kernel names the process of each change."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.engine.do import Terms
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.settle import abort
from takeback.engine.watch import begin, finish
from takeback.errors import StoreBusy
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target
from takeback.model.resource import display
from takeback.model.run import Lease

if TYPE_CHECKING:
    from takeback.adapters.watch.authors import Authors
    from takeback.adapters.watch.lineage import Lineage

_LISTED = 5
NOT_TOLD = (
    "More was changed on this filesystem than the kernel could tell of, so what others changed here meanwhile "
    "counts as the command's."
)


class Telling:
    """Who belongs to the command, and who changed what, from its beginning."""

    def __init__(self, pid: int, lineage: "Lineage", authors: dict[str, "Authors"]) -> None:
        """`authors` by the resource of each root."""
        self._pid = pid
        self._lineage = lineage
        self._authors = authors

    def close(self) -> None:
        self._lineage.close()

    def is_lost(self, now: "dict[str, Authors | None]") -> bool:
        """Whether of some root it is no longer known who changed what."""
        return any(now.get(root) is not book or not book.whole for root, book in self._authors.items())

    def by_others(self, targets: Sequence[Target], now: "dict[str, Authors | None]") -> dict[str, int]:
        """By resource, with a process; none where it cannot be known. `now` are the books that the feeds keep: another
        one than at the beginning does not tell everything."""
        from takeback.adapters.watch.authors import by_others

        own, ours = self._lineage.descendants(self._pid), self._lineage.descendants(os.getpid())
        if own is None or ours is None:
            return {}
        found: dict[str, int] = {}
        for root, authors in self._authors.items():
            if now.get(root) is authors:
                inside = [one for one in targets if _is_in(one.resource, root)]
                found |= by_others(root, inside, authors, own | ours)
        return _whole_units(targets, found)


def _is_in(resource: str, root: str) -> bool:
    return resource == root or resource.startswith(root.rstrip("/") + "/")


def _whole_units(targets: Sequence[Target], found: dict[str, int]) -> dict[str, int]:
    """A database is one thing: all of it is others' doing, or nothing."""
    units = {
        one.resource: unit for one in targets if (unit := one.before.get("unit") or one.after.get("unit"))
    }
    mixed = {unit for resource, unit in units.items() if resource not in found}
    return {resource: pid for resource, pid in found.items() if units.get(resource) not in mixed}


def record(
    parts: Parts, lease: Lease, change: Change, terms: Terms, targets: tuple[Target, ...]
) -> Effect | None:
    """As an effect of its own. None if they are still at it: then it is nobody's."""
    from takeback.adapters.watch.found import change_found

    effect = begin(parts, lease, change, terms)
    try:
        return finish(parts, lease, effect, lambda: change_found(effect.change, parts.blobs, targets, ()))
    except StoreBusy:
        abort(parts, lease, adapter_of(parts, change.adapter), effect, "Others still change it.")
        return None


def sentence(found: dict[str, int], effect: Effect | None) -> str:
    from takeback.adapters.watch.processes import name_of

    listed = ", ".join(display(one) for one in list(found)[:_LISTED])
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    who = ", ".join(dict.fromkeys(name_of(pid) for pid in list(found.values())[:_LISTED]))
    told = f"Not the command, but {who} changed {listed}{more} meanwhile"
    return f"{told}: effect {short(effect.id)}." if effect else f"{told}; that goes on, and is not recorded."
