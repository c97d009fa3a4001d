"""One command in a box: where it begins, what it leaves, where the box stands after it."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.box.variables import Variables, put_variables
from takeback.errors import TakebackError
from takeback.model.ids import new_id
from takeback.model.point import Link, Point
from takeback.runs.box_setting import Setting
from takeback.runs.request import Request
from takeback.runs.room import hidden
from takeback.runs.terminal_use import TerminalUse
from takeback.storage.layers import Layers
from takeback.storage.process import boot_id
from takeback.storage.protocols import Blobs

if TYPE_CHECKING:
    from takeback.runs.captured import Captured
    from takeback.sandbox.order import Ended
    from takeback.sandbox.sandbox import Running, Sandbox

_ASKED_ELSEWHERE = ("PWD", "SHLVL", "_")  # told by cwd, or of the shell itself


class Ran(NamedTuple):
    running: "Running"  # until it is gone the layer is not to be mounted
    ended: "Ended"
    layer: str  # `box/name`, whether or not it holds anything
    since: int = 0  # the first over the base: when it began to look at it
    used_terminal: bool = False  # it read what someone typed


class Standing(NamedTuple):
    """Where a box would stand after a command; nothing of it is kept yet."""

    layer: str
    cwd: str
    env: dict[str, str | None]


def variables(setting: Setting, exported: Variables, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """As the next command gets them."""
    found = dict(setting.env)
    for name, value in exported.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found | dict(more or {})


def run_in(
    sandbox: "Sandbox",
    layers: Layers,
    setting: Setting,
    point: Point,
    request: Request,
    stdio: tuple[int, int, int],
    captured: "Captured | None",
    cut: "Callable[[Ran], None]",
) -> Ran:
    """`cut` is told of one that a signal cut short."""
    from takeback.sandbox.order import Order, Stack

    name = new_id()
    stack = Stack(setting.base, layers.stack(point.layer))
    since = time.time_ns() if not point.layer else 0
    order = Order(
        request.argv, point.cwd, {**request.env, "PWD": point.cwd}, stdio, request.network, request.timeout,
        request.memory, request.processes, hidden(setting.store, setting.rooms), ask=True, after=since,
        keep_empty=False,
    )  # fmt: skip
    running = sandbox.start(order, stack, os.path.join(setting.place, name))
    use = TerminalUse(stdio)
    try:
        with use:
            ended = running.ended(captured)
    except BaseException:
        running.gone()
        if running.rescued:
            cut(Ran(running, running.rescued, f"{setting.id}/{name}", since, use.happened))
        raise
    return Ran(running, ended, f"{setting.id}/{name}", since, use.happened)


def expect(sandbox: "Sandbox", layers: Layers, setting: Setting) -> None:
    """The next command's place can be made ready while nobody waits for it."""
    from takeback.sandbox.order import Stack

    with suppress(TakebackError):  # the next command will tell
        chain = layers.chain(layers.head(setting.id).layer)
        sandbox.expect(Stack(setting.base, tuple(layers.place_of(link.layer) for link in chain)))


def standing_after(
    setting: Setting,
    point: Point,
    exported: Variables,
    ran: Ran,
    changed: bool,
    more: Mapping[str, str] | None,
) -> Standing:
    """Variables given for one command only are not kept."""
    only_now = set(more or {})
    after = dict(ran.ended.env)
    before = variables(setting, exported)
    env = dict(exported)
    for name in sorted((after.keys() | before.keys()) - only_now - set(_ASKED_ELSEWHERE)):
        if after.get(name) == before.get(name):
            continue
        env[name] = after.get(name)
        if env[name] == setting.env.get(name):
            del env[name]
    return Standing(ran.layer if changed else point.layer, ran.ended.cwd or point.cwd, env)


def point_at(blobs: Blobs, standing: Standing, point: Point, exported: Variables) -> Point:
    env = point.env if standing.env == exported else put_variables(blobs, standing.env)
    return Point(new_id(), standing.layer, standing.cwd, env)


def is_somewhere_else(one: Point, other: Point) -> bool:
    return (one.layer, one.cwd, one.env) != (other.layer, other.cwd, other.env)


def make_durable(layers: Layers, layer: str, below: str, since: int) -> bool:
    """Told of. Whether it is on the disk by now: what is small is at once, for the rest see `Layers.settle`."""
    link = Link(layer, below, layers.depth(below) + 1, since=since)
    if layers.sync_if_small(link):
        return True
    boot = boot_id()
    layers.add(link._replace(boot=boot))
    if not boot:  # nobody could tell later whether the machine has stopped in between
        layers.sync(layer)
    return not boot


def changed_files(layers: Layers, setting: Setting, ran: Ran, below: str) -> bool:
    """Found in the layer, not guessed from the command."""
    if not ran.ended.layer:
        return False
    from takeback.sandbox.differences import is_empty
    from takeback.sandbox.order import Stack

    try:
        return not is_empty(layers.place_of(ran.layer), Stack(setting.base, layers.stack(below)))
    except PermissionError:
        return True  # it is in a directory that another of the box's users has closed to us
