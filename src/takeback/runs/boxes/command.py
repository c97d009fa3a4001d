"""One command in a box: where it begins, what came of it, what it leaves, what is kept if it fails."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.box import Variables, box_change, put_variables
from takeback.engine.drop import Final, refusal
from takeback.engine.stop import refuse_stopped
from takeback.errors import Failed, Refused, ResourceUnreachable, StoreBusy, StoreFull, TakebackError
from takeback.model.boot_clock import boot_id
from takeback.model.box import Link, Point
from takeback.model.effect import DropReason, Effect
from takeback.model.ids import new_id, short
from takeback.model.resource import file_resource
from takeback.runs.boxes.setting import Setting
from takeback.runs.change import Options, drop_change, hold_change
from takeback.runs.commands.merge import size_of
from takeback.runs.commands.outcome import Changed, how_it_ended, left_behind, why_final
from takeback.runs.commands.request import CommandRequest, TerminalUse, shown, told
from takeback.runs.commands.scratch import hidden
from takeback.runs.core import RunCore
from takeback.runs.stopped import ended_by_stop
from takeback.sandbox.ability import in_words as unmapped
from takeback.storage.layers import Layers
from takeback.storage.protocols import Blobs

if TYPE_CHECKING:
    from takeback.runs.commands.request import Pipes
    from takeback.sandbox.differences import LeftPath
    from takeback.sandbox.protocol import Ended
    from takeback.sandbox.sandbox import Running, Sandbox


class BoxOutcome(NamedTuple):
    exit_code: int  # of the command, as in a shell
    stdout: bytes = b""
    stderr: bytes = b""
    effect: Effect | None = None  # None: it changed nothing, or its changes were dropped
    cwd: str = "/"  # where the next command begins
    coverage: str = ""
    text: str = ""  # what an agent should read
    stopped: str = ""  # "time" or "memory": why it was ended
    dropped: bool = False  # it failed, and its changes were dropped
    leftover: int = 0  # processes that it left running; takeback ended them
    gone: str = ""  # its directory, if it could not be entered; it ran in an empty one
    durable: bool = (
        True  # False: it survives a kill, but is not on the disk yet (`Box.settle` waits for that)
    )
    untold: str = ""  # a sentence: which of its directory and variables were not kept, and why
    unstarted: str = ""  # why the command could not be started
    drop: Effect | None = None  # its changes, if they can still be applied
    final: "Final | None" = None  # why they cannot, if they were dropped for good
    look: Callable[[], tuple[Changed, ...]] = tuple[Changed, ...]

    @property
    def held(self) -> bool:
        """It failed and had read from the terminal: `drop` waits until someone applies or discards it."""
        return self.drop is not None and bool(self.drop.waits_for)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def changes(self) -> tuple[Changed, ...]:
        """Each path it changed; looked up in its layer when asked for, as long as the layer is there."""
        return self.look()


def not_kept(untold: str, too_long: Sequence[str]) -> str:
    names = ", ".join(too_long)
    return f"Too long to be given to another command, and not kept: {names}." if too_long else untold


def in_words(outcome: BoxOutcome) -> str:
    told = [how_it_ended(outcome.stopped, outcome.exit_code)]
    if outcome.unstarted and not outcome.stopped:
        told = [f"The command could not be started ({outcome.unstarted}): exit code {outcome.exit_code}."]
    if outcome.gone:
        told.append(f"Its directory {outcome.gone} cannot be entered any more, so it ran in an empty one.")
        if outcome.cwd == outcome.gone:
            told.append("`cd` with a whole path leads to another.")
    if outcome.leftover:
        told.append(left_behind(outcome.leftover))
    if outcome.dropped:
        became = "held, because it had read from the terminal" if outcome.held else "dropped"
        told.append(
            f"Everything it had changed was {became}: files, current directory and variables are exactly as they were "
            f"before it. You are in {outcome.cwd}."
        )
        if outcome.drop:
            name = short(outcome.drop.id)
            or_not = f", `takeback discard {name}` drops it" if outcome.held else ""
            told.append(f"`takeback apply {name}` makes it the next step after all{or_not}.")
        elif outcome.final:
            told.append(f"This is final: {why_final(outcome.final)}.")
    elif outcome.effect:
        told.append(f"Its changes are kept as step {short(outcome.effect.id)} and can be undone.")
    else:
        told.append("It changed nothing.")
    if outcome.untold and not outcome.dropped:
        told.append(outcome.untold)
    if outcome.exit_code and (why := unmapped(outcome.stderr)):
        told.append(why)
    return " ".join(told)


def listed(lefts: "Iterable[LeftPath]", root: str) -> Iterator[Changed]:
    """Paths as they are called outside the box."""
    start = os.fsencode(root).rstrip(b"/")
    for left in lefts:
        resource = file_resource(start + left.path if left.path != b"/" else start or b"/")
        if left.source is None:
            yield Changed("deleted", resource, 0)
        else:
            yield Changed("modified" if left.below else "added", resource, size_of(left.source))


_ASKED_ELSEWHERE = ("PWD", "SHLVL", "_")  # told by cwd, or of the shell itself


class Ran(NamedTuple):
    running: "Running"  # until it is gone the layer is not to be mounted
    ended: "Ended"
    layer: str  # `box/name`, whether or not it holds anything
    since: int = 0  # the first over the base: when it began to look at it
    used_terminal: bool = False  # it read input from the terminal


class BoxStanding(NamedTuple):
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
    core: RunCore,
    sandbox: "Sandbox",
    setting: Setting,
    point: Point,
    request: CommandRequest,
    stdio: tuple[int, int, int],
    captured: "Pipes | None",
    cut: "Callable[[Ran], None]",
) -> Ran:
    """`cut` gets the outcome of a command that a signal cut short."""
    from takeback.sandbox.protocol import Order, Stack

    refuse_stopped(core.parts, core.agent, core.id)
    name = new_id()
    stack = Stack(setting.base, setting.layers.stack(point.layer))
    since = time.time_ns() if not point.layer else 0
    order = Order(
        request.argv, point.cwd, {**request.env, "PWD": point.cwd}, stdio, request.network, request.timeout,
        request.memory, request.processes, hidden(setting.store, setting.rooms), ask=True, after=since,
        keep_empty=False,
    )  # fmt: skip
    running = sandbox.start(order, stack, os.path.join(setting.place, name))
    use = TerminalUse(stdio)
    try:
        with use, ended_by_stop(core, running.end):
            ended = running.ended(captured)
    except BaseException:
        running.gone()
        if running.rescued:
            cut(Ran(running, running.rescued, f"{setting.id}/{name}", since, use.happened))
        raise
    return Ran(running, ended, f"{setting.id}/{name}", since, use.happened)


def expect(sandbox: "Sandbox", layers: Layers, setting: Setting) -> None:
    """Prepare the sandbox of the next command while no one waits for it."""
    from takeback.sandbox.protocol import Stack

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
) -> BoxStanding:
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
    return BoxStanding(ran.layer if changed else point.layer, ran.ended.cwd or point.cwd, env)


def point_at(blobs: Blobs, standing: BoxStanding, point: Point, exported: Variables) -> Point:
    env = point.env if standing.env == exported else put_variables(blobs, standing.env)
    return Point(new_id(), standing.layer, standing.cwd, env)


def is_somewhere_else(one: Point, other: Point) -> bool:
    return (one.layer, one.cwd, one.env) != (other.layer, other.cwd, other.env)


def make_durable(layers: Layers, layer: str, below: str, since: int) -> bool:
    """Record the layer; whether it is on the disk yet. A small layer is at once, a larger one after `Layers.settle`."""
    link = Link(layer, below, layers.depth(below) + 1, since=since)
    if layers.sync_if_small(link):
        return True
    boot = boot_id()
    layers.add(link._replace(boot=boot))
    if not boot:  # later no one could know whether the machine has stopped in between
        layers.sync(layer)
    return not boot


def changed_files(layers: Layers, setting: Setting, ran: Ran, below: str) -> bool:
    """Found in the layer, not guessed from the command."""
    if not ran.ended.layer:
        return False
    from takeback.sandbox.differences import is_empty
    from takeback.sandbox.protocol import Stack

    try:
        return not is_empty(layers.place_of(ran.layer), Stack(setting.base, layers.stack(below)))
    except PermissionError:
        return True  # it is in a directory that another of the box's users has closed to us


# What a failing or interrupted command did in a box, and what was discarded there. It is kept for a while,
# or held if
# someone typed to the command, and applied as the next step of the box.


_TROUBLE = (Refused, Failed, ResourceUnreachable, StoreBusy, OSError)


class BoxDrop(NamedTuple):
    effect: Effect | None = None
    final: Final | None = None  # why it cannot be applied


class Cut(NamedTuple):
    """A command in a box whose changes are not to become its next step."""

    point: Point
    exported: Variables
    request: CommandRequest
    env: Mapping[str, str] | None
    coverage: str


def drop_step(core: RunCore, setting: Setting, cut: Cut, ran: Ran, reason: DropReason) -> BoxDrop:
    """The layer stays, if that can be; else the caller removes it. After someone typed to the command it is held until
    someone decides."""
    layers, point = setting.layers, cut.point
    if not changed_files(layers, setting, ran, point.layer):
        return BoxDrop()  # where it went, and its variables, are not worth keeping alone
    try:
        size = 0 if ran.used_terminal else _size_of_step(core, setting, ran, point)
        if not ran.used_terminal and (final := refusal(core.parts.drops, size)):
            return BoxDrop(None, final)
        make_durable(layers, ran.layer, point.layer, ran.since)
        there = standing_after(setting, point, cut.exported, ran, True, cut.env)
        after = point_at(core.parts.blobs, there, point, cut.exported)
        args = {"argv": told(cut.request.argv), "exit_code": ran.ended.exit_code, "coverage": cut.coverage}
        change = box_change("run", setting.resource, shown(cut.request.argv), point, after, args)
        effect = (
            hold_change(core, change, Options())
            if ran.used_terminal
            else drop_change(core, change, reason, size)
        )
    except StoreFull:
        return BoxDrop(None, Final.ROOM)
    except _TROUBLE:
        return BoxDrop(None, Final.UNREADABLE)
    return BoxDrop(effect, None if effect else Final.UNREADABLE)


def drop_all(core: RunCore, setting: Setting, was: Point) -> Effect | None:
    """After everything in the box was discarded: its earlier content."""
    if refusal(core.parts.drops, 0):
        return None
    change = box_change("run", setting.resource, "what was discarded", setting.start, was, {"exit_code": 0})
    with suppress(*_TROUBLE):  # to undo the discard does the same
        return drop_change(core, change, DropReason.BOX, 0)
    return None


def _size_of_step(core: RunCore, setting: Setting, ran: Ran, point: Point) -> int:
    from takeback.runs.boxes.commit import readable
    from takeback.sandbox.differences import differences
    from takeback.sandbox.protocol import Stack

    stack = Stack(setting.base, setting.layers.stack(point.layer))
    with readable(setting):
        found = listed(differences(setting.layers.unpacked(ran.layer), stack), setting.base)
        return sum(one.size for one in found)
