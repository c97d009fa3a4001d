"""Someone exchanges a directory of the tree with a link to a place outside, again and again, while undo and redo of a
command go on: nothing outside is ever touched. An undo that follows links is caught by the same race."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import takeback
from tests.trees import racer
from tests.trees.scenes import differences, manifest
from tests.world import Picture

Count = Callable[[str, object], None]

ENOUGH = 120
FILES = 40
LINE = (
    "for f in dir/sub/*; do echo new > $f; done; rm -rf dir/gone; "
    "mkdir dir/made; echo n > dir/made/n; chmod 700 dir/sub"
)

pytestmark = pytest.mark.root


def build(root: Path, outside: Path) -> None:
    """A tree, and outside of it a directory with the same names in it: bait for whoever goes through the link."""
    for place in (root / "dir", outside):
        (place / "sub").mkdir(parents=True)
        (place / "gone").mkdir()
        for number in range(FILES):
            (place / "sub" / f"{number}").write_bytes(b"%d of %s\n" % (number, os.fsencode(place.name)))
            (place / "gone" / f"{number}").write_bytes(b"gone %d\n" % number)
    (root / "link").symlink_to(outside)


@contextmanager
def racing(one: Path, other: Path) -> Iterator[Callable[[], int]]:
    """Exchanging all the time; what it gives tells at the end how often."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", racer.__file__, str(one), str(other)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    counted: list[int] = []
    try:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield lambda: counted[0]
        process.stdin.close()
        counted.append(int(process.stdout.readline()))
        process.wait(ENOUGH)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def attempts(tb: takeback.Takeback, effect: str, seconds: float, at_least: int) -> dict[str, int]:
    """Undo and redo in turns until the time is over; whatever is refused is tried again."""
    told = {"done": 0, "refused": 0}
    until = time.monotonic() + seconds
    undone = False
    while time.monotonic() < until or sum(told.values()) < at_least:
        try:
            tb.redo(effect) if undone else tb.undo(effect)
            undone = not undone
            told["done"] += 1
        except takeback.TakebackError:
            told["refused"] += 1
            undone = tb.effect(effect).state == "undone"
            with suppress(takeback.TakebackError):  # it meets the racer too
                tb.recover()
    return told


def race(
    tb: takeback.Takeback, directory: Path, seconds: float
) -> tuple[Picture, Picture, dict[str, int], int]:
    root, outside = directory / "tree", directory / "outside"
    build(root, outside)
    with tb.run("a command") as run:
        effect = run.command(["/bin/sh", "-c", LINE], cwd=str(root), timeout=ENOUGH).effect
    assert effect
    before = manifest(outside)
    with racing(root / "dir", root / "link") as exchanged:
        told = attempts(tb, effect.id, seconds, at_least=4)
    return before, manifest(outside), told, exchanged()


@pytest.fixture
def tb(store: Path) -> Iterator[takeback.Takeback]:
    with takeback.open(str(store)) as tb:
        yield tb


def assert_no_escape(tb: takeback.Takeback, directory: Path, seconds: float, record: Count) -> None:
    before, after, told, exchanged = race(tb, directory, seconds)
    assert not differences(before, after), "something outside the tree was touched"
    assert exchanged > 100, "there was no race"
    record("undos raced against", sum(told.values()))


def test_undo_never_goes_through_a_link_that_someone_slips_in(
    tb: takeback.Takeback, tmp_path: Path, record_property: Count
) -> None:
    assert_no_escape(tb, tmp_path, 1.5, record_property)


@pytest.mark.long
def test_undo_never_goes_through_a_link_for_a_minute(
    tb: takeback.Takeback, tmp_path: Path, record_property: Count
) -> None:
    assert_no_escape(tb, tmp_path, 60, record_property)


def test_the_same_race_catches_a_restore_that_follows_links(tmp_path: Path) -> None:
    """Written as one would at first: look where the path leads, then write there."""
    root, outside = tmp_path / "tree", tmp_path / "outside"
    build(root, outside)
    before = manifest(outside)
    with racing(root / "dir", root / "link") as exchanged:
        until = time.monotonic() + ENOUGH
        while manifest(outside) == before and time.monotonic() < until:
            for number in range(FILES):
                path = root / "dir" / "sub" / str(number)
                with suppress(OSError):
                    if os.path.realpath(path).startswith(f"{os.path.realpath(root)}/"):
                        path.write_bytes(b"restored\n")
    assert exchanged() > 0
    assert differences(before, manifest(outside)), "the race is too weak to catch anything"
