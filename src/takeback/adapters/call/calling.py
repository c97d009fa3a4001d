"""Call a function that may not come back: in a thread of its own, for as long as it was given.

While the call is under way, and be it in a process that is stopped or in a thread that was given up on, an abstract
socket has its name. The kernel takes the name away with the last one who could still send anything, so that whoever has
to know whether a call may yet happen can ask on the same machine, without files and without guessing.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class TimedOut(Exception):
    """It has not come back yet, and may still do something."""


class Ended(Exception):
    """It tried to end the process that called it."""


def call(
    function: Callable[..., Any],
    given: tuple[Any, ...],
    named: Mapping[str, Any],
    timeout: float,
    name: str = "",
) -> Any:
    """What it returns or raises; `TimedOut` when it takes longer. With a `name` others can see that it is under way."""
    import contextvars

    result: list[Any] = []
    errors: list[BaseException] = []
    over = threading.Event()
    context = contextvars.copy_context()
    held = _held(name)

    def work() -> None:
        try:
            with held:
                result.append(context.run(function, *given, **named))
        # Whatever it raises belongs to whoever called.
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
        finally:
            over.set()

    threading.Thread(target=work, name=f"takeback-call-{name}", daemon=True).start()
    if not over.wait(timeout):
        raise TimedOut(f"it did not come back within {timeout:g} s")
    if errors:
        error = errors[0]
        if not isinstance(error, Exception):
            # It wants to end the process: that is not for a function which was called.
            raise Ended(f"{type(error).__name__}: {error}") from error
        raise error
    return result[0]


def under_way(name: str) -> bool:
    """On this machine, in this network namespace."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        try:
            one.bind(_address(name))
        except OSError:
            return True
    return False


def _held(name: str) -> AbstractContextManager[Any]:
    if not name:
        return nullcontext()
    import socket

    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind(_address(name))
    except OSError as error:
        one.close()
        raise TimedOut("an earlier try of it is still under way") from error
    return one


def _address(name: str) -> bytes:
    return b"\0takeback-call-" + name.encode()
