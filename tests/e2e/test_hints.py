"""Every command that a hint names can be pasted: in a checkout that is not on PATH, with --store, with odd names."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.conftest import surroundings

PLACEHOLDER = re.compile(r"\b(ID|RUN|SUBCOMMAND|PATH|CMD)\b|…")


class Place(NamedTuple):
    """A directory, a store and a program of their own, all with spaces in their names; only paths lead to them."""

    root: Path

    @property
    def program(self) -> Path:
        return self.root / "check out" / "takeback"

    @property
    def store(self) -> Path:
        return self.root / "the store"

    @property
    def world(self) -> Path:
        return self.root / "the world"

    def pasted(self, line: str, input: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, executable="/bin/bash", cwd=self.world, input=input, capture_output=True, text=True,
            env=surroundings() | {"PATH": "/usr/bin:/bin", "TAKEBACK_STORE": ""}, timeout=300, check=False,
        )  # fmt: skip

    def takeback(self, *words: str, input: str = "") -> str:
        """What it says, whatever its exit code."""
        line = shlex.join([str(self.program), "--store", str(self.store), *words])
        done = self.pasted(line, input)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


def new_place(root: Path) -> Place:
    place = Place(root)
    for directory in (place.program.parent, place.world):
        directory.mkdir(parents=True)
    place.program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom takeback.frontends.cli.main import main\nsys.exit(main())\n"
    )
    place.program.chmod(0o755)
    return place


def _undone(at: Place) -> str:
    at.takeback("write", "a b", input="1")
    return at.takeback("undo")


def _redone(at: Place) -> str:
    _undone(at)
    return at.takeback("redo")


def _undone_before(at: Place) -> str:
    _undone(at)
    return at.takeback("undo", "@")


def _in_conflict(at: Place) -> str:
    at.takeback("write", "a b", input="1")
    (at.world / "a b").write_text("mine")
    return at.takeback("undo")


def _held(at: Place) -> str:
    return at.takeback("run", "--hold", "--", "touch", "a b")


def _held_in_conflict(at: Place) -> str:
    _held(at)
    (at.world / "a b").write_text("mine")
    return at.takeback("apply", "@")


def _checkpoint(at: Place) -> str:
    at.takeback("write", "a b", input="1")
    said = at.takeback("checkpoint", "my point")
    at.takeback("write", "a b", input="2")
    return said


def _not_there(at: Place) -> str:
    at.takeback("write", "a b", input="1")
    return "".join(
        at.takeback(*words) for words in (("show", "zzzzzzzz"), ("show", "@~9"), ("log", "--run", "x y"))
    )


def _no_directory(at: Place) -> str:
    return at.takeback("write", "new dir/file", input="1")


def _a_line_of_shell(at: Place) -> str:
    return at.takeback("run", "echo hi > 'a b'")


def _failed_in_place(at: Place) -> str:
    return at.takeback("run", "--in-place", "--", "sh", "-c", "touch 'a b'; exit 3")


def _statement(at: Place) -> str:
    import sqlite3

    with sqlite3.connect(at.world / "my app.db") as database:
        database.execute("create table t (a)")
    return at.takeback("sql", "exec", "sqlite:///my app.db", "insert into t values (1)")


def _others(at: Place) -> str:
    _checkpoint(at)
    at.takeback("run", "--agent", "somebody", "--", "touch", "c")
    return at.takeback("undo", "--to", "my point")


def _mistyped(at: Place) -> str:
    at.takeback("write", "a b", input="1")
    return "".join(
        at.takeback(*words) for words in (("undi",), ("history",), ("log", "--jsno"), ("log", "a", "b"))
    )


def _many(at: Place) -> str:
    for number in range(3):
        at.takeback("write", f"f {number}", input="1")
    return at.takeback("status") + at.takeback("log", "-n", "1") + at.takeback("runs")


SCENES: dict[str, Callable[[Place], str]] = {
    name.removeprefix("_"): scene
    for name, scene in list(globals().items())
    if name.startswith("_") and callable(scene) and getattr(scene, "__module__", "") == __name__
}
FEWEST = {"held": 3, "not_there": 2, "mistyped": 3}  # commands that are named


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SCENES)
def test_what_a_hint_names_can_be_pasted(tmp_path: Path, name: str) -> None:
    said = SCENES[name](new_place(tmp_path / "first"))
    lines = [one for one in re.findall(r"`([^`]*takeback[^`]*)`", said) if not PLACEHOLDER.search(one)]

    assert len(lines) >= FEWEST.get(name, 0 if name == "many" else 1), said
    for number, line in enumerate(lines):
        # Each where nothing else was done since: some are alternatives.
        again = new_place(tmp_path / str(number))
        fresh = SCENES[name](again)
        line = [one for one in re.findall(r"`([^`]*takeback[^`]*)`", fresh) if not PLACEHOLDER.search(one)][
            number
        ]
        done = again.pasted(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert str(again.program) in line or "check\\ out" in line or "check out" in line, line


def test_no_path_of_the_program_where_its_name_will_do(tmp_path: Path) -> None:
    place = new_place(tmp_path)
    done = subprocess.run(
        ["takeback", "show", "x"], cwd=place.world, capture_output=True, text=True, check=False,
        env=surroundings() | {"PATH": f"{place.program.parent}:/usr/bin:/bin", "TAKEBACK_STORE": str(place.store)},
    )  # fmt: skip

    assert "check out" not in done.stderr
    assert os.path.exists(place.program)
