"""What is in a box becomes part of what it is over: one effect for the files, one that the box starts anew there."""

import os
from collections.abc import Callable
from typing import Any

from takeback.adapters.box.adapter import box_change
from takeback.errors import Conflict
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id, short
from takeback.model.point import Point
from takeback.model.record import Draft, Kind
from takeback.model.resource import display, file_resource
from takeback.runs.box_history import COMMIT
from takeback.runs.box_setting import Hand, Setting
from takeback.runs.box_whole import Beginnings, judged, whole_layer
from takeback.runs.merging import cannot_be_kept
from takeback.runs.outcome import CommandOutcome, changed, in_numbers
from takeback.runs.verbs import Options
from takeback.storage.protocols import Query

_LISTED = 5


def commit(hand: Hand, setting: Setting, point: Point, coverage: str) -> CommandOutcome:
    """The files first: killed in between, the box still stands where it stood, over a base that has all of it, until
    `complete` tells it."""
    from takeback.adapters.tree.capturing import is_timed
    from takeback.adapters.tree.layer import read_layer
    from takeback.sandbox.differences import differences
    from takeback.sandbox.order import Stack

    with whole_layer(hand.layers, setting, point) as layer:
        if not layer:
            return CommandOutcome(0, coverage=coverage, text="There is nothing in the box to commit.")
        beginnings = Beginnings(hand.layers, setting.base, point)
        lefts = judged(differences(layer, Stack(setting.base)), setting.base, beginnings)
        chain = list(hand.layers.chain(point.layer))
        ours, parts = _ours(hand, setting), hand.parts
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
            hand.parts.blobs.disown()  # else the next record, whoever's it is, would fail for it
            raise
    if found.lost:
        raise cannot_be_kept(list(found.lost))
    if found.conflicts:
        raise _conflict(setting, found.conflicts)
    changes = changed(target for target in found.targets if not is_timed(target))
    effect = None
    if found.targets:
        change = _change(hand, setting, found, coverage, point)
        effect = hand.change(lambda: change, Options(needs=_last_step(hand, setting)))
    merged = effect.id if effect else ""
    _start_anew(hand, setting, point, merged)
    numbers = in_numbers(changes)
    text = f"Committed to {setting.base}: {numbers}." if changes else f"{setting.base} has all of it already."
    if found.residue:
        text = f"{text} Not exact: {found.residue}."
    return CommandOutcome(0, effect=effect, changes=changes, coverage=coverage, text=text)


def complete(hand: Hand, setting: Setting) -> None:
    """Whoever committed was killed, or found no room, when the files were merged and the box did not know of it yet:
    now it does. Only for who holds the box."""
    point = hand.layers.head(setting.id)
    if not point.layer:
        return
    query = Query(states=(State.DONE,), made=True, resource=_base(setting))
    for step in _last_step(
        hand, setting
    ):  # only a branch that has none of its own is sought in all that is there
        query = query._replace(needing=step, resource="")
    for effect in hand.parts.journal.effects(query):
        args = effect.change.args
        if (args.get("box"), args.get("point")) == (setting.id, point.id) and not _is_known(hand, effect):
            _keep(hand, _start_anew(hand, setting, point, effect.id))
            return


def _is_known(hand: Hand, merged: Effect) -> bool:
    """The box was told of it once, and then a person had that taken back alone."""
    told = Query(needing=merged.id, states=(State.DONE, State.UNDONE))
    return any(one.change.kind == COMMIT for one in hand.parts.journal.effects(told))


def _keep(hand: Hand, told: Effect | None) -> None:
    """It only says what an earlier run has done: it stays if this one fails."""
    if told:
        hand.parts.journal.append(None, [Draft(Kind.ACCEPT, told.run, told.id)])


def _base(setting: Setting) -> str:
    return file_resource(os.path.realpath(setting.base))


def _last_step(hand: Hand, setting: Setting) -> tuple[str, ...]:
    """The one that led to where the box stands; what is merged stands on it, and is found by it."""
    query = Query(resource=setting.resource, states=(State.DONE,), made=True, newest=True, limit=1)
    return tuple(effect.id for effect in hand.parts.journal.effects(query))


def _change(hand: Hand, setting: Setting, found: Any, coverage: str, point: Point) -> Change:
    from takeback.adapters.tree.change import command_change

    args: dict[str, Any] = {
        "argv": ["box.commit"], "box": setting.id, "point": point.id, "exit_code": 0, "coverage": coverage,
    }  # fmt: skip
    if not found.exact:
        args |= {"exact": False, "residue": found.residue}
    summary = f"commit of box {short(setting.id)}"
    return command_change(hand.parts.blobs, setting.base, summary, found.targets, args)


def _start_anew(hand: Hand, setting: Setting, point: Point, merged: str) -> Effect | None:
    """Over the base as it is now. It needs what was merged: one is not taken back without the other."""
    words = short(merged) if merged else "nothing"
    after = Point(new_id(), "", point.cwd, point.env)
    change = box_change(
        COMMIT, setting.resource, f"commit {words}", point, after, {"merged": merged, "exit_code": 0}
    )
    return hand.change(lambda: change, Options(needs=(merged,) if merged else ()))


def _ours(hand: Hand, setting: Setting) -> Callable[[str, dict[str, Any]], bool] | None:
    """Whether what is there now is what an earlier commit of this box, or its undo, has put there: that is no conflict,
    however new it is."""
    from takeback.adapters.file.states import same
    from takeback.adapters.tree.change import read_targets

    states: dict[str, list[dict[str, Any]]] = {}
    query = Query(
        resource=_base(setting),
        states=(State.DONE, State.UNDONE, State.ABORTED),
    )
    for effect in hand.parts.journal.effects(query):
        if effect.change.args.get("box") != setting.id or effect.forgotten:
            continue
        for target in read_targets(hand.parts.blobs, effect.change.args["targets"]):
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
