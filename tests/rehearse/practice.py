"""Actions with a test endpoint: what they make is a file in a directory, which a variable names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import takeback


def place(key: str) -> str:
    return os.path.join(os.environ["PRACTICE"], key)


def find(key: str) -> Any:
    return {"key": key} if os.path.exists(place(key)) else None


def make(key: str) -> Any:
    with open(place(key), "x", encoding="utf-8"):
        return {"key": key}


@contextmanager
def at_the_test_endpoint() -> Iterator[None]:
    before = os.environ["PRACTICE"]
    os.environ["PRACTICE"] = os.environ["PRACTICE_FOR_TESTS"]
    yield
    os.environ["PRACTICE"] = before


@takeback.action(verify=find, rehearse=at_the_test_endpoint)
def order(what: str, *, key: str) -> Any:
    return make(key)


@order.undo
def cancel(receipt: dict[str, Any]) -> None:
    os.unlink(place(receipt["key"]))


@takeback.action(verify=find, rehearse=at_the_test_endpoint)
def order_for_good(what: str, *, key: str) -> Any:
    return make(key)


@order_for_good.undo
def cancel_nothing(receipt: dict[str, Any]) -> None:
    """Answers that all is well, and leaves it there."""


@takeback.action(verify=find, rehearse={"PRACTICE": "/nonexistent/practice"})
def order_nowhere(what: str, *, key: str) -> Any:
    return make(key)


order_nowhere.undo(cancel)


@takeback.action(verify=find)
def order_unrehearsed(what: str, *, key: str) -> Any:
    return make(key)


order_unrehearsed.undo(cancel)


@takeback.action(verify=find, undo=takeback.IRREVERSIBLE("it is eaten"))
def eat(what: str, *, key: str) -> Any:
    return make(key)
