"""A stop holds at every door, for whom it is meant and for nobody else, until it is lifted; what is under way ends."""

import os
import pwd
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import takeback
from takeback.api import opened_of
from takeback.engine.stop import FRESH, StopsInForce
from takeback.errors import Misuse, Refused, Stopped
from takeback.model.record import STORE, Kind
from takeback.runs.stopped import ended_by_stop
from tests.behaviour.conftest import Scene

REASON = "it deletes too much"

BEA = f"{pwd.getpwuid(os.getuid()).pw_name} (bea)"  # the account of these tests, and the name that was typed


@pytest.fixture
def other(scene: Scene) -> Iterator[takeback.Takeback]:
    """Another process's view of the same store."""
    with takeback.open(scene.tb.path) as tb:
        yield tb


def passed(seconds: float) -> Callable[[], float]:
    return lambda: seconds


# Whom it concerns.


def test_an_agent_that_is_stopped_is_refused_with_who_and_why(scene: Scene) -> None:
    stop = scene.tb.stop(agent="writer", why=REASON, by="bea")

    with pytest.raises(Stopped) as refused, scene.tb.run("more", agent="writer") as run:
        run.write(scene.world / "a", "new")

    assert str(refused.value) == f"Agent writer was stopped by {BEA}: it deletes too much."
    assert refused.value.hint == (
        "Nothing was changed. A person lifts it with `takeback stop --lift --agent writer`."
    )
    assert refused.value.exit_code == 3
    assert scene.text("a") is None
    assert scene.tb.stops() == (stop,)


@pytest.mark.parametrize("stopped", [{"agent": "writer"}, {"everything": True}])
def test_it_concerns_who_is_meant_and_nobody_else(scene: Scene, stopped: dict[str, object]) -> None:
    scene.tb.stop(**stopped)  # type: ignore[arg-type]

    with pytest.raises(Stopped):
        scene.write("a", "x", agent="writer")
    if "agent" in stopped:
        scene.write("a", "y", agent="reader")
    else:
        with pytest.raises(Stopped, match=r"^Everything was stopped by "):
            scene.write("a", "y", agent="reader")


def test_a_run_that_is_stopped_is_taken_back_by_its_end_and_another_run_of_the_agent_works(
    scene: Scene,
) -> None:
    with pytest.raises(Stopped, match="Run "), scene.tb.run("one", agent="writer") as run:
        run.write(scene.world / "a", "1")
        scene.tb.stop(run=run.id)
        run.write(scene.world / "b", "2")
    scene.write("c", "3", agent="writer")

    assert (scene.text("a"), scene.text("b"), scene.text("c")) == (None, None, "3")


def test_a_stopped_agent_may_stop_others_and_itself(scene: Scene) -> None:
    scene.tb.stop(agent="writer", by="writer")
    scene.tb.stop(agent="reader", by="writer")
    assert [one.agent for one in scene.tb.stops()] == ["writer", "reader"]


# From another process, within a second.


def test_another_process_learns_of_it_within_a_second(scene: Scene) -> None:
    program = (
        "import os, time, takeback\n"
        "with takeback.open() as tb, tb.run('loop', agent='writer') as run:\n"
        "    print('ready', flush=True)\n"
        "    n = 0\n"
        "    try:\n"
        "        while True:\n"
        "            n += 1\n"
        "            run.write('looped', str(n))\n"
        "    except takeback.Stopped as error:\n"
        "        print(time.time(), error, flush=True)\n"
        "        os._exit(0)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=scene.world.root, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TAKEBACK_STORE": scene.tb.path},
    )  # fmt: skip
    assert child.stdout
    assert child.stdout.readline() == "ready\n"

    scene.tb.stop(agent="writer", why=REASON, by="bea")
    at = time.time()
    said, _ = child.communicate(timeout=60)

    seconds = float(said.split()[0]) - at
    assert f"stopped by {BEA}" in said
    assert seconds < 1


def test_it_holds_in_the_next_process_and_needs_no_other(scene: Scene, other: takeback.Takeback) -> None:
    scene.tb.stop(agent="writer")
    with pytest.raises(Stopped), other.run("later", agent="writer") as run:
        run.write(scene.world / "a", "new")


def test_an_answer_of_the_journal_counts_for_less_than_half_a_second(scene: Scene) -> None:
    at = 0.0
    known = StopsInForce(scene.tb.store.journal, lambda: at)
    assert known() == ()
    scene.tb.stop(agent="writer")
    assert known() == ()
    at = FRESH
    assert [one.agent for one in known()] == ["writer"]
    assert FRESH < 0.5


def test_a_change_asks_for_nothing_more_while_the_answer_is_fresh(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, asked = opened_of(scene.tb).parts.journal, list[object]()
    real = journal.records

    def records(*given: object, **named: object) -> object:
        if named.get("run") == STORE:
            asked.append(named)
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "records", records)
    opened_of(scene.tb).stops._clock = passed(0)  # pyright: ignore[reportPrivateUsage]
    with scene.tb.run("many") as run:
        for number in range(20):
            run.write(scene.world / "a", str(number))
    assert len(asked) == 1


# What is under way.


def test_a_transaction_that_is_open_is_rolled_back_at_its_next_statement(scene: Scene) -> None:
    file = scene.world / "d.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
    connection.close()
    with pytest.raises(Stopped), scene.tb.run("rows", agent="writer") as run:
        db = run.sql(f"sqlite:///{file}")
        with db.transaction():
            db.execute("INSERT INTO t VALUES (1)")
            scene.tb.stop(agent="writer")
            db.execute("INSERT INTO t VALUES (2)")
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.close()


def test_a_transaction_that_swallows_the_refusal_is_rolled_back_all_the_same(scene: Scene) -> None:
    file = scene.world / "d.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
    connection.close()
    with pytest.raises(takeback.StatementFailed), scene.tb.run("rows", agent="writer") as run:
        db = run.sql(f"sqlite:///{file}")
        with db.transaction():
            db.execute("INSERT INTO t VALUES (1)")
            scene.tb.stop(agent="writer")
            with pytest.raises(Stopped):
                db.execute("INSERT INTO t VALUES (2)")
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.close()


def test_a_watch_that_was_open_is_recorded_and_the_next_one_is_refused(scene: Scene) -> None:
    (scene.world / "w").mkdir()
    with scene.tb.run("watching", agent="writer") as run:
        with run.watch(scene.world / "w") as watch:
            scene.tb.stop(agent="writer")
            (scene.world / "w" / "seen").write_text("x")
        assert watch.effect
        with pytest.raises(Stopped):
            run.watch(scene.world / "w").begin()
        run.accept(watch.effect)


def test_checks_that_take_long_do_not_let_a_change_through(scene: Scene) -> None:
    def stops(content: bytes) -> None:
        scene.tb.stop(agent="writer")

    with pytest.raises(Stopped), scene.tb.run("checked", agent="writer") as run:
        run.write(scene.world / "a", "new", checks=[takeback.checks.check(stops)])
    assert scene.text("a") is None
    assert not scene.scratch()


@pytest.fixture
def once_it_runs(other: takeback.Takeback) -> Iterator[str]:
    """The words with which a command says that it runs: then its agent is stopped, by another process."""
    listener = socket.create_server(("127.0.0.1", 0))

    def stop() -> None:
        with suppress(OSError):  # it never began
            listener.accept()[0].close()
            other.stop(agent="writer", by="bea")

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    yield f"bash -c ': > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}'; sleep 600"
    listener.close()
    thread.join(5)


def test_a_command_that_runs_is_ended_and_what_it_changed_can_be_applied_later(
    scene: Scene, once_it_runs: str
) -> None:
    with pytest.raises(Stopped) as refused, scene.tb.run("long", agent="writer") as run:
        run.command(f"echo x > half; {once_it_runs}", cwd=scene.world.root)

    assert scene.text("half") is None
    assert refused.value.effect
    assert "once the stop is lifted" in refused.value.hint
    assert scene.tb.effect(refused.value.effect).state.value == "dropped"
    with pytest.raises(Stopped):
        scene.tb.apply(refused.value.effect)
    scene.tb.lift()
    scene.tb.apply(refused.value.effect)
    assert scene.text("half") == "x\n"


def test_a_command_of_a_box_that_runs_is_ended_and_is_no_step(scene: Scene, once_it_runs: str) -> None:
    with scene.tb.run("boxed", agent="writer") as run, run.sandbox() as box:
        box.run(f"cd {scene.world.root}; echo 1 > first")
        where = box.cwd
        with pytest.raises(Stopped) as refused:
            box.run(f"echo 2 > second; {once_it_runs}")
        assert refused.value.effect
        assert box.cwd == where
        assert [step.state for step in box.history()] == ["done"]
        with pytest.raises(Stopped):
            box.run("true")
        with pytest.raises(Stopped):
            box.commit()
    assert scene.text("first") is None


def test_what_ends_a_command_is_called_once_and_not_after_the_end(scene: Scene) -> None:
    ended = list[str]()
    with scene.tb.run("run", agent="writer") as run:
        from takeback.runs.run import core_of

        with ended_by_stop(core_of(run), lambda: ended.append("ended")):
            pass
        scene.tb.stop(agent="writer")
        done = threading.Event()
        with ended_by_stop(core_of(run), lambda: (ended.append("ended"), done.set())):  # type: ignore[func-returns-value]
            assert done.wait(5)
    assert ended == ["ended"]


# What always works.


def test_undo_and_looking_and_deciding_work_and_redo_does_not(scene: Scene) -> None:
    effect = scene.write("a", "new", agent="writer")
    scene.tb.stop(everything=True)

    scene.tb.undo(effect)
    assert scene.text("a") is None
    with pytest.raises(Stopped):
        scene.tb.redo(agent="writer")
    assert scene.tb.redo(dry_run=True).outcome == "planned"
    scene.tb.recover()
    assert len(scene.tb.effects()) == 2


def test_a_redo_by_the_stopped_agent_is_refused_and_one_by_a_person_is_not(scene: Scene) -> None:
    effect = scene.write("a", "new", agent="writer")
    undone = scene.tb.undo(effect)
    scene.tb.stop(agent="writer")

    with pytest.raises(Stopped):
        scene.tb.redo(undone, agent="writer")
    with pytest.raises(Stopped):
        scene.tb.undo(undone.undo[0], agent="writer")
    scene.tb.redo(undone, agent="bea")
    assert scene.text("a") == "new"


def test_an_undo_of_several_that_cannot_be_done_whole_is_put_back_while_all_is_stopped(scene: Scene) -> None:
    first, second = scene.write("a", "1"), scene.write("b", "2")
    scene.tb.stop(everything=True)
    scene.put("a", "someone's")
    with pytest.raises(Refused):
        scene.tb.undo(first)
    scene.tb.undo(second)
    assert (scene.text("a"), scene.text("b")) == ("someone's", None)


# Lifting, and what is said of it.


def test_it_can_be_lifted_by_name_or_as_the_only_one(scene: Scene) -> None:
    scene.tb.stop(agent="writer")
    assert [one.agent for one in scene.tb.lift(by="bea", why="repaired")] == ["writer"]
    scene.write("a", "new", agent="writer")

    scene.tb.stop(agent="writer")
    scene.tb.stop(everything=True)
    with pytest.raises(Misuse, match="2 stops are in force"):
        scene.tb.lift()
    with pytest.raises(Refused, match="Agent reader is not stopped"):
        scene.tb.lift(agent="reader")
    assert len(scene.tb.lift(everything=True)) == 2
    assert scene.tb.stops() == ()
    with pytest.raises(Refused, match=r"^Nothing is stopped\."):
        scene.tb.lift()


def test_every_stop_and_lift_is_a_record_with_who_and_why(scene: Scene) -> None:
    scene.tb.stop(agent="writer", why=REASON, by="bea")
    scene.tb.stop(agent="writer", why="again", by="cyn")  # it is stopped already
    scene.tb.lift(by="cyn", why="repaired")

    stop, lift = scene.tb.store.journal.records(run=STORE, kinds=(Kind.STOP, Kind.LIFT))
    assert (stop.body["agent"], stop.body["remark"], stop.body["why"]) == ("writer", "bea", REASON)
    assert (lift.body["stops"], lift.body["remark"], lift.body["why"]) == ([stop.seq], "cyn", "repaired")
    assert stop.body["by"] == lift.body["by"] == pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize("asked", [{}, {"agent": "a", "everything": True}, {"agent": " "}, {"agent": 3}])
def test_what_is_not_clear_is_refused(scene: Scene, asked: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        scene.tb.stop(**asked)  # type: ignore[arg-type]
    assert scene.tb.stops() == ()


def test_a_dry_run_stops_nothing(scene: Scene) -> None:
    assert scene.tb.stop(agent="writer", dry_run=True).agent == "writer"
    assert scene.tb.stops() == ()
    scene.tb.stop(agent="writer")
    assert scene.tb.lift(dry_run=True)
    assert scene.tb.stops()


def test_it_is_recorded_on_a_full_disk_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[bool]()
    monkeypatch.setattr(type(scene.tb.store), "use_spare", lambda store: used.append(True))
    scene.tb.stop(everything=True)
    assert used == [True]
