"""Doors to files: the verbs of a run, commands in a sandbox, held or not, watched directories, boxes."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import takeback
from takeback.testing.door_suite import FAILED, INTENT, ONLOOKER, TWICE, DoorScene
from tests.world import World

Make = Callable[[Path, takeback.Run, str], Any]

ONE_BY_ONE = "its files are replaced one after the other, each in one step"
BY_ITSELF = "the program writes to the world itself, after its watch was recorded"
NO_KEY = "what is watched has no key: the program has run already"
APPLIED = "what was held and applied is accepted: it stays though its run fails"
BOX = "a commit has no key: what is in the box is merged once"


class Story(NamedTuple):
    door: str
    make: Make
    disturbed: str = "file"
    exempt: Mapping[str, str] = {}


def edit(root: Path) -> None:
    """What a command or a program does here."""
    (root / "file").write_bytes(b"after\n")
    (root / "tree" / "new").mkdir()
    (root / "tree" / "new" / "x").write_bytes(b"x")
    (root / "gone").unlink()


SHELL = "echo after > file; mkdir tree/new; echo x > tree/new/x; rm gone"


def command(root: Path, run: takeback.Run, key: str) -> Any:
    return run.command(SHELL, cwd=root, key=key).effect


def held(root: Path, run: takeback.Run, key: str) -> Any:
    effect = run.command(SHELL, cwd=root, hold=True, key=key).effect
    assert effect
    if effect.waits_for:
        run.apply(effect)
    return next(one for one in run.effects() if one.id == effect.id)


def watch(root: Path, run: takeback.Run, key: str) -> Any:
    with run.watch(root) as watched:
        edit(root)
    return watched.effect


def in_place(root: Path, run: takeback.Run, key: str) -> Any:
    with run.watch(root) as watched:
        subprocess.run(["/bin/sh", "-c", SHELL], cwd=root, check=True)
    return watched.effect


def box(root: Path, run: takeback.Run, key: str) -> Any:
    with run.sandbox(cwd=root) as opened:
        opened.run(SHELL)
        return opened.commit().effect


_SEVERAL = {ONLOOKER: ONE_BY_ONE}
_WATCHED = {TWICE: NO_KEY, INTENT: BY_ITSELF, ONLOOKER: BY_ITSELF}
VERBS = (
    Story("run.write", lambda root, run, key: run.write(root / "file", b"after\n", key=key)),
    Story("run.write, a new file", lambda root, run, key: run.write(root / "new", b"new\n", key=key), "new"),
    Story("run.write_all",
          lambda root, run, key: run.write_all({root / "file": b"1\n", root / "gone": b"2\n"}, key=key),
          exempt=_SEVERAL),
    Story("run.delete", lambda root, run, key: run.delete(root / "tree", key=key), "tree"),
    Story("run.move", lambda root, run, key: run.move(root / "file", root / "moved", key=key), "moved"),
    Story("run.mkdir", lambda root, run, key: run.mkdir(root / "a/b", parents=True, key=key), "a", _SEVERAL),
    Story("run.symlink", lambda root, run, key: run.symlink(root / "link", "file", key=key), "link"),
    Story("run.chmod", lambda root, run, key: run.chmod(root / "file", 0o600, key=key)),
    Story("run.edit_config",
          lambda root, run, key: run.edit_config(root / "conf.toml", {"/port": 81}, key=key), "conf.toml"),
)  # fmt: skip
PROGRAMS = (
    Story("run.command", command, exempt=_SEVERAL),
    Story("run.command, held and applied", held, exempt={FAILED: APPLIED, **_SEVERAL}),
    Story("run.watch", watch, exempt=_WATCHED),
    Story("run.watch, a program in place", in_place, exempt=_WATCHED),
    Story("box.commit", box, exempt={TWICE: BOX, **_SEVERAL}),
)


class FileDoor(DoorScene):
    def __init__(self, place: Path, story: Story) -> None:
        self.door, self.exempt = story.door, story.exempt
        self.store = os.fspath(place / "store")
        self.root = place / "world"
        self.cascade = story.make is box  # that the box stands elsewhere now is a step of its own
        self._story = story
        (self.root / "tree" / "deep").mkdir(parents=True)
        for name in ("file", "gone", "tree/one", "tree/deep/two"):
            (self.root / name).write_bytes(f"{name} before\n".encode())
        (self.root / "conf.toml").write_text("# ports\nport = 80\n")
        (self.root / "tree" / "deep").chmod(0o711)
        for number, path in enumerate(sorted(self.root.rglob("*"))):
            os.utime(path, ns=(10**18, 10**18 + number))

    def make(self, run: takeback.Run, key: str) -> takeback.Effect:
        effect = self._story.make(self.root, run, key)
        assert effect is not None
        return effect

    def world(self) -> Any:
        return World(self.root).picture()

    def disturb(self) -> None:
        target = self.root / self._story.disturbed
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        target.write_bytes(b"someone else's\n")
        target.chmod(0o640)

    def counts(self, effect: takeback.Effect) -> bool:
        return effect.change.adapter != "box"  # where a box stands is seen only in the box
