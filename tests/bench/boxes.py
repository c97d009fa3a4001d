"""Checkpoint and rollback of a command in a root filesystem, beside docker commit and remove + run on the same one."""

import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import takeback
from tests.bench.measure import Line, Table, Wishes, seconds_of

WORK = {
    "1 MB": "dd if=/dev/zero of=/big bs=1M count=1 2>/dev/null",
    "50 MB": "dd if=/dev/zero of=/big bs=1M count=50 2>/dev/null",
    "500 MB": "dd if=/dev/zero of=/big bs=1M count=500 2>/dev/null",
    "20,000 files": "mkdir /many; i=0; while [ $i -lt 20000 ]; do echo $i > /many/$i; i=$((i+1)); done",
}
# As an agent makes one between two commands: what one leaves to be done behind is not counted for the next.
_PAUSE = 0.03
QUICK = {"1 MB": WORK["1 MB"], "500 files": WORK["20,000 files"].replace("20000", "500")}


def measure(wishes: Wishes) -> Table:
    root = os.path.join(wishes.directory, "root")
    plant_root(root)
    lines: list[Line] = []
    notes = [
        "ours: what a box adds to the command, less what it adds to one that changes nothing; for docker the cost of "
        "docker exec is not counted either; each after a pause of 30 ms",
        "recorded durably; what the command left is on the disk then if it is small, and written behind if not "
        "(decision 0017)",
    ]
    rounds = 3 if wishes.quick else 7
    with docker_of_our_own(os.path.join(wishes.directory, "docker")) as docker:
        if docker is None:
            notes.append("no dockerd here (tools/set-up bench), so there is nothing to compare with")
        else:
            docker.load(root)
        for name, work in (QUICK if wishes.quick else WORK).items():
            store = os.path.join(wishes.directory, f"store {name}")
            kept, dropped, entry = _ours(store, root, work, rounds)
            commit, back = docker.measured(work, rounds) if docker else (0.0, 0.0)
            against = "docker commit" if docker else ""
            lines.append(Line(f"checkpoint, {name} changed", kept, "s", against, commit, 50.0))
            against = "docker rm + run" if docker else ""
            lines.append(Line(f"rollback, {name} changed", dropped, "s", against, back, 100.0))
            lines.append(Line("  a command that changes nothing", entry, "s"))
    return Table("A box and a container (ratio of speeds; higher is better)", tuple(lines), tuple(notes))


def _ours(store: str, root: str, work: str, rounds: int) -> tuple[float, float, float]:
    """What is added to a command that is kept, to one that fails, and to one that changes nothing."""
    kept: list[float] = []
    dropped: list[float] = []
    entered: list[float] = []
    with takeback.open(store) as tb, tb.run("bench") as run, run.sandbox(base=root) as box:
        for turn in range(rounds + 1):
            good = _added(lambda: box.run(f"/bin/stamp; {work}; /bin/stamp"), 0)
            box.undo(1)
            bad = _added(lambda: box.run(f"/bin/stamp; {work}; /bin/stamp; exit 1"), 1)
            idle = _added(lambda: box.run("/bin/stamp; /bin/stamp"), 0)
            if turn:
                kept.append(good)
                dropped.append(bad)
                entered.append(idle)
    entry = statistics.median(entered)
    least = 0.0001  # below that it is the noise of the machine
    return max(least, statistics.median(kept) - entry), max(least, statistics.median(dropped) - entry), entry


def _added(act: Any, code: int) -> float:
    """Of the whole time, what was not between the two stamps of the command."""
    threading.Event().wait(_PAUSE)
    began = time.monotonic_ns()
    outcome = act()
    took = time.monotonic_ns() - began
    assert outcome.exit_code == code, outcome
    first, last = (int(word) for word in outcome.stdout.split())
    return (took - (last - first)) / 1e9


def plant_root(root: str) -> None:
    """A root filesystem with busybox, and a program that tells the time."""
    for name in ("bin", "proc", "dev", "sys", "tmp", "etc", "run"):
        os.makedirs(os.path.join(root, name))
    busybox = shutil.which("busybox")
    if busybox is None:
        raise SystemExit("busybox is missing: tools/set-up bench")
    shutil.copy(busybox, os.path.join(root, "bin/busybox"))
    for name in ("sh", "dd", "mkdir", "cat", "sleep", "true"):
        os.symlink("busybox", os.path.join(root, "bin", name))
    source = os.path.join(root, "stamp.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(
            "#include <stdio.h>\n#include <time.h>\nint main(void) { struct timespec t; "
            'clock_gettime(CLOCK_MONOTONIC, &t); printf("%lld\\n", t.tv_sec * 1000000000LL + t.tv_nsec); }\n'
        )
    subprocess.run(["gcc", "-static", "-O1", "-o", os.path.join(root, "bin/stamp"), source], check=True)


class _Docker:
    def __init__(self, socket: str) -> None:
        self.host = f"unix://{socket}"

    def call(self, *words: str, source: Any = None) -> str:
        done = subprocess.run(
            ["docker", "-H", self.host, *words], check=True, stdin=source, capture_output=True, text=True
        )
        return done.stdout.strip()

    def load(self, root: str) -> None:
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as packed:
            self.call("import", "-", "bench:first", source=packed.stdout)

    def measured(self, work: str, rounds: int) -> tuple[float, float]:
        commits: list[float] = []
        backs: list[float] = []
        for turn in range(rounds + 1):
            name = self._started()
            self.call("exec", name, "/bin/sh", "-c", work)
            commits.append(seconds_of(lambda name=name: self.call("commit", name, "bench:next")))
            backs.append(seconds_of(lambda name=name: self._replaced(name)))
            self.call("rmi", "-f", "bench:next")
            if not turn:
                commits.clear()
                backs.clear()
        return statistics.median(commits), statistics.median(backs)

    def _started(self) -> str:
        return self.call("run", "-d", "--network", "none", "bench:first", "/bin/sleep", "100000")

    def _replaced(self, name: str) -> None:
        self.call("rm", "-f", name)
        other = self._started()
        self.call("rm", "-f", other)


@contextmanager
def docker_of_our_own(directory: str) -> Iterator[_Docker | None]:
    """A daemon of our own, that touches nothing of the machine's network."""
    if not shutil.which("dockerd") or not shutil.which("docker") or os.geteuid() != 0:
        yield None
        return
    os.mkdir(directory)
    socket = os.path.join(directory, "s")
    words = [
        "--data-root",
        f"{directory}/data",
        "--exec-root",
        f"{directory}/exec",
        "--pidfile",
        f"{directory}/pid",
    ]
    words += ["-H", f"unix://{socket}", "--bridge=none", "--iptables=false", "--ip6tables=false"]
    with open(os.path.join(directory, "log"), "wb") as log:
        # In a mount namespace of its own: it mounts its directory over itself, and would leave that behind.
        apart = ["unshare", "--mount", "--propagation", "private"]
        daemon = subprocess.Popen([*apart, "dockerd", *words], stdout=log, stderr=log)
    try:
        docker = _Docker(socket)
        yield docker if _is_up(docker, daemon) else None
    finally:
        daemon.terminate()
        daemon.wait(120)


def _is_up(docker: _Docker, daemon: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until and daemon.poll() is None:
        try:
            docker.call("version")
            return True
        except subprocess.CalledProcessError:
            try:
                daemon.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
    return False
