"""Compensations at a bank that does not want to, by processes that do not live long."""

import pytest

import takeback
from examples.office import BankOffice
from examples.payments import pay
from takeback.model.effect import State
from tests.calls.killing import alone
from tests.calls.own import pay_once
from tests.calls.tracer import Tell, traced
from tests.servers.process import wait_until

BOTH = ("anna", "shop")


@pytest.fixture
def tb(store: str) -> takeback.Takeback:
    return takeback.open(store)


@pytest.fixture
def effect(tb: takeback.Takeback, forgetful_bank: BankOffice) -> takeback.Effect:
    forgetful_bank.fund("anna", 1000)
    with tb.run("buy") as run:
        run.call(pay_once, *BOTH, 300, key="order-7")
    return tb.effects()[0]


def reversals(bank: BankOffice) -> int:
    return sum(row["reverses"] is not None for row in bank.ledger())


@pytest.mark.parametrize("how", ["500", "500 after", "reset", "lost", "hollow"])
def test_a_bank_that_fails_twice_is_asked_again_and_gives_back_once(
    tb: takeback.Takeback, effect: takeback.Effect, forgetful_bank: BankOffice, how: str
) -> None:
    forgetful_bank.misbehave(how, how, path="/reversals")
    assert tb.undo(effect).outcome == "done"
    assert reversals(forgetful_bank) == 1
    assert tb.effect(effect.id).state is State.UNDONE


@pytest.mark.parametrize("how", ["500", "reset", "hollow"])
def test_a_bank_that_always_fails_is_told_of_with_what_remains_and_tried_again_later(
    tb: takeback.Takeback, effect: takeback.Effect, forgetful_bank: BankOffice, how: str
) -> None:
    forgetful_bank.misbehave(f"always {how}", path="/reversals")
    result = tb.undo(effect)
    assert result.outcome == "stuck"
    assert "could not be taken back" in result.targets[0].detail
    assert reversals(forgetful_bank) == 0
    assert tb.effect(effect.id).state is State.DONE
    (stuck,) = tb.effects(state="stuck")
    assert stuck.undoes == effect.id
    forgetful_bank.misbehave(path="/reversals")
    assert tb.undo(effect).outcome == "done"
    assert reversals(forgetful_bank) == 1
    assert tb.effect(effect.id).state is State.UNDONE


def test_one_that_cannot_be_given_back_does_not_stop_the_others(
    tb: takeback.Takeback, bank: BankOffice
) -> None:
    bank.fund("anna", 1000)
    with pytest.raises(ZeroDivisionError) as told, tb.run("buy") as run:
        for number in (1, 2, 3):
            run.call(pay, *BOTH, number, key=f"order-{number}")
        bank.misbehave(*["500"] * 5, path="/reversals")
        raise ZeroDivisionError
    assert [cents for source, _, cents in bank.payments() if source == "anna"] == [3]
    assert "3" in "".join(told.value.__notes__)
    assert {one.state for one in tb.effects() if one.key in ("order-1", "order-2")} == {State.UNDONE}
    tb.recover()
    assert [cents for source, _, cents in bank.payments() if source == "anna"] == []
    assert [one.state for one in tb.runs()] == ["undone"]


@pytest.mark.parametrize("first", [240, 300, 340])
@pytest.mark.parametrize("how", ["ok", "lost"])
def test_a_process_killed_while_it_undoes_five_times_in_a_row_gives_back_once(
    tb: takeback.Takeback,
    effect: takeback.Effect,
    forgetful_bank: BankOffice,
    store: str,
    how: str,
    first: int,
) -> None:
    """Each time a bit later; whoever comes next goes on. One that is killed late enough has left nothing to kill."""
    tb.close()

    def undo(tell: Tell) -> None:
        with takeback.open(store) as tb:
            if tb.effect(effect.id).state is State.DONE:
                tb.undo(effect.id)

    forgetful_bank.misbehave(f"always {how}", path="/reversals")
    killed, at = 0, first
    while killed < 5 and at > 20:
        end = traced(undo, at)
        killed += end.killed
        at = at + 15 if end.killed else at // 2
        assert reversals(forgetful_bank) <= 1
    alone(undo)
    assert killed == 5
    wait_until(forgetful_bank.idle, "nothing is under way any more")
    assert reversals(forgetful_bank) == 1
    with takeback.open(store) as again:
        assert again.effect(effect.id).state is State.UNDONE
