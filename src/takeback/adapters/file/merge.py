"""Three-way merge of text by `git merge-file`, away from anybody's repository and configuration."""

from typing import NamedTuple

from takeback.adapters.file.content import PIECE


class Merged(NamedTuple):
    content: bytes | None  # None: it did not merge
    detail: str


def merge(ours: bytes, base: bytes, theirs: bytes) -> Merged:
    """`base` with the changes of both; never with conflict markers."""
    if max(len(ours), len(base), len(theirs)) > PIECE:
        return Merged(None, "it is too large to merge")
    if b"\0" in ours or b"\0" in base or b"\0" in theirs:
        return Merged(None, "it is not text, so it cannot be merged")
    import os
    import shutil
    import subprocess
    import tempfile

    git = shutil.which("git")
    if git is None:
        return Merged(None, "merging needs git, which is not installed")
    with tempfile.TemporaryDirectory(prefix="takeback-merge-") as room:
        for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            with open(os.path.join(room, name), "xb") as file:
                file.write(content)
        clean = {
            "PATH": os.defpath,
            "HOME": room,
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CEILING_DIRECTORIES": os.path.dirname(room),
        }
        done = subprocess.run(
            [git, "merge-file", "-p", "-q", "ours", "base", "theirs"],
            cwd=room,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    if done.returncode == 0:
        return Merged(done.stdout, "merged with what was changed since")
    if 0 < done.returncode < 128:
        return Merged(None, "the same lines were changed since, so it does not merge")
    return Merged(None, "git could not merge it")
