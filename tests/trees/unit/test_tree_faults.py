"""The n-th thing that is made fails, for n = 1, 2, 3 …: then nothing has happened, and nothing is left behind."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from takeback.adapters.file import kernel
from takeback.errors import Stuck, TakebackError
from takeback.model.effect import State
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk, settle, undo_of
from tests.trees.unit.scene import Story, TreeScene
from tests.trees.unit.stories import PARAMETERS

_MAKING = ("write", "mkdir", "symlink", "mknod", "link", "fchown", "chown", "setxattr")
_ENOUGH = 2_000

few = pytest.mark.parametrize(
    "story",
    [one for one in PARAMETERS if one.id in ("many things", "names", "remove everything", "odd things")],
)


class Failing:
    """Counts calls, and lets the n-th fail; or all from there on."""

    def __init__(self, at: int, always: bool) -> None:
        self.left = at
        self.always = always

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.always and self.left < 0):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **options)

        return call

    @property
    def happened(self) -> bool:
        return self.left <= 0


@contextmanager
def no_space(at: int, always: bool, renames: bool = False) -> Iterator[Failing]:
    failing = Failing(at, always)
    with pytest.MonkeyPatch.context() as patch:
        if renames:
            patch.setattr(kernel.Libc, "rename", failing.wrap(kernel.Libc.rename))
        else:
            for name in _MAKING:
                patch.setattr(os, name, failing.wrap(getattr(os, name)))
        yield failing


@few
@pytest.mark.parametrize("always", [False, True], ids=["once", "from then on"])
def test_no_space_in_the_middle_of_a_merge_leaves_everything_as_it_was(
    quick_place: Path, story: Story, always: bool
) -> None:
    scene = TreeScene(quick_place, story)
    before = scene.world()
    for point in range(1, _ENOUGH):
        adapter = scene.adapter()
        effect = Desk(adapter).intend(scene.change())
        with no_space(point, always) as failing:
            try:
                adapter.apply(effect)
            except Stuck:
                assert always or failing.happened, point
            except TakebackError:
                assert scene.world() == before, point
        if not failing.happened:
            assert scene.adapter().verify(effect).standing is Standing.AFTER
            return
        # There is room again: whatever it was, it settles. One failure may also have been met by removing first what
        # goes anyway; then all of it was made.
        standing = settle(scene.adapter(), effect)
        if standing is Standing.AFTER and not always:
            Desk(scene.adapter()).undo(effect._replace(state=State.DONE))
        else:
            assert standing is Standing.BEFORE, point
        assert scene.world() == before, point
    raise AssertionError("the sweep did not end")


@few
def test_no_space_in_the_middle_of_an_undo_leaves_what_was_there_or_can_be_gone_on_with(
    quick_place: Path, story: Story
) -> None:
    scene = TreeScene(quick_place, story)
    before = scene.world()
    done = Desk(scene.adapter()).do(scene.change())
    after = scene.world()
    for point in range(1, _ENOUGH):
        adapter = scene.adapter()
        effect = Desk(adapter).intend(undo_of(done), of=done)
        with no_space(point, always=True) as failing:
            try:
                adapter.apply(effect)
            except Stuck:
                pass
            except TakebackError:
                assert scene.world() == after, point
        again = scene.adapter()
        again.apply(effect)
        again.tidy(effect)
        assert scene.world() == before, point
        if not failing.happened:
            return
        done = Desk(scene.adapter()).undo(effect)
        assert scene.world() == after, point
    raise AssertionError("the sweep did not end")


@few
def test_a_rename_that_fails_takes_back_the_others(quick_place: Path, story: Story) -> None:
    scene = TreeScene(quick_place, story)
    before = scene.world()
    for point in range(1, _ENOUGH):
        adapter = scene.adapter()
        effect = Desk(adapter).intend(scene.change())
        with no_space(point, always=False, renames=True) as failing:
            try:
                adapter.apply(effect)
            except TakebackError:
                assert scene.world() == before, point
        if not failing.happened:
            return
        assert settle(scene.adapter(), effect) in (Standing.BEFORE, Standing.AFTER), point
        if scene.world() != before:
            scene.reset()
    raise AssertionError("the sweep did not end")


@few
def test_where_names_cannot_be_exchanged_it_works_too(
    quick_place: Path, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("takeback.adapters.tree.swap.exchange", lambda *names: False)
    scene = TreeScene(quick_place, story)
    before = scene.world()
    effect = Desk(scene.adapter()).do(scene.change())
    after = scene.world()
    taken_back = Desk(scene.adapter()).undo(effect)
    assert scene.world() == before
    Desk(scene.adapter()).undo(taken_back)
    assert scene.world() == after
