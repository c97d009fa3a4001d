"""What others do while an agent is at work."""

import os
import signal
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
    for process in daemons(os.environ["TAKEBACK_STORE"]):
        os.kill(process, signal.SIGKILL)
        ended(process)


def daemons(store: str) -> list[int]:
    """Of this store; where takeback is not installed in the agent there is none."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if DAEMON.encode() in words and store.encode() in words:
            found.append(int(name))
    return found
