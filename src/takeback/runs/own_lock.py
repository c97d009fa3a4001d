"""The lock of a run: one thing at a time, whichever thread asks for it."""

from _thread import RLock

from takeback.model.looking import refuse_inside_a_call


class OwnLock:
    """May be taken again by the thread that has it. An action that uses the run which calls it would wait for itself,
    and is told so instead."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = RLock()

    def __enter__(self) -> None:
        refuse_inside_a_call(self._run)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
