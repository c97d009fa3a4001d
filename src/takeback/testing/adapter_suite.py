"""The laws every `Adapter` keeps, also when it dies at any point. Inherit `AdapterSuite` and give it a `scene`."""

import gc
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import pytest

from takeback.adapters.protocol import Adapter
from takeback.errors import Conflict, Drifted, Refused, TakebackError
from takeback.model.change import UNDO, Change, OnConflict, UndoTerms
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id
from takeback.model.plan import Outcome, Standing
from takeback.model.record import canonical
from takeback.model.remedy import from_json, to_json
from takeback.storage.protocols import Blobs
from takeback.testing import law
from takeback.testing.crash import ENOUGH, killed_at


class AdapterScene(Protocol):
    """One world and one change of it."""

    @property
    def blobs(self) -> Blobs: ...

    def adapter(self) -> Adapter:
        """A new one each time, as a fresh process would have it, over the same world and blobs."""
        ...

    def change(self) -> Change:
        """What is asked for; the same each time while the world is the same. It changes something."""
        ...

    def world(self) -> Any:
        """Everything the adapter promises to bring back, to be compared with `==`; scratch of any kind included."""
        ...

    def reset(self) -> None:
        """The world as it was at first, equal in `world()`."""
        ...

    def disturb(self) -> None:
        """Someone else changes what the change is about, so that it is neither as before nor as after."""
        ...


AGAIN = "a change that is done already changes nothing or is refused"
STAGING = "staging is invisible"
STAGED = "what is staged under a name is gone after tidying by another process"
DRIFTED = "a change of what drifted is refused and changes nothing"
DRIFTED_ELSEWHERE = "a fresh process respects drift as well"
_UNSTAGED = dict.fromkeys((STAGING, STAGED), "it stages nothing")
_MARKED = dict.fromkeys(
    (DRIFTED, DRIFTED_ELSEWHERE),
    "it captures in the same step as it changes, so nothing can drift in between",
) | {AGAIN: "only the statement knows what it would change; it is made once under its key"}


def _exempt(scene: AdapterScene) -> tuple[str, dict[str, str]]:
    """Its traits say which laws do not apply."""
    adapter = scene.adapter()
    exempt = ({} if adapter.traits.stages else _UNSTAGED) | (_MARKED if adapter.traits.marks else {})
    return f"adapter {adapter.name}", exempt


_law = partial(law, of=_exempt)


class Desk:
    """Carries changes out as the engine does, without a journal; every step with the adapter it is given."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def propose(self, change: Change, of: Effect | None = None) -> Effect:
        return Effect(
            id=new_id(), run="run", agent="agent", seq=1, state=State.PROPOSED, change=change,
            undoes=of.id if of else "", of=of,
        )  # fmt: skip

    def intend(self, change: Change, of: Effect | None = None, named: bool = False) -> Effect:
        """Up to the intent: assessed, staged, captured; the remedy has been through JSON, as in the journal."""
        effect = self.propose(change, of)
        assessment = self.adapter.assess(change, of)
        if self.adapter.traits.stages:
            self.adapter.stage(effect, named)
        remedy = self.adapter.capture(effect, assessment.offers[0])
        return effect._replace(state=State.INTENDED, remedy=from_json(json.loads(canonical(to_json(remedy)))))

    def do(self, change: Change, of: Effect | None = None, named: bool = False) -> Effect:
        effect = self.intend(change, of, named)
        receipt = self.adapter.apply(effect)
        assert self.adapter.verify(effect).standing is Standing.AFTER, self.adapter.verify(effect)
        self.adapter.tidy(effect)
        return effect._replace(state=State.DONE, receipt=receipt.data)

    def undo(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Effect:
        """Take a done effect back; what comes back is the effect that did it, and taking that back is redo."""
        change = undo_of(effect, on_conflict)
        if self.adapter.traits.marks and on_conflict.skips:
            outcomes = self.adapter.assess(change, effect).outcomes
            if any(one.outcome not in (Outcome.UNDONE, Outcome.ALREADY) for one in outcomes):
                change = change._replace(undo=change.undo._replace(partial=True))
        return self.do(change, of=effect)


def undo_of(effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Change:
    summary, terms = f"undo: {effect.change.summary}", UndoTerms(on_conflict)
    return Change(effect.change.adapter, UNDO, effect.change.resource, summary, undo=terms)


def settle(adapter: Adapter, effect: Effect) -> Standing:
    """As recovery does for an effect that has an intent and no outcome; where it ended."""
    standing = adapter.verify(effect).standing
    if standing is Standing.BETWEEN:
        adapter.undo(effect)
    adapter.tidy(effect)
    return adapter.verify(effect).standing


def keep_only(blobs: Blobs, listed: tuple[str, ...]) -> None:
    """Forget whatever these blobs do not need."""
    blobs.sync()
    blobs.sweep(lambda: listed, 0)


class AdapterKilledSuite:
    stride = 1  # between kill points; a slow adapter may take larger steps, with all points in a nightly run

    def test_killed_anywhere_in_apply_it_settles(self, scene: AdapterScene) -> None:
        """Whatever is found must be exactly before or exactly after, with nothing left over."""
        before = scene.world()
        scene.reset()
        Desk(scene.adapter()).do(scene.change())
        after = scene.world()
        ends: set[Standing] = set()
        for point, _, effect, _ in self._deaths(scene, _intended, _apply):
            standing = settle(scene.adapter(), effect)
            ends.add(standing)
            expected = {Standing.BEFORE: before, Standing.AFTER: after}[standing]
            assert without_times(scene.world()) == without_times(expected), (point, standing)
        assert ends == {Standing.BEFORE, Standing.AFTER}

    def test_let_go_of_in_the_middle_it_leaves_no_file_open(self, scene: AdapterScene) -> None:
        scene.reset()
        _intended(scene)
        gc.collect()  # so that nothing which other tests have left to the collector goes in the middle of this one
        gc.disable()
        try:
            left = os.listdir("/proc/self/fd")
            scene.reset()
            _intended(scene)
            assert len(os.listdir("/proc/self/fd")) == len(left)
        finally:
            gc.enable()

    def test_killed_anywhere_in_apply_it_can_be_finished(self, scene: AdapterScene) -> None:
        before = scene.world()
        for point, adapter, effect, dead in self._deaths(scene, _intended, _apply):
            adapter.tidy(effect) if not dead else None
            again = scene.adapter()
            again.apply(effect)
            again.tidy(effect)
            assert again.verify(effect).standing is Standing.AFTER, point
            again.undo(effect)
            again.tidy(effect)
            assert scene.world() == before, point

    def test_killed_anywhere_in_undo_it_settles(self, scene: AdapterScene) -> None:
        """An undo is carried out by apply of an undo effect; recovery carries it on."""
        before = scene.world()

        def undoing(scene: AdapterScene) -> tuple[Adapter, Effect]:
            done = Desk(scene.adapter()).do(scene.change())
            adapter = scene.adapter()
            return adapter, Desk(adapter).intend(undo_of(done), of=done)

        for point, _, effect, _ in self._deaths(scene, undoing, _apply):
            again = scene.adapter()
            assert again.verify(effect).standing in (Standing.BEFORE, Standing.BETWEEN, Standing.AFTER), point
            again.apply(effect)
            again.tidy(effect)
            assert scene.world() == before, point

    def test_killed_in_recovery_too_it_settles(self, scene: AdapterScene) -> None:
        """Apply dies in the middle; taking it back dies at every point; the next one ends it."""
        before = scene.world()
        middle = max(1, self._points(scene) * 3 // 4)

        def half_applied(scene: AdapterScene) -> tuple[Adapter, Effect]:
            adapter, effect = _intended(scene)
            killed_at(middle, lambda: adapter.apply(effect))
            return scene.adapter(), effect

        for point, _, effect, _ in self._deaths(scene, half_applied, _take_back):
            third = scene.adapter()
            _take_back(third, effect)
            assert third.verify(effect).standing is Standing.BEFORE, point
            assert scene.world() == before, point

    def _points(self, scene: AdapterScene) -> int:
        """How many points a whole apply has, to the nearest hundred or so."""
        low, high = 1, 2
        while self._dies(scene, high):
            low, high = high, high * 2
        while high - low > 4:
            middle = (low + high) // 2
            low, high = (middle, high) if self._dies(scene, middle) else (low, middle)
        return low

    def _dies(self, scene: AdapterScene, point: int) -> bool:
        scene.reset()
        adapter, effect = _intended(scene)
        return killed_at(point, lambda: adapter.apply(effect))

    def _deaths(
        self,
        scene: AdapterScene,
        begun: Callable[[AdapterScene], tuple[Adapter, Effect]],
        work: Callable[[Adapter, Effect], None],
    ) -> Iterator[tuple[int, Adapter, Effect, bool]]:
        """Die at each point of the work in turn, each time in the world of before; the last one lives."""
        for point in range(1, ENOUGH, self.stride):
            scene.reset()
            adapter, effect = begun(scene)
            dead = killed_at(point, partial(work, adapter, effect))
            yield point, adapter, effect, dead
            if not dead:
                return
        raise AssertionError("the sweep did not end")


def _intended(scene: AdapterScene) -> tuple[Adapter, Effect]:
    adapter = scene.adapter()
    return adapter, Desk(adapter).intend(scene.change())


def _apply(adapter: Adapter, effect: Effect) -> None:
    adapter.apply(effect)


def _take_back(adapter: Adapter, effect: Effect) -> None:
    adapter.undo(effect)
    adapter.tidy(effect)


def without_times(world: Any) -> Any:
    """Two runs of one change differ in when they happened."""
    if isinstance(world, dict):
        return {key: without_times(value) for key, value in world.items() if key != "mtime"}  # pyright: ignore
    return world


# The laws every `Adapter` keeps. Inherit the suite in a test module and give it a `scene`:
#
#     class TestMine(AdapterSuite):
#         @pytest.fixture(params=[...])
#         def scene(self, request, tmp_path): return MyScene(tmp_path, request.param)
#
# A scene is one small world and one change of it; parametrise the fixture over every kind of change.


class AdapterSuite(AdapterKilledSuite):
    def test_assess_capture_and_verify_change_nothing(self, scene: AdapterScene) -> None:
        before = scene.world()
        adapter = scene.adapter()
        desk = Desk(adapter)
        effect = desk.propose(scene.change())
        offer = adapter.assess(effect.change).offers[0]
        assert scene.world() == before
        effect = effect._replace(remedy=adapter.capture(effect, offer))
        assert scene.world() == before
        assert adapter.verify(effect).standing is Standing.BEFORE
        assert scene.world() == before
        adapter.tidy(effect)
        assert scene.world() == before

    @_law(AGAIN)
    def test_a_change_that_is_done_already_changes_nothing_or_is_refused(self, scene: AdapterScene) -> None:
        desk = Desk(scene.adapter())
        change = scene.change()
        desk.do(change)
        after = scene.world()
        try:
            nothing = desk.adapter.assess(change).changes_nothing
        except TakebackError as refusal:
            nothing = bool(refusal.hint)
        assert nothing
        assert scene.world() == after

    @_law(STAGING)
    def test_staging_is_invisible(self, scene: AdapterScene) -> None:
        adapter = scene.adapter()
        before = scene.world()
        effect = Desk(adapter).propose(scene.change())
        adapter.stage(effect, named=False)
        assert scene.world() == before
        adapter.tidy(effect)
        assert scene.world() == before

    @_law(STAGED)
    def test_what_is_staged_under_a_name_is_gone_after_tidying_by_another_process(
        self, scene: AdapterScene
    ) -> None:
        adapter = scene.adapter()
        before = scene.world()
        effect = Desk(adapter).propose(scene.change())
        for staged in adapter.stage(effect, named=True):
            assert effect.id in os.path.basename(staged.path)
            with open(staged.path, "rb") as content:
                assert staged.content in (None, content.read())
        scene.adapter().tidy(effect)
        assert scene.world() == before

    def test_there_and_back_is_equal(self, scene: AdapterScene) -> None:
        before = scene.world()
        effect = Desk(scene.adapter()).do(scene.change())
        assert scene.world() != before
        Desk(scene.adapter()).undo(effect)
        assert scene.world() == before

    def test_a_named_stage_leads_to_the_same_world(self, scene: AdapterScene) -> None:
        before = scene.world()
        effect = Desk(scene.adapter()).do(scene.change(), named=True)
        Desk(scene.adapter()).undo(effect)
        assert scene.world() == before

    def test_redo_is_the_undo_of_an_undo_as_often_as_you_like(self, scene: AdapterScene) -> None:
        before = scene.world()
        effect = Desk(scene.adapter()).do(scene.change())
        after = scene.world()
        for _ in range(3):
            taken_back = Desk(scene.adapter()).undo(effect)
            assert scene.world() == before
            effect = Desk(scene.adapter()).undo(taken_back)
            assert scene.world() == after

    def test_apply_twice_is_once(self, scene: AdapterScene) -> None:
        adapter, effect = _intended(scene)
        adapter.apply(effect)
        once = scene.world()
        adapter.apply(effect)
        scene.adapter().apply(effect)
        assert scene.world() == once
        assert scene.adapter().verify(effect).standing is Standing.AFTER

    def test_undo_twice_is_once(self, scene: AdapterScene) -> None:
        before = scene.world()
        adapter, effect = _intended(scene)
        adapter.apply(effect)
        adapter.undo(effect)
        assert scene.world() == before
        scene.adapter().undo(effect)
        scene.adapter().tidy(effect)
        assert scene.world() == before
        assert scene.adapter().verify(effect).standing is Standing.BEFORE

    def test_apply_works_in_a_fresh_process_from_the_remedy_and_the_blobs(self, scene: AdapterScene) -> None:
        first, effect = _intended(scene)
        first.tidy(effect)
        other = scene.adapter()
        other.apply(effect)
        other.tidy(effect)
        assert scene.adapter().verify(effect).standing is Standing.AFTER

    def test_a_remedy_lists_every_blob_it_needs(self, scene: AdapterScene) -> None:
        before = scene.world()
        effect = Desk(scene.adapter()).do(scene.change())
        assert effect.remedy is not None
        keep_only(scene.blobs, effect.remedy.blobs)
        Desk(scene.adapter()).undo(effect)
        assert scene.world() == before

    @_law(DRIFTED)
    def test_a_change_of_what_drifted_is_refused_and_changes_nothing(self, scene: AdapterScene) -> None:
        adapter, effect = _intended(scene)
        self._refuses_drift(scene, lambda: adapter, effect)

    @_law(DRIFTED_ELSEWHERE)
    def test_a_fresh_process_respects_drift_as_well(self, scene: AdapterScene) -> None:
        first, effect = _intended(scene)
        first.tidy(effect)
        self._refuses_drift(scene, scene.adapter, effect)

    def _refuses_drift(self, scene: AdapterScene, by: Callable[[], Adapter], effect: Effect) -> None:
        scene.disturb()
        disturbed = scene.world()
        adapter = by()
        with pytest.raises(Drifted):
            adapter.apply(effect)
        adapter.tidy(effect)
        assert scene.world() == disturbed

    def test_undo_of_what_someone_changed_since_is_refused_by_name(self, scene: AdapterScene) -> None:
        effect = Desk(scene.adapter()).do(scene.change())
        scene.disturb()
        disturbed = scene.world()
        adapter = scene.adapter()
        # A marker tells that it happened, whatever came later; without one the targets are all that can be looked at.
        expected = Standing.AFTER if adapter.traits.marks else Standing.FOREIGN
        assert adapter.verify(effect).standing is expected
        outcomes = adapter.assess(undo_of(effect), effect).outcomes
        assert Outcome.CONFLICT in {each.outcome for each in outcomes}
        assert all(each.detail for each in outcomes if each.outcome is Outcome.CONFLICT)
        with pytest.raises(Conflict):
            Desk(adapter).undo(effect)
        assert scene.world() == disturbed

    def test_a_drifted_target_is_never_touched_by_a_late_undo(self, scene: AdapterScene) -> None:
        adapter = scene.adapter()
        effect = Desk(adapter).do(scene.change())
        scene.disturb()
        disturbed = scene.world()
        with pytest.raises(Refused):
            adapter.undo(effect)
        assert scene.world() == disturbed
