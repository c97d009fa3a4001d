"""The real commands under strace: killed or failed at one system call."""

import atexit
import compileall
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import takeback

# Whatever changes a file or a name. `openat` counts only where it makes or may write something.
CALLS = (
    "openat", "openat2", "write", "pwrite64", "fsync", "fdatasync", "renameat", "renameat2", "rename", "unlinkat",
    "unlink", "mkdirat", "mkdir", "linkat", "symlinkat", "mknodat", "ftruncate", "fchmod", "fchmodat", "chmod",
    "fchown", "fchownat", "utimensat", "fsetxattr", "setxattr", "copy_file_range", "sendfile",
)  # fmt: skip
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")
_MAKES = re.compile(r"O_(CREAT|TMPFILE|WRONLY|RDWR|TRUNC)")
KILLED = 137


class Point(NamedTuple):
    call: str
    number: int  # strace counts each call of the main thread by itself
    text: str

    def __str__(self) -> str:
        return f"{self.call} {self.number} ({self.text[:90]})"


class Ran(NamedTuple):
    status: int
    out: str
    error: str
    seconds: float  # by the clock, which runs on while others have the processor
    busy: float  # of the processor


def command(*words: str) -> list[str]:
    """The interpreter itself: a shim would be killed in its place, and nothing would be tested."""
    with open(os.path.realpath(sys.executable), "rb") as file:
        assert file.read(4) == b"\x7fELF", f"{sys.executable} is not a program"
    return [sys.executable, "-m", "takeback", *words]


@cache
def snapshot() -> str:
    """The package as it is now, compiled: how many files are opened must not change between two passes."""
    place = tempfile.mkdtemp(prefix="takeback-snapshot-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(takeback.__file__).parent, Path(place, "takeback"), ignore=without)
    assert compileall.compile_dir(place, quiet=1)
    return place


def environment(store: Path) -> dict[str, str]:
    names = ("PATH", "HOME", "XDG_STATE_HOME", "LC_ALL", "TZ", "TAKEBACK_TEST_MARK")
    kept = {name: value for name, value in os.environ.items() if name in names}
    # Nothing that changes the number of calls from one time to the next.
    fixed = {
        "PYTHONPATH": snapshot(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "TAKEBACK_STORE": str(store),
    }
    return kept | fixed


def run(words: list[str], store: Path, text: str = "", cwd: Path | None = None) -> Ran:
    return _run(command(*words), environment(store), text, cwd)


def points(
    words: list[str], store: Path, text: str, into: Path, cwd: Path | None = None, *, children: bool = True
) -> list[Point]:
    """Every call of the main thread that matters, in order; the command is carried out for it. Without `children` the
    processes it starts are left alone."""
    log = into / "trace"
    # The question mark: on aarch64 there is no `rename`.
    wanted = "trace=" + ",".join(f"?{call}" for call in CALLS)
    follow = ["-f"] if children else []
    trace = ["strace", *follow, "-qq", "-o", str(log), "-e", wanted]
    done = _run([*trace, *command(*words)], environment(store), text, cwd)
    assert done.status == 0, done
    found: list[Point] = []
    counts: Counter[str] = Counter()
    main = ""
    for line in log.read_text(errors="replace").splitlines():
        match = _LINE.match(line if children else f"0 {line}")
        if not match:
            continue
        thread, call, rest = match.groups()
        main = main or thread
        if thread != main:
            continue
        counts[call] += 1
        if call not in ("openat", "open") or _MAKES.search(rest):
            found.append(Point(call, counts[call], rest))
    assert found, "strace saw nothing"
    return found


def killed_at(
    point: Point,
    words: list[str],
    store: Path,
    text: str = "",
    cwd: Path | None = None,
    *,
    children: bool = True,
) -> Ran:
    what = f"{point.call}:signal=KILL:when={point.number}"
    return injected(what, point.call, words, store, text, cwd, children=children)


def injected(
    what: str,
    call: str,
    words: list[str],
    store: Path,
    text: str = "",
    cwd: Path | None = None,
    *,
    children: bool = True,
) -> Ran:
    follow = ["-f"] if children else []
    # Not --seccomp-bpf: with it signals are silently not injected.
    trace = ["strace", *follow, "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={what}"]
    return _run([*trace, *command(*words)], environment(store), text, cwd)


def _spent() -> float:
    """Seconds of the processor that the programs we waited for have had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(
    words: list[str], variables: dict[str, str] | None = None, text: str = "", cwd: Path | None = None
) -> Ran:
    began, spent = time.monotonic(), _spent()
    done = subprocess.run(
        words,
        env=variables,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        timeout=120,
        check=False,
    )
    # strace ends itself with the signal that ended what it traced.
    status = 128 - done.returncode if done.returncode < 0 else done.returncode
    return Ran(status, done.stdout, done.stderr, time.monotonic() - began, _spent() - spent)
