"""A stop holds at every door: it is recorded, read there, and in force until a person lifts it."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse, Refused, Stopped
from takeback.model.ids import short
from takeback.model.person import Person
from takeback.model.record import STORE, Draft, Kind
from takeback.model.run import conversation_of
from takeback.model.stop import Stop
from takeback.storage.protocols import Journal

if TYPE_CHECKING:
    from takeback.engine.parts import Parts

FRESH = 0.4  # seconds that an answer of the journal counts: a stop holds within a second


class StopsInForce:
    """Those of a journal; asked a few times a second at most, so that a change does not wait for it."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._clock = clock
        self._known: tuple[Stop, ...] = ()
        self._until = -1.0

    def __call__(self) -> tuple[Stop, ...]:
        now = self._clock()
        if now >= self._until:
            self._known, self._until = stops(self._journal), now + FRESH
        return self._known

    def forget(self) -> None:
        """The next question reads the journal."""
        self._until = -1.0


def stops(journal: Journal) -> tuple[Stop, ...]:
    """In force, oldest first."""
    found: dict[int, Stop] = {}
    for record in journal.records(run=STORE, kinds=(Kind.STOP, Kind.LIFT)):
        body = record.body
        if record.kind is Kind.LIFT:
            for seq in body["stops"]:
                found.pop(seq, None)
            continue
        found[record.seq] = Stop(
            body["agent"],
            body["run"],
            body["by"],
            body["why"],
            record.at,
            record.seq,
            body["conversation"],
            body.get("remark", ""),
        )
    return tuple(found.values())


def stop(journal: Journal, wanted: Stop, person: Person) -> Stop:
    """In force when this returns. The one that is in force already, if it stops the same."""
    if same := next((one for one in stops(journal) if _aim(one) == _aim(wanted)), None):
        return same
    agent, run, why, conversation = wanted.agent, wanted.run, wanted.why, wanted.conversation
    body = {"agent": agent, "run": run, "conversation": conversation, "why": why, **_who(person)}
    (record,) = journal.append(None, [Draft(Kind.STOP, STORE, "", body)])
    return wanted._replace(by=person.name, at=record.at, seq=record.seq, remark=person.remark)


def lift(journal: Journal, wanted: Sequence[Stop], person: Person, why: str) -> None:
    body = {"stops": [one.seq for one in wanted], "why": why, **_who(person)}
    journal.append(None, [Draft(Kind.LIFT, STORE, "", body)])


def _aim(stop: Stop) -> tuple[str, str]:
    return stop.agent, stop.run


def _who(person: Person) -> dict[str, Any]:
    told = {"by": person.name, "known_by": person.known_by.value, "detail": person.detail}
    return {**told, "remark": person.remark}


# At the doors.


def refuse_stopped(parts: "Parts", agent: str, run: str) -> None:
    if stop := stop_of(parts, agent, run):
        raise Stopped(f"{in_words(stop)}.", hint=f"Nothing was changed. {way_out(stop)}")


def stop_of(parts: "Parts", agent: str, run: str) -> Stop | None:
    """The first that concerns it. While nothing is stopped this costs nothing more than the question."""
    if not (known := parts.stops()):
        return None
    info = next(parts.journal.runs((run,)), None) if run else None
    conversation = conversation_of(info) if info else ""
    agents = (agent, info.agent if info else "")
    return next((one for one in known if any(one.concerns(name, run, conversation) for name in agents)), None)


def in_words(stop: Stop) -> str:
    """Without a full stop at its end."""
    why = f": {stop.why.strip().rstrip('.')}" if stop.why.strip() else ""
    return f"{what(stop)} was stopped by {stop.who}{why}"


def what(stop: Stop) -> str:
    if stop.run:
        return f"Run {short(stop.run)}"
    return f"Agent {stop.agent}" if stop.agent else "Everything"


def way_out(stop: Stop) -> str:
    return f"A person lifts it with `takeback stop --lift {option_of(stop)}`."


def option_of(stop: Stop) -> str:
    if stop.run:
        return f"--run {short(stop.run)}"
    if not stop.agent:
        return "--all"
    import shlex

    return f"--agent {shlex.quote(stop.agent)}"


def chosen(known: Sequence[Stop], agent: str, run: str, everything: bool) -> tuple[Stop, ...]:
    """Those that are meant by these words: all of them, those of an agent or a run, or the only one that there is."""
    if everything:
        found = tuple(known)
    elif agent or run:
        found = tuple(one for one in known if _aim(one) == (agent, run))
    elif len(known) > 1:
        ways = ", ".join(option_of(one) for one in known if option_of(one) != "--all")
        raise Misuse(
            f"{len(known)} stops are in force.", hint=f"Say which to lift: {ways}; --all lifts all of them."
        )
    else:
        found = tuple(known)
    if not found:
        named = f"Agent {agent} is not" if agent else f"Run {short(run)} is not" if run else "Nothing is"
        raise Refused(f"{named} stopped.", hint="`takeback stop --list` lists what is.")
    return found
