"""What a sceptical newcomer tried, and what must hold."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

import takeback
from takeback import checks
from takeback.api import opened_of
from takeback.api.upkeep import settle_first
from tests.behaviour.conftest import Scene
from tests.damage import another_byte, effect_that_says, rewrite_records


def test_one_damaged_byte_costs_one_effect_and_no_other(scene: Scene) -> None:
    path = os.path.join(os.path.dirname(scene.tb.path), "damaged")
    with takeback.open(path) as tb:
        effects = [Scene(tb, scene.world).write(f"f{n}", "text") for n in range(3)]
    rewrite_records(path, "kind = 'intent' AND effect = ?", (effects[0].id,), another_byte)

    with takeback.open(path) as tb:
        tb.undo(effects[1])
        with pytest.raises(takeback.RecordInvalid):
            tb.undo(effects[0])
        assert len(tb.effects()) == 4
        assert any(effects[0].id in finding for finding in tb.verify().findings)
        with pytest.raises(takeback.RecordInvalid, match="are unknown"):
            tb.sweep(grace=0)
    assert (scene.text("f0"), scene.text("f1"), scene.text("f2")) == ("text", None, "text")


DIES = """
import os, signal, sys, takeback
tb = takeback.open(sys.argv[1])
run = tb.run("dies").__enter__()
for name in ("d0", "d1", "d2"):
    run.write(os.path.join(sys.argv[2], name), name)
if len(sys.argv) > 3:
    die = takeback.checks.after(lambda staged: os.kill(os.getpid(), signal.SIGKILL), name="die")
    run.write(os.path.join(sys.argv[2], "d3"), "d3", checks=[die])
os._exit(0)
"""


def damage(store: str, summary: str) -> str:
    """One byte of the intent of the effect with that summary; its id."""
    id = effect_that_says(store, summary)
    rewrite_records(store, "kind = 'intent' AND effect = ?", (id,), another_byte)
    return id


@pytest.mark.parametrize("broken", ["d1", "d3"], ids=["done", "in flight"])
def test_a_damaged_record_of_a_dead_run_does_not_lock_the_store(scene: Scene, broken: str) -> None:
    path = os.path.join(os.path.dirname(scene.tb.path), "locked")
    root = str(scene.world.root)
    arguments = [path, root] + (["in flight"] if broken == "d3" else [])
    subprocess.run([sys.executable, "-c", DIES, *arguments], check=False)
    damaged = damage(path, f"{broken} (")

    with takeback.open(path) as tb:
        with tb.run("goes on") as run:
            run.write(scene.world / "new", "x")
        tb.recover()
        assert scene.text("new") == "x"
        assert any(damaged in finding for finding in tb.verify().findings)
        if broken == "d1":
            assert [scene.text(name) for name in ("d0", "d1", "d2")] == [None, "d1", None]
            tb.forget(damaged)
            tb.sweep(grace=0)
    with takeback.open(path) as tb:
        settle_first(opened_of(tb), calls=True)
        assert tb.recovered == ()


SLOW_CHECK = """
import sys, takeback
tb = takeback.open(sys.argv[1])
with tb.run("slow") as run:
    run.write(sys.argv[2], "never", checks=[takeback.checks.command("sh -c 'touch %s; sleep 30'" % sys.argv[3])])
"""


def test_a_signal_during_a_check_stops_the_change(scene: Scene) -> None:
    started = scene.world / "started"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_CHECK, scene.tb.path, scene.world / "a", started],
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 20
    while not started.exists() and time.monotonic() < until:
        time.sleep(0.01)  # noqa: TID251  # for another process to get there
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=15) != 0
    assert scene.text("a") is None
    assert scene.scratch() == []
    assert all(effect.state.value == "aborted" for effect in scene.tb.effects())


def test_an_edit_made_during_a_check_is_not_overwritten(scene: Scene) -> None:
    scene.put("a", "v1")

    def someone_edits(staged: object) -> None:
        scene.put("a", "person")

    with scene.tb.run("slow") as run, pytest.raises(takeback.Drifted):
        run.write(scene.world / "a", "agent", checks=[checks.check(someone_edits)])

    assert scene.text("a") == "person"


def test_a_key_that_a_person_sets_during_a_check_is_not_overwritten(scene: Scene) -> None:
    scene.put("e.json", '{"a": 1}')

    def someone_edits(staged: object) -> None:
        scene.put("e.json", '{"a": 7}')

    with scene.tb.run("slow") as run, pytest.raises(takeback.Drifted):
        run.edit_config(scene.world / "e.json", {"/a": 2}, checks=[checks.check(someone_edits)])

    assert scene.text("e.json") == '{"a": 7}'


def test_first_commands_in_parallel_share_one_session(store: object, scene: Scene) -> None:
    path = os.path.join(os.path.dirname(scene.tb.path), "fresh")
    barrier = threading.Barrier(6)

    def first(number: int) -> None:
        with takeback.open(path) as tb:
            barrier.wait()
            with tb.session("command line") as run:
                run.write(scene.world / f"k{number}", "x")

    threads = [threading.Thread(target=first, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with takeback.open(path) as tb:
        (info,) = tb.runs()
        assert info.effects == 6


def test_misuse_is_called_misuse(scene: Scene) -> None:
    with scene.tb.run("odd") as run:
        for wrong in (
            lambda: run.write(scene.world / "a", None),  # type: ignore[arg-type]
            lambda: run.write(scene.world / "a", "\udc80"),
            lambda: run.write(scene.world / "a", "x", mode="755"),  # type: ignore[arg-type]
            lambda: run.write(scene.world / "a", "x", checks=[lambda staged: None]),  # type: ignore[list-item]
            lambda: run.write(scene.world / "a", "x", checks=checks.json()),  # type: ignore[arg-type]
            lambda: run.undo(on_conflict="nonsense"),
            lambda: scene.tb.undo(None),  # type: ignore[arg-type]
            lambda: scene.tb.run(""),
            lambda: scene.tb.run(None),  # type: ignore[arg-type]
            lambda: scene.tb.run("half \udc80"),
            lambda: scene.tb.sweep(-5),
        ):
            with pytest.raises(takeback.Misuse):
                wrong()
    assert scene.text("a") is None


def test_a_closed_store_says_so(store: object, scene: Scene) -> None:
    with takeback.open(scene.tb.path) as tb:
        pass
    with pytest.raises(takeback.Misuse, match="closed"):
        tb.effects()


def test_a_run_that_could_not_go_back_whole_is_not_called_undone(scene: Scene) -> None:
    with pytest.raises(ValueError, match="no"), scene.tb.run("half") as run:
        run.write(scene.world / "a", "1")
        run.write(scene.world / "b", "2")
        scene.put("a", "person")
        raise ValueError("no")

    (info,) = scene.tb.runs()
    assert info.state.value == "partly undone"


def test_a_full_disk_does_not_make_a_store_suspect(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL  # type: ignore[attr-defined]
    with pytest.raises(takeback.ResourceUnreachable), scene.tb.store.database.write():
        raise full
    assert not scene.tb.store.suspect()
