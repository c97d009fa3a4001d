"""A program that is asked something before it acts: python -m tests.calls.slow_asker STORE MODE FILE

Whoever started it is told that it is being asked, may send a signal, and then answers with a line. It prints how it
ended. What it did stands in FILE.
"""

import os
import sys
from pathlib import Path
from typing import Any

import takeback
from takeback.model.record import Kind
from takeback.policy.checks import Check

FILE = Path(sys.argv[3] if len(sys.argv) > 3 else os.devnull)


def asked() -> bool:
    sys.stdout.write("asked\n")
    sys.stdout.flush()
    return sys.stdin.readline() == "yes\n"


@takeback.action(expects=lambda name: asked())
def note(name: str) -> Any:
    with FILE.open("a") as file:
        file.write(f"{name}\n")
    return name


@note.undo
def strike(receipt: Any) -> None:
    FILE.write_text(FILE.read_text().replace(f"{receipt}\n", ""))


@takeback.action
def note_at_once(name: str) -> Any:
    return note.function(name)


note_at_once.undo(strike)


@takeback.action
def note_when_told(name: str) -> Any:
    asked()
    return note.function(name)


note_when_told.undo(strike)


def signal_with_the_intent(tb: takeback.Takeback, number: int) -> None:
    append: Any = tb.store.journal.append

    def appended(lease: Any, drafts: Any) -> Any:
        if drafts[0].kind is Kind.INTENT:
            os.kill(os.getpid(), number)
        return append(lease, drafts)

    tb.store.journal.append = appended  # pyright: ignore[reportAttributeAccessIssue]


def act(tb: takeback.Takeback, run: takeback.Run, mode: str) -> None:
    what, _, number = mode.partition(" ")
    if number:
        signal_with_the_intent(tb, int(number))
    if what == "call":
        run.call(note if not number else note_at_once, "one")
    elif what == "under-way":
        run.call(note_when_told, "one")
    elif what == "write":
        run.write(FILE, "one\n", expects=None if number else asked)
    else:
        run.write(
            FILE,
            "one\n",
            checks=[Check("asked", "before", lambda staged: None if asked() else "no", named=True)],
        )


def main() -> None:
    store, mode = sys.argv[1:3]
    try:
        with takeback.open(store) as tb, tb.run("slow") as run:
            act(tb, run, mode)
    except BaseException as error:  # noqa: BLE001
        code = f" {error.code}" if isinstance(error, SystemExit) else ""
        sys.stdout.write(f"{type(error).__name__}{code}\n")
    else:
        sys.stdout.write("well\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
