"""What is asked of the sandbox, over which files, and how it ended."""

from collections.abc import Mapping
from typing import NamedTuple


class Order(NamedTuple):
    """One command."""

    argv: tuple[str, ...]  # a program and its arguments
    cwd: str  # inside
    env: Mapping[str, str]
    stdio: tuple[int, int, int]  # descriptors of the caller that become its 0, 1 and 2
    network: bool = True
    timeout: float = 0  # seconds; 0: none
    memory: int = 0  # bytes; 0: no limit
    processes: int = 0  # 0: no limit
    hidden: tuple[str, ...] = ()  # directories of the world that are covered inside
    ask: bool = False  # cwd and exported variables afterwards are wanted
    # It begins when the clock that stamps changes is past this moment, in nanoseconds: what others change from then on
    # carries a later time.
    after: int = 0
    rescue: bool = False  # if the caller is gone, what was changed until then is left in the layer
    keep_empty: bool = True  # False: if nothing was changed there is no layer


class Ended(NamedTuple):
    """As a shell tells it: 128 + n when ended by signal n, 126 not executable, 127 not found, 124 out of time."""

    exit_code: int
    stopped: str = ""  # "time" | "memory": why we ended it
    leftover: int = 0  # processes that were still there when the command had ended, and were ended with it
    cwd: str = ""  # only with `ask`
    env: Mapping[str, str] = {}  # only with `ask`: the exported variables afterwards
    layer: bool = True  # whether there is one
    gone: bool = False  # only with `ask`: its directory could not be entered, so it ran in an empty one
    untold: str = ""  # only with `ask`: what a shell has not told, and why; a sentence
    too_long: tuple[str, ...] = ()  # only with `ask`: exported variables that no program could be given
    unstarted: str = ""  # why the command was never there


class Stack(NamedTuple):
    """What lies below the layer of a command."""

    root: str = "/"  # the machine's own root, or a directory that holds a root filesystem
    layers: tuple[str, ...] = ()  # newest first


# Who runs commands: root; an ordinary user over the machine's own root, who stays who he is; one over a root
# filesystem of his own, whose root he is.
ROOT, USER, MAPPED = "root", "user", "mapped"
