"""Actions of the tests: the bank's, with less on its side."""

from typing import Any

import takeback
from examples.payments import ask, find_payment, find_reversal


@takeback.action(verify=find_payment, timeout=10, settles_in=0.25)
def pay_once(source: str, target: str, cents: int, *, key: str) -> Any:
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


@pay_once.undo(verify=find_reversal, settles_in=0.25)
def give_back_once(receipt: dict[str, Any], *, key: str) -> Any:
    """At a bank that gives money back as often as it is asked to."""
    return ask(f"/transfers/{receipt['id']}/reversal", {}, key)
