"""Random histories of an agent and a user in one repository: every undo leaves it sound, and the user's work whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from tests.git.histories import History

pytestmark = pytest.mark.needs("git")
SEEDS = 4
STEPS = 10


def played(seed: int, directory: Path, store: Path, steps: int, *options: str) -> History:
    history = History(directory / "histories", seed, *options)
    with takeback.open(str(store)) as tb:
        with tb.run("agent") as run:
            history.play(run, steps)
        assert not tb.verify().findings
    return history


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_undo_leaves_the_repository_sound(
    seed: int, tmp_path: Path, store: Path, record_property: Callable[[str, object], None]
) -> None:
    options = ("--object-format=sha256",) if seed % 2 else ()
    history = played(seed, tmp_path, store, STEPS, *options)
    record_property("undos in random git histories", sum(history.counts.values()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 40))
def test_every_undo_leaves_the_repository_sound_in_longer_histories(
    seed: int, tmp_path: Path, store: Path, record_property: Callable[[str, object], None]
) -> None:
    options = ("--object-format=sha256",) if seed % 2 else ()
    history = played(seed, tmp_path, store, STEPS * 2, *options)
    record_property("undos in random git histories", sum(history.counts.values()))
