"""The project that someone means, which effects are its own, and which others they touch."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Refused
from takeback.model.effect import Effect, State
from takeback.model.project import Scope, in_scope, outside
from takeback.model.resource import display, file_resource
from takeback.runs.names import latest_first
from takeback.storage.projects import begun_at, here, scope_at
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.runs.verbs import Path

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
    """What the record of a run that begins there says of its project."""
    directory = directory_meant(project)
    begun = begun_at(journal, directory) if directory is not None else None
    if begun is None:
        return {}
    return {"project": begun.root} | ({"marked": True} if begun.marked else {})


def as_those_of(journal: Journal, effects: Iterable[Effect]) -> dict[str, Any]:
    """The same for a run that takes these back: it belongs where they belong."""
    found = {info.project for info in journal.runs(tuple({one.run for one in effects}))} - {""}
    if len(found) != 1:
        return {}
    (root,) = found
    marked = any(one.marked for one in journal.projects((root,)))
    return {"project": root} | ({"marked": True} if marked else {})


def project_of(journal: Journal, effect: Effect) -> str:
    """Where a person would look for it; "" where that is no project."""
    info = next(journal.runs((effect.run,)), None)
    own = info.project if info else ""
    touched = (*effect.roots, *effect.places)
    return own if own and (not touched or own in touched) else next(iter(touched), own)


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


def belongs(journal: Journal, effect: Effect, scope: Scope) -> bool:
    info = next(journal.runs((effect.run,)), None)
    roots = {*effect.roots, *effect.places, info.project if info else ""}
    return any(in_scope(one, scope) for one in journal.projects(tuple(roots)))


def newest_elsewhere(journal: Journal, scope: Scope, *, undos: bool = False) -> Elsewhere | None:
    """Unless the newest effect of all (or the newest undo) is of this scope."""
    which = Query(states=(State.DONE,), undos=True) if undos else Query(states=_HAPPENED, made=True)
    newest = next(latest_first(journal, which, 1), None)
    if newest is None or belongs(journal, newest, scope):
        return None
    return Elsewhere(newest, project_of(journal, newest))
