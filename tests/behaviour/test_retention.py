"""Retention: three tiers, caps, explained decisions, a sweep that never takes what is needed."""

import json
import os

import pytest

import takeback
from tests.behaviour.conftest import Scene

HOUR = 3600


def later(scene: Scene, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    real = takeback.api.now
    monkeypatch.setattr("takeback.api.now", lambda: real() + seconds * 1_000_000)


def settle(scene: Scene, **settings: int) -> None:
    with open(os.path.join(scene.tb.path, "settings.json"), "w") as file:
        json.dump(settings, file)


def test_what_nobody_kept_is_never_forgotten_by_policy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene.tb.session("open work") as run:
        run.write(scene.world / "a", "1")
    later(scene, monkeypatch, 1000 * HOUR)

    (decision,) = scene.tb.forget()

    assert not decision.forget
    assert "nobody has kept it" in decision.why


def test_what_was_kept_goes_after_an_hour_and_not_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = scene.write("a", "1")
    assert [one.forget for one in scene.tb.forget()] == [False]

    later(scene, monkeypatch, HOUR + 1)
    (decision,) = scene.tb.forget(dry_run=True)
    assert decision.forget and "longer than" in decision.why
    assert not scene.tb.effect(effect.id).forgotten, "a dry run forgets nothing"

    scene.tb.forget()
    assert scene.tb.effect(effect.id).forgotten


def test_undo_of_what_was_forgotten_is_refused(scene: Scene) -> None:
    effect = scene.write("a", "1")
    scene.tb.forget(effect)

    with pytest.raises(takeback.Forgotten):
        scene.tb.undo(effect)

    assert scene.text("a") == "1"


def test_sweep_frees_what_only_forgotten_effects_needed_and_nothing_else(scene: Scene) -> None:
    scene.put("a", os.urandom(2_000_000))
    scene.put("b", os.urandom(2_000_000))
    before_b = (scene.world / "b").read_bytes()
    gone, needed = scene.write("a", "1"), scene.write("b", "2")

    assert scene.tb.sweep(grace=0) < 1_000_000, "both are still needed"
    scene.tb.forget(gone)
    freed = scene.tb.sweep(grace=0)

    assert 1_900_000 < freed < 2_200_000
    scene.tb.undo(needed)
    assert (scene.world / "b").read_bytes() == before_b


def test_a_young_blob_is_not_swept(scene: Scene) -> None:
    scene.put("a", os.urandom(2_000_000))
    scene.tb.forget(scene.write("a", "1"))

    assert scene.tb.sweep() == 0


def test_a_store_over_its_cap_forgets_the_oldest_kept_by_itself(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(scene, store_bytes=5_000_000, grace_seconds=0)
    effects: list[takeback.Effect] = []
    with takeback.open(scene.tb.path) as tb:
        for n in range(5):
            scene.put(f"f{n}", os.urandom(2_000_000))
            with tb.run("shrink") as run:
                effect = run.write(scene.world / f"f{n}", "small")
            assert effect is not None
            effects.append(effect)
        assert tb.size() > 9_000_000, "within the hour nothing goes, cap or not"
        later(scene, monkeypatch, HOUR + 1)
        with tb.run("one more") as run:
            run.write(scene.world / "x", "y")
        assert tb.size() < 6_500_000
        assert [tb.effect(one.id).forgotten for one in effects] == [True, True, True, False, False]


def test_more_versions_of_a_file_than_the_cap_lose_the_oldest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(scene, versions_per_file=3)
    with takeback.open(scene.tb.path) as tb:
        for n in range(5):
            with tb.run("version") as run:
                run.write(scene.world / "a", str(n))
        later(scene, monkeypatch, HOUR + 1)
        with tb.run("version") as run:
            run.write(scene.world / "a", "last")
        assert [one.forgotten for one in tb.effects()] == [True, True, True, False, False, False]


def test_a_setting_that_does_not_exist_is_an_error(scene: Scene) -> None:
    settle(scene, keep_secconds=3)
    with pytest.raises(takeback.Misuse, match="keep_secconds"):
        takeback.open(scene.tb.path)
    os.unlink(os.path.join(scene.tb.path, "settings.json"))
