"""After going back: what was spent is answered from the journal or asked about, and fired only after a fork."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

import takeback
from examples.payments import pay_blindly
from takeback.policy.patterns import sameness
from tests.calls import post
from tests.calls.conftest import BankOffice
from tests.calls.post import send_mail


@pytest.fixture(autouse=True)
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))


@pytest.fixture
def tb(store: str) -> takeback.Takeback:
    return takeback.open(store)


def mail(tb: takeback.Takeback, run: takeback.Run, **named: object) -> object:
    """Approved at once."""
    try:
        return run.call(send_mail, **named)
    except takeback.AwaitingApproval as told:
        tb.approve(told.effect or "", by="bea", answer=told.challenge)
        return run.call(send_mail, **named)


def test_what_cannot_be_undone_is_answered_with_its_recorded_result(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        run.checkpoint("before")
        first = mail(tb, run, to="anna")
        run.undo(to="before")
        assert run.call(send_mail, to="anna") == first
        assert post.sent() == ["mail anna hello"]


def test_two_that_are_the_same_are_answered_one_after_the_other_and_a_third_is_new(
    tb: takeback.Takeback,
) -> None:
    with tb.run("write") as run:
        run.checkpoint("before")
        both = [mail(tb, run, to="anna"), mail(tb, run, to="anna")]
        run.undo(to="before")
        assert [run.call(send_mail, to="anna"), run.call(send_mail, to="anna")] == both
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, to="anna")
    assert len(post.sent()) == 2


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({}, {"amount": 500.00, "to": "anna"}),
        ({}, {"to": "anna", "amount": 500, "text": " hello "}),
        ({"request": str(uuid4())}, {"to": "anna", "amount": 500, "request": str(uuid4())}),
    ],
)
def test_the_same_written_in_another_way_is_asked_about(
    tb: takeback.Takeback, first: dict[str, object], again: dict[str, object]
) -> None:
    with tb.run("write") as run:
        run.checkpoint("before")
        mail(tb, run, to="anna", amount=500, **first)
        run.undo(to="before")
        with pytest.raises(takeback.Spent, match="did this before"):
            run.call(send_mail, **again)
        assert len(post.sent()) == 1


def test_a_fork_makes_a_new_intent_with_a_new_approval(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        run.checkpoint("before")
        mail(tb, run, to="anna", key="mail-1")
        run.undo(to="before")
        run.fork("she asked for it again")
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, to="anna", key="mail-1")
        tb.approve(told.value.effect or "", by="bea", answer=told.value.challenge)
        run.call(send_mail, to="anna", key="mail-1")
    assert len(post.sent()) == 2


def test_something_else_is_just_called(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        run.checkpoint("before")
        mail(tb, run, to="anna", amount=500)
        run.undo(to="before")
        mail(tb, run, to="anna", amount=501)
    assert len(post.sent()) == 2


def test_what_was_made_up_for_is_asked_about_and_made_again_after_a_fork(
    tb: takeback.Takeback, bank: BankOffice
) -> None:
    with tb.run("buy") as run:
        run.checkpoint("before")
        run.call(pay_blindly, "anna", "shop", 300, key="order-7")
        run.undo(to="before")
        assert bank.payments() == []
        for key in ("", "order-8"):
            with pytest.raises(takeback.Spent, match="taken back since"):
                run.call(pay_blindly, "anna", "shop", 300, key=key)
        assert bank.payments() == []
        run.fork("the card works again")
        run.call(pay_blindly, "anna", "shop", 300, key="order-7")
    assert bank.payments() == [("anna", "shop", 300)]


def test_a_run_that_is_resumed_remembers_that_it_went_back(tb: takeback.Takeback) -> None:
    with pytest.raises(KeyboardInterrupt), tb.run("write") as run:
        run.checkpoint("before")
        mail(tb, run, to="anna")
        run.undo(to="before")
        raise KeyboardInterrupt
    with takeback.open(tb.path) as other, other.resume(tb.runs()[0]) as run:
        assert run.call(send_mail, to="anna") == {"to": "anna", "number": 1}
    assert len(post.sent()) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"amount": 500}, {"amount": 500.00}),
        ({"amount": "500.00"}, {"amount": 500}),
        ({"amount": 1e3}, {"amount": 1000}),
        ({"request_id": "r-1"}, {"request_id": "r-2"}),
        ({"of": "req_9f8b3c1d2e4f5a6b7c8d9e0f1a2b3c4d"}, {"of": "req_0f8b3c1d2e4f5a6b7c8d9e0f1a2b3c4e"}),
        ({"of": str(uuid4())}, {"of": str(uuid4())}),
        ({"of": ["a  b", None, True]}, {"of": ["a b", None, True]}),
    ],
)
def test_what_means_the_same_is_the_same(one: dict[str, object], other: dict[str, object]) -> None:
    assert sameness(one) == sameness(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"amount": 500}, {"amount": 501}),
        ({"amount": 500}, {"amount": 5000}),
        ({"amount": 1}, {"amount": True}),
        ({"customer": "c_1"}, {"customer": "c_2"}),
        ({"customer_id": "7"}, {"customer_id": "8"}),
        ({"of": ["a", "b"]}, {"of": ["b", "a"]}),
    ],
)
def test_what_does_not_mean_the_same_is_not(one: dict[str, object], other: dict[str, object]) -> None:
    assert sameness(one) != sameness(other)


CALLED = 1_795_000_000_000_000  # 2026-11-18 11:06:40 UTC
LATER = CALLED + 120_000_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"to": "anna", "at": "2026-11-18T11:06:40Z"}, {"to": "anna", "at": "2026-11-18T11:08:40Z"}),
        ({"to": "anna", "at": "2026-11-18T12:06:40+01:00"}, {"to": "anna", "at": "2026-11-18 11:08:40"}),
        ({"to": "anna", "sent": 1_795_000_000}, {"to": "anna", "sent": 1_795_000_120.5}),
        ({"to": "anna", "ms": 1_795_000_000_000}, {"to": "anna", "ms": 1_795_000_120_000}),
        ({"to": "anna"}, {"to": "anna", "at": "2026-11-18T11:08:40Z"}),
    ],
)
def test_finding_14_another_time_stamp_is_the_same_request(
    one: dict[str, object], other: dict[str, object]
) -> None:
    assert sameness(one, at=CALLED) == sameness(other, at=LATER)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"book": "2026-12-24T10:00"}, {"book": "2026-12-24T11:00"}),
        ({"cents": 500}, {"cents": 501}),
        ({"day": "2026-12-24"}, {"day": "2026-12-25"}),
    ],
)
def test_finding_14_another_appointment_is_another_request(
    one: dict[str, object], other: dict[str, object]
) -> None:
    assert sameness(one, at=CALLED) != sameness(other, at=LATER)


def test_finding_14_a_new_time_stamp_does_not_send_it_again(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        run.checkpoint("before")
        mail(tb, run, to="anna", text=(first := stamp()))
        run.undo(to="before")
        with pytest.raises(takeback.Spent, match="did this before"):
            run.call(send_mail, to="anna", text=stamp())
    assert post.sent() == [f"mail anna {first}"]


def stamp() -> str:
    return datetime.now(UTC).isoformat()
