"""Long states of agents: kept once, whatever happens to the run."""

import os
from pathlib import Path

import pytest

import takeback

LONG = {"messages": [f"{n}: {n * 7919 % 104729:x}" for n in range(9_000)]}


def size(store: Path) -> int:
    return sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())


def test_the_same_long_state_again_costs_next_to_nothing(store: Path) -> None:
    with takeback.open(store) as tb, tb.run("think") as run:
        run.checkpoint("first", state=LONG)
    before = size(store)
    with takeback.open(store) as tb:
        with tb.run("think on") as run:
            for n in range(20):
                run.checkpoint(f"again {n}", state=LONG)
                run.remember(f"again {n}", lambda: LONG)
        assert all(point.state and len(point.state) > 100_000 for point in tb.checkpoints())
    assert size(store) - before < 40 * 2048


def test_a_long_state_comes_back_with_its_checkpoint_and_outlives_a_sweep(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("think") as run:
            run.checkpoint("here", state=LONG)
            run.write(store.parent / "file", "text")
            assert run.undo(to="here").state == LONG
            run.remember("plan", lambda: LONG)
        tb.forget()
        tb.sweep(grace=0)
        assert tb.verify(read_data=True).findings == ()
        assert tb.undo_to("here").state == LONG


def test_a_state_that_was_lost_is_told(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("think") as run:
            run.checkpoint("here", state=LONG)
        (point,) = tb.checkpoints()
        assert point.state_blob
        for path in (Path(store) / "blobs").rglob("*"):
            if path.is_file():
                os.unlink(path)
        tb.store.read("SELECT 1")
        with tb.store.together() as connection:
            connection.execute("DELETE FROM blobs")
        findings = tb.verify().findings
        assert any("state of a checkpoint" in one for one in findings), findings
        with pytest.raises(takeback.Corrupt):
            tb.undo_to("here")
