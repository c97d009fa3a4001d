"""Where commands of a store may run apart from the world."""

import os
from typing import TYPE_CHECKING, NamedTuple

from takeback.engine.parts import Parts
from takeback.errors import ResourceUnreachable
from takeback.model.resource import path_of

if TYPE_CHECKING:
    from takeback.sandbox.ability import Ability


class Room(NamedTuple):
    able: "Ability"
    store: str  # covered inside


def hidden(store: str, place: str) -> tuple[str, ...]:
    """What a sandboxed command must not reach: the store and the layers being made, by every path that leads there."""
    from takeback.adapters.file.mounts import names_of

    apart = () if f"{place}/".startswith(f"{store}/") else names_of(os.fsencode(place))
    return tuple(os.fsdecode(name) for name in (*names_of(os.fsencode(store)), *apart))


def room_of(parts: Parts) -> Room:
    from takeback.sandbox.ability import ability

    parts.refuse_if_suspect()
    store = os.fsdecode(path_of(parts.off_limits))
    able = ability(store)
    if not able.engine:
        raise ResourceUnreachable(
            f"There is no sandbox on this machine: {able.why}",
            hint="Nothing was run. `takeback run --in-place` (run.watch) works without one.",
        )
    return Room(able, store)
