"""Watch directories while someone else changes them: the earlier content is saved first, the changes are one effect."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from takeback.adapters.protocol import FoundChange
from takeback.engine.write import Terms, proposed
from takeback.errors import Misuse, TakebackError
from takeback.model.change import Change, Facts
from takeback.model.effect import Effect
from takeback.model.ids import new_id
from takeback.model.remedy import BY_WHOM, OTHERS_TOO, UNKNOWN, doubted
from takeback.model.resource import display
from takeback.runs.change import next_key, took_hold
from takeback.runs.commands.outcome import Changed, changed, of_roots
from takeback.runs.core import RunCore
from takeback.runs.watch_place import ADAPTER, Manner, bounds_of, left_late, place_of, roots_to_watch

if TYPE_CHECKING:
    from takeback.adapters.tree.targets import Target
    from takeback.adapters.watch.feed import Authors
    from takeback.adapters.watch.index import Hole
    from takeback.adapters.watch.watched_root import Baseline, Claim, WatchedRoot
    from takeback.runs.watch_authors import Telling

_LISTED = 20


class Watch:
    """From the beginning to the end of one watched change."""

    def __init__(
        self,
        core: RunCore,
        roots: "Sequence[str | bytes | os.PathLike[str]]",
        any_root: bool,
        about: dict[str, Any],
        summary: str,
        manner: Manner,
    ) -> None:
        self._core = core
        self._manner = manner
        self._began, self._position = 0, 0
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
        """When this returns, everything below the roots can be brought back. One with a key may be begun again."""
        if self._manner.key and self._core.watches.get(self._manner.key) is self:
            return
        if self._proposal is not None:
            raise Misuse("This watch was begun already.", hint="Ask the run for another one.")
        from takeback.runs.watch_authors import telling_of

        if not self._roots or self._manner.late:  # else that is asked when it is proposed
            self._core.parts.refuse_if_suspect()
        key, whole = self._manner.key, self._manner.whole
        try:
            if self._roots:  # from where another one ended
                if self._manner.late:  # which has recorded what it found by now
                    self._position = self._core.parts.journal.newest()
            elif self._manner.late and (late := left_late(self._core, self._named, key, whole)):
                return self.take_up(None, *late)
            else:
                self._look()
            pid = self._about.get("process", {}).get("pid")
            self._telling = telling_of(self._core, pid, self._books()) if pid else None
            if not self._manner.late:
                self._propose()
            if self._manner.key:
                self._core.watches[self._manner.key] = self
        except BaseException:
            self._release()
            raise

    def _look(self) -> None:
        roots = roots_to_watch(self._core, self._named, self._any_root, self._manner.whole)
        self._starts()
        bounds = bounds_of(self._core.settings, self._any_root)
        for watched in roots:
            self._roots.append((watched, watched.begin(self._owner(), bounds)))

    def _starts(self) -> None:
        """Right before the look from which it knows what changes."""
        self._began, self._position = time.time_ns(), self._core.parts.journal.newest()

    def _owner(self, after: str = "") -> dict[str, Any]:
        """As long as this process lives, its baseline is needed."""
        from takeback.adapters.watch.processes import identity

        if not self._manner.late:
            return identity(os.getpid())
        return {
            **(self._about.get("process") or identity(os.getpid())),
            "late": self._manner.key,
            "since": self._position,
            "began": self._began,
            "after": after,
        }

    def take_up(
        self, proposal: Effect | None, roots: "list[tuple[WatchedRoot, Baseline]]", since: int
    ) -> None:
        """Continue what another process began; who made the changes until now cannot be known any more."""
        self._proposal, self._roots, self._position = proposal, roots, since
        self._core.watches[self._manner.key] = self

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
            "began": self._began,
        }
        if self._manner.late:
            args["since"] = self._position
        if self._manner.doubts:
            args["doubts"] = True
        if self.left_out:
            args["left_out"] = [[hole.path, hole.reason] for hole in self.left_out[:_LISTED]]
        summary = self._summary or f"watch {', '.join(display(root) for root in roots)}"
        facts = Facts(others=bool(self._manner.beside))
        if facts.others:
            args[BY_WHOM] = UNKNOWN
        change = Change(ADAPTER, WATCH, roots[0], summary, args, facts=facts)
        # What has no call is not asked for by anybody, so it has no key.
        key = "" if self._manner.late else self._manner.key or next_key(core, change)
        terms = Terms(
            key,
            agent=core.agent,
            fresh=self._manner.fresh,
            happened=self._manner.late,
            judged=core.asked_first,
        )
        self._proposal = begin(parts, core.lease, change, terms)

    def finish(self, more: Mapping[str, Any] | None = None, then: "Watch | None" = None) -> Effect | None:
        """Record the changes since the beginning; `more` is recorded with them. `then` begins with the last look of
        this one, so that nothing falls between them."""
        from takeback.engine.watch import finish

        then = then if then and not then._roots else None
        if then:
            then._starts()
        if self._manner.late and self._proposal is None and self._roots:
            if not self._found_any(then):
                self._pass_on(then)
                return None
            self._propose()
        if self._proposal is None or not self._roots:
            return self.effect
        core, proposal = self._core, self._proposal
        proposal = proposal._replace(
            change=proposal.change._replace(args={**proposal.change.args, **(more or {})})
        )
        claims = [then.claim(proposal.id) for _ in self._roots] if then else []
        with core.uninterrupted():
            try:
                self.effect = finish(core.parts, core.lease, proposal, lambda: self._found(proposal, claims))
            except BaseException:
                self._drop(claims)
                with suppress(TakebackError):
                    core.parts.blobs.sync()
                raise
            for watched, _ in self._roots:
                watched.index.is_kept()
            if then and all(watched.is_there for watched, _ in self._roots):
                begun = zip(self._roots, claims, strict=True)
                then._roots = [(watched, watched.claimed(token)) for (watched, _), (token, _) in begun]
            self._close()
            if self.effect:
                took_hold(core, self.effect)
        return self.effect

    def claim(self, after: str = "") -> "Claim":
        """For the look with which another watch ends, or has ended."""
        return new_id(), self._owner(after)

    def _drop(self, claims: "Sequence[Claim]") -> None:
        for (watched, _), (token, _) in zip(self._roots, claims, strict=False):  # none, if none follows
            with suppress(TakebackError):
                watched.index.release((token,))

    def _pass_on(self, then: "Watch | None") -> None:
        """Nothing was found, so what this one needs is what the next one needs."""
        if then is None or not all(watched.is_there for watched, _ in self._roots):
            return self._release()
        if all(one.last.generation == baseline.generation for one, baseline in self._roots):
            then._roots = [(one, one.claimed(baseline.token)) for one, baseline in self._roots]
            self._roots = []
            return self._close()
        then._roots = [(one, one.claim(then.claim())) for one, _ in self._roots]
        return self._release()

    def _found_any(self, then: "Watch | None") -> bool:
        # Only where a feed tells: then it is nearly always so, and no more has to be asked.
        if all(watched.is_as_at(baseline) for watched, baseline in self._roots):
            position = then._position if then else self._core.parts.journal.newest()
            if position == self._position:
                return False
        from takeback.adapters.watch.adapter import compared
        from takeback.runs.watch_authors import apart

        roots, parts = [one.root for _, one in self._roots], self._core.parts
        change = Change(ADAPTER, "", "", "", {"roots": roots, "began": self._began, "since": self._position})
        asked = proposed(self._core.lease, change, Terms())

        def minus(all: "tuple[Target, ...]") -> "tuple[Target, ...]":
            return apart(parts.journal, parts.blobs, asked, all).targets

        targets, _ = compared(change, self._roots, minus, parts.blobs)
        return not all(map(_only_time, targets))

    def _found(self, proposal: Effect, claims: "Sequence[Claim]") -> FoundChange | None:
        from takeback.adapters.tree.targets import put_targets
        from takeback.adapters.watch.adapter import change_found, compared
        from takeback.adapters.watch.other_effects import is_around
        from takeback.runs.watch_authors import apart, beside, left_to_edits, open_beside

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

        targets, residue = compared(proposal.change, self._roots, minus, parts.blobs, claims, kept=False)
        if self._telling is not None:
            self._telling.catch_up()
            self.outside = self._telling.outside(place_of(parts).store)
        others = beside(parts.journal, proposal.change.args["roots"], proposal.id)
        targets = left_to_edits(self._without_others(proposal, targets, others), others)
        targets = self._without_databases(proposal, targets)
        sure = self._is_sure()
        if self._manner.doubts:
            targets = self._doubted(targets, sure)
        seen = change_found(proposal.change, parts.blobs, targets, residue, every)
        outside = [display(one) for one in self.outside[:_LISTED]]
        if seen is None and outside and self._manner.doubts:
            # Of a call by an agent: nothing to take back, and the history tells what it did all the same.
            nothing = {"targets": put_targets(parts.blobs, ()), "outside": outside}
            return FoundChange(proposal.change._replace(args={**proposal.change.args, **nothing}))
        if seen is None:
            return None
        self.changes = changed(one for one in targets if not _only_time(one) and not is_around(one))
        unsure = [one for one in targets if one.resource not in self._own and not _only_time(one)]
        self.shared = open_beside(others, unsure, self._since)
        args = dict(seen.change.args)
        if self.shared:
            args["shared"] = self.shared
        if outside:
            args["outside"] = outside
        change = seen.change._replace(args=args, summary=f"{self._manner.beside}{seen.change.summary}")
        if self._manner.late and not sure:
            change = change._replace(facts=Facts(others=True), args={**change.args, BY_WHOM: UNKNOWN})
        elif self._manner.beside and sure:
            del args[BY_WHOM]
            change = change._replace(facts=Facts())
        return FoundChange(change)

    def _is_sure(self) -> bool:
        """Whether it is known of every change who made it."""
        telling = self._telling
        return telling is not None and not telling.is_lost(self._books())

    def _books(self) -> "dict[str, Authors | None]":
        return {one.root: watched.authors(one.token) for watched, one in self._roots}

    def _doubted(self, targets: "tuple[Target, ...]", sure: bool) -> "tuple[Target, ...]":
        if not sure or self._telling is None:
            return tuple(one if _only_time(one) else doubted(one, UNKNOWN) for one in targets)
        too = self._telling.also_others(targets, self._books())
        return tuple(doubted(one, OTHERS_TOO) if one.resource in too else one for one in targets)

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

    def _without_others(
        self, proposal: Effect, targets: "tuple[Target, ...]", others: "list[Effect]"
    ) -> "tuple[Target, ...]":
        """Known changes by others become an effect of their own, which a failure does not take back; or are left to
        their own watch."""
        if self._telling is None:
            return targets
        from takeback.adapters.watch.other_effects import is_mixed
        from takeback.runs.watch_authors import NOT_TOLD, left_to, record, sentence

        core, parts = self._core, self._core.parts
        books = self._books()
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
            when = "between calls" if self._manner.late else f"during: {proposal.change.summary}"
            summary, facts = f"others, {when}", Facts(others=True)
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
        self._core.watches.pop(self._manner.key, None)
        if self._telling:
            self._telling.close()
            self._telling = None


def _only_time(target: "Target") -> bool:
    return target.before["type"] == target.after["type"] == "dir" and all(
        target.before.get(key) == target.after.get(key) for key in ("mode", "uid", "gid", "xattrs")
    )
