"""Books that take whatever is entered, as often as it is entered; who enters: a workflow, or this as a program:

    python -m tests.remote.booking STORE KEY

It prints the number of the entry, or the name of the error. LEDGER is the file of the books. GATES is a directory: a
file there lets those go on who wait for it, and another one tells that they wait.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import takeback
from tests.servers.process import wait_until


@contextmanager
def books() -> Iterator[sqlite3.Connection]:
    ledger = sqlite3.connect(os.environ["LEDGER"], timeout=60, isolation_level=None)
    try:
        yield ledger
    finally:
        ledger.close()


def begin(path: Path) -> None:
    os.environ["LEDGER"] = str(path)
    with books() as ledger:
        ledger.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE entries (number INTEGER PRIMARY KEY, key TEXT, pid INTEGER);"
            " CREATE INDEX by_key ON entries (key);"
        )


def asked(question: str, *values: Any) -> Any:
    with books() as ledger:
        return ledger.execute(question, values).fetchone()[0]


def entries(key: str) -> int:
    return asked("SELECT count(*) FROM entries WHERE key = ?", key)


def find(key: str) -> Any:
    with books() as ledger:
        found = ledger.execute("SELECT number FROM entries WHERE key = ?", (key,)).fetchone()
    return {"number": found[0]} if found else None


def _enter(key: str) -> Any:
    with books() as ledger:
        return {
            "number": ledger.execute(
                "INSERT INTO entries (key, pid) VALUES (?, ?)", (key, os.getpid())
            ).lastrowid
        }


def strike(receipt: dict[str, Any], *, key: str) -> None:
    with books() as ledger:
        ledger.execute("DELETE FROM entries WHERE number = ?", (receipt["number"],))


@takeback.action(verify=find, timeout=2)
def enter(*, key: str) -> Any:
    return _enter(key)


@takeback.action(verify=find, timeout=5)
def enter_at_leisure(*, key: str) -> Any:
    """It takes a while until it is done."""
    pass_gate(f"{key}-call")
    return _enter(key)


enter.undo(strike)
enter_at_leisure.undo(strike)


def pass_gate(name: str) -> None:
    place = Path(os.environ["GATES"])
    (place / f"{name}-{os.environ.get('TAKEBACK_MACHINE', '')}-waits").touch()
    wait_until((place / name).exists, f"the gate {name} is open")


@takeback.workflow
def book(run: takeback.Run, key: str) -> Any:
    return run.call(enter, key=key)["number"]


@takeback.workflow
def book_two(run: takeback.Run, key: str) -> Any:
    """One after the other, with a gate between them."""
    run.call(enter, key=f"{key}-first")
    pass_gate(key)
    return run.call(enter, key=f"{key}-second")["number"]


@takeback.workflow
def book_at_leisure(run: takeback.Run, key: str) -> Any:
    return run.call(enter_at_leisure, key=key)["number"]


def main() -> int:
    store, key = sys.argv[1:]
    try:
        with takeback.open(store) as tb, tb.run("enter", on_death="accept") as run:
            number = run.call(enter, key=key)["number"]
    except takeback.TakebackError as error:
        sys.stdout.write(f"{type(error).__name__} {error} {error.hint}\n")
        return 1
    sys.stdout.write(f"{number}\n")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
