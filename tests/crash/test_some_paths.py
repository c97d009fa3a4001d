"""Undo of some paths, the undo of the rest, and redos, killed anywhere: whoever comes after finishes exactly that."""

from typing import Any

import pytest

import takeback
from takeback.testing.crash import Boundaries, killed_everywhere, open_wrapped
from tests.crash.scenes import Known, Scene, assert_settled, settle, sweep
from tests.world import Picture

STEPS = ("some", "others", "rest", "redo some", "redo rest")


@pytest.fixture(autouse=True)
def timeless(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every preparation writes its files at another time."""
    whole = scene.picture

    def without_times() -> Picture:
        return {
            path: {name: it for name, it in seen.items() if name != "mtime"} for path, seen in whole().items()
        }

    monkeypatch.setattr(scene, "picture", without_times)


def changed(tb: takeback.Takeback, scene: Scene, how: str) -> None:
    with tb.run("change") as run:
        if how == "written":
            run.write_all({scene / name: b"new\n" for name in ("run.sh", "data.json", "conf.toml", "fresh")})
            return
        with run.watch(scene.world):
            (scene.world / "run.sh").write_bytes(b"new\n")
            (scene.world / "conf.toml").write_bytes(b"new\n")
            (scene.world / "data.json").rename(scene.world / "moved.json")
            (scene.world / "tree" / "one").write_bytes(b"new\n")  # it has another name
            (scene.world / "fresh").mkdir()
            (scene.world / "fresh" / "a").write_bytes(b"a\n")


def the_effect(tb: takeback.Takeback) -> takeback.Effect:
    return next(one for one in tb.effects(run="change") if not one.is_undo)


def take(tb: takeback.Takeback, scene: Scene, step: str, on_conflict: str = "refuse") -> None:
    effect = the_effect(tb)
    if step == "some":
        tb.undo(effect, paths=[scene / "run.sh", scene / "data.json"], on_conflict=on_conflict)
    elif step == "others":
        tb.undo(effect, paths=[scene / "fresh"], on_conflict=on_conflict)
    elif step == "rest":
        tb.undo(effect)
    else:
        undos = [one for one in tb.effects() if one.undoes == effect.id]
        tb.redo(undos[0 if step == "redo some" else 2])


@pytest.mark.sampled(10, always=("written-some-False",))
@pytest.mark.parametrize("dying", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["written", "watched"])
def test_each_step_killed_anywhere_is_that_step_or_nothing(
    scene: Scene, how: str, step: str, dying: bool
) -> None:
    def prepare() -> Known:
        scene.prepare()
        with scene.open() as tb:
            changed(tb, scene, how)
            for earlier in STEPS[: STEPS.index(step)]:
                take(tb, scene, earlier)
        return Known(scene.picture(), after, exact=False)

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            take(tb, scene, step)

    after: Any = {}
    prepare()
    action(Boundaries())
    after = scene.picture()
    assert sweep(scene, prepare, action, dying=dying) > 10


@pytest.mark.sampled(6)
@pytest.mark.parametrize("on_conflict", ["merge", "skip", "force"])
def test_some_paths_beside_a_foreign_edit_killed_anywhere_end_as_they_were_asked_for(
    scene: Scene, on_conflict: str
) -> None:
    lines = "".join(f"line {number}\n" for number in range(20))

    def prepare() -> Known:
        scene.prepare()
        (scene.world / "run.sh").write_text(lines)
        with scene.open() as tb, tb.run("change") as run:
            edited = lines.replace("line 3\n", "line three\n")
            run.write_all({scene / "run.sh": edited, scene / "data.json": b"{}", scene / "conf.toml": b""})
        (scene.world / "run.sh").write_text(edited.replace("line 17\n", "someone else's\n"))
        return Known(scene.picture(), after, exact=False)

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            take(tb, scene, "some", on_conflict)

    after: Any = {}
    prepare()
    action(Boundaries())
    after = scene.picture()
    assert sweep(scene, prepare, action, dying=False, foreign=True) > 10


def test_after_any_death_the_rest_can_be_undone_and_each_undo_redone(scene: Scene) -> None:
    """What the journal says stands is what stands: the way back to the beginning is found from there."""

    def prepare() -> None:
        nonlocal before
        scene.prepare()
        before = scene.picture()
        with scene.open() as tb:
            changed(tb, scene, "watched")

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            take(tb, scene, "some")
            take(tb, scene, "others")

    def check(at: int) -> None:
        where = f"killed at boundary {at}"
        settle(scene)
        stands = scene.picture()
        with scene.open() as tb:
            effect = the_effect(tb)
            rest = tb.undo(effect)
            assert scene.picture() == before, where
            tb.redo(rest)
            assert scene.picture() == stands, where
        assert_settled(scene, where)

    before: Any = {}
    assert killed_everywhere(prepare, action, check, step=3) > 10
