"""What an agent does in a repository, and how that is taken back."""

from collections.abc import Callable

import takeback
from tests.git.repository import Repository

Agent = Callable[[str], takeback.Effect]
PROMPT = "touch file1 file2 file3; git status -s > /dev/null"

WHAT_AGENTS_DO = {
    "commit": "echo agent > file1; git commit -qam agent",
    "rebase": "git rebase -q other",
    "reset": "git reset -q --hard HEAD~1",
    "branch delete": "git branch -q -D other",
    "branch delete, packed": "git branch -q -D packed",
    "branch rename": "git branch -m packed renamed",
    "tag delete": "git tag -d v0",
    "stash drop": "git stash drop -q",
    "stash pop": "git stash pop -q",
    "stash push": "echo s > file2; git stash -q",
    "gc": "git gc -q",
    "gc prune": "git reflog expire --expire=now --all; git gc -q --prune=now",
    "merge": "git merge -q --no-edit other",
    "checkout": "git checkout -q other",
    "checkout detached": "git checkout -q --detach",
    "add": "echo more > file2; git add file2; echo n > n; git add -N n",
    "amend": "git commit -q --amend -m amended",
    "pick": "git cherry-pick other",
    "pack refs": "git pack-refs --all --prune",
}


def undo(run: takeback.Run, effect: takeback.Effect, on_conflict: str = "refuse") -> takeback.UndoResult:
    """Where a box stands hangs on its commit, and goes back with it."""
    return run.undo(effect, cascade="box" in effect.change.summary, on_conflict=on_conflict)


def redo(run: takeback.Run, result: takeback.UndoResult) -> None:
    for each in reversed(result.undo):
        run.undo(each)


def files(repository: Repository) -> dict[str, bytes]:
    """All but the objects, and the index, which every `git status` writes."""
    paths = (path for path in repository.root.rglob("*") if path.is_file() and path.name != "index")
    return {str(path): path.read_bytes() for path in paths if "/.git/objects/" not in str(path)}
