"""An undo or a redo that recovery has just finished: it may be all that was asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.audit.views import undo_json
from takeback.errors import TakebackError
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.session.store import give
from takeback.model.effect import Effect, State
from takeback.model.plan import UndoResult
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

_PAST = {"undo": "Took back", "redo": "Brought back"}


def finished_just_now(
    tb: "Takeback",
    verb: str,
    names: Sequence[str],
    elsewhere: bool = False,
    paths: Sequence[str] | None = None,
) -> list[Effect]:
    """Undos, or redos, that recovery has finished: those that the names are about, or all if nothing was named. Empty
    unless they are all that was asked for. `elsewhere`: by a run or a checkpoint, where more may be left to do."""
    from takeback.engine.settled import Cause

    cause = Cause.REDO_FINISHED if verb == "redo" else Cause.UNDO_FINISHED
    done = [_undo_of(tb, tb.effect(one.effect)) for one in tb.recovered if one.cause is cause]
    undos = [tb.effect(id) for id in dict.fromkeys(done) if id]
    if elsewhere or not undos or not names:
        return [] if elsewhere else undos
    meant = {one.id: one for one in undos} | {one.undoes: one for one in undos}
    if verb == "redo":  # the undo that was taken back, or what that one had undone
        meant |= {tb.effect(one.undoes).undoes: one for one in undos}
    found = [meant.get(_id(tb, name)) for name in names]
    done_all = [one for one in found if one and (verb == "redo" or _took_all(tb, one, paths))]
    return done_all if len(done_all) == len(names) else []


def _took_all(tb: "Takeback", undo: Effect, paths: Sequence[str] | None) -> bool:
    """Whether it took back what was asked for: the whole effect, or these paths of it."""
    from takeback.engine.portion import takes, touched_at
    from takeback.runs.scope import resources_named

    taken = takes(undo)
    if paths is None or taken is None:
        return not undo.change.undo.partial
    of = tb.effect(undo.undoes)
    named = {one for names in resources_named(paths) for name in names for one in touched_at(of, name)}
    return bool(named) and named <= set(taken)


def _undo_of(tb: "Takeback", effect: Effect) -> str:
    if effect.state is State.UNDONE:
        return effect.undone_by
    if effect.is_undo:
        return effect.id
    # It is partly undone: by the newest undo of some of its paths.
    in_force = Query(undoing=(effect.id,), states=(State.DONE,), newest=True, limit=1)
    return next((one.id for one in tb.store.journal.effects(in_force)), "")


def _id(tb: "Takeback", name: str) -> str:
    try:
        return tb.effect(name).id
    except TakebackError:
        return ""


def tell_finished(asked: Asked, tb: "Takeback", verb: str, undos: Sequence[Effect]) -> int:
    asked.made.extend(one.id for one in undos)
    effects = [tb.effect(one.undoes) for one in undos]
    give(asked, tb, undo_json(UndoResult("done", tuple(effects), (), undo=tuple(undos))))
    for one, undo in zip(effects, undos, strict=True):
        some = "some paths of " if undo.change.undo.partial else ""
        what = f"{some}{asked.screen.effect(one)}"
        asked.screen.say(f"{_PAST[verb]} {what}: what was interrupted is finished.")
    return 0
