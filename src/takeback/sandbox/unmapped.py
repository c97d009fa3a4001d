"""Files that an ordinary user may write but cannot change in a sandbox: their copy in a layer would need an owner that
the user namespace does not map."""

import os
from collections.abc import Sequence
from itertools import islice

OVERFLOW = "Value too large for defined data type"  # what programs say then
WHOSE = "files and directories of other users or groups"
WHY = f'also those that you may write: "{OVERFLOW}" inside; run it in place'

HARDLINK = "hardlink different from source"
_GIT = (
    "in a sandbox of an ordinary user a hard link to an existing file gets another inode number. Use "
    "`git clone --no-hardlinks` or a file:// address, or run it in place."
)

_MOST = 1_000


def unmapped(directory: str) -> tuple[str, str]:
    """The first such thing in a directory, and whose it is; empty if there is none among the first thousand entries."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        return "", ""
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, _MOST):
                status = entry.stat(follow_symlinks=False)
                if (status.st_uid, status.st_gid) == (uid, gid) or entry.is_symlink():
                    continue
                if os.access(entry.path, os.W_OK):
                    return entry.path, f"belongs to user {status.st_uid}, group {status.st_gid}"
    except OSError:
        pass  # it is only for a hint
    return "", ""


def git_links(words: Sequence[str]) -> str:
    """What to say of a git command that copies a repository of this machine: it links objects and compares inode
    numbers, and a link to a file below the layer has a new one there."""
    line = " ".join(words).split()
    if os.geteuid() == 0 or not any(word.endswith("git") for word in line):
        return ""
    if not {"clone", "submodule"}.intersection(line):
        return ""
    return f'If git said "{HARDLINK}": {_GIT}'


def in_words(printed: bytes) -> str:
    """For who reads what a failed command printed."""
    if os.geteuid() == 0:
        return ""
    if HARDLINK.encode() in printed:
        return f"“{HARDLINK}”: {_GIT}"
    if OVERFLOW.encode() not in printed:
        return ""
    return f"“{OVERFLOW}”: in a sandbox an ordinary user cannot change {WHOSE}; run it in place."
