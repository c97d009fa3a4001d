"""Fail the n-th system call, for n = 1, 2, … until a pass is clean; once, and from there on for ever.

The outcome is success or a clean error, the world is before or after, and the next healthy command settles the rest.
"""

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import takeback
from takeback.testing.crash import Boundaries, in_a_process, wrap_system_calls
from tests.crash.scenes import Known, Scene, assert_settled, in_session, side
from tests.crash.test_system_calls import CASES, Case
from tests.crash.tracing import Point, injected, points, run

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES}

Work = Callable[[Scene, takeback.Takeback], Any]

WORK: dict[str, Work] = {
    "write": lambda s, tb: in_session(tb, lambda run: run.write(s / "run.sh", Random(1).randbytes(200_000))),
    "write all": lambda s, tb: in_session(
        tb, lambda run: run.write_all({s / "new": b"n", s / "run.sh": b"r"})
    ),
    "delete directory": lambda s, tb: in_session(tb, lambda run: run.delete(s / "tree")),
    "move over": lambda s, tb: in_session(
        tb, lambda run: run.move(s / "run.sh", s / "data.json", replace=True)
    ),
    "edit": lambda s, tb: in_session(tb, lambda run: run.edit_config(s / "conf.toml", {"/port": 1})),
    "run": lambda s, tb: a_run(s, tb),  # noqa: PLW0108  # it stands below
}


def a_run(scene: Scene, tb: takeback.Takeback) -> None:
    with tb.run("two") as run:
        run.write(scene / "run.sh", b"one")
        run.delete(scene / "tree")


def fail(number: int) -> Callable[[], None]:
    def happens() -> None:
        raise OSError(number, os.strerror(number))

    return happens


@pytest.mark.sampled(30, always=("run-EIO-for ever",))
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", WORK)
def test_a_change_that_meets_an_error_anywhere_ends_cleanly(
    scene: Scene, name: str, error: str, lasting: bool
) -> None:
    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with takeback.open(str(scene.store)) as tb:
            try:
                WORK[name](scene, tb)
            except takeback.TakebackError as trouble:
                (scene.directory / "outcome").write_text(
                    f"{type(trouble).__name__}: {trouble} {trouble.hint}"
                )
                return
            (scene.directory / "outcome").write_text("done")

    sweep_failures(scene, action, fail(ERRORS[error]), lasting, error)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("error", ERRORS)
def test_an_undo_that_meets_an_error_anywhere_ends_cleanly(scene: Scene, error: str, lasting: bool) -> None:
    def prepare() -> Known:
        scene.prepare()
        original = scene.picture()
        with scene.open() as tb:
            a_run(scene, tb)
        return Known(scene.picture(), original, exact=True)

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with takeback.open(str(scene.store)) as tb:
            try:
                tb.undo(tb.find_run("two"))
            except takeback.TakebackError as trouble:
                (scene.directory / "outcome").write_text(
                    f"{type(trouble).__name__}: {trouble} {trouble.hint}"
                )
                return
            (scene.directory / "outcome").write_text("done")

    sweep_failures(scene, action, fail(ERRORS[error]), lasting, error, prepare)


def sweep_failures(
    scene: Scene,
    action: Callable[[Boundaries], None],
    happens: Callable[[], None],
    lasting: bool,
    error: str,
    prepare: Callable[[], Known] | None = None,
) -> None:
    def fresh() -> Known:
        scene.prepare()
        return Known(scene.picture(), after, exact=False)

    after: Any = {}
    prepare = prepare or fresh
    prepare()
    total = len(in_a_process(action, Boundaries()).passed)
    after = scene.picture()
    assert total > 3
    for at in range(1, total + 1):
        where = f"{error} at call {at} of {total}"
        known = prepare()
        end = in_a_process(action, Boundaries(at, happens, persistent=lasting))
        assert not end.error, f"{where} ({end.passed[at - 1]}): {end.error}"
        where += f" ({end.passed[at - 1]})"
        outcome = (scene.directory / "outcome").read_text()
        heal(scene, where)
        seen = side(scene.picture(), known)
        assert seen in ("before", "after"), f"{where}: {outcome}: {seen}"
        assert outcome != "done" or seen == "after", f"{where}: it said {outcome}, the world is {seen}"
        assert_settled(scene, f"{where}: {outcome}")
        scene.counted["calls made to fail"] += 1


def heal(scene: Scene, where: str) -> None:
    """What a person does after a disk error: put it right, recover, look, trust again."""
    with scene.open() as tb:
        assert tb.verify(read_data=True).findings == (), where
        assert not tb.store.suspect(), where
        tb.recover()
        in_session(tb, lambda run: run.write(scene.directory / "elsewhere", os.urandom(8)))


# The same from outside, where SQLite's own calls fail too.

PAIRS = {
    "write": ("ENOSPC", "EIO"),
    "pwrite64": ("ENOSPC", "EIO"),
    "fsync": ("EIO",),
    "fdatasync": ("EIO",),
    "renameat": ("EIO", "EACCES"),
    "renameat2": ("EIO", "EACCES", "ENOSPC"),
    "linkat": ("EIO", "EACCES", "ENOSPC"),
    "openat": ("EACCES", "EIO", "ENOSPC"),
    "mkdirat": ("ENOSPC", "EACCES"),
    "unlinkat": ("EIO", "EACCES"),
    "ftruncate": ("EIO",),
}


def inject(scene: Scene, case: Case, point: Point, error: str, lasting: bool, after: Any) -> None:
    where = f"{error} at {point}, {'for ever' if lasting else 'once'}"
    known = case.prepare(scene)
    if not known.exact:
        known = known._replace(after=after)
    what = f"{point.call}:error={error}:when={point.number}{'+' if lasting else ''}"
    ended = injected(what, point.call, case.words(scene), scene.store, case.text)
    assert ended.status in (0, 1, 3, 4, 5, 6, 7), f"{where}: {ended}"
    assert "Traceback" not in ended.error, f"{where}: {ended.error}"
    assert ended.status == 0 or ended.error.strip(), f"{where}: it failed without a word"
    for words in (["verify", "--read-data"], ["recover"]):
        healed = run(words, scene.store)
        assert healed.status == 0, f"{where}: {ended}: {healed}"
    seen = side(scene.picture(), known)
    assert seen in ("before", "after"), f"{where}: {ended}: {seen}"
    if ended.status == 0 and known.before != known.after:
        assert seen == "after", f"{where}: it said {ended.out}, the world is {seen}"
    heal(scene, where)
    assert_settled(scene, where)


def failures(scene: Scene, case: Case, sample: int) -> int:
    case.prepare(scene)
    found = points(case.words(scene), scene.store, case.text, scene.directory)
    after = scene.picture()
    chosen = [
        (point, error, lasting)
        for point in found
        for error in PAIRS.get(point.call, ())
        for lasting in (False, True)
        if not (lasting and point.call == "write")  # it could not say a word then
    ]
    step = max(1, len(chosen) // sample) if sample else 1
    for point, error, lasting in chosen[::step]:
        inject(scene, case, point, error, lasting, after)
        scene.counted["system calls made to fail"] += 1
    return len(chosen[::step])


@pytest.mark.sampled(4, always=("undo run",))
@pytest.mark.needs("strace")
@pytest.mark.parametrize("name", ["write", "rm", "undo run"])
def test_a_command_that_meets_an_error_ends_with_a_clean_message(scene: Scene, name: str) -> None:
    assert failures(scene, CASES[name], 8) >= 8


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.needs("strace")
@pytest.mark.parametrize("name", ["write", "rm", "mv", "undo run", "redo", "sweep", "recover"])
def test_a_command_that_meets_an_error_at_any_call_ends_with_a_clean_message(scene: Scene, name: str) -> None:
    assert failures(scene, CASES[name], 120) >= 60
