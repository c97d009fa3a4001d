"""Runs: keeping, failing, checkpoints, keys, preconditions, leases, signals."""

import json
import os
import signal
import subprocess
import sys

import pytest

import takeback
from tests.behaviour.conftest import Scene


def test_a_normal_end_keeps_and_an_exception_takes_back(scene: Scene) -> None:
    with scene.tb.run("good") as run:
        run.write(scene.world / "a", "1")
    with pytest.raises(ValueError, match="no"), scene.tb.run("bad") as run:
        run.write(scene.world / "b", "2")
        raise ValueError("no")

    assert (scene.text("a"), scene.text("b")) == ("1", None)
    assert [info.state.value for info in scene.tb.runs()] == ["accepted", "undone"]


def test_what_was_kept_stays_when_its_run_fails(scene: Scene) -> None:
    with pytest.raises(ValueError, match="no"), scene.tb.run("half") as run:
        kept = run.write(scene.world / "a", "1")
        assert kept is not None
        run.accept(kept)
        run.write(scene.world / "b", "2")
        raise ValueError("no")

    assert (scene.text("a"), scene.text("b")) == ("1", None)


def test_a_failing_run_leaves_what_someone_edited_since_and_says_so(scene: Scene) -> None:
    with pytest.raises(ValueError, match="no") as failed, scene.tb.run("half") as run:
        run.write(scene.world / "a", "1")
        run.write(scene.world / "b", "2")
        scene.put("a", "person")
        raise ValueError("no")

    assert (scene.text("a"), scene.text("b")) == ("person", None)
    assert any("stay" in note for note in failed.value.__notes__)


def test_a_write_that_changes_nothing_leaves_no_effect(scene: Scene) -> None:
    scene.put("a", "same")
    before = scene.world.picture(directory_times=True)

    with scene.tb.run("nothing") as run:
        assert run.write(scene.world / "a", "same") is None

    assert scene.tb.effects() == ()
    assert scene.world.picture(directory_times=True) == before


def test_the_effect_handed_back_is_the_one_in_the_journal(scene: Scene) -> None:
    with scene.tb.run("same") as run:
        plain = run.write(scene.world / "a", "1")
        checked = run.write(scene.world / "b", "2", checks=[takeback.checks.command("test -s {staged}")])
        assert plain is not None and checked is not None
        assert scene.tb.effect(plain.id) == plain
        assert scene.tb.effect(checked.id) == checked


def test_the_same_key_is_done_once(scene: Scene) -> None:
    with scene.tb.run("keyed") as run:
        first = run.write(scene.world / "a", "1", key="k")
        scene.put("a", "changed since")
        second = run.write(scene.world / "a", "1", key="k")

    assert first is not None and second is not None
    assert first.id == second.id
    assert scene.text("a") == "changed since"


def test_the_same_key_for_another_change_is_refused(scene: Scene) -> None:
    with scene.tb.run("keyed") as run:
        run.write(scene.world / "a", "1", key="k")
        with pytest.raises(takeback.KeyReused):
            run.write(scene.world / "a", "2", key="k")

    assert scene.text("a") == "1"


def test_a_precondition_that_does_not_hold_stops_the_change(scene: Scene) -> None:
    with scene.tb.run("conditional") as run, pytest.raises(takeback.PreconditionFailed):
        run.write(scene.world / "a", "1", expects=lambda: False)

    assert scene.text("a") is None


def test_undo_to_a_checkpoint_gives_the_agents_state_back(scene: Scene) -> None:
    with scene.tb.run("steps") as run:
        run.write(scene.world / "a", "1")
        run.checkpoint("before b", state={"step": 1, "confidence": 0.5})
        run.write(scene.world / "b", "2")
        run.write(scene.world / "a", "3")

        result = run.undo(to="before b")

        assert result.state == {"step": 1, "confidence": 0.5}
    assert (scene.text("a"), scene.text("b")) == ("1", None)


def test_checkpoints_come_by_themselves_every_ten_effects(scene: Scene) -> None:
    with scene.tb.run("long") as run:
        for n in range(25):
            run.write(scene.world / "a", str(n))

    automatic = [one for one in scene.tb.checkpoints() if one.automatic]
    assert len(automatic) == 2


def test_state_that_is_not_json_is_refused(scene: Scene) -> None:
    with scene.tb.run("odd") as run, pytest.raises(takeback.Misuse, match="JSON"):
        run.checkpoint("here", state={"f": print})


def test_a_run_that_ended_takes_no_more_changes(scene: Scene) -> None:
    with scene.tb.run("short") as run:
        pass
    with pytest.raises(takeback.Misuse, match="ended"):
        run.write(scene.world / "a", "1")


def test_no_change_may_touch_the_store_itself(scene: Scene) -> None:
    with scene.tb.run("evil") as run:
        with pytest.raises(takeback.Refused, match="own store"):
            run.delete(scene.tb.path)
        with pytest.raises(takeback.Refused, match="own store"):
            run.delete(os.path.dirname(scene.tb.path))
        with pytest.raises(takeback.Refused, match="own store"):
            run.write(os.path.join(scene.tb.path, "journal.db"), "x")


INTERRUPTED = """
import os, signal, sys, takeback
tb = takeback.open(sys.argv[1])
with tb.run("long", agent="a") as run:
    run.write(sys.argv[2], "finished")
    hit = takeback.checks.after(lambda staged: os.kill(os.getpid(), int(sys.argv[4])), name="signal")
    run.write(sys.argv[3], "in hand", checks=[hit])
    run.write(sys.argv[2], "never reached")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_the_effect_in_hand_and_suspends_the_run(
    scene: Scene, number: signal.Signals
) -> None:
    first, second = scene.world / "a", scene.world / "b"
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, scene.tb.path, first, second, str(int(number))],
        capture_output=True,
        check=False,
    )

    assert ended.returncode in (143, 130, -signal.SIGINT), ended.stderr.decode()
    assert (scene.text("a"), scene.text("b")) == ("finished", "in hand")
    (info,) = scene.tb.runs()
    assert info.state.value == "suspended"
    assert [one.label for one in scene.tb.checkpoints(info)][-1].startswith("interrupted")
    with scene.tb.resume(info) as run:
        run.write(first, "resumed")
    assert scene.text("a") == "resumed"


def test_a_run_of_a_living_process_is_not_recovered_by_another(scene: Scene) -> None:
    look = "import sys, json, takeback; print(json.dumps([s.outcome for s in takeback.open(sys.argv[1]).recover()]))"
    with scene.tb.run("alive") as run:
        run.write(scene.world / "a", "1")
        seen = subprocess.run(
            [sys.executable, "-c", look, scene.tb.path], capture_output=True, check=True, text=True
        )
        assert json.loads(seen.stdout) == []
        run.write(scene.world / "b", "2")

    assert (scene.text("a"), scene.text("b")) == ("1", "2")


def test_a_checkpoint_can_stand_at_an_earlier_position(scene: Scene) -> None:
    tb = scene.tb
    run = tb.run("thread")
    run.write(scene.world / "a", "1")
    before = run.position()
    run.write(scene.world / "a", "2")
    run.write(scene.world / "b", "b")
    named = run.checkpoint("step 1", {"step": 1}, at=before)
    assert (named.seq, named.at) == before and tb.checkpoints()[-1] == named
    run.undo(to="step 1")
    assert (scene.world / "a").read_text() == "1" and not (scene.world / "b").exists()
    for wrong in (takeback.Position(0, 0), before._replace(seq=10**9), 7):
        with pytest.raises(takeback.Misuse, match="is no position of this store"):
            run.checkpoint("x", at=wrong)  # pyright: ignore[reportArgumentType]
    run.close()


def test_effects_are_found_by_what_their_watch_was_told(scene: Scene) -> None:
    tb = scene.tb
    run = tb.run("thread")
    for call in ("1", "2", "3"):
        with run.watch(scene.world.root, about={"session": "s", "call": call}):
            (scene.world / call).write_text(call)
    run.write(scene.world / "own", "4")
    names = [[one.resource[-1] for one in effect.targets] for effect in tb.effects(about={"session": "s"})]
    assert names == [["1"], ["2"], ["3"]]
    assert len(tb.effects(about={"session": "s"}, newest=True, limit=2)) == 2
    (second,) = tb.effects(about={"session": "s", "call": "2"}, since="10m")
    assert second.targets[0].resource.endswith("/2")
    assert tb.effects(about={"call": "4"}) == ()
    with pytest.raises(takeback.Misuse, match="says nothing about a watch"):
        tb.effects(about="s")  # pyright: ignore[reportArgumentType]
    run.close()
