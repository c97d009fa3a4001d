"""The key that a run makes for a change: the same change asked for later is another change."""

from pathlib import Path

import pytest

import takeback
from tests.world import World


def in_session(store: Path, *writes: tuple[Path, str]) -> list[takeback.Effect | None]:
    """A process of its own, as far as the run can tell."""
    with takeback.open(str(store)) as tb:
        run = tb.session("commands")
        try:
            return [run.write(path, text) for path, text in writes]
        finally:
            run.leave()


def test_a_write_after_one_that_changed_nothing_is_not_taken_for_an_earlier_one(
    store: Path, world: World
) -> None:
    (world / "same").write_text("same")
    in_session(store, (world / "same", "same"), (world / "file", "ours"))
    (world / "file").write_text("someone else's")

    (effect,) = in_session(store, (world / "file", "ours"))

    assert (world / "file").read_text() == "ours"
    assert effect


def test_a_write_after_one_that_was_refused_is_not_taken_for_an_earlier_one(
    store: Path, world: World
) -> None:
    with takeback.open(str(store)) as tb, tb.run("one") as run:
        with pytest.raises(takeback.ValidationFailed):
            run.write(world / "broken.json", "{", checks=[takeback.checks.json()])
        run.write(world / "file", "ours")
        run.checkpoint("here")
        run.suspend("for a while")
    (world / "file").write_text("someone else's")
    with takeback.open(str(store)) as tb, tb.resume("one") as run:
        run.write(world / "file", "ours")

    assert (world / "file").read_text() == "ours"


def test_the_same_write_again_in_the_same_run_is_made_again(store: Path, world: World) -> None:
    with takeback.open(str(store)) as tb, tb.run("one") as run:
        run.write(world / "file", "ours")
        (world / "file").write_text("someone else's")
        run.write(world / "file", "ours")

    assert (world / "file").read_text() == "ours"
