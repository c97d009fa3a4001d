"""Random histories: an agent and a user take turns in one repository, then effects of the agent are taken back."""

import random
from pathlib import Path
from typing import NamedTuple

import takeback
from tests.git.repository import Facts, fresh, variables

# What agents do. $N is another number each time.
AGENT = (
    "echo $N > file1; git commit -qam agent$N",
    "echo $N > new$N; git add new$N; git commit -qm agent$N",
    "echo $N >> file2; git add file2",
    "git rm -q --cached file3",
    "git add -N . ; git update-index --skip-worktree file2",
    "git commit -q --allow-empty -m empty$N; git reset -q --hard HEAD~1",
    "git reset -q --hard HEAD~1",
    "git switch -q -c agent$N; echo $N > a$N; git add a$N; git commit -qm on-branch; git switch -q -",
    "git branch -D packed",
    "git branch -D other",
    "git branch b$N",
    "git tag t$N",
    "git tag -a -m annotated at$N",
    "git tag -d v0",
    "git checkout -q --detach",
    "git switch -q other",
    "git merge -q --no-edit other",
    "git rebase -q other",
    "echo $N > file2; git stash -q",
    "git stash drop -q",
    "git stash pop -q",
    "git gc -q",
    "git gc -q --prune=now",
    "git pack-refs --all --prune",
    "git repack -Adq; git prune-packed",
    "git reflog expire --expire=now --all",
    "git update-index --index-version 4",
    "git update-ref -d refs/heads/b1; git update-ref refs/heads/deep/er/$N HEAD",
    "git branch -m packed renamed$N",
    "git worktree add -q ../wt$N -b wt$N; cd ../wt$N; echo w > w; git add w; git commit -qm in-worktree",
    "git commit -q --amend -m amended$N",
)
# What users do in between. The first is what every prompt does.
USER = (
    "touch file1 file2 file3; git status -s",
    "touch file1 file2 file3; git status -s",
    "echo u$N > u$N; git add u$N; git commit -qm user$N",
    "git switch -q -c user$N; echo u$N > u$N; git add u$N; git commit -qm user$N",
    "git switch -q -c uback$N; echo u$N > u$N; git add u$N; git commit -qm user$N; git switch -q -",
    "git tag u$N",
    "git pack-refs --all --prune",
    "git gc -q",
    "git gc -q --prune=now",
    "echo u > u$N; git add u$N",
    "echo u$N > file3; git stash -q",
    "git repack -Adq",
    "git commit -q --allow-empty -m user$N",
    "git branch -D b1; git branch deep$N",
    "git fetch -q . main; git update-index --index-version 2",
    "git worktree prune; git commit-graph write --reachable",
    "test -d ../wt1 && cd ../wt1 && git commit -q --allow-empty -m in-worktree",
)
WAYS = ("sandbox", "watch", "box")


class Done(NamedTuple):
    effect: takeback.Effect
    before: Facts
    after: Facts


class History:
    """One repository, one store, a source of chance."""

    def __init__(self, root: Path, seed: int, *options: str, ways: tuple[str, ...] = WAYS) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.ways = ways
        self.repository = fresh(root / "main", *options)
        self.users: set[str] = set(self.repository.commits())
        self.lines: list[str] = []
        self.done: list[Done] = []
        self.told: list[str] = []
        self.counts = {"undone": 0, "refused": 0, "redone": 0}

    def play(self, run: takeback.Run, steps: int) -> None:
        for number in range(1, steps + 1):
            what = self.chance.random()
            if what < 0.4 or number == 1:
                self.by_agent(run, self.chance.choice(AGENT).replace("$N", str(number)))
            elif what < 0.75 or not self.done:
                self.by_user(self.chance.choice(USER).replace("$N", str(number)))
            else:
                self.take_back(run)
            self.repository.assert_sound(self.users)

    def by_agent(self, run: takeback.Run, line: str) -> None:
        before = self.repository.facts()
        way = self.chance.choice(self.ways)
        self.told.append(f"agent ({way}): {line}")
        effect = self._made(run, way, line)
        self._forget_pruned(line)
        if effect is not None:
            self.done.append(Done(effect, before, self.repository.facts()))

    def _made(self, run: takeback.Run, way: str, line: str) -> takeback.Effect | None:
        argv, cwd = ["/bin/sh", "-c", f"{line}; exit 0"], str(self.repository.root)
        if way == "sandbox":
            outcome = run.command(argv, cwd=cwd, env=variables(), timeout=120)
            assert not outcome.conflicts, outcome.conflicts
            return outcome.effect
        if way == "box":
            with run.sandbox(cwd=cwd, env=variables()) as box:
                box.run(argv)
                return box.commit().effect
        with run.watch(str(self.root), any_root=True) as watch:
            self.repository.sh(line, check=False)
        return watch.effect

    def by_user(self, line: str) -> None:
        self.told.append(f"user: {line}")
        before, commits = self.repository.facts().reflog, self.repository.commits()
        self.repository.sh(line, check=False)
        after = self.repository.facts().reflog
        if after[: len(before)] == before:
            self.lines += after[len(before) :]
        else:
            self.lines = [one for one in self.lines if one in after]  # expired
        self.users |= self.repository.commits() - commits
        self._forget_pruned(line)

    def _forget_pruned(self, line: str) -> None:
        """What nothing led to any more, and git itself removed."""
        if "--prune=now" in line or "repack" in line:
            self.users = {one for one in self.users if self.repository.has(one)}

    def take_back(self, run: takeback.Run) -> None:
        done = self.chance.choice(self.done)
        cascade = self.chance.random() < 0.5
        now = self.repository.facts()
        self.told.append(f"undo {done.effect.change.summary}{' --cascade' if cascade else ''}")
        try:
            result = run.undo(done.effect, cascade=cascade)
        except (takeback.Conflict, takeback.Blocked, takeback.Refused) as error:
            self.counts["refused"] += 1
            self.told.append(f"  refused: {error}")
            assert self.repository.facts() == now, "\n".join(self.told)
            return
        self.counts["undone"] += 1
        back = {one.id for one in result.effects}
        several = [one for one in self.done if one.effect.id in back]
        self.done = [one for one in self.done if one.effect.id not in back]
        there = self.repository.facts()
        if len(several) == 1:
            self._compare(several[0], now, there)
        elif not several:
            return
        lost = [one for one in self.lines if one in now.reflog and one not in there.reflog]
        assert not lost, self.story(f"lines of the user are gone: {lost}")
        if self.chance.random() < 0.4 and result.undo:
            self._redo(run, result, several, now)

    def _redo(self, run: takeback.Run, result: takeback.UndoResult, several: list[Done], now: Facts) -> None:
        self.told.append("redo")
        self.repository.sh("touch file1; git status -s", check=False)
        for undo in reversed(result.undo):
            run.undo(undo)
        self.counts["redone"] += 1
        there = self.repository.facts()
        assert (there.refs, there.head, there.staged) == (now.refs, now.head, now.staged), self.story(
            f"{there}\nis not\n{now}"
        )
        self.done += several

    def _compare(self, done: Done, now: Facts, there: Facts) -> None:
        """Each ref and each entry of the index: as before the effect, or as it was if the effect did not change it."""
        for what in ("refs", "staged"):
            wanted = dict(getattr(now, what))
            before, after = getattr(done.before, what), getattr(done.after, what)
            for name in before.keys() | after.keys():
                if before.get(name) == after.get(name):
                    continue
                if name == "refs/stash" and wanted.get(name) != after.get(name):
                    continue
                assert wanted.get(name) in (after.get(name), before.get(name)), self.story(
                    f"{name} moved since"
                )
                if before.get(name) is None:
                    wanted.pop(name, None)
                else:
                    wanted[name] = before[name]
            assert getattr(there, what) == wanted, self.story(
                f"{what}: {getattr(there, what)}\nis not\n{wanted}"
            )
        added = [one for one in done.after.reflog if one not in done.before.reflog and one not in self.lines]
        left = [one for one in added if one in there.reflog]
        assert not left, self.story(f"lines of the agent stayed: {left}")

    def story(self, trouble: str) -> str:
        return "\n".join((*self.told, trouble))
