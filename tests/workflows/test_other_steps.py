"""Commands and statements as steps; what cannot be one is refused."""

import sqlite3

import pytest

import takeback
from takeback.model.effect import State
from tests.workflows.conftest import Bench
from tests.workflows.test_replay import flow


def test_a_command_runs_once_and_is_answered_with_what_it_printed(bench: Bench) -> None:
    seen: list[object] = []

    @flow
    def build(run: takeback.Run) -> str:
        made = run.command("echo built >> log; echo hello; echo odd >&2", cwd=bench.world.root)
        nothing = run.command(["cat", "log"], cwd=bench.world.root)
        failed = run.command("echo no > log; exit 3", cwd=bench.world.root)
        seen.append((made, nothing, failed))
        return run.wait("go")

    run = bench.tb.submit(build)
    bench.work(build)
    bench.tb.signal(run, "go", "there")
    bench.work(build)

    assert bench.tb.result(run, 0) == "there"
    assert seen[0] == seen[1]
    made, nothing, failed = seen[0]  # type: ignore[misc]
    assert (made.exit_code, made.stdout, made.stderr) == (0, b"hello\n", b"odd\n")
    assert (nothing.stdout, nothing.effect, failed.exit_code) == (b"built\n", None, 3)
    assert [one.path for one in failed.changes] == [str(bench.world / "log")]
    assert bench.text("log") == "built\n"
    assert [one.step for one in bench.tb.effects(state="done")] == [1]


def test_another_command_is_a_divergence(bench: Bench) -> None:
    def made(line: str) -> takeback.Workflow:
        @flow
        def build(run: takeback.Run) -> None:
            run.command(line, cwd=bench.world.root)
            run.wait("go")

        return build

    run = bench.tb.submit(made("echo 1 > a"))
    bench.work(made("echo 1 > a"))
    bench.tb.signal(run, "go")
    bench.work(made("echo 2 > a"))

    assert "echo 2 > a" in bench.look(run).note
    assert bench.text("a") == "1\n"


def test_a_command_whose_worker_died_before_its_answer_was_recorded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its effect is there; what it printed is lost, and it does not run again."""
    from takeback.runs.commands import outcome

    @flow
    def build(run: takeback.Run) -> list[object]:
        made = run.command("echo built >> log; echo hello", cwd=bench.world.root)
        return [made.exit_code, made.stdout.decode(), made.changes[0].kind]

    def dies(outcome: object) -> dict[str, object]:
        raise takeback.StoreBusy("the store cannot be written")

    run = bench.tb.submit(build)
    with monkeypatch.context() as patched:
        patched.setattr(outcome, "outcome_to_json", dies)
        bench.work(build)
    assert bench.look(run).note == "could not continue: the store cannot be written"
    bench.ahead = 10
    bench.work(build)

    assert bench.tb.result(run, 0) == [0, "", "added"]
    assert bench.text("log") == "built\n"


def test_a_statement_is_made_once_and_answers_as_it_did(bench: Bench) -> None:
    file = bench.world / "app.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
    database.close()
    seen: list[object] = []

    @flow
    def shop(run: takeback.Run) -> str:
        with run.sql(f"sqlite:///{file}") as db:
            made = db.execute("INSERT INTO orders (cents) VALUES (?) RETURNING id", [500])
            nothing = db.execute("DELETE FROM orders WHERE cents = ?", [7])
            with pytest.raises(takeback.StatementFailed):
                db.execute("INSERT INTO nowhere VALUES (1)")
        seen.append((made.rows, made.rowcount, made.effect and made.effect.id, nothing.effect))
        return run.wait("go")

    run = bench.tb.submit(shop)
    bench.work(shop)
    bench.tb.signal(run, "go", "there")
    bench.work(shop)

    assert bench.tb.result(run, 0) == "there"
    assert seen[0] == seen[1]
    assert seen[0][0] == ((1,),)  # type: ignore[index]
    assert [(one.step, one.state) for one in bench.tb.effects(state="done")] == [(1, State.DONE)]


def test_what_cannot_be_replayed_is_refused(bench: Bench) -> None:
    file = bench.world / "app.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    database.close()
    refused: list[str] = []

    @flow
    def odd(run: takeback.Run) -> None:
        with run.sql(f"sqlite:///{file}") as db:
            for attempt in (
                run.sandbox,
                lambda: run.watch(bench.world.root),
                lambda: run.program(f"sqlite:///{file}"),
                lambda: run.sql(f"sqlite:///{file}", hold=True),
                lambda: db.transaction().__enter__(),
                lambda: run.write(bench.world / "a", iter([b"1"])),
                run.close,
                run.take_back,
                run.__enter__,
                lambda: run.suspend("later"),
            ):
                with pytest.raises(takeback.Misuse) as error:
                    attempt()
                refused.append(str(error.value))

    run = bench.tb.submit(odd)
    bench.work(odd)

    assert bench.look(run).state.value == "accepted", bench.look(run)
    assert len(refused) == 10
    assert bench.tb.effects() == ()
