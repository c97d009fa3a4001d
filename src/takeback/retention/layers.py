"""Remove the layers of boxes that nothing needs any more.

A layer is needed by where a box stands, and by every effect that could be undone or brought back. Between two such
points layers are squashed into one: no undo can return to a point in between. The present point of a box is kept as
long as the box exists, because it may hold uncommitted work. A box at its first point that no effect names is removed
as a whole.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from takeback.adapters.box import squash_links
from takeback.adapters.protocol import traits_of
from takeback.engine.parts import Parts
from takeback.errors import TakebackError
from takeback.model.box import Link, point_from_json
from takeback.retention.space import NEEDED, needing
from takeback.sandbox.layer_owner import remove_as_owner
from takeback.storage.layer_archive import NotOurs, pack_in_place
from takeback.storage.layers import Layers
from takeback.storage.protocols import Query

# Pack the layers of boxes that are only kept for undo: no box stands on them, but an effect could bring one back.


_LEAST = 256 << 10  # bytes that go with the directory; less is not worth a file


def pack_layers(layers: Layers, grace: int) -> int:
    """The bytes freed. Only while no box is open: a branch may return to layers of another box."""
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
                inode = status.st_dev, status.st_ino
                names.setdefault(inode, [0, status.st_nlink, status.st_blocks])[0] += 1
    return sum(blocks * 512 for seen, links, blocks in names.values() if seen == links)


def sweep_layers(parts: Parts, layers: Layers, grace: int) -> int:
    """How many bytes were freed. Boxes that someone has open are left alone."""
    freed, boxes = 0, layers.boxes()
    with parts.progress.stage("Sweeping", "box"):
        while boxes:
            for box in boxes:
                with layers.alone(box) as mine:
                    if mine:
                        freed += _sweep_box(parts, layers, box, grace)
                parts.progress.moved(items=1)
            left = layers.boxes()
            boxes = left if len(left) < len(boxes) else []  # one that went may have been a branch of another
        freed += pack_layers(layers, grace)
    for half_made in layers.half_made():
        if _is_old(half_made, grace):
            freed += _removed(half_made, "/")
    return freed


def _sweep_box(parts: Parts, layers: Layers, box: str, grace: int) -> int:
    for one in layers.boxes():
        layers.reread(one)
    layers.settle(box)
    named = set(_named_by_effects(parts))
    live = named | {layers.head(one).layer for one in layers.boxes()}
    live.discard("")
    _squash_between(layers, box, live)
    needed = {link.layer for layer in live for link in _chain(layers, layer)}
    kept = [link for link in layers.links(box) if link.layer in needed]
    if len(kept) != len(layers.links(box)):
        layers.keep_only(box, kept)
    base = layers.base_of(box)
    freed = sum(_removed(path, base) for path in list(layers.scratch(box)))
    start = point_from_json(layers.about(box)["start"])
    of_box = Query(resource=f"box://{box}", states=NEEDED, remembered=True, limit=1)
    named_at_all = any(one.startswith(f"{box}/") for one in named) or any(parts.journal.effects(of_box))
    old = _is_old(os.path.join(layers.path, box, "box.json"), grace)
    if not kept and not named_at_all and layers.head(box) == start and old:
        freed += _removed(os.path.dirname(layers.place_of(f"{box}/layer")), base)
        freed += _removed(os.path.join(layers.path, box), base)
    return freed


def _named_by_effects(parts: Parts) -> Iterator[str]:
    for effect in needing(parts, "layers"):
        if not traits_of(effect.change).boxes:
            continue
        for target in effect.targets:
            yield target.before["layer"]
            yield target.after["layer"]
        for name in ("from", "to"):  # a proposal has no remedy yet
            if name in effect.change.args:
                yield effect.change.args[name]["layer"]


def _chain(layers: Layers, layer: str) -> Iterator[Link]:
    """One whose layers are lost needs nothing: it cannot be reached."""
    with suppress(TakebackError):
        yield from layers.chain(layer)


def _squash_between(layers: Layers, box: str, live: set[str]) -> None:
    for layer in sorted(live):
        if not layer.startswith(f"{box}/"):
            continue
        stretch: list[Link] = []
        for link in _chain(layers, layer):
            if stretch and (link.stands_for in live or not link.layer.startswith(f"{box}/")):
                break
            stretch.append(link)
        if len(stretch) > 1 and all(map(layers.is_whole, stretch)):
            with suppress(OSError, TakebackError):  # what cannot be squashed stays as it is
                squash_links(layers, stretch)


def _is_old(path: str, grace: int) -> bool:
    """A box that is just being made is not open yet."""
    try:
        return time.time() - os.stat(path).st_mtime >= grace
    except OSError:
        return False


def _removed(path: str, base: str) -> int:
    """Its bytes, but for what other layers still have."""
    size = os.lstat(path).st_blocks * 512 if os.path.isfile(path) else 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(directory, name))
                size += status.st_blocks * 512 if status.st_nlink == 1 else 0
    with suppress(OSError):
        remove_as_owner(path, base)
        return size
    return 0
