"""In place against a shadow git, on one tree in one run: `python -m tests.bench.in_place [FILES] [ROUNDS]`."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import takeback
from takeback.adapters.watch.fanotify import Fanotify
from takeback.adapters.watch.inotify import Inotify
from takeback.adapters.watch.roots import root_of
from takeback.adapters.watch.scan import Bounds
from takeback.adapters.watch.watched_root import WatchedRoot
from takeback.api import opened_of
from takeback.runs.watch_place import place_of

EDITS = 10


def sources() -> list[bytes]:
    """Real text, as a project has it: what Python came with."""
    found: list[bytes] = []
    for directory, _, names in os.walk(os.path.dirname(os.__file__)):
        if "site-packages" not in directory:
            paths = (
                os.path.join(directory, name) for name in sorted(names) if name.endswith((".py", ".txt"))
            )
            found += [Path(path).read_bytes() for path in paths]
    return found


def make_tree(tree: Path, files: int) -> int:
    texts, size = sources(), 0
    for number in range(files):
        directory = tree / f"d{number // 1000:02d}" / f"e{number // 50 % 20:02d}"
        if number % 50 == 0:
            directory.mkdir(parents=True)
        content = b"# %d\n" % number + texts[number % len(texts)]
        size += len(content)
        (directory / f"f{number % 50}.py").write_bytes(content)
    return size


def edit(tree: Path, round: int) -> None:
    for number in range(EDITS):
        with open(tree / "d00" / f"e{number:02d}" / f"f{round % 50}.py", "ab") as file:
            file.write(b"# edited\n")


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    files, rounds = (int(word) for word in (sys.argv[1:] + ["50000", "7"][len(sys.argv) - 1 :]))
    place = Path(tempfile.mkdtemp(prefix="takeback-in-place-", dir="/var/tmp"))
    try:
        measure(place, files, rounds)
    finally:
        shutil.rmtree(place)


def measure(place: Path, files: int, rounds: int) -> None:
    tree = place / "tree"
    print(f"{files:,} files, {make_tree(tree, files) / 1e6:,.0f} MB; medians of {rounds}")
    env = {
        **os.environ,
        "GIT_DIR": str(place / "git"),
        "GIT_WORK_TREE": str(tree),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }

    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0")
        subprocess.run(["git", *name, *words], env=env, check=True, capture_output=True)

    def git_checkpoint() -> None:
        git("add", "-A", "-f")
        git("commit", "-q", "--allow-empty", "-m", "x")

    git("init", "-q")
    os.sync()
    first_git = timed(git_checkpoint)
    with takeback.open(place / "store") as tb:
        stored = place_of(opened_of(tb).parts)
        root = root_of(tree)
        watched = WatchedRoot(root, stored)

        def checkpoint() -> None:
            baseline = watched.begin({}, Bounds())
            watched.index.release((baseline.token,))

        os.sync()
        first_ours = timed(checkpoint)
        told("first look", first_git, first_ours)
        told("size of the store, MB", size(place / "git") / 1e6, size(place / "store") / 1e6)
        for name, feed in (("scan", None), ("inotify", Inotify), ("fanotify", Fanotify)):
            if feed is Fanotify and os.geteuid():
                continue
            watched.follow(feed(root.path) if feed else None)
            checkpoint()
            theirs, ours = [], []
            for round in range(rounds):
                edit(tree, round)
                theirs.append(timed(git_checkpoint))
                ours.append(timed(checkpoint))
            told(f"{EDITS} edits, {name}", statistics.median(theirs), statistics.median(ours))
        watched.close()
        theirs, ours = [], []
        with tb.run("bench") as run:
            for round in range(rounds):
                with run.watch(tree) as watch:
                    edit(tree, round)
                assert watch.effect
                ours.append(timed(lambda watch=watch: tb.undo(watch.effect)))
                git_checkpoint()
                edit(tree, round)
                theirs.append(timed(lambda: (git("reset", "-q", "--hard"), git("clean", "-fdqx"))))
        told("undo", statistics.median(theirs), statistics.median(ours))


def size(path: Path) -> int:
    return sum(
        os.lstat(os.path.join(directory, name)).st_blocks * 512
        for directory, _, names in os.walk(path)
        for name in names
    )


def told(what: str, theirs: float, ours: float) -> None:
    print(
        f"{what:28} git {theirs:10.4f}   takeback {ours:10.4f}   {ours / theirs:6.3f} ×   ({theirs / ours:.1f} × less)"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
