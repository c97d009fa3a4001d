"""More than two hundred destructive commands in three trees: the sandbox and the watch do what the command does, and
undo brings back exactly what was there."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from tests.trees import ways
from tests.trees.commands import COMMANDS, Command, available
from tests.trees.scenes import SHAPES, Trees, differences
from tests.trees.trial import Place, try_out

SAMPLE = 8  # so many in each tree are tried with every commit
PARTS = 12  # the others are left to the long sweeps

pytestmark = [pytest.mark.root, pytest.mark.needs("git", "setfacl", "setfattr", "setcap", "patch")]


@pytest.fixture
def run(store: Path) -> Iterator[takeback.Run]:
    with takeback.open(str(store)) as tb, tb.run("commands") as run:
        yield run
    with takeback.open(str(store)) as tb:
        assert not tb.verify().findings


def try_all(run: takeback.Run, commands: tuple[Command, ...], shape: str, directory: Path) -> int:
    trees = Trees(directory, shape)
    place = Place(trees.root, trees.renew)
    wrong: list[str] = []
    effects = 0
    try:
        for command in commands:
            try:
                effects += try_out(run, ways.shell(command.line), place)
            except (AssertionError, takeback.TakebackError) as error:
                wrong.append(f"{command} ({shape})\n{type(error).__name__}: {error}")
    finally:
        trees.remove()
    assert not wrong, f"{len(wrong)} of {len(commands)} commands:\n\n" + "\n\n".join(wrong[:10])
    left = [str(path) for path in directory.rglob(".takeback-*")]
    assert not left, left
    return effects


def test_there_are_two_hundred_commands_without_the_optional_ones() -> None:
    assert len(set(COMMANDS)) >= 200


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_can_be_made_again_exactly(tmp_path: Path, shape: str) -> None:
    trees = Trees(tmp_path, shape)
    assert not differences(trees.template(), trees.renew())
    trees.remove()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("half", range(2))
def test_some_destructive_commands_do_the_same_every_way_and_are_taken_back(
    run: takeback.Run, shape: str, half: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    first = list(SHAPES).index(shape) * 11  # other commands in every tree
    chosen = COMMANDS[first :: len(COMMANDS) // SAMPLE][half::2]
    effects = try_all(run, chosen, shape, tmp_path)
    assert effects >= len(chosen)
    record_property("destructive commands taken back", effects)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_destructive_command_does_the_same_every_way_in_one_of_the_trees(
    run: takeback.Run, part: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chosen = available()[part::PARTS]
    effects = try_all(run, chosen, list(SHAPES)[part % len(SHAPES)], tmp_path)
    assert effects >= len(chosen)
    record_property("destructive commands taken back", effects)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("part", range(4))
def test_every_destructive_command_does_the_same_every_way_in_every_tree(
    run: takeback.Run, shape: str, part: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chosen = available()[part::4]
    effects = try_all(run, chosen, shape, tmp_path)
    assert effects >= len(chosen)
    record_property("destructive commands taken back", effects)
