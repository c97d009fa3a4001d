"""How a call is taken back: by another call, tried again while that is sure to be safe, or by a person."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from takeback.adapters.call.action import IRREVERSIBLE, MANUAL, Action, Compensation, arguments_of, result_of
from takeback.adapters.call.ask import MOST, Asker, Processes
from takeback.adapters.call.functions import KEY, Hands, TimedOut, fitting, refuse_busy, under_way
from takeback.adapters.protocol import Receipt
from takeback.errors import ActionMissing, ByHand, InDoubt, Misuse, NoRemedy
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.functions import LOOKING, kept
from takeback.model.ids import short
from takeback.model.plan import Sighting, Standing


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

    def of(self, change: Change) -> Action:
        return self.find(change.args["action"], *change.args["home"])

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
                # Any error of a user's module while it is imported is reported, and the other modules are tried.
                trouble = trouble or f"{one} cannot be imported ({type(error).__name__}: {error})"
                continue
            try:
                for found in list(vars(loaded).values()):
                    if isinstance(found, Action):
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
    if given or not where or action.where == where or action.module in _further():
        return action
    if os.path.realpath(action.where) == os.path.realpath(where) or not _is_in(where, action.module):
        return action
    raise ActionMissing(
        f"The action {action.name} here is of {action.where}, and the call was made by the one of {where}.",
        hint="Nothing was called. Use that one; or, if both are the same, set "
        f"TAKEBACK_ACTIONS={action.module}. An action with a name of its own is found wherever it is.",
    )


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
    import importlib

    if where and where not in sys.path and os.path.isdir(where):
        sys.path.append(where)  # at the end: it hides nothing that is installed
    looking = LOOKING.set(True)
    try:
        return importlib.import_module(module)
    finally:
        LOOKING.reset(looking)


BACK_OFF = 0.1  # seconds before the second try; each further one waits twice as long


class Compensator:
    """Takes calls back, and looks whether they were."""

    def __init__(self, actions: Actions, asker: Asker, hands: Hands, processes: Processes) -> None:
        self._actions = actions
        self._asker = asker
        self._hands = hands
        self._processes = processes

    def make_up_for(self, undo: Effect, of: Effect) -> Receipt:
        way = self.way_of(of)
        if isinstance(way, MANUAL):
            raise ByHand(
                f"It is taken back by hand: {way.steps}",
                hint=f"When that is done: `takeback settle {short(undo.id)} --happened`.",
                effect=undo.id,
            )
        return Receipt({"result": kept(self.compensate(undo, of))})

    def compensate(self, undo: Effect, of: Effect) -> Any:
        way = self.way_of(of)
        if not isinstance(way, Compensation):
            raise NoRemedy(
                f"{of.change.summary} cannot be taken back: {way[0]}.", hint="A person has to look."
            )
        first = way.signature.names[0] if way.signature.names else ""
        if way.verify and undo.of and self.verify(just_now(undo), of).standing is Standing.AFTER:
            return None  # an earlier undo did, and did not live to tell
        why = ""
        for tries in range(way.retries + 1):
            if tries:
                time.sleep(min(BACK_OFF * 2 ** (tries - 1), MOST))
            self._processes.hold(undo.run, way.timeout)
            named = fitting(way.function, {KEY: undo_key(of), **arguments_of(of)})
            named.pop(first, None)
            given = (result_of(of),) if first else ()
            try:
                returned = self._hands.call(way.function, given, named, way.timeout, f"{undo.id}-undo")
                told = just_now(undo)._replace(receipt={"result": kept(returned)})
                if undo.of is None or self.verify(told, of).standing is Standing.AFTER:
                    return returned
                why = "it was answered as done, and what it takes back is still there"
                if not way.sure:
                    why += ", or only still to be seen (then its undo needs a verify= of its own)"
                    break
            # Whatever it raises leaves open how far it came; the probe tells, or the other side honours the key.
            except Exception as error:  # noqa: BLE001
                why = str(error) if isinstance(error, (TimedOut, InDoubt)) else in_words(error)
                standing = self._after_trouble(undo, of, way)
                if standing is Standing.AFTER:
                    return None
                if isinstance(error, InDoubt) or (standing is Standing.UNKNOWN and not way.honours_key):
                    break
        again = "`takeback recover` tries again. " if way.sure else "It is not called again by itself. "
        raise ByHand(
            f"{of.change.summary} could not be taken back: {why}.",
            hint=f"`takeback show {short(undo.id)}` shows what is known. {again}Once you know what happened, run "
            f"`takeback settle {short(undo.id)} --happened`, or `--did-not-happen` to try the undo again.",
            effect=undo.id,
        )

    def _after_trouble(self, undo: Effect, of: Effect, way: Compensation) -> Standing:
        if under_way(f"{undo.id}-undo"):
            return Standing.UNKNOWN
        if undo.of is None:
            return Standing.BEFORE if way.honours_key else Standing.UNKNOWN
        try:
            return self.verify(just_now(undo), of).standing
        except InDoubt:
            return Standing.UNKNOWN

    def verify(self, undo: Effect, of: Effect) -> Sighting:
        action = self._actions.of(of.change)
        way = self.way_of(of)
        arguments = arguments_of(of)
        if isinstance(way, Compensation) and way.verify:
            done = self._asker.look_for_undo(
                undo, way, {KEY: undo_key(of), "receipt": result_of(of), **arguments}
            )
            return self._taken_back(undo, done, "its undo is not there")
        if action.terms.verify:
            seen = self._asker.look(of, action, arguments, expected=False, undo=undo)
            gone = not seen.there and not seen.wrong
            if not gone and undo.state is State.STUCK and isinstance(way, Compensation) and not way.sure:
                # It was called before; that the thing is still to be seen does not tell what came of that.
                return Sighting(Standing.UNKNOWN, seen.wrong or "it is still to be seen")
            return self._taken_back(undo, gone, seen.wrong or "it is still there")
        again = isinstance(way, Compensation) and way.honours_key
        return self._asker.by_its_word(undo, again)

    def _taken_back(self, undo: Effect, done: bool, detail: str) -> Sighting:
        if done:
            return Sighting(Standing.AFTER, receipt=undo.receipt)
        if under_way(f"{undo.id}-undo"):
            raise InDoubt(f"{undo.change.summary}: it is still under way.", effect=undo.id)
        return Sighting(Standing.BEFORE, detail)

    def way_of(self, of: Effect) -> "Compensation | IRREVERSIBLE | MANUAL":
        action = self._actions.of(of.change)
        way = action.way_back
        if way is None:
            raise _changed(action, "has no undo any more")
        kept = of.remedy.payload.get("version", 1) if of.remedy else 1
        if action.terms.version != kept:
            raise _changed(action, f"is version {action.terms.version}, and was called in version {kept}")
        if isinstance(way, Compensation):
            given = {KEY, *way.signature.names[:1], *arguments_of(of)}
            if missing := [one for one in way.signature.required if one not in given]:
                raise _changed(action, f"has an undo that needs {missing[0]!r}, which the call did not have")
        return way


def _changed(action: Action, how: str) -> ActionMissing:
    return ActionMissing(
        f"The action {action.name} was changed since: it {how}.",
        hint="Nothing was called. Run the version that made the call, or take it back by hand.",
    )


def just_now(effect: Effect) -> Effect:
    """As if it had been begun now: the last try of it may have been."""
    return effect._replace(at=0)


def undo_key(of: Effect) -> str:
    """The same for every attempt to undo this effect, by any process."""
    return f"undo-{of.key or of.id}"


def in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": .")
