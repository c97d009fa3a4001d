"""In a box a drop can be taken back too: a failing command, an interrupted one, and everything that was discarded."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.model.effect import DropReason
from tests.world import World

LONG = 120  # seconds that nothing here takes on any machine


@pytest.fixture
def tb(store: Path) -> Iterator[takeback.Takeback]:
    with takeback.open(store) as opened:
        yield opened
        assert opened.verify(read_data=True).findings == ()


def test_what_a_failing_command_did_becomes_the_next_step(tb: takeback.Takeback, world: World) -> None:
    with tb.run("agent") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo one > a")
        outcome = box.run("echo two >> a; mkdir d; cd d; export X=1; exit 3")
        assert (outcome.dropped, outcome.effect) == (True, None)
        assert outcome.drop and outcome.drop.dropped
        assert outcome.drop.dropped.reason is DropReason.FAILED
        assert outcome.drop.dropped.bytes == len("one\ntwo\n")
        assert f"takeback apply {outcome.drop.id[:8]}" in outcome.text
        assert box.run("cat a").stdout == b"one\n"

        tb.apply(outcome.drop)

        assert box.cwd == str(world / "d")
        assert box.run("cat ../a; echo $X").stdout == b"one\ntwo\n1\n"
        assert [step.exit_code for step in box.history()] == [0, 3]
        box.undo()
        assert box.run("cat a").stdout == b"one\n"
        assert not (world / "a").exists()


def test_it_is_refused_when_the_box_has_moved_on(tb: takeback.Takeback, world: World) -> None:
    with tb.run("agent") as run, run.sandbox(cwd=world.root) as box:
        drop = box.run("echo two > a; exit 3").drop
        assert drop
        box.run("echo other > b")
        for force in (False, True):
            with pytest.raises(takeback.Drifted, match="is at another point") as refused:
                tb.apply(drop, force=force)
            assert "--force" not in refused.value.hint
        assert tb.effect(drop.id).state is takeback.State.DROPPED
        box.undo()
        tb.apply(drop)
        assert box.run("ls").stdout == b"a\n"


def test_a_sweep_keeps_the_layer_of_a_drop_and_erasing_removes_it(store: Path, world: World) -> None:
    with takeback.open(store) as tb:
        with tb.run("agent") as run, run.sandbox(cwd=world.root) as box:
            box.run("echo one > a")
            drop = box.run("head -c 300000 /dev/urandom > big; exit 1").drop
            name = box.id
        assert drop
        tb.sweep(grace=0)
        assert size_of(tb) > 300_000
        with tb.run("again") as run, run.sandbox(box=name) as box:
            tb.apply(drop)
            assert box.run("stat -c %s big").stdout == b"300000\n"
            box.undo()
            again = box.run("head -c 300000 /dev/urandom > big; exit 1").drop
        assert again
        tb.discard(again, now=True)
        assert tb.effect(again.id).state is takeback.State.ABORTED
        assert tb.verify(read_data=True).findings == ()


def size_of(tb: takeback.Takeback) -> int:
    return sum(
        os.lstat(os.path.join(directory, name)).st_size
        for directory, _, names in os.walk(tb.store.layers().path)
        for name in names
    )


def test_erasing_a_drop_of_a_box_gives_its_bytes_back(store: Path, world: World) -> None:
    with takeback.open(store) as tb:
        with tb.run("agent") as run, run.sandbox(cwd=world.root) as box:
            drop = box.run("head -c 300000 /dev/urandom > big; exit 1").drop
        assert drop
        assert size_of(tb) > 300_000
        tb.discard(drop, now=True)
        assert size_of(tb) < 300_000


def test_everything_that_was_discarded_is_brought_back(tb: takeback.Takeback, world: World) -> None:
    with tb.run("agent") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo one > a; cd /tmp")
        box.discard()
        kept = box.discarded
        assert kept and kept.dropped and kept.dropped.reason is DropReason.BOX
        assert box.run(f"ls {world.root}").stdout == b""
        tb.apply(kept)
        assert box.cwd == "/tmp"
        assert box.run(f"cat {world / 'a'}").stdout == b"one\n"


def test_a_command_that_only_went_elsewhere_leaves_no_drop(tb: takeback.Takeback, world: World) -> None:
    with tb.run("agent") as run, run.sandbox(cwd=world.root) as box:
        outcome = box.run("cd /tmp; export X=1; exit 1")
        assert (outcome.dropped, outcome.drop, outcome.final) == (True, None, None)
        assert box.cwd == str(world.root)
    assert tb.effects(state="dropped") == ()


INTERRUPTED = """
import sys, takeback
tb = takeback.open()
with tb.run("agent") as run, run.sandbox(cwd=sys.argv[1]) as box:
    print(box.id, flush=True)
    box.run("echo so far > a; echo ready; exec sleep 1000", capture=False)
"""


def test_an_interrupted_command_leaves_what_it_had_done_so_far(store: Path, world: World) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, os.fspath(world.root)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with child:
        assert child.stdout
        name = child.stdout.readline().strip()
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        child.wait(LONG)
    with takeback.open(store) as tb:
        (drop,) = tb.effects(state="dropped")
        assert drop.dropped and drop.dropped.reason is DropReason.INTERRUPTED
        tb.apply(drop)
        with tb.run("again") as run, run.sandbox(box=name) as box:
            assert box.run("cat a").stdout == b"so far\n"
        assert tb.verify(read_data=True).findings == ()
