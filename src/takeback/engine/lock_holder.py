"""Whose held transaction stands in the way, where only the journal can tell."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from takeback.engine.parts import Parts
from takeback.errors import RowsHeld
from takeback.model.database import ENGINES, Holder, busy
from takeback.model.effect import Effect, State
from takeback.storage.protocols import Query


def held_in(parts: Parts, resource: str) -> list[Effect]:
    """What waits for a decision in this database, newest first."""
    found = parts.journal.effects(Query(states=(State.PROPOSED,), newest=True))
    return [one for one in found if one.phase.reviewed and one.change.resource == resource]


def named(parts: Parts, resource: str, error: RowsHeld) -> RowsHeld:
    """A file of SQLite has one writer at a time: what is held in it is what has it."""
    if error.effect or ENGINES.get(resource.partition("://")[0]) != "sqlite":
        return error
    held = held_in(parts, resource)
    return busy(Holder(held[0].id)) if held else error


@contextmanager
def holders_named(parts: Parts, effects: Iterable[Effect]) -> Iterator[None]:
    try:
        yield
    except RowsHeld as error:
        for resource in {one.change.resource for one in effects}:
            error = named(parts, resource, error)
        raise error from None
