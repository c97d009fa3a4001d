"""A signal before a call is begun keeps it from being begun; one that comes later waits for it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from examples.office import ROOT
from takeback.model.effect import State
from takeback.model.run import RunState
from takeback.runs.lease import OwnLock

SIGNALS = [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit 143")]
each_signal = pytest.mark.parametrize(("number", "ended"), SIGNALS, ids=["SIGINT", "SIGTERM"])


def asker(store: Path, mode: str, file: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "tests.calls.slow_asker", str(store), mode, str(file)]
    return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def interrupted(store: Path, mode: str, file: Path, number: int) -> str:
    """While it is asked; the answer comes right after it."""
    process = asker(store, mode, file)
    assert process.stdout
    assert process.stdout.readline() == "asked\n"
    process.send_signal(number)
    return process.communicate("yes\n", timeout=60)[0].strip()


def suspended_with(store: Path) -> list[State]:
    """The run has stopped, and nothing is in flight."""
    with takeback.open(store, recover=False) as tb:
        assert [run.state for run in tb.runs()] == [RunState.SUSPENDED]
        return [one.state for one in tb.effects()]


@each_signal
@pytest.mark.parametrize("mode", ["call", "write", "check"])
def test_what_is_still_being_asked_about_is_given_up(
    store: Path, swift_path: Path, mode: str, number: int, ended: str
) -> None:
    file = swift_path / "notes"
    assert interrupted(store, mode, file, number) == ended
    assert not file.exists()
    assert suspended_with(store) in ([], [State.ABORTED])


@each_signal
@pytest.mark.parametrize("mode", ["call", "write"])
def test_a_signal_that_comes_with_the_intent_comes_before_anything_is_begun(
    store: Path, swift_path: Path, mode: str, number: int, ended: str
) -> None:
    file = swift_path / "notes"
    process = asker(store, f"{mode} {int(number)}", file)
    assert process.communicate(timeout=60)[0].strip() == ended
    assert not file.exists()
    assert suspended_with(store) == [State.ABORTED]


@each_signal
def test_a_call_that_is_under_way_is_waited_for(
    store: Path, swift_path: Path, number: int, ended: str
) -> None:
    file = swift_path / "notes"
    assert interrupted(store, "under-way", file, number) == ended
    assert file.read_text() == "one\n"
    assert suspended_with(store) == [State.DONE]


def test_after_a_given_up_call_the_run_goes_on_and_makes_it_once(store: Path, swift_path: Path) -> None:
    file = swift_path / "notes"
    process = asker(store, f"call {int(signal.SIGINT)}", file)
    assert process.communicate(timeout=60)[0].strip() == "KeyboardInterrupt"
    from tests.calls import slow_asker

    slow_asker.FILE = file
    with takeback.open(store) as tb, tb.resume(tb.runs()[0]) as run:
        assert run.call(slow_asker.note_at_once, "one") == "one"
    assert file.read_text() == "one\n"


MADE: list[str] = []


def unmake(receipt: str) -> None:
    MADE.remove(receipt)


@takeback.action(undo=unmake)
def note(word: str) -> str:
    MADE.append(word)
    return word


def test_a_signal_right_after_a_call_got_its_turn_leaves_the_turn_free(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same key could not be asked for again, and other threads would wait for it for ever."""
    MADE.clear()
    let_go = OwnLock.__exit__

    def interrupted_once(self: OwnLock, *error: object) -> None:
        let_go(self, *error)
        if self.under_way:
            monkeypatch.setattr(OwnLock, "__exit__", let_go)
            raise KeyboardInterrupt

    with takeback.open(store) as tb, tb.run("agent") as run:
        monkeypatch.setattr(OwnLock, "__exit__", interrupted_once)
        with pytest.raises(KeyboardInterrupt):
            run.call(note, word="one", key="k")
        assert MADE == []
        assert run.call(note, word="one", key="k") == "one"
    assert MADE == ["one"]
