"""Many paths as one effect: what a sandboxed command left, merged and taken back; what was found in a watched tree."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from takeback.adapters.file.build import Tools, release_held, release_returned
from takeback.adapters.file.os_errors import translated
from takeback.adapters.file.paths import scratch
from takeback.adapters.file.sqlite_files import refuse_in_use
from takeback.adapters.file.verify import look_again, off_its_ground
from takeback.adapters.protocol import (
    TRAITS,
    Assessment,
    FoundChange,
    Receipt,
    demand_captured,
    demand_remedy,
    refuse_foreign,
)
from takeback.adapters.tree.apply import Carrier, bring_to_rest
from takeback.adapters.tree.build import Lent
from takeback.adapters.tree.capture import (
    VERSION,
    capture_change,
    capture_undo,
    demand_before,
    grounds_of,
    is_timed,
)
from takeback.adapters.tree.git.layout import may_be_gits
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.swap import Swap
from takeback.adapters.tree.targets import WATCH, Unit, bonds_of, read_targets, units_of
from takeback.adapters.tree.undo import PathStep, SeenPath, TreeUndo
from takeback.adapters.tree.verify import sight
from takeback.errors import Misuse, TakebackError
from takeback.model.change import UNDO, Change, Staged
from takeback.model.effect import Effect, State
from takeback.model.plan import Bond, Sighting, Standing
from takeback.model.progress import SILENT, Progress
from takeback.model.remedy import Offer, Remedy, Strategy, Target
from takeback.storage.protocols import Blobs

Found = Callable[[Effect, Sequence[Effect]], FoundChange | None]

_IN_FLIGHT = (State.INTENDED, State.STUCK)


class TreeAdapter:
    """A fresh one can do everything; one that captured an effect itself knows that there is no scratch of it yet."""

    version = VERSION

    def __init__(
        self,
        name: str,
        blobs: Blobs,
        held: str = "",
        found: Found | None = None,
        progress: Progress = SILENT,
    ) -> None:
        """`name` is "command" or "tree"; `found` tells what changed in a watched tree."""
        self.name = name
        self.traits = TRAITS["tree"]._replace(watches=found is not None)
        self._tools = Tools(blobs, held, progress=progress)
        self._found = found
        self._untried: set[str] = set()  # captured here and not applied yet
        # Captured and applied here, at the first attempt: no scratch can be left.
        self._clean: set[str] = set()
        # From the last plan of an undo; most callers plan twice and then undo.
        self._seen: tuple[str, Mapping[str, SeenPath]] = ("", {})
        self._lent: dict[str, Lent] = {}  # by the digest of the targets
        self._listed: tuple[str, tuple[Target, ...]] = (
            "",
            (),
        )  # as they were assessed, until they are captured
        # Found done, and not recorded as done: who did it may have died at the end.
        self._met: set[str] = set()

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        if change.kind == UNDO:
            return self._assess_undo(change, of)
        digest: str = change.args["targets"]
        self._listed = digest, read_targets(self._tools.blobs, digest)
        targets = [t for t in self._listed[1] if not is_timed(t)]
        if change.kind != WATCH:
            with Places(targets) as places:
                demand_before(targets, places, self._tools.progress)
        if change.phase.was_held:  # who merges at once has just looked
            refuse_in_use(target.resource for target in targets if target.before["type"] == "file")
        why = "the earlier content is in the store, path by path"
        return Assessment(
            resources=tuple(target.resource for target in targets),
            offers=(Offer(Strategy.SNAPSHOT, exact=change.args.get("exact", True), why=why),),
            changes_nothing=not targets,
            lost=tuple(change.args.get("lost", ())),
        )

    def _assess_undo(self, change: Change, of: Effect | None) -> Assessment:
        of = demand_remedy(of)
        name, lately = self._seen
        steps, seen = self._planned(change, of, keep=False, lately=lately if name == of.id else {})
        self._seen = (of.id, seen)
        targets = [step.target for step in steps if step.target is not None]
        cost = sum(target.before.get("size", target.before.get("bytes", 0)) for target in targets)
        why = "what is there now is kept, so that redo can bring it back"
        return Assessment(
            resources=tuple(step.outcome.resource for step in steps),
            offers=(Offer(Strategy.SNAPSHOT, cost=cost, why=why),),
            changes_nothing=not targets,
            outcomes=tuple(step.outcome._replace(effect=of.id) for step in steps),
        )

    def _planned(
        self, change: Change, of: Effect, keep: bool, lately: Mapping[str, SeenPath]
    ) -> tuple[list[PathStep], Mapping[str, SeenPath]]:
        """What lies inside git directories is compared by what it means to git."""
        from takeback.adapters.tree.git.undo import git_aware

        terms = change.undo
        undoing = TreeUndo(of, terms, self._tools, keep, lately)
        return git_aware(undoing.plan(), of, terms.on_conflict, self._tools, keep), undoing.seen

    @contextmanager
    def lent(self, change: Change, sources: Mapping[str, bytes]) -> Iterator[None]:
        """During `apply`, these files may be moved into the world as they are: no other process can write to them, and
        they are not needed afterwards."""
        digest: str = change.args["targets"]
        lent = self._lent[digest] = Lent(sources)
        try:
            yield
        except BaseException:
            lent.give_back()
            raise
        finally:
            del self._lent[digest]

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        return ()

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        (digest, listed), self._listed = self._listed, ("", ())
        if effect.change.kind != UNDO:
            known = listed if digest == effect.change.args["targets"] else None
            remedy = capture_change(effect, self.name, self._tools, known)
        else:
            of = demand_remedy(effect.of)
            self._seen = ("", {})
            steps, _ = self._planned(effect.change, of, keep=True, lately={})
            remedy = capture_undo(effect, of, steps, self.name, self._tools)
        self._untried.add(effect.id)
        return remedy

    def apply(self, effect: Effect) -> Receipt:
        first = effect.id in self._untried
        self._untried.discard(effect.id)
        self._carry(effect, forward=True, first=first)
        if first:
            self._clean.add(effect.id)
        return Receipt()

    def whole_files(self, effect: Effect) -> tuple[Target, ...]:
        return effect.targets

    def bonds(self, effect: Effect) -> Sequence[tuple[Bond, frozenset[str]]]:
        return bonds_of(effect.targets)

    def verify(self, effect: Effect) -> Sighting:
        if effect.remedy is None:
            return Sighting(Standing.BEFORE, "nothing was begun")
        clean = effect.id in self._clean
        # What was captured a moment ago lies where it lay then.
        if not clean and effect.id not in self._untried and (moved := off_its_ground(effect)):
            return moved
        found = effect.change.kind == WATCH and effect.state is State.PROPOSED
        beside: list[str] = effect.change.args.get("beside", [])
        grounds, progress = grounds_of(effect), self._tools.progress
        sighting = look_again(
            lambda: sight(effect.id, effect.targets, grounds, clean, found, beside, progress)
        )
        if sighting.standing is Standing.AFTER and not clean and effect.state in _IN_FLIGHT:
            self._met.add(effect.id)
        return sighting

    def undo(self, effect: Effect) -> None:
        self._clean.discard(effect.id)
        sighting = self.verify(effect)
        self._met.discard(effect.id)
        refuse_foreign(sighting, effect)
        self._carry(effect, forward=False)

    def _carry(self, effect: Effect, forward: bool, first: bool = False) -> None:
        demand_captured(effect)
        units = units_of(effect.targets, forward)
        lent = self._lent.get(effect.change.args.get("targets", "")) if first else None
        with Places(effect.targets) as places, self._git_locks(effect, units, places):
            Carrier(effect.id, grounds_of(effect), self._tools, places, forward, first, lent).carry(units)
        self._release_returned(effect)

    def _git_locks(
        self, effect: Effect, units: Sequence[Unit], places: Places
    ) -> AbstractContextManager[None]:
        changed = [unit.resource for unit in units if may_be_gits(unit.resource)]
        if not changed:
            return nullcontext()
        from takeback.adapters.tree.git.undo import locked

        return locked(effect.id, effect.targets, changed, places)

    def _release_returned(self, effect: Effect) -> None:
        if not any("held" in state for target in effect.targets for state in (target.before, target.after)):
            return
        with Places(effect.targets) as places:
            for target in effect.targets:
                place = places.within_reach(target.resource)
                for state in (target.before, target.after):
                    if place and "held" in state:
                        release_returned(self._tools, place, state)

    def tidy(self, effect: Effect) -> None:
        # Changes that were found in the world were not put there by us.
        found = effect.id in self._untried and effect.change.kind == WATCH
        self._untried.discard(effect.id)
        if effect.id in self._clean or effect.remedy is None or found:
            self._clean.discard(effect.id)
            return
        units = units_of(effect.targets)
        with Places(effect.targets) as places:
            for unit in units:
                if unit.adjusts:
                    continue
                with translated(unit.resource):
                    place = places.within_reach(unit.resource)
                    if place:
                        Swap(unit, place, scratch(effect.id, unit.number, place.name), self._tools).tidy()
            changed = [unit.resource for unit in units if may_be_gits(unit.resource)]
            if changed:
                from takeback.adapters.tree.git.undo import release_left

                release_left(effect.id, effect.targets, changed, places)
            if effect.id in self._met:
                self._met.discard(effect.id)
                # Scratch that went moved the times of directories; these are never worth failing.
                with suppress(OSError, TakebackError):
                    carrier = Carrier(
                        effect.id, grounds_of(effect), self._tools, places, forward=True, first=False
                    )
                    carrier.put_directories_right(units)
        self._release_returned(effect)

    def rest(self, effect: Effect) -> None:
        self._clean.discard(effect.id)
        self._met.discard(effect.id)
        bring_to_rest(effect.id, effect.targets, grounds_of(effect), self._tools)

    def release(self, effect: Effect) -> None:
        """The power to undo it was given up: let go of the inodes held for it."""
        release_held(self._tools, effect.id)

    def found(self, effect: Effect, others: Sequence[Effect]) -> FoundChange | None:
        if self._found is None:
            raise Misuse(
                f"The adapter {self.name!r} does not watch.",
                hint="Only effects of watched trees are compared.",
            )
        return self._found(effect, others)
