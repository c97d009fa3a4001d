"""Random filesystem operations: run directly, in the sandbox and merged, in place; then taken back. The seed is
printed; TAKEBACK_SEED repeats one sequence, TAKEBACK_SEQUENCES sets how many the long test tries."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from tests.trees import acts, ways
from tests.trees.scenes import make_old, manifest
from tests.trees.sequences import Act, a_sequence, starting_tree
from tests.trees.trial import Place, Wrong, try_out

FAST, PARTS, PER_PART, LONG = 5, 4, 20, 2000
# Asked for when this is loaded: every test finds an environment without them.
SEED = os.environ.get("TAKEBACK_SEED", "")
SEQUENCES = int(os.environ.get("TAKEBACK_SEQUENCES", "") or LONG)


@pytest.fixture
def run(store: Path) -> Iterator[takeback.Run]:
    with takeback.open(str(store)) as tb, tb.run("operations") as run:
        yield run


def program(sequence: list[Act]) -> list[str]:
    return [ways.python(), "-I", "-S", acts.__file__, json.dumps(sequence)]


def place_in(directory: Path, *, links: bool) -> Place:
    root, template = directory / "tree", directory / "template"
    template.mkdir()
    here = os.getcwd()
    os.chdir(template)
    try:
        subprocess.run(program(starting_tree(links=links)), check=True, stdout=subprocess.DEVNULL)
    finally:
        os.chdir(here)
    make_old(template)

    def renew() -> dict[bytes, dict[str, object]]:
        subprocess.run(["chmod", "-R", "u+rwX", root], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", root], check=True)
        subprocess.run(["cp", "-a", template, root], check=True)
        return manifest(root)

    return Place(root, renew)


def try_sequences(run: takeback.Run, seeds: range, directory: Path) -> int:
    # Several names of one file: see test_random_adapter and known_limits.
    place = place_in(directory, links=False)
    if SEED:
        seeds = range(int(SEED), int(SEED) + 1)
    wrong: list[str] = []
    for seed in seeds:
        sequence = a_sequence(seed, root=os.geteuid() == 0, links=False)
        try:
            try_out(run, program(sequence), place)
        except (Wrong, takeback.TakebackError) as error:
            lines = "\n".join(f"  {act}" for act in sequence)
            wrong.append(f"TAKEBACK_SEED={seed} ({len(sequence)} operations)\n{error}\n{lines}")
    assert not wrong, f"{len(wrong)} of {len(seeds)} sequences:\n\n" + "\n\n".join(wrong[:5])
    return len(seeds)


@pytest.mark.parametrize("part", range(4))
def test_a_few_random_sequences_are_the_same_every_way_and_are_taken_back(
    run: takeback.Run, tmp_path: Path, part: int, record_property: Callable[[str, object], None]
) -> None:
    first = part * FAST
    record_property("random sequences", try_sequences(run, range(first, first + FAST), tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_sequences_are_the_same_every_way_and_are_taken_back(
    run: takeback.Run, tmp_path: Path, part: int, record_property: Callable[[str, object], None]
) -> None:
    first = 1000 + part * PER_PART
    record_property("random sequences", try_sequences(run, range(first, first + PER_PART), tmp_path))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_two_thousand_random_sequences_are_the_same_every_way_and_are_taken_back(
    run: takeback.Run, tmp_path: Path, part: int, record_property: Callable[[str, object], None]
) -> None:
    each = -(-SEQUENCES // 10)
    first = 10_000 + part * each
    record_property("random sequences", try_sequences(run, range(first, first + each), tmp_path))
