"""Two processes take back paths of one effect at the same time: what the journal says afterwards is what is there."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

import takeback
from takeback.adapters.file.adapter import FileAdapter
from takeback.engine.portion import undone_paths
from takeback.model.effect import Effect, State
from takeback.model.remedy import Offer, Remedy
from takeback.storage.protocols import Query
from tests.world import World

ROUNDS = 5
TRIES = 1000
processes = multiprocessing.get_context("fork")


def met(barrier: Barrier) -> None:
    """Both have captured, and neither has recorded its intent."""
    capture = FileAdapter.capture
    waits = [barrier.wait]

    def together(self: FileAdapter, effect: Effect, offer: Offer) -> Remedy:
        remedy = capture(self, effect, offer)
        if waits:
            waits.pop()()
        return remedy

    FileAdapter.capture = together


def undo(store: str, effect: str, paths: Sequence[str], barrier: Barrier, answer: Connection) -> None:
    """In a process of its own. As long as it is told to wait, it tries again."""
    met(barrier)
    said = []
    with takeback.open(store) as tb:
        for _ in range(TRIES):
            try:
                said.append(tb.undo(effect, paths=paths).outcome)
            except takeback.StoreBusy:
                continue
            except takeback.Refused as error:
                said.append(str(error))
            break
    answer.send(said)
    answer.close()


def at_once(store: Path, effect: takeback.Effect, *halves: Sequence[Path]) -> list[str]:
    barrier = processes.Barrier(len(halves), timeout=60)
    answers = []
    workers = []
    for paths in halves:
        here, there = processes.Pipe(duplex=False)
        named = [str(path) for path in paths]
        worker = processes.Process(target=undo, args=(str(store), effect.id, named, barrier, there))
        worker.start()
        there.close()
        answers.append(here)
        workers.append(worker)
    said = [one.recv() for one in answers]
    for worker in workers:
        worker.join()
    for one in answers:
        one.close()
    return [word for words in said for word in words]


def written(tb: takeback.Takeback, world: World, names: str) -> takeback.Effect:
    for name in names:
        (world / name).write_text("old")
    with tb.run("agent") as run:
        effect = run.write_all({world / name: "new" for name in names})
    assert effect
    return effect


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_both_halves_taken_back_at_once_leave_the_effect_undone(world: World, store: Path, turn: int) -> None:
    with takeback.open(store) as tb:
        effect = written(tb, world, "ab")
        said = at_once(store, effect, [world / "a"], [world / "b"])
        assert said == ["done", "done"]
        assert {(world / name).read_text() for name in "ab"} == {"old"}
        assert tb.effect(effect.id).state is State.UNDONE
        assert not undone_paths(tb.store.journal, [tb.effect(effect.id)])
        assert not tb.verify().findings


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_two_of_three_paths_taken_back_at_once_leave_the_third(world: World, store: Path, turn: int) -> None:
    with takeback.open(store) as tb:
        effect = written(tb, world, "abc")
        assert at_once(store, effect, [world / "a"], [world / "b"]) == ["done", "done"]
        assert [(world / name).read_text() for name in "abc"] == ["old", "old", "new"]
        assert tb.effect(effect.id).state is State.DONE
        assert tb.undo(effect).outcome == "done"
        assert tb.effect(effect.id).state is State.UNDONE
        assert (world / "c").read_text() == "old"


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_one_half_taken_back_twice_at_once_is_taken_back_once(world: World, store: Path, turn: int) -> None:
    with takeback.open(store) as tb:
        effect = written(tb, world, "ab")
        done, other = sorted(at_once(store, effect, [world / "a"], [world / "a"]), key=len)
        assert done == "done"
        assert other == f"What effect {effect.id[:8]} did to {world / 'a'} is already undone."
        assert [(world / name).read_text() for name in "ab"] == ["old", "new"]
        made = Query(undoing=(effect.id,), states=(State.DONE,))
        assert len(list(tb.store.journal.effects(made))) == 1
        (undo,) = tb.store.journal.effects(made)
        tb.redo(undo.id)
        assert (world / "a").read_text() == "new"
        assert tb.undo(effect).outcome == "done"
        assert tb.effect(effect.id).state is State.UNDONE


def another_comes_between(
    monkeypatch: pytest.MonkeyPatch, store: Path, effect: takeback.Effect, paths: Sequence[Path]
) -> None:
    """After an undo has captured, and before its intent, another one takes back these paths."""
    capture = FileAdapter.capture

    def raced(self: FileAdapter, undo: Effect, offer: Offer) -> Remedy:
        remedy = capture(self, undo, offer)
        monkeypatch.setattr(FileAdapter, "capture", capture)
        with takeback.open(store) as other:
            assert other.undo(effect.id, paths=paths).outcome == "done"
        return remedy

    monkeypatch.setattr(FileAdapter, "capture", raced)


def test_a_path_that_another_undo_takes_first_is_not_taken_twice(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb:
        effect = written(tb, world, "ab")
        another_comes_between(monkeypatch, store, effect, [world / "a"])
        with pytest.raises(takeback.Refused, match=r"/a is already undone\.$"):
            tb.undo(effect, paths=[world / "a"])
        assert len(list(tb.store.journal.effects(Query(undoing=(effect.id,), states=(State.DONE,))))) == 1
        assert tb.effect(effect.id).state is State.DONE


def test_an_undo_of_all_does_not_count_what_another_one_takes_first(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each undo can be brought back by itself, and only what it took."""
    with takeback.open(store) as tb:
        effect = written(tb, world, "ab")
        another_comes_between(monkeypatch, store, effect, [world / "a"])
        with pytest.raises(takeback.Drifted, match="taken back by another undo"):
            tb.undo(effect)
        assert [(world / name).read_text() for name in "ab"] == ["old", "new"]
        rest = tb.undo(effect)
        assert tb.effect(effect.id).state is State.UNDONE
        tb.redo(rest)
        assert [(world / name).read_text() for name in "ab"] == ["old", "new"]


def test_the_last_half_leaves_the_effect_undone_though_the_other_came_first(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb:
        effect = written(tb, world, "ab")
        another_comes_between(monkeypatch, store, effect, [world / "a"])
        assert tb.undo(effect, paths=[world / "b"]).outcome == "done"
        assert tb.effect(effect.id).state is State.UNDONE
