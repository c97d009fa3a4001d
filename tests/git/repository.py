"""A repository that an agent and a user work in, and what git itself says of it."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_VARIABLES = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}


def variables() -> dict[str, str]:
    return {**os.environ, **_VARIABLES}


class Facts(NamedTuple):
    """What git tells of a repository, without how it keeps it."""

    refs: dict[str, str]
    head: str
    staged: dict[str, str]
    reflog: tuple[str, ...]
    stashes: tuple[str, ...]


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root

    def sh(self, line: str, check: bool = True) -> str:
        done = subprocess.run(
            ["/bin/sh", "-ec", line],
            cwd=self.root,
            env=variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert not check or done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def git(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.root,
            env=variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert not check or done.returncode == 0, f"git {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def facts(self) -> Facts:
        refs = dict(
            line.split(" ", 1)
            for line in self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        )
        head = self.git("rev-parse", "--symbolic-full-name", "HEAD").strip()
        if head == "HEAD":
            head = self.git("rev-parse", "HEAD").strip()
        listed = (
            line.split("\t", 1) for line in self.git("ls-files", "-s", "-v", "--full-name").splitlines()
        )
        staged = {f"{entry.split()[-1]} {name}": entry for entry, name in listed}
        log = self.root / ".git/logs/HEAD"
        stash = self.root / ".git/logs/refs/stash"
        return Facts(
            refs,
            head,
            staged,
            tuple(log.read_text().splitlines()) if log.exists() else (),
            tuple(stash.read_text().splitlines()) if stash.exists() else (),
        )

    def commits(self) -> set[str]:
        """Every commit that a branch, a tag, HEAD or a stash leads to."""
        return set(self.git("rev-list", "--all", "HEAD", check=False).split())

    def has(self, commit: str) -> bool:
        return self.git("cat-file", "-t", commit, check=False).strip() == "commit"

    def assert_sound(self, commits: Iterable[str] = ()) -> None:
        """fsck is clean, these commits can be read whole, and no lock is left."""
        done = subprocess.run(
            ["git", "fsck", "--full", "--no-dangling"],
            cwd=self.root,
            env=variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "error" not in done.stderr and "missing" not in done.stdout, done.stdout + done.stderr
        for commit in commits:
            self.git("rev-list", "--objects", "--quiet", commit)
        left = [str(path) for path in (self.root / ".git").rglob("*.lock")]
        left += [str(path) for path in self.root.rglob(".takeback-*")]
        assert not left, left


def fresh(root: Path, *options: str) -> Repository:
    """A few commits on two branches, a tag, a packed ref."""
    root.mkdir(parents=True)
    made = Repository(root)
    made.git("init", "-q", "-b", "main", *options)
    made.git("config", "gc.auto", "0")
    made.sh(
        "for n in 1 2 3; do echo $n > file$n; done; mkdir d; echo deep > d/deep; git add .; git commit -qm first;"
        "git branch packed; git tag v0; git pack-refs --all; echo 2 >> file1; git commit -qam second;"
        "git branch other; git switch -q other; echo o > o; git add o; git commit -qm other; git switch -q main"
    )
    return made
