"""The steps of a box, and which of them an undo takes back."""

from collections.abc import Iterator
from typing import NamedTuple

from takeback.errors import Misuse, Refused
from takeback.model.box import SCHEME, point_from_json
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import Checkpoint
from takeback.runs import checkpoints
from takeback.runs.selection import id_of, latest_first
from takeback.storage.protocols import Journal, Query

COMMIT = "commit"


class BoxStep(NamedTuple):
    effect: str
    kind: str  # "run" | "commit" | "discard"
    command: str
    exit_code: int
    state: str  # "done" | "undone"
    cwd: str  # after it
    at: int  # microseconds since 1970

    @property
    def id(self) -> str:
        return self.effect


def steps(journal: Journal, resource: str) -> Iterator[BoxStep]:
    """Oldest first, those that were taken back too."""
    for effect in journal.effects(Query(resource=resource, states=(State.DONE, State.UNDONE))):
        if effect.is_undo:
            continue
        args = effect.change.args
        cwd = point_from_json(args["to"]).cwd
        yield BoxStep(
            effect.id, effect.change.kind, effect.change.summary, args.get("exit_code", 0), effect.state.value,
            cwd, effect.at,
        )  # fmt: skip


def is_step(effect: Effect) -> bool:
    """Whether it changed only a box: until a commit nothing of that is visible outside."""
    return effect.change.resource.startswith(SCHEME) and effect.change.kind != COMMIT


def standing(journal: Journal, resource: str) -> Iterator[Effect]:
    """The effects that an undo could take back, newest first."""
    for effect in latest_first(journal, Query(resource=resource, states=(State.DONE,))):
        if not effect.is_undo:
            yield effect


def last(journal: Journal, resource: str, count: int) -> list[Effect]:
    if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"One cannot take back {count!r} steps.", hint="Give a number greater than 0.")
    found: list[Effect] = []
    for effect in standing(journal, resource):
        found.append(effect)
        if len(found) == count:
            return found
    if not found:
        raise Refused("There is no step to take back in this box.", hint="It is where it began.")
    what = "1 step" if len(found) == 1 else f"{len(found)} steps"
    raise Refused(f"The box has only {what} to take back, not {count}.", hint="Nothing was taken back.")


def since(
    journal: Journal, resource: str, to: "Effect | BoxStep | Checkpoint | str", run: str
) -> list[Effect]:
    """Those after a step, or after a checkpoint of the run."""
    after = _place_of(journal, resource, to, run)
    return [effect for effect in standing(journal, resource) if effect.order > after]


def _place_of(journal: Journal, resource: str, to: "Effect | BoxStep | Checkpoint | str", run: str) -> int:
    if isinstance(to, Checkpoint):
        return to.seq
    if isinstance(to, str):
        named = [one for one in checkpoints.of_run(journal, run) if to in (one.label, one.id)]
        if named:
            return named[-1].seq
    id = id_of(journal, to)
    found = next(journal.effects(Query(ids=(id,))), None)
    if found is None or found.change.resource != resource or found.is_undo:
        raise Misuse(f"{id[:8]} is no step of this box.", hint="`box.history()` lists them.")
    if found.state is not State.DONE:
        raise Refused(
            f"Step {short(id)} is {found.state.value}, so the box cannot go back to it.",
            hint="Redo it first.",
        )
    return found.seq


def with_commits(journal: Journal, effects: list[Effect]) -> list[Effect]:
    """A commit is two effects: the merge into the base, and the restart of the box over it."""
    merged = tuple(filter(None, (one.change.facts.merged for one in effects if one.change.kind == COMMIT)))
    found = journal.effects(Query(ids=merged)) if merged else ()
    return effects + [effect for effect in found if effect.state is State.DONE]
