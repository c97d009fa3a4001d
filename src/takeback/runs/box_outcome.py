"""What came of a command in a box."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.resource import file_resource
from takeback.runs.outcome import Changed, left_behind, why_final
from takeback.sandbox.unmapped import in_words as unmapped

if TYPE_CHECKING:
    from takeback.engine.drop import Final
    from takeback.sandbox.differences import Left


def _none() -> tuple[Changed, ...]:
    return ()


class BoxOutcome(NamedTuple):
    exit_code: int  # the command's own, as a shell tells it
    stdout: bytes = b""
    stderr: bytes = b""
    effect: Effect | None = None  # None: it changed nothing, or what it changed was dropped
    cwd: str = "/"  # where the next command begins
    coverage: str = ""
    text: str = ""  # what an agent should read
    stopped: str = ""  # "time" or "memory": why it was ended
    dropped: bool = False  # it failed, and nothing of what it had changed was made
    leftover: int = 0  # processes that were still there at its end, and were ended with it
    gone: str = ""  # the directory it should have begun in, which it could not enter: it ran in an empty one
    # False: it is told, no kill can take it away any more, but it is not yet on the disk (`Box.settle` waits for that).
    durable: bool = True
    untold: str = ""  # a sentence: what of its directory and variables could not be kept, and why
    unstarted: str = ""  # why the command could not be started
    drop: Effect | None = None  # what it had changed, if that can be applied after all
    final: "Final | None" = None  # why it cannot, if it was dropped for good
    look: Callable[[], tuple[Changed, ...]] = _none

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
    """One short paragraph."""
    told = [_ended(outcome)]
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
        told.append(f"What it changed is kept as step {short(outcome.effect.id)} and can be undone.")
    else:
        told.append("It changed nothing.")
    if outcome.untold and not outcome.dropped:
        told.append(outcome.untold)
    if outcome.exit_code and (why := unmapped(outcome.stderr)):
        told.append(why)
    return " ".join(told)


def _ended(outcome: BoxOutcome) -> str:
    if outcome.stopped == "time":
        return "The command took longer than it was given and was ended."
    if outcome.stopped == "memory":
        return "The command needed more memory than it was given and was ended."
    if outcome.unstarted:
        return f"The command could not be started ({outcome.unstarted}): exit code {outcome.exit_code}."
    return f"The command ended with exit code {outcome.exit_code}."


def listed(lefts: "Iterable[Left]", root: str) -> Iterator[Changed]:
    """Paths as they are called outside the box."""
    start = os.fsencode(root).rstrip(b"/")
    for left in lefts:
        resource = file_resource(start + left.path if left.path != b"/" else start or b"/")
        if left.source is None:
            yield Changed("deleted", resource, 0)
        else:
            yield Changed("modified" if left.below else "added", resource, _size(left.source))


def _size(path: bytes) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
