"""Calls: made and undone at the test endpoint that their action declares, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.adapters.call.action import Action
from takeback.api import Takeback, opened_of
from takeback.model.rehearsal import Rehearsed, Viability
from tests.rehearse import practice


@pytest.fixture
def endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    real, practised = tmp_path / "real", tmp_path / "practice"
    for path, name in ((real, "PRACTICE"), (practised, "PRACTICE_FOR_TESTS")):
        path.mkdir()
        monkeypatch.setenv(name, str(path))
    return real, practised


def rehearsed(tb: Takeback, action: Action) -> Rehearsed:
    with tb.run("work") as run:
        run.call(action, "pears")
    (told,) = tb.rehearse("@").rehearsed
    return told


def names(*paths: Path) -> list[list[str]]:
    return [sorted(one.name for one in path.iterdir()) for path in paths]


def test_a_call_is_made_and_undone_at_the_test_endpoint(tb: Takeback, endpoints: tuple[Path, Path]) -> None:
    told = rehearsed(tb, practice.order)

    assert (told.outcome, told.why) == (Viability.WORKS, "at its test endpoint")
    (made,), none = names(*endpoints)
    assert made
    assert none == []


def test_an_undo_that_leaves_it_there_is_caught(tb: Takeback, endpoints: tuple[Path, Path]) -> None:
    told = rehearsed(tb, practice.order_for_good)

    assert told.outcome is Viability.FAILS
    assert "still there" in told.why


def test_an_endpoint_that_does_not_answer_proves_nothing(tb: Takeback, endpoints: tuple[Path, Path]) -> None:
    told = rehearsed(tb, practice.order_nowhere)

    assert told.outcome is Viability.CANNOT
    assert "test endpoint" in told.why


def test_without_a_test_endpoint_it_says_so(tb: Takeback, endpoints: tuple[Path, Path]) -> None:
    told = rehearsed(tb, practice.order_unrehearsed)

    assert (told.outcome, told.why) == (
        Viability.CANNOT,
        "tests.rehearse.practice:order_unrehearsed declares no test endpoint (rehearse=)",
    )


def test_an_undo_that_is_gone_is_caught_by_both(tb: Takeback, endpoints: tuple[Path, Path]) -> None:
    with tb.run("work") as run:
        run.call(practice.order, "pears")
    action: Any = practice.order
    way, action.way_back = action.way_back, None
    try:
        tried, looked = tb.rehearse("@").rehearsed, tb.rehearse("@", check=True).rehearsed
    finally:
        action.way_back = way

    assert [one.outcome for one in (*tried, *looked)] == [Viability.FAILS, Viability.FAILS]
    assert "no undo any more" in looked[0].why


def test_a_module_that_is_gone_is_caught(tb: Takeback, endpoints: tuple[Path, Path]) -> None:
    with tb.run("work") as run:
        run.call(practice.order, "pears")
    effect = tb.effect("@")
    # As another process would see it that cannot import the module any more.
    calls: Any = opened_of(tb).parts.adapters["call"]
    args = effect.change.args | {"action": "gone:order", "home": ["gone", "", False]}
    assert calls is not None

    from takeback.engine.rehearse import Fitness, look_at

    gone = effect._replace(change=effect.change._replace(args=args))
    told = look_at(opened_of(tb).parts, gone, Fitness({}, set()))

    assert told.outcome is Viability.FAILS
    assert "not available" in told.why


@pytest.mark.parametrize("odd", [7, "BANK_URL", {"A": 1}, {}])
def test_a_test_endpoint_is_a_function_or_variables(odd: Any) -> None:
    with pytest.raises(takeback.Misuse, match="names no test endpoint"):
        takeback.action(practice.make, rehearse=odd)
