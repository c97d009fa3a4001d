"""Payments at the small bank (`examples.bank`, its address in BANK_URL) as actions: keyed, asked about, made up for."""

import json
import os
from typing import Any
from urllib import error, parse, request

import takeback


def ask(path: str, body: Any = None, key: str = "", timeout: float = 10) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    asked = request.Request(os.environ["BANK_URL"] + path, data=data, headers=headers)
    try:
        with request.urlopen(asked, timeout=timeout) as answer:
            return json.load(answer)
    except error.HTTPError as refusal:
        with refusal:
            if refusal.code // 100 != 4:
                raise
            # The bank has looked at it and said no.
            raise takeback.DidNotHappen(f"The bank declined: {json.load(refusal)['error']}.") from None


def covered(source: str, cents: int) -> bool:
    """The account has that much, now."""
    return bool(ask(f"/accounts/{source}")["cents"] >= cents)


def find_payment(key: str, cents: int) -> Any:
    """The transfer with this key, if the bank has one."""
    found = ask(f"/transfers?key={parse.quote(key)}")
    if found and found[0]["cents"] != cents:
        moved = found[0]["cents"]
        raise takeback.VerifyFailed(f"the bank moved {moved} cents instead of {cents}", receipt=found[0])
    return found[0] if found else None


def find_reversal(receipt: dict[str, Any], key: str) -> Any:
    found = ask(f"/reversals?of={receipt['id']}") if receipt else ask(f"/transfers?key={parse.quote(key)}")
    return found[0] if found else None


# A request may still be on its way when whoever sent it is dead: it is looked for that long before it is called absent.
@takeback.action(expects=covered, verify=find_payment, risk="high", timeout=10, settles_in=0.25)
def pay(source: str, target: str, cents: int, *, key: str) -> Any:
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


@pay.undo(verify=find_reversal, honours_key=True)
def give_back(receipt: dict[str, Any], *, key: str) -> Any:
    return ask(f"/transfers/{receipt['id']}/reversal", {}, key)


@takeback.action(timeout=10)
def pay_blindly(source: str, target: str, cents: int, *, key: str) -> Any:
    """The same where nobody can be asked."""
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


pay_blindly.undo(give_back)


@takeback.action(honours_key=True, retries=3, timeout=10)
def pay_keyed(source: str, target: str, cents: int, *, key: str) -> Any:
    """The same at a bank that takes a second payment with the same key for the first."""
    return ask("/transfers", {"source": source, "target": target, "cents": cents}, key)


pay_keyed.undo(give_back)
