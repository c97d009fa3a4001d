"""The power goes off: what was acknowledged is there, and can still be taken back."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from takeback.engine.portion import undone_paths
from takeback.testing.crash import open_settled
from tests.crash.mounts import Disk
from tests.crash.tracing import environment

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.durable,
    pytest.mark.timeout(900),
    pytest.mark.needs("mkfs.ext4", "mount"),
    pytest.mark.may_skip("a container may have no loop devices"),
]

CUTS = [3, 5, 8, 11, 13, 17, 22, 24, 29, 31, 37, 44]


class Promise(NamedTuple):
    effect: str
    name: str
    number: int
    digest: str


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    try:
        yield disk
    finally:
        disk.remove()


def cut_after(disk: Disk, how: str, promises: int) -> list[Promise]:
    """Let the writer give so many promises, freeze it, cut the power, switch it on again."""
    (disk.place / "world").mkdir()
    os.sync()
    script = Path(__file__).with_name("power_cut_writer.py")
    writer = subprocess.Popen(
        [sys.executable, str(script), how, str(disk.place)],
        env=environment(disk.place / "store"), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout
    heard = [writer.stdout.readline() for _ in range(promises)]
    writer.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(writer.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status
    disk.cut()
    writer.kill()
    # What it had said before it was frozen counts as well.
    heard += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()
    disk.power_on()
    whole = [line for line in heard if line.endswith("\n")]
    assert len(whole) >= promises, heard
    return [
        Promise(effect, name, int(number), digest) for effect, name, number, digest in map(_fields, whole)
    ]


def _fields(line: str) -> list[str]:
    return line.rstrip("\n").split("\t")


def broken(disk: Disk, promises: list[Promise]) -> list[str]:
    """Files that hold neither what was promised last nor the one write that was under way."""
    newest = {promise.name: promise for promise in promises}
    wrong: list[str] = []
    for name, promise in newest.items():
        path = disk.place / "world" / name
        content = path.read_bytes() if path.exists() else b""
        number = content.partition(b"\n")[0]
        kept = hashlib.sha256(content).hexdigest() == promise.digest
        later = number.isdigit() and int(number) > promises[-1].number
        if not kept and not later:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("promises", CUTS)
def test_what_was_acknowledged_survives_and_can_be_taken_back(disk: Disk, promises: int) -> None:
    given = cut_after(disk, "takeback", promises)
    with open_settled(str(disk.place / "store")) as tb:
        assert tb.verify(read_data=True).findings == ()
        assert broken(disk, given) == []
        for promise in given:
            assert tb.effect(promise.effect).state == "done"
        for effect in tb.effects(state="done", newest=True):
            tb.undo(effect)
        assert list((disk.place / "world").iterdir()) == []


@pytest.mark.parametrize("promises", CUTS[:6])
@pytest.mark.parametrize("how", ["some", "merge"])
def test_an_undo_of_some_paths_and_one_by_merge_survive(disk: Disk, how: str, promises: int) -> None:
    given = cut_after(disk, how, promises)
    with open_settled(str(disk.place / "store")) as tb:
        assert tb.verify(read_data=True).findings == ()
        assert broken(disk, given) == []
        known = {promise.effect for promise in given}
        parted = undone_paths(tb.store.journal, tb.effects(state="done"))
        if how == "some":
            assert known <= set(parted)
        for effect in tb.effects(state="done", newest=True):
            if not effect.is_undo:
                tb.undo(effect)
        assert list((disk.place / "world").iterdir()) == []


@pytest.mark.parametrize("promises", CUTS[:6])
def test_a_drop_survives_and_can_be_applied(disk: Disk, promises: int) -> None:
    given = cut_after(disk, "drop", promises)
    world = disk.place / "world"
    with open_settled(str(disk.place / "store")) as tb:
        assert tb.verify(read_data=True).findings == ()
        assert list(world.iterdir()) == []
        for promise in given:
            assert tb.effect(promise.effect).state == "dropped"
        for promise in {one.name: one for one in given}.values():
            tb.apply(promise.effect)
        assert broken(disk, given) == []
        for effect in tb.effects(state="done", newest=True):
            tb.undo(effect)
        assert list(world.iterdir()) == []


@pytest.mark.parametrize("promises", CUTS[:6])
def test_a_drop_that_was_applied_survives_and_can_be_taken_back(disk: Disk, promises: int) -> None:
    given = cut_after(disk, "apply", promises)
    with open_settled(str(disk.place / "store")) as tb:
        assert tb.verify(read_data=True).findings == ()
        assert broken(disk, given) == []
        for promise in given:
            assert tb.effect(promise.effect).state == "done"
        for effect in tb.effects(state="done", newest=True):
            tb.undo(effect)
        assert list((disk.place / "world").iterdir()) == []


def test_a_careless_writer_is_caught(tmp_path: Path) -> None:
    """The known-bad one: if it survived every cut, the cuts would be no cuts."""
    for promises in CUTS[:4]:
        (tmp_path / str(promises)).mkdir()
        disk = Disk(tmp_path / str(promises))
        try:
            if broken(disk, cut_after(disk, "careless", promises)):
                return
        finally:
            disk.remove()
    pytest.fail("the careless writer lost nothing")
