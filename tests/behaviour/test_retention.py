"""Retention: three tiers, caps, explained decisions, a sweep that never takes what is needed."""

import json
import os

import pytest

import takeback
from takeback.audit.status import look, status_json
from takeback.model.ids import short
from takeback.model.record import Kind
from takeback.model.settings import Limits
from takeback.storage.notes import Bound, GivenUp, note, was_told
from tests.behaviour.conftest import Scene

HOUR = 3600
TERM = 30 * 24 * HOUR


def later(scene: Scene, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    real = takeback.api.upkeep.now
    for place in ("takeback.api.store.now", "takeback.api.upkeep.now"):
        monkeypatch.setattr(place, lambda: real() + seconds * 1_000_000)


def settle(scene: Scene, **settings: int) -> None:
    with open(os.path.join(scene.tb.path, "settings.json"), "w") as file:
        json.dump(settings, file)


def test_what_nobody_accepted_stays_and_what_was_typed_counts_as_accepted_in_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.tb.session("open work") as run:
        run.write(scene.world / "a", "1")
    with scene.tb.run("left open") as run:
        run.write(scene.world / "b", "1")
        later(scene, monkeypatch, TERM - 1)
        typed, made = scene.tb.forget()
        assert not typed.forget and "counts as accepted after 30 days" in typed.why
        assert not made.forget and "it is not accepted" in made.why
        later(scene, monkeypatch, TERM + 2)  # and once more as long
        typed, made = scene.tb.forget()
        assert typed.forget and not made.forget


def test_what_was_accepted_goes_after_thirty_days_and_not_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = scene.write("a", "1")
    assert [one.forget for one in scene.tb.forget()] == [False]

    later(scene, monkeypatch, TERM - 1)
    assert [one.forget for one in scene.tb.forget()] == [False]
    later(scene, monkeypatch, 2)
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


def test_a_store_over_its_cap_forgets_the_oldest_accepted_by_itself(
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
    """Nobody accepted the first, so it can be undone: also after a later one was accepted long ago."""
    (scene.world / "around").mkdir()
    for name in ("same", "around/inside"):
        scene.put(name, "orig")
    with scene.tb.session("typed") as run:
        first = [run.write(scene.world / "same", "1"), run.write(scene.world / "around/inside", "1")]
    with scene.tb.run("later") as run:
        removed = run.delete(scene.world / "around")
    assert removed is not None
    later_ones = [scene.write("same", "2"), removed, scene.write("elsewhere", "2")]
    later(scene, monkeypatch, TERM + 1)

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
    later(scene, monkeypatch, TERM + 1)

    assert not any(one.forget for one in scene.tb.forget())
    scene.tb.forget(first)
    assert [one.forget for one in scene.tb.forget()] == [False, True], "nothing leans on it any more"


def test_the_caps_do_not_bar_the_way_back_of_an_earlier_effect_either(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(scene, versions_per_file=1, store_bytes=1)
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
    later(scene, monkeypatch, TERM + 1)

    scene.tb.forget()

    assert scene.tb.effect(last.id).forgotten


def over_the_cap(scene: Scene, monkeypatch: pytest.MonkeyPatch, **settings: int) -> list[takeback.Effect]:
    """Five effects of 2 MB each, made more than an hour ago; the caller ends the run that is over the cap."""
    settle(scene, **{"store_bytes": 5_000_000, "grace_seconds": 0} | settings)
    effects: list[takeback.Effect] = []
    with takeback.open(scene.tb.path) as tb:
        for n in range(5):
            scene.put(f"f{n}", os.urandom(2_000_000))
            with tb.run("shrink") as run:
                effect = run.write(scene.world / f"f{n}", "small")
            assert effect is not None
            effects.append(effect)
    later(scene, monkeypatch, HOUR + 1)
    return effects


def test_first_day_5_nothing_is_given_up_without_a_note(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = over_the_cap(scene, monkeypatch)
    with takeback.open(scene.tb.path) as tb:
        with tb.run("one more") as run:
            run.write(scene.world / "x", "y")
        gone = [one.id for one in effects if tb.effect(one.id).forgotten]
        assert gone and [one.effect for one in tb.given_up] == gone
        status = look(tb.store, tb.size(), takeback.api.now())
        assert [one.effect for one in status.given_up] == gone
        assert set(gone) <= set(status_json(status)["attention"])
        assert {one.bound.setting for one in status.given_up} == {"store_bytes"}
        told = list(tb.store.journal.records(kinds=(Kind.FORGET,)))
        assert [one.body["bound"] for one in told] == ["store"] * len(gone)
        was_told(tb.path, gone)
        assert look(tb.store, tb.size(), takeback.api.now()).given_up == ()


def test_a_note_of_what_was_not_forgotten_after_all_is_not_shown(scene: Scene) -> None:
    """As a kill leaves it between the note and the record."""
    effect = scene.write("a", "1")
    note(scene.tb.path, [GivenUp(effect.id, Bound.STORE, effect.at, 5)])
    assert look(scene.tb.store, 0, takeback.api.now()).given_up == ()


def test_what_is_pinned_stays_with_what_its_undo_needs_and_counts_beside_the_cap(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = over_the_cap(scene, monkeypatch)
    with takeback.open(scene.tb.path) as tb:
        tb.pin(effects[0])
        with tb.run("over it") as run:
            above = run.write(scene.world / "f0", "again")
        assert above is not None
        assert [tb.effect(one.id).forgotten for one in effects] == [False, True, True, False, False]
        assert look(tb.store, tb.size(), takeback.api.now()).pinned_bytes > 1_900_000
        later(scene, monkeypatch, TERM)
        decisions = {one.effect.id: one for one in tb.forget()}
        assert decisions[effects[0].id].why == "stays: it is pinned"
        assert not decisions[above.id].forget and short(effects[0].id) in decisions[above.id].why
        with pytest.raises(takeback.Refused, match="is pinned"):
            tb.forget(effects[0])
        with pytest.raises(takeback.Refused, match="could not be undone without"):
            tb.forget(above)
        tb.unpin(effects[0])
        assert any(one.effect.id == effects[0].id and one.forget for one in tb.forget())


def test_too_little_free_space_takes_the_oldest_too_and_names_its_own_setting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = over_the_cap(scene, monkeypatch, store_bytes=1 << 40)
    with takeback.open(scene.tb.path) as tb:
        free = tb.store.free_bytes()
        monkeypatch.setattr(type(tb.store), "limits", lambda self: Limits(1 << 40, free + 1_000_000))
        monkeypatch.setattr(type(tb.store), "free_bytes", lambda self: free)
        with tb.run("one more") as run:
            run.write(scene.world / "x", "y")
        assert [tb.effect(one.id).forgotten for one in effects] == [True, False, False, False, False]
        assert [one.bound for one in tb.given_up] == [Bound.DISK]


def test_a_capture_is_refused_with_sizes_when_nothing_can_go(scene: Scene) -> None:
    scene.put("large", os.urandom(3_000_000))
    settle(scene, free_bytes=1 << 50)
    with takeback.open(scene.tb.path) as tb, tb.run("large") as run:
        run.write(scene.world / "small", "1")  # a small one may use what is kept free
        with pytest.raises(
            takeback.StoreFull, match=r"GB free; this change needs 2\.\d MB .* 1024 TB must stay free"
        ):
            run.write(scene.world / "large", "1")
    assert (scene.world / "large").stat().st_size == 3_000_000


def test_the_preset_small_is_an_hour_500_mb_and_50_versions(scene: Scene) -> None:
    with open(os.path.join(scene.tb.path, "settings.json"), "w") as file:
        json.dump({"retention": "small", "versions_per_file": 7}, file)
    with takeback.open(scene.tb.path) as tb:
        found = tb.store.settings
    assert (found.accepted_seconds, found.store_bytes, found.versions_per_file) == (HOUR, 500 << 20, 7)
    with open(os.path.join(scene.tb.path, "settings.json"), "w") as file:
        json.dump({"retention": "tiny"}, file)
    with pytest.raises(takeback.Misuse, match="no retention 'tiny'"):
        takeback.open(scene.tb.path)
    os.unlink(os.path.join(scene.tb.path, "settings.json"))


@pytest.mark.parametrize("state", ["at work", "suspended", "dead"])
def test_finding_31_what_a_run_may_still_take_back_cannot_be_forgotten(scene: Scene, state: str) -> None:
    run = scene.tb.run("live").__enter__()
    effect = run.write(scene.world / "a", "new")
    if state == "suspended":
        run.suspend("it waits")
    elif state == "dead":
        run.leave()

    with pytest.raises(takeback.Refused, match="may still take it back"):
        scene.tb.forget(effect)

    assert not scene.tb.effect(effect.id).forgotten
    if state == "at work":
        run.accept(effect)
        scene.tb.forget(effect)
        assert scene.tb.effect(effect.id).forgotten
        run.close()
    elif state == "dead":
        scene.tb.recover()
        assert not (scene.world / "a").exists()


def test_finding_31_the_session_of_the_command_line_may_be_forgotten_from(scene: Scene) -> None:
    with scene.tb.session("command line") as run:
        effect = run.write(scene.world / "a", "new")
    scene.tb.forget(effect)
    assert scene.tb.effect(effect.id).forgotten
