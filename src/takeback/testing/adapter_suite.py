"""The laws every `Adapter` keeps. Inherit the suite in a test module and give it a `scene`:

    class TestMine(AdapterSuite):
        @pytest.fixture(params=[...])
        def scene(self, request, tmp_path): return MyScene(tmp_path, request.param)

A scene is one small world and one change of it; parametrise the fixture over every kind of change.
"""

import os

from takeback.errors import Conflict, Drifted, Refused, TakebackError
from takeback.model.plan import Outcome
from takeback.model.standing import Standing
from takeback.testing.adapter_desk import AdapterScene, Desk, keep_only, raises, undo_of
from takeback.testing.adapter_killed_suite import AdapterKilledSuite


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

    def test_a_change_that_is_done_already_changes_nothing_or_is_refused(self, scene: AdapterScene) -> None:
        desk = Desk(scene.adapter())
        if desk.adapter.traits.marks:
            return  # what a statement would change only the statement tells; twice under one key is once
        change = scene.change()
        desk.do(change)
        after = scene.world()
        try:
            nothing = desk.adapter.assess(change).changes_nothing
        except TakebackError as refusal:
            nothing = bool(refusal.hint)
        assert nothing
        assert scene.world() == after

    def test_staging_is_invisible(self, scene: AdapterScene) -> None:
        adapter = scene.adapter()
        if not adapter.traits.stages:
            return
        before = scene.world()
        effect = Desk(adapter).propose(scene.change())
        adapter.stage(effect, named=False)
        assert scene.world() == before
        adapter.tidy(effect)
        assert scene.world() == before

    def test_what_is_staged_under_a_name_is_gone_after_tidying_by_another_process(
        self, scene: AdapterScene
    ) -> None:
        adapter = scene.adapter()
        if not adapter.traits.stages:
            return
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
        adapter = scene.adapter()
        effect = Desk(adapter).intend(scene.change())
        adapter.apply(effect)
        once = scene.world()
        adapter.apply(effect)
        scene.adapter().apply(effect)
        assert scene.world() == once
        assert scene.adapter().verify(effect).standing is Standing.AFTER

    def test_undo_twice_is_once(self, scene: AdapterScene) -> None:
        before = scene.world()
        adapter = scene.adapter()
        effect = Desk(adapter).intend(scene.change())
        adapter.apply(effect)
        adapter.undo(effect)
        assert scene.world() == before
        scene.adapter().undo(effect)
        scene.adapter().tidy(effect)
        assert scene.world() == before
        assert scene.adapter().verify(effect).standing is Standing.BEFORE

    def test_apply_works_in_a_fresh_process_from_the_remedy_and_the_blobs(self, scene: AdapterScene) -> None:
        first = scene.adapter()
        effect = Desk(first).intend(scene.change())
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

    def test_a_change_of_what_drifted_is_refused_and_changes_nothing(self, scene: AdapterScene) -> None:
        adapter = scene.adapter()
        if adapter.traits.marks:
            return  # it is captured in the same step as it is made, so nothing can drift in between
        effect = Desk(adapter).intend(scene.change())
        scene.disturb()
        disturbed = scene.world()
        with raises(Drifted):
            adapter.apply(effect)
        adapter.tidy(effect)
        assert scene.world() == disturbed

    def test_a_fresh_process_respects_drift_as_well(self, scene: AdapterScene) -> None:
        first = scene.adapter()
        if first.traits.marks:
            return  # it is captured in the same step as it is made, so nothing can drift in between
        effect = Desk(first).intend(scene.change())
        first.tidy(effect)
        scene.disturb()
        disturbed = scene.world()
        adapter = scene.adapter()
        with raises(Drifted):
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
        with raises(Conflict):
            Desk(adapter).undo(effect)
        assert scene.world() == disturbed

    def test_a_drifted_target_is_never_touched_by_a_late_undo(self, scene: AdapterScene) -> None:
        adapter = scene.adapter()
        effect = Desk(adapter).do(scene.change())
        scene.disturb()
        disturbed = scene.world()
        with raises(Refused):
            adapter.undo(effect)
        assert scene.world() == disturbed
