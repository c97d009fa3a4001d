"""What a box does beside its commands: old layers are squashed, dropped ones removed.

A chain is squashed in steps of 16: every 16 layers one that stands for them, every 256 one that stands for those, and
so on. So each layer is linked once for each level, and any point is reached over at most 15 of each level: 45 for a
chain of 4,096 commands, far from the 500 that the kernel can stack. The layers themselves stay for undo.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from takeback.errors import TakebackError
from takeback.model.ids import new_id
from takeback.storage.layers import Layers, Link, sync_layer

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

STEP = 16
MOST = 300  # layers in a stack; beyond that the next command waits until they are fewer


class Upkeep:
    """One thread, started when there is something to do; nothing that depends on it waits for it."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._last: Future[object] | None = None

    def later(self, work: Callable[[], object]) -> None:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(1, "takeback-box")
        self._last = self._threads.submit(_quietly, work)

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def _quietly(work: Callable[[], object]) -> None:
    """What could not be done is done by the next sweep, or not needed: every layer is still there."""
    with suppress(OSError, TakebackError):
        work()


def remove_layer(path: str) -> None:
    from takeback.sandbox.removal import remove

    remove(path)


def due(depth: int) -> bool:
    return depth > 0 and depth % STEP == 0


def squash_below(layers: Layers, layer: str) -> None:
    """Whatever squashes a chain of this depth should have by now."""
    depth, size = layers.depth(layer), STEP
    while depth % size == 0:
        squash_stretch(layers, layer, depth - size)
        size *= STEP


def squash_stretch(layers: Layers, layer: str, until: int) -> bool:
    """One that stands for a layer and those below it that are deeper than `until`."""
    stretch: list[Link] = []
    for link in layers.chain(layer):
        if link.depth <= until:
            break
        stretch.append(link)
    if len(stretch) < 2 or layers.depth(stretch[-1].parent) != until:
        return False
    squash_links(layers, stretch)
    return True


def squash_links(layers: Layers, stretch: list[Link]) -> Link:
    """It counts only when it is durable: the layers it stands for may be swept then."""
    from takeback.sandbox.removal import remove
    from takeback.sandbox.squash import squash

    top, bottom = stretch[0], stretch[-1]
    box = top.layer.partition("/")[0]
    made = Link(f"{box}/{new_id()}", bottom.parent, top.depth, top.stands_for, bottom.since)
    place = layers.place_of(made.layer)
    try:
        squash([layers.place_of(link.layer) for link in stretch], place)
        sync_layer(place)
    except BaseException:
        with suppress(OSError):
            remove(place)
        raise
    layers.add(made)
    layers.reread(box)
    return made


def clear_scratch(layers: Layers, box: str) -> int:
    """What killed processes left in a box; only for whoever works in it alone."""
    count = 0
    for path in list(layers.scratch(box)):
        with suppress(OSError):
            remove_layer(path)
            count += 1
    return count


def is_long(layers: Layers, layer: str) -> bool:
    return sum(1 for _ in layers.chain(layer)) > MOST


def shorten(layers: Layers, layer: str) -> None:
    """Squashing was late, or failed: at once, by stretches of whatever there is."""
    links = list(layers.chain(layer))
    for start in range(0, len(links), STEP * STEP):
        stretch = links[start : start + STEP * STEP]
        if len(stretch) > 1:
            squash_links(layers, stretch)
