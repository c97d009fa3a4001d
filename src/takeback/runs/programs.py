"""A whole program with a database driver of its own: all its transactions are one effect."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from takeback.adapters.database.protocol import Databases, Programs, Tell, quiet
from takeback.engine.do import Terms, refuse_own
from takeback.engine.parts import adapter_of
from takeback.engine.settle import abort
from takeback.engine.watch import NOTHING, RECEIPT, begin, finish
from takeback.errors import NoRemedy
from takeback.model.change import Change
from takeback.model.database import resource_of, to_json
from takeback.model.effect import Effect
from takeback.runs.sql import Hand

PROGRAM = "program"


class Seen(NamedTuple):
    """A program that is being watched: what it must be started with, and what became of it when it has ended."""

    environment: Mapping[str, str]
    effects: list[Effect]
    unchanged: list[str]  # databases where no change of it was seen


class Watched(NamedTuple):
    adapter: Programs
    effect: Effect


@contextmanager
def program(hand: Hand, addresses: Sequence[str], says: str, tell: Tell = quiet) -> Iterator[Seen]:
    """Whether the block ends well or not, what the program changed is recorded."""
    watched: list[Watched] = []
    seen = Seen({}, [], [])
    environment: dict[str, str] = {}
    try:
        for address in addresses:
            one, variables = _entered(hand, address, says, tell)
            watched.append(one)
            environment.update(variables)
        yield seen._replace(environment=environment)
    finally:
        for one in watched:
            if effect := _left(hand, one):
                seen.effects.append(effect)
                hand.took_hold(effect)
            else:
                seen.unchanged.append(one.effect.change.resource)


def _entered(hand: Hand, address: str, says: str, tell: Tell) -> tuple[Watched, Mapping[str, str]]:
    database = hand.parts.named(address)
    adapter = adapter_of(hand.parts, database.engine)
    if not isinstance(adapter, Programs) or not isinstance(adapter, Databases):
        raise NoRemedy(
            f"What a program does in {database.engine} by itself cannot be captured.",
            hint="Let it go through run.sql(…).",
        )
    session = adapter.connect(database)
    database = session.database
    session.close()
    refuse_own(hand.parts, resource_of(database))
    change = Change(database.engine, PROGRAM, resource_of(database), says, {"database": to_json(database)})
    effect = begin(hand.parts, hand.lease, change, Terms(key=hand.next_key(change), agent=hand.agent))
    try:
        return Watched(adapter, effect), adapter.enter(effect, tell)
    except BaseException:
        abort(hand.parts, hand.lease, adapter_of(hand.parts, database.engine), effect, NOTHING)
        raise


def _left(hand: Hand, one: Watched) -> Effect | None:
    change = one.effect.change

    def found() -> Change | None:
        receipt: dict[str, Any] | None = one.adapter.leave(one.effect)
        return None if receipt is None else change._replace(args={**change.args, RECEIPT: receipt})

    with hand.uninterrupted():
        return finish(hand.parts, hand.lease, one.effect, found)
