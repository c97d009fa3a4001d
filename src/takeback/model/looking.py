"""While a module is imported only to find a function in it, it must not begin anything."""

from contextvars import ContextVar

from takeback.errors import Misuse

LOOKING: ContextVar[bool] = ContextVar("takeback is looking for an action", default=False)


def refuse_while_looking() -> None:
    if LOOKING.get():
        raise Misuse(
            "This module is imported to find an action in it, and begins a run.",
            hint='Put what it does when it is run below `if __name__ == "__main__":`.',
        )
