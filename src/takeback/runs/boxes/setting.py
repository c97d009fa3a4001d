"""An open box: what it is over, where its layers are, what its commands may do, what is done beside them."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.adapters.box import BoxAdapter
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.plan import Wishes
from takeback.errors import Misuse, ResourceUnreachable, TakebackError
from takeback.model.box import Point, box_resource, point_from_json, point_to_json
from takeback.model.effect import Effect
from takeback.model.ids import new_id
from takeback.runs.boxes import history
from takeback.runs.commands.request import directory_of
from takeback.runs.commands.scratch import room_of
from takeback.runs.core import RunCore
from takeback.runs.undo import undo_all
from takeback.storage.disk import reachable
from takeback.storage.layers import Layers

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from takeback.sandbox.ability import Ability


# A root filesystem of its own knows nothing of the variables of the machine around it.
_PLAIN = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "dumb",
}


class BoxLimits(NamedTuple):
    """For every command, unless it is given others."""

    network: bool = True
    timeout: float = 0
    memory: int = 0
    processes: int = 0


class Setting(NamedTuple):
    id: str
    layers: Layers
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
    parts: Parts,
    base: "str | os.PathLike[str]",
    cwd: "str | os.PathLike[str] | None",
    env: Mapping[str, str] | None,
    point: Point | None = None,
) -> Setting:
    """A new box. With a point it continues from there."""
    base, cwd = _path(base), None if cwd is None else _path(cwd)
    if "\0" in base or not os.path.isdir(base := os.path.realpath(base)):
        raise Misuse(
            f"{base!r} is no directory, so it holds no root filesystem.", hint='Give "/" or one that is.'
        )
    where = cwd if cwd is not None else directory_of(None) if base == "/" else "/"
    if not os.path.isabs(where) or "\0" in where:
        raise Misuse(f"{where!r} is no absolute path.", hint="Give the directory as the box will see it.")
    id = new_id()
    start = point or Point(new_id(), "", os.path.normpath(where))
    able, store = room_of(parts)
    about: dict[str, Any] = {"base": base, "start": point_to_json(start)}
    if os.path.realpath(able.layers_at) != os.path.realpath(store):
        about["at"] = os.path.join(able.layers_at, "boxes", id)
        with reachable(about["at"], "made"):
            os.makedirs(about["at"], mode=0o700)
    layers = _layers_of(parts)
    layers.make(id, about, start)
    return _setting(layers, id, env, able, store)


def _layers_of(parts: Parts) -> Layers:
    return cast(Layers, cast(BoxAdapter, adapter_of(parts, "box")).heads)


def _path(given: "str | os.PathLike[str]") -> str:
    try:
        return os.fsdecode(given)
    except TypeError:
        raise Misuse(f"{given!r} is no directory.", hint="Give a path.") from None


def reopen(core: RunCore, id: str, env: Mapping[str, str] | None) -> Setting:
    if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"{id!r} is no box.", hint="Give its id as text.")
    able, store = room_of(core.parts)
    layers = _layers_of(core.parts)
    if not layers.exists(id):
        found = [box for box in layers.boxes() if id and box.startswith(id)]
        if len(found) != 1:
            raise Misuse(f"There is no box {id!r}.", hint="`takeback shell --list` shows those there are.")
        id = found[0]
    setting = _setting(layers, id, env, able, store)._replace(reopened=True)
    lost = 0 if layers.complete(layers.head(id)) else _back_to_what_is_whole(core, setting)
    return setting._replace(lost=lost)


def _back_to_what_is_whole(core: RunCore, setting: Setting) -> int:
    """The machine stopped before the last steps were on the disk: they are taken back, and the record says so. How many
    they were."""
    lost: list[Effect] = []
    for effect in history.standing(core.parts.journal, setting.resource):
        if effect.forgotten:
            lost.clear()
            break
        lost.append(effect)
        if setting.layers.complete(point_from_json(effect.targets[0].before)):
            break
    else:
        lost.clear()
    if not lost:
        raise ResourceUnreachable(
            f"The layers of box {setting.id} are not there any more: they lay in memory, or on a disk that is gone.",
            hint="Start a new box.",
        )
    with setting.layers.working(setting.id):
        undo_all(core, lost, Wishes(), False)
    return len(lost)


def _setting(layers: Layers, id: str, env: Mapping[str, str] | None, able: "Ability", store: str) -> Setting:
    about = layers.about(id)
    if not os.path.isdir(about["base"]):
        raise ResourceUnreachable(f"{about['base']}, which the box is over, is gone.", hint="Put it back.")
    place = os.path.dirname(layers.place_of(f"{id}/layer"))
    begins = dict(env) if env is not None else dict(os.environ) if about["base"] == "/" else dict(_PLAIN)
    start = point_from_json(about["start"])
    return Setting(id, layers, about["base"], place, able.layers_at, store, begins, start, able)


class BoxUpkeep:
    """One thread, started when there is something to do; nothing that depends on it waits for it."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._last: Future[object] | None = None
        self._failed: TakebackError | None = None

    def later(self, work: Callable[[], object]) -> None:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(1, "takeback-box")

        def quietly() -> None:
            # What could not be done is done by the next sweep, or not needed: every layer is still there.
            with suppress(OSError, TakebackError):
                work()

        self._last = self._threads.submit(quietly)

    def settle(self, layers: Layers, box: str) -> None:
        """Write recorded layers to the disk."""

        def work() -> None:
            try:
                layers.settle(box)
            except TakebackError as error:
                self._failed = error

        self.later(work)

    def complain(self) -> None:
        """The next call reports what could not be written in the background."""
        failed, self._failed = self._failed, None
        if failed:
            raise failed

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def remove_layer(path: str, base: str) -> None:
    from takeback.sandbox.layer_owner import remove_as_owner

    remove_as_owner(path, base)


def clear_scratch(layers: Layers, box: str) -> int:
    """Clear what killed processes left in a box; only while no other process has it open, because an unfinished squash
    would be removed too."""
    count = 0
    for path in list(layers.scratch(box)):
        with suppress(OSError):
            remove_layer(path, layers.base_of(box))
            count += 1
    return count
