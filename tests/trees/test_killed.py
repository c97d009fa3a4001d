"""A takeback that is killed while it merges a command or takes one back: the tree is before or after, never between,
and nothing is left of it: no process, no mount, no layer, no scratch."""

from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from tests.crash.scenes import Known, in_session
from tests.crash.tracing import KILLED, killed_at, points
from tests.trees.killing import CHANGES, SOME, Murder, sweep
from tests.trees.remains import marked

Count = Callable[[str, object], None]

SAMPLE = 3  # deaths of each that every commit pays for
PARTS = 24  # every boundary with a long sweep, a twelfth of them with a slow one


@pytest.fixture
def murder(tmp_path: Path) -> Murder:
    return Murder(tmp_path)


def merge(murder: Murder) -> Callable[[takeback.Takeback], object]:
    return lambda tb: in_session(tb, murder.command)


def undo(murder: Murder) -> Callable[[takeback.Takeback], object]:
    return lambda tb: tb.undo("@")


def some(murder: Murder) -> Callable[[takeback.Takeback], object]:
    return murder.take_some


def redo(murder: Murder) -> Callable[[takeback.Takeback], object]:
    return lambda tb: tb.redo()


def merge_out(murder: Murder) -> Callable[[takeback.Takeback], object]:
    return murder.merge_out


WORK = {
    "merge": (Murder.before_it, merge),
    "undo": (Murder.after_it, undo),
    "undo of some paths": (Murder.before_some, some),
    "redo of some paths": (Murder.after_some, redo),
    "undo by merge": (Murder.under_a_later_edit, merge_out),
}


def length_of(murder: Murder, name: str) -> int:
    """How many boundaries there are."""
    from takeback.testing.crash import Boundaries, in_a_process, open_wrapped, wrap_system_calls

    prepare, work = WORK[name]
    prepare(murder)

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(murder.scene.store), boundaries) as tb:
            work(murder)(tb)

    end = in_a_process(action, Boundaries())
    assert not end.error, end.error
    return len(end.passed)


@pytest.mark.sampled(6)
@pytest.mark.root
@pytest.mark.parametrize("name", WORK)
def test_a_tree_is_before_or_after_when_takeback_is_killed_at_some_boundaries(
    murder: Murder, name: str, record_property: Count
) -> None:
    prepare, work = WORK[name]
    step = max(1, length_of(murder, name) // SAMPLE)
    worlds = sweep(murder, lambda: prepare(murder), work(murder), first=step // 2 + 1, step=step)
    assert sum(worlds.values()) >= SAMPLE
    record_property("takebacks killed over trees", sum(worlds.values()) - 1)


@pytest.mark.root
@pytest.mark.parametrize("part", [pytest.param(n, marks=pytest.mark.slow) for n in range(PARTS)])
@pytest.mark.parametrize("name", WORK)
def test_a_tree_is_before_or_after_when_takeback_is_killed_at_any_boundary(
    murder: Murder, name: str, part: int, record_property: Count
) -> None:
    prepare, work = WORK[name]
    first = part * 11 % PARTS + 1
    worlds = sweep(murder, lambda: prepare(murder), work(murder), first=first, step=PARTS)
    # Only before the first boundaries nothing is intended yet: whoever begins later may find it finished each time.
    assert worlds["after"] and (worlds["before"] or first > 1), "the sweep saw only one side"
    record_property("takebacks killed over trees", sum(worlds.values()) - 1)


def hold(murder: Murder) -> takeback.Effect:
    with murder.scene.open() as tb:
        in_session(tb, lambda run: murder.command(run, hold=True))
        return tb.effects()[-1]


@pytest.mark.root
def test_holding_that_is_killed_changes_nothing_and_what_is_held_can_still_be_made(
    murder: Murder, record_property: Count
) -> None:
    known = murder.before_it()

    def work(tb: takeback.Takeback) -> None:
        in_session(tb, lambda run: murder.command(run, hold=True))

    def prepare() -> Known:
        murder.scene.prepare()
        return known

    worlds = sweep(murder, prepare, work, first=40, step=90)
    assert not worlds["after"], "what is held was made"
    record_property("takebacks killed over trees", sum(worlds.values()) - 1)
    with murder.scene.open() as tb:
        held = [one for one in tb.effects() if one.waits_for]
        for one in held[-1:]:
            tb.apply([one.id])
    if held:
        assert murder.check(known, "kept") == "after"


@pytest.mark.root
def test_keeping_what_is_held_is_made_whole_or_not_at_all_when_killed(
    murder: Murder, record_property: Count
) -> None:
    known = murder.before_it()

    def prepare() -> Known:
        murder.scene.prepare()
        hold(murder)
        return known

    worlds = sweep(murder, prepare, lambda tb: tb.apply("@"), first=5, step=45)
    assert worlds["before"] and worlds["after"], "the sweep saw only one side"
    record_property("takebacks killed over trees", sum(worlds.values()) - 1)


def with_something_held(murder: Murder) -> Known:
    known = murder.before_it()
    hold(murder)
    return known


def with_a_drop(murder: Murder) -> Known:
    known = with_something_held(murder)
    with murder.scene.open() as tb:
        tb.discard("@")
    return known


COMMANDS = {
    "run": (Murder.before_it, ["run", "--", "/bin/sh", "-c", CHANGES]),
    "undo": (Murder.after_it, ["undo", "@"]),
    "undo of some paths": (Murder.before_some, ["undo", "@", "--", *SOME]),
    "undo by merge": (Murder.under_a_later_edit, ["undo", "@~1", "--merge"]),
    "apply a drop": (with_a_drop, ["apply", "--run", "commands"]),
    "discard": (with_something_held, ["discard", "--run", "commands"]),
}
STILL_TO_BE_MADE = ("apply a drop", "discard")


@pytest.mark.sampled(6)
@pytest.mark.root
@pytest.mark.needs("strace")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_real_command_killed_at_a_system_call_is_settled_by_the_next_one(
    murder: Murder, name: str, tmp_path: Path, record_property: Count
) -> None:
    record_property("takebacks killed over trees", real_deaths(murder, name, tmp_path, 3, 0))


@pytest.mark.long
@pytest.mark.root
@pytest.mark.needs("strace")
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("name", COMMANDS)
def test_the_real_command_killed_at_many_system_calls_is_settled_by_the_next_one(
    murder: Murder, name: str, part: int, tmp_path: Path, record_property: Count
) -> None:
    record_property("takebacks killed over trees", real_deaths(murder, name, tmp_path, 15, part))


def can_be_made(murder: Murder, known: Known, where: str) -> None:
    with murder.scene.open() as tb:
        waits = [one for one in tb.effects() if one.state is takeback.State.DROPPED or one.waits_for]
        assert len(waits) == 1, f"{where}: {waits}"
        tb.apply(waits[0])
    assert murder.check(known, f"{where}, then applied") == "after"


def real_deaths(murder: Murder, name: str, directory: Path, sample: int, part: int) -> int:
    prepare, words = COMMANDS[name]
    scene = murder.scene
    prepare(murder)
    found = points(words, scene.store, "", directory, scene.world, children=False)
    step = max(1, len(found) // sample)
    deaths = 0
    for point in found[(part + 1) * step // 2 :: step]:
        known = prepare(murder)
        with marked(murder.mark):
            ended = killed_at(point, words, scene.store, "", scene.world, children=False)
        # SQLite writes a page more or less from one time to the next: the last points are not always there.
        assert ended.status in (0, KILLED), f"at {point}: {ended}"
        seen = murder.check(known, f"killed at {point}")
        if name in STILL_TO_BE_MADE and seen == "before":
            can_be_made(murder, known, f"killed at {point}")
        deaths += ended.status == KILLED
    assert deaths >= sample * 0.7, f"only {deaths} deaths at {len(found)} points"
    return deaths
