"""Projects: whose effects `undo`, `log` and `@` mean. A project is named by its directory, as a resource."""

from typing import Any, NamedTuple

from takeback.model.resource import SCHEME

MARKERS = (".git", ".jj", ".hg", ".takeback")


class Project(NamedTuple):
    """What a journal knows of a directory; every field but the first can only become true."""

    root: str
    marked: bool = False  # it held a marker when something was recorded
    began: bool = False  # a run began there
    made: bool = False  # a recorded effect made its marker


class Scope(NamedTuple):
    """Effects of these projects; with `below` also those of directories without a marker inside that one."""

    roots: tuple[str, ...]
    below: str = ""


def inside(resource: str, root: str) -> bool:
    """Whether it is that directory, or lies in it."""
    return resource == root or resource.startswith(root if root.endswith("/") else f"{root}/")


def outside(roots: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """Those that do not lie in a project of this scope."""
    return tuple(one for one in roots if not any(inside(one, root) for root in scope.roots))


def in_scope(project: Project, scope: Scope) -> bool:
    if project.root in scope.roots:
        return True
    return bool(scope.below) and not project.marked and inside(project.root, scope.below)


def touched_projects(body: dict[str, Any]) -> tuple[Project, ...]:
    """Those that the record of an effect names beside the one its run began in."""
    return (
        *(Project(one, marked=True) for one in body.get("roots", ())),
        *(Project(one) for one in body.get("places", ())),
    )


def made_markers(body: dict[str, Any]) -> tuple[Project, ...]:
    """Directories that become projects by this effect: it makes their marker. What brings one back made nothing."""
    if body.get("undoes"):
        return ()
    found: list[Project] = []
    for resource, before, _ in body.get("remedy", {}).get("targets", ()):
        directory, _, name = resource.rpartition("/")
        if name in MARKERS and resource.startswith(SCHEME) and before.get("type") == "absent":
            found.append(Project(directory if len(directory) > len(SCHEME) else f"{SCHEME}/", made=True))
    return tuple(found)
