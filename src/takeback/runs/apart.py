"""Several at work in one directory: whose change is whose, as far as the journal knows."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from takeback.adapters.watch.apart import brought_back, without
from takeback.adapters.watch.moves import is_watched
from takeback.adapters.watch.steps import Step, steps_of
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.ids import short
from takeback.model.remedy import Target
from takeback.model.resource import ancestors, display, overlaps, path_of
from takeback.storage.protocols import Blobs, Journal, Query

_LISTED = 5


class Apart(NamedTuple):
    """What is left without what other effects are known to have done since a watch began."""

    targets: tuple[Target, ...]
    brought_back: frozenset[str]  # of these, what the others brought back just as they had found it
    turned_back: str  # a sentence, if what others did does not stand any more, and no target tells of it


def apart(journal: Journal, blobs: Blobs, proposal: Effect, targets: tuple[Target, ...]) -> Apart:
    steps, roots = _steps(journal, proposal), proposal.change.args.get("roots", ())
    left = without(targets, steps, roots, blobs)
    told = {one.resource for one in left if not one.before["type"] == one.after["type"] == "dir"}
    return Apart(left, brought_back(left, steps, blobs), _turned_back(steps, roots, told))


def _turned_back(steps: Mapping[str, list[Step]], roots: Sequence[str], told: Collection[str]) -> str:
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
    names = ", ".join(display(one) for one in list(found)[:_LISTED])
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    effects = ", ".join(short(one) for one in list(dict.fromkeys(found.values()))[:_LISTED])
    verb, it = ("is", "it") if len(found) == 1 else ("are", "them")
    return f"{names}{more} {verb} not as effect {effects} left {it}, but as before; no effect recorded that."


def _steps(journal: Journal, proposal: Effect) -> dict[str, list[Step]]:
    """By resource, what others did to it since, oldest first."""
    if next(journal.records(after=proposal.seq), None) is None:
        return {}  # nobody wrote anything since
    query = Query(told_after=proposal.seq, states=(State.DONE, State.UNDONE))
    others = [effect for effect in journal.effects(query) if effect.id != proposal.id]
    return steps_of(others)


def open_beside(
    journal: Journal,
    proposal: Effect,
    targets: Iterable[Target],
    since: Callable[[str, int], set[str] | None],
) -> str:
    """A sentence when other watches of the same directories are still going on: some of this may be their doing."""
    others = beside(journal, proposal.change.args.get("roots", ()), proposal.id)
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
    listed = ", ".join(display(one) for one in list(unsure)[:_LISTED])
    more = f" and {len(unsure) - _LISTED} more" if len(unsure) > _LISTED else ""
    return f"While it went on, {names} watched the same directory, and it cannot be known who changed {listed}{more}."


def beside(journal: Journal, roots: Sequence[str], but: str = "") -> list[Effect]:
    """Watches that go on, of these directories, of some in them or around them; all but that one."""
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


def _since(other: Effect, since: Callable[[str, int], set[str] | None]) -> set[str] | None:
    """What changed after the other one began; None if that cannot be told."""
    found: set[str] = set()
    for _, file, generation, _ in other.change.args.get("baseline", ()):
        later = since(file, generation)
        if later is None:
            return None
        found |= later
    return found
