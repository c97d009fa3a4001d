"""Actions that count in a file, for several threads: killed in the middle, and asked whether they happened."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import takeback

_MOMENTS = threading.Lock()
_PASSED: list[str] = []


def ticks() -> list[str]:
    """What was counted: the number and the key of each."""
    ledger = Path(os.environ["LEDGER"])
    return ledger.read_text().splitlines() if ledger.exists() else []


def _moment(name: str) -> None:
    """The process is killed at the moment that KILLED_AT says, counted over all threads."""
    with _MOMENTS:
        _PASSED.append(name)
        if len(_PASSED) == int(os.environ.get("KILLED_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)


def find_tick(key: str, number: int) -> Any:
    return {"number": number} if f"{number} {key}" in ticks() else None


@takeback.action(verify=find_tick, timeout=30)
def tick(number: int, *, key: str) -> Any:
    _moment("before")
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{number} {key}\n")
    _moment("after")
    return {"number": number}


@tick.undo(honours_key=True)
def untick(receipt: Any, number: int, *, key: str) -> None:
    """Whoever takes it back removes its line."""
    left = [line for line in ticks() if not line.startswith(f"{number} ")]
    Path(os.environ["LEDGER"]).write_text("".join(f"{line}\n" for line in left))


@takeback.workflow(name="tests.ticking")
def ticking(run: takeback.Run, many: int) -> Any:
    first = run.call_all(tick, [{"number": number} for number in range(many)], at_once=3)
    last = run.call(tick, many)
    return [*first, last]
