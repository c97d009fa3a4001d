"""A program that pays, for tests that need one: python -m tests.calls.payer STORE ACTION KEY

It prints the receipt, or the name of the error. ACTION is a name in `examples.payments` or `tests.calls.own`.
"""

import json
import os
import sys

import takeback
from examples import payments
from tests.calls import own

CENTS = 300


def main() -> int:
    store, name, key = sys.argv[1:]
    action = getattr(payments, name, None) or getattr(own, name)
    try:
        with takeback.open(store) as tb, tb.run("pay", on_death="accept") as run:
            receipt = run.call(action, "anna", "shop", CENTS, key=key)
    except takeback.TakebackError as error:
        sys.stdout.write(f"{type(error).__name__} {error} {error.hint}\n")
        return 1
    sys.stdout.write(f"{json.dumps(receipt)}\n")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # whatever thread still waits for an answer
