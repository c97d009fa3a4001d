"""Resolve names of effects and runs: ids, prefixes, `@`, names; and choose those that undo or redo takes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from takeback.errors import Misuse, Refused
from takeback.model.database import is_of_database
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.record import canonical
from takeback.model.remedy import Target
from takeback.model.resource import Scope
from takeback.model.run import OnDeath, RunInfo, RunState
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.model.plan import UndoResult


LONGEST_KEY = 1_000
SHORTEST_PREFIX = 4  # of an id; less is a slip, or meant as the name of a file
_LOOKED_AT = 500  # effects that may have been meant
_NEAR = 0.75  # six of the eight letters of an id
_MISREAD = str.maketrans("oil", "011")
_HAPPENED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK)


def name_of(what: object, noun: str = "effect") -> str:
    """As it was named, or its id if it was given itself."""
    name = what if isinstance(what, str) else getattr(what, "id", None)
    if not isinstance(name, str):
        raise Misuse(f"{what!r} is no {noun}.", hint=f"Give the {noun} itself, or its id as text.")
    return name


def names_of(what: object, noun: str = "effect") -> tuple[str, ...]:
    """Of one, or of several."""
    if isinstance(what, str) or hasattr(what, "id") or not isinstance(what, Iterable):
        return (name_of(what, noun),)
    return tuple(name_of(item, noun) for item in cast("Iterable[object]", what))


def id_of(journal: Journal, what: object, noun: str = "effect", scope: Scope | None = None) -> str:
    """The one id that is meant; of an effect or of a run. `scope`: whose effects `@` counts, else those of all."""
    name = name_of(what, noun)
    if name.startswith("@"):
        return _counted_back(journal, name, scope)
    wanted = name.lower()
    found = list(journal.resolve(wanted)) if wanted and wanted.isascii() else []
    if wanted in found:
        return wanted
    if not found:
        raise Misuse(f"There is no {noun} {name!r}.", hint=_meant(journal, name, noun))
    if len(found) > 1:
        choices = ", ".join(short(id) for id in found)
        raise Misuse(f"{name!r} is ambiguous: {choices}.", hint="Give a few more letters.")
    if len(wanted) < SHORTEST_PREFIX:
        raise Misuse(
            f"{name!r} is too short for the id of {'a run' if noun == 'run' else f'an {noun}'}.",
            hint=f"Give at least {SHORTEST_PREFIX} characters; `takeback {'runs' if noun == 'run' else 'log'}` lists "
            "them. A path goes after `--`: `takeback undo ID -- PATH`.",
        )
    return found[0]


def _meant(journal: Journal, name: str, noun: str) -> str:
    """A hint: the effect or run whose id or name is nearest to this one, and where they are listed."""
    from takeback.model.words import closest

    runs = tuple(journal.runs())
    lists = f"`takeback {'runs' if noun == 'run' else 'log'}` lists them."
    summaries = {short(info.id): info.name for info in runs}
    if noun != "run":
        newest = journal.effects(Query(newest=True, limit=_LOOKED_AT, damaged_too=True))
        summaries |= {short(effect.id): effect.change.summary for effect in newest}
    # An id has no o, i or l: these are misread digits.
    typed = name.lower().translate(_MISREAD)[: max(map(len, summaries), default=0)]
    if found := closest(typed, summaries, _NEAR):
        return f"Did you mean {found} ({summaries[found]})? {lists}"
    found = closest(name, {info.name for info in runs})
    if found == name:
        import shlex

        return f"It is the name of a run: `takeback log --run {shlex.quote(name)}` lists its effects."
    if found:
        return f"Did you mean {found!r}? {lists}"
    return lists


def refuse_odd_key(key: object) -> None:
    """As long and as plain as every store can look it up."""
    if not isinstance(key, str):
        raise Misuse(f"A key is text, not {key!r}.", hint='For example key="order-42".')
    if len(canonical(key)) > LONGEST_KEY or "\0" in key:
        raise Misuse(
            f"A key has at most {LONGEST_KEY:,} bytes, none of them zero.", hint='For example key="order-42".'
        )


def needed_by(journal: Journal, names: Sequence[str]) -> tuple[str, ...]:
    """The ids of the effects that a change says it builds on: a name that means none would protect nothing."""
    ids = tuple(dict.fromkeys(id_of(journal, name) for name in names))
    known = {effect.id for effect in journal.effects(Query(ids=ids, damaged_too=True))} if ids else ()
    for id in ids:
        if id not in known:
            raise Misuse(
                f"{short(id)} is a run, and a change builds on effects.", hint="`takeback log` lists them."
            )
    return ids


def run_of(journal: Journal, name: str, scope: Scope | None = None) -> RunInfo:
    """By name, id or unique prefix. Of several of a name the newest, one of this scope before any other."""
    for where in (scope, None) if scope else (None,):
        if named := [info for info in journal.runs(scope=where) if info.name == name]:
            return named[-1]
    infos = tuple(journal.runs((id_of(journal, name, "run"),)))
    if not infos:
        raise Misuse(
            f"{name!r} is an effect, not a run.", hint="`takeback show` shows which run it belongs to."
        )
    return infos[0]


def _counted_back(journal: Journal, name: str, scope: Scope | None) -> str:
    """`@` is the newest effect; undos do not count, so that `undo @` twice is refused instead of being a redo."""
    back = name[2:] if name.startswith("@~") else ("0" if name == "@" else "")
    if not back.isascii() or not back.isdigit():
        raise Misuse(
            f"{name!r} is not a name for an effect.", hint="`@` is the newest, `@~2` the second before it."
        )
    wanted = int(back.lstrip("0")[:9] or "0")  # SQLite cannot count for ever, and no one has 1,000 million
    so_far = 0
    for effect in latest_first(journal, Query(states=_HAPPENED, scope=scope), 2 * wanted + 20):
        if not effect.is_undo:
            if so_far == wanted:
                return effect.id
            so_far += 1
    where = " in this project" if scope else ""
    raise Misuse(
        f"There is no effect {name!r}: only {so_far} so far{where}.", hint="`takeback log` lists them."
    )


def latest_first(journal: Journal, which: Query, few: int = 20) -> Iterator[Effect]:
    """By the time they took hold: an effect that was held or watched for long and made last comes first."""
    given: set[str] = set()
    while True:
        newest = tuple(journal.effects(which._replace(newest=True, limit=few)))
        floor = newest[-1].seq if len(newest) == few else 0
        late = journal.effects(which._replace(before=floor, told_after=floor)) if floor else ()
        for effect in sorted((*newest, *late), key=lambda one: -one.order):
            if effect.id not in given and effect.order >= floor:
                given.add(effect.id)
                yield effect
        if not floor:
            return
        few *= 8


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
    if isinstance(what, RunInfo):
        return _effects_of_run(journal, what)
    if isinstance(what, (Effect, str)):
        named = name_of(what)
        if named.isascii() and (found := next(journal.effects(Query(ids=(named,))), None)):
            return (made(found),)
        id = id_of(journal, named, scope=scope)
        infos = tuple(journal.runs((id,)))
        return _effects_of_run(journal, infos[0]) if infos else (made(effect_named(journal, id)),)
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


def made(effect: Effect) -> Effect:
    """A held effect goes with its run; named alone, it is dropped by another command."""
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
        and not one.change.facts.others  # what others did beside it goes by its own name only
        and (one.accepted_by != "person" if one.state is State.DONE else one.waits_for == PERSON)
    )
    if not wanted:
        raise Refused(
            f"Run {short(info.id)} has nothing left to undo.",
            hint=f"`takeback log --run {short(info.id)}` shows its effects.",
        )
    return wanted


def stuck_in(journal: Journal, what: object, scope: Scope | None = None) -> tuple[Effect, ...]:
    """If runs are meant: those of their effects that cannot be undone before a person has looked."""
    if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
        return tuple(one for item in cast("Sequence[object]", what) for one in stuck_in(journal, item, scope))
    if isinstance(what, Effect):
        return ()
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
        together = effect.change.undo.together  # an agent's run may have undone other things too
        found = (one for one in journal.effects(of_run) if together)
        return tuple(one for one in found if one.change.undo.together == together) or (effect,)
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
    """Targets where a redo with force found another state than the undo had left. Rows are named by their database."""
    from takeback.model.change import OnConflict

    if redo.change.undo.on_conflict is not OnConflict.FORCE or is_of_database(redo.change.resource):
        return ()
    left = {one.resource: one.after for one in undo.targets}
    return tuple(
        one
        for one in redo.targets
        if any(one.before.get(name) != left.get(one.resource, {}).get(name) for name in _CONTENT)
    )


def _is_drop(undo: Effect, of: Effect) -> bool:
    """A watched command failed and its own run took it back: `apply` makes that again, and redo by its id."""
    from takeback.adapters.tree.targets import WATCH

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
