"""Stand-ins that a test can steer: a clock, processes that live and die, records without a story."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from takeback.model.change import UNDO, change_recorded
from takeback.model.effect import Effect, State, intent_body
from takeback.model.record import Draft, Kind
from takeback.model.remedy import Remedy, Strategy, Target, to_json
from takeback.model.run import OnDeath, Owner, RunState

SECOND = 1_000_000


class Clock:
    """Time stands still until the test moves it; each reading is a microsecond after the last."""

    def __init__(self, start: int = 1_700_000_000 * SECOND) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def pass_seconds(self, seconds: int) -> None:
        self.now += seconds * SECOND


class FakeProcesses:
    """Processes of this machine, which are known to live or to be dead, and of others, of which nothing is known."""

    def __init__(self) -> None:
        self._dead: set[int] = set()
        self._numbers = count(101)  # several threads may ask

    def start(self, elsewhere: bool = False) -> Owner:
        pid = next(self._numbers)
        return Owner("another-boot" if elsewhere else "this-boot", "pid:[1]", pid, f"{pid}0")

    def kill(self, owner: Owner) -> None:
        self._dead.add(owner.pid)

    def alive(self, owner: Owner) -> bool | None:
        return None if owner.boot != "this-boot" else owner.pid not in self._dead


def opening(
    run: str,
    *,
    name: str = "work",
    agent: str = "agent",
    on_death: OnDeath = OnDeath.UNDO,
    project: str = "",
    marked: bool = False,
) -> Draft:
    body: dict[str, Any] = {"name": name, "agent": agent, "on_death": on_death.value}
    body |= {"project": project} if project else {}
    return Draft(Kind.OPEN, run, "", body | ({"marked": True} if marked else {}))


def closing(run: str, outcome: RunState = RunState.ACCEPTED) -> Draft:
    return Draft(Kind.CLOSE, run, "", {"outcome": outcome.value})


def submitting(
    run: str, workflow: str, *, key: str = "", arguments: str = "[]", agent: str = "agent"
) -> Draft:
    body = {"name": workflow, "agent": agent, "on_death": OnDeath.RESUME.value, "workflow": workflow}
    return Draft(Kind.OPEN, run, "", body | {"arguments": arguments} | ({"key": key} if key else {}))


def suspending(run: str, *, due: int = 0, awaits: str = "", read: int = 0, why: str = "") -> Draft:
    optional = {"due": due, "awaits": awaits, "read": read, "why": why}
    said = {name: value for name, value in optional.items() if value}
    return Draft(Kind.CLOSE, run, "", {"outcome": RunState.SUSPENDED.value} | said)


def signalling(run: str, name: str, data: str = "null") -> Draft:
    return Draft(Kind.SIGNAL, run, "", {"name": name, "data": data})


def intending(
    effect: str,
    run: str,
    resources: str | Sequence[str] = "file:///a",
    *,
    kind: Kind = Kind.INTENT,
    key: str = "",
    needs: Sequence[str] = (),
    undoes: str = "",
    args: dict[str, Any] | None = None,
    summary: str = "write something",
    step: int = 0,
    roots: Sequence[str] = (),
    places: Sequence[str] = (),
    before: dict[str, Any] | None = None,
) -> Draft:
    """The intent (or proposal) of an effect that touches these resources."""
    touched = (resources,) if isinstance(resources, str) else tuple(resources)
    change = change_recorded("file", UNDO if undoes else "write", touched[0], summary, args or {})
    targets = tuple(Target(one, before or {"kind": "none"}, {"kind": "file"}) for one in touched)
    remedy = Remedy("file", 1, Strategy.SNAPSHOT, targets)
    whole = Effect(effect, run, "", 0, State.PROPOSED, change, key=key, needs=tuple(needs), undoes=undoes)
    whole = whole._replace(step=step, roots=tuple(roots), places=tuple(places))
    return Draft(kind, run, effect, intent_body(whole, to_json(remedy) if kind is Kind.INTENT else None))


def ending(effect: str, run: str, kind: Kind = Kind.DONE, **body: Any) -> Draft:
    return Draft(kind, run, effect, body)
