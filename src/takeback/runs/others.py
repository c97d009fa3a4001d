"""What others changed while a command was watched: told apart where the kernel names the process of each change."""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.engine.do import Terms
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.settle import abort
from takeback.engine.watch import begin, finish
from takeback.errors import StoreBusy
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource, path_of
from takeback.model.run import Lease

if TYPE_CHECKING:
    from takeback.adapters.watch.authors import Authors
    from takeback.adapters.watch.lineage import Lineage

_LISTED = 5
NOT_TOLD = (
    "The kernel did not report who made each change, so changes by others while the command ran count as the "
    "command's."
)


class Told(NamedTuple):
    """Of the changes below the roots, by resource."""

    others: dict[str, int] = {}  # what only others changed, with one of those processes
    left: dict[
        str, str
    ] = {}  # what only others changed, and the effect of a watch that goes on will tell of it
    own: frozenset[str] = frozenset()  # what certainly nobody but the command changed


class Telling:
    """Who belongs to the command, and who changed what, from its beginning."""

    def __init__(
        self, pid: int, lineage: "Lineage", authors: dict[str, "Authors"], beside: Sequence[Effect] = ()
    ) -> None:
        """`authors` by the resource of each root; `beside`: commands that others watch there already."""
        from takeback.adapters.watch.processes import family_of

        self._pid = pid
        self._lineage = lineage
        self._authors = authors
        # What they had started before we were told of it.
        self._begun = {one.id: family_of(_process(one)) for one in beside if _process(one)}

    def close(self) -> None:
        self._lineage.close()

    def is_lost(self, now: "dict[str, Authors | None]") -> bool:
        """Whether of some root it is no longer known who changed what."""
        return self._lineage.descendants(self._pid) is None or any(
            now.get(root) is not book or not book.whole for root, book in self._authors.items()
        )

    def told(
        self,
        targets: Sequence[Target],
        now: "dict[str, Authors | None]",
        beside: Sequence[Effect] = (),
    ) -> Told:
        """Nothing where it cannot be known. `now` are the books that the feeds keep: another one than at the beginning
        does not tell everything. `beside`: the commands that others watch there now."""
        own, ours = self._lineage.descendants(self._pid), self._lineage.descendants(os.getpid())
        if own is None or ours is None:
            return Told()
        family = own | ours
        found = self._by_others(targets, now, family)
        left: dict[str, str] = {}
        for other in beside:
            begun = self._begun.get(other.id) or {_process(other).get("pid", 0)} - {0}
            theirs = [self._lineage.descendants(one) or set() for one in begun]
            without = self._by_others(targets, now, family.union(*theirs))
            left |= dict.fromkeys((one for one in found if one not in without and one not in left), other.id)
        others = {resource: pid for resource, pid in found.items() if resource not in left}
        return Told(others, left, frozenset(self._surely(targets, now, family)))

    def outside(self, but: Sequence[bytes]) -> list[str]:
        """What the command changed beyond the roots, on the same filesystems, as far as the kernel told. Not below
        these directories."""
        from takeback.adapters.watch.fanotify import changed_outside

        own = self._lineage.descendants(self._pid)
        roots = [path_of(root) for root in self._authors]
        found = {
            file_resource(path)
            for book in self._authors.values()
            for path in (changed_outside(book, own, (*roots, *but)) if own else ())
        }
        return sorted(found)

    def _by_others(
        self, targets: Sequence[Target], now: "dict[str, Authors | None]", family: set[int]
    ) -> dict[str, int]:
        from takeback.adapters.watch.authors import by_others

        found: dict[str, int] = {}
        for root, authors in self._authors.items():
            if now.get(root) is authors:
                inside = [one for one in targets if _is_in(one.resource, root)]
                found |= by_others(root, inside, authors, family)
        return _whole_units(targets, found)

    def _surely(
        self, targets: Sequence[Target], now: "dict[str, Authors | None]", family: set[int]
    ) -> Iterator[str]:
        for root, authors in self._authors.items():
            if now.get(root) is not authors or not authors.whole:
                continue
            cut = len(root.rstrip("/")) + 1
            for one in targets:
                if _is_in(one.resource, root) and family.issuperset(
                    authors.of.get(one.resource[cut:]) or (0,)
                ):
                    yield one.resource


def _process(effect: Effect) -> dict[str, Any]:
    return effect.change.args.get("process", {})


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


def left_to(left: dict[str, str], beside: Sequence[Effect]) -> str:
    """A sentence, for what the watches of other commands will tell of."""
    names = " and ".join(
        f"{short(one.id)} ({one.change.summary})" for one in beside if one.id in left.values()
    )
    return f"{_listed(left)} changed by another command that is watched here: effect {names}."


def not_covered(outside: Sequence[str], roots: Sequence[str]) -> str:
    """A sentence, for what the command changed elsewhere; empty if nothing is known of that."""
    if not outside:
        return ""
    where = ", ".join(display(root) for root in roots[:_LISTED])
    return f"Not recorded, because it is outside of {where}: {_listed(outside)} changed by the command."


def _listed(resources: Collection[str]) -> str:
    """With the verb that belongs to so many."""
    names = ", ".join(display(one) for one in list(resources)[:_LISTED])
    more = f" and {len(resources) - _LISTED:,} more" if len(resources) > _LISTED else ""
    return f"{names}{more} {'was' if len(resources) == 1 else 'were'}"


def sentence(found: dict[str, int], effect: Effect | None) -> str:
    from takeback.adapters.watch.processes import name_of

    listed = ", ".join(display(one) for one in list(found)[:_LISTED])
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    who = ", ".join(dict.fromkeys(name_of(pid) for pid in list(found.values())[:_LISTED]))
    told = f"Not the command, but {who} changed {listed}{more} while it ran"
    return f"{told}: effect {short(effect.id)}." if effect else f"{told}; that goes on, and is not recorded."
