"""What a step of a box changed: path by path, from its layer, as long as that is there."""

import os
from collections.abc import Iterator

from takeback.adapters.box.variables import read_variables
from takeback.audit.diff import Part, State
from takeback.errors import TakebackError
from takeback.model.effect import Effect
from takeback.model.flaw import Flaw
from takeback.model.ids import short
from takeback.model.point import Point, box_of, point_from_json
from takeback.model.resource import file_resource
from takeback.storage.layers import Layers
from takeback.storage.protocols import Blobs


def lost_layers(layers: Layers) -> Iterator[Flaw]:
    """What is wrong, one sentence each."""
    for box in layers.boxes():
        try:
            whole = layers.complete(layers.head(box))
        except TakebackError:
            whole = False
        if not whole:
            yield Flaw(f"Box {short(box)} has lost layers of the point where it stands.")


def point_words(state: State) -> str:
    point = point_from_json(state)
    files = f"layer {short(point.layer.partition('/')[2])}" if point.layer else "the base"
    return f"{files} in {point.cwd}"


def step_difference(layers: Layers, blobs: Blobs, effect: Effect) -> tuple[Part, ...]:
    parts: list[Part] = []
    for target in effect.targets:
        before, after = point_from_json(target.before), point_from_json(target.after)
        words = tuple(_around(blobs, before, after))
        if words:
            parts.append(Part(target.resource, words))
        if before.layer != after.layer:
            parts += _files(layers, box_of(target.resource), before, after)
    return tuple(parts)


def _around(blobs: Blobs, before: Point, after: Point) -> Iterator[str]:
    if before.cwd != after.cwd:
        yield f"current directory {before.cwd} → {after.cwd}"
    if before.env == after.env:
        return
    try:
        old, new = (read_variables(blobs, point.env) for point in (before, after))
    except TakebackError:
        yield "variables, which are not there any more"
        return
    for name in sorted(old.keys() | new.keys()):
        if (name in old, old.get(name)) != (name in new, new.get(name)):
            # Names only: a value may be a secret.
            yield f"variable {name} {'taken away' if new.get(name, '') is None else 'set'}"


def _files(layers: Layers, box: str, before: Point, after: Point) -> list[Part]:
    """Of one step forth, or of one back; a commit or a jump has no layer of its own."""
    try:
        for top, below, gone, come in (
            (after, before, "deleted", "added"),
            (before, after, "added", "deleted"),
        ):
            if top.layer and layers.own_link(top.layer).parent == below.layer:
                return list(_listed(layers, box, top.layer, below.layer, gone, come))
    except (OSError, TakebackError):
        return [Part(f"box://{box}", ("its layer is not there any more",))]
    return []


def _listed(layers: Layers, box: str, layer: str, below: str, gone: str, come: str) -> Iterator[Part]:
    from takeback.sandbox.differences import differences
    from takeback.sandbox.order import Stack

    base = layers.base_of(box)
    root = os.fsencode(base).rstrip(b"/")
    for left in differences(layers.unpacked(layer), Stack(base, layers.stack(below))):
        kind = gone if left.source is None else "modified" if left.below else come
        yield Part(file_resource((root + left.path).rstrip(b"/") or b"/"), (kind,))
