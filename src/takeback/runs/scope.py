"""Which project and which paths are meant, which effects are theirs, and which others they touch."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.errors import Misuse, Refused, StoreBusy
from takeback.model.effect import COMMAND, OPEN_STATES, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, TargetOutcome
from takeback.model.resource import Project, Scope, display, file_resource, in_scope, outside
from takeback.model.run import OnDeath, RunInfo
from takeback.runs.selection import effects_of, id_of, latest_first
from takeback.storage.projects import begun_at, here, scope_at
from takeback.storage.protocols import Journal, Leases, Query

if TYPE_CHECKING:
    from takeback.engine.parts import Parts
    from takeback.engine.portion import Chosen
    from takeback.runs.verbs import Path


_ONE = "Paths can be chosen of one effect at a time."


def resource_of(path: "Path") -> str:
    """The parent is resolved, the last part is not: it may be a link that was changed itself."""
    from takeback.adapters.file.paths import path_bytes

    raw = path_bytes(path)
    if not raw or b"\0" in raw:
        raise Misuse(
            "An empty path, or one with a zero byte, names nothing.",
            hint="Nothing was changed. `.` names the current directory.",
        )
    whole = os.path.abspath(raw)
    parent, name = os.path.split(whole)
    return file_resource(os.path.join(os.path.realpath(parent), name) if name else whole)


def resources_named(paths: "Iterable[Path] | Path") -> list[tuple[str, ...]]:
    """By path: the resource it names, and the one that a link there leads to."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise Misuse("Paths are given as a list.", hint='For example paths=["config.toml", "src"].')
    named = [(resource_of(one), file_resource(os.path.realpath(os.fsencode(one)))) for one in paths]
    return [tuple(dict.fromkeys(one)) for one in named]


def effects_with_paths(
    parts: "Parts", what: object, paths: "Sequence[Path]", scope: Scope | None, more: bool
) -> "Chosen":
    """`more`: later effects, or what it was built on, were asked for too."""
    from takeback.engine.portion import chosen

    if more:
        raise Misuse(
            "Paths cannot be combined with --cascade or --with-needs, which take back whole effects.",
            hint="Undo the later effects first, or merge.",
        )
    resources = resources_named(paths)
    if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
        named = cast("Sequence[object]", what)
        if len(named) != 1:
            raise Misuse(_ONE, hint="Name one effect; `takeback log PATH` lists those that touched a path.")
        what = named[0]
    id = what.id if isinstance(what, Effect) else what if isinstance(what, str) else getattr(what, "id", "")
    if not isinstance(id, str) or any(parts.journal.runs((id_of(parts.journal, id, scope=scope),))):
        raise Misuse(_ONE, hint="That is a run; `takeback log --run` lists its effects.")
    (effect,) = effects_of(parts.journal, id, scope)
    return chosen(parts, effect, resources)


_HAPPENED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK)


class Elsewhere(NamedTuple):
    """The newest effect of all, where it belongs to another project."""

    effect: Effect
    project: str  # as a resource


def directory_meant(project: "Path | None") -> bytes | None:
    """As a real path; the current directory if none is named, None if that is gone."""
    if project is None:
        return here()
    from takeback.adapters.file.paths import path_bytes

    return os.path.realpath(path_bytes(project))


def scope_of(journal: Journal, project: "Path | None" = None) -> Scope:
    """Of the project that holds this directory. Home and `/` are projects only with a marker of their own."""
    directory = directory_meant(project)
    scope = scope_at(journal, directory) if directory is not None else Scope(())
    if not scope.roots:
        where = display(file_resource(directory)) if directory is not None else ""
        raise Refused(
            f"{where} is not a project." if where else "The current directory was removed.",
            hint="Go to a project, name an effect or a run, or use --all for everything.",
        )
    return scope


def scope_of_run(journal: Journal, run: str) -> Scope | None:
    """Of the project that it began in; None if that was none."""
    info = next(journal.runs((run,)), None)
    if info is None or not info.project:
        return None
    marked = any(one.marked for one in journal.projects((info.project,)))
    return Scope((info.project,), "" if marked else info.project)


def opening(journal: Journal, project: "Path | None" = None) -> dict[str, Any]:
    """The project fields for the record of a run that begins there."""
    directory = directory_meant(project)
    begun = begun_at(journal, directory) if directory is not None else None
    if begun is None:
        return {}
    return {"project": begun.root} | ({"marked": True} if begun.marked else {})


def as_those_of(projects: Sequence[Project]) -> dict[str, Any]:
    """The same for a run that takes back what runs of these projects did: it belongs where they belong."""
    found = {one.root for one in projects} - {""}
    if len(found) != 1:
        return {}
    marked = any(one.marked for one in projects)
    return {"project": found.pop()} | ({"marked": True} if marked else {})


def other_projects(journal: Journal, effects: Iterable[Effect], scope: Scope) -> tuple[str, ...]:
    """What these effects touch beside the projects of this scope, where that is a project: it has a marker, or a run
    began there. What lies inside counts as its own."""
    found: dict[str, None] = {}
    for effect in effects:
        touched = (*effect.roots, *effect.places)
        if touched:
            found.update(dict.fromkeys(outside(touched, scope)))
    known = journal.projects(tuple(found)) if found else ()
    return tuple(sorted(one.root for one in known if one.marked or one.began))


def newest_elsewhere(journal: Journal, scope: Scope, *, undos: bool = False) -> Elsewhere | None:
    """Unless the newest effect of all (or the newest undo) is of this scope."""
    which = Query(states=(State.DONE,), undos=True) if undos else Query(states=_HAPPENED, made=True)
    newest = next(latest_first(journal, which, 1), None)
    if newest is None:
        return None
    info = next(journal.runs((newest.run,)), None)
    own = info.project if info else ""
    touched = (*newest.roots, *newest.places)
    if any(in_scope(one, scope) for one in journal.projects(tuple({*touched, own}))):
        return None
    # Where a person would look for it; "" where that is no project.
    return Elsewhere(newest, own if own and (not touched or own in touched) else next(iter(touched), own))


# All effects of anyone that took hold after a point, and what prevents their undo.


class Span(NamedTuple):
    """Whose effects, and from where on; `seq` or `at`, as it was asked for."""

    scope: Scope | None = None  # None: of all projects
    run: str = ""  # "": of all runs
    seq: int = 0  # only what took hold after this record
    at: int = 0  # only what took hold at this time or later, in microseconds since 1970
    began: int = 0  # when the point was made, if `seq` tells where it is


class Planned(NamedTuple):
    wanted: tuple[Effect, ...]  # newest first
    stays: tuple[TargetOutcome, ...]  # what cannot be taken back, and why


def planned(parts: "Parts", span: Span) -> Planned:
    """The effects to take back. An undo counts if its effect was made before the point: then that effect is brought
    back. Effects that were made and undone after the point cancel out."""
    from takeback.engine.parts import adapter_of
    from takeback.runs.boxes.history import with_commits

    wanted: list[Effect] = []
    stays: list[TargetOutcome] = []
    for effect in _since(parts.journal, span):
        if effect.is_undo and _made_after(parts.journal, effect.undoes, span):
            continue
        if effect.forgotten:
            stays.append(_staying(effect, "its way back was forgotten"))
        elif effect.is_undo and not adapter_of(parts, effect.change.adapter).traits.redoes:
            stays.append(_staying(effect, "what was compensated cannot be redone"))
        else:
            wanted.append(effect)
    return Planned(tuple(with_commits(parts.journal, wanted)), tuple(stays))


def _staying(effect: Effect, why: str) -> TargetOutcome:
    return TargetOutcome(effect.change.resource, Outcome.EXCLUDED, why, effect.id)


def _since(journal: Journal, span: Span) -> Iterator[Effect]:
    for effect in latest_first(journal, Query(states=(State.DONE,), scope=span.scope, run=span.run)):
        if effect.order <= span.seq or effect.at < span.at:
            return
        yield effect


def _made_after(journal: Journal, id: str, span: Span) -> bool:
    made = next(journal.effects(Query(ids=(id,), damaged_too=True)), None)
    return made is not None and made.order > span.seq and made.at >= span.at


def stuck_since(journal: Journal, span: Span) -> tuple[Effect, ...]:
    """Effects that are left out, because a person has to settle them first."""
    found = journal.effects(Query(states=(State.STUCK,), scope=span.scope, run=span.run))
    return tuple(one for one in found if one.order > span.seq and one.at >= span.at)


def refuse_unfinished(journal: Journal, leases: Leases, span: Span, now: int) -> None:
    """By name: a run that is at work, or an effect that is not settled, in these projects."""
    for info in journal.runs((span.run,) if span.run else (), unfinished=True, scope=span.scope):
        works = not leases.free(info.id, now) or info.on_death is OnDeath.RESUME
        if works and (
            info.opened_at >= (span.at or span.began) or any(_since(journal, span._replace(run=info.id)))
        ):
            raise _at_work(info)
    for effect in journal.effects(Query(states=OPEN_STATES, scope=span.scope, run=span.run)):
        if effect.waits_for == PERSON or effect.state is State.STUCK:
            continue
        stands, hint = "still being made", f"`takeback show {short(effect.id)}` shows more."
        if effect.waits_for == COMMAND:
            stands = "an open watch"
            hint = "End it first; `takeback recover` records one whose process has died."
        raise StoreBusy(
            f"Effect {short(effect.id)} ({effect.change.summary}) is {stands}.",
            hint=f"Nothing was changed. {hint}",
            effect=effect.id,
        )


def _at_work(info: RunInfo) -> StoreBusy:
    who = f" of {info.agent}" if info.agent else ""
    return StoreBusy(
        f"Run {short(info.id)} ({info.name}){who} has not ended.",
        hint=f"Nothing was changed. Wait until it has ended; `takeback show {short(info.id)}` shows its state.",
    )
