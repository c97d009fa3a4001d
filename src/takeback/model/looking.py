"""Where a run may not be used: while a module is imported only to find a function in it, and inside its own calls."""

from _thread import get_ident
from contextvars import ContextVar

from takeback.errors import Misuse

LOOKING: ContextVar[bool] = ContextVar("takeback is looking for an action", default=False)

CALLING: ContextVar[tuple[str, int]] = ContextVar(
    "the run that calls an action, and its thread", default=("", 0)
)


def refuse_inside_a_call(run: str) -> None:
    """The call has a thread of its own, and the run waits for it."""
    if CALLING.get()[0] == run and CALLING.get()[1] != get_ident():
        raise Misuse(
            "An action uses the run that calls it.",
            hint="An action only acts on the world outside; let what calls it do the rest.",
        )


def refuse_while_looking() -> None:
    if LOOKING.get():
        raise Misuse(
            "This module is imported to find an action in it, and begins a run.",
            hint='Put what it does when it is run below `if __name__ == "__main__":`.',
        )
