"""The engine believes what it sees, not what it is told."""

import pytest

import takeback
from takeback.adapters.protocol import Receipt
from takeback.api import opened_of
from takeback.model.effect import Effect
from tests.behaviour.conftest import Scene


def test_an_apply_that_did_nothing_is_found_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = opened_of(scene.tb).parts.adapters["file"]
    monkeypatch.setattr(adapter, "apply", lambda effect: Receipt())

    with scene.tb.run("lie") as run, pytest.raises(takeback.VerifyFailed):
        run.write(scene.world / "a", "1")

    assert scene.text("a") is None
    assert [one.state.value for one in scene.tb.effects()] == ["aborted"]


def test_an_apply_that_wrote_something_else_is_stuck_and_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = opened_of(scene.tb).parts.adapters["file"]

    def garble(effect: Effect) -> Receipt:
        scene.put("a", "something else")
        return Receipt()

    with monkeypatch.context() as patched:
        patched.setattr(adapter, "apply", garble)
        with pytest.raises(takeback.Stuck), scene.tb.run("garble") as run:
            run.write(scene.world / "a", "1")

    (effect,) = scene.tb.effects()
    assert effect.state.value == "stuck"
    assert scene.text("a") == "something else", "what we cannot vouch for is left alone"


def test_a_stuck_effect_blocks_its_path_until_a_person_put_it_right(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_an_apply_that_wrote_something_else_is_stuck_and_says_so(scene, monkeypatch)
    with scene.tb.run("again") as run, pytest.raises(takeback.Blocked, match="stuck"):
        run.write(scene.world / "a", "2")

    (scene.world / "a").unlink()
    (settled,) = scene.tb.recover()

    assert settled.outcome == "aborted"
    with scene.tb.run("now") as run:
        run.write(scene.world / "a", "2")
    assert scene.text("a") == "2"


@pytest.mark.parametrize("several", [False, True])
def test_undo_of_a_run_with_a_stuck_effect_takes_back_the_rest_and_is_not_called_done(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    adapter = opened_of(scene.tb).parts.adapters["file"]

    def garble(effect: Effect) -> Receipt:
        scene.put("a", "something else")
        return Receipt()

    run = scene.tb.session("left open")
    run.write(scene.world / "b", "1")
    with monkeypatch.context() as patched, pytest.raises(takeback.Stuck):
        patched.setattr(adapter, "apply", garble)
        run.write(scene.world / "a", "1")
    run.leave()

    result = scene.tb.undo([run.id] if several else run.id)

    assert result.outcome == "stuck"
    assert [one.state.value for one in result.effects] == ["undone", "stuck"]
    assert (scene.text("a"), scene.text("b")) == ("something else", None)


def test_a_change_of_an_open_effect_waits_for_its_turn(scene: Scene) -> None:
    """Two runs of one process on one file: the second sees what the first left."""
    with scene.tb.run("one") as one, scene.tb.run("two") as two:
        one.write(scene.world / "a", "1")
        two.write(scene.world / "a", "2")

    first, second = scene.tb.effects()
    assert second.targets[0].before["digest"] == first.targets[0].after["digest"]
