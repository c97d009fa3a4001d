"""Ask the daemon of a store. None is started for that. Little is imported: without a daemon nothing may be lost by
asking."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

ROOT = __file__.rsplit("/", 3)[0]  # where the package lies
OWN = "takeback"  # as the name of a host: the request is ours, not an agent's
AGENTS = "agents"  # which processes it knows as agents
_SECONDS = 30


def ask(store: str, event: str) -> bytes | None:
    """Its answer; None if there is no daemon, or it does not answer."""
    try:
        connection = connection_to(store, _SECONDS)
        try:
            connection.sendall(head_of(event))
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))
        finally:
            connection.close()
    except OSError:
        return None


def answers(store: str) -> bool:
    """Whether a daemon takes connections for this store. It hangs up when it is asked nothing."""
    try:
        connection_to(store).close()
        return True
    except OSError:
        return False


def head_of(event: str) -> bytes:
    return os.fsencode(f"takeback 1 {OWN} {event} {os.getppid()} 0 0 {ROOT}\n")


def connection_to(store: str, seconds: float | None = None) -> "socket":
    """By a handle of its directory: a path may be longer than a socket's name."""
    from _socket import AF_UNIX, SOCK_STREAM, socket  # `socket` takes long to load

    place = os.open(os.path.join(store, "hooks"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(f"/proc/self/fd/{place}/socket")
        return connection
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(place)
