"""What this machine allows, found out by doing it."""

import os
from typing import NamedTuple


class Ability(NamedTuple):
    engine: str  # "root" | "user" | "" (there is no sandbox here)
    why: str  # a sentence when there is none
    layers_at: str  # where layers can live, "" nowhere
    not_covered: tuple[tuple[str, str], ...]  # path and reason: read-only inside, or shared with the world
    landlock: int  # its version, 0 none
    cgroups: bool


def ability(place: str) -> Ability:
    """`place`: a directory, usually the store, that layers should be kept in."""
    from takeback.sandbox.guard import is_privileged
    from takeback.sandbox.landlock import version

    return Ability("root" if is_privileged() else "user", "", os.path.realpath(place), (), version(), False)
