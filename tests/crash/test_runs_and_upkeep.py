"""Whole runs, undo of many, keep, forget and sweep: killed anywhere, nothing is lost and nothing is half."""

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

import takeback
from takeback.api import opened_of
from takeback.model.mounts import SANDBOX_NOTE, SANDBOX_TRIAL
from takeback.testing.crash import Boundaries, killed_everywhere, open_wrapped, wrap_system_calls
from tests.crash.scenes import Known, Scene, assert_settled, settle, sweep


def three_changes(scene: Scene, run: takeback.Run) -> None:
    run.write(scene / "run.sh", b"first\n")
    run.delete(scene / "tree")
    run.write(scene / "run.sh", b"second\n")


def after_three(scene: Scene) -> Known:
    """A run that ended well; what undoing it must bring back, exactly."""
    scene.prepare()
    original = scene.picture()
    with scene.open() as tb, tb.run("three", agent="a") as run:
        three_changes(scene, run)
    return Known(scene.picture(), original, exact=True)


recovery = pytest.mark.parametrize(
    "dying",
    [
        pytest.param(False, id="recovery lives"),
        pytest.param(True, id="recovery is killed too", marks=pytest.mark.slow),
    ],
)


@pytest.mark.sampled(3, whole=True)
@recovery
def test_a_run_killed_anywhere_is_taken_back_unless_it_had_ended_well(scene: Scene, dying: bool) -> None:
    known = after_three(scene)

    def prepare() -> Known:
        scene.prepare()
        return Known(scene.picture(), known.before, exact=False)

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb, tb.run("three", agent="a") as run:
            three_changes(scene, run)

    assert sweep(scene, prepare, action, dying=dying) > 40


@pytest.mark.sampled(3, whole=True)
@recovery
def test_undo_of_a_whole_run_killed_anywhere_is_carried_to_its_end(scene: Scene, dying: bool) -> None:
    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            tb.undo(tb.find_run("three"))

    assert sweep(scene, lambda: after_three(scene), action, dying=dying) > 40


@pytest.mark.sampled(3, whole=True)
def test_a_failing_run_killed_while_it_takes_itself_back_is_still_taken_back(scene: Scene) -> None:
    scene.prepare()
    before = scene.picture()

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            try:
                with tb.run("fails") as run:
                    three_changes(scene, run)
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass

    def check(at: int) -> None:
        settle(scene)
        assert scene.picture() == before, f"killed at boundary {at}"
        assert_settled(scene, f"killed at boundary {at}")

    assert killed_everywhere(scene.prepare, action, check, step=2) > 30


@pytest.mark.sampled(3, whole=True)
def test_what_was_kept_stays_when_its_run_is_killed(scene: Scene) -> None:
    outcomes: set[str] = set()

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb, tb.run("keeps one") as run:
            effect = run.write(scene / "kept", b"kept")
            assert effect
            run.accept(effect)
            run.write(scene / "not kept", b"not")
            raise SystemExit

    def check(at: int) -> None:
        with scene.open() as tb:
            kept = [effect for effect in tb.effects(path=scene / "kept") if effect.accepted_by == "person"]
        assert (scene.world / "kept").exists() == bool(kept), f"killed at boundary {at}"
        assert not (scene.world / "not kept").exists(), f"killed at boundary {at}"
        outcomes.add("kept" if kept else "gone")
        assert_settled(scene, f"killed at boundary {at}")

    def action_that_ends(boundaries: Boundaries) -> None:
        try:
            action(boundaries)
        except SystemExit:
            return

    assert killed_everywhere(scene.prepare, action_that_ends, check, step=2) > 10
    assert outcomes == {"kept", "gone"}


def with_history(scene: Scene) -> list[str]:
    """Ten effects of which the first five may be forgotten; contents small and large."""
    scene.prepare()
    with scene.open() as tb:
        with tb.run("old") as run:
            for number in range(5):
                write(run, scene, f"old {number}", number)
            old = [effect.id for effect in run.effects()][::-1]
        with tb.run("new") as run:
            for number in range(5):
                write(run, scene, f"new {number}", number)
    return old


def write(run: takeback.Run, scene: Scene, name: str, number: int) -> None:
    large = Random(name).randbytes(300_000)  # incompressible: goes to a pack, not into the journal's database
    run.write(scene / name, large if number % 2 else name.encode() * 300)
    run.write(scene / name, large[::-1] if number % 2 else name.encode() * 400)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dying", [False, True], ids=["once", "again and again"])
def test_forget_and_sweep_killed_anywhere_never_lose_what_a_listed_effect_needs(
    scene: Scene, dying: bool
) -> None:
    def prepare() -> None:
        nonlocal forgettable
        forgettable = with_history(scene)

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(scene.store), boundaries) as tb:
            tb.forget([id for id in forgettable if not tb.effect(id).forgotten])
            tb.sweep(grace=0)

    def check(at: int) -> None:
        where = f"killed at boundary {at}"
        if dying and at:
            from takeback.testing.crash import killed_again_and_again

            killed_again_and_again(sweep_only)
        world = scene.picture()
        assert_settled(scene, where)
        with scene.open() as tb:
            run = tb.find_run("new")
            tb.undo(run)
            assert not list(scene.world.glob("new *")), where
            for effect in tb.effects(run=run, state="undone", newest=True)[::-1]:
                tb.redo(effect)
            assert scene.picture() == world, where
            for id in forgettable:
                if not tb.effect(id).forgotten:
                    tb.undo(id)

    def sweep_only(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(scene.store), boundaries) as tb:
            tb.sweep(grace=0)

    forgettable: list[str] = []
    assert (
        killed_everywhere(prepare, action, check, first=1 if not dying else 2, step=1 if not dying else 4)
        >= 4
    )


@pytest.mark.sampled(3, whole=True)
def test_a_sweep_frees_what_was_forgotten(scene: Scene) -> None:
    """Else the test above would pass for a sweep that does nothing."""
    forgettable = with_history(scene)
    with scene.open() as tb:
        before: Any = tb.size()
        tb.forget(forgettable)
        assert tb.sweep(grace=0) > 0
        assert tb.size() < before


WITH_CONFLICT = {"skip": "partial", "force": "done", "merge": "done"}


@pytest.mark.parametrize("on_conflict", WITH_CONFLICT)
def test_an_undo_beside_a_foreign_edit_killed_anywhere_ends_as_it_was_asked_for(
    scene: Scene, on_conflict: str
) -> None:
    """Whoever finishes it does it the same way: forced, merged, or with the foreign file left out."""

    def prepare() -> Known:
        nonlocal after
        scene.prepare()
        (scene.world / "run.sh").write_text("".join(f"line {number}\n" for number in range(20)))
        with scene.open() as tb, tb.run("two") as run:
            run.write(scene / "data.json", b"{}")
            changed = (scene.world / "run.sh").read_text().replace("line 3\n", "line three\n")
            run.write(scene / "run.sh", changed)
        (scene.world / "run.sh").write_text(changed.replace("line 17\n", "someone else's\n"))
        os.utime(scene.world / "run.sh", ns=(10**18, 10**18))
        return Known(scene.picture(), after, exact=False)

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            result = tb.undo(tb.find_run("two"), on_conflict=on_conflict)
            assert result.outcome == WITH_CONFLICT[on_conflict]

    after: Any = {}
    prepare()
    action(Boundaries())
    after = scene.picture()
    assert sweep(scene, prepare, action, dying=False, foreign=True) > 20


def test_an_undo_that_must_be_brought_back_is_brought_back_by_whoever_comes_after(scene: Scene) -> None:
    """Two effects; while the first is being taken back someone changes what the second left. All or nothing: so
    nothing, also if the process dies on the way back."""

    def prepare() -> None:
        scene.prepare()
        with scene.open() as tb, tb.run("two") as run:
            run.write(scene / "run.sh", b"changed\n")
            run.delete(scene / "tree")

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            adapter: Any = opened_of(tb).parts.adapters
            inner = adapter._inner["file"]
            apply = inner.apply

            def and_someone_edits(effect: takeback.Effect) -> Any:
                receipt = apply(effect)
                (scene.world / "run.sh").write_bytes(b"someone else's\n")
                return receipt

            inner.apply = and_someone_edits
            with pytest.raises(takeback.Conflict):
                tb.undo(tb.find_run("two"))

    def check(at: int) -> None:
        settle(scene)
        now = (scene.world / "run.sh").read_bytes()
        if now == b"someone else's\n":
            assert not (scene.world / "tree").exists(), f"killed at {at}"
            outcomes.add("brought back")
        else:  # killed before anyone came between: all of it, or nothing
            assert (now != b"changed\n") == (scene.world / "tree").exists(), f"killed at {at}"
            outcomes.add("finished" if (scene.world / "tree").exists() else "not begun")
        with scene.open() as tb:
            assert tb.recover() == ()
            assert not tb.effects(state="stuck")
        assert not scene.scratch()

    outcomes: set[str] = set()
    assert killed_everywhere(prepare, action, check) > 30
    assert "brought back" in outcomes


def test_a_store_whose_maker_was_killed_is_made_by_the_next_one(scene: Scene) -> None:
    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        takeback.open(str(scene.store)).close()

    def check(at: int) -> None:
        scene.in_session(lambda run: run.write(scene / "new", b"new"))
        assert (scene.world / "new").read_bytes() == b"new", f"killed at {at}"
        assert_settled(scene, f"killed at {at}")
        assert {path.name for path in scene.store.iterdir()} >= {"FORMAT", "journal.db", "blobs"}

    assert killed_everywhere(scene.build, action, check) > 10


def test_a_store_whose_maker_was_killed_is_told_as_such_and_left_so_by_looking(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, it was told as no takeback store, with exit code 2."""
    from takeback.frontends.cli.answer import answer

    monkeypatch.setenv("TAKEBACK_STORE", str(scene.store))

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        takeback.open(str(scene.store)).close()

    def there() -> list[str]:
        """Without what `doctor` remembers of the machine."""
        found = scene.store.rglob("*") if scene.store.exists() else ()
        return sorted(path.name for path in found if path.name not in (SANDBOX_NOTE, SANDBOX_TRIAL))

    def check(at: int) -> None:
        half = bool(there()) and not (scene.store / "journal.db").exists()
        before = there()
        for line in ("log", "status", "runs", "checkpoints", "recover --dry-run", "doctor"):
            code, said = answer(line.split()), capsys.readouterr()
            if half and line != "doctor":
                assert code == 0, (at, line, said)
                assert "is half made" in said.out, (at, line, said)
        assert not half or there() == before, at
        told[half] += 1
        takeback.open(str(scene.store)).close()
        with takeback.open(str(scene.store)) as tb:
            assert tb.verify().sound and tb.effects() == (), at

    told = Counter[bool]()
    assert killed_everywhere(scene.build, action, check) > 10
    assert told[True] > 5


EDITS = {"watched": True, "written": False}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dying", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["merge", "plain over a merge", "redo"])
@pytest.mark.parametrize("how", EDITS)
def test_finding_16_an_undo_by_merge_killed_anywhere_is_settled(
    scene: Scene, how: str, what: str, dying: bool
) -> None:
    """One edit comes out from under another; that one goes too; the first comes back."""
    lines = "".join(f"line {number}\n" for number in range(20))

    def edit(tb: takeback.Takeback, name: str, text: str) -> None:
        with tb.run(name) as run:
            if not EDITS[how]:
                run.write(scene / "run.sh", text)
                return
            with run.watch(scene.world):
                (scene.world / "run.sh").write_text(text)

    def take(tb: takeback.Takeback, step: str) -> None:
        if step == "merge":
            tb.undo(tb.find_run("first"), on_conflict="merge")
        elif step == "plain over a merge":
            tb.undo(tb.find_run("second"))
        else:
            tb.redo(next(one for one in tb.effects(run="first") if not one.is_undo))

    def prepare() -> Known:
        scene.prepare()
        (scene.world / "run.sh").write_text(lines)
        with scene.open() as tb:
            edit(tb, "first", lines.replace("line 3\n", "line three\n"))
            edit(tb, "second", lines.replace("line 3\n", "line three\n").replace("line 17\n", "17\n"))
            steps = ["merge", "plain over a merge", "redo"]
            for step in steps[: steps.index(what)]:
                take(tb, step)
        return Known(scene.picture(), after, exact=False)

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            take(tb, what)

    after: Any = {}
    prepare()
    action(Boundaries())
    after = scene.picture()
    assert sweep(scene, prepare, action, dying=dying) > 10
