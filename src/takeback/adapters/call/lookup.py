"""The action that a name means: one that this process has seen, or one that can be imported."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

from takeback.adapters.call.action import Action
from takeback.adapters.call.functions import refuse_busy
from takeback.errors import ActionMissing, Misuse
from takeback.model.functions import LOOKING


class Actions:
    def __init__(self, trusted: Callable[[], bool]) -> None:
        self._trusted = trusted
        self._seen: dict[str, Action] = {}

    def see(self, action: Action) -> None:
        """The newest action of a name wins: a module that is loaded again defines its actions again."""
        before = self._seen.get(action.name)
        if before is not None and _home(before) != _home(action):
            raise Misuse(
                f"Two actions have the name {action.name}: {_home(before)} and {_home(action)}.",
                hint="Give each its own name: undo finds an action by its name.",
            )
        self._seen[action.name] = action

    def find(self, name: str, module: str, where: str, script: bool = False) -> Action:
        """`module` and `where` are what the journal says of its home. Code is imported from there and from nowhere
        else: a directory that someone happens to be in is not searched."""
        if name in self._seen:
            return _fitting(self._seen[name], where)
        trouble = ""
        if script:
            refuse_busy(module, where)
        for one in (module, *_further()):
            if one not in sys.modules and one not in _further() and not self._trusted():
                raise ActionMissing(
                    f"The action {name} is of the module {one}, which only this store names, and the store was made "
                    "elsewhere. If it is yours: `takeback store trust`.",
                    hint="Nothing was imported or called. You can also name the module yourself: "
                    f"TAKEBACK_ACTIONS={one} takeback …",
                )
            try:
                loaded = _imported(one, where)
            except (Exception, SystemExit) as error:  # noqa: BLE001
                # Whatever goes wrong while someone's module is loaded; it is told, and other modules are tried.
                trouble = trouble or f"{one} cannot be imported ({type(error).__name__}: {error})"
                continue
            try:
                for found in _actions_in(loaded):
                    self.see(found)
            except Misuse as error:
                raise ActionMissing(f"{error} Nothing was called.", hint=error.hint) from error
            if name in self._seen:
                return _fitting(self._seen[name], where)
            trouble = trouble or f"{one} no longer has an action of that name"
        raise ActionMissing(
            f"The action {name} is not available: {trouble or 'its module is unknown'}.",
            hint=f"Make {module or 'its module'} importable (PYTHONPATH), or name the module that has it now: "
            "TAKEBACK_ACTIONS=package.module takeback …; nothing was called.",
        )


def _fitting(action: Action, where: str) -> Action:
    """Two projects may each have a module of the same name: then what the one called is not for the other to ask about,
    or to undo. One that is nowhere else any more has moved; a name that was given to it is a promise."""
    given = action.name != _home(action)
    if given or not where or _same(action.where, where) or action.module in _further():
        return action
    if not _is_in(where, action.module):
        return action
    raise ActionMissing(
        f"The action {action.name} here is of {action.where}, and the call was made by the one of {where}.",
        hint="Nothing was called. Use that one; or, if both are the same, set "
        f"TAKEBACK_ACTIONS={action.module}. A name of its own (name=…) finds it wherever it is.",
    )


def _same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _is_in(where: str, module: str) -> bool:
    path = os.path.join(where, *module.split("."))
    return os.path.exists(f"{path}.py") or os.path.exists(os.path.join(path, "__init__.py"))


def _home(action: Action) -> str:
    return f"{action.module}:{action.function.__qualname__}"


def _further() -> Sequence[str]:
    """Modules to look into for what has moved since."""
    return [one.strip() for one in os.environ.get("TAKEBACK_ACTIONS", "").split(",") if one.strip()]


def _imported(module: str, where: str) -> ModuleType:
    if module in sys.modules:
        return sys.modules[module]
    looking = LOOKING.set(True)
    try:
        return _newly_imported(module, where)
    finally:
        LOOKING.reset(looking)


def _newly_imported(module: str, where: str) -> ModuleType:
    import importlib

    if where and where not in sys.path and os.path.isdir(where):
        sys.path.append(where)  # at the end: it hides nothing that is installed
    return importlib.import_module(module)


def _actions_in(module: ModuleType) -> Iterator[Action]:
    for found in list(vars(module).values()):
        if isinstance(found, Action):
            yield found
