"""What was in directories that other effects moved meanwhile: told where it is now, if it was changed at all."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from takeback.adapters.file.states import ABSENT, State
from takeback.adapters.file.tree import Scope
from takeback.adapters.file.trouble import CannotCapture
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see, signed_alike
from takeback.adapters.watch.steps import Steps, alike, mixed, moves_in
from takeback.model.remedy import Target
from takeback.model.resource import ancestors, file_resource, path_of
from takeback.storage.protocols import Blobs


def followed(targets: Sequence[Target], steps: Steps, roots: Sequence[str], blobs: Blobs) -> list[Target]:
    moves = moves_in(steps)
    if not moves:
        return list(targets)
    there = {target.resource: target for target in targets}
    with Places() as places:
        return _Following(there, steps, moves, roots, blobs, places).all()


class _Following:
    def __init__(
        self,
        there: Mapping[str, Target],
        steps: Steps,
        moves: Mapping[str, str],
        roots: Sequence[str],
        blobs: Blobs,
        places: Places,
    ) -> None:
        self._there = there
        self._steps = steps
        self._moves = moves
        self._roots = roots
        self._blobs = blobs
        self._places = places
        self._gone: set[str] = set()
        self._found: list[Target] = []

    def all(self) -> list[Target]:
        for target in self._there.values():
            around = next((one for one in ancestors(target.resource) if one in self._moves), "")
            if (
                not around
                and target.resource in self._moves
                and not self._is_watched(self._moves[target.resource])
            ):
                around = target.resource
            if around and target.after["type"] == "absent":
                self._follow(target, around)
        for start, to in self._moves.items():
            if not self._is_watched(to):
                self._found += self._new(start, to)
        return [one for one in self._there.values() if one.resource not in self._gone] + self._found

    def _follow(self, target: Target, around: str) -> None:
        to = self._moves[around]
        name = to + target.resource[len(around) :]
        now = self._there.get(name)
        if now and now.before["type"] != "absent":
            return
        before = _renamed(target.before, around, to)
        after = now.after if now else ABSENT
        if now is None and os.path.lexists(path_of(name)):
            self._gone.add(target.resource)
            looked = None if self._is_watched(name) or "excluded" in before else self._seen(name, before)
            if looked is None:
                return
            after = looked
        self._gone |= {target.resource, name}
        if alike(before, after):
            return
        if self._is_taken(to):
            # It came to where something else had been: so it is told where it was before that.
            self._found.append(mixed(target, self._steps[around], after))
        else:
            self._found.append(Target(name, before, after))

    def _is_taken(self, to: str) -> bool:
        here = self._there.get(to)
        return here is not None and here.before["type"] not in ("absent", "dir")

    def _new(self, start: str, to: str) -> Iterator[Target]:
        """What is new in a directory that was moved out of what is watched."""
        for root in self._roots:
            if start == root or start.startswith(f"{root.rstrip('/')}/"):
                yield from self._new_in(start, start, to)
            elif root.startswith(f"{start}/"):
                yield from self._new_in(root, start, to)

    def _new_in(self, top: str, start: str, to: str) -> Iterator[Target]:
        for directory, folders, names in os.walk(path_of(to + top[len(start) :])):
            for name in (*folders, *names):
                resource = file_resource(os.path.join(directory, name))
                known = self._there.get(start + resource[len(to) :])
                if known is None:
                    now = self._seen(resource, ABSENT)
                    if now is not None:
                        yield Target(resource, ABSENT, now)
                elif "excluded" in known.before and name in folders:
                    folders.remove(name)  # nobody looked into it then either

    def _seen(self, resource: str, before: State) -> State | None:
        return seen(self._places, resource, before, self._blobs)

    def _is_watched(self, resource: str) -> bool:
        return is_watched(resource, self._roots)


def is_watched(resource: str, roots: Collection[str]) -> bool:
    return any(resource.startswith(f"{root.rstrip('/')}/") for root in roots)


def seen(places: Places, resource: str, manner: State, blobs: Blobs) -> State | None:
    """What is there now. None where nobody can look."""
    try:
        place = places.within_reach(resource)
        status = place.stat() if place else None
        if place is None or status is None:
            return ABSENT
        if signed_alike(status, manner):
            return manner
        manner = {"type": "dir"} if manner["type"] == "dir" else manner
        return see(place, manner, Scope(blobs))
    except (OSError, CannotCapture):
        return None


def _renamed(state: State, start: str, to: str) -> State:
    """What it names in the directory is there under another name now as well."""
    inside = f"{start}/"
    more = {
        key: to + state[key][len(start) :]
        for key in ("twin", "unit")
        if key in state and state[key].startswith(inside)
    }
    return state | more if more else state
