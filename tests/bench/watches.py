"""A tree that someone else changes, watched in place: beside a shadow git repository."""

import os
import random
import statistics
import subprocess
from collections.abc import Callable
from typing import Any

import takeback
from tests.bench.measure import Line, Table, Wishes, bytes_below, seconds_of

EDITS = 10


def measure(wishes: Wishes) -> Table:
    files, size = (2000, 2000) if wishes.quick else (50_000, 20_000)
    tree = os.path.join(wishes.directory, "tree")
    _plant(tree, files, size)
    git = _Shadow(tree, os.path.join(wishes.directory, "shadow.git"))
    os.sync()
    first_git = seconds_of(git.commit)
    store = os.path.join(wishes.directory, "store")
    edit = _Edits(tree, files)
    with takeback.open(store) as tb, tb.run("watch") as run:
        os.sync()
        first_ours = seconds_of(lambda: _watched(run, tree, lambda: None))
        tb.store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
        kept = bytes_below(store)
        fed = _rounds(wishes.rounds, lambda: _ours(tb, run, tree, edit))
    # A run of its own each time: nothing told it meanwhile, so it has to look at every file.
    looked: list[float] = []
    with takeback.open(store) as tb:
        for _ in range(wishes.rounds):
            with tb.run("again") as run:
                looked.append(seconds_of(lambda run=run: _watched(run, tree, edit)))
            git.commit()
    theirs = _rounds(wishes.rounds, lambda: git.taken(edit))
    lines = (
        Line(f"first look at {files:,} files", first_ours, "s", "git add + commit", first_git, 0.5, "cost"),
        Line("  store", kept, "B", "shadow repository", git.first_size, 0.5, "cost"),
        Line(
            f"checkpoint of {EDITS} edits, no feed",
            statistics.median(looked),
            "s",
            "git add + commit",
            theirs[0],
            1.2,
            "cost",
        ),
        Line("checkpoint, with the feed", fed[0], "s", "git add + commit", theirs[0], 50.0),
        Line(f"undo of {EDITS} edits", fed[1], "s", "git reset + clean", theirs[1], 0.1, "cost"),
    )
    notes = (
        "a checkpoint is the whole watch: begin, ten edits, end, durable; git is durable as well (core.fsync=all)",
        "everything is captured, ignored files too; git has core.fsync=all and gc off",
    )
    return Table("A tree watched in place (ratios)", lines, notes)


def _rounds(rounds: int, act: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """The medians of both; the first round does not count."""
    taken = [act() for _ in range(rounds + 1)][1:]
    return statistics.median(one for one, _ in taken), statistics.median(other for _, other in taken)


def _watched(run: Any, tree: str, act: Callable[[], None]) -> Any:
    with run.watch(tree, any_root=True) as watch:
        act()
    return watch.effect


def _ours(tb: Any, run: Any, tree: str, edit: Callable[[], None]) -> tuple[float, float]:
    effects: list[Any] = []
    checkpoint = seconds_of(lambda: effects.append(_watched(run, tree, edit)))
    assert effects[0], "nothing was seen"
    return checkpoint, seconds_of(lambda: run.undo(effects[0]))


class _Edits:
    """Ten small files, others each time."""

    def __init__(self, tree: str, files: int) -> None:
        self._tree, self._files = tree, files
        self._chance = random.Random(5)

    def __call__(self) -> None:
        for number in self._chance.sample(range(self._files), EDITS):
            with open(_path(self._tree, number), "ab") as file:
                file.write(b"edited %d\n" % self._chance.getrandbits(60))


class _Shadow:
    def __init__(self, tree: str, repository: str) -> None:
        self._repository = repository
        self._environment = os.environ | {
            "GIT_DIR": repository,
            "GIT_WORK_TREE": tree,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.first_size = 0
        self._git("init", "--quiet")

    def commit(self) -> None:
        self._git("add", "--all", "--force")
        self._git("commit", "--quiet", "--no-verify", "--allow-empty", "--message", "checkpoint")
        self.first_size = self.first_size or bytes_below(self._repository)

    def taken(self, edit: Callable[[], None]) -> tuple[float, float]:
        edit()
        checkpoint = seconds_of(self.commit)
        return checkpoint, seconds_of(self._back)

    def _back(self) -> None:
        self._git("reset", "--quiet", "--hard", "HEAD~1")
        self._git("clean", "--quiet", "-fdx")

    def _git(self, *words: str) -> None:
        settings = ("core.fsync=all", "gc.auto=0", "user.name=bench", "user.email=bench@localhost")
        options = [word for setting in settings for word in ("-c", setting)]
        subprocess.run(
            ["git", *options, *words], check=True, env=self._environment, stdout=subprocess.DEVNULL
        )


def _path(tree: str, number: int) -> str:
    return os.path.join(tree, f"{number % 250:03}", f"{number}.txt")


def _plant(tree: str, files: int, size: int) -> None:
    """Text that compresses as sources do."""
    chance = random.Random(6)
    words = [f"word{chance.getrandbits(20):x}" for _ in range(4000)]
    for number in range(files):
        place = _path(tree, number)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="ascii") as file:
            file.write(" ".join(chance.choices(words, k=size // 10)))
