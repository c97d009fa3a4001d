"""The laws of an `Adapter` that dies: at every point of apply, of undo and of recovery. Part of `AdapterSuite`."""

import gc
import os
from collections.abc import Callable
from typing import Any

from takeback.adapters.protocol import Adapter
from takeback.model.effect import Effect
from takeback.model.standing import Standing
from takeback.testing.adapter_desk import AdapterScene, Desk, settle, undo_of
from takeback.testing.killing import ENOUGH, killed_at


class AdapterKilledSuite:
    stride = 1  # between kill points; a slow adapter may take larger steps, with all points in a nightly run

    def test_killed_anywhere_in_apply_it_settles(self, scene: AdapterScene) -> None:
        seen = self._sweep(scene, lambda adapter, effect: adapter.apply(effect))
        assert seen == {Standing.BEFORE, Standing.AFTER}

    def test_let_go_of_in_the_middle_it_leaves_no_file_open(self, scene: AdapterScene) -> None:
        scene.reset()
        Desk(scene.adapter()).intend(scene.change())
        gc.collect()  # so that nothing which other tests have left to the collector goes in the middle of this one
        gc.disable()
        try:
            left = os.listdir("/proc/self/fd")
            scene.reset()
            Desk(scene.adapter()).intend(scene.change())
            assert len(os.listdir("/proc/self/fd")) == len(left)
        finally:
            gc.enable()

    def test_killed_anywhere_in_apply_it_can_be_finished(self, scene: AdapterScene) -> None:
        before = scene.world()
        for point in range(1, ENOUGH, self.stride):
            scene.reset()
            adapter = scene.adapter()
            effect = Desk(adapter).intend(scene.change())
            dead = killed_at(point, lambda adapter=adapter, effect=effect: adapter.apply(effect))
            adapter.tidy(effect) if not dead else None
            again = scene.adapter()
            again.apply(effect)
            again.tidy(effect)
            assert again.verify(effect).standing is Standing.AFTER, point
            again.undo(effect)
            again.tidy(effect)
            assert scene.world() == before, point
            if not dead:
                return
        raise AssertionError("the sweep did not end")

    def test_killed_anywhere_in_undo_it_settles(self, scene: AdapterScene) -> None:
        """An undo is carried out by apply of an undo effect; recovery carries it on."""
        before = scene.world()
        for point in range(1, ENOUGH, self.stride):
            scene.reset()
            done = Desk(scene.adapter()).do(scene.change())
            adapter = scene.adapter()
            effect = Desk(adapter).intend(undo_of(done), of=done)
            dead = killed_at(point, lambda adapter=adapter, effect=effect: adapter.apply(effect))
            again = scene.adapter()
            assert again.verify(effect).standing in (Standing.BEFORE, Standing.BETWEEN, Standing.AFTER), point
            again.apply(effect)
            again.tidy(effect)
            assert scene.world() == before, point
            if not dead:
                return
        raise AssertionError("the sweep did not end")

    def test_killed_in_recovery_too_it_settles(self, scene: AdapterScene) -> None:
        """Apply dies in the middle; taking it back dies at every point; the next one ends it."""
        before = scene.world()
        middle = max(1, self._points(scene) * 3 // 4)
        for point in range(1, ENOUGH, self.stride):
            scene.reset()
            adapter = scene.adapter()
            effect = Desk(adapter).intend(scene.change())
            killed_at(middle, lambda adapter=adapter, effect=effect: adapter.apply(effect))
            second = scene.adapter()
            dead = killed_at(
                point, lambda second=second, effect=effect: (second.undo(effect), second.tidy(effect))
            )
            third = scene.adapter()
            third.undo(effect)
            third.tidy(effect)
            assert third.verify(effect).standing is Standing.BEFORE, point
            assert scene.world() == before, point
            if not dead:
                return
        raise AssertionError("the sweep did not end")

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
        adapter = scene.adapter()
        effect = Desk(adapter).intend(scene.change())
        return killed_at(point, lambda: adapter.apply(effect))

    def _sweep(self, scene: AdapterScene, work: Callable[[Adapter, Effect], object]) -> set[Standing]:
        """Kill at every point; whatever is found must be exactly before or exactly after, with nothing left over."""
        before = scene.world()
        scene.reset()
        Desk(scene.adapter()).do(scene.change())
        after = scene.world()
        ends: set[Standing] = set()
        for point in range(1, ENOUGH, self.stride):
            scene.reset()
            adapter = scene.adapter()
            effect = Desk(adapter).intend(scene.change())
            dead = killed_at(point, lambda adapter=adapter, effect=effect: work(adapter, effect))
            standing = settle(scene.adapter(), effect)
            ends.add(standing)
            expected = {Standing.BEFORE: before, Standing.AFTER: after}[standing]
            assert without_times(scene.world()) == without_times(expected), (point, standing)
            if not dead:
                return ends
        raise AssertionError("the sweep did not end")


def without_times(world: Any) -> Any:
    """Two runs of one change differ in when they happened."""
    if isinstance(world, dict):
        return {key: without_times(value) for key, value in world.items() if key != "mtime"}  # pyright: ignore
    return world
