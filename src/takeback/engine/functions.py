"""Which functions settling a dead run would call. Told from the journal: nothing is imported or called."""

from collections.abc import Iterator

from takeback.model.effect import OPEN_STATES, PERSON, Effect, State
from takeback.model.record import Kind
from takeback.model.resource import function_in
from takeback.model.run import OnDeath, RunInfo
from takeback.storage.protocols import Journal, Query


def functions_of(journal: Journal, info: RunInfo) -> tuple[str, ...]:
    """The actions whose probes and undos would be called, each once; empty if nobody's code is needed."""
    return named(_concerned(journal, info))


def named(effects: Iterator[Effect]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in effects if (name := function_in(one.change.resource))))


def _concerned(journal: Journal, info: RunInfo) -> Iterator[Effect]:
    for one in journal.effects(Query(run=info.id, states=OPEN_STATES, newest=True)):
        if one.waits_for != PERSON:
            yield one
    if info.on_death is OnDeath.UNDO:
        for one in journal.effects(Query(run=info.id, states=(State.DONE,), newest=True)):
            if not one.accepted and not one.is_undo:
                yield one
    elif info.on_death is OnDeath.FINISH:
        yield from still_to_undo(journal, info)


def still_to_undo(journal: Journal, info: RunInfo) -> Iterator[Effect]:
    """What the first record of an undo asks for and is still done; it may have died before it announced any of it."""
    opened = next(journal.records(kinds=(Kind.OPEN,), run=info.id))
    if wanted := tuple(opened.body.get("undoing", ())):
        yield from journal.effects(Query(ids=wanted, states=(State.DONE,), newest=True))
