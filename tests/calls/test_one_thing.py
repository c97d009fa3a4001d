"""Calls about one thing: undo of an earlier one never overwrites what a later one did."""

from pathlib import Path
from typing import Any

import pytest

import takeback

BOX: dict[str, Any] = {}


@takeback.action
def put(value: str, *, key: str) -> dict[str, Any]:
    """Nothing in it names what it is about."""
    old, BOX["value"] = BOX.get("value"), value
    return {"old": old}


@put.undo
def put_back(receipt: dict[str, Any]) -> None:
    BOX["value"] = receipt["old"]


@takeback.action(resource="flags/{name}")
def set_flag(name: str, value: int) -> dict[str, Any]:
    old, BOX[name] = BOX.get(name), value
    return {"old": old}


@set_flag.undo
def reset_flag(receipt: dict[str, Any], name: str) -> None:
    BOX[name] = receipt["old"]


@takeback.action(resource="flags/{name}")
def drop_flag(name: str) -> dict[str, Any]:
    return {"old": BOX.pop(name, None)}


@drop_flag.undo
def bring_back(receipt: dict[str, Any], name: str) -> None:
    BOX[name] = receipt["old"]


@takeback.action
def order(item: str) -> dict[str, Any]:
    BOX.setdefault("orders", []).append(item)
    return {"order_id": f"o-{len(BOX['orders'])}", "item": item}


@order.undo
def cancel(receipt: dict[str, Any]) -> None:
    BOX["orders"].remove(receipt["item"])


@pytest.fixture
def tb(store: Path) -> takeback.Takeback:
    BOX.clear()
    return takeback.open(store)


def test_finding_28_undo_of_an_older_call_does_not_overwrite_a_later_one(tb: takeback.Takeback) -> None:
    with tb.run("order") as run:
        run.call(put, "second")
        run.call(put, "third")
    first, second = tb.effects(run=run.id)
    with pytest.raises(takeback.Blocked) as told:
        tb.undo(first)
    assert told.value.blockers == (second.id,) and BOX["value"] == "third"
    tb.undo(first, cascade=True)
    assert BOX["value"] is None


def test_finding_28_calls_about_different_things_come_out_alone(tb: takeback.Takeback) -> None:
    with tb.run("orders") as run:
        run.call(order, "tea")
        run.call(order, "milk")
        run.call(set_flag, "a", 1)
        run.call(set_flag, "b", 1)
    first, _, flag, _ = tb.effects(run=run.id)
    assert tb.undo(first).outcome == "done" and BOX["orders"] == ["milk"]
    assert tb.undo(flag).outcome == "done" and BOX["a"] is None and BOX["b"] == 1


def test_finding_28_other_actions_about_the_same_thing_count_too(tb: takeback.Takeback) -> None:
    with tb.run("flags") as run:
        run.call(set_flag, "a", 1)
        run.call(drop_flag, "a")
    first, second = tb.effects(run=run.id)
    with pytest.raises(takeback.Blocked) as told:
        tb.undo(first)
    assert told.value.blockers == (second.id,)
    tb.undo(second)
    tb.undo(first)
    assert BOX["a"] is None


def test_finding_28_a_resource_that_does_not_fit_is_refused_before_the_call(tb: takeback.Takeback) -> None:
    @takeback.action(resource="flags/{nome}", undo=takeback.IRREVERSIBLE("no"))
    def odd(name: str) -> None:
        BOX["called"] = name

    with tb.run("odd") as run, pytest.raises(takeback.Misuse, match="does not fit its arguments"):
        run.call(odd, "x")
    assert "called" not in BOX


def test_finding_r6_a_session_joined_twice_in_one_process_is_the_same_run(
    tb: takeback.Takeback, tmp_path: Path
) -> None:
    one = tb.session("mine")
    other = tb.session("mine", wait=0)
    assert other.id == one.id
    one.leave()
    other.write(tmp_path / "f", "1")
    other.leave()
    with pytest.raises(takeback.Misuse, match="has ended"):
        other.write(tmp_path / "f", "2")
    with takeback.open(tb.path) as again:
        again.session("mine", wait=0).leave()
