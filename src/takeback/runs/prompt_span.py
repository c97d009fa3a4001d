"""What a coding agent did in a conversation, or in it since before a prompt; and what of it an undo takes back."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from takeback.errors import Refused, StoreBusy
from takeback.model.effect import COMMAND, OPEN_STATES, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, TargetOutcome
from takeback.model.run import RunInfo
from takeback.runs.prompts import AgentSession, Prompt, SinceCall, prompts_of
from takeback.runs.selection import latest_first, standing_again
from takeback.storage.protocols import Journal, Query

PATIENCE = 3.0  # seconds, for the calls of an agent that has just died
_BETWEEN = 0.05
_TELLING = 12  # characters of a command by which it is recognised in another
_UNDOES = re.compile(r"\btakeback\b.*\b(undo|redo|rewind)\b")
_IN_QUESTION = (State.DONE, State.UNDONE, State.PROPOSED, State.STUCK)

SessionPart = AgentSession | Prompt | SinceCall  # a conversation, or what was done in it since before a point


class Since(NamedTuple):
    """What an agent did in that part, as it stands."""

    done: tuple[Effect, ...]  # in force; redos of some paths stand for effects that are undone
    held: tuple[Effect, ...] = ()
    stuck: tuple[Effect, ...] = ()
    forgotten: tuple[TargetOutcome, ...] = ()


def session_in(part: SessionPart) -> AgentSession:
    return part if isinstance(part, AgentSession) else part.session


def described(part: SessionPart) -> str:
    """For a sentence."""
    if isinstance(part, AgentSession):
        return f"session {part.name}"
    if isinstance(part, SinceCall):
        return f"call {short(part.effect.id)} of session {part.session.name}"
    return f"prompt {part.number} of session {part.session.name}"


def after(part: SessionPart) -> int:
    """The record before it; 0 for a whole session."""
    if isinstance(part, AgentSession):
        return 0
    return part.effect.order - 1 if isinstance(part, SinceCall) else part.point.seq


def nothing_left(part: SessionPart) -> Refused:
    did = "in" if isinstance(part, AgentSession) else "since"
    return Refused(
        f"Nothing that the agent did {did} {described(part)} is left to undo.",
        hint=f"`takeback log --run {short(session_in(part).run.id)}` shows its effects.",
    )


def last_standing(journal: Journal, session: AgentSession) -> SessionPart:
    """Its last prompt since which something is still in force; the whole session, if that was before any prompt. Raises
    `StoreBusy` while a call has not ended, which would belong to it."""
    wait_for_calls(journal, session)
    newest = 0
    for info in reversed(session.runs):
        newest = max(newest, _newest_standing(journal, info, newest))
    if newest:
        before = [one for one in prompts_of(journal, session) if one.point.seq < newest]
        return before[-1] if before else session
    raise nothing_left(session)


def _newest_standing(journal: Journal, info: RunInfo, since: int) -> int:
    """When the last effect of a run that counts took hold; 0 if none is in force that did so later than `since`."""
    if not info.effects:
        return 0
    in_force = Query(run=info.id, states=(State.DONE, State.PROPOSED), made=True, told_after=since)
    found = (
        one
        for one in latest_first(journal, in_force)
        if _counts(one) and one.waits_for != COMMAND and not one.is_elsewhere
    )
    newest = max((one.order for one in (next(found, None),) if one), default=since)
    # Some paths of an effect that is undone may stand again.
    undone = journal.effects(Query(run=info.id, states=(State.UNDONE,), made=True, told_after=newest))
    later = [one for one in undone if _counts(one)]
    again = _brought_back(journal, later)
    return max(newest, *(one.order for one in later if one.id in again), 0)


def done_since(journal: Journal, part: SessionPart) -> Since:
    """What counts to the agent: not what others changed beside it, nor what a person accepted by name. Raises
    `StoreBusy` while a call of the session has not ended."""
    wait_for_calls(journal, session_in(part))
    queries = (
        Query(run=info.id, states=_IN_QUESTION, made=True, told_after=after(part))
        for info in session_in(part).runs
    )
    found = [one for query in queries for one in journal.effects(query) if _counts(one)]
    undone = [one for one in found if one.state is State.UNDONE]
    again = _brought_back(journal, undone)
    done = [one for one in found if one.state is State.DONE] + [
        redo for one in undone for redo in again.get(one.id, ())
    ]
    return Since(
        done=tuple(one for one in done if not one.forgotten),
        held=tuple(one for one in found if one.waits_for == PERSON),
        stuck=tuple(one for one in found if one.state is State.STUCK),
        forgotten=tuple(
            TargetOutcome(one.change.resource, Outcome.EXCLUDED, "its way back was forgotten", one.id)
            for one in done
            if one.forgotten
        ),
    )


def _counts(effect: Effect) -> bool:
    return not effect.change.facts.others and effect.accepted_by != PERSON


def _brought_back(journal: Journal, undone: Sequence[Effect]) -> dict[str, tuple[Effect, ...]]:
    """By effect that is undone: redos by which some of its paths stand again."""
    ids = tuple(one.id for one in undone)
    # Of most no undo was ever taken back, and then there is none.
    undos = journal.effects(Query(undoing=ids, states=(State.UNDONE,))) if ids else ()
    candidates = {one.undoes for one in undos}
    found = {
        one.id: tuple(redo for redo in standing_again(journal, one) if redo.state is State.DONE)
        for one in undone
        if one.id in candidates
    }
    return {id: redos for id, redos in found.items() if redos}


# Calls that have not ended.


def open_calls(journal: Journal, session: AgentSession) -> Iterator[Effect]:
    """But for the one that this process is part of, and for the watch between calls, which is always open."""
    for info in session.runs:
        for effect in journal.effects(Query(run=info.id, states=OPEN_STATES)):
            open_now = effect.state is not State.STUCK and effect.waits_for != PERSON
            if open_now and not effect.change.args.get("between") and not is_around(effect):
                yield effect


def calls_around(journal: Journal) -> tuple[Effect, ...]:
    """The open call of an agent that this process is part of; it is left out of what this process undoes."""
    return tuple(one for one in journal.effects(Query(states=(State.PROPOSED,))) if is_around(one))


def is_around(effect: Effect) -> bool:
    """Whether this process was started by that call: the agent undoes its own work. It has the mark of a command, or it
    is below the agent and its command speaks of an undo, or is that of a shell above."""
    if effect.waits_for != COMMAND:
        return False
    process, said = effect.change.args.get("process", {}), effect.change.summary.partition(": ")[2]
    if mark := process.get("mark"):
        from takeback.adapters.watch.processes import MARK

        return mark == os.environ.get(MARK)
    if "command" not in effect.change.args or not said:
        return False
    from takeback.adapters.watch.processes import commands_since, lives
    from takeback.policy.secrets import masked

    commands = [masked(one) for one in commands_since(process.get("pid", 0))] if lives(process) else ()
    told = said.removesuffix("…")
    # A shell gives way to its last command, so it need not be there any more.
    return any(
        _UNDOES.search(told) or told == one or (len(told) >= _TELLING and told in one) for one in commands
    )


def wait_for_calls(journal: Journal, session: AgentSession, patience: float = PATIENCE) -> None:
    """Raises `StoreBusy` while a call has not ended. If its agent has, the call is recorded in a moment."""
    until = time.monotonic() + patience
    while calls := tuple(open_calls(journal, session)):
        if time.monotonic() >= until or not any(map(_has_died, calls)):
            raise _busy(session, calls[0])
        time.sleep(_BETWEEN)


def _has_died(effect: Effect) -> bool:
    process = effect.change.args.get("process")
    if not process:
        return False
    from takeback.adapters.watch.processes import lives

    return not lives(process)


def _busy(session: AgentSession, effect: Effect) -> StoreBusy:
    stands = "has not ended" if effect.waits_for == COMMAND else "is still being made"
    return StoreBusy(
        f"A call of session {session.name} {stands}: {short(effect.id)} ({effect.change.summary}).",
        hint="Nothing was changed. Wait until the call has ended, or end the agent. "
        f"`takeback show {short(effect.id)}` shows its state.",
        effect=effect.id,
    )
