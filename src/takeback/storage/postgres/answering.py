"""Waiting for what the server answers, but not for ever: one that hears us and says nothing is as good as gone.

The network notices when it is away. Nobody notices a server that is stopped, or whose answers alone are lost: it takes
what is sent, and all is well.
"""

import select
from functools import cache
from typing import Any

SILENCE = 60.0  # seconds without a word; it is longer than any wait of the server for its own locks
_READ, _WRITE = 1, 2  # as the driver has them
_EVENTS = {
    _READ: select.POLLIN,
    _WRITE: select.POLLOUT,
    _READ | _WRITE: select.POLLIN | select.POLLOUT,
}


@cache
def connections() -> Any:
    """The driver's, which do not wait for ever."""
    import psycopg

    class Patient(psycopg.Connection[Any]):
        def wait(self, gen: Any, *others: Any, **named: Any) -> Any:
            if others or named:  # somebody who knows for how long
                return super().wait(gen, *others, **named)
            try:
                wanted = next(gen)
                while True:
                    wanted = gen.send(_ready(self.pgconn, wanted))
            except StopIteration as end:
                return end.value
            except _Silent:
                self.close()
                raise _silent() from None
            except (KeyboardInterrupt, SystemExit):
                self.close()  # else what was asked for goes on, and may hold a lock that everybody waits for
                raise

    return Patient


def exec_prepared(speaker: Any, name: bytes, values: Any, formats: list[int]) -> Any:
    """As the driver's, with an end."""
    speaker.send_query_prepared(name, values, formats, 1)
    return _result(speaker)


def prepare(speaker: Any, name: bytes, sql: bytes) -> Any:
    speaker.send_prepare(name, sql)
    return _result(speaker)


def _result(speaker: Any) -> Any:
    try:
        while speaker.flush():
            if _ready(speaker, _READ | _WRITE) & _READ:
                speaker.consume_input()
        last = None
        while True:
            while speaker.is_busy():
                _ready(speaker, _READ)
                speaker.consume_input()
            result = speaker.get_result()
            if result is None:
                return last
            last = result
    except _Silent:
        speaker.finish()
        raise _silent() from None
    except (KeyboardInterrupt, SystemExit):
        speaker.finish()
        raise


class _Silent(Exception):
    pass


def _ready(speaker: Any, wanted: int) -> int:
    poll = select.poll()
    poll.register(speaker.socket, _EVENTS[wanted])
    for _, event in poll.poll(SILENCE * 1000):
        # What is wrong with the connection, whoever reads from it is told.
        return (_READ if event & ~select.POLLOUT else 0) | (_WRITE if event & select.POLLOUT else 0)
    raise _Silent


def _silent() -> Exception:
    import psycopg

    return psycopg.OperationalError(f"The server has not answered for {SILENCE:g} seconds")
