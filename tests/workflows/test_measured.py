"""What the benchmark of workflows measures of ours is a workflow that is carried out, and one that is gone on with."""

from pathlib import Path

import pytest

import takeback
from tests.bench import programs
from tests.bench.programs import Program, child


@pytest.mark.parametrize("kind", ["remember", "call", "probed"])
def test_a_measured_workflow_reaches_its_last_step(tmp_path: Path, kind: str) -> None:
    program = Program("takeback", str(tmp_path / "store"), kind)
    with child(program, "steps") as one:
        assert one.hear() == {"ready": True}
        assert one.ask(12)["reached"] == 12

    with takeback.open(program.store) as tb:
        (info,) = tb.runs()
        assert info.state == "accepted"


@pytest.mark.parametrize("kind", ["remember", "probed"])
def test_a_measured_recovery_goes_on_with_the_step_that_was_cut_short(tmp_path: Path, kind: str) -> None:
    program = Program("takeback", str(tmp_path / "store"), kind)
    with child(program, "begin", 5) as first:
        assert first.hear() == {"inside": 5}

    with child(program, "recover", 5) as second:
        assert second.hear()["inside"] == 5


def test_a_peer_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "ENVIRONMENT", tmp_path)

    assert not programs.peers_are_here()
    assert "make bench" in programs.MISSING
