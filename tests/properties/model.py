"""A plain model of what takeback promises: what each path looks like, and what each effect found and left."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from takeback.model.effect import State

Look = dict[bytes, dict[str, Any]]  # everything at and below one path; empty if there is nothing


class Change(NamedTuple):
    kind: str  # write, write_all, delete, move
    paths: tuple[str, ...]
    contents: tuple[bytes, ...] = ()


class Known:
    """An effect as the model knows it."""

    def __init__(
        self, id: str, run: str, seq: int, before: dict[str, Look], after: dict[str, Look], undoes: str = ""
    ) -> None:
        self.id = id
        self.run = run
        self.seq = seq
        self.before = before
        self.after = after
        self.undoes = undoes
        self.state = State.DONE
        self.accepted = False
        self.together = False  # a move: both names or neither
        self.taken_from = ""  # for an undo: the effect, also if something of it was left
        self.takes: frozenset[str] | None = None  # of its paths; None: all that it found

    @property
    def paths(self) -> Iterable[str]:
        return self.before.keys()


class Model:
    def __init__(self, world: Look) -> None:
        self.world = world
        self.effects: dict[str, Known] = {}
        self.seq = 0

    def copy(self) -> "Model":
        twin = Model(dict(self.world))
        twin.seq = self.seq
        for id, effect in self.effects.items():
            twin.effects[id] = Known(
                effect.id, effect.run, effect.seq, effect.before, effect.after, effect.undoes
            )
            twin.effects[id].state, twin.effects[id].accepted = effect.state, effect.accepted
            twin.effects[id].together = effect.together
            twin.effects[id].taken_from, twin.effects[id].takes = effect.taken_from, effect.takes
        return twin

    # The world.

    def at(self, path: str) -> Look:
        return {name: seen for name, seen in self.world.items() if _within(name, path.encode())}

    def put(self, path: str, look: Look) -> None:
        for name in self.at(path):
            del self.world[name]
        self.world |= look

    def exists(self, path: str) -> bool:
        return path.encode() in self.world

    def is_directory(self, path: str) -> bool:
        return self.exists(path) and self.world[path.encode()]["mode"].startswith("d")

    # What a change would do.

    def possible(self, change: Change) -> bool:
        parents = [path.rpartition("/")[0] for path in change.paths]
        if not all(self.is_directory(parent) for parent in parents if parent):
            return False
        if change.kind in ("write", "write_all"):
            return not any(self.is_directory(path) for path in change.paths)
        if change.kind == "delete":
            return self.exists(change.paths[0])
        source, target = change.paths
        return (
            self.exists(source) and not self.exists(target) and not _within(target.encode(), source.encode())
        )

    def changes_nothing(self, change: Change) -> bool:
        return change.kind in ("write", "write_all") and all(
            self.exists(path) and self.at(path)[path.encode()].get("content") == digest(content)
            for path, content in zip(change.paths, change.contents, strict=True)
        )

    def expected(self, change: Change) -> dict[bytes, str | None]:
        """What must be at each touched path afterwards: the digest of its content, or None for nothing."""
        if change.kind in ("write", "write_all"):
            return {
                path.encode(): digest(content)
                for path, content in zip(change.paths, change.contents, strict=True)
            }
        gone: dict[bytes, str | None] = dict.fromkeys(self.at(change.paths[0]))
        if change.kind == "delete":
            return gone
        source, target = (path.encode() for path in change.paths)
        there = {
            target + name[len(source) :]: seen.get("content")
            for name, seen in self.at(change.paths[0]).items()
        }
        return gone | there

    def done(self, id: str, run: str, paths: Iterable[str], world: Look, undoes: str = "") -> Known:
        """It happened: what the world looks like now is what the effect left."""
        before = {path: self.at(path) for path in paths}
        self.world = dict(world)
        self.seq += 1
        effect = Known(id, run, self.seq, before, {path: self.at(path) for path in before}, undoes)
        self.effects[id] = effect
        return effect

    # Undo.

    def blockers(self, effect: Known, chosen: Iterable[str] = ()) -> list[Known]:
        return [
            later
            for later in self.effects.values()
            if later.seq > effect.seq
            and later.state is State.DONE
            and not later.undoes
            and later.id not in (effect.id, effect.undoes, *chosen)
            and any(
                overlap(mine, theirs) for mine in self.standing(effect) for theirs in self.standing(later)
            )
        ]

    def closure(self, effect: Known) -> list[Known]:
        """With everything that stands on it, newest first."""
        chosen = {effect.id: effect}
        unseen = [effect]
        while unseen:
            for later in self.blockers(unseen.pop(), chosen):
                chosen[later.id] = later
                unseen.append(later)
        return sorted(chosen.values(), key=lambda one: -one.seq)

    def standing(self, effect: Known) -> list[str]:
        """Its paths, without those that an undo took and no redo brought back."""
        return sorted(self._remaining(effect, frozenset(effect.paths)))

    def _remaining(self, effect: Known, paths: frozenset[str]) -> frozenset[str]:
        for undo in self.effects.values():
            if paths and undo.taken_from == effect.id:
                paths -= self._remaining(undo, paths if undo.takes is None else paths & undo.takes)
        return paths

    def outcomes(self, effect: Known) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in self.standing(effect):
            now = self.at(path)
            found[path] = (
                "undone"
                if alike(now, effect.after[path])
                else "already"
                if alike(now, effect.before[path])
                else "conflict"
            )
            if found[path] == "undone" and not self._has_room_for(path, effect.before[path]):
                found[path] = "conflict"
        if effect.together and len(set(found.values())) > 1:
            back = all(found[path] == "already" for path in found if effect.before[path])
            return dict.fromkeys(found, "already" if back else "conflict")
        return found

    def _has_room_for(self, path: str, look: Look) -> bool:
        """Nothing comes back into a directory that is gone."""
        parent = path.rpartition("/")[0]
        return not look or not parent or self.is_directory(parent)

    def undo(self, effect: Known, by: str, run: str, how: str = "refuse") -> bool:
        """False if someone's work is in the way. Nothing is recorded when there is nothing to do."""
        outcomes = self.outcomes(effect)
        if how == "force":
            outcomes = {
                path: "undone"
                if outcome == "conflict" and self._has_room_for(path, effect.before[path])
                else outcome
                for path, outcome in outcomes.items()
            }
        conflicts = [path for path, outcome in outcomes.items() if outcome == "conflict"]
        if conflicts and how != "skip":
            return False
        restored = [path for path, outcome in outcomes.items() if outcome == "undone"]
        if not restored:
            return not conflicts
        if not conflicts and not self._fits(effect):
            return False
        world = self.copy()
        comes = self._moved_back(effect) if effect.together else effect.before
        for path in restored:
            world.put(path, comes[path])
        made = self.done(by, run, restored, world.world, undoes=effect.id)
        made.together = effect.together
        made.taken_from = effect.id
        if conflicts or len(outcomes) < len(effect.before):
            made.takes = frozenset(outcomes).difference(conflicts)
        if not conflicts:
            self._taken_back(effect)
        else:
            made.undoes = f"part of {effect.id}"
        return True

    def _moved_back(self, effect: Known) -> dict[str, Look]:
        """A file takes along the time it has by now, which is not always the one it had when it was moved."""
        here, there = sorted(effect.paths, key=lambda path: len(effect.before[path]))
        now = {there.encode() + name[len(here.encode()) :]: seen for name, seen in self.at(here).items()}
        return {here: {}, there: now}

    def _fits(self, effect: Known) -> bool:
        """Whether everything that would come and go with it is where it would come or go from."""
        brought_back = self.effects.get(effect.undoes)
        if effect.state is not State.DONE or (brought_back and brought_back.state is not State.UNDONE):
            return False
        taken_back = self.effects.get(brought_back.undoes) if brought_back else None
        return taken_back is None or self._fits(taken_back)

    def _taken_back(self, effect: Known) -> None:
        effect.state = State.UNDONE
        brought_back = self.effects.get(effect.undoes)
        if brought_back:
            brought_back.state = State.DONE
            if brought_back.undoes in self.effects:
                self._taken_back(self.effects[brought_back.undoes])

    def roll_back(self, run: str, by: Mapping[str, str]) -> None:
        """A run that failed: newest first, what others stand on or changed stays."""
        mine = [one for one in self.effects.values() if one.run == run and one.state is State.DONE]
        for effect in sorted(mine, key=lambda one: -one.seq):
            if not effect.undoes and not effect.accepted and not self.blockers(effect):
                self.undo(effect, by.get(effect.id, f"undo of {effect.id}"), run, "skip")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def alike(one: Look, other: Look) -> bool:
    """The same but for when it was last written: nobody's work is lost with that."""
    return _without_times(one) == _without_times(other)


def _without_times(look: Look) -> Look:
    return {path: {name: seen[name] for name in seen if name != "mtime"} for path, seen in look.items()}


def overlap(one: str, other: str) -> bool:
    return _within(one.encode(), other.encode()) or _within(other.encode(), one.encode())


def _within(name: bytes, path: bytes) -> bool:
    return name == path or name.startswith(path + b"/")
