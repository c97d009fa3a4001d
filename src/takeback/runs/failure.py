"""What is told of a run that failed and was taken back: a note on its error."""

from collections.abc import Iterator

from takeback.model.effect import State
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.resource import display
from takeback.runs.watch import KIND as WATCH

_NAMED = 5


def note(name: str, result: UndoResult, dropped: int = 0) -> str:
    """`dropped`: changes that were held, and never came to be."""
    back = len({one.id for one in result.effects if one.state is State.UNDONE})
    text = f"takeback: run {name!r} failed and took back {back} of its effects"
    if dropped:
        text += f" and dropped {dropped} that {'were' if dropped > 1 else 'was'} held in a database, for good"
    return " ".join((text + _stay(result), *_of_watches(result)))


def _stay(result: UndoResult) -> str:
    """What stays for the same reason is named once."""
    stay: dict[str, dict[str, None]] = {}  # the paths, by why
    for one in result.targets:
        if one.outcome in ("conflict", "failed", "excluded"):
            stay.setdefault(one.detail, {})[display(one.resource)] = None
    if not stay:
        return "."
    told = [_folded(list(paths), why) for why, paths in list(stay.items())[:_NAMED]]
    if len(stay) > _NAMED:
        told.append("…")
    count = len({path for paths in stay.values() for path in paths})
    return f"; {count:,} target{'s stay' if count > 1 else ' stays'}: {'; '.join(told)}"


def _folded(paths: list[str], why: str) -> str:
    first = f"{paths[0]} {why}".strip()
    if len(paths) == 1:
        return first
    others = ", ".join(paths[1:_NAMED])
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f"{first.rstrip('.')} (so {others}{more})"


def _of_watches(result: UndoResult) -> Iterator[str]:
    """What others changed in a watched directory counts as the run's: so the paths are named."""
    for undo in result.undo:
        if undo.of is None or undo.of.change.kind != WATCH:
            continue
        names = [
            display(one.resource)
            for one in result.targets
            if one.effect == undo.undoes and one.outcome is Outcome.UNDONE
        ]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield (
            f"In watched directories, these changes were taken back, by any author: {', '.join(names[:_NAMED])}"
            f"{more}; `takeback redo {short(undo.id)}` brings it back."
        )
