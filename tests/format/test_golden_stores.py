"""Stores written by earlier versions are opened, listed and undone by this one."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import takeback
from takeback.api import opened_of
from takeback.api.undo import to_redo
from takeback.model.effect import State, from_intent, intent_body
from takeback.model.record import Kind
from tests.format.make_golden_store import place, unpack
from tests.world import picture


@pytest.fixture(params=[1, 2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def world(version: int) -> Path:
    return place(version) / "world"


@pytest.fixture
def golden(version: int) -> Iterator[takeback.Takeback]:
    """At the path it was made at; one test at a time."""
    here = place(version)
    with open(f"{here}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpack(version)
        try:
            with takeback.open(str(here / "store")) as tb:
                yield tb
        finally:
            shutil.rmtree(here)


def kinds(tb: takeback.Takeback) -> list[tuple[str, str]]:
    return [(effect.change.kind, effect.state.value) for effect in tb.effects()]


def test_it_is_sound(golden: takeback.Takeback, world: Path) -> None:
    verified = golden.verify(read_data=True)
    assert verified.findings == ()
    assert verified.records > 20


def test_what_is_read_of_its_changes_would_be_written_as_it_was(golden: takeback.Takeback) -> None:
    births = list(golden.store.journal.records(kinds=(Kind.PROPOSE, Kind.INTENT)))
    read = [intent_body(from_intent(one, "", State.INTENDED), one.body.get("remedy")) for one in births]

    assert [body.get("args") for body in read] == [one.body.get("args") for one in births]
    assert {"undo", "write", "edit"} <= {body["kind"] for body in read}


def test_its_effects_and_runs_are_listed_as_they_were(golden: takeback.Takeback, world: Path) -> None:
    assert kinds(golden) == [
        ("write", "done"),
        ("edit", "done"),
        ("delete", "done"),
        ("move", "done"),
        ("chmod", "done"),
        ("symlink", "done"),
        ("mkdir", "undone"),
        ("write", "undone"),
        ("undo", "done"),
        ("undo", "done"),
        ("write_all", "done"),
    ]
    assert [(run.name, run.agent, run.state.value) for run in golden.runs()][:3] == [
        ("deploy", "ann", "accepted"),
        ("clean up", "bob", "accepted"),
        ("fails", "bob", "undone"),
    ]
    assert [effect.accepted_by for effect in golden.effects()][:3] == ["run", "run", "person"]
    assert [effect.change.kind for effect in golden.effects() if effect.forgotten] == ["symlink"]
    assert golden.effects()[0].key == "golden-key"


def test_its_checkpoint_gives_the_state_back(golden: takeback.Takeback, world: Path) -> None:
    (point,) = golden.checkpoints("deploy")
    assert (point.label, point.state) == ("halfway", '{"step": 2.5, "name": "\\u00fc"}')


@pytest.mark.root
def test_everything_in_it_that_was_not_forgotten_can_be_undone(
    golden: takeback.Takeback, world: Path
) -> None:
    """The owner is part of what must match, so this needs the one it was made by."""
    for effect in golden.effects(state="done", newest=True):
        if not effect.is_undo and not effect.forgotten:
            assert golden.undo(effect).outcome == "done"
    seen = picture(os.fsencode(world))
    assert set(seen) == {
        b".", b"run.sh", b"conf.toml", b"shortcut",
        b"tree", b"tree/one", b"tree/link", b"tree/deep", b"tree/deep/large", b"tree/deep/twin",
    }  # fmt: skip
    assert (world / "run.sh").read_text() == "#!/bin/sh\necho one\n"
    assert (world / "conf.toml").read_text() == "# ports\nport = 80\n\n[tls]\non = false\n"
    assert (world / "tree" / "one").samefile(world / "tree" / "deep" / "twin")
    assert (world / "tree" / "deep" / "large").read_bytes() == Random(1).randbytes(66_000)
    assert seen[b"run.sh"]["mode"] == "-rwxr-xr-x"
    assert [seen[path]["mtime"] // 10**9 for path in (b"run.sh", b"tree", b"tree/one", b"tree/deep")] == [
        10**9
    ] * 4


@pytest.mark.root
def test_what_was_undone_in_it_can_be_redone(golden: takeback.Takeback, world: Path) -> None:
    assert golden.redo(golden.effects(path=world / "empty")[0]).outcome == "done"
    assert (world / "empty").is_dir()


def test_new_work_goes_on_in_it(golden: takeback.Takeback, world: Path) -> None:
    with golden.run("later") as run:
        run.write(world / "new", "new")
    assert golden.undo("@").outcome == "done"
    assert golden.verify(read_data=True).findings == ()


def test_its_key_is_still_taken(golden: takeback.Takeback, world: Path) -> None:
    with golden.run("again") as run, pytest.raises(takeback.KeyReused):
        run.write(world / "run.sh", "something else", key="golden-key")


def test_its_effects_belong_to_a_project_before_and_after_the_first_write(
    golden: takeback.Takeback, world: Path
) -> None:
    """A store that recorded none derives them from what its effects touched."""
    everything = [one.id for one in golden.effects()]
    assert [one.id for one in golden.effects(project=world)] == everything
    assert golden.effects(project=world.parent / "store") == ()
    newest = golden.effect("@", project=world)
    golden.undo(newest)
    assert [one.id for one in golden.effects(project=world)][:-1] == everything
    assert [one.id for one in to_redo(opened_of(golden), project=world)] == [golden.effects()[-1].id]
    assert golden.verify().findings == ()
