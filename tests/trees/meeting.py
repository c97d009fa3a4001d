"""Someone acts while a command runs, at a moment that both know."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType

from tests.trees.ways import python

ENOUGH = 120  # seconds; whoever waits longer waits for nobody
# A FIFO will not do: one that is opened through an overlay is not the one outside.
KNOCK = (
    'import socket; s = socket.create_connection(("127.0.0.1", {port}), {limit}); s.sendall(b"."); s.recv(1)'
)


class Meeting:
    """The command says when it has begun, and waits until it is told to go on."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.settimeout(ENOUGH)
        self._thread: threading.Thread | None = None
        self._wrong: BaseException | None = None

    def line(self, then: str, first: str = ":") -> str:
        """A line for the shell: first, the meeting, then."""
        return f"{first}; {self.knock()} && {{ {then}; }}"

    def knock(self) -> str:
        program = KNOCK.format(port=self._door.getsockname()[1], limit=ENOUGH)
        return f"{python()} -I -S -c '{program}'"

    def while_it_runs(self, act: Callable[[], object]) -> None:
        """Act when it has begun, then let it go on."""

        def meet() -> None:
            try:
                visitor, _ = self._door.accept()
                with visitor:
                    visitor.settimeout(ENOUGH)
                    visitor.recv(1)
                    act()
            except BaseException as error:  # noqa: BLE001  # told by `over`, in the thread that can fail the test
                self._wrong = error

        self._thread = threading.Thread(target=meet)
        self._thread.start()

    def over(self) -> None:
        """They have met; what went wrong there goes wrong here."""
        assert self._thread
        self._thread.join(ENOUGH)
        assert not self._thread.is_alive()
        if self._wrong:
            raise self._wrong

    def __enter__(self) -> "Meeting":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.shutdown(socket.SHUT_RDWR)  # whoever waits for a visitor waits no longer
        self._door.close()
        if self._thread:
            self._thread.join(ENOUGH)
