"""Which effects belong to which projects: the tables `projects` and `scopes`."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Protocol

from takeback.model.project import Project, Scope
from takeback.model.resource import SCHEME, path_of
from takeback.storage.projects import touched


class Session(Protocol):
    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any: ...


def belong(session: Session, projects: Iterable[Project], effect: int = 0, told: int = 0) -> None:
    """Make these known; if they are told of by an effect, it belongs to them. One whose marker it makes is only noted:
    the effect belongs to what was there before."""
    for one in projects:
        number = _noted(session, one)
        if effect and not one.made:
            session.execute(
                "INSERT INTO scopes (project, effect, told) VALUES (?, ?, ?)"
                " ON CONFLICT (project, effect) DO UPDATE SET told = excluded.told",
                (number, effect, told),
            )


def derive(session: Session) -> None:
    """For effects of a store that recorded no projects: by what they touched, and the markers that are there now."""
    sql = "SELECT t.effect, e.told, t.resource FROM targets t JOIN effects e ON e.seq = t.effect ORDER BY t.effect"
    rows = session.execute(sql).fetchall()
    for (effect, told), some in groupby(rows, lambda row: (row[0], row[1])):
        derive_one(session, [resource for _, _, resource in some], effect, told)


def derive_one(session: Session, resources: Iterable[str], effect: int, told: int) -> None:
    roots, places = touched([path_of(one) for one in resources if one.startswith(SCHEME)])
    found = (*(Project(one, marked=True) for one in roots), *(Project(one) for one in places))
    belong(session, found, effect, told)


def _noted(session: Session, project: Project) -> int:
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
