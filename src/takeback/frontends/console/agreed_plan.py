"""A plan of an undo or redo as it is shown, and the digest that binds a click to exactly that plan."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import opened_of, prompts, sessions
from takeback.errors import Drifted, Misuse, Refused
from takeback.model.change import OnConflict
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, Plan, TargetOutcome, UndoResult
from takeback.model.record import canonical
from takeback.model.resource import SCHEME, path_of
from takeback.model.run import RunInfo
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.prompts import AgentSession, Prompt

_OF_A_MACHINE = (SCHEME, "sqlite:")
_MOST_LOOKED_AT = 5_000  # files of a forced undo whose present state is part of the digest


class UndoWish(NamedTuple):
    """The request, as the address of the page has it."""

    verb: str  # undo or redo
    effects: tuple[str, ...] = ()
    run: str = ""
    session: str = ""  # a run of it
    prompt: str = ""  # its checkpoint
    on_conflict: OnConflict = OnConflict.REFUSE
    cascade: bool = False
    with_needs: bool = False
    paths: tuple[str, ...] = ()  # resources: nothing else is taken

    def fields(self) -> dict[str, Any]:
        """As an address or a form says it again."""
        return {
            "verb": self.verb,
            "effect": list(self.effects),
            "run": self.run,
            "session": self.session,
            "prompt": self.prompt,
            "on_conflict": "" if self.on_conflict is OnConflict.REFUSE else self.on_conflict.value,
            "cascade": "1" if self.cascade else "",
            "with_needs": "1" if self.with_needs else "",
            "path": list(self.paths),
        }


def meant(tb: "Takeback", wish: UndoWish) -> "Sequence[str] | RunInfo | AgentSession | Prompt":
    """What `tb.undo` takes."""
    named = [bool(wish.effects), bool(wish.run), bool(wish.session), bool(wish.prompt)]
    if sum(named) != 1:
        raise Misuse("Say what to take back: an effect, a run, a session or a prompt.", hint="Use the links.")
    if wish.effects:
        return list(wish.effects)
    if wish.run:
        return tb.find_run(wish.run)
    if wish.session:
        found = (one for one in sessions(tb) if any(info.id == wish.session for info in one.runs))
        session = next(found, None)
        if session is None:
            raise Misuse("There is no such session.", hint="The timeline links to the sessions.")
        return session
    return prompt_of(tb, wish.prompt)


def prompt_of(tb: "Takeback", id: str) -> "Prompt":
    from takeback.runs.prompts import prompt_named, session_of

    found = prompt_named(tb.store.journal, id, None, None)
    (info,) = tb.store.journal.runs((found.point.run,))
    session = session_of(tb.store.journal, info)
    return next(one for one in prompts(tb, session) if one.point.id == found.point.id)


def planned(tb: "Takeback", wish: UndoWish, dry_run: bool = True) -> UndoResult:
    what = meant(tb, wish)
    _refuse_out_of_reach(tb, wish.verb, _named_by(tb, wish, what))
    plan = _made(tb, wish, what, dry_run)
    if dry_run:
        _refuse_out_of_reach(tb, wish.verb, plan.effects)
    return plan


def _made(
    tb: "Takeback", wish: UndoWish, what: "Sequence[str] | RunInfo | AgentSession | Prompt", dry_run: bool
) -> UndoResult:
    if wish.verb == "redo":
        undone = wish.effects[0] if len(wish.effects) == 1 else _undos(tb, wish)
        return tb.redo(undone, dry_run=dry_run, on_conflict=wish.on_conflict.value)
    return tb.undo(
        what,  # pyright: ignore[reportArgumentType]
        dry_run=dry_run,
        cascade=wish.cascade,
        with_needs=wish.with_needs,
        on_conflict=wish.on_conflict.value,
        paths=[os.fsdecode(path_of(one)) for one in wish.paths] if wish.paths else None,
    )


def _named_by(
    tb: "Takeback", wish: UndoWish, what: "Sequence[str] | RunInfo | AgentSession | Prompt"
) -> Iterator[Effect]:
    """Those on another machine, before anything is looked at on this one."""
    if wish.effects:
        yield from map(tb.effect, wish.effects)
        return
    if isinstance(what, RunInfo):
        runs = {what.id}
    else:
        runs = {info.id for info in getattr(what, "runs", ())} or {wish.prompt and _run_of(tb, wish.prompt)}
    for run in runs:
        if run and tb.store.elsewhere(run):
            yield from tb.store.journal.effects(Query(run=run, states=(State.DONE, State.UNDONE)))


def _run_of(tb: "Takeback", prompt: str) -> str:
    from takeback.runs.prompts import prompt_named

    return prompt_named(tb.store.journal, prompt, None, None).point.run


def is_out_of_reach(tb: "Takeback", effect: Effect) -> bool:
    """Its files are those of another machine; a path of the same name may be something else here."""
    resources = (effect.change.resource, *(one.resource for one in effect.targets[:1]))
    return any(one.startswith(_OF_A_MACHINE) for one in resources) and tb.store.elsewhere(effect.run)


def _refuse_out_of_reach(tb: "Takeback", verb: str, effects: Iterable[Effect]) -> None:
    for one in effects:
        if is_out_of_reach(tb, one):
            raise Refused(
                f"{one.change.summary} was done on another machine. Its files are there, not here.",
                hint=f"Nothing was changed. On that machine: `takeback {verb} {short(one.id)}`.",
                effect=one.id,
            )


def _undos(tb: "Takeback", wish: UndoWish) -> UndoResult:
    """All that one undo took back is brought back together."""
    if not wish.run:
        raise Misuse("A redo names one effect, or the run of one undo.", hint="Use the links.")
    found = tb.store.journal.effects(Query(run=tb.find_run(wish.run).id, undos=True, states=(State.DONE,)))
    return UndoResult("done", (), (), undo=tuple(found))


def digest_of(wish: UndoWish, plan: UndoResult) -> str:
    """Of the request, each effect with its state, and what would happen to each target. A forced undo overwrites
    files, so their present state counts too."""
    told = [
        [[name, value] for name, value in sorted(wish.fields().items())],
        [[one.id, one.state.value] for one in plan.effects],
        [_told(one) for one in plan.targets],
        list(plan.outside),
        [[one.resource, one.goes_with, one.bond.value] for one in plan.along],
        list(_present(plan.targets)) if wish.on_conflict is OnConflict.FORCE else [],
    ]
    return hashlib.sha256(canonical(told)).hexdigest()


def _told(one: TargetOutcome) -> list[Any]:
    return [one.resource, one.outcome.value, one.detail, one.effect, one.exact, one.diff, one.obstacle.value]


def _present(targets: Sequence[TargetOutcome]) -> Iterator[list[int]]:
    for one in targets[:_MOST_LOOKED_AT]:
        if one.resource.startswith(SCHEME) and one.outcome is Outcome.UNDONE:
            try:
                status = os.lstat(path_of(one.resource))
            except OSError:
                yield []
                continue
            yield [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def drifted() -> Drifted:
    return Drifted(
        "The plan is not the one that you saw: something changed in between. Nothing was touched.",
        hint="Look at the new plan, and confirm that one.",
    )


def bind(tb: "Takeback", shown: UndoResult) -> None:
    """Let this hand carry out nothing but that plan. Looked at again when the plan is made for good, right before the
    first change."""

    def agree(plan: Plan) -> None:
        ids = {one.id for one in plan.effects}
        before = {tuple(_told(one)) for one in shown.targets if one.effect in ids}
        if {tuple(_told(one)) for one in plan.targets} != before or not ids <= {
            one.id for one in shown.effects
        }:
            raise drifted()

    opened_of(tb).agree = agree
