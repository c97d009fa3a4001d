"""Random operations, and the tree adapter alone: what they made of a tree is applied to the tree as it was, taken back,
and made again. No sandbox and no journal, so many can be tried."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from takeback.adapters.tree.adapter import TreeAdapter
from takeback.adapters.tree.targets import command_change
from takeback.testing.adapter_suite import Desk
from tests.crash.scenes import quick_directory
from tests.memory import MemoryBlobs
from tests.trees import ways
from tests.trees.scenes import differences, manifest, without_directory_times
from tests.trees.sequences import Act, a_sequence
from tests.trees.test_random_operations import SEED, place_in, program
from tests.trees.trial import Place
from tests.trees.unit.scene import compared, states_in
from tests.world import Picture

FAST, PARTS, PER_PART = 8, 2, 60

pytestmark = pytest.mark.root


def try_it(sequence: list[Act], place: Place, held: Path) -> str:
    """What is wrong; empty if nothing is."""
    place.renew()
    ways.directly(program(sequence), place.root)
    wanted, blobs = manifest(place.root), MemoryBlobs()
    after = states_in(place.root, blobs)
    before = place.renew()
    targets = compared(place.root, states_in(place.root, blobs), after)
    if not targets:
        return ""
    shutil.rmtree(held, ignore_errors=True)
    held.mkdir()

    def desk() -> Desk:
        return Desk(TreeAdapter("command", blobs, held=str(held)))

    def wrong(side: Picture) -> str:
        return differences(without_directory_times(side), without_directory_times(manifest(place.root)))

    done = desk().do(command_change(blobs, str(place.root), "operations", targets))
    if told := wrong(wanted):
        return f"applied:\n{told}"
    undone = desk().undo(done)
    if told := differences(
        before, manifest(place.root)
    ):  # here the times of directories are promised as well
        return f"undone:\n{told}"
    desk().undo(undone)
    return wrong(wanted) and f"done again:\n{wrong(wanted)}"


def try_many(seeds: range) -> int:
    with quick_directory("random") as directory:
        place = place_in(directory, links=True)
        for seed in range(int(SEED), int(SEED) + 1) if SEED else seeds:
            told = try_it(a_sequence(seed), place, directory / "held")
            assert not told, f"TAKEBACK_SEED={seed}\n{told}"
            assert not list(place.root.rglob(".takeback-*")), f"TAKEBACK_SEED={seed}: scratch is left"
    return len(seeds)


def test_a_few_random_changes_are_made_and_taken_back(record_property: Callable[[str, object], None]) -> None:
    record_property("random changes of the tree adapter", try_many(range(FAST)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_changes_are_made_and_taken_back(
    part: int, record_property: Callable[[str, object], None]
) -> None:
    first = 1000 + part * PER_PART
    record_property("random changes of the tree adapter", try_many(range(first, first + PER_PART)))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_random_changes_are_made_and_taken_back(
    part: int, record_property: Callable[[str, object], None]
) -> None:
    first = 100_000 + part * 2000
    record_property("random changes of the tree adapter", try_many(range(first, first + 2000)))
