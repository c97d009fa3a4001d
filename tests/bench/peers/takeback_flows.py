"""Our workflows, in a module of their own: that is where another process looks for what a call was."""

from typing import Any

from answering import Asked

import takeback

asked = Asked()


def take_away(receipt: Any) -> None:
    """What it added is nowhere but here."""


def there(value: int) -> dict[str, int] | None:
    """The world is this process: what another one was in the middle of did not happen."""
    return None if asked.mode == "recover" else {"value": value + 1}


@takeback.action(undo=take_away)
def add(value: int) -> dict[str, int]:
    return asked.add(value)


@takeback.action(undo=take_away, verify=there)
def add_probed(value: int) -> dict[str, int]:
    return asked.add(value)


@takeback.workflow(name="remember")
def remember(run: takeback.Run, many: int) -> int:
    value = 0
    for number in range(many):
        value = run.remember(f"add {number}", lambda: asked.add(value))["value"]  # noqa: B023
    return value


@takeback.workflow(name="call")
def call(run: takeback.Run, many: int) -> int:
    value = 0
    for _ in range(many):
        value = run.call(add, value)["value"]
    return value


@takeback.workflow(name="probed")
def probed(run: takeback.Run, many: int) -> int:
    value = 0
    for _ in range(many):
        value = run.call(add_probed, value)["value"]
    return value
