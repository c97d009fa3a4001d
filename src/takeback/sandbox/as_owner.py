"""Work on layers with the rights that commands had inside: an ordinary user cannot enter a directory that a command
closed to its own owner, nor remove what belongs to one of the other users of his root filesystem. In a user namespace
as theirs he can. Root needs none of this."""

import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from takeback.sandbox.guard import is_privileged
from takeback.sandbox.removal import remove
from takeback.sandbox.squash import squash

_START = "import sys; sys.path.insert(0, {source!r}); from takeback.sandbox.as_owner import main; main(sys.argv[1])"


def squash_as_owner(layers: Sequence[str], into: str, root: str) -> None:
    """As `squash`; `root` is what the layers are over."""
    if is_privileged():
        squash(layers, into)
    else:
        _have_done(
            {"squash": [os.path.abspath(layer) for layer in layers], "into": os.path.abspath(into)}, root
        )


def remove_as_owner(path: str, root: str) -> None:
    try:
        remove(path)
    except PermissionError:
        if is_privileged():
            raise
        _have_done({"remove": os.path.abspath(path)}, root)


def _have_done(work: dict[str, Any], root: str) -> None:
    program = sys.executable or "/usr/bin/python3"
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    asked = json.dumps(work | {"mapped": os.path.realpath(root) != "/"})
    argv = [program, "-I", "-S", "-c", _START.format(source=source), asked]
    read, write = os.pipe2(os.O_CLOEXEC)
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((nothing, write, nothing))]
        pid = os.posix_spawn(program, argv, dict(os.environ), file_actions=actions)
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(nothing)
        os.close(write)
    with open(read, "rb") as answers:
        told = answers.read().decode("utf-8", "surrogateescape")
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        code, _, path = told.partition(" ")
        number = int(code) if code.isdigit() else errno.EIO  # it ended in the middle
        raise OSError(number, os.strerror(number), path or work.get("into") or work.get("remove"))


def main(told: str) -> None:
    from takeback.sandbox.userns import enter_as_oneself, enter_as_root

    work: dict[str, Any] = json.loads(told)
    code = 0
    try:
        enter_as_root() if work["mapped"] else enter_as_oneself()
        if "squash" in work:
            squash(work["squash"], work["into"])
        else:
            remove(work["remove"])
    except OSError as error:
        os.write(1, b"%d %s" % (error.errno or errno.EIO, os.fsencode(error.filename or "")))
        code = 1
    os._exit(code)
