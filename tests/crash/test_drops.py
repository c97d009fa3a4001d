"""A drop, its apply and its end, killed anywhere: it is dropped, made or erased, and never half of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.adapters.tree.swap import Swap
from takeback.runs.run import core_of
from takeback.runs.undo import drop_undone
from takeback.testing.crash import Boundaries, killed_everywhere, open_wrapped, wrap_system_calls
from tests.crash.scenes import Known, Scene, assert_settled, settle, side
from tests.damage import put_back_store, save_store
from tests.world import Picture

pytestmark = pytest.mark.sampled(3, whole=True)

WORK = "echo more >> run.sh; mkdir made; echo x > made/y; rm 'other twin'; ln -s made short"


@pytest.fixture
def scene(tmp_path: Path, record_property: Callable[[str, object], None]) -> Iterator[Scene]:
    """Not in memory: a sandbox has a /dev of its own."""
    (tmp_path / "far").mkdir()
    scene = Scene(tmp_path / "scene", tmp_path / "far")
    yield scene
    for name, number in scene.counted.items():
        record_property(name, number)


def held(scene: Scene, tb: takeback.Takeback) -> takeback.Effect:
    with tb.run("careful") as run:
        effect = run.command(WORK, cwd=scene.world, hold=True).effect
    assert effect
    return effect


def failed(scene: Scene, tb: takeback.Takeback) -> takeback.Effect:
    with tb.run("fails") as run:
        effect = run.command(f"{WORK}; exit 1", cwd=scene.world).dropped
    assert effect
    return effect


class Template:
    """A store with one effect in it, made once and put back before every death."""

    def __init__(self, scene: Scene, make: Callable[[Scene, takeback.Takeback], takeback.Effect]) -> None:
        self.scene = scene
        scene.prepare()
        with scene.open() as tb:
            self.id = make(scene, tb).id
        self._saved = scene.directory / "with an effect"
        save_store(scene.store, self._saved)
        self.after = self._applied()

    def _applied(self) -> Picture:
        with self.scene.open() as tb:
            tb.apply(self.id)
        return self.scene.picture()

    def __call__(self) -> Known:
        self.scene.build()
        put_back_store(self._saved, self.scene.store)
        return Known(self.scene.picture(), self.after, exact=False)

    def state(self) -> takeback.State:
        with self.scene.open() as tb:
            return tb.effect(self.id).state


def killed(
    scene: Scene,
    template: Template,
    action: Callable[[takeback.Takeback], object],
    check: Callable[[Known, str], str],
) -> set[str]:
    """At every boundary; what was seen afterwards."""
    known, seen = template(), set[str]()

    def again() -> None:
        nonlocal known
        known = template()

    def act(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(scene.store), boundaries) as tb:
            action(tb)

    def judge(at: int) -> None:
        where = f"killed at boundary {at}" if at else "not killed"
        settle(scene)
        seen.add(check(known, where))
        assert_settled(scene, where)

    deaths = killed_everywhere(again, act, judge)
    scene.counted["processes killed at a boundary"] += deaths
    assert deaths > 3
    return seen


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [failed, held], ids=["of a failing command", "of what is held"])
def test_apply_killed_anywhere_has_made_it_or_can_be_asked_for_again(
    scene: Scene, make: Callable[[Scene, takeback.Takeback], takeback.Effect]
) -> None:
    template = Template(scene, make)

    def check(known: Known, where: str) -> str:
        found = side(scene.picture(), known)
        assert found in ("before", "after"), f"{where}: {found}"
        with scene.open() as tb:
            waits = [one for one in tb.effects() if one.state is takeback.State.DROPPED or one.waits_for]
            assert len(waits) == (found == "before"), f"{where}: {waits}"
            for one in waits:
                tb.apply(one)
                assert side(scene.picture(), known) == "after", where
        return found

    assert killed(scene, template, lambda tb: tb.apply(template.id), check) == {"before", "after"}


def test_an_apply_that_fails_killed_anywhere_leaves_the_work_held_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Template(scene, held)
    swap, count = Swap.swap, [0]

    def failing(self: Swap, *words: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == 2:
            raise OSError(5, "Input/output error")
        return swap(self, *words, **named)

    def apply(tb: takeback.Takeback) -> None:
        count[0] = 0
        monkeypatch.setattr(Swap, "swap", failing)
        with pytest.raises(takeback.TakebackError):
            tb.apply(template.id)
        monkeypatch.setattr(Swap, "swap", swap)

    def check(known: Known, where: str) -> str:
        monkeypatch.setattr(Swap, "swap", swap)
        assert side(scene.picture(), known) == "before", where
        with scene.open() as tb:
            (waits,) = [one for one in tb.effects() if one.waits_for]
            tb.apply(waits)
        assert side(scene.picture(), known) == "after", where
        return "the same" if waits.id == template.id else "another"

    assert killed(scene, template, apply, check) == {"the same", "another"}


def test_discard_killed_anywhere_leaves_it_held_or_dropped_and_it_can_be_applied(scene: Scene) -> None:
    template = Template(scene, held)

    def check(known: Known, where: str) -> str:
        assert side(scene.picture(), known) == "before", where
        state = template.state()
        assert state in (takeback.State.PROPOSED, takeback.State.DROPPED), where
        with scene.open() as tb:
            tb.apply(template.id)
        assert side(scene.picture(), known) == "after", where
        return state.value

    assert killed(scene, template, lambda tb: tb.discard(template.id), check) == {"proposed", "dropped"}


def test_erasing_killed_anywhere_leaves_it_whole_or_gone(scene: Scene) -> None:
    template = Template(scene, failed)

    def check(known: Known, where: str) -> str:
        assert side(scene.picture(), known) == "before", where
        state = template.state()
        with scene.open() as tb:
            if state is takeback.State.DROPPED:
                tb.apply(template.id)
                assert side(scene.picture(), known) == "after", where
            else:
                assert state is takeback.State.ABORTED, where
                with pytest.raises(takeback.Refused):
                    tb.apply(template.id)
                assert side(scene.picture(), known) == "before", where
                tb.sweep()
        return state.value

    seen = killed(scene, template, lambda tb: tb.discard(template.id, now=True), check)
    assert seen == {"dropped", "aborted"}


def test_a_failing_command_killed_anywhere_changes_nothing_and_its_drop_is_whole_or_not_there(
    scene: Scene,
) -> None:
    template = Template(scene, failed)

    def check(known: Known, where: str) -> str:
        assert side(scene.picture(), known) == "before", where
        with scene.open() as tb:
            drops = tb.effects(state="dropped")
            for one in drops[1:]:
                tb.apply(one)
                assert side(scene.picture(), known) == "after", where
        return str(len(drops))

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            failed(scene, tb)

    known = template()
    seen: set[str] = set()

    def again() -> None:
        nonlocal known
        known = template()

    def judge(at: int) -> None:
        where = f"killed at boundary {at}" if at else "not killed"
        settle(scene)
        seen.add(check(known, where))
        assert_settled(scene, where)

    deaths = killed_everywhere(again, action, judge)
    scene.counted["processes killed at a boundary"] += deaths
    assert deaths > 3
    assert seen == {"1", "2"}


def test_what_was_taken_back_in_place_killed_anywhere_is_a_whole_drop_or_an_undo(scene: Scene) -> None:
    """Also while it is watched; then recovery records what was changed."""
    seen: set[str] = set()
    scene.prepare()
    before = scene.picture()

    def change() -> None:
        (scene.world / "new").write_bytes(b"new\n")
        (scene.world / "run.sh").write_bytes(b"changed\n")
        (scene.world / "data.json").unlink()

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb, tb.run("in place") as run:
            with run.watch(scene.world, about={"argv": ["make"], "exit_code": 1}) as watch:
                change()
            assert watch.effect
            drop_undone(core_of(run), watch.effect, run.undo(watch.effect))

    def check(at: int) -> None:
        where = f"killed at boundary {at}" if at else "not killed"
        settle(scene)
        with scene.open() as tb:
            drops = tb.effects(state="dropped")
            seen.add(str(len(drops)))
            for one in drops:
                assert scene.picture() == before, where
                tb.apply(one)
                assert (scene.world / "new").read_bytes() == b"new\n", where
                assert (scene.world / "run.sh").read_bytes() == b"changed\n", where
                assert not (scene.world / "data.json").exists(), where
        assert_settled(scene, where, foreign=True)

    deaths = killed_everywhere(scene.prepare, action, check)
    scene.counted["processes killed at a boundary"] += deaths
    assert deaths > 20
    assert seen == {"0", "1"}


def test_a_failing_command_in_a_box_killed_anywhere_leaves_the_box_and_a_whole_drop_or_none(
    scene: Scene,
) -> None:
    seen: set[str] = set()
    box = ""

    def prepare() -> None:
        nonlocal box
        scene.prepare()
        with (
            scene.open() as tb,
            tb.run("agent", on_death="accept") as run,
            run.sandbox(cwd=scene.world) as made,
        ):
            made.run("echo 1 > step")
            box = made.id

    def action(boundaries: Boundaries) -> None:
        with (
            open_wrapped(str(scene.store), boundaries) as tb,
            tb.run("agent", on_death="accept") as run,
            run.sandbox(box=box) as opened,
        ):
            opened.run("echo 2 >> step; echo new > new; exit 1")

    def check(at: int) -> None:
        where = f"killed at boundary {at}" if at else "not killed"
        settle(scene)
        with scene.open() as tb, tb.run("look", on_death="accept") as run, run.sandbox(box=box) as opened:
            assert opened.run("cat step; ls new 2>/dev/null; true").stdout == b"1\n", where
            drops = tb.effects(state="dropped")
            seen.add(str(len(drops)))
            for one in drops:
                tb.apply(one)
                assert opened.run("cat step new").stdout == b"1\n2\nnew\n", where
            assert tb.verify(read_data=True).findings == (), where

    deaths = killed_everywhere(prepare, action, check)
    scene.counted["processes killed at a boundary"] += deaths
    assert deaths > 5
    assert seen == {"0", "1"}
