"""Actions on a ledger in a file: one line for each call that was made. Another process finds them by their names."""

import os
from typing import Any

import takeback


def lines() -> list[list[str]]:
    with open(os.environ["LEDGER"], encoding="utf-8") as file:
        return [line.split() for line in file]


def _write(*words: str) -> None:
    with open(os.environ["LEDGER"], "a", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n")


def find_order(key: str, what: str) -> Any:
    return next(({"order": words[1]} for words in lines() if words[:2] == ["order", key]), None)


@takeback.action(verify=find_order, timeout=10)
def order(what: str, *, key: str) -> Any:
    _write("order", key, what)
    return {"order": key}


def find_cancelled(receipt: Any, key: str) -> Any:
    found = [words for words in lines() if words[:2] == ["cancel", (receipt or {}).get("order", key)]]
    return {"cancelled": found[0][1]} if found else None


@order.undo(verify=find_cancelled)
def cancel(receipt: Any, *, key: str) -> Any:
    _write("cancel", receipt["order"])
    return {"cancelled": receipt["order"]}
