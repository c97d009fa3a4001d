"""What is asked of a command: checked before anything starts."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from takeback.errors import Misuse

ON_FAILURE = ("undo", "keep", "hold")


class Request(NamedTuple):
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    network: bool = True
    timeout: float = 0  # seconds; 0: none
    memory: int = 0  # bytes; 0: no limit
    processes: int = 0
    hold: bool = False
    on_failure: str = "undo"
    dry_run: bool = False


def words_of(command: "Sequence[str] | str") -> tuple[str, ...]:
    """A text is a line for the shell."""
    if not isinstance(command, (str, list, tuple)):
        given: tuple[str, ...] = ()
    else:
        given = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
    if not given or not all(isinstance(word, str) for word in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(
            "A command is a text for the shell, or a list of words.", hint='For example ["make", "-j4"].'
        )
    if not given[0] or (given[-1] == "" and isinstance(command, str)):
        raise Misuse("The command is empty.", hint="Name a program: `takeback run -- make -j4`.")
    if any("\0" in word for word in given):
        raise Misuse("A command cannot hold a zero byte.", hint="Give such content on its standard input.")
    return given


def directory_of(cwd: "str | os.PathLike[str] | None") -> str:
    try:
        path: str = os.path.abspath(os.fspath(cwd) if cwd is not None else os.getcwd())
    except FileNotFoundError:
        raise Misuse(
            "The current directory does not exist any more.", hint="Go to one that does: cd /"
        ) from None
    if "\0" in path or not os.path.isdir(path):
        raise Misuse(f"{path!r} is no directory to run a command in.", hint="Give one that exists.")
    return path


def refuse_unfit(request: Request) -> Request:
    if not math.isfinite(request.timeout) or request.timeout < 0:
        raise Misuse(
            f"A time limit of {request.timeout} s makes no sense.",
            hint="Give seconds greater than 0, or none.",
        )
    for name, value in (("memory", request.memory), ("processes", request.processes)):
        if value < 0:
            raise Misuse(
                f"A limit of {value} for {name} makes no sense.",
                hint="Give a number greater than 0, or none.",
            )
    if request.on_failure not in ON_FAILURE:
        raise Misuse(
            f"After a failure one can do one of {', '.join(ON_FAILURE)}, not {request.on_failure!r}.",
            hint="`undo` drops what the command changed.",
        )
    if any("\0" in text or "=" in name for name, text in request.env.items()):
        raise Misuse(
            "The environment holds a name or value that no process can have.", hint="Look for zero bytes."
        )
    return request
