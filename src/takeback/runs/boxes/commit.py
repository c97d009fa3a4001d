"""Merge the content of a box, as one layer, into its base; then the box starts again over the new base."""

import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from takeback.adapters.box import box_change
from takeback.errors import Conflict, Refused, ResourceUnreachable
from takeback.model.box import Link, Point
from takeback.model.change import Change, Facts
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id, short
from takeback.model.record import Draft, Kind
from takeback.model.resource import display, file_resource
from takeback.runs.boxes.history import COMMIT
from takeback.runs.boxes.setting import Setting
from takeback.runs.change import Options, make_change
from takeback.runs.commands.merge import cannot_be_kept
from takeback.runs.commands.outcome import CommandOutcome, changed, in_numbers
from takeback.runs.commands.scratch import workshop
from takeback.runs.core import RunCore
from takeback.storage.disk import unreachable
from takeback.storage.layers import Layers
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.sandbox.differences import LeftPath


WHOLES = "wholes"


@contextmanager
def whole_layer(layers: Layers, setting: Setting, point: Point) -> Generator[str, None, None]:
    """Where it lies for the moment; empty for a box that has none. Only hard links are made."""
    stack = layers.stack(point.layer)
    if len(stack) < 2:
        yield stack[0] if stack else ""
        return
    from takeback.sandbox.layer_owner import remove_as_owner, squash_as_owner

    with workshop(os.path.join(setting.rooms, WHOLES)) as mine:
        made = os.path.join(mine, "whole")
        try:
            try:
                squash_as_owner(stack, made, setting.base)
            except OSError as error:
                if isinstance(error, PermissionError) or error.errno == errno.ENAMETOOLONG:
                    raise  # told by `readable`
                raise unreachable(made, "made", error) from error
            yield made
        finally:
            remove_as_owner(made, setting.base)


@contextmanager
def whole_lefts(
    layers: Layers, setting: Setting, point: Point
) -> "Generator[Iterator[LeftPath], None, None]":
    from takeback.sandbox.differences import differences
    from takeback.sandbox.protocol import Stack

    with whole_layer(layers, setting, point) as layer:
        found = differences(layer, Stack(setting.base)) if layer else iter(())
        yield judged(found, setting.base)


@contextmanager
def readable(setting: Setting) -> Generator[None, None, None]:
    """What one of the other users of a root filesystem has closed, its owner outside cannot read; nor can anybody what
    lies deeper than a path can name, which a command reaches step by step."""
    try:
        yield
    except PermissionError as error:
        path = os.fsdecode(error.filename or "Something in it")
        raise ResourceUnreachable(
            f"{path} belongs to another user of the root filesystem {setting.base} and is closed to you.",
            hint="Open it inside the box first, for example: chmod -R a+rX DIRECTORY",
        ) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise Refused(
            "In the box is a path of more than 4,096 bytes, counted from where its layers lie.",
            hint="Nothing was changed. Move or remove it inside the box, or undo the step that made it.",
        ) from error


class Beginnings:
    """Whether a file that is not in the base lay there when the box first changed it, so that someone else took it away
    since. The lowest layer that has it tells: overlay notes on a copy where it came from, and what was removed leaves
    a mark. A squash cannot tell: its copies may be of files that the box itself had made."""

    def __init__(self, layers: Layers, base: str, point: Point) -> None:
        self._layers = layers
        self._base = base
        self._links = list(layers.chain(point.layer))[::-1]
        self._since = self._links[0].since if self._links else 0
        self._told: list[dict[bytes, bool]] = []

    def lay_below(self, path: bytes) -> bool:
        try:
            parent = os.stat(os.path.dirname(os.fsencode(self._base).rstrip(b"/") + path))
        except OSError:
            return False  # its directory is gone, which is recorded itself
        if parent.st_ctime_ns <= self._since:
            return False  # no name was taken away there
        for number in range(len(self._links)):
            told = self._told[number] if number < len(self._told) else self._look(self._links[number])
            if path in told:
                return told[path]
        return False

    def _look(self, link: Link) -> dict[bytes, bool]:
        from takeback.sandbox.differences import differences
        from takeback.sandbox.protocol import Stack

        stack = Stack(self._base, self._layers.stack(link.parent))
        lefts = differences(self._layers.place_of(link.layer), stack)
        self._told.append({left.path: not link.top and left.below for left in lefts})
        return self._told[-1]


def judged(
    lefts: "Iterable[LeftPath]", root: str, beginnings: Beginnings | None = None
) -> "Iterator[LeftPath]":
    """What lay below in the base. Overlay's own note of where a copy came from may mean an earlier layer of the box, so
    only certain facts count: the present state, directories that were merged with one of the base, and the notes of the
    lowest layer."""
    start = os.fsencode(root).rstrip(b"/")
    fresh = b""  # the last directory that the box made itself
    for left in lefts:
        there = os.path.lexists(start + left.path)
        if left.source is None:
            if there:
                yield left._replace(below=True)
            continue
        inside = bool(fresh) and left.path.startswith(fresh + b"/")
        directory = os.path.isdir(left.source) and not os.path.islink(left.source)
        merged = directory and not inside
        if merged and _is_fresh(left.source):
            merged, fresh = False, left.path
        if directory and left.below and _is_moved(left.source):
            merged = True  # moved here, and another took away what it was made of
        if not there and not merged and not inside and fresh != left.path and beginnings:
            merged = beginnings.lay_below(left.path)
        yield left._replace(below=there or merged)


def _is_fresh(directory: bytes) -> bool:
    """Overlay notes on a copy of a directory that there was one below, and on one that was moved here where from."""
    names = _notes(directory)
    return "origin" not in names or "opaque" in names or "redirect" in names


def _is_moved(directory: bytes) -> bool:
    names = _notes(directory)
    return "redirect" in names and "opaque" not in names


def _notes(directory: bytes) -> list[str]:
    return [name.rpartition(".overlay.")[2] for name in os.listxattr(directory) if ".overlay." in name]


_LISTED = 5


def commit(core: RunCore, setting: Setting, point: Point, coverage: str) -> CommandOutcome:
    """The files first: killed in between, the box still stands where it stood, over a base that has all of it, until
    `complete` tells it."""
    from takeback.adapters.tree.capture import is_timed
    from takeback.adapters.tree.layer import read_layer
    from takeback.sandbox.differences import differences
    from takeback.sandbox.protocol import Stack

    with whole_layer(setting.layers, setting, point) as layer:
        if not layer:
            return CommandOutcome(0, coverage=coverage, text="There is nothing in the box to commit.")
        beginnings = Beginnings(setting.layers, setting.base, point)
        lefts = judged(differences(layer, Stack(setting.base)), setting.base, beginnings)
        chain = list(setting.layers.chain(point.layer))
        ours, parts = _ours(core, setting), core.parts
        try:
            with parts.progress.stage("Reading"):
                found = read_layer(
                    lefts,
                    setting.base,
                    chain[-1].since,
                    parts.blobs,
                    ours,
                    stacked=len(chain) > 1,
                    limit=parts.max_capture_bytes,
                    progress=parts.progress,
                )
        except BaseException:
            core.parts.blobs.disown()  # else the next record of any process would fail because of it
            raise
    if found.lost:
        raise cannot_be_kept(list(found.lost))
    if found.conflicts:
        raise _conflict(setting, found.conflicts)
    changes = changed(target for target in found.targets if not is_timed(target))
    effect = None
    if found.targets:
        change = _change(core, setting, found, coverage, point)
        effect = make_change(core, lambda: change, Options(needs=_last_step(core, setting)))
    merged = effect.id if effect else ""
    _start_anew(core, setting, point, merged)
    numbers = in_numbers(changes)
    text = f"Committed to {setting.base}: {numbers}." if changes else f"{setting.base} has all of it already."
    if found.residue:
        text = f"{text} Not exact: {found.residue}."
    return CommandOutcome(0, effect=effect, changes=changes, coverage=coverage, text=text)


def complete(core: RunCore, setting: Setting) -> None:
    """Finish a commit that was killed, or ran out of room, after the files were merged and before the box was changed.
    Only for the holder of the box."""
    point = setting.layers.head(setting.id)
    if not point.layer:
        return
    query = Query(states=(State.DONE,), made=True, resource=_base(setting))
    for step in _last_step(
        core, setting
    ):  # only a branch with none of its own is sought in all that is there
        query = query._replace(needing=step, resource="")
    for effect in core.parts.journal.effects(query):
        args = effect.change.args
        if (args.get("box"), args.get("point")) == (setting.id, point.id) and not _is_known(core, effect):
            # It only says what an earlier run has done: it stays if this one fails.
            if told := _start_anew(core, setting, point, effect.id):
                core.parts.journal.append(None, [Draft(Kind.ACCEPT, told.run, told.id)])
            return


def _is_known(core: RunCore, merged: Effect) -> bool:
    """Whether the box recorded it once, and a person took only that back."""
    told = Query(needing=merged.id, states=(State.DONE, State.UNDONE))
    return any(one.change.kind == COMMIT for one in core.parts.journal.effects(told))


def _base(setting: Setting) -> str:
    return file_resource(os.path.realpath(setting.base))


def _last_step(core: RunCore, setting: Setting) -> tuple[str, ...]:
    """The one that led to where the box stands; what is merged stands on it, and is found by it."""
    query = Query(resource=setting.resource, states=(State.DONE,), made=True, newest=True, limit=1)
    return tuple(effect.id for effect in core.parts.journal.effects(query))


def _change(core: RunCore, setting: Setting, found: Any, coverage: str, point: Point) -> Change:
    from takeback.adapters.tree.targets import command_change

    args: dict[str, Any] = {
        "argv": ["box.commit"], "box": setting.id, "point": point.id, "exit_code": 0, "coverage": coverage,
    }  # fmt: skip
    if not found.exact:
        args |= {"exact": False, "residue": found.residue}
    summary = f"commit of box {short(setting.id)}"
    return command_change(core.parts.blobs, setting.base, summary, found.targets, args)


def _start_anew(core: RunCore, setting: Setting, point: Point, merged: str) -> Effect | None:
    """Over the base as it is now. It needs what was merged: one is not taken back without the other."""
    words = short(merged) if merged else "nothing"
    after = Point(new_id(), "", point.cwd, point.env)
    change = box_change(COMMIT, setting.resource, f"commit {words}", point, after, {"exit_code": 0})
    change = change._replace(facts=Facts(merged=merged))
    return make_change(core, lambda: change, Options(needs=(merged,) if merged else ()))


def _ours(core: RunCore, setting: Setting) -> Callable[[str, dict[str, Any]], bool] | None:
    """Whether the present content comes from an earlier commit of this box, or from its undo: that is no conflict,
    however new it is."""
    from takeback.adapters.file.states import same
    from takeback.adapters.tree.targets import read_targets

    states: dict[str, list[dict[str, Any]]] = {}
    query = Query(resource=_base(setting), states=(State.DONE, State.UNDONE, State.ABORTED))
    for effect in core.parts.journal.effects(query):
        if effect.change.args.get("box") != setting.id or effect.forgotten:
            continue
        for target in read_targets(core.parts.blobs, effect.change.args["targets"]):
            states.setdefault(target.resource, []).extend((target.before, target.after))
    if not states:
        return None
    return lambda resource, now: any(same(now, known) for known in states.get(resource, ()))


def _conflict(setting: Setting, conflicts: Any) -> Conflict:
    named = "; ".join(f"{display(one.resource)} {one.detail}".strip() for one in conflicts[:_LISTED])
    more = f"; and {len(conflicts) - _LISTED} more" if len(conflicts) > _LISTED else ""
    return Conflict(
        f"Others changed what the box changed too: {named}{more}.",
        hint="Nothing was committed, and the box has all its work. Look at these, undo the steps that touch them, or "
        "export the box.",
        resources=tuple(one.resource for one in conflicts),
    )
