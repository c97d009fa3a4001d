"""SIGKILL at every system call of the real commands that touches the disk; the next command settles it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from takeback.testing.crash import Boundaries, in_a_process, open_wrapped
from tests.crash.scenes import Known, Scene, assert_settled, in_session, side
from tests.crash.test_runs_and_upkeep import with_history
from tests.crash.tracing import KILLED, killed_at, points, run

SETTLED_WITHIN = 2  # seconds of the processor
AT_MOST = (
    9  # by the clock: below every wait of ours, so that one would show, also on a machine that others use
)
SAMPLE = 9  # points of each command that every commit pays for


class Case(NamedTuple):
    words: Callable[[Scene], list[str]]
    prepare: Callable[[Scene], Known]
    text: str = ""


def first_ever(scene: Scene) -> Known:
    """Before there is a store."""
    scene.build()
    return Known(scene.picture(), {}, exact=False)


def fresh(scene: Scene) -> Known:
    """Before a change; what comes after is found by the first pass."""
    scene.prepare()
    return Known(scene.picture(), {}, exact=False)


def done(scene: Scene) -> Known:
    scene.prepare()
    original = scene.picture()
    with scene.open() as tb, tb.run("two") as run:
        run.write(scene / "run.sh", b"changed\n")
        run.delete(scene / "tree")
    return Known(scene.picture(), original, exact=True)


def one_undone(scene: Scene) -> Known:
    known = last_done(scene)
    with scene.open() as tb:
        tb.undo("@")
    return Known(known.after, known.before, exact=True)


def last_done(scene: Scene) -> Known:
    scene.prepare()
    with scene.open() as tb, tb.run("two") as run:
        run.write(scene / "run.sh", b"changed\n")
        original = scene.picture()
        run.delete(scene / "tree")
    return Known(scene.picture(), original, exact=True)


def unchanging(scene: Scene) -> Known:
    done(scene)
    return Known(scene.picture(), scene.picture(), exact=True)


def forgotten(scene: Scene) -> Known:
    """Much that nothing needs any more, in the database and in packs, beside much that something needs."""
    old = with_history(scene)
    with scene.open() as tb:
        tb.forget(old)
    return Known(scene.picture(), scene.picture(), exact=True)


def died(scene: Scene) -> Known:
    """Someone was killed in the middle of removing a directory."""
    scene.prepare()
    before = scene.picture()

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            in_session(tb, lambda run: run.delete(scene / "tree"))

    passed = _passed(scene, action)
    end = in_a_process(action, Boundaries(passed.index("after file.apply") + 1))
    assert end.killed
    return Known(before, {}, exact=False)


def _passed(scene: Scene, action: Callable[[Boundaries], None]) -> tuple[str, ...]:
    end = in_a_process(action, Boundaries())
    assert not end.error, end.error
    scene.prepare()
    return end.passed


CASES = {
    "write": Case(lambda s: ["write", s / "run.sh"], fresh, "new\n"),
    "first write": Case(lambda s: ["write", s / "run.sh"], first_ever, "new\n"),
    "write with check": Case(lambda s: ["write", "--check", "test -s {staged}", s / "new"], fresh, "new\n"),
    "rm": Case(lambda s: ["rm", s / "tree"], fresh),
    "mv": Case(lambda s: ["mv", s / "run.sh", s / "moved"], fresh),
    "edit": Case(lambda s: ["edit", s / "conf.toml", "--set", "/port=8080"], fresh),
    "undo": Case(lambda s: ["undo", "@"], last_done),
    "undo run": Case(lambda s: ["undo", "--run", "two"], done),
    "redo": Case(lambda s: ["redo"], one_undone),
    "accept": Case(lambda s: ["accept", "@"], unchanging),
    "forget": Case(lambda s: ["forget", "@"], unchanging),
    "sweep": Case(lambda s: ["sweep", "--grace", "0"], forgotten),
    "recover": Case(lambda s: ["recover"], died),
}


def sweep(scene: Scene, case: Case, sample: int) -> int:
    case.prepare(scene)
    words = case.words(scene)
    found = points(words, scene.store, case.text, scene.directory)
    after = scene.picture()
    # The beginning, the end, and evenly between.
    step = max(1, len(found) // sample) if sample else 1
    chosen = [point for place, point in enumerate(found) if place % step == 0 or place == len(found) - 1]
    deaths = 0
    for point in chosen:
        for _ in range(12):
            known = case.prepare(scene)
            if not known.exact:
                known = known._replace(after=after)
            killed = killed_at(point, words, scene.store, case.text)
            check(scene, known, f"killed at {point}" if killed.status == KILLED else f"not killed at {point}")
            if killed.status == KILLED:
                deaths += 1
                break
            # SQLite writes a page more or less, as the random ids fall: the last points are not there each time.
            assert killed.status == 0, f"at {point}: {killed}"
    assert deaths >= len(chosen) * 0.95, f"only {deaths} of {len(chosen)} were killed"
    scene.counted["processes killed at a system call"] += deaths
    return deaths


def check(scene: Scene, known: Known, where: str) -> None:
    """Looking changes nothing. The next command that does more brings order; and it does not take long."""
    left = scene.picture()
    looked = run(["log", "-n", "1"], scene.store)
    made = (scene.store / "journal.db").exists()  # else it was killed before there was a store
    told = looked.status in (2, 3) or "is half made" in looked.out
    assert (looked.status == 0 if made else told) and scene.picture() == left, f"{where}: {looked}"
    settled = run(["recover"], scene.store)
    assert settled.status == 0 or not made, f"{where}: {settled}"
    assert settled.busy < SETTLED_WITHIN, f"{where}: {settled.busy} s"
    assert settled.seconds < AT_MOST, f"{where}: {settled.seconds} s"
    seen = side(scene.picture(), known)
    assert seen in ("before", "after"), f"{where}: {seen}"
    assert_settled(scene, where)


@pytest.mark.sampled(12, always=("write",))
@pytest.mark.needs("strace")
@pytest.mark.parametrize("name", CASES)
def test_a_command_killed_at_a_system_call_is_settled_by_the_next_one(scene: Scene, name: str) -> None:
    assert sweep(scene, CASES[name], SAMPLE) >= SAMPLE


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.needs("strace")
@pytest.mark.parametrize("name", CASES)
def test_a_command_killed_at_any_system_call_is_settled_by_the_next_one(scene: Scene, name: str) -> None:
    killed = sweep(scene, CASES[name], 0)
    assert killed >= (10 if name in ("accept", "forget") else 25), "too few points to be a sweep"
