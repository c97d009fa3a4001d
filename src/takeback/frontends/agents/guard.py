"""Judges a call before it runs: would it delete or change takeback itself, by a path or a process that it names?

It is no wall: a program may do what its words do not say. That is noticed afterwards (`tampering`).
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from takeback.frontends.agents.event import Event, Kind, Tool
from takeback.frontends.agents.shell_programs import Named, ProcessEnd, Touch, Value
from takeback.frontends.agents.shell_reach import reached
from takeback.frontends.agents.shell_text import Unparsed
from takeback.policy.secrets import masked

_MOST_NAMES = 1_000  # in a guarded directory
_SHOWN = 100  # characters of a command
_MAGIC = re.compile(r"[*?\[]")


class Guarded(NamedTuple):
    """A file, or a directory with all that is in it, that a call must leave alone."""

    what: str  # as a sentence names it
    path: str
    is_tree: bool = False

    def forms(self) -> list[list[str]]:
        """The path by its names: as it is written, and where it leads to."""
        return [_names(one) for one in dict.fromkeys((os.path.normpath(self.path), _real(self.path)))]


class GuardedProcess(NamedTuple):
    """The daemon."""

    pid: int
    group: int
    name: str
    words: str  # its command line
    users: tuple[str, ...]  # name and number


def this_process() -> GuardedProcess:
    import pwd

    try:
        user = (pwd.getpwuid(os.geteuid()).pw_name,)
    except KeyError:
        user = ()
    with open("/proc/self/comm", encoding="utf-8", errors="replace") as file:
        name = file.read().strip()
    with open("/proc/self/cmdline", encoding="utf-8", errors="replace") as file:
        words = file.read().replace("\0", " ").strip()
    return GuardedProcess(os.getpid(), os.getpgid(0), name, words, (*user, str(os.geteuid())))


def refusal(
    event: Event, guarded: Sequence[Guarded], process: GuardedProcess | None, environment: Mapping[str, str]
) -> str:
    """Why the call must not run; empty if it may, also where that cannot be known."""
    if event.kind is not Kind.BEFORE_CALL or event.tool not in (Tool.EDIT, Tool.SHELL):
        return ""
    places = [(one, one.forms()) for one in guarded]
    if event.tool is Tool.EDIT:
        for path in event.paths:
            if one := _touched(Touch(Value(path), follows=True), places):
                return _edit(event, path, one)
        return ""
    try:
        for named, shown in reached(event.command, event.cwd or event.project, environment):
            if isinstance(named, Touch):
                found = _touched(named, places)
            else:
                found = process if process and _ends(named, process) else None
            if found:
                return _command(shown, named, found)
    except (Unparsed, RecursionError):
        return ""  # what it does is noticed afterwards
    return ""


def _edit(event: Event, path: str, one: Guarded) -> str:
    does = f"{event.name} of {path} would change {one.what} ({one.path})"
    return f"takeback did not let this call through: {does}.\n{WHY}"


def _command(shown: str, named: Named, found: Guarded | GuardedProcess) -> str:
    shown = masked(shown)
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
    if isinstance(found, GuardedProcess):
        does = f"would end takeback's daemon (process {found.pid})"
    else:
        verb = "delete" if isinstance(named, Touch) and named.deletes else "change"
        does = f"would {verb} {found.what} ({found.path})"
    return f"takeback did not let this command run: `{shown}` {does}.\n{WHY}"


WHY = "The person needs that to take changes back. Leave it alone, or ask the person to do it."


# Paths.


def _touched(touch: Touch, places: Iterable[tuple[Guarded, list[list[str]]]]) -> Guarded | None:
    paths = list(_forms(touch))
    return next(
        (
            one
            for one, forms in places
            if any(_reaches(touch, path, form, one.is_tree) for path in paths for form in forms)
        ),
        None,
    )


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _forms(touch: Touch) -> Iterator[list[str]]:
    """The path by its names, as it is written and where it leads to. Names may be patterns."""
    path, pattern = touch.path.text, touch.path.is_pattern
    whole = touch.path.as_pattern if pattern else path
    written = os.path.normpath(whole)
    yield _names(written)
    fixed, rest = _fixed(whole) if pattern else (path, "")
    if not rest and not touch.follows and os.path.basename(fixed) not in ("", ".", ".."):
        fixed, rest = os.path.split(fixed)
    real = os.path.join(_real(fixed), rest) if rest else _real(fixed)
    if real != written:
        yield _names(real)


def _real(path: str) -> str:
    """The kernel knows it at once; `realpath` asks for each directory on the way, and for what is not there."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return os.path.realpath(path)
    try:
        found = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        found = ""
    finally:
        os.close(handle)
    gone = not found.startswith("/") or found.endswith(" (deleted)")
    return os.path.realpath(path) if gone else found


def _fixed(pattern: str) -> tuple[str, str]:
    """The directory before the first name that is a pattern, and the rest."""
    names = pattern.split("/")
    at = next((at for at, name in enumerate(names) if _MAGIC.search(name)), len(names))
    return "/".join(names[:at]) or "/", "/".join(names[at:])


def _reaches(touch: Touch, path: list[str], place: list[str], is_tree: bool) -> bool:
    pairs = zip(path, place, strict=False)
    if not all(_named(given, name, touch.path.is_pattern) for given, name in pairs):
        return False
    if touch.names and len(path) <= len(place):
        return _found(touch, place[len(path) :], "/" + "/".join(place), is_tree)
    if len(path) > len(place):
        return is_tree
    return touch.deep or len(path) == len(place)


def _named(given: str, name: str, pattern: bool) -> bool:
    if not pattern or not _MAGIC.search(given):
        return given == name
    return fnmatchcase(name, given) and (given.startswith(".") or not name.startswith("."))


def _found(touch: Touch, below: list[str], place: str, is_tree: bool) -> bool:
    """Whether a search finds the place, what leads to it, or what is in it."""
    names = [*enumerate(below, 1), *((len(below) + 1, name) for name in (_inside(place) if is_tree else ()))]
    return any(
        fnmatchcase(name, wanted)
        for depth, name in names
        if not touch.deepest or depth <= touch.deepest
        for wanted in touch.names
    )


def _inside(directory: str) -> list[str]:
    found: list[str] = []
    for _, names, files in os.walk(directory):
        found += (*names, *files)
        if len(found) > _MOST_NAMES:
            break
    return found


# Processes.


def _ends(ending: ProcessEnd, process: GuardedProcess) -> bool:
    if any(pid in (process.pid, -process.group, -1) for pid in ending.pids):
        return True
    if not ending.pattern or (ending.users and not set(ending.users) & set(process.users)):
        return False
    text = process.words if ending.whole else process.name
    try:
        found = re.search(f"^(?:{ending.pattern})$" if ending.exactly else ending.pattern, text)
    except re.error:
        return False
    return found is not None
