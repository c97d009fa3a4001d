"""What a careful reader feared: undos that are called again, doubts that decide themselves, scripts that run again."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.model.effect import State
from takeback.runs.lease import Heartbeat
from tests.calls.test_actions import command

WORLD: list[str] = []


@takeback.action(name="tests.charge", verify=lambda key: {"id": 1} if "charge" in WORLD else None)
def charge(*, key: str) -> Any:
    WORLD.append("charge")
    return {"id": 1}


@charge.undo
def refund(receipt: Any) -> None:
    """The charge stays to be seen beside its refund."""
    WORLD.append("refund")
    if "raise" in WORLD:
        raise ConnectionError("hung up")


@takeback.action(name="tests.blind")
def blind() -> Any:
    raise ConnectionError("hung up")


@blind.undo
def see(receipt: Any) -> None:
    WORLD.append("undone")


@takeback.action(name="tests.odd", undo=lambda receipt: WORLD.append(f"undone {receipt}"))
def odd() -> Any:
    WORLD.append("odd")
    return {1, 2}


@pytest.fixture(autouse=True)
def afresh() -> None:
    WORLD.clear()


@pytest.mark.parametrize("trouble", ["", "raise"])
def test_an_undo_that_nobody_can_ask_about_is_called_once(store: Path, trouble: str) -> None:
    with takeback.open(store) as tb:
        with tb.run("buy") as run:
            run.call(charge)
        (effect,) = tb.effects()
        WORLD.append(trouble)
        assert tb.undo(effect).outcome == "stuck"
        for _ in range(2):
            tb.recover()
            with pytest.raises(takeback.Stuck) as told:
                tb.undo(effect)
            assert "settle" in told.value.hint
        assert WORLD.count("refund") == 1
        undo = next(one for one in tb.effects() if one.is_undo)
        tb.settle(undo, True)
        assert tb.effect(effect.id).state is State.UNDONE


def test_what_was_found_not_to_have_been_taken_back_can_be_undone_again(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("buy") as run:
            run.call(charge)
        (effect,) = tb.effects()
        tb.undo(effect)
        tb.settle(next(one for one in tb.effects() if one.is_undo), False)
        WORLD.clear()
        assert tb.undo(effect).outcome == "done"
        assert WORLD == ["refund"]


def test_a_call_in_doubt_is_not_undone_before_someone_says_that_it_happened(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("buy") as run, pytest.raises(takeback.Stuck):
            run.call(blind)
        (effect,) = tb.effects()
        for wish in ("refuse", "force", "skip"):
            with pytest.raises(takeback.Stuck, match="in doubt") as told:
                tb.undo(effect, on_conflict=wish)
            assert "settle" in told.value.hint
        told = command(tb, "undo", "@")
        assert told.code == 4 and "settle" in told.err, told
        assert WORLD == []
        assert tb.effect(effect.id).state is State.STUCK


def test_a_result_that_is_no_json_is_told_and_the_call_is_recorded(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("buy") as run:
            for _ in range(2):
                with pytest.raises(takeback.Misuse, match="set, which is no JSON"):
                    run.call(odd, key="once")
        assert WORLD == ["odd"]
        assert tb.effects()[0].state is State.DONE


SCRIPT = """
import takeback
@takeback.action()
def order():
    with open("made", "a") as out:
        out.write("made\\n")
@order.undo
def cancel(receipt):
    with open("made", "a") as out:
        out.write("cancelled\\n")
{guard}
    with takeback.open() as tb, tb.run("shop") as run:
        run.call(order)
"""


@pytest.mark.parametrize("guard", ["if True:", "def main():", "for _ in range(1):"])
def test_a_script_is_not_run_again_to_find_its_undo(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tail = "\nmain()\n" if guard == "def main():" else ""
    (tmp_path / "agent_script.py").write_text(SCRIPT.format(guard=guard) + tail)
    environment = os.environ | {"TAKEBACK_STORE": str(store)}
    subprocess.run([sys.executable, "agent_script.py"], env=environment, check=True)
    with takeback.open(store) as tb:
        told = command(tb, "undo", "@")
        assert told.code == 5 and "__main__" in told.err, told
        assert Path("made").read_text() == "made\n"
        assert len(tb.runs()) == 1
        assert "this process only" in tb.effects()[0].remedy.residue  # type: ignore[union-attr]


def test_a_script_with_a_guard_is_found(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent_script.py").write_text(SCRIPT.format(guard='if __name__ == "__main__":'))
    environment = os.environ | {"TAKEBACK_STORE": str(store)}
    subprocess.run([sys.executable, "agent_script.py"], env=environment, check=True)
    with takeback.open(store) as tb:
        assert command(tb, "undo", "@").code == 0
    assert Path("made").read_text() == "made\ncancelled\n"


def test_a_module_that_begins_a_run_when_it_is_imported_is_stopped(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "busy_module.py").write_text(SCRIPT.format(guard="if True:"))
    environment = os.environ | {"TAKEBACK_STORE": str(store), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import busy_module"], env=environment, check=True)
    with takeback.open(store) as tb:
        told = command(tb, "undo", "@")
        assert told.code == 5 and "imported" in told.err, told
    assert Path("made").read_text() == "made\n"


@takeback.action(name="tests.slow", expects=lambda: WORLD.append("looked") is None, undo=see, timeout=7)
def slow(*, key: str) -> Any:
    WORLD.append("called")


def test_the_lease_is_looked_at_once_more_right_before_the_call(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked before it, and the intent, may have taken any time."""
    outlast = Heartbeat.outlast

    def told(self: Heartbeat, seconds: float, others: bool = False) -> None:
        WORLD.append(f"held for {seconds:g}")
        outlast(self, seconds)

    monkeypatch.setattr(Heartbeat, "outlast", told)
    with takeback.open(store) as tb, tb.run("buy") as run:
        run.call(slow)
    assert WORLD == ["held for 7", "looked", "held for 7", "called"]


@pytest.mark.parametrize(
    ("error", "told", "state"),
    [
        (takeback.LeaseLost, takeback.LeaseLost, State.INTENDED),  # whoever has the run settles it
        (takeback.Unavailable, takeback.DidNotHappen, State.ABORTED),
    ],
)
def test_who_does_not_hold_the_lease_any_more_when_it_is_about_to_call_does_not(
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[takeback.TakebackError],
    told: type[takeback.TakebackError],
    state: State,
) -> None:
    def taken(self: Heartbeat, seconds: float, others: bool = False) -> None:
        if "looked" in WORLD:
            raise error("It was away.")

    monkeypatch.setattr(Heartbeat, "outlast", taken)
    with takeback.open(store) as tb:
        run = tb.run("buy", on_death="accept")
        with pytest.raises(told, match="It was away"):
            run.call(slow)
        assert [one.state for one in tb.effects()] == [state]
    assert WORLD == ["looked"]
