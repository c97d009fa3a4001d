"""An undo that a crash had interrupted, asked for again: settling the crash has finished it. Then this is the
answer; to take back something else as well would be a surprise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.audit.views import undo_json
from takeback.errors import TakebackError
from takeback.frontends.cli.commands import Asked
from takeback.frontends.cli.opening import give
from takeback.frontends.cli.output import clean
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import UndoResult

if TYPE_CHECKING:
    from takeback.api import Takeback

_PAST = {"undo": "Took back", "redo": "Brought back"}


def finished_just_now(
    tb: "Takeback", verb: str, names: Sequence[str], elsewhere: bool = False
) -> list[Effect]:
    """Undos, or redos, that recovery has finished: those that the names are about, or all if nothing was named. Empty
    unless they are all that was asked for. `elsewhere`: by a run or a checkpoint, where more may be left to do."""
    from takeback.engine.settled import Cause

    cause = Cause.REDO_FINISHED if verb == "redo" else Cause.UNDO_FINISHED
    done = [_undo_of(tb.effect(one.effect)) for one in tb.recovered if one.cause is cause]
    undos = [tb.effect(id) for id in dict.fromkeys(done) if id]
    if elsewhere or not undos or not names:
        return [] if elsewhere else undos
    meant = {one.id: one for one in undos} | {one.undoes: one for one in undos}
    if verb == "redo":  # the undo that was taken back, or what that one had undone
        meant |= {tb.effect(one.undoes).undoes: one for one in undos}
    found = [meant.get(_id(tb, name)) for name in names]
    return [one for one in found if one] if all(found) else []


def _undo_of(effect: Effect) -> str:
    return effect.undone_by if effect.state is State.UNDONE else effect.id if effect.is_undo else ""


def _id(tb: "Takeback", name: str) -> str:
    try:
        return tb.effect(name).id
    except TakebackError:
        return ""


def tell_finished(asked: Asked, tb: "Takeback", verb: str, undos: Sequence[Effect]) -> int:
    asked.made.extend(one.id for one in undos)
    effects = [tb.effect(one.undoes) for one in undos]
    give(asked, tb, undo_json(UndoResult("done", tuple(effects), (), undo=tuple(undos))))
    for one in effects:
        name = asked.screen.paint(short(one.id), "cyan")
        asked.screen.say(
            f"{_PAST[verb]} {name}  {clean(one.change.summary)}: what was interrupted is finished."
        )
    return 0
