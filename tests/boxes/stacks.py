"""Random stacks of real overlay layers, squashed and compared with what the kernel shows.

Run in a mount namespace of its own (`unshare --mount`), so that whatever happens nothing stays mounted:
    python -m tests.boxes.stacks DIRECTORY SEED COUNT [user]
Prints one JSON line for each stack: the seed, and what differs.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from takeback.sandbox.layer import is_whiteout
from takeback.sandbox.layer_owner import squash
from tests.world import picture

NAMES = ("a", "b", "c", "d")


def overlay(lowers: list[Path], place: Path, upper: Path | None = None, work: Path | None = None) -> None:
    options = ["redirect_dir=on", f"lowerdir={':'.join(map(str, lowers))}"]
    if os.environ.get("USERXATTR"):
        options.append("userxattr")
    if upper:
        options += [f"upperdir={upper}", f"workdir={work}"]
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", ",".join(options), str(place)], check=True)


def unmounted(place: Path) -> None:
    subprocess.run(["umount", str(place)], check=True)


class Chance:
    """One random change of a tree; what cannot be done is left."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.root = root

    def plant(self) -> None:
        for first in NAMES:
            for second in NAMES:
                (self.root / first / second / "a").mkdir(parents=True)
                (self.root / first / second / "b").write_text(first + second)

    def path(self) -> Path:
        if self.random.random() < 0.6:
            return self.some(self.root)
        depth = self.random.choice((1, 1, 2, 2, 3))
        return self.root.joinpath(*(self.random.choice(NAMES) for _ in range(depth)))

    def some(self, directory: Path) -> Path:
        """One that is there, or was when we looked."""
        found = directory / self.random.choice(sorted(os.listdir(directory)) or NAMES)
        if found.is_dir() and not found.is_symlink() and self.random.random() < 0.6:
            return self.some(found)
        return found

    def change(self) -> None:
        acts: tuple[Callable[[], object], ...] = (
            self.write, self.write, self.append, self.remove, self.remove, self.make, self.make, self.move, self.move,
            self.move, self.link, self.symlink, self.mode, self.fifo, self.attribute, self.again, self.times,
        )  # fmt: skip
        with suppress(OSError, shutil.Error):
            self.random.choice(acts)()

    def write(self) -> None:
        self.put(self.path(), os.O_TRUNC, str(self.random.random()))

    def append(self) -> None:
        self.put(self.path(), os.O_APPEND, "more")

    def put(self, path: Path, how: int, text: str) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | how)  # a FIFO must not make us wait
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)

    def remove(self) -> None:
        path = self.path()
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def make(self) -> None:
        path = self.path()
        path.mkdir(parents=self.random.random() < 0.5)
        if self.random.random() < 0.5:
            (path / self.random.choice(NAMES)).write_text("new")

    def again(self) -> None:
        """Removed and made again: opaque."""
        path = self.path()
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.mkdir()
            (path / self.random.choice(NAMES)).write_text("again")

    def move(self) -> None:
        os.rename(self.path(), self.path())

    def link(self) -> None:
        os.link(self.path(), self.path(), follow_symlinks=False)

    def symlink(self) -> None:
        self.path().symlink_to(self.random.choice(NAMES))

    def mode(self) -> None:
        os.chmod(self.path(), self.random.choice((0o700, 0o755, 0o711)))

    def fifo(self) -> None:
        os.mkfifo(self.path())

    def attribute(self) -> None:
        os.setxattr(self.path(), "user.colour", self.random.choice((b"red", b"blue")))

    def times(self) -> None:
        os.utime(self.path(), ns=(0, self.random.randrange(10**18)))


def _shown(place: Path) -> dict[str, Any]:
    """Without what hard links of our own change (how many names an inode has) and where data lies on disk."""
    seen = picture(os.fsencode(place))
    for path, one in seen.items():
        one.pop("parts with data", None)
        if one.get("same as") == path:
            del one["same as"]
    return {os.fsdecode(path): one for path, one in seen.items()}


def describe(layer: Path) -> None:
    told = {"mounts": [{"point": "/", "upper": "0"}], "userxattr": bool(os.environ.get("USERXATTR"))}
    (layer / "layer.json").write_text(json.dumps({**told, "redirect": True}))


def met(layers: list[Path]) -> dict[str, int]:
    """How often a sweep came across what makes squashing hard."""
    counts = dict.fromkeys(("whiteouts", "opaque", "redirects"), 0)
    for layer in layers:
        for directory, subdirectories, files in os.walk(layer):
            for name in subdirectories:
                attributes = os.listxattr(os.path.join(directory, name))
                counts["opaque"] += any(one.endswith("overlay.opaque") for one in attributes)
                counts["redirects"] += any(one.endswith("overlay.redirect") for one in attributes)
            for name in files:
                counts["whiteouts"] += is_whiteout(os.lstat(os.path.join(directory, name)))
    return counts


def one_stack(place: Path, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    base, view, work = place / "base", place / "view", place / "work"
    for directory in (base, view, work):
        directory.mkdir()
    changes = Chance(seed, base)
    changes.plant()
    for _ in range(chance.randrange(10)):
        changes.change()
    layers: list[Path] = []
    for number in range(chance.randrange(2, 6)):
        layer = place / f"layer{number}"
        upper = layer / "0"
        upper.mkdir(parents=True)
        describe(layer)
        shutil.rmtree(work)
        work.mkdir()
        overlay([*(each / "0" for each in reversed(layers)), base], view, upper, work)
        try:
            changes.root = view
            for _ in range(chance.randrange(1, 12)):
                changes.change()
        finally:
            unmounted(view)
        layers.append(layer)
    newest = layers[::-1]
    expected = _mounted([each / "0" for each in newest] + [base], view)
    odd: list[str] = []
    # Any stretch of the stack: over the base, over other layers, under other layers; then squashes of squashes.
    first = chance.randrange(len(newest))
    last = chance.randrange(first + 1, len(newest) + 1)
    once = place / "once"
    squash([str(each) for each in newest[first:last]], str(once))
    half = [*newest[:first], once, *newest[last:]]
    odd += _different("a stretch", expected, _mounted([each / "0" for each in half] + [base], view))
    twice = place / "twice"
    squash([str(each) for each in half], str(twice))
    odd += _different("all", expected, _mounted([twice / "0", base], view))
    return {"seed": seed, "different": odd, **met(layers)}


def _mounted(lowers: list[Path], view: Path) -> dict[str, Any]:
    if len(lowers) == 1:
        return _shown(lowers[0])
    overlay(lowers, view)
    try:
        return _shown(view)
    finally:
        unmounted(view)


def _different(what: str, expected: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    paths = sorted(path for path in expected.keys() | seen.keys() if expected.get(path) != seen.get(path))
    return [f"{what}: {path}: {expected.get(path)} became {seen.get(path)}" for path in paths]


def main() -> None:
    place, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    # In memory: each unmounting would sync the disk.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    for number in range(seed, seed + count):
        scene = place / str(number)
        scene.mkdir()
        sys.stdout.write(json.dumps(one_stack(scene, number)) + "\n")
        shutil.rmtree(scene)


if __name__ == "__main__":
    main()
