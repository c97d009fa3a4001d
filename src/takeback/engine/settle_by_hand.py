"""What is in doubt, settled by the word of a person who has looked."""

import json
from typing import Any

from takeback.adapters.protocol import traits_of
from takeback.engine.parts import Parts
from takeback.errors import Misuse, Refused
from takeback.model.effect import Effect, State
from takeback.model.functions import as_json
from takeback.model.ids import short
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease
from takeback.storage.protocols import Query

ACCEPTED = "A person decided to leave it so."


def refuse_unsettleable(effect: Effect) -> None:
    name = short(effect.id)
    if effect.state not in (State.STUCK, State.INTENDED):
        raise Refused(
            f"Effect {name} is {effect.state.value}, so there is nothing in doubt about it.",
            hint=f"`takeback show {name}` tells how it stands.",
            effect=effect.id,
        )
    if not traits_of(effect.change).calls:
        raise Refused(
            f"takeback can see whether effect {name} happened, so it need not be settled by hand.",
            hint=f"`takeback recover` looks again; `takeback undo {name}` takes back what happened of it.",
            effect=effect.id,
        )


def receipt_from(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Misuse(
            f"The receipt is not JSON: {error}.", hint="""For example --receipt '{"id": 7}'."""
        ) from None


def settle(parts: Parts, lease: Lease, effect: Effect, happened: bool, receipt: Any, by: str) -> None:
    """Recorded with who said it. Asked again now that nobody else can: it may have come to rest in the meantime."""
    (effect,) = parts.journal.effects(Query(ids=(effect.id,)))
    refuse_unsettleable(effect)
    who = by or "someone"
    if happened:
        body: dict[str, Any] = {"why": f"{who} says that it happened.", "by": by}
        if receipt is not None:
            body["receipt"] = {"result": as_json(receipt, "The receipt")}
        drafts = [Draft(Kind.DONE, effect.run, effect.id, body)]
    else:
        body = {"why": f"{who} says that it did not happen.", "by": by}
        drafts = [Draft(Kind.ABORT, effect.run, effect.id, body)]
    parts.journal.append(lease, drafts)
    if effect.is_undo and not happened:
        # It stays as it is: whoever takes the run back must not try again and again.
        (of,) = parts.journal.effects(Query(ids=(effect.undoes,)))
        if of.state is State.DONE and not of.accepted:
            parts.journal.append(None, [Draft(Kind.ACCEPT, of.run, of.id, {"why": ACCEPTED})])
