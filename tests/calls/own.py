"""Actions of the tests: the bank's, with less on its side."""

import os
import signal
from _thread import get_ident
from typing import Any

import takeback
from examples.payments import ask, find_payment, find_reversal, pay


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


def _stop() -> None:
    """Stop this process. Sent to the process, another thread might take the signal, and this one run on for a while."""
    signal.pthread_kill(get_ident(), signal.SIGSTOP)


@takeback.action(verify=find_payment, timeout=30)
def pay_after_a_pause(source: str, target: str, cents: int, *, key: str) -> Any:
    """Whoever calls it is stopped in the middle of the call, before anything is sent."""
    _stop()
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


pay_after_a_pause.undo(give_back_once, verify=find_reversal)


@takeback.action(verify=find_payment, timeout=1)
def pay_after_a_pause_in_time(source: str, target: str, cents: int, *, key: str) -> Any:
    """The same, for someone who does not wait for it; stopped only once."""
    if not os.path.exists(os.environ["WAS_PAUSED"]):
        with open(os.environ["WAS_PAUSED"], "w"):
            _stop()
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


pay_after_a_pause_in_time.undo(give_back_once, verify=find_reversal)


@takeback.workflow
def paused_order(run: takeback.Run, key: str) -> Any:
    goods = run.call(pay_after_a_pause_in_time, "anna", "shop", 300, key=key)
    run.call(pay, "anna", "post", 40, key=f"{key}-postage")
    return goods


@takeback.workflow
def order(run: takeback.Run, key: str) -> Any:
    """Two payments, one after the other."""
    goods = run.call(pay, "anna", "shop", 300, key=key)
    run.call(pay, "anna", "post", 40, key=f"{key}-postage")
    return goods


@takeback.action(verify=find_payment, timeout=5)
def pay_and_lose_sight(source: str, target: str, cents: int, *, key: str) -> Any:
    """It is made, and from then on the bank cannot be reached: neither the answer nor a question gets through."""
    ask("/transfers", {"source": source, "target": target, "cents": cents}, key)
    os.environ["BANK_URL"] = "http://127.0.0.1:1"
    raise ConnectionResetError


pay_and_lose_sight.undo(give_back_once, verify=find_reversal)
