"""Killed before and after every call of every protocol, and at every system call Python makes: it settles."""

from collections.abc import Callable
from typing import Any

import pytest

import takeback
from takeback.testing.crash import Boundaries, open_wrapped, wrap_system_calls
from tests.crash.scenes import Known, Prepare, Scene, in_session, some_quick, sweep

Work = Callable[[Scene, takeback.Run], Any]

CHANGES: dict[str, Work] = {
    "write new": lambda s, run: run.write(s / "new", b"new\n"),
    "write over": lambda s, run: run.write(s / "run.sh", b"#!/bin/bash\n", mode=0o700),
    "write with a named check": lambda s, run: run.write(
        s / "data.json", b'{"a": 2}', checks=[takeback.checks.command("test -s {staged}")]
    ),
    "write over one of two names": lambda s, run: run.write(s / "twin", b"apart\n"),
    "write all": lambda s, run: run.write_all({s / "new": b"n", s / "run.sh": b"r", s / "twin": b"o"}),
    "write all, one as it was": lambda s, run: run.write_all(
        {s / "data.json": b"{}", s / "run.sh": b"#!/bin/sh\n" * 300}
    ),
    "delete file": lambda s, run: run.delete(s / "run.sh"),
    "delete link": lambda s, run: run.delete(s / "link"),
    "delete directory": lambda s, run: run.delete(s / "tree"),
    "move file": lambda s, run: run.move(s / "run.sh", s / "moved.sh"),
    "move over": lambda s, run: run.move(s / "run.sh", s / "data.json", replace=True),
    "move directory": lambda s, run: run.move(s / "tree", s / "forest"),
    "move across": lambda s, run: run.move(s / "tree", s.far / "tree"),
    "move across, over": lambda s, run: run.move(s / "twin", s.far / "in the way", replace=True),
    "mkdir": lambda s, run: run.mkdir(s / "made/up/path", parents=True),
    "symlink": lambda s, run: run.symlink(s / "shortcut", "tree"),
    "chmod": lambda s, run: run.chmod(s / "run.sh", 0o600),
    "edit toml": lambda s, run: run.edit_config(s / "conf.toml", {"/port": 8080}, ["/tls/on"]),
    "edit, one key as it was": lambda s, run: run.edit_config(s / "data.json", {"/a": 1, "/b": [2]}),
    "edit json": lambda s, run: run.edit_config(s / "data.json", {"/a": 5, "/c": {"d": []}}),
}


@pytest.mark.sampled(30, always=("write over", "write all", "write all, one as it was"))
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_killed_at_any_boundary_is_whole_or_not_there(scene: Scene, name: str) -> None:
    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(scene.store), boundaries) as tb:
            in_session(tb, lambda run: CHANGES[name](scene, run))

    assert sweep(scene, before_a_change(scene, name), action, dying=False) > 15


def before_a_change(scene: Scene, name: str) -> Prepare:
    """What it will look like afterwards is found by doing it once."""
    scene.prepare()
    before = scene.picture()
    scene.in_session(lambda run: CHANGES[name](scene, run))
    after = scene.picture()
    assert after != before

    def prepare() -> Known:
        scene.prepare()
        return Known(scene.picture(), after, exact=False)

    return prepare


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    "name", some_quick(CHANGES, "write over", "write all", "delete directory", "move over", "move across")
)
def test_a_recovery_that_is_killed_again_and_again_still_comes_to_the_same_end(
    scene: Scene, name: str
) -> None:
    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            in_session(tb, lambda run: CHANGES[name](scene, run))

    assert sweep(scene, before_a_change(scene, name), action, dying=True) > 10


@pytest.mark.sampled(32, always=("write over",))
@pytest.mark.parametrize("name", CHANGES)
def test_an_undo_killed_at_any_boundary_is_carried_out_or_never_began(scene: Scene, name: str) -> None:
    def prepare() -> Known:
        scene.prepare()
        original = scene.picture()
        scene.in_session(lambda run: CHANGES[name](scene, run))
        return Known(scene.picture(), original, exact=True)

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(scene.store), boundaries) as tb:
            tb.undo("@")

    assert sweep(scene, prepare, action, dying=False) > 15


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "name", some_quick(CHANGES, "write over", "delete directory", "edit toml", "move across, over")
)
def test_a_redo_killed_again_and_again_is_carried_out_or_never_began(scene: Scene, name: str) -> None:
    def prepare() -> Known:
        scene.prepare()
        scene.in_session(lambda run: CHANGES[name](scene, run))
        done = scene.picture()
        with scene.open() as tb:
            tb.undo("@")
        return Known(scene.picture(), done, exact=True)

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            tb.redo()

    assert sweep(scene, prepare, action, dying=True) > 10
