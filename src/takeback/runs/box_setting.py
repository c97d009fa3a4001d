"""An open box: what it is over, where its layers are, what its commands may do."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.adapters.box.adapter import BoxAdapter
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.plan import Wishes
from takeback.errors import Misuse, ResourceUnreachable
from takeback.model.change import Change
from takeback.model.effect import DropReason, Effect
from takeback.model.ids import new_id
from takeback.model.plan import UndoResult
from takeback.model.point import Point, box_resource, point_from_json, point_to_json
from takeback.runs import box_history
from takeback.runs.room import room_of
from takeback.runs.verbs import Options
from takeback.storage.disk import reachable
from takeback.storage.layers import Layers

if TYPE_CHECKING:
    from takeback.sandbox.ability import Ability
    from takeback.sandbox.sandbox import Sandbox

# A root filesystem of its own knows nothing of the variables of the machine around it.
_PLAIN = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "dumb",
}


class Hand(NamedTuple):
    """What a run lends to its boxes."""

    parts: Parts
    change: Callable[[Callable[[], Change], Options], Effect | None]
    sandbox: "Callable[[str], Sandbox]"
    undo: Callable[[Sequence[Effect], Wishes, bool], UndoResult]
    drop: Callable[[Change, DropReason, int], Effect | None]
    hold: Callable[[Change, Options], Effect | None]

    @property
    def layers(self) -> Layers:
        return cast(Layers, cast(BoxAdapter, adapter_of(self.parts, "box")).heads)


class Limits(NamedTuple):
    """For every command, unless it is given others."""

    network: bool = True
    timeout: float = 0
    memory: int = 0
    processes: int = 0


class Setting(NamedTuple):
    id: str
    base: str  # "/" or a directory with a root filesystem
    place: str  # where its layers are
    rooms: str  # where the sandbox has its scratch, on the same filesystem
    store: str
    env: Mapping[str, str]  # what a box begins with
    start: Point
    able: "Ability"
    lost: int = 0  # steps that the machine did not survive
    reopened: bool = False

    @property
    def resource(self) -> str:
        return box_resource(self.id)


def begin(
    hand: Hand,
    base: "str | os.PathLike[str]",
    cwd: "str | os.PathLike[str] | None",
    env: Mapping[str, str] | None,
    point: Point | None = None,
) -> Setting:
    """A new box. With a point it goes on from there."""
    base, cwd = _path(base), None if cwd is None else _path(cwd)
    if "\0" in base or not os.path.isdir(base := os.path.realpath(base)):
        raise Misuse(
            f"{base!r} is no directory, so it holds no root filesystem.", hint='Give "/" or one that is.'
        )
    where = cwd if cwd is not None else _here() if base == "/" else "/"
    if not os.path.isabs(where) or "\0" in where:
        raise Misuse(f"{where!r} is no absolute path.", hint="Give the directory as the box will see it.")
    id = new_id()
    start = point or Point(new_id(), "", os.path.normpath(where))
    able, store = room_of(hand.parts)
    about: dict[str, Any] = {"base": base, "start": point_to_json(start)}
    if os.path.realpath(able.layers_at) != os.path.realpath(store):
        about["at"] = os.path.join(able.layers_at, "boxes", id)
        with reachable(about["at"], "made"):
            os.makedirs(about["at"], mode=0o700)
    hand.layers.make(id, about, start)
    return _setting(hand, id, env, able, store)


def _path(given: "str | os.PathLike[str]") -> str:
    try:
        return os.fsdecode(given)
    except TypeError:
        raise Misuse(f"{given!r} is no directory.", hint="Give a path.") from None


def reopen(hand: Hand, id: str, env: Mapping[str, str] | None) -> Setting:
    if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"{id!r} is no box.", hint="Give its id as text.")
    able, store = room_of(hand.parts)
    if not hand.layers.exists(id):
        found = [box for box in hand.layers.boxes() if id and box.startswith(id)]
        if len(found) != 1:
            raise Misuse(f"There is no box {id!r}.", hint="`takeback shell --list` shows those there are.")
        id = found[0]
    setting = _setting(hand, id, env, able, store)._replace(reopened=True)
    if not hand.layers.complete(hand.layers.head(id)):
        return setting._replace(lost=_back_to_what_is_whole(hand, setting))
    return setting


def _back_to_what_is_whole(hand: Hand, setting: Setting) -> int:
    """The machine stopped before the last steps were on the disk: they are taken back, and the record says so. How many
    they were."""
    lost: list[Effect] = []
    for effect in box_history.standing(hand.parts.journal, setting.resource):
        if effect.forgotten:
            lost.clear()
            break
        lost.append(effect)
        if hand.layers.complete(point_from_json(effect.targets[0].before)):
            break
    else:
        lost.clear()
    if not lost:
        raise ResourceUnreachable(
            f"The layers of box {setting.id} are not there any more: they lay in memory, or on a disk that is gone.",
            hint="Start a new box.",
        )
    with hand.layers.working(setting.id):
        hand.undo(lost, Wishes(), False)
    return len(lost)


def _setting(hand: Hand, id: str, env: Mapping[str, str] | None, able: "Ability", store: str) -> Setting:
    about = hand.layers.about(id)
    if not os.path.isdir(about["base"]):
        raise ResourceUnreachable(f"{about['base']}, which the box is over, is gone.", hint="Put it back.")
    place = os.path.dirname(hand.layers.place_of(f"{id}/layer"))
    begins = dict(env) if env is not None else dict(os.environ) if about["base"] == "/" else dict(_PLAIN)
    start = point_from_json(about["start"])
    return Setting(id, about["base"], place, able.layers_at, store, begins, start, able)


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise Misuse(
            "The current directory does not exist any more.", hint="Go to one that does: cd /"
        ) from None
