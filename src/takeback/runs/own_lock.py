"""The lock of a run: one thing at a time, whichever thread asks for it; and the calls that are under way without it."""

from _thread import RLock, get_ident
from threading import Condition

from takeback.errors import Misuse
from takeback.model.looking import refuse_inside_a_call


class OwnLock:
    """May be taken again by the thread that has it. An action that uses the run which calls it would wait for itself,
    and is told so instead.

    Functions of others are called without it. Each call has a key of its own while it is under way: a second thread
    that asks for the same key waits for the first, and a run waits for all of them before it ends or goes back.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = RLock()
        self._over = Condition(self._lock)
        self._calls: dict[str, int] = {}  # under way: by key, whose thread

    def __enter__(self) -> None:
        refuse_inside_a_call(self._run)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def begin_call(self, key: str) -> None:
        """The lock is held by who asks; it is free while another thread's call with this key is waited for."""
        if self._calls.get(key) == get_ident():
            raise Misuse(
                f"The call with the key {key!r} asks for itself.", hint="Give every call its own key."
            )
        self.wait_for(key)
        self._calls[key] = get_ident()

    def end_calls(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                del self._calls[key]
            self._over.notify_all()

    def wait_for(self, key: str) -> None:
        """Until no other thread's call with this key is under way."""
        with self._lock:
            while self._calls.get(key, get_ident()) != get_ident():
                self._over.wait()

    def wait_for_calls(self) -> None:
        """Until none of another thread is under way; the lock is held by who asks."""
        while self.others:
            self._over.wait()

    @property
    def under_way(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._calls)

    @property
    def others(self) -> bool:
        """Whether a call of another thread is under way."""
        return any(thread != get_ident() for thread in tuple(self._calls.values()))
