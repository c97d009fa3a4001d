"""Pack the layers of boxes that are only kept for undo: no box stands on them, but an effect could bring one back."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from takeback.errors import TakebackError
from takeback.model.point import Link
from takeback.sandbox.as_owner import remove_as_owner
from takeback.storage.layers import Layers
from takeback.storage.packing import NotOurs, pack_in_place

_LEAST = 256 << 10  # bytes that go with the directory; less is not worth a file


def pack_layers(layers: Layers, grace: int) -> int:
    """How many bytes were freed. Only while nobody has any box open: a branch may go back to layers of another box."""
    freed = 0
    with ExitStack() as held:
        boxes = layers.boxes()
        for box in boxes:
            if not held.enter_context(layers.alone(box)):
                return 0
            layers.reread(box)
        used = {link.layer for box in boxes for link in _chain(layers, layers.head(box).layer)}
        for box in boxes:
            for link in layers.links(box):
                if link.layer not in used and layers.is_whole(link):
                    with suppress(OSError, TakebackError, NotOurs):  # what cannot be packed stays as it is
                        freed += _packed(layers, link, layers.base_of(box), grace)
    return freed


def _chain(layers: Layers, layer: str) -> Iterator[Link]:
    with suppress(TakebackError):
        yield from layers.chain(layer)


def _packed(layers: Layers, link: Link, base: str, grace: int) -> int:
    place = layers.place_of(link.layer)
    if not os.path.isdir(place) or time.time() - os.stat(place).st_ctime < grace:
        return 0
    own = own_bytes(place)
    if own < _LEAST:
        return 0
    size = pack_in_place(place)
    remove_as_owner(f"{place}.gone", base)
    return own - size


def own_bytes(place: str) -> int:
    """On the disk, but for what other layers have too: that would be there twice."""
    names: dict[tuple[int, int], list[int]] = {}
    for directory, _, found in os.walk(place):
        for name in found:
            status = os.lstat(os.path.join(directory, name))
            if stat.S_ISREG(status.st_mode):
                told = names.setdefault(
                    (status.st_dev, status.st_ino), [0, status.st_nlink, status.st_blocks]
                )
                told[0] += 1
    return sum(blocks * 512 for seen, links, blocks in names.values() if seen == links)
