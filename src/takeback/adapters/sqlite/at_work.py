"""Whether a program still lives whose watcher has died: nobody can tell from the file who will write to it next.

It is started with a variable that names its effect, which whatever it starts inherits."""

import os

MARK = "TAKEBACK_PROGRAM"


def marked(effect: str) -> dict[str, str]:
    """A program can be inside another one: then it belongs to both."""
    around = os.environ.get("TAKEBACK_PROGRAM", "")
    return {MARK: f"{around} {effect}".strip()}


def at_work(effect: str) -> list[int]:
    """Of the processes that may be looked at, which is those of this user."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _bears(name, effect)]


def _bears(process: str, effect: str) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False  # it has ended, or is someone else's
    return any(
        one.startswith(f"{MARK}=".encode()) and effect.encode() in one.partition(b"=")[2].split()
        for one in variables
    )
