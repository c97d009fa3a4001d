"""Everything that took hold after a point in the journal, whoever did it; and what keeps it from being taken back."""

from collections.abc import Iterator
from typing import NamedTuple

from takeback.engine.parts import Parts, adapter_of
from takeback.errors import StoreBusy
from takeback.model.effect import COMMAND, OPEN_STATES, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, TargetOutcome
from takeback.model.resource import Scope
from takeback.model.run import OnDeath, RunInfo
from takeback.runs.boxes.history import with_commits
from takeback.runs.selection import latest_first
from takeback.storage.protocols import Journal, Leases, Query


class Span(NamedTuple):
    """Whose effects, and from where on; `seq` or `at`, as it was asked for."""

    scope: Scope | None = None  # None: of all projects
    run: str = ""  # "": of all runs
    seq: int = 0  # only what took hold after this record
    at: int = 0  # only what took hold at this time or later, in microseconds since 1970
    began: int = 0  # when the point was made, if `seq` tells where it is


class Planned(NamedTuple):
    wanted: tuple[Effect, ...]  # newest first
    stays: tuple[TargetOutcome, ...]  # what cannot be taken back, and why


def planned(parts: Parts, span: Span) -> Planned:
    """What to take back. An undo counts if what it took back was made before the point: then that is to be brought
    back. What was made and taken back after the point cancels out."""
    wanted: list[Effect] = []
    stays: list[TargetOutcome] = []
    for effect in _since(parts.journal, span):
        if effect.is_undo and _made_after(parts.journal, effect.undoes, span):
            continue
        if effect.forgotten:
            stays.append(_staying(effect, "its way back was forgotten"))
        elif effect.is_undo and not adapter_of(parts, effect.change.adapter).traits.redoes:
            stays.append(_staying(effect, "what was compensated cannot be redone"))
        else:
            wanted.append(effect)
    return Planned(tuple(with_commits(parts.journal, wanted)), tuple(stays))


def _staying(effect: Effect, why: str) -> TargetOutcome:
    return TargetOutcome(effect.change.resource, Outcome.EXCLUDED, why, effect.id)


def _since(journal: Journal, span: Span) -> Iterator[Effect]:
    for effect in latest_first(journal, Query(states=(State.DONE,), scope=span.scope, run=span.run)):
        if effect.order <= span.seq or effect.at < span.at:
            return
        yield effect


def _made_after(journal: Journal, id: str, span: Span) -> bool:
    made = next(journal.effects(Query(ids=(id,), damaged_too=True)), None)
    return made is not None and made.order > span.seq and made.at >= span.at


def stuck_since(journal: Journal, span: Span) -> tuple[Effect, ...]:
    """What is left out, because a person has to settle it first."""
    found = journal.effects(Query(states=(State.STUCK,), scope=span.scope, run=span.run))
    return tuple(one for one in found if one.order > span.seq and one.at >= span.at)


def refuse_unfinished(journal: Journal, leases: Leases, span: Span, now: int) -> None:
    """By name: a run that is at work, or an effect that is not settled, in these projects."""
    for info in journal.runs((span.run,) if span.run else (), unfinished=True, scope=span.scope):
        works = not leases.free(info.id, now) or info.on_death is OnDeath.RESUME
        if works and (
            info.opened_at >= (span.at or span.began) or any(_since(journal, span._replace(run=info.id)))
        ):
            raise _at_work(info)
    for effect in journal.effects(Query(states=OPEN_STATES, scope=span.scope, run=span.run)):
        if effect.waits_for == PERSON or effect.state is State.STUCK:
            continue
        what = f"Effect {short(effect.id)} ({effect.change.summary})"
        if effect.waits_for == COMMAND:
            raise StoreBusy(
                f"{what} is an open watch.",
                hint="Nothing was changed. End it first; `takeback recover` records one whose process has died.",
                effect=effect.id,
            )
        raise StoreBusy(
            f"{what} is still being made.",
            hint=f"Nothing was changed. `takeback show {short(effect.id)}` tells more.",
            effect=effect.id,
        )


def _at_work(info: RunInfo) -> StoreBusy:
    who = f" of {info.agent}" if info.agent else ""
    return StoreBusy(
        f"Run {short(info.id)} ({info.name}){who} has not ended.",
        hint=f"Nothing was changed. Wait until it has ended; `takeback show {short(info.id)}` tells how it stands.",
    )
