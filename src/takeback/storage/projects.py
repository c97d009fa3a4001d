"""Which project a directory, a path or an effect belongs to, and the tables that say so."""

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from takeback.model.effect import Effect
from takeback.model.resource import MARKERS, SCHEME, Project, Scope, file_resource, home, path_of
from takeback.storage.protocols import Journal
from takeback.storage.tables import Connection

_MARKERS = tuple(os.fsencode(name) for name in MARKERS)
MOST_PLACES = 8  # directories in no project that an effect is found from


def holds_marker(directory: bytes) -> bool:
    for name in _MARKERS:
        try:
            os.lstat(os.path.join(directory, name))
        except OSError:
            continue
        return True
    return False


def upwards(directory: bytes) -> Iterator[bytes]:
    """The directory, and each one around it."""
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def scope_at(journal: Journal, directory: bytes) -> Scope:
    """The projects that a user in this directory means. Without roots: nothing, because home and `/` are no projects by
    themselves.

    A marker that a recorded effect made does not part a directory from the project around it, and a directory whose
    marker is gone stays the project that it was: so what is recorded decides, not who made or removed a marker.
    """
    around = tuple(upwards(directory))
    known = {one.root: one for one in journal.projects([file_resource(one) for one in around])}
    roots: list[str] = []
    for one in around:
        root = file_resource(one)
        was = known.get(root, Project(root))
        if was.marked or holds_marker(one):
            roots.append(root)
            if not was.made:
                return Scope(tuple(roots))
    if roots:
        return Scope(tuple(roots))
    here = file_resource(directory)
    return Scope(()) if _is_nobodys(directory) else Scope((here,), here)


def begun_at(journal: Journal, directory: bytes) -> Project | None:
    """The project of a run that begins there: the outermost one of its scope."""
    scope = scope_at(journal, directory)
    return Project(scope.roots[-1], marked=not scope.below, began=True) if scope.roots else None


def here() -> bytes | None:
    """The current directory, which is a real path; None if it is gone."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return None


def _is_nobodys(directory: bytes) -> bool:
    return directory == b"/" or directory == os.path.realpath(os.fsencode(home() or "/"))


class Belonging:
    """Tells which projects an effect touches, right before it is recorded."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._begun: dict[str, Project] = {}  # by run: where it began

    def __call__(self, effect: Effect) -> Effect:
        """The effect with `roots` and `places`; both stay empty if it touches no more than its run's project."""
        if effect.of and (effect.of.roots or effect.of.places):
            return effect._replace(roots=effect.of.roots, places=effect.of.places)
        began = self._project_of(effect.run)
        if effect.of and (told := self._as(effect.of, began)):
            return effect._replace(roots=told[0], places=told[1])
        resources = [target.resource for target in effect.targets] or [effect.change.resource]
        paths = [path_of(one) for one in resources if one.startswith(SCHEME)]
        if not effect.targets and effect.change.resource in effect.change.args.get("roots", ()):
            # It is only watched yet: what will be found lies in it, not beside it.
            paths = [os.path.join(one, b"") if os.path.isdir(one) else one for one in paths]
        roots, places = touched(paths, began.root if began.marked else "")
        if {*roots, *places} <= {began.root}:
            return effect._replace(roots=(), places=())
        return effect._replace(roots=roots, places=places)

    def _as(self, other: Effect, began: Project) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """An undo belongs where that belongs which it takes back; None if nothing was recorded of that."""
        its_own = self._project_of(other.run)
        if not its_own.root:
            return None
        if its_own.root == began.root:
            return (), ()
        return ((its_own.root,), ()) if its_own.marked else ((), (its_own.root,))

    def _project_of(self, run: str) -> Project:
        return self._begun[run] if run in self._begun else self.projects_of((run,))[0]

    def projects_of(self, runs: Iterable[str]) -> list[Project]:
        """Where each of these runs began."""
        runs = tuple(dict.fromkeys(runs))
        if unknown := tuple(run for run in runs if run not in self._begun):
            roots = {info.id: info.project for info in self._journal.runs(unknown)}
            known = {one.root: one for one in self._journal.projects([*filter(None, set(roots.values()))])}
            for run in unknown:
                root = roots.get(run, "")
                self._begun[run] = known.get(root, Project(root))
        return [self._begun[run] for run in runs]

    def began(self, run: str, belongs: dict[str, Any]) -> None:
        """By what its first record says. One without a marker is asked for: another run may have found a marker."""
        if belongs.get("marked") or not belongs:
            self._begun[run] = Project(belongs.get("project", ""), marked=bool(belongs), began=True)


def touched(paths: Iterable[bytes], project: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The projects that these paths lie in, and the directories of those that lie in none. `project` is one, whether or
    not its marker is still there."""
    seen = (
        {path_of(project): path_of(project)} if project else dict[bytes, bytes]()
    )  # by directory: its project
    directories = dict.fromkeys(os.path.dirname(path) for path in paths)
    for directory in directories:
        _find_root(directory, seen)
    marked = sorted({seen[one] for one in directories} - {b""})
    places = [one for one in directories if not seen[one] and not _is_nobodys(one)]
    shallow = sorted(places, key=lambda one: (one.count(b"/"), one))[:MOST_PLACES]
    return tuple(map(file_resource, marked)), tuple(map(file_resource, sorted(shallow)))


def _find_root(directory: bytes, seen: dict[bytes, bytes]) -> None:
    passed: list[bytes] = []
    root = b""
    for one in upwards(directory):
        if one in seen:
            root = seen[one]
            break
        passed.append(one)
        if holds_marker(one):
            root = one
            break
    for one in passed:
        seen[one] = root


def belong(session: Connection, projects: Iterable[Project], effect: int = 0, told: int = 0) -> None:
    """Record these projects; an effect that brings them belongs to them. A project whose marker the effect makes is
    only noted: the effect belongs to the earlier project."""
    for one in projects:
        number = _noted(session, one)
        if effect and not one.made:
            session.execute(
                "INSERT INTO scopes (project, effect, told) VALUES (?, ?, ?)"
                " ON CONFLICT (project, effect) DO UPDATE SET told = excluded.told",
                (number, effect, told),
            )


def derive(session: Connection) -> None:
    """For effects of a store that recorded no projects: by what they touched, and the markers that are there now."""
    sql = "SELECT t.effect, e.told, t.resource FROM targets t JOIN effects e ON e.seq = t.effect ORDER BY t.effect"
    rows = session.execute(sql).fetchall()
    for (effect, told), some in groupby(rows, lambda row: (row[0], row[1])):
        derive_one(session, [resource for _, _, resource in some], effect, told)


def derive_one(session: Connection, resources: Iterable[str], effect: int, told: int) -> None:
    roots, places = touched([path_of(one) for one in resources if one.startswith(SCHEME)])
    found = (*(Project(one, marked=True) for one in roots), *(Project(one) for one in places))
    belong(session, found, effect, told)


def _noted(session: Connection, project: Project) -> int:
    find = "SELECT number, marked, began, made FROM projects WHERE root = ?"
    row = session.execute(find, (project.root,)).fetchone()
    flags = tuple(int(flag) for flag in project[1:])
    if row is None:
        insert = "INSERT INTO projects (root, marked, began, made) VALUES (?, ?, ?, ?)"
        session.execute(insert, (project.root, *flags))
        return session.execute(find, (project.root,)).fetchone()[0]
    number, *known = row
    more = tuple(max(one, other) for one, other in zip(known, flags, strict=True))
    if more != tuple(known):
        update = "UPDATE projects SET marked = ?, began = ?, made = ? WHERE number = ?"
        session.execute(update, (*more, number))
    return number


def numbers_of(scope: Scope) -> tuple[str, list[Any]]:
    """A query for the numbers of the projects of a scope."""
    roots = ",".join("?" * len(scope.roots)) or "NULL"
    sql, values = f"SELECT number FROM projects WHERE root IN ({roots})", list[Any](scope.roots)
    if scope.below:
        # '/' is followed by '0': everything inside sorts between them.
        first = scope.below if scope.below.endswith("/") else f"{scope.below}/"
        sql += " UNION SELECT number FROM projects WHERE root >= ? AND root < ? AND marked = 0"
        values += [first, f"{first[:-1]}0"]
    return sql, values


def effects_of(scope: Scope) -> tuple[str, list[Any]]:
    """A query for the numbers of the effects of a scope."""
    sql, values = numbers_of(scope)
    return f"SELECT effect FROM scopes WHERE project IN ({sql})", values


def runs_of(scope: Scope) -> tuple[str, list[Any]]:
    """A condition for runs that began in a project of the scope, or touched one."""
    sql, values = numbers_of(scope)
    touching, more = effects_of(scope)
    began = f"project <> '' AND project IN (SELECT root FROM projects WHERE number IN ({sql}))"
    return f"({began} OR number IN (SELECT run FROM effects WHERE seq IN ({touching})))", [*values, *more]
