"""A change that its caller makes step by step, such as a transaction of several statements: the intent is durable
before the first of them, and the outcome is recorded when it has ended."""

from takeback.engine.guards import SQL
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.settle import abort, finish, found_out
from takeback.engine.write import Terms, announced, ready
from takeback.errors import InDoubt, VerifyFailed
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.plan import Standing
from takeback.model.run import Lease

NOTHING = "Nothing was changed."


def begin(parts: Parts, lease: Lease, change: Change, terms: Terms) -> Effect:
    """The effect, intended; or done, if it was made before under the same key."""
    made = ready(parts, lease, change, terms, SQL)
    assert made is not None  # what a transaction changes is known at its end
    with terms.held_back():
        return announced(parts, lease, made, terms)


def end(parts: Parts, lease: Lease, effect: Effect, receipt: dict[str, object] | None) -> Effect | None:
    """It was made, and says what was changed; None if that was nothing."""
    adapter = adapter_of(parts, effect.change.adapter)
    if receipt is None:
        abort(parts, lease, adapter, effect, NOTHING)
        return None
    if adapter.verify(effect).standing is not Standing.AFTER:
        raise VerifyFailed(
            f"{effect.change.summary}: the database says that this never happened.", effect=effect.id
        )
    return finish(parts, lease, adapter, effect, receipt)


def give_up(parts: Parts, lease: Lease, effect: Effect, why: str) -> Effect:
    return abort(parts, lease, adapter_of(parts, effect.change.adapter), effect, why)


def doubted(parts: Parts, lease: Lease, effect: Effect, error: InDoubt) -> Effect:
    """The answer was lost: the world is asked. Done, or the error with what is known now."""
    found = found_out(parts, lease, adapter_of(parts, effect.change.adapter), effect, error)
    assert found.state is State.DONE
    return found
