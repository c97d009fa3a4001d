"""An answer that was lost is looked for and never repeated: by no worker, no retry, no reconnection and no hint."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import takeback
from takeback.errors import Corrupt, Failed, Misuse, Refused, Stuck, TakebackError, Unavailable
from takeback.frontends.cli.output.errors import exit_code, worst_first
from tests.calls.test_actions import command
from tests.workflows.conftest import Bench, bench  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tests.world import World

SOURCES = Path(takeback.__file__).parent
MADE: list[str] = []
LOST = takeback.InDoubt("The answer was lost.")


@pytest.fixture(autouse=True)
def afresh() -> None:
    MADE.clear()


@pytest.fixture
def address(store: Path) -> str:
    return str(store)


def test_it_is_a_family_of_its_own() -> None:
    assert takeback.InDoubt.exit_code == 7
    assert not issubclass(takeback.InDoubt, Unavailable)
    assert takeback.InDoubt.__mro__[1] is TakebackError


# Each place of ours that tries again.


@takeback.action(name="tests.lost", retries=3, honours_key=True)
def lost(*, key: str) -> None:
    MADE.append(key)
    raise LOST


@lost.undo
def unneeded(receipt: Any) -> None: ...


def test_retries_do_not_repeat_it_even_with_a_key(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("buy") as run, pytest.raises((takeback.InDoubt, Stuck)):
            run.call(lost)
        assert len(MADE) == 1


def is_made(key: str) -> dict[str, int] | None:
    return {"id": 1} if "made" in MADE else None


@takeback.action(name="tests.lost_undo", verify=is_made)
def made(*, key: str) -> dict[str, int]:
    MADE.append("made")
    return {"id": 1}


@made.undo(retries=3, honours_key=True)
def lost_undo(receipt: Any, *, key: str) -> None:
    MADE.append("undo")
    raise LOST


def test_an_undo_does_not_repeat_it(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("buy") as run:
            run.call(made)
        tb.undo(tb.effects()[0])
        assert MADE.count("undo") == 1


def loses_its_answer() -> None:
    MADE.append("asked")
    raise LOST


@takeback.workflow(name="tests.remembers")
def remembers(run: takeback.Run) -> None:
    run.remember("answer", loses_its_answer)


@takeback.workflow(name="tests.plain")
def plain(run: takeback.Run) -> None:
    loses_its_answer()


@takeback.workflow(name="tests.swallows")
def swallows(run: takeback.Run) -> None:
    try:
        run.remember("answer", loses_its_answer)
    except takeback.InDoubt:
        run.remember("more", lambda: MADE.append("more"))


@pytest.mark.parametrize("workflow", [remembers, plain, swallows], ids=lambda one: one.name)
def test_a_worker_leaves_it_to_a_person(bench: Bench, workflow: takeback.Workflow) -> None:  # noqa: F811
    run = bench.tb.submit(workflow)
    for _ in range(3):
        bench.work(workflow)
        bench.ahead += 10_000
    assert MADE == ["asked"]
    assert bench.look(run).state.value == "suspended"


def loses_it(key: str) -> None:
    loses_its_answer()


@takeback.action(name="tests.unseen", verify=loses_it)
def unseen(*, key: str) -> None:
    MADE.append("called")
    raise ConnectionError("hung up")


@unseen.undo
def never(receipt: Any) -> None: ...


@takeback.workflow(name="tests.calls")
def calls(run: takeback.Run) -> None:
    run.call(unseen)


def test_a_worker_looks_for_a_call_and_does_not_repeat_it(bench: Bench) -> None:  # noqa: F811
    run = bench.tb.submit(calls)
    for _ in range(3):
        bench.work(calls)
        bench.ahead += 10_000
    assert MADE.count("called") == 1 and MADE.count("asked") > 1
    assert bench.look(run).state.value == "suspended"


def test_a_connection_that_is_made_anew_does_not_repeat_it(request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("pg_database").url
    with takeback.open(address) as tb, pytest.raises(takeback.InDoubt):
        tb.store.database.once(lambda session, again: loses_its_answer())  # type: ignore[attr-defined]
    assert MADE == ["asked"]


# What takeback says.


def doubts() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(SOURCES)}:{node.lineno}", node)
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "InDoubt"
    ]


def test_no_hint_of_it_says_try_again() -> None:
    found = doubts()
    assert len(found) > 10
    for place, call in found:
        words = " ".join(
            part.value
            for part in ast.walk(call)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        ).lower()
        for advice in ("try again", "tries again", "trying again", "try once more", "retry", "repeat the"):
            assert advice not in words, place


def test_every_hint_of_it_passes_through_its_class_so_that_none_is_missed() -> None:
    """A subclass, or a way to make one that has another name, would not be seen by the test above."""
    assert takeback.InDoubt.__subclasses__() == []


# Exit codes.

OF_EACH: dict[int, TakebackError] = {
    kind.exit_code: kind("So it is.") for kind in (Failed, Misuse, Refused, Stuck, Unavailable, Corrupt)
}
OF_EACH[7] = LOST


def test_of_mixed_results_the_worst_counts() -> None:
    assert [one.exit_code for one in worst_first(OF_EACH.values())] == [6, 7, 4, 1, 3, 5, 2]
    for some_done in (True, False):
        assert exit_code(some_done, [OF_EACH[4], OF_EACH[7], OF_EACH[6]]) == 6
        assert exit_code(some_done, [OF_EACH[1], OF_EACH[4], OF_EACH[7]]) == 7
        assert exit_code(some_done, [OF_EACH[3], OF_EACH[1], OF_EACH[4]]) == 4
    assert exit_code(True, [OF_EACH[3]]) == exit_code(True, [OF_EACH[5]]) == 1


DIES_AND_STICKS = """
import os, takeback
@takeback.action(name="stuck")
def blind(): raise TimeoutError("no answer")
@blind.undo
def undone(receipt): ...
@takeback.action(name="doubted", verify=lambda key: None)
def order(): os._exit(0)
@order.undo
def cancel(receipt): ...
tb = takeback.open(recover=False)
with tb.run("first") as run:
    try:
        run.call(blind)
    except takeback.TakebackError:
        pass
tb.run("second").call(order)
"""


def test_recover_answers_7_where_something_is_in_doubt_and_something_stuck(store: Path, world: World) -> None:
    subprocess.run(
        [sys.executable, "-c", DIES_AND_STICKS], env=os.environ | {"TAKEBACK_STORE": str(store)}, check=False
    )
    with takeback.open(store, recover=False) as tb:
        said = command(tb, "recover")
        assert "1 stuck, 1 in doubt" in said.out and said.code == 7, said
        assert command(tb, "recover", "--json").json["error"]["type"] == "InDoubt"


SHOP = """
import os
import takeback
def cancelled(key, receipt):
    with open("asked", "a") as asked:
        asked.write("x")
    if os.path.getsize("asked") > 1:
        raise ConnectionError("hung up")
    return {"id": 1}
@takeback.action(name="order")
def order(): return {"id": 1}
@order.undo(verify=cancelled)
def cancel(receipt): ...
def shop():
    with takeback.open() as tb, tb.run("shop") as run:
        run.write("plain", "text")
        run.call(order)
"""


def test_undo_of_several_answers_7_where_one_is_in_doubt(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shopping.py").write_text(SHOP)
    environment = os.environ | {"TAKEBACK_STORE": str(store), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import shopping; shopping.shop()"], env=environment, check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with takeback.open(store, recover=False) as tb:
        said = command(tb, "undo", "--run", "shop", "--skip-conflicts")
    assert said.code == 7 and "in doubt" in said.err and "tries again" not in said.err, said
    assert not Path("plain").exists()


@pytest.mark.parametrize("name", ["run", "shell"])
@pytest.mark.parametrize("as_json", [False, True])
def test_run_and_shell_answer_125_and_name_the_effect_last(
    name: str, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from takeback.frontends.cli import answer as commands

    effect = "k" * 26
    lost_effect = takeback.InDoubt("The answer was lost.", hint="`takeback recover` looks.", effect=effect)

    def loses(words: list[str], made: list[str]) -> int:
        raise lost_effect

    monkeypatch.setattr(commands, "_run", loses)
    assert commands.answer([name, *(["--json"] if as_json else []), "--", "true"]) == 125
    printed = capsys.readouterr()
    if as_json:
        error = json.loads(printed.out)["error"]
        assert (error["type"], error["exit_code"], error["effect"]) == ("InDoubt", 7, effect)
    else:
        assert printed.err.splitlines()[-1].startswith(f"takeback: in doubt: {effect[:8]}"), printed.err


def test_of_several_databases_each_that_is_in_doubt_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from takeback.frontends.cli import answer as commands
    from takeback.frontends.cli.programs import databases

    class Lost:
        def undo(self, effect: Any) -> None:
            raise takeback.InDoubt("The answer was lost.")

    effects: Any = [SimpleNamespace(id=letter * 20) for letter in "ab"]
    monkeypatch.setattr(commands, "_run", lambda words, made: databases._taken_back(Lost(), effects))  # type: ignore
    assert commands.answer(["run", "--sql", "sqlite:///x", "--", "true"]) == 125
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("takeback: in doubt: bbbbbbbb, aaaaaaaa;"), last
    assert commands.answer(["run", "--json", "--sql", "sqlite:///x", "--", "true"]) == 125
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["effect"], error["others"]) == ("b" * 20, ["a" * 20])
