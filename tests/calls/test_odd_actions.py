"""Actions that are not what they should be are refused with a word, before anything is called."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.model.effect import State


def plain(x: int = 0) -> int:
    return x


ODD: list[tuple[str, Callable[[], Any]]] = [
    ("certain", lambda: takeback.action(certain=5)(plain)),  # pyright: ignore[reportArgumentType]
    ("certain", lambda: takeback.action(certain=("x",))(plain)),  # pyright: ignore[reportArgumentType]
    ("named", lambda: takeback.action(name=5)(plain)),  # pyright: ignore[reportArgumentType]
    ("named", lambda: takeback.action(name="a b\n")(plain)),
    ("risk", lambda: takeback.action(risk="none")(plain)),
    ("timeout", lambda: takeback.action(timeout=0)(plain)),
    ("timeout", lambda: takeback.action(timeout=float("nan"))(plain)),
    ("settles_in", lambda: takeback.action(settles_in=-1)(plain)),
    ("retries", lambda: takeback.action(retries=1.5, honours_key=True)(plain)),  # pyright: ignore[reportArgumentType]
    ("could run twice", lambda: takeback.action(retries=2)(plain)),
    ("needs 'y'", lambda: takeback.action(verify=lambda y: y)(plain)),
    ("needs 'y'", lambda: takeback.action(expects=lambda y: y)(plain)),
    ("takes nothing", lambda: takeback.action(undo=lambda: None)(plain)),
    ("needs 'y'", lambda: takeback.action(undo=lambda receipt, y: None)(plain)),
    ("does not say", lambda: takeback.action(undo=takeback.IRREVERSIBLE(" "))(plain)),
    (
        "way back already",
        lambda: takeback.action(undo=lambda receipt: None)(plain).undo(lambda receipt: None),
    ),
    ("named parameters", lambda: takeback.action()(lambda *x: None)),
    ("settles_in", lambda: takeback.action(settles_in=float("inf"))(plain)),
    ("no parameter", lambda: takeback.action(honours_key=True)(plain)),
    ("no parameter", lambda: takeback.action()(plain).undo(lambda receipt: None, honours_key=True)),
    ("honours_key", lambda: takeback.action(honours_key="no")(plain)),  # pyright: ignore[reportArgumentType]
    ("with a name", lambda: takeback.action(functools.partial(plain, 1))),
    ("with a name", lambda: takeback.action(takeback.action(undo=lambda receipt: None)(plain))),
    ("with a name", lambda: takeback.workflow(functools.partial(plain, 1))),
    ("cannot be named", lambda: takeback.workflow(name=5)(plain)),  # pyright: ignore[reportArgumentType, reportCallIssue]
    ("cannot be named", lambda: takeback.workflow(name="a b")(plain)),
]


@pytest.mark.parametrize(("word", "make"), ODD, ids=[f"{n} {word}" for n, (word, _) in enumerate(ODD)])
def test_it_is_refused_where_it_is_declared(word: str, make: Callable[[], Any]) -> None:
    with pytest.raises(takeback.Misuse, match=word) as told:
        make()
    assert told.value.hint


@takeback.action(undo=lambda receipt: None, name="tests.echo")
def echo(value: Any = None) -> Any:
    return value


def nested() -> Any:
    inner: Any = []
    for _ in range(5_000):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("set", {"value": {1}}),
        ("bytes", {"value": b"x"}),
        ("no text", {"value": {1: 2}}),
        ("not JSON", {"value": float("nan")}),
        ("half a character", {"value": "\ud800"}),
        ("nested", {"value": nested()}),
        ("unexpected", {"other": 1}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_arguments_that_could_not_be_kept_are_refused_before_the_call(
    store: Path, word: str, given: dict[str, Any]
) -> None:
    with takeback.open(store) as tb, tb.run("odd") as run:
        with pytest.raises(takeback.Misuse, match=word):
            run.call(echo, **given)
        assert tb.effects() == ()


def test_what_is_no_action_has_no_way_back_or_an_odd_key_is_refused(store: Path) -> None:
    bare = takeback.action(plain)
    with takeback.open(store) as tb, tb.run("odd") as run:
        with pytest.raises(takeback.Misuse, match="no action"):
            run.call(plain)  # pyright: ignore[reportArgumentType]
        with pytest.raises(takeback.NoRemedy, match="how it is taken back"):
            run.call(bare)
        with pytest.raises(takeback.Misuse, match="key is text"):
            run.call(echo, key=7)  # pyright: ignore[reportArgumentType]
        with pytest.raises(takeback.Misuse, match="needs a name"):
            run.checkpoint("")
        with pytest.raises(takeback.Misuse, match="cannot be asked"):
            run.remember("x", None)  # pyright: ignore[reportArgumentType]
        with pytest.raises(takeback.Misuse, match="reason"):
            run.fork(" ")
        assert tb.effects() == ()


@takeback.action(verify=lambda: sys.exit(7), undo=lambda receipt: None, name="tests.exits")
def exits() -> Any:
    raise OSError("hung up")


@takeback.action(undo=lambda receipt: None, name="tests.ends")
def ends() -> Any:
    sys.exit(7)


def test_a_function_that_wants_to_end_the_process_is_only_one_that_did_not_answer(store: Path) -> None:
    with takeback.open(store) as tb:
        with tb.run("odd") as run:
            with pytest.raises(takeback.Stuck, match="SystemExit"):
                run.call(ends)
            with pytest.raises(takeback.InDoubt, match="SystemExit"):
                run.call(exits)
            with pytest.raises(takeback.InDoubt):
                run.close()
        (one, other) = tb.effects()
        assert (one.state, other.state) == (State.STUCK, State.INTENDED)
        tb.settle(one, False)
        tb.settle(other, False)


def test_two_actions_of_one_name_are_refused_before_the_second_is_called(store: Path) -> None:
    one = takeback.action(undo=lambda receipt: None, name="tests.twin")(plain)
    other = takeback.action(undo=lambda receipt: None, name="tests.twin")(ends.function)
    with takeback.open(store) as tb, tb.run("odd") as run:
        assert run.call(one, 5) == 5
        with pytest.raises(takeback.Misuse, match="Two actions have the name"):
            run.call(other)
        assert (
            run.call(takeback.action(undo=lambda receipt: None, name="tests.twin")(plain), 6) == 6
        )  # its module was loaded again
        assert len(tb.effects()) == 2


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(takeback.Misuse, match="mysql"):
        takeback.open("mysql://x/y")


def _found(answer: Any) -> takeback.Action:
    def lost() -> Any:
        raise OSError("hung up")

    return takeback.action(verify=lambda: answer, undo=lambda receipt: None, name="tests.found")(lost)


@pytest.mark.parametrize("answer", [[], {}, "", 0, ()])
def test_an_empty_answer_of_a_probe_is_none(store: Path, answer: Any) -> None:
    """`return [one for one in payments if …]` finds nothing, and an empty receipt is something: nobody can tell."""
    with takeback.open(store) as tb, tb.run("odd", on_death="accept") as run:
        with pytest.raises(takeback.InDoubt, match="neither a receipt"):
            run.call(_found(answer))
        (effect,) = tb.effects()
        assert effect.state in (State.INTENDED, State.STUCK)
        tb.settle(effect, False)


@pytest.mark.parametrize("answer", [None, False])
def test_nothing_and_no_are_answers(store: Path, answer: Any) -> None:
    with takeback.open(store) as tb:
        with tb.run("odd", on_death="accept") as run, pytest.raises(takeback.TakebackError):
            run.call(_found(answer))
        assert [one.state for one in tb.effects()] == [State.ABORTED]


async def _later(*_: Any, **__: Any) -> bool:
    return True


def _lazily(**how: Any) -> takeback.Action:
    def acts(key: str = "") -> str:
        raise OSError("hung up")

    return takeback.action(undo=how.pop("undo", lambda receipt: None), name="tests.lazy", **how)(acts)


def test_what_would_have_to_be_awaited_is_no_answer(store: Path) -> None:
    def later() -> Any:
        return _later()

    undone = takeback.action(undo=lambda receipt: later(), name="tests.undone_later")(plain)
    called = takeback.action(undo=lambda receipt: None, name="tests.later")(later)
    with takeback.open(store) as tb:
        with tb.run("odd", on_death="accept") as run:
            with pytest.raises(takeback.Stuck, match="returned a coroutine"):
                run.call(called)
            with pytest.raises(takeback.InDoubt, match=r"could not be asked .*coroutine"):
                run.call(_lazily(verify=later))
            with pytest.raises(takeback.TakebackError, match="returned a coroutine"):
                run.call(_lazily(expects=later), key="expects")
            run.call(undone, 3, key="undone")
            for one in tb.effects():
                if one.state in (State.INTENDED, State.STUCK):
                    tb.settle(one, False)
        done = next(one for one in tb.effects() if one.key == "undone")
        result = tb.undo(done)
        assert result.outcome == "stuck", result
        assert "returned a coroutine" in str(result), result
        assert tb.effect(done.id).state is State.DONE


USES: list[Callable[[takeback.Run], Any]] = [
    lambda run: run.call(echo),
    lambda run: run.call_all(echo, [{}]),
    lambda run: run.checkpoint("inside"),
    lambda run: run.write("/tmp/never", "x"),
    lambda run: run.close(),
]


@pytest.mark.parametrize("use", USES)
def test_an_action_that_uses_its_own_run_is_told_at_once(
    store: Path, use: Callable[[takeback.Run], Any]
) -> None:
    with takeback.open(store) as tb, tb.run("odd", on_death="accept") as run:

        def inner() -> Any:
            return use(run)

        outer = takeback.action(undo=lambda receipt: None, certain=takeback.Misuse, name="tests.outer")(inner)
        with pytest.raises(takeback.TakebackError, match="uses the run that calls it"):
            run.call(outer)
        assert [one.state for one in tb.effects()] == [State.ABORTED]


def test_a_store_that_is_moved_during_a_call_does_not_say_that_nothing_happened(
    store: Path, tmp_path: Path
) -> None:
    tb = takeback.open(store)

    def moves() -> str:
        with takeback.open(store) as other:
            other.copy_to(os.fspath(tmp_path / "new"))
        return "paid"

    act = takeback.action(undo=lambda receipt: None, name="tests.moves")(moves)
    run = tb.run("odd", on_death="accept")
    with pytest.raises(takeback.InDoubt, match="was called, but the outcome could not be recorded") as told:
        run.call(act)
    assert told.value.effect
    run.leave()
    tb.close()
    with takeback.open(tmp_path / "new", recover=False) as new:
        assert new.effect(told.value.effect).state is State.INTENDED


def test_a_number_that_cannot_be_printed_is_kept_as_words(store: Path) -> None:
    huge = takeback.action(undo=lambda receipt: None, name="tests.huge")(lambda: 10**5000)
    with takeback.open(store) as tb:
        with (
            tb.run("odd", on_death="accept") as run,
            pytest.raises(takeback.Misuse, match="could not be kept"),
        ):
            run.call(huge)
        (effect,) = tb.effects()
        assert effect.state is State.DONE
        assert "cannot be printed" in effect.receipt["result"]


@pytest.mark.parametrize("key", ["x" * 1_001, "a\0b", "\ud800", 7])
def test_a_key_that_no_store_could_look_up_is_refused(store: Path, tmp_path: Path, key: Any) -> None:
    with takeback.open(store) as tb, tb.run("odd") as run:
        with pytest.raises(takeback.Misuse):
            run.call(echo, key=key)
        with pytest.raises(takeback.Misuse):
            run.write(tmp_path / "a", "x", key=key)
        assert tb.effects() == ()


def test_calls_may_come_from_anywhere_and_are_looked_at_before_the_first(store: Path) -> None:
    act = takeback.action(undo=lambda receipt: None, name="tests.counted")(plain)
    with takeback.open(store) as tb, tb.run("odd") as run:
        assert run.call_all(act, ({"x": number} for number in range(3))) == [0, 1, 2]
        for odd in (
            [{"x": 1}, 5],
            [{"x": 1}, {"y": 1}],
            [{"x": 1}, {"x": {1}}],
            [{"x": 1}, {"x": 1, "key": 7}],
        ):
            with pytest.raises(takeback.Misuse):
                run.call_all(act, odd)  # pyright: ignore[reportArgumentType]
        assert len(tb.effects()) == 3


def test_each_try_is_given_what_was_recorded(store: Path) -> None:
    given: list[list[str]] = []

    def adds(items: list[str], key: str) -> Any:
        given.append(list(items))
        items.append("fee")
        raise OSError("hung up")

    act = takeback.action(undo=lambda receipt: None, honours_key=True, retries=2, name="tests.adds")(adds)
    with takeback.open(store) as tb, tb.run("odd", on_death="accept") as run:
        with pytest.raises(takeback.Stuck):
            run.call(act, ["a"])
        tb.settle(tb.effects()[0], False)
    assert given == [["a"]] * len(given)
    assert len(given) >= 3


def test_whether_it_happened_is_yes_or_no(store: Path) -> None:
    with takeback.open(store) as tb, tb.run("odd", on_death="accept") as run:
        with pytest.raises(takeback.Stuck):
            run.call(ends)
        with pytest.raises(takeback.Misuse, match="True or False"):
            tb.settle(tb.effects()[0], "no")  # pyright: ignore[reportArgumentType]
        tb.settle(tb.effects()[0], False)


ACTS = """
import sys, takeback
from pathlib import Path

LEDGER = Path(__file__).with_name("ledger")

def found(key):
    return None

@takeback.action(verify=found)
def pay(key):
    LEDGER.write_text("paid")
    return "paid"

@pay.undo(honours_key=True)
def refund(receipt, key):
    LEDGER.write_text("refunded")
"""


def test_a_module_of_the_same_name_in_another_project_is_not_asked_and_not_called(
    store: Path, tmp_path: Path
) -> None:
    for project in ("a", "b"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "acts.py").write_text(ACTS)

    def python(project: str, code: str) -> str:
        begin = f"import acts, takeback; tb = takeback.open({os.fspath(store)!r})\n"
        ended = subprocess.run(
            [sys.executable, "-c", begin + code],
            cwd=tmp_path / project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    (tmp_path / "a" / "acts.py").write_text(ACTS.replace("return None", "return 'paid'"))
    python("a", "with tb.run('x') as run: run.call(acts.pay, key='k')")
    told = python(
        "b",
        "try: tb.undo('@')\nexcept takeback.ActionMissing as error: print(error)\nelse: print('undone')",
    )
    assert f"is of {tmp_path / 'b'}" in told, told
    assert not (tmp_path / "b" / "ledger").exists()
    assert (tmp_path / "a" / "ledger").read_text() == "paid"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    python("link", "tb.undo('@')")
    assert (tmp_path / "a" / "ledger").read_text() == "refunded"
