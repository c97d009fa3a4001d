"""One target first, then the others: what fails its check is taken back, and nothing else is."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from takeback.errors import InDoubt, LeaseLost, Misuse, Spent, Stopped, Stuck, TakebackError, Unavailable
from takeback.model.effect import State
from takeback.model.plan import UndoResult
from takeback.runs.core import RunCore
from takeback.runs.workflows import durable
from takeback.storage.protocols import Query

_NOT_OF_THE_TARGET = (Misuse, Stopped, Stuck, InDoubt, Spent, LeaseLost)
_MOST_WORDS = 500


class CanaryOutcome(StrEnum):
    MADE = "made"  # and its check passed
    TAKEN_BACK = "taken back"  # it failed, and nothing of it is left
    LEFT = "left"  # it failed, and not all of it could be taken back
    NOT_BEGUN = "not begun"  # because the first one failed


class CanaryTarget(NamedTuple):
    target: Any
    outcome: CanaryOutcome
    effects: tuple[str, ...] = ()  # their ids, oldest first
    why: str = ""  # it failed, or is left


class CanaryResult(NamedTuple):
    targets: tuple[CanaryTarget, ...]  # in the order given

    @property
    def outcome(self) -> str:
        """`done`: all are made. `refused`: the first failed and is taken back. `stuck`: something is left. `partial`:
        another mixture."""
        found = {one.outcome for one in self.targets}
        if CanaryOutcome.LEFT in found:
            return "stuck"
        if found <= {CanaryOutcome.MADE}:
            return "done"
        return "partial" if CanaryOutcome.MADE in found else "refused"

    @property
    def ok(self) -> bool:
        return self.outcome == "done"


class _Made(NamedTuple):
    effects: tuple[str, ...]
    why: str  # it failed; empty if it did not


class Undoing(Protocol):
    def __call__(self, effect: str, *, why: str) -> UndoResult: ...


def canary(
    core: RunCore,
    targets: Sequence[Any],
    change: Callable[[Any], object],
    check: Callable[[Any], bool],
    wait: float,
    undo: Undoing,
) -> CanaryResult:
    """No lock is held while `change` and `check` run, or while it waits."""
    _refuse_odd(targets, change, check, wait)
    first, *rest = targets
    made = _changed(core, 1, first, change)
    why = made.why or _checked(core, 1, first, check)
    if not why and wait and rest:
        durable.sleep(core, 0, 0, 0, wait)
        why = _checked(core, 1, first, check, " after the wait")
    found = [_settled(first, made, why, undo)]
    if why:
        return CanaryResult((*found, *(CanaryTarget(one, CanaryOutcome.NOT_BEGUN) for one in rest)))
    for number, target in enumerate(rest, 2):
        made = _changed(core, number, target, change)
        found.append(_settled(target, made, made.why or _checked(core, number, target, check), undo))
    return CanaryResult(tuple(found))


def _refuse_odd(targets: object, change: object, check: object, wait: object) -> None:
    if isinstance(targets, (str, bytes)) or not isinstance(targets, Sequence) or not targets:
        raise Misuse(
            "A canary needs a list of targets.", hint='For example run.canary(["a", "b"], change, check).'
        )
    if not (callable(change) and callable(check)):
        raise Misuse("The change and the check are functions.", hint="Each gets one target.")
    if type(wait) not in (int, float) or not 0 <= wait < 1e9:  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
        raise Misuse(f"A wait of {wait!r} seconds makes no sense.", hint="For example wait=60.")


def _changed(core: RunCore, number: int, target: Any, change: Callable[[Any], object]) -> _Made:
    """In a workflow what came of it is a step: replayed, it is known and not looked for."""
    before = core.replay.at if core.replay else core.parts.journal.newest()
    why = ""
    try:
        change(target)
    except _NOT_OF_THE_TARGET:
        raise
    except Exception as error:
        if isinstance(error, Unavailable) and core.replay is not None:
            raise  # its worker tries again
        why = _said("the change", error)
    core.calls.flush()

    def told() -> dict[str, Any]:
        return {"effects": _made_since(core, before), "why": why}

    found = durable.remember(core, f"canary {number}: the change", told)
    return _Made(tuple(found["effects"]), found["why"])


def _made_since(core: RunCore, before: int) -> list[str]:
    after = 0 if core.replay else before
    found = core.parts.journal.effects(Query(run=core.id, states=(State.DONE,), made=True, after=after))
    return [one.id for one in found if not core.replay or one.step > before]


def _checked(core: RunCore, number: int, target: Any, check: Callable[[Any], bool], when: str = "") -> str:
    """Why it failed; empty if it passed."""

    def asked() -> str:
        try:
            passed = check(target)
        except _NOT_OF_THE_TARGET:
            raise
        except Exception as error:  # noqa: BLE001 the code of another: whatever it raises is a no
            return _said(f"the check{when}", error)
        if not isinstance(passed, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"The check returned {passed!r}.", hint="Return True or False.")
        return "" if passed else f"the check{when} failed"

    return durable.remember(core, f"canary {number}: the check{when}", asked)


def _said(what: str, error: Exception) -> str:
    words = str(error) if isinstance(error, TakebackError) else f"{type(error).__name__}: {error}"
    return f"{what} failed: {words}"[:_MOST_WORDS]


def _settled(target: Any, made: _Made, why: str, undo: Undoing) -> CanaryTarget:
    if not why:
        return CanaryTarget(target, CanaryOutcome.MADE, made.effects)
    for effect in reversed(made.effects):
        try:
            result = undo(effect, why=why)
        except (Stopped, InDoubt, LeaseLost):
            raise
        except TakebackError as error:
            return CanaryTarget(target, CanaryOutcome.LEFT, made.effects, f"{why}; {error}")
        if result.outcome != "done":
            left = f"{why}; not all of it could be taken back"
            return CanaryTarget(target, CanaryOutcome.LEFT, made.effects, left)
    return CanaryTarget(target, CanaryOutcome.TAKEN_BACK, made.effects, why)
