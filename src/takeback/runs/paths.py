"""An undo of some paths: which effect is meant, and which of its resources the paths name."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from takeback.errors import Misuse
from takeback.model.effect import Effect
from takeback.model.project import Scope
from takeback.model.resource import file_resource
from takeback.model.run import RunInfo
from takeback.runs.choice import effects_of
from takeback.runs.names import id_of

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
            "Paths cannot be combined with cascade or with_needs, which take back whole effects.",
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
