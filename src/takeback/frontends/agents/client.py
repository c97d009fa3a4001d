"""Ask the daemon of a store from another front end. None is started for that."""

import os
from contextlib import suppress

from takeback.frontends.agents.relay import ROOT

OWN = "takeback"  # as the name of a host: the request is ours, not an agent's
AGENTS = "agents"  # which processes it knows as agents
RECORD = "record"  # what changed until now, and calls of agents that have died
_SECONDS = 30


def ask(store: str, event: str) -> bytes | None:
    """Its answer; None if there is no daemon, or it does not answer."""
    from socket import AF_UNIX, SOCK_STREAM, socket

    head = f"takeback 1 {OWN} {event} {os.getppid()} 0 0 {ROOT}\n"
    with suppress(OSError):
        place = os.open(os.path.join(store, "hooks"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket(AF_UNIX, SOCK_STREAM) as connection:
                connection.settimeout(_SECONDS)
                connection.connect(f"/proc/self/fd/{place}/socket")
                connection.sendall(head.encode())
                return b"".join(iter(lambda: connection.recv(1 << 16), b""))
        finally:
            os.close(place)
    return None


def answers(store: str) -> bool:
    """Whether a daemon takes connections for this store. It hangs up when it is asked nothing."""
    from socket import AF_UNIX, SOCK_STREAM, socket

    try:
        place = os.open(os.path.join(store, "hooks"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with socket(AF_UNIX, SOCK_STREAM) as connection:
            connection.connect(f"/proc/self/fd/{place}/socket")
        return True
    except OSError:
        return False
    finally:
        os.close(place)
