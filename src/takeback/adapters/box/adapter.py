"""Where a box stands. A command in a box has left its layer before there is an effect: what is made, taken back and
brought back is only which point the box is at, in one step whatever the command changed."""

from collections.abc import Iterator
from typing import Any, Protocol

from takeback.adapters.protocol import Assessment, Receipt, Traits
from takeback.errors import Conflict, Drifted, Misuse, Refused, TakebackError
from takeback.model.change import UNDO, Change
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Obstacle, OnConflict, Outcome, TargetOutcome
from takeback.model.point import Point, box_of, point_from_json, point_to_json
from takeback.model.remedy import Offer, Remedy, Strategy, Target
from takeback.model.staged import Staged
from takeback.model.standing import Sighting, Standing, TargetSighting, together

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
    return Change(
        "box", kind, resource, summary, {**args, "from": point_to_json(start), "to": point_to_json(to)}
    )


class BoxAdapter:
    name = "box"
    version = 1
    traits = Traits(atomic=True, exact=True)

    def __init__(self, heads: Heads) -> None:
        self.heads = heads

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        offers = (Offer(Strategy.SNAPSHOT, why=_WHY),)
        if change.kind == UNDO:
            outcome = self._outcome(change, _needed(of))
            nothing = outcome.outcome is not Outcome.UNDONE
            return Assessment((change.resource,), offers, changes_nothing=nothing, outcomes=(outcome,))
        now = self.heads.head(box_of(change.resource))
        if now == _point(change, "to"):
            return Assessment((change.resource,), offers, changes_nothing=True)
        if now != _point(change, "from"):
            raise _drifted(change)
        return Assessment((change.resource,), offers)

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
                    hint="Undo what came later first, or force it: the point it is at now can be brought back.",
                    resources=(change.resource,),
                )
            before = point_to_json(self.heads.head(box_of(change.resource)))
            after = of.targets[0].before
        targets = (Target(change.resource, before, after),) if before != after else ()
        blobs = {state["env"]: None for state in (before, after) if targets and "env" in state}
        return Remedy(self.name, self.version, offer.strategy, targets, blobs=tuple(blobs))

    def apply(self, effect: Effect) -> Receipt:
        for target in effect.targets:
            if not self._moved(target.resource, target.before, target.after):
                raise _drifted(effect.change)
        return Receipt()

    def verify(self, effect: Effect) -> Sighting:
        if not effect.targets:
            return Sighting(Standing.AFTER if effect.remedy else Standing.BEFORE)
        return together(tuple(self._sighted(target) for target in effect.targets))

    def undo(self, effect: Effect) -> None:
        for target in effect.targets:
            if not self._moved(target.resource, target.after, target.before):
                raise _drifted(effect.change)

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

    def _moved(self, resource: str, start: dict[str, Any], to: dict[str, Any]) -> bool:
        return self.heads.move(box_of(resource), point_from_json(start), point_from_json(to))

    def _sighted(self, target: Target) -> TargetSighting:
        box = box_of(target.resource)
        if not self.heads.exists(box):
            return TargetSighting(target.resource, Standing.UNKNOWN, {}, f"box {short(box)} is not there")
        now = point_to_json(self.heads.head(box))
        if now == target.after:
            return TargetSighting(target.resource, Standing.AFTER, now)
        if now == target.before:
            return TargetSighting(target.resource, Standing.BEFORE, now)
        return TargetSighting(target.resource, Standing.FOREIGN, now, f"box {short(box)} is at another point")

    def _outcome(self, change: Change, of: Effect) -> TargetOutcome:
        """What would become of the box. Force goes there from wherever it stands."""
        (target,) = of.targets
        box = box_of(target.resource)
        if not self.heads.exists(box):
            return TargetOutcome(
                target.resource, Outcome.CONFLICT, "is not there any more", of.id, obstacle=Obstacle.OTHER
            )
        # Where it stands on something lost itself it may go back over more of that.
        if not self._is_there(point_from_json(target.before)) and self._is_there(self.heads.head(box)):
            return TargetOutcome(
                target.resource,
                Outcome.CONFLICT,
                "has lost the layers of that point",
                of.id,
                obstacle=Obstacle.OTHER,
            )
        now = point_to_json(self.heads.head(box))
        if now == target.before:
            return TargetOutcome(target.resource, Outcome.ALREADY, "it is at that point", of.id)
        if now == target.after or change.args.get("on_conflict") == OnConflict.FORCE:
            return TargetOutcome(target.resource, Outcome.UNDONE, "", of.id)
        return TargetOutcome(target.resource, Outcome.CONFLICT, "has moved on to another point", of.id)


def _needed(of: Effect | None) -> Effect:
    if of is None or not of.targets:
        raise Misuse(
            "There is nothing to take back: the effect moved no box.", hint="Name an effect that was done."
        )
    return of


def _point(change: Change, name: str) -> Point:
    return point_from_json(change.args[name])


def _drifted(change: Change) -> Refused:
    box = box_of(change.resource)
    return Drifted(
        f"Box {short(box)} is at another point than this change was made for.",
        hint="Nothing was changed. `takeback log` shows later steps of the box: undo these first.",
    )
