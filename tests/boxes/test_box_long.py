"""Sessions of many commands: stacks stay short, every point can be reached, nothing is kept that nobody needs."""

import os
from pathlib import Path

import pytest

from takeback.adapters.box import STEP, squash_below
from takeback.model.box import Link, Point
from takeback.model.ids import new_id
from takeback.runs.boxes.box import Box
from takeback.sandbox.layer import LayerForm, Mount, write_form
from takeback.storage.layers import Layers
from tests.world import World

BOX = "b" * 20


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    os.mkdir(tmp_path / "layers")
    made = Layers(str(tmp_path / "layers"))
    made.make(BOX, {"base": "/"}, Point("start", "", "/"))
    return made


def add(layers: Layers, parent: str, name: str) -> str:
    """A layer with one file of its own and one that every layer writes."""
    layer = f"{BOX}/{new_id()}"
    upper = os.path.join(layers.place_of(layer), "0")
    os.makedirs(upper)
    for file in (name, "all"):
        with open(os.path.join(upper, file), "w") as made:
            made.write(name)
    write_form(layers.place_of(layer), LayerForm((Mount("/", "0"),), True, False, 1))
    layers.add(Link(layer, parent, layers.depth(parent) + 1, since=0 if parent else 7))
    return layer


def shown(layers: Layers, layer: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for place in reversed(layers.stack(layer)):
        for name in os.listdir(os.path.join(place, "0")):
            with open(os.path.join(place, "0", name)) as file:
                found[name] = file.read()
    return found


def test_any_point_of_a_long_chain_is_reached_over_a_short_stack(layers: Layers) -> None:
    chain = [""]
    for number in range(1, 301):
        chain.append(add(layers, chain[-1], f"f{number}"))
        if number % STEP == 0:
            squash_below(layers, chain[-1])
    fresh = Layers(layers.path)
    for number in (1, 15, 16, 17, 100, 255, 256, 257, 271, 272, 300):
        stack = fresh.stack(chain[number])
        assert len(stack) <= 2 * (STEP - 1) + 1
        assert shown(fresh, chain[number]) == {
            **{f"f{n}": f"f{n}" for n in range(1, number + 1)},
            "all": f"f{number}",
        }
        assert list(fresh.chain(chain[number]))[-1].since == 7
    assert len(fresh.stack(chain[256])) == 1


def test_a_line_that_was_cut_off_tells_of_nothing(layers: Layers) -> None:
    layer = add(layers, "", "a")
    path = os.path.join(layers.path, BOX, "chain")
    with open(path, "ab") as file:
        file.write(b'{"layer":"half')
    assert Layers(layers.path).stack(layer)
    with open(path, "ab") as file:
        file.write(b"\n")
    later = add(layers, layer, "b")
    assert len(Layers(layers.path).stack(later)) == 2


def test_where_a_box_stands_survives_a_line_that_was_cut_off(layers: Layers) -> None:
    head, there = layers.head(BOX), Point("there", "", "/there" + "e" * 500, {"A": "1"})
    with open(os.path.join(layers.path, BOX, "HEAD"), "ab") as file:
        file.write(b'{"point":"half')
    assert layers.head(BOX) == head
    assert layers.move(BOX, head, there)
    assert Layers(layers.path).head(BOX) == there
    for number in range(200):
        assert layers.move(BOX, there, there._replace(id=str(number)))
        there = there._replace(id=str(number))
    assert Layers(layers.path).head(BOX) == there
    assert os.path.getsize(os.path.join(layers.path, BOX, "HEAD")) < 1 << 17


@pytest.mark.root
def test_squashed_layers_show_the_same_and_each_step_can_be_taken_back(box: Box, world: World) -> None:
    for number in range(STEP + 2):
        box.run(f"echo {number} > f{number}; rm -rf d; mkdir d; echo {number} > d/{number}")
    box._upkeep.wait()  # pyright: ignore[reportPrivateUsage]
    assert len(box._stack(box._head().layer).layers) == 3  # pyright: ignore[reportPrivateUsage]
    assert box.run("ls | wc -l; ls d").stdout.split() == [str(STEP + 3).encode(), str(STEP + 1).encode()]

    box.undo(3)

    assert box.run("ls | wc -l; ls d").stdout.split() == [str(STEP).encode(), str(STEP - 2).encode()]
    assert os.listdir(world.root) == []


def test_a_lock_is_let_go_though_a_process_that_is_being_started_has_a_copy_of_it(layers: Layers) -> None:
    with layers.working(BOX):
        held = [int(fd) for fd in os.listdir("/proc/self/fd") if _is_lock(fd)]
        copies = [os.dup(fd) for fd in held]
    try:
        assert copies
        with layers.working(BOX):
            pass
    finally:
        for fd in copies:
            os.close(fd)


def _is_lock(fd: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith(f"/{BOX}/work")
    except OSError:
        return False
