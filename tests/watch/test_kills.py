"""Killed at any moment of a watch or of its recovery: the tree is as before or as after, and told right."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.adapters.watch.index import Index, indexes_in
from takeback.model.effect import State
from takeback.testing.crash import (
    Boundaries,
    in_a_process,
    killed_again_and_again,
    killed_everywhere,
    open_settled,
    open_wrapped,
    wrap_system_calls,
)
from tests.crash.scenes import quick_directory


class Desk:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tree = directory / "tree"
        self.store = str(directory / "store")

    def prepare(self) -> None:
        shutil.rmtree(self.directory)
        (self.tree / "dir" / "deep").mkdir(parents=True)
        for name in ("top", "dir/one", "dir/deep/two"):
            (self.tree / name).write_text(f"{name} before")
        os.link(self.tree / "top", self.tree / "dir" / "twin")
        takeback.open(self.store).close()

    def change(self) -> None:
        shutil.rmtree(self.tree / "dir" / "deep")
        (self.tree / "top").write_text("after")
        (self.tree / "dir" / "deep").write_text("a file now")
        (self.tree / "new").mkdir()
        (self.tree / "new" / "three").write_text("new")

    def world(self) -> dict[str, Any]:
        return {
            os.path.relpath(os.path.join(directory, name), self.tree): (
                Path(directory, name).read_text() if os.path.isfile(os.path.join(directory, name)) else None
            )
            for directory, folders, names in os.walk(self.tree)
            for name in (*folders, *names)
        }

    def watch(self, boundaries: Boundaries) -> None:
        wrap_index(boundaries)
        with open_wrapped(self.store, boundaries) as tb, tb.run("watch") as run, run.watch(self.tree):
            self.change()

    def check(self, before: dict[str, Any], after: dict[str, Any] | None) -> None:
        """Without a world after, the kill may have met the changes themselves half-way: what there is stays."""
        with open_settled(str(self.store)) as tb:
            assert tb.verify(read_data=True).sound
            effects = tb.effects()
            assert not [one for one in effects if one.state in (State.PROPOSED, State.INTENDED, State.STUCK)]
            done = [one for one in effects if one.state is State.DONE and not one.is_undo]
            assert after is None or self.world() in (before, after)
            if self.world() != before:
                tb.undo(done[0])
            assert self.world() == before
            twins = (self.tree / "top").stat(), (self.tree / "dir" / "twin").stat()
            assert twins[0].st_ino == twins[1].st_ino
        directory = os.path.join(self.store, "watch")
        with takeback.open(self.store) as tb, tb.run("again") as run, run.watch(self.tree):
            pass
        for name in indexes_in(directory):
            index = Index(directory, name)
            assert index.watches() == () and index.changed_since(0) == {}
            index.close()


def wrap_index(boundaries: Boundaries) -> None:
    """In a process that is thrown away."""
    for name in ("write", "release"):
        inner = getattr(Index, name)

        def call(self: Index, *rest: Any, inner: Any = inner, name: str = name, **named: Any) -> Any:
            boundaries.pass_one(f"before index.{name}")
            result = inner(self, *rest, **named)
            boundaries.pass_one(f"after index.{name}")
            return result

        setattr(Index, name, call)


@pytest.fixture
def desk():
    with quick_directory("watch") as directory:
        yield Desk(directory)


def worlds(desk: Desk) -> tuple[dict[str, Any], dict[str, Any]]:
    desk.prepare()
    before = desk.world()
    desk.change()
    return before, desk.world()


@pytest.mark.parametrize("first", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_boundary_it_settles(desk, first):
    before, after = worlds(desk)
    step = 5 if first == 2 else 1

    deaths = killed_everywhere(
        desk.prepare, desk.watch, lambda at: desk.check(before, after), first=first, step=step
    )

    assert deaths > 15 // step


@pytest.mark.slow
def test_killed_at_every_system_call_it_settles(desk):
    before, _ = worlds(desk)

    def watch(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        desk.watch(boundaries)

    assert killed_everywhere(desk.prepare, watch, lambda at: desk.check(before, None)) > 40


def test_recovery_killed_again_and_again_gets_there(desk):
    before, after = worlds(desk)
    desk.prepare()
    end = in_a_process(lambda boundaries: dies_in_the_middle(desk, boundaries), Boundaries())
    assert end.killed

    def recover(boundaries: Boundaries) -> None:
        wrap_index(boundaries)
        open_wrapped(desk.store, boundaries).close()

    assert killed_again_and_again(recover) > 5
    desk.check(before, after)


def dies_in_the_middle(desk: Desk, boundaries: Boundaries) -> None:
    from takeback.testing.crash import die

    with open_wrapped(desk.store, boundaries) as tb, tb.run("watch") as run, run.watch(desk.tree):
        desk.change()
        die()
