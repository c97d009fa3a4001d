"""A call that makes no sense is a Misuse with a hint, not an error of Python's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Misuse, Takeback
from takeback.runs.sql import Sql
from tests.world import World

CALLS: list[Callable[[Any], Any]] = [
    lambda tb: tb.effect(5),
    lambda tb: tb.effect("\udcff"),
    lambda tb: tb.accept(5),
    lambda tb: tb.forget([5]),
    lambda tb: tb.redo(5),
    lambda tb: tb.undo(5),
    lambda tb: tb.find_run("\udcff"),
    lambda tb: tb.effects(run=5),
    lambda tb: tb.effects(agent="\udcff"),
    lambda tb: tb.effects(state="bogus"),
    lambda tb: tb.effects(limit=-3),
    lambda tb: tb.effects(path=5),
]
CHANGES: list[Callable[[Any, Any], Any]] = [
    lambda run, file: run.write(None, "x"),
    lambda run, file: run.write(file, "x", key=5),
    lambda run, file: run.write(file, "x", key="\udcff"),
    lambda run, file: run.write(file, "x", needs=[5]),
    lambda run, file: run.delete(5),
    lambda run, file: run.move(file, None),
    lambda run, file: run.symlink(file, 5),
    lambda run, file: run.accept(5),
    lambda run, file: run.edit_config(file, {"/\udcff": 1}),
    lambda run, file: run.edit_config(file, {"/a": "\ud800"}),
    lambda run, file: run.edit_config(file, {"/a": ["\ud800"]}),
    lambda run, file: run.edit_config(file, {"/a~2": 1}),
    lambda run, file: run.edit_config(file, {"/a": nested(3000)}),
    lambda run, file: run.edit_config(file, delete=["/~"]),
    lambda run, file: run.edit_config(file, {5: 1}),
]

COMMANDS: list[Callable[[Any], Any]] = [
    lambda run: run.command("true", timeout="x"),
    lambda run: run.command("true", timeout=10**400),
    lambda run: run.command("true", env={"A": 5}),
    lambda run: run.command("true", env=["A"]),
    lambda run: run.command("true", env={"A": "\ud800"}),
    lambda run: run.command("echo \ud800"),
    lambda run: run.command("true", stdin="text"),
    lambda run: run.command("true", memory="1G"),
    lambda run: run.command("true", memory=10**30),
    lambda run: run.command("true", processes=1.5),
    lambda run: run.command("true", cwd=5),
    lambda run: run.command("true", key=5),
    lambda run: run.sandbox(base=5),
    lambda run: run.sandbox(base="\0"),
    lambda run: run.sandbox(cwd=5),
    lambda run: run.sandbox(box=5),
    lambda run: run.sandbox(env={"A": 5}),
    lambda run: run.sandbox(timeout="x"),
    lambda run: run.sandbox(memory="1G"),
    lambda run: run.watch(5).begin(),
    lambda run: run.undo(to=5),
    lambda run: run.undo(5),
]
IN_A_BOX: list[Callable[[Any], Any]] = [
    lambda box: box.run("true", timeout="x"),
    lambda box: box.run("true", timeout=float("nan")),
    lambda box: box.run("true", env={"A": 5}),
    lambda box: box.run("true", env=5),
    lambda box: box.run("true", stdin="text"),
    lambda box: box.run("true", memory="1G"),
    lambda box: box.run("true", processes=-1),
    lambda box: box.run("true", key=5),
    lambda box: box.run("true", on_failure=5),
    lambda box: box.run(5),
    lambda box: box.undo(to=5),
    lambda box: box.undo(to=object()),
    lambda box: box.undo("x"),
    lambda box: box.undo(1.5),
    lambda box: box.undo(on_conflict=5),
    lambda box: box.export(5),
    lambda box: box.export("a\0b"),
]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def tb(store: Path) -> Any:
    with takeback.open(store) as tb:
        yield tb


@pytest.mark.parametrize("call", CALLS)
def test_a_question_that_makes_no_sense(tb: Takeback, call: Callable[[Any], Any]) -> None:
    with pytest.raises(Misuse) as caught:
        call(tb)
    assert caught.value.hint


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_makes_no_sense(tb: Takeback, world: World, change: Callable[[Any, Any], Any]) -> None:
    (world / "c.json").write_text("{}")
    with tb.run("odd") as run:
        with pytest.raises(Misuse) as caught:
            change(run, world / "c.json")
        assert caught.value.hint
        assert run.effects() == ()
    assert (world / "c.json").read_text() == "{}"


@pytest.mark.parametrize("call", COMMANDS)
def test_a_command_that_makes_no_sense(tb: Takeback, call: Callable[[Any], Any]) -> None:
    with tb.run("odd") as run:
        with pytest.raises(Misuse) as caught:
            call(run)
        assert caught.value.hint
        assert run.effects() == ()


@pytest.mark.root
def test_what_makes_no_sense_in_a_box(tb: Takeback, world: World) -> None:
    with tb.run("odd") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo 1 > a")
        for number, call in enumerate(IN_A_BOX):
            with pytest.raises(Misuse) as caught:
                call(box)
            assert caught.value.hint, number
        assert box.run("cat a", timeout=1e9).stdout == b"1\n"
        assert len(box.history()) == 1


@pytest.mark.parametrize("how", ["take_back", "close", "accept"])
def test_a_run_that_has_ended_says_so(tb: Takeback, world: World, how: str) -> None:
    run = tb.run("short")
    effect = run.write(world / "a", "1")
    run.close()

    with pytest.raises(Misuse, match="has ended"):
        getattr(run, how)(*[effect] * (how == "accept"))
    assert (world / "a").read_text() == "1"


def test_an_empty_path_is_no_store() -> None:
    with pytest.raises(Misuse):
        takeback.open("")


# Words of before.


def old_words(tb: takeback.Takeback, place: Path) -> dict[str, Callable[[], object]]:
    def in_a_run(work: Callable[[takeback.Run], object]) -> object:
        with tb.run("uses an old word", on_death="accept") as run:
            return work(run)

    return {
        "tb.keep": lambda: tb.keep("@"),
        "tb.keep of several": lambda: tb.keep(["@"], force=True),
        "run.keep": lambda: in_a_run(lambda run: run.keep("@")),
        "on_death": lambda: tb.run("old", on_death="keep"),
        "on_failure": lambda: in_a_run(lambda run: run.command("touch made", cwd=place, on_failure="keep")),
        "workflow": lambda: takeback.workflow(on_failure="keep"),
        "most": lambda: in_a_run(lambda run: _any(run).sql("sqlite:///d.db", most=1)),
        "review": lambda: in_a_run(lambda run: _any(run).sql("sqlite:///d.db", review=True)),
        "program": lambda: in_a_run(lambda run: _any(run).program("sqlite:///d.db", says="x")),
        "transaction": lambda: _any(Sql).transaction(None, says="x"),
        "force": lambda: in_a_run(lambda run: _any(run).watch(place, force=True)),
    }


def _any(one: Any) -> Any:
    return one


@pytest.mark.parametrize(
    ("word", "now"),
    [
        ("tb.keep", "tb.accept accepts"),
        ("tb.keep of several", "tb.apply makes"),
        ("run.keep", "run.accept accepts"),
        ("on_death", 'on_death="accept"'),
        ("on_failure", "`leave` leaves"),
        ("workflow", "`leave` leaves"),
        ("most", "Say max_rows=."),
        ("review", "Say hold=."),
        ("program", "Say summary=."),
        ("transaction", "Say summary=."),
        ("force", "Say any_root=."),
    ],
)
def test_an_old_word_says_which_one_is_meant_and_does_nothing(
    store: Path, tmp_path: Path, word: str, now: str
) -> None:
    with takeback.open(store) as tb:
        with tb.run("before") as run:
            effect = run.write(tmp_path / "a", "1")
        assert effect
        with pytest.raises(takeback.Renamed, match="renamed") as told:
            old_words(tb, tmp_path)[word]()
        assert now in told.value.hint and told.value.exit_code == 2
        assert [(one.id, one.accepted_by, one.pinned) for one in tb.effects()] == [(effect.id, "run", False)]
    assert not (tmp_path / "made").exists()


def test_the_old_setting_says_which_one_is_meant(store: Path) -> None:
    takeback.open(store).close()
    (store / "settings.json").write_text('{"kept_seconds": 5}')
    with pytest.raises(takeback.Renamed, match="kept_seconds") as told:
        takeback.open(store)
    assert "accepted_seconds" in told.value.hint and told.value.exit_code == 2
