"""Runs in a process of its own, the only one with SQLite in it: takes questions from a pipe, one at a time."""

import os
import select
import signal
from typing import Any

from takeback.adapters.sqlite import wire
from takeback.errors import Conflict, Misuse, TakebackError, Unavailable

_IN, _OUT = 3, 4
_LOOK = 5000  # ms: how often an idle one looks whether it still has a parent


def main(parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        from takeback.adapters.sqlite.child.server import ChildServer
    except ImportError as error:
        room: Any = _Missing(str(error))
    else:
        room = ChildServer(lambda: _has_parent(parent), _tell)
    poll = select.poll()
    poll.register(_IN, select.POLLIN)
    try:
        while True:
            while not poll.poll(_LOOK if (left := room.due()) is None else min(_LOOK, int(left * 1000) + 1)):
                if os.getppid() != parent:
                    return
            room.due()
            what, given = wire.receive(_IN)
            wire.send(_OUT, _answer(room, what, given))
    except (EOFError, BrokenPipeError):
        return
    finally:
        room.close()


def _answer(room: Any, what: str, given: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "answer", room.answer(what, *given)
    except TakebackError as error:
        found = error
    except UnicodeDecodeError:
        from takeback.adapters.sqlite.child.driver import not_utf8

        found = not_utf8()
    except Exception as error:  # noqa: BLE001  # the caller must get every error
        found = Unavailable(f"SQLite: {type(error).__name__}: {error}", hint="Nothing was changed.")
    further = {"hint": found.hint} | ({"resources": found.resources} if isinstance(found, Conflict) else {})
    return "error", (type(found).__name__, str(found), further)


def _tell(process: int, words: str) -> None:
    """Before the answer: for whom it waits."""
    wire.send(_OUT, ("waiting", (process, words)))


def _has_parent(parent: int) -> bool:
    """Someone who is still there to hear how it went. Asked right before a commit: after its parent's death, when
    others have begun to look what became of it, nothing is committed any more."""
    if os.getppid() != parent:
        return False
    poll = select.poll()
    poll.register(_IN, select.POLLIN)
    return not any(event & select.POLLHUP for _, event in poll.poll(0))


class _Missing:
    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise Misuse(
            f"SQLite databases need the package apsw, which cannot be loaded: {self._why}.",
            hint="Install it with `pip install apsw`.",
        )

    def due(self) -> None: ...

    def close(self) -> None: ...
