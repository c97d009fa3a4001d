"""Which layers of a chain are squashed into one.

A chain is squashed in steps of 16: every 16 layers one that stands for them, every 256 one that stands for those, and
so on. So each layer is linked once for each level, and any point is reached over at most 15 of each level: 45 for a
chain of 4,096 commands, far from the 500 that the kernel can stack. The layers themselves stay for undo.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from takeback.model.ids import new_id
from takeback.model.point import Link

STEP = 16
MOST = 300  # layers in a stack; beyond that the next command waits until they are fewer


class Chains(Protocol):
    """The layers of boxes; kept by the store."""

    def chain(self, layer: str) -> Iterator[Link]:
        """What to stack for a layer, newest first."""
        ...

    def depth(self, layer: str) -> int: ...

    def place_of(self, layer: str) -> str: ...

    def unpacked(self, layer: str) -> str: ...

    def add(self, link: Link) -> None: ...

    def base_of(self, box: str) -> str: ...

    def sync(self, layer: str) -> None: ...

    def is_whole(self, link: Link) -> bool: ...

    def reread(self, box: str) -> None: ...


def due(depth: int) -> bool:
    return depth > 0 and depth % STEP == 0


def squash_below(layers: Chains, layer: str) -> None:
    """Whatever squashes a chain of this depth should have by now."""
    depth, size = layers.depth(layer), STEP
    while depth % size == 0:
        squash_stretch(layers, layer, depth - size)
        size *= STEP


def squash_stretch(layers: Chains, layer: str, until: int) -> bool:
    """One that stands for a layer and those below it that are deeper than `until`."""
    stretch: list[Link] = []
    for link in layers.chain(layer):
        if link.depth <= until:
            break
        stretch.append(link)
    if len(stretch) < 2 or layers.depth(stretch[-1].parent) != until:
        return False
    if not all(map(layers.is_whole, stretch)):
        return False  # what is damaged must not look as if it were not
    squash_links(layers, stretch)
    return True


def squash_links(layers: Chains, stretch: list[Link]) -> Link:
    """It counts only when it is durable: the layers it stands for may be swept then."""
    from takeback.sandbox.as_owner import remove_as_owner, squash_as_owner

    top, bottom = stretch[0], stretch[-1]
    box = top.layer.partition("/")[0]
    made = Link(f"{box}/{new_id()}", bottom.parent, top.depth, top.stands_for, bottom.since)
    place, base = layers.place_of(made.layer), layers.base_of(box)
    try:
        squash_as_owner([layers.unpacked(link.layer) for link in stretch], place, base)
        layers.sync(made.layer)
    except BaseException:
        with suppress(OSError):
            remove_as_owner(place, base)
        raise
    layers.add(made)
    layers.reread(box)
    return made


def is_long(layers: Chains, layer: str) -> bool:
    return sum(1 for _ in layers.chain(layer)) > MOST


def shorten(layers: Chains, layer: str) -> None:
    """Squashing was late, or failed: at once, by stretches of whatever there is."""
    box = layer.partition("/")[0]
    links = list(layers.chain(layer))
    for start in range(0, len(links), STEP * STEP):
        stretch = links[start : start + STEP * STEP]
        # Those of the box that this one is a branch of are squashed by that one.
        if len(stretch) > 1 and stretch[0].layer.startswith(f"{box}/"):
            squash_links(layers, stretch)
