"""Killed at any moment, two at once, a full disk: the world and the journal stay, and the scratch goes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.errors import StoreFull, Unavailable
from takeback.model.rehearsal import Viability
from takeback.testing.crash import Boundaries, in_a_process, open_wrapped, wrap_system_calls
from tests.crash.mounts import fill, tmpfs
from tests.rehearse.conftest import Untouched
from tests.servers.process import wait_until
from tests.world import World

REHEARSE = "import sys, takeback; print(takeback.open(sys.argv[1]).rehearse(everything=True).works)"


def many(tb: takeback.Takeback, world: World, count: int) -> None:
    with tb.run("work") as run:
        for number in range(count):
            run.write(world / f"{number}", f"{number}")


def started(store: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", REHEARSE, str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def found(pattern: str) -> Callable[[Path], bool]:
    return lambda store: any(store.glob(pattern))


# How far it had come: its directory, the copy of the journal, the layer, the store in the layer, an undo in the layer.
MOMENTS = {
    "directory": found("rehearsals/*"),
    "copy": found("rehearsals/*/journal.db"),
    "layer": found("rehearsals/*/room/**/layer"),
    "store in the layer": found("rehearsals/*/room/**/layer/*/**/store/journal.db"),
    "undone in the layer": found("rehearsals/*/room/**/layer/*/**/world/*"),
}


@pytest.mark.root
@pytest.mark.sampled(5)
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_killed_in_the_middle_nothing_has_changed(
    tb: takeback.Takeback, world: World, store: Path, moment: Callable[[Path], bool]
) -> None:
    many(tb, world, 40)
    untouched = Untouched(tb, world)
    records = untouched.records()

    process = started(store)
    try:
        wait_until(lambda: moment(store) or process.poll() is not None, "the moment")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()

    assert untouched.seen() == untouched.before
    assert untouched.records() == records

    def cleared() -> bool:
        tb.recover()
        return os.listdir(store / "rehearsals") == []

    wait_until(cleared, "recovery clears what it left")
    assert untouched.seen() == untouched.before
    assert untouched.records() == records
    assert tb.rehearse("@").works


@pytest.mark.slow
def test_killed_at_each_boundary_of_what_it_writes_itself(tmp_path: Path) -> None:
    """Of the process that was asked: what it writes into the store's directory, and its record."""
    world, store, template = World(tmp_path / "world"), tmp_path / "store", tmp_path / "template"
    world.root.mkdir()
    with takeback.open(store) as tb:
        many(tb, world, 2)
    shutil.copytree(store, template)

    def rehearse(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        tb: Any = open_wrapped(str(store), boundaries)
        tb.rehearse(everything=True)

    total = len(in_a_process(rehearse, Boundaries()).passed)
    assert total > 3
    for at in range(1, total + 1):
        store = tmp_path / f"store {at}"  # its processes may still be ending when the next begins
        shutil.copytree(template, store)
        with takeback.open(store, recover=False) as tb:
            untouched = Untouched(tb, world)
            records = untouched.records()
        end = in_a_process(rehearse, Boundaries(at))
        assert end.killed, at
        with takeback.open(store) as tb:
            untouched.tb = tb
            assert untouched.seen() == untouched.before
            assert untouched.records() in (records, [*records, "rehearse"])
            tb.recover()
            assert tb.verify(read_data=True).findings == ()
            assert {one.state.value for one in tb.effects()} == {"done"}


def test_two_at_once_do_not_know_of_each_other(tb: takeback.Takeback, world: World, store: Path) -> None:
    many(tb, world, 5)
    untouched = Untouched(tb, world)

    both = [started(store), started(store)]
    told = [process.communicate() for process in both]

    assert [out.strip() for out, _ in told] == [b"True", b"True"], told
    assert untouched.seen() == untouched.before
    assert untouched.records().count("rehearse") == 2
    assert os.listdir(store / "rehearsals") == []


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_on_a_full_disk_nothing_is_said_to_work(tmp_path: Path, world: World) -> None:
    with tmpfs(tmp_path / "small", "size=48m") as place:
        with takeback.open(place / "store") as tb:
            many(tb, world, 3)
            untouched = Untouched(tb, world)
            fill(place, leave=0)
            try:
                outcome = {one.outcome for one in tb.rehearse(everything=True).rehearsed}
            except (StoreFull, Unavailable):
                outcome = {Viability.CANNOT}
            assert outcome == {Viability.CANNOT}
            assert untouched.seen() == untouched.before
            (place / "filler").unlink()
        with takeback.open(place / "store") as tb:
            assert tb.rehearse(everything=True).works
            assert tb.verify(read_data=True).findings == ()
