"""One server as a child of the tests: not root, reachable by us alone, dead at the latest when we are."""

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "secret-of-the-tests"  # must never be found in a store, a message or a log
LIMIT = 180.0  # seconds; everything that is waited for takes far less, on a machine that is not busy
# Below the range from which the kernel gives ports to clients: what a server had is still free when it starts again.
_PORTS = range(20_000, 32_000)
_NOBODY = 65534


def owned(path: Path) -> Path:
    """A new directory that belongs to whom the servers run as."""
    path.mkdir(mode=0o755, parents=True)
    if os.geteuid() == 0:
        os.chown(path, _NOBODY, _NOBODY)
    return path


def as_server(command: Sequence[str], dies_by: str = "KILL") -> list[str]:
    """The command without the rights of root, which most servers refuse; ended when our thread ends, however."""
    drop = ["--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *drop, "--pdeathsig", dies_by, *command]


def surroundings(home: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run(command: Sequence[str], home: Path, told: str = "", **options: object) -> None:
    """To its end, as the user of the servers; what it said is told if it failed."""
    done = subprocess.run(
        as_server(command), env=surroundings(home), cwd=home, input=told,
        capture_output=True, text=True, check=False, timeout=LIMIT, **options,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[0]}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def free_port() -> int:
    for port in random.Random(os.getpid() ^ time.monotonic_ns()).sample(_PORTS, 200):
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port in 200 trials")


def wait_until(true: Callable[[], bool], what: str, most: float = LIMIT) -> None:
    """Looked at again and again: nobody tells when a process of another has come so far."""
    end, pause = time.monotonic() + most, threading.Event()
    while not true():
        assert time.monotonic() < end, f"in vain: {what}"
        pause.wait(0.01)


@contextmanager
def once(place: Path, name: str) -> Iterator[Path | None]:
    """For one of several processes a place to make something in, which then has this name for all of them."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / name).exists():
            yield None
            return
        shutil.rmtree(place / f"{name}.making", ignore_errors=True)
        making = owned(place / f"{name}.making")
        yield making
        making.rename(place / name)


def copy(template: Path, to: Path) -> None:
    subprocess.run(["cp", "--archive", "--reflink=auto", template, to], check=True, timeout=LIMIT)


def alive(pid: int) -> bool:
    """A zombie that nobody has buried is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            if (
                entry.isdigit()
                and int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1]) == pid
            ):
                found.append(int(entry))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class Process:
    """The main process of a server, and those that it started."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._main: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._main is not None, "the server does not run"
        return self._main.pid

    @property
    def runs(self) -> bool:
        return self._main is not None and self._main.poll() is None

    def start(
        self, command: Sequence[str], ready: Callable[[], bool], dies_by: str = "KILL",
        more: Mapping[str, str] | None = None,
    ) -> bool:  # fmt: skip
        """False if it ended instead of getting ready: what it said is in its log."""
        assert not self.runs, "it runs already"
        home = self.log.parent
        with open(self.log, "ab") as log:
            self._main = subprocess.Popen(
                as_server(command, dies_by), env=surroundings(home) | dict(more or {}), cwd=home,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: not self.runs or ready(), f"{command[0]} is ready; see {self.log}")
        return self.runs

    def end(self, number: signal.Signals) -> None:
        """By a signal that it obeys; else by force."""
        if self._main is None:
            return
        if self.runs:
            self._main.send_signal(number)
            try:
                self._main.wait(LIMIT / 3)
            except subprocess.TimeoutExpired:
                self.kill()
        self._main.wait()

    def kill(self) -> None:
        """Everything at one moment, as a machine that loses its power does it to processes."""
        if self._main is None:
            return
        family = [self.pid]
        if self.runs:
            os.kill(self.pid, signal.SIGSTOP)  # it starts no more of them
            family += children(self.pid)
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._main.wait()
        wait_until(lambda: not any(alive(pid) for pid in family[1:]), "the killed processes are gone")

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
