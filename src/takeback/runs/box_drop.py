"""What a failing or interrupted command did in a box, and what was discarded there. It is kept for a while, or held if
someone typed to the command, and applied as the next step of the box."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from takeback.adapters.box.adapter import box_change
from takeback.adapters.box.variables import Variables
from takeback.engine.drop import Final, refusal
from takeback.errors import Failed, Refused, ResourceUnreachable, StoreBusy, StoreFull
from takeback.model.effect import DropReason, Effect
from takeback.model.point import Point
from takeback.runs.box_outcome import listed
from takeback.runs.box_running import Ran, changed_files, make_durable, point_at, standing_after
from takeback.runs.box_setting import Hand, Setting
from takeback.runs.command_line import shown, told
from takeback.runs.request import Request
from takeback.runs.verbs import Options

_TROUBLE = (Refused, Failed, ResourceUnreachable, StoreBusy, OSError)


class BoxDrop(NamedTuple):
    effect: Effect | None = None
    final: Final | None = None  # why it cannot be applied


class Cut(NamedTuple):
    """A command in a box whose changes are not to become its next step."""

    point: Point
    exported: Variables
    request: Request
    env: Mapping[str, str] | None
    coverage: str


def drop_step(hand: Hand, setting: Setting, cut: Cut, ran: Ran, reason: DropReason) -> BoxDrop:
    """The layer stays, if that can be; else the caller removes it. After someone typed to the command it is held until
    someone decides."""
    layers, point = hand.layers, cut.point
    if not changed_files(layers, setting, ran, point.layer):
        return BoxDrop()  # where it went, and its variables, are not worth keeping alone
    try:
        size = 0 if ran.used_terminal else _size(hand, setting, ran, point)
        if not ran.used_terminal and (final := refusal(hand.parts.drops, size)):
            return BoxDrop(None, final)
        make_durable(layers, ran.layer, point.layer, ran.since)
        there = standing_after(setting, point, cut.exported, ran, True, cut.env)
        after = point_at(hand.parts.blobs, there, point, cut.exported)
        args = {"argv": told(cut.request.argv), "exit_code": ran.ended.exit_code, "coverage": cut.coverage}
        change = box_change("run", setting.resource, shown(cut.request.argv), point, after, args)
        effect = hand.hold(change, Options()) if ran.used_terminal else hand.drop(change, reason, size)
    except StoreFull:
        return BoxDrop(None, Final.ROOM)
    except _TROUBLE:
        return BoxDrop(None, Final.UNREADABLE)
    return BoxDrop(effect, None if effect else Final.UNREADABLE)


def drop_all(hand: Hand, setting: Setting, was: Point) -> Effect | None:
    """After everything in the box was discarded: what was there until then."""
    if refusal(hand.parts.drops, 0):
        return None
    change = box_change("run", setting.resource, "what was discarded", setting.start, was, {"exit_code": 0})
    with suppress(*_TROUBLE):  # to undo the discard does the same
        return hand.drop(change, DropReason.BOX, 0)
    return None


def _size(hand: Hand, setting: Setting, ran: Ran, point: Point) -> int:
    from takeback.runs.box_whole import readable
    from takeback.sandbox.differences import differences
    from takeback.sandbox.order import Stack

    stack = Stack(setting.base, hand.layers.stack(point.layer))
    with readable(setting):
        found = listed(differences(hand.layers.unpacked(ran.layer), stack), setting.base)
        return sum(one.size for one in found)
