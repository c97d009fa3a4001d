"""A signal came while a command was at work: what became of its changes goes with the interruption, to be told."""

from typing import TYPE_CHECKING

from takeback.frontends.cli.output import clean, counted
from takeback.model.effect import PERSON, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.resource import display
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.run import Run

_LISTED = 5
_BACK = (Outcome.UNDONE, Outcome.ALREADY)


def taken_back(tb: "Takeback", run: "Run", error: BaseException, nothing: str) -> None:
    """End the run; nothing of it may be left open. `nothing`: how to say that no change was made yet."""
    try:
        result = run.take_back()
    except (KeyboardInterrupt, SystemExit) as again:  # another one, heard when all was taken back
        again.add_note(_in_words(tb, run.id, None, nothing))
        raise
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        error.add_note(_in_words(tb, run.id, result, nothing))


def _in_words(tb: "Takeback", run: str, result: UndoResult | None, nothing: str) -> str:
    held = [
        one
        for one in tb.store.journal.effects(Query(run=run, states=(State.PROPOSED,)))
        if one.waits_for == PERSON
    ]
    if held:
        name = short(held[-1].id)
        ways = f"`takeback keep {name}` makes it, `takeback undo {name}` drops it"
        return f"nothing was changed, and what it did is held: {ways}"
    if result is None:
        of_run = tb.store.journal.effects(Query(run=run, states=(State.DONE, State.STUCK)))
        left = [one for one in of_run if not one.is_undo]
        return f"not all of it could be taken back: `takeback show {short(left[0].id)}`" if left else nothing
    if not result.effects:
        return nothing
    stay = [one for one in result.targets if one.outcome not in _BACK]
    if not stay:
        return f"what it had changed was taken back: {counted(len(result.targets), 'path')}"
    names = "; ".join(f"{display(one.resource)} {clean(one.detail)}".rstrip(" .") for one in stay[:_LISTED])
    more = f"; and {len(stay) - _LISTED:,} more" if len(stay) > _LISTED else ""
    name = short(result.effects[0].id)
    return (
        f"not all that it had changed could be taken back: {names}{more}. `takeback undo {name}` tries again"
    )
