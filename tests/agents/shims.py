"""The hook programs, as they are built, and a daemon that says what a test wants."""

import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from takeback.frontends.agents.settings import shim_path

_BUILD = Path(__file__).parents[2] / "tools/hatch_build.py"
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@cache
def _build() -> Any:
    found = importlib.util.spec_from_file_location("hatch_build", _BUILD)
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def compiled_shim(target: Path, *more: str) -> Path:
    why = _build().compiled(
        target, Path(shim_path()).with_suffix(".c"), [more] if more else (("-static",), ())
    )
    assert not why, why
    return target


def words_of(
    compiled: Path | None, shim: str, host: str, event: str, python: str = sys.executable
) -> list[str]:
    """The command of a hook; without a compiled shim the other one."""
    before = [os.fspath(compiled)] if compiled else []
    return [*before, python, "-I", "-S", shim, host, event]


Answer = bytes | Callable[[socket.socket], None]


class FakeDaemon:
    """Answers one request after the other with what was written down, and keeps what it was asked."""

    def __init__(self, store: Path, answers: Sequence[Answer]) -> None:
        self.asked: list[bytes] = []
        self._answers = list(answers)
        place = store / "hooks"
        place.mkdir(parents=True, mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX)
        handle = os.open(place, os.O_RDONLY)
        self._listener.bind(f"/proc/self/fd/{handle}/socket")
        os.close(handle)
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "FakeDaemon":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                try:
                    if callable(answer):
                        self.asked.append(b"")
                        answer(connection)
                    else:
                        self.asked.append(_request(connection))
                        connection.sendall(answer)
                except OSError:
                    continue


def _request(connection: socket.socket) -> bytes:
    """Whole: the head says how long it is."""
    found = b""
    while b"\n" not in found:
        found += _more(connection)
    parts = [found]
    head, _, rest = found.partition(b"\n")
    left = sum(map(int, head.split(b" ", 7)[5:7])) - len(rest)
    while left > 0:
        parts.append(_more(connection))
        left -= len(parts[-1])
    return b"".join(parts)


def _more(connection: socket.socket) -> bytes:
    part = connection.recv(1 << 20)
    if not part:
        raise ConnectionAbortedError
    return part
