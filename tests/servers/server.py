"""What every server of a database has: a directory, a port of its own, and a process that comes and goes."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tests.servers.process import Process, free_port, owned


class Server(ABC):
    """`start` and `stop` as often as wanted; `kill` is the end of all its processes at once."""

    ends_by = signal.SIGTERM
    dies_by = "KILL"  # the signal for it, when the tests die

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = owned(directory)
        self.port = free_port()
        self.settings = dict(settings)
        self._process = Process(directory / "log")
        self._made = 0

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    @property
    def pid(self) -> int:
        """Of its main process."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.runs

    @property
    def log(self) -> Path:
        return self._process.log

    def start(self) -> None:
        if self.runs:
            return
        for _ in range(5):
            if self._process.start(self._command(), self._answers, dies_by=self.dies_by):
                return
            if "Address already in use" not in self._process.last_words():
                break
            self.port = free_port()
        raise AssertionError(f"{type(self).__name__} did not start:\n{self._process.last_words()}")

    def stop(self) -> None:
        """Whoever is connected is thrown out."""
        self._process.end(self.ends_by)

    def kill(self) -> None:
        self._process.kill()
