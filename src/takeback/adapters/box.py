"""Where a box stands. A command in a box has left its layer before there is an effect: what is made, taken back and
brought back is only which point the box is at, in one step whatever the command changed."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, Protocol

from takeback.adapters.protocol import TRAITS, Assessment, Receipt
from takeback.errors import Conflict, Corrupt, Drifted, Misuse, Refused, TakebackError
from takeback.model.box import (
    Link,
    Point,
    box_of,
    point_from_json,
    point_to_json,
)
from takeback.model.change import UNDO, Change, OnConflict, Staged
from takeback.model.effect import Effect
from takeback.model.ids import new_id, short
from takeback.model.plan import Obstacle, Outcome, Sighting, Standing, TargetOutcome, TargetSighting, together
from takeback.model.remedy import Offer, Remedy, Strategy, Target
from takeback.model.resource import quote, unquote
from takeback.storage.protocols import Blobs

_WHY = "every point of a box keeps its own layers, so going back is one step"


class Heads(Protocol):
    """Where boxes stand; kept by the store."""

    def boxes(self) -> list[str]: ...

    def exists(self, box: str) -> bool: ...

    def head(self, box: str) -> Point: ...

    def move(self, box: str, expected: Point, to: Point) -> bool:
        """Durable when this returns; False, and nothing changed, if the box stands elsewhere."""
        ...

    def complete(self, point: Point) -> bool:
        """Whether every layer of it is still there."""
        ...


def box_change(
    kind: str, resource: str, summary: str, start: Point, to: Point, args: dict[str, Any]
) -> Change:
    args = {**args, "from": point_to_json(start), "to": point_to_json(to)}
    return Change("box", kind, resource, summary, args)


class BoxAdapter:
    name = "box"
    version = 1
    traits = TRAITS["box"]

    def __init__(self, heads: Heads) -> None:
        self.heads = heads

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        offers = (Offer(Strategy.SNAPSHOT, why=_WHY),)
        if change.kind == UNDO:
            outcome = self._outcome(change, _needed(of))
            nothing = outcome.outcome is not Outcome.UNDONE
            return Assessment((change.resource,), offers, changes_nothing=nothing, outcomes=(outcome,))
        now = point_to_json(self.heads.head(box_of(change.resource)))
        if now not in (change.args["from"], change.args["to"]):
            raise _drifted(change)
        return Assessment((change.resource,), offers, changes_nothing=now == change.args["to"])

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        return ()

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        change = effect.change
        if change.kind != UNDO:
            before, after = change.args["from"], change.args["to"]
        else:
            of = _needed(effect.of)
            outcome = self._outcome(change, of)
            if outcome.outcome is Outcome.CONFLICT:
                raise Conflict(
                    f"The box {outcome.detail}.",
                    hint="Undo the later steps first, or use --force: redo brings the present point back.",
                    resources=(change.resource,),
                )
            before = point_to_json(self.heads.head(box_of(change.resource)))
            after = of.targets[0].before
        targets = (Target(change.resource, before, after),) if before != after else ()
        blobs = {state["env"]: None for state in (before, after) if targets and "env" in state}
        return Remedy(self.name, self.version, offer.strategy, targets, blobs=tuple(blobs))

    def apply(self, effect: Effect) -> Receipt:
        for target in effect.targets:
            self._move(effect, target.resource, target.before, target.after)
        return Receipt()

    def verify(self, effect: Effect) -> Sighting:
        if not effect.targets:
            return Sighting(Standing.AFTER if effect.remedy else Standing.BEFORE)
        return together(tuple(self._sighted(target) for target in effect.targets))

    def undo(self, effect: Effect) -> None:
        for target in effect.targets:
            self._move(effect, target.resource, target.after, target.before)

    def tidy(self, effect: Effect) -> None:
        """Nothing is held: a layer that no effect came of is scratch, and goes with the next sweep."""

    def needed(self) -> Iterator[str]:
        """The variables of where boxes stand, also when the step that led there is forgotten."""
        for box in self.heads.boxes():
            try:
                digest = self.heads.head(box).env
            except TakebackError:
                continue  # told by `verify`
            if digest:
                yield digest

    def _is_there(self, point: Point) -> bool:
        try:
            return self.heads.complete(point)
        except TakebackError:
            return False

    def _move(self, effect: Effect, resource: str, start: dict[str, Any], to: dict[str, Any]) -> None:
        if not self.heads.move(box_of(resource), point_from_json(start), point_from_json(to)):
            raise _drifted(effect.change)

    def _sighted(self, target: Target) -> TargetSighting:
        box = box_of(target.resource)
        if not self.heads.exists(box):
            return TargetSighting(target.resource, Standing.UNKNOWN, {}, f"box {short(box)} is not there")
        now = point_to_json(self.heads.head(box))
        for standing, point in ((Standing.AFTER, target.after), (Standing.BEFORE, target.before)):
            if now == point:
                return TargetSighting(target.resource, standing, now)
        return TargetSighting(target.resource, Standing.FOREIGN, now, f"box {short(box)} is at another point")

    def _outcome(self, change: Change, of: Effect) -> TargetOutcome:
        """What would become of the box. Force goes there from wherever it stands."""
        (target,) = of.targets
        box = box_of(target.resource)
        found = TargetOutcome(target.resource, Outcome.CONFLICT, effect=of.id)
        if not self.heads.exists(box):
            return found._replace(detail="is not there any more", obstacle=Obstacle.OTHER)
        # Where it stands on something lost itself it may go back over more of that.
        if not self._is_there(point_from_json(target.before)) and self._is_there(self.heads.head(box)):
            return found._replace(detail="has lost the layers of that point", obstacle=Obstacle.OTHER)
        now = point_to_json(self.heads.head(box))
        if now == target.before:
            return found._replace(outcome=Outcome.ALREADY, detail="it is at that point")
        if now == target.after or change.undo.on_conflict is OnConflict.FORCE:
            return found._replace(outcome=Outcome.UNDONE)
        return found._replace(detail="has moved on to another point")


def _needed(of: Effect | None) -> Effect:
    if of is None or not of.targets:
        raise Misuse(
            "There is nothing to take back: the effect moved no box.", hint="Name an effect that was done."
        )
    return of


def _drifted(change: Change) -> Refused:
    box = box_of(change.resource)
    return Drifted(
        f"Box {short(box)} is at another point than this change was made for.",
        hint="Nothing was changed. `takeback log` shows later steps of the box: undo these first.",
    )


# Which layers of a chain are squashed into one.
#
# A chain is squashed in steps of 16: every 16 layers one that stands for them, every 256 one that stands for those, and
# so on. So each layer is linked once for each level, and any point is reached over at most 15 of each level: 45 for a
# chain of 4,096 commands, far from the 500 that the kernel can stack. The layers themselves stay for undo.


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


def squash_stretch(layers: Chains, layer: str, until: int) -> None:
    """One that stands for a layer and those below it that are deeper than `until`."""
    stretch = list(takewhile(lambda link: link.depth > until, layers.chain(layer)))
    if len(stretch) < 2 or layers.depth(stretch[-1].parent) != until:
        return
    if all(map(layers.is_whole, stretch)):  # what is damaged must not look as if it were not
        squash_links(layers, stretch)


def squash_links(layers: Chains, stretch: list[Link]) -> None:
    """It counts only when it is durable: the layers it stands for may be swept then."""
    from takeback.sandbox.layer_owner import remove_as_owner, squash_as_owner

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


# What commands in a box have exported. Variables often hold secrets, and records are for ever: so a record names only
# a blob, which goes when the effect is forgotten and the box stands elsewhere.


Variables = Mapping[str, str | None]  # None: taken away


def put_variables(blobs: Blobs, found: Variables) -> str:
    """The digest under which they are found again; empty for none. Salted, so that no one can guess a value and
    compare."""
    if not found:
        return ""
    told = {_told(name): None if value is None else _told(value) for name, value in sorted(found.items())}
    return blobs.put(json.dumps({"salt": os.urandom(16).hex(), "env": told}).encode("ascii"))


def read_variables(blobs: Blobs, digest: str) -> dict[str, str | None]:
    if not digest:
        return {}
    try:
        told: dict[str, str | None] = json.loads(b"".join(blobs.read(digest)))["env"]
        return {_meant(name): None if value is None else _meant(value) for name, value in told.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(
            "The variables of the box cannot be read.", hint="`takeback verify` shows the extent."
        ) from error


def _told(text: str) -> str:
    return quote(os.fsencode(text))


def _meant(text: str) -> str:
    return os.fsdecode(unquote(text))
