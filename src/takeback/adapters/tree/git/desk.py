"""What the undo of an effect has before it in one git directory: the planned steps, the world, the store."""

import os
import time
from collections.abc import Callable, Iterable, Mapping

from takeback.adapters.file.build import Tools
from takeback.adapters.file.states import ABSENT, State, lasting
from takeback.adapters.file.tree import Scope
from takeback.adapters.tree.git.layout import GitPart, Spot, content_at
from takeback.adapters.tree.git.objects import ObjectStore
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see
from takeback.adapters.tree.undoing import Step
from takeback.model.naming import name_of
from takeback.model.plan import Obstacle, Outcome, TargetOutcome
from takeback.model.remedy import Target
from takeback.model.resource import path_of

_LOST = "would name {oid}, which this repository no longer has"


class GitDesk:
    """One git directory. Steps are taken from and put back to the plan of the whole undo."""

    def __init__(
        self,
        home: str,
        spots: Mapping[str, Spot],
        targets: Mapping[str, Target],
        steps: dict[str, Step],
        places: Places,
        tools: Tools,
        scope: Scope,
        force: bool,
    ) -> None:
        self.home = home
        self.spots = {resource: spot for resource, spot in spots.items() if spot.home == home}
        self.targets = targets
        self.steps = steps
        self.places = places
        self.force = force
        self.blobs = tools.blobs
        self._scope = scope
        self._objects: ObjectStore | None = None

    def of(self, *parts: GitPart) -> list[tuple[str, Spot]]:
        return [(resource, spot) for resource, spot in self.spots.items() if spot.part in parts]

    def now(self, resource: str) -> State:
        """What is there, captured if the undo is about to be made."""
        place = self.places.within_reach(resource)
        if place is None or place.stat() is None:
            return ABSENT
        target = self.targets.get(resource)
        return see(place, target.after if target else ABSENT, self._scope)

    def content_now(self, resource: str) -> bytes | None:
        return content_at(self.places, resource)

    def content(self, state: State) -> bytes | None:
        """Of a recorded state; nothing of a file that is not there; None if nobody can tell."""
        if state["type"] == "absent":
            return b""
        if state["type"] != "file" or "digest" not in state or not self.blobs.has(state["digest"]):
            return None
        return b"".join(self.blobs.read(state["digest"]))

    def written(self, content: bytes, like: State, resource: str) -> State:
        """A file with this content, and the owner and mode of another."""
        if self._scope.keep:
            self._scope.keep.put(content, like=resource)
        kept = {key: like[key] for key in ("mode", "uid", "gid", "xattrs", "owner_lost") if key in like}
        digest = name_of(content).hex()
        return {"type": "file", "digest": digest, "size": len(content), "mtime": time.time_ns(), **kept}

    def outcome(self, resource: str) -> Outcome | None:
        step = self.steps.get(resource)
        return step.outcome.outcome if step else None

    def is_plain(self, resource: str) -> bool:
        """Whether nobody changed it since, by its bytes, and it goes back to what it was."""
        step, target = self.steps.get(resource), self.targets[resource]
        if step is None or step.target is None or step.outcome.outcome is not Outcome.UNDONE:
            return False
        now, after = step.target.before, target.after
        return now["type"] == after["type"] and now.get("digest") == after.get("digest")

    def goes(self, resource: str) -> bool:
        """Whether the undo removes it."""
        step = self.steps.get(resource)
        return step is not None and step.target is not None and step.target.after["type"] == "absent"

    def stay(self, resource: str, why: str) -> None:
        self.steps[resource] = Step(TargetOutcome(resource, Outcome.ALREADY, why, obstacle=Obstacle.OTHER))

    def refuse(self, resource: str, why: str) -> None:
        self.steps[resource] = Step(TargetOutcome(resource, Outcome.CONFLICT, why))

    def change(self, resource: str, now: State, goal: State, detail: str) -> None:
        target = Target(resource, now, lasting(goal))
        self.steps[resource] = Step(TargetOutcome(resource, Outcome.UNDONE, detail), target)

    def missing(self, oids: Iterable[str]) -> str:
        """What to say if the repository lacks one of these objects; else empty."""
        lost = self.objects().missing(oids)
        return _LOST.format(oid=lost[:10]) if lost else ""

    def objects(self) -> ObjectStore:
        if self._objects is None:
            coming = [
                (spot, self.steps[resource].target)
                for resource, spot in self.of(GitPart.OBJECT)
                if resource in self.steps
            ]
            there = [(spot, one) for spot, one in coming if one is not None and one.after["type"] == "file"]
            indexes = (self.content(one.after) for _, one in there if one.resource.endswith(".idx"))
            self._objects = ObjectStore(
                self._object_directory(),
                (spot.name for spot, _ in there if spot.name),
                (content for content in indexes if content),
            )
        return self._objects

    def _object_directory(self) -> bytes:
        path = path_of(self.home)
        shared = content_at(self.places, f"{self.home}/commondir")
        if shared is not None:
            path = os.path.normpath(os.path.join(path, shared.rstrip(b"\n")))
        return os.path.join(path, b"objects")

    def each(self, part: GitPart, judge: Callable[[str, Spot], None]) -> None:
        for resource, spot in self.of(part):
            if resource in self.steps:
                judge(resource, spot)
