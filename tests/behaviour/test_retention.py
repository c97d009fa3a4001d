"""Retention: three tiers, caps, explained decisions, a sweep that never takes what is needed."""

import json
import os

import pytest

import takeback
from takeback.model.ids import short
from tests.behaviour.conftest import Scene

HOUR = 3600


def later(scene: Scene, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    real = takeback.upkeep.now
    for place in ("takeback.api.now", "takeback.upkeep.now"):
        monkeypatch.setattr(place, lambda: real() + seconds * 1_000_000)


def settle(scene: Scene, **settings: int) -> None:
    with open(os.path.join(scene.tb.path, "settings.json"), "w") as file:
        json.dump(settings, file)


def test_what_nobody_accepted_is_never_forgotten_by_policy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.tb.session("open work") as run:
        run.write(scene.world / "a", "1")
    later(scene, monkeypatch, 1000 * HOUR)

    (decision,) = scene.tb.forget()

    assert not decision.forget
    assert "nobody has accepted it" in decision.why


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


def test_what_an_earlier_effect_needs_gone_first_is_not_forgotten_by_policy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody kept the first, so it can be undone for ever: also after a later one was kept long ago."""
    (scene.world / "around").mkdir()
    for name in ("same", "around/inside"):
        scene.put(name, "orig")
    with scene.tb.session("typed") as run:
        first = [run.write(scene.world / "same", "1"), run.write(scene.world / "around/inside", "1")]
    with scene.tb.run("later") as run:
        removed = run.delete(scene.world / "around")
    assert removed is not None
    later_ones = [scene.write("same", "2"), removed, scene.write("elsewhere", "2")]
    later(scene, monkeypatch, HOUR + 1)

    decisions = {one.effect.id: one for one in scene.tb.forget()}

    assert [decisions[one.id].forget for one in later_ones] == [False, False, True]
    for one, earlier in zip(later_ones, first, strict=False):
        assert earlier and f"an earlier effect, {short(earlier.id)}," in decisions[one.id].why
    scene.tb.undo([one for one in first if one], cascade=True)
    assert scene.text("same") == scene.text("around/inside") == "orig"


def test_what_declared_that_it_needs_an_effect_is_not_forgotten_before_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.tb.session("typed") as run:
        first = run.write(scene.world / "a", "1")
    assert first is not None
    with scene.tb.run("builds on it") as run:
        needing = run.write(scene.world / "b", "1", needs=[first])
    assert needing is not None
    later(scene, monkeypatch, HOUR + 1)

    assert not any(one.forget for one in scene.tb.forget())
    scene.tb.forget(first)
    assert [one.forget for one in scene.tb.forget()] == [False, True], "nothing leans on it any more"


def test_the_caps_do_not_bar_the_way_back_of_an_earlier_effect_either(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(scene, versions_per_file=1, store_bytes=0)
    scene.put("a", "orig")
    with takeback.open(scene.tb.path) as tb:
        with tb.session("typed") as run:
            first = run.write(scene.world / "a", "1")
        assert first is not None
        for n in range(4):
            with tb.run("version") as run:
                run.write(scene.world / "a", f"v{n}")
                run.write(scene.world / f"b{n}", "b")
        later(scene, monkeypatch, HOUR + 1)
        with tb.run("version") as run:
            run.write(scene.world / "a", "last")

        forgotten = [os.path.basename(one.change.resource) for one in tb.effects() if one.forgotten]
        assert sorted(forgotten) == ["b0", "b1", "b2", "b3"]
        tb.undo(first, cascade=True)
    assert scene.text("a") == "orig"


def test_forgetting_by_name_says_what_can_then_no_longer_be_undone(scene: Scene) -> None:
    first, second = scene.write("a", "1"), scene.write("a", "2")

    (decision,) = scene.tb.forget(second)
    assert decision.forget and f"{short(first.id)}, which came before, can then no longer" in decision.why

    (decision,) = scene.tb.forget(first)
    assert decision.why == "goes: someone asked for it by name"


def test_what_can_no_longer_be_undone_anyway_holds_nothing_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.tb.session("typed") as run:
        run.write(scene.world / "a", "1")
    barring, last = scene.write("a", "2"), scene.write("a", "3")
    scene.tb.forget(barring)
    later(scene, monkeypatch, HOUR + 1)

    scene.tb.forget()

    assert scene.tb.effect(last.id).forgotten
