"""Several at work in one directory: whose change is whose, as far as the kernel and the journal know."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.watch.other_effects import OtherStep, is_watched, steps_of
from takeback.adapters.watch.subtract import brought_back, without
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.settle import abort
from takeback.engine.watch import begin, finish
from takeback.engine.write import Terms
from takeback.errors import StoreBusy
from takeback.model.change import Change
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.ids import short
from takeback.model.remedy import Target
from takeback.model.resource import ancestors, display, file_resource, overlaps, path_of
from takeback.model.run import Lease
from takeback.runs.core import RunCore
from takeback.storage.notes import DIRECTORY
from takeback.storage.protocols import Blobs, Journal, Query

if TYPE_CHECKING:
    from takeback.adapters.watch.feed import Authors
    from takeback.adapters.watch.processes import Lineage


_LISTED = 5


class Apart(NamedTuple):
    """The changes since a watch began, without the known changes by other effects."""

    targets: tuple[Target, ...]
    brought_back: frozenset[str]  # of these, what the others brought back just as they had found it
    turned_back: str  # a sentence, if changes by others were overwritten, and no target shows it


def apart(journal: Journal, blobs: Blobs, proposal: Effect, targets: tuple[Target, ...]) -> Apart:
    steps, roots = _steps(journal, proposal), proposal.change.args.get("roots", ())
    left = without(targets, steps, roots, blobs)
    told = {one.resource for one in left if not one.before["type"] == one.after["type"] == "dir"}
    return Apart(left, brought_back(left, steps, blobs), _turned_back(steps, roots, told))


def _turned_back(steps: Mapping[str, list[OtherStep]], roots: Sequence[str], told: Collection[str]) -> str:
    """Such as a directory that another moved, and that is where it was again."""
    found = {
        resource: here[-1].effect
        for resource, here in steps.items()
        if resource not in told
        and "#" not in resource
        and is_watched(resource, roots)
        and not any(one in steps or one in told for one in ancestors(resource))
        and (here[-1].target.after.get("type") == "absent") == os.path.lexists(path_of(resource))
    }
    if not found:
        return ""
    effects = ", ".join(short(one) for one in list(dict.fromkeys(found.values()))[:_LISTED])
    verb, it = ("is", "it") if len(found) == 1 else ("are", "them")
    return (
        f"{_named(found)} {verb} not as effect {effects} left {it}, but as before; no effect recorded that."
    )


def _named(resources: Collection[str]) -> str:
    names = ", ".join(display(one) for one in list(resources)[:_LISTED])
    more = f" and {len(resources) - _LISTED:,} more" if len(resources) > _LISTED else ""
    return names + more


def _steps(journal: Journal, proposal: Effect) -> dict[str, list[OtherStep]]:
    """By resource, what others did to it since, oldest first."""
    since = proposal.watched_since
    if next(journal.records(after=since), None) is None:
        return {}  # nothing was written since
    query = Query(told_after=since, states=(State.DONE, State.UNDONE))
    others = [effect for effect in journal.effects(query) if effect.id != proposal.id]
    return steps_of(others)


def open_beside(
    others: Sequence[Effect], targets: Iterable[Target], since: Callable[[str, int], set[str] | None]
) -> str:
    """A sentence if other watches of the same directories are still running: some changes may be theirs."""
    unsure: dict[str, None] = {}
    for other in others:
        later = _since(other, since)
        for target in targets:
            inside = any(overlaps(root, target.resource) for root in other.change.args.get("roots", ()))
            if inside and (later is None or target.resource in later):
                unsure[target.resource] = None
    if not unsure:
        return ""
    names = " and ".join(f"{short(one.id)} ({one.change.summary})" for one in others[:_LISTED])
    told = f"{names} watched the same directory at the same time, so the author of"
    return f"{told} {_named(unsure)} is unknown."


def beside(journal: Journal, roots: Sequence[str], but: str = "") -> list[Effect]:
    """Running watches of these directories, of directories in them or around them; all but that one."""
    proposed = Query(states=(State.PROPOSED,))
    if journal.count(proposed) < (2 if but else 1):
        return []  # that one alone
    return [
        other
        for other in journal.effects(proposed)
        if other.id != but
        and other.waits_for == COMMAND
        and any(overlaps(one, root) for one in other.change.args.get("roots", ()) for root in roots)
    ]


def left_to_edits(targets: "tuple[Target, ...]", others: Sequence[Effect]) -> "tuple[Target, ...]":
    """Without the files that an open edit has named: it knows how they were, and records what became of them."""
    from takeback.adapters.watch.files import FILES

    named = {name for other in others for name, _ in other.change.args.get(FILES, ())}
    return tuple(one for one in targets if one.resource not in named)


def _since(other: Effect, since: Callable[[str, int], set[str] | None]) -> set[str] | None:
    """What changed after the other one began; None if unknown."""
    found: set[str] = set()
    for _, file, generation, _ in other.change.args.get("baseline", ()):
        later = since(file, generation)
        if later is None:
            return None
        found |= later
    return found


NOT_TOLD = (
    "The kernel did not report who made each change, so changes by others while the command ran count as the "
    "command's."
)


class Authorship(NamedTuple):
    others: dict[str, int] = {}  # what only others changed, with one of those processes
    left: dict[str, str] = {}  # changed only by others, with the effect of a watch that will record it
    own: frozenset[str] = frozenset()  # certainly changed only by the command


class Telling:
    """Who belongs to the command, and who changed what, from its beginning."""

    def __init__(
        self,
        pid: int,
        lineage: "Lineage",
        authors: dict[str, "Authors"],
        beside: Sequence[Effect] = (),
        shared: Collection[int] | None = None,
        is_note: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`authors` by the resource of each root; `beside`: commands that others watch there already. `shared`: others
        use the lineage too, and these processes, which began before it, belong to the command."""
        from takeback.adapters.watch.processes import family_of

        self._pid = pid
        self._lineage = lineage
        self._shared = shared
        self._is_note = is_note  # tells what the command keeps for itself
        self._authors = authors
        # Processes that they had started before we got the events.
        self._begun = {one.id: family_of(_process(one)) for one in beside if _process(one)}

    def close(self) -> None:
        if self._shared is None:
            self._lineage.close()

    def catch_up(self) -> None:
        """After a look: who made the changes that it found was started before it ended."""
        self._lineage.drain()

    def _own(self) -> set[int] | None:
        found = self._lineage.family(self._pid)
        for one in self._shared or ():
            found = found and found | (self._lineage.family(one) or set())
        return found

    def is_lost(self, now: "dict[str, Authors | None]") -> bool:
        """Whether of some root it is no longer known who changed what."""
        return self._lineage.family(self._pid) is None or any(
            now.get(root) is not book or not book.whole for root, book in self._authors.items()
        )

    def told(
        self,
        targets: Sequence[Target],
        now: "dict[str, Authors | None]",
        beside: Sequence[Effect] = (),
    ) -> Authorship:
        """Nothing where it cannot be known. `now` are the books that the feeds keep: another one than at the beginning
        does not tell everything. `beside`: the commands that others watch there now."""
        own, ours = self._own(), self._lineage.family(os.getpid())
        if own is None or ours is None:
            return Authorship()
        family = own | ours
        found = self._by_others(targets, now, family)
        left: dict[str, str] = {}
        for other in beside:
            begun = self._begun.get(other.id) or {_process(other).get("pid", 0)} - {0}
            theirs = [self._lineage.family(one) or set() for one in begun]
            without = self._by_others(targets, now, family.union(*theirs))
            left |= dict.fromkeys((one for one in found if one not in without and one not in left), other.id)
        others = {resource: pid for resource, pid in found.items() if resource not in left}
        # Calls of one agent at the same time have the same processes.
        alone = all(_process(other).get("pid") != self._pid for other in beside)
        return Authorship(others, left, frozenset(self._surely(targets, now, family) if alone else ()))

    def also_others(self, targets: Sequence[Target], now: "dict[str, Authors | None]") -> set[str]:
        """Of these, what a process of someone else changed as well. What went with a directory is not reported: it is
        as sure as the directory."""
        from takeback.model.resource import ancestors

        family = (self._own() or set()) | (self._lineage.family(os.getpid()) or set())
        found: set[str] = set()
        for root, authors in self._authors.items():
            if now.get(root) is authors:
                cut = len(root.rstrip("/")) + 1
                inside = (one for one in targets if _is_in(one.resource, root))
                for one in sorted(inside, key=lambda one: one.resource):
                    who = authors.of.get(one.resource[cut:], set())
                    whole = "absent" in (one.before["type"], one.after["type"])
                    gone = not who and whole and not found.isdisjoint(ancestors(one.resource))
                    if who - family - {0} or gone:
                        found.add(one.resource)
        return found

    def outside(self, store: bytes) -> tuple[str, ...]:
        """Changes of the command outside the roots, on the same filesystems, as far as the kernel reported them. Not in
        our store, and not what the command keeps for itself."""
        from takeback.adapters.watch.fanotify import changed_outside

        own = self._own()
        roots = [path_of(root) for root in self._authors]
        found = {
            file_resource(path)
            for book in self._authors.values()
            for path in (changed_outside(book, own, (*roots, store)) if own else ())
            if not (self._is_note and self._is_note(path))
            and os.path.basename(os.path.dirname(path))
            != os.fsencode(DIRECTORY)  # by a takeback in the command
        }
        return tuple(sorted(found))

    def _by_others(
        self, targets: Sequence[Target], now: "dict[str, Authors | None]", family: set[int]
    ) -> dict[str, int]:
        from takeback.adapters.watch.feed import by_others

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


def telling_of(core: RunCore, pid: int, books: "Mapping[str, Authors | None]") -> Telling | None:
    """Where a command is watched, and the kernel tells both who changes what and who starts whom."""
    from takeback.adapters.watch.processes import family_of, open_lineage

    authors = {root: book for root, book in books.items() if book is not None}
    if not authors:
        return None
    others = beside(core.parts.journal, list(books))
    if core.lineage is not None:
        if pid not in core.families:
            core.families[pid] = frozenset(family_of({"pid": pid}))
        return Telling(pid, core.lineage, authors, others, core.families[pid], core.is_note)
    lineage = open_lineage()
    return Telling(pid, lineage, authors, others) if lineage else None


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
    """As an effect of its own. None while they are still running: then its author is unknown."""
    from takeback.adapters.watch.adapter import change_found

    effect = begin(parts, lease, change, terms._replace(happened=True))
    try:
        return finish(parts, lease, effect, lambda: change_found(effect.change, parts.blobs, targets, ()))
    except StoreBusy:
        abort(parts, lease, adapter_of(parts, change.adapter), effect, "Others still change it.")
        return None


def left_to(left: dict[str, str], beside: Sequence[Effect]) -> str:
    """A sentence for changes that the watches of other commands will record."""
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
    return f"{_named(resources)} {'was' if len(resources) == 1 else 'were'}"


def sentence(found: dict[str, int], effect: Effect | None) -> str:
    from takeback.adapters.watch.processes import name_of

    who = ", ".join(dict.fromkeys(name_of(pid) for pid in list(found.values())[:_LISTED]))
    became = f": effect {short(effect.id)}" if effect else "; that keeps running, and is not recorded"
    return f"Not the command, but {who} changed {_named(found)} while it ran{became}."
