"""A process that has the package loaded already and becomes a command: it starts in a tenth of the time.

It is forked from a process that did nothing but import, so that it differs from `python -m takeback` in nothing that a
user sees: number, directory, variables, umask, the three files and the exit code are its own. What needs another
locale, another user or other options of Python is started as a process of its own, and so is everything where
`TAKEBACK_TESTS_REAL` is set. Tests of signals, terminals and start-up start their own in any case.
"""

import array
import atexit
import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

_ASKED = ("LC_", "LANG", "PYTHON")  # what Python looks at when it starts
_REAL = bool(os.environ.get("TAKEBACK_TESTS_REAL"))
_started: dict[int, "Ready"] = {}


def ran(
    words: Sequence[str], input: bytes, directory: str, environment: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """What the command answered: its exit code, what it printed, what it said."""
    ready = _ready(environment)
    if ready is None:
        done = subprocess.run(
            [sys.executable, "-m", "takeback", *words],
            input=input, capture_output=True, cwd=directory, env=environment, timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr
    return ready.run(words, input, directory, environment)


def _ready(environment: Mapping[str, str]) -> "Ready | None":
    """The one of this process; none of it is left when we have ended."""
    if _REAL or os.geteuid() != os.getuid():
        return None
    if os.getpid() not in _started:
        _started[os.getpid()] = ready = Ready(environment)
        atexit.register(ready.end)
    return _started[os.getpid()] if _started[os.getpid()].fits(environment) else None


def _asked(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_ASKED)}


class Ready:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._asked = _asked(environment)
        self._user, self._maker = os.geteuid(), os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from tests.e2e.ready import _wait; _wait()"],
                stdin=theirs, env=dict(environment), cwd="/",
            )  # fmt: skip

    def fits(self, environment: Mapping[str, str]) -> bool:
        return self._asked == _asked(environment) and self._user == os.geteuid()

    def end(self) -> None:
        self._line.close()
        if self._maker == os.getpid():
            self._process.wait()

    def run(
        self, words: Sequence[str], input: bytes, directory: str, environment: Mapping[str, str]
    ) -> tuple[int, bytes, bytes]:
        os.umask(umask := os.umask(0o022))
        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(3)]
        (in_, write_in), (read_out, out), (read_err, err) = pipes
        with os.fdopen(os.memfd_create("command"), "w+b") as what:
            what.write(json.dumps([list(words), directory, dict(environment), umask]).encode())
            what.flush()
            handles = array.array("i", [what.fileno(), theirs.fileno(), in_, out, err])
            self._line.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)])
        theirs.close()
        for handle in (in_, out, err):
            os.close(handle)
        said = _talk(write_in, input, (read_out, read_err))
        with ours:
            ours.settimeout(300)
            code = ours.recv(100)
        assert code, "the command ended without an exit code"
        return int(code), *said


def _talk(to: int, input: bytes, of: tuple[int, int]) -> tuple[bytes, bytes]:
    """Say all of it and hear everything, until nobody holds the other ends."""
    heard: dict[int, list[bytes]] = {handle: [] for handle in of}
    rest = memoryview(input)
    with selectors.DefaultSelector() as waiting:
        waiting.register(to, selectors.EVENT_WRITE)
        for handle in of:
            waiting.register(handle, selectors.EVENT_READ)
        while waiting.get_map():
            found = waiting.select(300)
            assert found, "the command takes longer than five minutes"
            for key, _ in found:
                handle = int(key.fd)
                if handle != to:
                    heard[handle].append(os.read(handle, 1 << 16))
                    over = not heard[handle][-1]
                else:
                    with suppress(BrokenPipeError):
                        rest = rest[os.write(to, rest[: 1 << 12]) if rest else 0 :]
                        over = not rest
                        if not over:
                            continue
                    over = True
                if over:
                    waiting.unregister(handle)
                    os.close(handle)
    return b"".join(heard[of[0]]), b"".join(heard[of[1]])


# -- in that process


def _wait() -> None:
    import importlib
    import pkgutil

    import takeback
    import takeback.frontends.cli.answer

    for module in pkgutil.walk_packages(takeback.__path__, "takeback."):
        if ".testing" not in module.name and not module.name.endswith("__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
    line = socket.socket(fileno=os.dup(0))
    children: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is not line:
                    pid, answer = children.pop(int(key.fd))
                    waiting.unregister(key.fd)
                    os.close(int(key.fd))
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with answer, suppress(BrokenPipeError):
                        answer.send(str(code).encode())
                    continue
                message, handles, _, _ = socket.recv_fds(line, 100, 5)
                if not message:
                    os._exit(0)
                what, answer, *files = handles
                pid = os.fork()
                if not pid:
                    os.close(answer)
                    line.close()
                    _become(what, files)
                for handle in (what, *files):
                    os.close(handle)
                handle = os.pidfd_open(pid)
                children[handle] = pid, socket.socket(fileno=answer)
                waiting.register(handle, selectors.EVENT_READ)


def _become(what: int, files: list[int]) -> None:
    import time
    import traceback

    import takeback
    from takeback.frontends.cli.main import main

    code: object = 1
    try:
        with open(what, "rb") as asked:
            asked.seek(0)
            words, directory, environment, umask = json.load(asked)
        for place, handle in enumerate(files):
            os.dup2(handle, place)
            os.close(handle)
        os.closerange(3, 64)
        os.chdir(directory)
        os.umask(umask)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        sys.argv = [os.path.join(os.path.dirname(takeback.__file__), "__main__.py"), *words]
        sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = os.fdopen(
            2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        main()  # ends the process, but for a page of help
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)
