"""Watch directories while someone else changes them: the earlier content is saved first, the changes are one effect."""

import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from takeback.adapters.protocol import FoundChange
from takeback.engine.write import Terms
from takeback.errors import Misuse, TakebackError
from takeback.model.change import Change, Facts
from takeback.model.effect import Effect
from takeback.model.resource import display
from takeback.model.settings import DAY
from takeback.runs.change import next_key, took_hold
from takeback.runs.commands.outcome import Changed, changed, of_roots
from takeback.runs.core import RunCore

if TYPE_CHECKING:
    from takeback.adapters.tree.targets import Target
    from takeback.adapters.watch.index import Hole
    from takeback.adapters.watch.watched_root import Baseline, WatchedRoot, WatchPlace
    from takeback.engine.parts import Parts
    from takeback.runs.watch_authors import Telling

ADAPTER = "tree"
_LISTED = 20
UNUSED = DAY  # after that the copy of a tree that was kept for the next watch of it is dropped


def _tree(core: RunCore, root: Any, place: "WatchPlace") -> "WatchedRoot":
    """A root that is watched again in the same run is followed by the kernel's own reports, so that only what changed
    is looked at."""
    from takeback.adapters.watch.inotify import open_feed
    from takeback.adapters.watch.watched_root import WatchedRoot

    watched = core.trees.get(root.resource)
    if watched is None:
        watched = core.trees[root.resource] = WatchedRoot(root, place)
        watched.follow(open_feed(root, again=False))
    elif watched.feed is None:
        watched.follow(open_feed(root, again=True, crowded=watched.crowded))
    return watched


class Watch:
    """From the beginning to the end of one watched change."""

    def __init__(
        self,
        core: RunCore,
        roots: "Sequence[str | bytes | os.PathLike[str]]",
        any_root: bool,
        about: dict[str, Any],
        summary: str,
    ) -> None:
        self._core = core
        self._named = roots
        self._any_root = any_root
        self._about = about
        self._summary = summary
        self._proposal: Effect | None = None
        self._roots: list[tuple[WatchedRoot, Baseline]] = []
        self.effect: Effect | None = None
        self.changes: tuple[Changed, ...] = ()
        self.left_out: tuple[Hole, ...] = ()  # what is not captured; named before anything is changed
        self.coverage = ""
        self._telling: Telling | None = None
        self._own: frozenset[str] = frozenset()  # what certainly only the command changed
        self._brought_back: frozenset[str] = frozenset()  # by other effects, so no stranger changed it last
        self._recorded: list[str] = []  # sentences for what others changed
        self.others = ""  # a sentence, when some of it is known to be others' doing: an effect of its own
        self.elsewhere: tuple[str, ...] = ()  # known changes by other effects since the beginning
        self.turned_back = ""  # a sentence, when some of that does not stand any more
        self.databases: tuple[Effect, ...] = ()  # what changed in databases that someone has open
        self.told_of_databases = ""
        self._as_databases: frozenset[str] = frozenset()  # their files
        self.shared = ""  # a sentence, when it cannot be known whose changes some of them are
        self.outside: tuple[str, ...] = ()  # what the command changed beyond the roots, where the kernel told

    def __enter__(self) -> "Watch":
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except TakebackError as trouble:
            if error is None:
                raise
            error.add_note(f"takeback: what was changed could not be recorded: {trouble}")

    def begin(self) -> None:
        """When this returns, everything below the roots can be brought back."""
        from takeback.adapters.watch.roots import refuse_dangerous, roots_of
        from takeback.adapters.watch.scan import Bounds

        if self._proposal is not None:
            raise Misuse("This watch was begun already.", hint="Ask the run for another one.")
        parts, settings = self._core.parts, self._core.settings
        parts.refuse_if_suspect()
        place = place_of(parts)
        roots = roots_of(self._named)
        refuse_dangerous(roots, place.store, self._any_root)
        bounds = Bounds(capture=settings.max_capture_bytes)
        if not self._any_root:
            bounds = bounds._replace(entries=settings.watch_entries, bytes=settings.watch_bytes)
        # Of what lies elsewhere in the store, once in a run is enough.
        release_dead(parts, place, [one.resource for one in roots] if self._core.trees else None)
        from takeback.adapters.watch.processes import identity

        try:
            for root in roots:
                watched = _tree(self._core, root, place)
                self._roots.append((watched, watched.begin(identity(os.getpid()), bounds)))
            self._telling = self._who_it_is()
            self._propose()
        except BaseException:
            self._release()
            raise

    def _who_it_is(self) -> "Telling | None":
        """Where a command is watched, and the kernel tells both who changes what and who starts whom."""
        books = {one.root: watched.authors(one.token) for watched, one in self._roots}
        authors = {root: book for root, book in books.items() if book is not None}
        pid = self._about.get("process", {}).get("pid")
        if not pid or not authors:
            return None
        from takeback.adapters.watch.processes import open_lineage
        from takeback.runs.watch_authors import Telling, beside

        lineage = open_lineage()
        if lineage is None:
            return None
        journal = self._core.parts.journal
        return Telling(pid, lineage, authors, beside(journal, [one.root for _, one in self._roots]))

    def _propose(self) -> None:
        from takeback.adapters.tree.targets import WATCH
        from takeback.adapters.watch.roots import refuse_destroyable
        from takeback.engine.watch import begin

        core, parts = self._core, self._core.parts
        roots = [baseline.root for _, baseline in self._roots]
        holes = [(baseline.root, hole) for watched, baseline in self._roots for hole in watched.holes()]
        holes = refuse_destroyable(holes, roots, self._any_root)
        self.left_out = tuple(hole._replace(path=f"{root}/{hole.path}") for root, hole in holes)
        self.coverage = of_roots(tuple(display(root) for root in roots), apart=self._telling is not None)
        args: dict[str, Any] = {
            **self._about,
            "roots": roots,
            "baseline": [list(baseline) for _, baseline in self._roots],
            "coverage": self.coverage,
            "began": time.time_ns(),
        }
        if self.left_out:
            args["left_out"] = [[hole.path, hole.reason] for hole in self.left_out[:_LISTED]]
        summary = self._summary or f"watch {', '.join(display(root) for root in roots)}"
        change = Change(ADAPTER, WATCH, roots[0], summary, args)
        terms = Terms(next_key(core, change), agent=core.agent)
        self._proposal = begin(parts, core.lease, change, terms)

    def finish(self, more: Mapping[str, Any] | None = None) -> Effect | None:
        """Record the changes since the beginning; `more` is recorded with them."""
        from takeback.engine.watch import finish

        if self._proposal is None or not self._roots:
            return self.effect
        core, proposal = self._core, self._proposal
        proposal = proposal._replace(
            change=proposal.change._replace(args={**proposal.change.args, **(more or {})})
        )
        with core.uninterrupted():
            self.effect = finish(core.parts, core.lease, proposal, lambda: self._found(proposal))
            if self._telling is not None:
                self.outside = tuple(self._telling.outside((place_of(core.parts).store,)))
            self._close()
            if self.effect:
                took_hold(core, self.effect)
        return self.effect

    def _found(self, proposal: Effect) -> FoundChange | None:
        from takeback.adapters.watch.adapter import change_found, compared
        from takeback.adapters.watch.other_effects import is_around
        from takeback.runs.watch_authors import apart, open_beside

        parts = self._core.parts

        every: set[str] = set()

        def minus(all: "tuple[Target, ...]") -> "tuple[Target, ...]":
            every.update(one.resource for one in all)
            found = apart(parts.journal, parts.blobs, proposal, all)
            self.turned_back, self._brought_back = found.turned_back, found.brought_back
            names = {one.resource for one in found.targets}
            self.elsewhere = tuple(
                one.resource for one in all if one.resource not in names and not _only_time(one)
            )
            return found.targets

        targets, residue = compared(proposal.change, self._roots, minus, parts.blobs)
        targets = self._without_databases(proposal, self._without_others(proposal, targets))
        seen = change_found(proposal.change, parts.blobs, targets, residue, every)
        if seen is None:
            return None
        self.changes = changed(one for one in targets if not _only_time(one) and not is_around(one))
        unsure = [one for one in targets if one.resource not in self._own and not _only_time(one)]
        self.shared = open_beside(parts.journal, proposal, unsure, self._since)
        if self.shared:
            args = seen.change.args | {"shared": self.shared}
            seen = FoundChange(seen.change._replace(args=args))
        return seen

    def _without_databases(self, proposal: Effect, targets: "tuple[Target, ...]") -> "tuple[Target, ...]":
        """Once: what is asked for again has the same databases in it, with what was written there to record them."""
        from takeback.adapters.file.sqlite_files import in_use, may_be_database

        rest = tuple(one for one in targets if one.resource not in self._as_databases)
        maybe = (one for one in rest if one.after["type"] == "file" and "size" in one.after)
        used = in_use(one.resource for one in maybe if may_be_database(one.resource, one.after["size"]))
        if not used:
            return rest
        from takeback.runs.watch_databases import record

        self._core.refuse_ended()
        found = record(self._core, proposal.change.summary, rest, used)
        self._as_databases |= found.resources
        self.databases += found.effects
        self.told_of_databases = " ".join(filter(None, (self.told_of_databases, found.sentence)))
        return tuple(one for one in rest if one.resource not in self._as_databases)

    def _without_others(self, proposal: Effect, targets: "tuple[Target, ...]") -> "tuple[Target, ...]":
        """Known changes by others become an effect of their own, which a failure does not take back; or are left to
        their own watch."""
        if self._telling is None:
            return targets
        from takeback.adapters.watch.other_effects import is_mixed
        from takeback.runs.watch_authors import NOT_TOLD, beside, left_to, record, sentence

        core, parts = self._core, self._core.parts
        books = {one.root: watched.authors(one.token) for watched, one in self._roots}
        others = beside(parts.journal, proposal.change.args["roots"], proposal.id)
        # What effects are known to have changed too is no stranger's.
        unsure = [one for one in targets if not is_mixed(one) and one.resource not in self._brought_back]
        told = self._telling.told(unsure, books, others)
        self._own = told.own
        said = [NOT_TOLD] if targets and self._telling.is_lost(books) else []
        gone: set[str] = set()
        if any(one.resource in told.left and not _only_time(one) for one in targets):
            said.append(left_to(told.left, others))
            gone |= told.left.keys()
        theirs = tuple(one for one in targets if one.resource in told.others)
        if not all(_only_time(one) for one in theirs):
            roots = proposal.change.args["roots"]
            args: dict[str, Any] = {"roots": roots, "baseline": [], "coverage": self.coverage}
            summary, facts = f"others, during: {proposal.change.summary}", Facts(others=True)
            change = proposal.change._replace(summary=summary, args=args, facts=facts)
            terms = Terms(agent=core.agent)  # not asked for, so it has no key
            self._recorded.append(sentence(told.others, record(parts, core.lease, change, terms, theirs)))
            gone |= told.others.keys()
        self.others = " ".join((*said, *self._recorded))
        return tuple(one for one in targets if one.resource not in gone)

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(self._proposal.change.args["roots"]) if self._proposal else ()

    @property
    def not_covered(self) -> str:
        """A sentence that names what the command changed beyond the roots; empty where nothing is known of that."""
        from takeback.runs.watch_authors import not_covered

        return not_covered(self.outside, self.roots)

    def _since(self, file: str, generation: int) -> set[str] | None:
        """What changed after another watch began, where we can know that."""
        for watched, baseline in self._roots:
            if baseline.file == file:
                return watched.since(generation)
        return None

    def _release(self) -> None:
        for watched, baseline in self._roots:
            watched.index.release((baseline.token,))
        self._close()

    def _close(self) -> None:
        for watched, baseline in self._roots:
            watched.end(baseline.token)
        self._roots = []
        if self._telling:
            self._telling.close()
            self._telling = None


def _only_time(target: "Target") -> bool:
    return target.before["type"] == target.after["type"] == "dir" and all(
        target.before.get(key) == target.after.get(key) for key in ("mode", "uid", "gid", "xattrs")
    )


def place_of(parts: "Parts") -> "WatchPlace":
    from takeback.adapters.watch.watched_root import WatchPlace
    from takeback.engine.parts import adapter_of

    place = getattr(adapter_of(parts, ADAPTER), "place", None)
    if not isinstance(place, WatchPlace):
        raise Misuse("This store cannot watch directories.", hint="Use a store on disk.")
    return place._replace(room=parts.refuse_without_room, blobs=parts.blobs)


def release_dead(parts: "Parts", place: "WatchPlace", roots: "Sequence[str] | None" = None) -> None:
    """Watches that were registered by processes which died before they could propose anything; of these roots only, if
    some are named."""
    from takeback.adapters.watch.adapter import baselines_of
    from takeback.adapters.watch.index import Index, index_name, indexes_in
    from takeback.adapters.watch.processes import lives
    from takeback.model.effect import OPEN_STATES
    from takeback.storage.protocols import Query

    for name in indexes_in(place.directory):
        if roots is not None and name not in map(index_name, roots):
            continue
        index = place.opened.get(name) or Index(place.directory, name)
        try:
            dead = [watch.token for watch in index.watches() if not lives(watch.owner)]
            if dead:
                effects = parts.journal.effects(Query(states=OPEN_STATES))
                needed = {one.token for effect in effects for one in baselines_of(effect.change)}
                index.release([token for token in dead if token not in needed])
        finally:
            if index is not place.opened.get(name):
                index.close()


def any_unused(store: str, now: float) -> bool:
    """Whether a sweep would drop some. Asked at the end of each run, so that nothing is loaded where there are none."""
    directory = os.path.join(store, "watch")
    if not os.path.isdir(directory):
        return False
    from takeback.adapters.watch.index import last_used

    return any(used < now - UNUSED for used in last_used(directory))


def drop_unused(parts: "Parts", before: float) -> int:
    """Remove indexes of directories that are gone, or not watched since that time; a new watch starts from nothing. How
    many bytes were freed; the contents are freed by the sweep that follows."""
    from takeback.adapters.watch.index import Index, indexes_in
    from takeback.model.resource import path_of

    try:
        place = place_of(parts)
    except Misuse:
        return 0
    release_dead(parts, place)

    def unused(root: str, used: float) -> bool:
        return used < before or bool(root and not os.path.isdir(path_of(root)))

    return sum(Index(place.directory, name).drop(unused) for name in indexes_in(place.directory))
