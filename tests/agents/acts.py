"""What others do while an agent is at work."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.agents.play import Act, Now, ended

DAEMON = "takeback.frontends.agents.daemon"


def user_appends(path: str, text: str) -> Act:
    def act(now: Now) -> None:
        with open(now.project / path, "a", encoding="utf-8") as file:
            file.write(text)

    return act


def user_writes(path: str, text: str) -> Act:
    """As editors save: another file takes the name."""

    def act(now: Now) -> None:
        beside = now.project / f"{path}.editor"
        beside.write_text(text)
        beside.rename(now.project / path)

    return act


def release(name: str) -> Act:
    return lambda now: now.release(name)


def meet_first(name: str) -> Act:
    """Nothing, but only when another call is at its meeting as well: so both run at the same time."""

    def act(now: Now) -> None:
        now.meet(name)

    return act


def wait_until_asked(prompt: str, turn: int) -> Act:
    return lambda now: now.asked(prompt, turn)


def agent_is_killed(now: Now) -> None:
    os.kill(now.agent, signal.SIGKILL)
    ended(now.agent)


def daemon_is_killed(now: Now) -> None:
    """Of the store in the surroundings, or of one below the home; without takeback there is none."""
    for process in daemons(os.environ.get("TAKEBACK_STORE", ""), str(now.home)):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        ended(process)


def daemons(*places: str) -> list[int]:
    """Those with a store at or below one of these places."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = os.fsdecode(Path(f"/proc/{name}/cmdline").read_bytes()).split("\0")
            ours = [
                word for word in words for place in places if place and f"{word}/".startswith(f"{place}/")
            ]
            if DAEMON in words and ours:
                found.append(int(name))
    return found
