"""Actions of the tests: the bank's, with less on its side."""

import os
import signal
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


@takeback.action(verify=find_payment, timeout=1, settles_in=4)
def pay_in_time(source: str, target: str, cents: int, *, key: str) -> Any:
    """At a bank that may take some seconds, for someone who does not wait for it."""
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


pay_in_time.undo(give_back_once, verify=find_reversal, settles_in=4)


@takeback.action(verify=find_payment, timeout=30)
def pay_after_a_pause(source: str, target: str, cents: int, *, key: str) -> Any:
    """Whoever calls it is stopped in the middle of the call, before anything is sent."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


pay_after_a_pause.undo(give_back_once, verify=find_reversal)
