"""Die, or fail, at the n-th touch of the world: a process of its own that ends exactly as SIGKILL ends it."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import Adapter
from takeback.api import opened_of
from takeback.api.upkeep import needs_recovery, recover_dead, settle_first

if TYPE_CHECKING:
    from takeback.api import Takeback


# Nothing in production code knows of this. The storage protocols, the adapters and the sessions of databases are
# wrapped, and so are the system calls that Python makes. The process kills itself at the n-th of them. An exception
# would not do: `except` and `finally` would run, which they do not when a process is killed.


# What counts as a boundary: each call that changes something, and `verify`, whose answer decides what is recorded.
JOURNAL = ("append",)
LEASES = ("acquire", "claim", "renew", "release")
BLOBS = ("put", "sync", "sweep")
ADAPTER = ("stage", "capture", "apply", "verify", "undo", "tidy", "enter", "leave", "found", "recall")
SESSION = ("begin", "execute", "commit", "rollback", "review", "hold", "keep", "drop")
SYSTEM_CALLS = (
    "open", "write", "pwrite", "fsync", "fdatasync", "rename", "replace", "link", "symlink", "unlink", "remove",
    "rmdir", "mkdir", "mkfifo", "mknod", "chmod", "fchmod", "chown", "fchown", "utime", "setxattr", "removexattr",
    "truncate", "ftruncate", "copy_file_range", "sendfile",
)  # fmt: skip


class Boundaries:
    """Counts what is passed; something happens at the n-th."""

    def __init__(
        self, at: int = 0, happens: Callable[[], None] | None = None, *, persistent: bool = False
    ) -> None:
        self.passed: list[str] = []
        self._at = at
        self._happens = happens or die
        self._persistent = persistent

    def pass_one(self, name: str) -> None:
        self.passed.append(name)
        if self._at and (len(self.passed) == self._at or (self._persistent and len(self.passed) > self._at)):
            self._happens()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Wrapped:
    """Any object; some of its methods are boundaries, before the call and after it."""

    def __init__(self, inner: Any, names: tuple[str, ...], boundaries: Boundaries, label: str) -> None:
        self._inner = inner
        self._names = names
        self._boundaries = boundaries
        self._label = label

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What it can do is asked with `isinstance`."""
        inner: Any = self._inner
        return inner.__class__

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "connect" and self._names is ADAPTER:
            return partial(self._connected, value)
        if name not in self._names:
            return value

        def call(*args: Any, **options: Any) -> Any:
            self._boundaries.pass_one(f"before {self._label}.{name}")
            result = value(*args, **options)
            self._boundaries.pass_one(f"after {self._label}.{name}")
            return result

        return call

    def _connected(self, connect: Callable[[Any], Any], database: Any) -> "Wrapped":
        return Wrapped(connect(database), SESSION, self._boundaries, f"{self._label} session")


class WrappedAdapters(Mapping[str, Adapter]):
    def __init__(self, inner: Mapping[str, Adapter], boundaries: Boundaries) -> None:
        self._inner = inner
        self._boundaries = boundaries

    def __getitem__(self, name: str) -> Any:
        return Wrapped(self._inner[name], ADAPTER, self._boundaries, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def close(self) -> None:
        if close := getattr(self._inner, "close", None):
            close()


def wrap(tb: "Takeback", boundaries: Boundaries) -> "Takeback":
    """The same store, every protocol of it wrapped."""
    store, parts = tb.store, opened_of(tb).parts
    journal: Any = Wrapped(store.journal, JOURNAL, boundaries, "journal")
    leases: Any = Wrapped(store.leases, LEASES, boundaries, "leases")
    blobs: Any = Wrapped(store.blobs, BLOBS, boundaries, "blobs")
    store.journal, store.leases, store._blobs = journal, leases, blobs  # pyright: ignore[reportPrivateUsage]
    adapters = WrappedAdapters(parts.adapters, boundaries)
    wrapped = parts._replace(journal=journal, leases=leases, blobs=blobs, adapters=adapters)
    opened_of(tb).parts = wrapped
    return tb


def open_settled(path: str) -> "Takeback":
    """The store, with everything settled that a crash left, functions called where that needs them."""
    import takeback

    tb = takeback.open(path)
    settle_first(opened_of(tb), calls=True)
    return tb


def open_wrapped(path: str, boundaries: Boundaries, *, recover: bool = True) -> "Takeback":
    """The store, with everything settled that a crash left unless `recover` is False."""
    import takeback

    tb = wrap(takeback.open(path, recover=False), boundaries)
    if recover and needs_recovery(opened_of(tb)):
        opened_of(tb).recovered = recover_dead(opened_of(tb), stuck_too=False)
    return tb


def wrap_system_calls(boundaries: Boundaries, *, reads_too: bool = False) -> None:
    """In this process, for good: call it only in one that is thrown away. Calls made by C code are not seen."""
    from takeback.adapters.file.kernel import Libc

    for name in SYSTEM_CALLS:
        setattr(os, name, _counted(getattr(os, name), name, boundaries, reads_too))
    for name in ("rename", "syncfs"):
        setattr(Libc, name, _counted(getattr(Libc, name), f"libc.{name}", boundaries, reads_too))


def _counted(inner: Any, name: str, boundaries: Boundaries, reads_too: bool) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        if name != "open" or reads_too or _makes_something(args, options):
            boundaries.pass_one(name)
        return inner(*args, **options)

    return call


def _makes_something(args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    flags = args[1] if len(args) > 1 else options.get("flags", 0)
    return bool(flags & (os.O_CREAT | os.O_TMPFILE & ~os.O_DIRECTORY | os.O_TRUNC))


class End(NamedTuple):
    """How a process ended."""

    killed: bool
    passed: tuple[str, ...]  # the boundaries it passed; known only if it was not killed
    error: str = ""  # the traceback, if it ended by an exception
    signal: int = 0  # what ended it, if that was a signal


def in_a_process(action: Callable[[Boundaries], None], boundaries: Boundaries) -> End:
    """Do it in a child of this process and tell how that ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _be_the_child(action, boundaries, writer)
    os.close(writer)
    with open(reader, "rb") as answers:
        answer = answers.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if not ended_by and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"The child ended with {os.waitstatus_to_exitcode(status)}:\n{answer}")
    error, _, passed = answer.partition("\0")
    return End(ended_by == signal.SIGKILL, tuple(passed.split("\n")) if passed else (), error, ended_by)


def _be_the_child(action: Callable[[Boundaries], None], boundaries: Boundaries, writer: int) -> None:
    error, status = "", 1
    try:
        action(boundaries)
        status = 0
    except Exception:  # noqa: BLE001  # whatever it is, the parent decides what it means
        error, status = traceback.format_exc(), 0
    finally:
        told = f"{error}\0" + "\n".join(boundaries.passed)
        with open(writer, "wb", closefd=False) as answers:
            answers.write(told.encode("utf-8", "replace"))
        os._exit(status)


def killed_everywhere(
    prepare: Callable[[], None],
    action: Callable[[Boundaries], None],
    check: Callable[[int], None],
    *,
    first: int = 1,
    step: int = 1,
) -> int:
    """Prepare, do it and die at the n-th boundary, check; for n = 1, 2, … until a pass is clean. How many deaths."""
    deaths, at = 0, first
    while True:
        prepare()
        dead = _killed_at_boundary(at, action)
        check(at if dead else 0)
        if not dead:
            return deaths
        deaths += 1
        at += step


def _killed_at_boundary(at: int, action: Callable[[Boundaries], None]) -> bool:
    end = in_a_process(action, Boundaries(at))
    if end.error:
        raise RuntimeError(f"It was to die at boundary {at} and failed instead:\n{end.error}")
    return end.killed


def killed_again_and_again(action: Callable[[Boundaries], None], limit: int = 1000) -> int:
    """Do the same thing over and over, dying each time one boundary later, until it gets through. How many deaths."""
    for at in range(1, limit):
        if not _killed_at_boundary(at, action):
            return at - 1
    raise RuntimeError(f"Not through after {limit} deaths.")


_COUNTED = ("c_call", "call")
_OUTWARD = ("posix", "_io", "io", "_sqlite3", "_socket", "_posixsubprocess")
ENOUGH = 100_000  # more points than any sweep has: a sweep that does not end is broken


def killed_at(point: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that dies by SIGKILL at its n-th call; False if it ended before that.

    Calls of the system and of Python functions count, so there is a point before and after every system call, also
    of those made through ctypes.
    """
    child = os.fork()
    if child == 0:
        try:
            _die_at(point)
            work()
        finally:
            sys.setprofile(None)
            os._exit(0)  # also after an exception: what counts is what the world looks like
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _die_at(point: int) -> None:
    left = point

    def step(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if (
            event == "c_call" and getattr(argument, "__module__", None) not in _OUTWARD
        ) or event not in _COUNTED:
            return
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(step)
