"""What a person or an agent means to undo or redo: by effect, run, list, or nothing at all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from takeback.errors import Misuse, Refused
from takeback.model.database import is_of_database
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.project import Scope
from takeback.model.remedy import Target
from takeback.model.run import OnDeath, RunInfo, RunState
from takeback.runs.names import id_of, name_of
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.model.plan import UndoResult

_CONTENT = ("type", "digest", "mode", "target", "value", "present")


def effect_named(journal: Journal, name: str, scope: Scope | None = None) -> Effect:
    id = id_of(journal, name, scope=scope)
    found = next(journal.effects(Query(ids=(id,))), None)
    if found is None:
        raise Misuse(
            f"{name!r} is a run, not an effect.", hint=f"`takeback log --run {short(id)}` lists its effects."
        )
    return found


def effects_of(
    journal: Journal, what: "Effect | RunInfo | str | Sequence[Effect | str]", scope: Scope | None = None
) -> tuple[Effect, ...]:
    if isinstance(what, Effect):
        return (_made(effect_named(journal, what.id)),)
    if isinstance(what, RunInfo):
        return _effects_of_run(journal, what)
    if isinstance(what, str):
        id = id_of(journal, what, scope=scope)
        infos = tuple(journal.runs((id,)))
        return _effects_of_run(journal, infos[0]) if infos else (_made(effect_named(journal, id)),)
    run = getattr(what, "id", None)
    if isinstance(run, str):  # a Run object
        return effects_of(journal, run)
    if not isinstance(what, (list, tuple)):
        raise Misuse(f"{what!r} cannot be undone.", hint="Give an effect, a run, or a list of effects.")
    found = tuple(one for item in what for one in effects_of(journal, item, scope))
    if not found:
        raise Misuse("Nothing was named to undo.", hint="Give an effect or a run.")
    return found


def standing_again(journal: Journal, effect: Effect) -> tuple[Effect, ...]:
    """Itself; or, if it is undone and a redo brought back some of its paths since, these redos."""
    if effect.state is not State.UNDONE:
        return (effect,)
    from takeback.engine.portion import brought_back

    return brought_back(journal, effect) or (effect,)


def _made(effect: Effect) -> Effect:
    """What is held goes with its run, and is dropped by another word when it is named alone."""
    if effect.waits_for == PERSON:
        from takeback.runs.held import held_error

        raise held_error(effect, "undone")
    return effect


def _effects_of_run(journal: Journal, info: RunInfo) -> tuple[Effect, ...]:
    found = journal.effects(Query(run=info.id, states=(State.DONE, State.PROPOSED)))
    wanted = tuple(
        one
        for one in found
        if not one.is_undo
        and not one.change.args.get("others")  # what others did beside it goes by its own name only
        and (one.accepted_by != "person" if one.state is State.DONE else one.waits_for == PERSON)
    )
    if not wanted:
        raise Refused(
            f"Run {short(info.id)} has nothing left to undo.",
            hint=f"`takeback log --run {short(info.id)}` shows its effects.",
        )
    return wanted


def stuck_in(journal: Journal, what: object, scope: Scope | None = None) -> tuple[Effect, ...]:
    """If runs are meant: those of their effects that nobody can take back before a person had a look."""
    if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
        return tuple(one for item in cast("Sequence[object]", what) for one in stuck_in(journal, item, scope))
    name = what if isinstance(what, str) else getattr(what, "id", "")
    infos = journal.runs((id_of(journal, name, scope=scope),)) if name else ()
    return tuple(one for info in infos for one in journal.effects(Query(run=info.id, states=(State.STUCK,))))


def last_undone(journal: Journal, scope: Scope | None = None) -> tuple[Effect, ...]:
    """The newest undo that is in force; with all that was taken back together with it."""
    in_force = Query(states=(State.DONE,), undos=True, newest=True)
    for effect in journal.effects(in_force._replace(scope=scope)):
        of = effect_named(journal, effect.undoes)
        if of.is_undo or _is_drop(effect, of):
            continue
        (info,) = journal.runs((effect.run,))
        of_run = in_force._replace(run=effect.run)
        if info.on_death is OnDeath.FINISH or info.state is RunState.UNDONE:
            return tuple(journal.effects(of_run))
        together = effect.change.args.get("together")  # an agent's run may have undone other things too
        found = (one for one in journal.effects(of_run) if together)
        return tuple(one for one in found if one.change.args.get("together") == together) or (effect,)
    where = " in this project" if scope else ""
    raise Refused(f"There is nothing to redo{where}.", hint="`takeback log` shows what was undone.")


def overwriting(journal: Journal, effect: Effect) -> tuple[Effect, ...]:
    """Redos of it with force that still stand and overwrote something: undo of one brings that back."""
    undos = list(journal.effects(Query(undoing=(effect.id,), states=(State.UNDONE,), newest=True)))
    ids = tuple(one.undone_by for one in undos)
    redos = {one.id: one for one in journal.effects(Query(ids=ids, states=(State.DONE,)))} if ids else {}
    return tuple(
        redos[one.undone_by]
        for one in undos
        if one.undone_by in redos and overwritten(redos[one.undone_by], one)
    )


def overwritten(redo: Effect, undo: Effect) -> tuple[Target, ...]:
    """What a redo with force found that is not what the undo had left. Rows are told of by their database."""
    from takeback.model.plan import OnConflict, leeway_of

    if leeway_of(redo.change).on_conflict is not OnConflict.FORCE or is_of_database(redo.change.resource):
        return ()
    left = {one.resource: one.after for one in undo.targets}
    return tuple(
        one
        for one in redo.targets
        if any(one.before.get(name) != left.get(one.resource, {}).get(name) for name in _CONTENT)
    )


def _is_drop(undo: Effect, of: Effect) -> bool:
    """A watched command failed and its own run took it back: `apply` makes that again, and redo by its id."""
    from takeback.runs.watch import KIND as WATCH

    return of.run == undo.run and of.change.kind == WATCH and bool(of.change.args.get("exit_code"))


def undos_of(
    journal: Journal, what: "Effect | UndoResult | str", scope: Scope | None = None
) -> tuple[Effect, ...]:
    from takeback.model.plan import UndoResult

    if not isinstance(what, UndoResult):
        return (undo_of(journal, what, scope),)
    if not what.undo:
        raise Refused("That undo took nothing back.", hint="So there is nothing to bring back.")
    return tuple(undo_of(journal, effect) for effect in what.undo)


def undo_of(journal: Journal, what: "Effect | str", scope: Scope | None = None) -> Effect:
    effect = effect_named(journal, name_of(what), scope)
    if effect.is_undo:
        return effect
    if effect.state is State.DONE:
        # Partly undone: the newest undo that took some of its paths.
        in_force = Query(undoing=(effect.id,), states=(State.DONE,), newest=True, limit=1)
        for undo in journal.effects(in_force):
            return undo
    if effect.state is not State.UNDONE:
        raise Refused(
            f"Effect {short(effect.id)} is {effect.state.value}, so there is nothing to bring back.",
            hint="Only what was undone can be redone.",
            effect=effect.id,
        )
    return effect_named(journal, effect.undone_by)
