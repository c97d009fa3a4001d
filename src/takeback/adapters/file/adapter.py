"""Files, directories, links: changed and taken back exactly."""

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial

from takeback.adapters.file.assess import assess_change, place_of
from takeback.adapters.file.build import Tools, release_held, release_returned
from takeback.adapters.file.capture import VERSION, capture_change
from takeback.adapters.file.directory import PATH, ReadScope, SeenDirectory, read_manifest
from takeback.adapters.file.look import look
from takeback.adapters.file.move import FileMove, come_back, demand_exact, go, goes_across, move_of
from takeback.adapters.file.os_errors import CannotCapture, in_our_words, translated
from takeback.adapters.file.paths import Place, open_place, scratch
from takeback.adapters.file.remove import Custody, remove_built, remove_file, remove_what_is_ours
from takeback.adapters.file.stage import StagedFile, make_ready, wanted_files
from takeback.adapters.file.states import FileState, linked_names, same
from takeback.adapters.file.swap import bring
from takeback.adapters.file.undo import SeenFiles, plan_undo, recognisable, unchanged
from takeback.adapters.file.verify import look_again, manner_of, open_again, sight
from takeback.adapters.protocol import (
    TRAITS,
    Assessment,
    Receipt,
    Staged,
    demand_captured,
    demand_remedy,
    refuse_foreign,
)
from takeback.errors import Drifted, Stuck, TakebackError, VerifyFailed
from takeback.model.change import UNDO, Change
from takeback.model.effect import Effect
from takeback.model.plan import Bond, Sighting
from takeback.model.progress import SILENT, Progress
from takeback.model.remedy import Offer, Remedy, Strategy, Target
from takeback.model.resource import display
from takeback.storage.protocols import Blobs


class FileAdapter:
    """Between stage and apply it holds the staged files, by effect; a fresh one can do everything but needs longer."""

    name = "file"
    version = VERSION
    traits = TRAITS["file"]

    def __init__(
        self, blobs: Blobs, held: str = "", max_capture_bytes: int = 0, progress: Progress = SILENT
    ) -> None:
        """`held` is a directory inside the store, on the files' filesystem if hard links are to be made whole."""
        self._tools = Tools(blobs, held, max_capture_bytes, progress)
        self._ready: dict[str, list[StagedFile]] = {}
        self._seen: dict[str, dict[int, SeenDirectory]] = {}
        self._synced: set[str] = set()  # carried out here, and durable
        self._untried: set[str] = set()  # captured here and not applied yet
        # Captured and applied here, at the first attempt: no scratch can be left.
        self._clean: set[str] = set()

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        if change.kind != UNDO:
            return assess_change(change, self._tools)
        of = demand_remedy(of)
        steps = plan_undo(of, change.undo, self._tools, ReadScope(progress=self._tools.progress))
        targets = [step.target for step in steps if step.target is not None]
        cost = sum(target.before.get("size", target.before.get("bytes", 0)) for target in targets)
        return Assessment(
            resources=tuple(target.resource for target in of.targets),
            offers=(
                Offer(
                    Strategy.SNAPSHOT,
                    cost=cost,
                    why="what is there now is kept, so that redo can bring it back",
                    seen=recognisable(steps, change.undo),
                ),
            ),
            changes_nothing=not targets,
            outcomes=tuple(step.outcome._replace(effect=of.id) for step in steps),
            together=move_of(of) is not None or goes_across(of),
        )

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        if effect.change.kind not in ("write", "write_all"):
            return ()
        ready = self._make_ready(effect, named)
        return tuple(Staged(each.resource, each.path, each.content, each.state["mode"]) for each in ready)

    def _make_ready(self, effect: Effect, named: bool) -> list[StagedFile]:
        self._drop(effect.id)
        ready = self._ready.setdefault(effect.id, [])
        inexact = effect.change.facts.allow_inexact
        for index, wanted in enumerate(wanted_files(effect.change)):
            with translated(wanted.resource), place_of(wanted.resource) as place:
                ready.append(make_ready(place, wanted, effect.id, index, self._tools, named, inexact))
        return ready

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        ready = self._ready.get(effect.id, [])
        if effect.change.kind in ("write", "write_all") and not ready:
            ready = self._make_ready(effect, named=False)
        captured = capture_change(effect, offer, ready, self._tools)
        self._seen[effect.id] = captured.seen
        self._untried.add(effect.id)
        return captured.remedy

    def apply(self, effect: Effect) -> Receipt:
        first = effect.id in self._untried
        self._untried.discard(effect.id)
        named = any(ready.named for ready in self._ready.get(effect.id, []))
        self._carry_out(effect, forward=True, first=first)
        self._drop(effect.id)
        if first and not named:
            self._clean.add(effect.id)
        return Receipt()

    def unchanged(self, effect: Effect, seen: Assessment) -> bool:
        steps = seen.offers[0].seen
        return isinstance(steps, SeenFiles) and unchanged(effect, steps)

    def whole_files(self, effect: Effect) -> tuple[Target, ...]:
        return effect.targets

    def bonds(self, effect: Effect) -> Sequence[tuple[Bond, frozenset[str]]]:
        """Both names of a move, of which neither is back without the other; names of one file."""
        if effect.remedy is None:
            return ()
        if move_of(effect) is not None or goes_across(effect):
            return ((Bond.MOVE, frozenset(one.resource for one in effect.targets)),)
        return linked_names(effect.targets)

    def never_held(self, target: Target, resource: str) -> bool:
        directories = [one for one in (target.before, target.after) if one["type"] == "dir"]
        if any("manifest" not in one for one in directories):
            return False
        path = resource[len(target.resource) + 1 :]
        listed = (row for one in directories for row in read_manifest(self._tools.blobs, one["manifest"]))
        return all(row[PATH] != path for row in listed)

    def verify(self, effect: Effect) -> Sighting:
        return look_again(lambda: sight(effect, clean=effect.id in self._clean))

    def undo(self, effect: Effect) -> None:
        self._clean.discard(effect.id)
        self._carry_out(effect, forward=False)

    def _carry_out(self, effect: Effect, forward: bool, first: bool = False) -> None:
        demand_captured(effect)
        move = move_of(effect)
        if move is not None:
            self._move(effect, move, go_there=forward is not move.back)
        else:
            self._bring_all(effect, forward, first)
        self._synced.add(effect.id)
        # Only now that their own names are durable.
        for target in effect.targets:
            if any("held" in state or "holds" in state for state in (target.before, target.after)):
                self._at(target.resource, partial(self._release_returned, target))

    def _bring_all(self, effect: Effect, forward: bool, first: bool) -> None:
        changed: list[tuple[int, Target]] = []
        targets = list(enumerate(effect.targets))
        if len(targets) > 1 and not forward:
            # Before the first of several is touched, all are looked at.
            refuse_foreign(self.verify(effect), effect)
        for index, target in targets if forward else reversed(targets):
            try:
                made = self._bring(effect, index, target, forward, first)
                if made:
                    changed.append((index, target))
                if goes_across(effect):
                    self._confirm(target, target.after if forward else target.before, made)
            except (TakebackError, OSError) as trouble:
                # All or nothing: files that were moved before go back. An undo stays where it stopped, and can be
                # continued.
                if forward and not self._only_copied(effect):
                    self._take_back(effect, changed, trouble)
                raise
        if len(targets) > 1:
            self._sync({target.resource for target in effect.targets})

    def _confirm(self, target: Target, goal: FileState, made: bool) -> None:
        """The copy is exact and durable before the original goes; also one that a killed process put there."""
        if goal["type"] != "absent":
            with translated(target.resource), place_of(target.resource) as place:
                if made:
                    demand_exact(place, goal, self._tools)
                sync_directory(place)

    def _only_copied(self, effect: Effect) -> bool:
        """A move to another filesystem whose original went and could not be given back: the copy is all there is."""
        if not goes_across(effect):
            return False
        try:
            with open_place(effect.targets[-1].resource) as original:
                return original.stat() is None
        except OSError:
            return True

    def _bring(self, effect: Effect, index: int, target: Target, forward: bool, first: bool = False) -> bool:
        start, goal = (target.before, target.after) if forward else (target.after, target.before)
        seen = self._seen.get(effect.id, {}).get(index) if forward else None
        opened = place_of if forward else open_again
        with translated(target.resource), opened(target.resource) as place:
            names = scratch(effect.id, index, place.name)
            ready = self._ready.get(effect.id, [])[index : index + 1] if forward else []
            fd = next((one.fd for one in ready if not one.named), -1)
            changed = bring(place, names, start, goal, self._tools, fd, seen, first)
            if len(effect.targets) == 1:
                # Also when it was there already: who put it there may have died before this.
                sync_directory(place)
            return changed

    def _take_back(self, effect: Effect, changed: list[tuple[int, Target]], trouble: Exception) -> None:
        for index, target in reversed(changed):
            try:
                self._bring(effect, index, target, forward=False)
            except (TakebackError, OSError) as worse:
                raise Stuck(
                    f"A write of several files failed ({trouble}), and {display(target.resource)} is not back.",
                    hint=f"{worse} Run `takeback show` on the effect to see what belongs there.",
                    effect=effect.id,
                ) from trouble
        self._sync({target.resource for _, target in changed})

    def _move(self, effect: Effect, move: FileMove, go_there: bool) -> None:
        seen = self._seen.get(effect.id, {}).get(0)
        with place_of(move.old) as old, place_of(move.new) as new, translated(move.old):
            names = scratch(effect.id, 0, old.name)
            if go_there:
                go(old, new, names, move, self._tools, seen)
            else:
                come_back(old, new, names, move, self._tools)
        self._sync({move.old, move.new})

    def _sync(self, resources: set[str]) -> None:
        """Make the names durable: each directory once."""
        for resource in {resource.rpartition("/")[0]: resource for resource in resources}.values():
            try:
                with translated(resource), open_again(resource) as place:
                    sync_directory(place)
            except Drifted as error:
                # The file has changed: this must not look like a change that was never begun.
                raise VerifyFailed(str(error), hint="It was taken back.") from error

    def tidy(self, effect: Effect) -> None:
        self._drop(effect.id)
        self._untried.discard(effect.id)
        if effect.remedy is None:
            staged = wanted_files(effect.change) if effect.change.kind in ("write", "write_all") else []
            for index, wanted in enumerate(staged):
                self._at(wanted.resource, partial(_remove_building, effect.id, index))
            return
        synced = effect.id in self._synced
        self._synced.discard(effect.id)
        if effect.id in self._clean:
            self._clean.discard(effect.id)
            return
        for index, target in enumerate(effect.targets):
            self._at(target.resource, partial(self._tidy_target, effect.id, index, target))
            if not synced:
                # Someone else's apply, who may have died before it was durable; the outcome is recorded next.
                self._at(target.resource, sync_directory)
        move = move_of(effect)
        if move is not None:
            removed = Target(move.old, move.replaced, move.what)
            self._at(move.old, partial(self._tidy_target, effect.id, 0, removed))

    def _at(self, resource: str, work: Callable[[Place], None]) -> None:
        try:
            with open_place(resource) as place:
                work(place)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if error.errno == errno.ELOOP:
                return  # its directory was put elsewhere, and nothing is reached through the link in its place
            raise in_our_words(error, resource) from error

    def _tidy_target(self, effect: str, index: int, target: Target, place: Place) -> None:
        names = scratch(effect, index, place.name)
        remove_built(place.beside(names.building))
        for name in (names.swapping, names.going):
            aside = place.beside(name)
            if aside.stat() is not None:
                self._remove_if_ours(aside, target, interrupted=name == names.going)
        self._release_returned(target, place)

    def _release_returned(self, target: Target, place: Place) -> None:
        for state in (target.before, target.after):
            release_returned(self._tools, place, state)

    def _remove_if_ours(self, aside: Place, target: Target, interrupted: bool) -> None:
        for state in (target.before, target.after):
            if state["type"] == "absent" or "identity" in state or "meta" in state:
                continue
            half_removed = state["type"] == "dir" and interrupted
            try:
                if not half_removed and not same(look(aside, manner_of(target)), state):
                    continue
            except CannotCapture:
                continue
            if state["type"] == "dir":
                remove_what_is_ours(aside, Custody(state, self._tools.blobs, None), self._tools)
            else:
                remove_file(aside, state, self._tools)
            if not half_removed or aside.stat() is None:
                return

    def release(self, effect: Effect) -> None:
        """The power to undo it was given up: let go of the inodes held for it."""
        release_held(self._tools, effect.id)

    def _drop(self, effect: str) -> None:
        for each in self._ready.pop(effect, []):
            os.close(each.fd)
        self._seen.pop(effect, None)

    def __del__(self) -> None:
        """Let go of in the middle of an effect: staged files, which have no name, would stay open with the process."""
        for effect in tuple(self._ready):
            self._drop(effect)


def _remove_building(effect: str, index: int, place: Place) -> None:
    remove_built(place.beside(scratch(effect, index, place.name).building))


def sync_directory(place: Place) -> None:
    try:
        os.fsync(place.fd)
    except OSError as error:
        # A directory we may write but not read cannot be opened for syncing; the name is as durable as it can be.
        if error.errno != errno.EBADF:
            raise
