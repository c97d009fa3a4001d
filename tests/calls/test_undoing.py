"""Compensations at a bank that does not want to, by processes that do not live long."""

import os
from pathlib import Path
from typing import Any

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
            tb.recover()  # finishes what the last one was killed in, as `takeback recover` does
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


BOOKS: dict[str, Any] = {}


def _moved(key: str) -> Any:
    """Another amount than was asked for; a refund stands beside it, so that it is to be seen for ever."""
    if key in BOOKS["paid"] and BOOKS.get("seems right"):
        return BOOKS["paid"][key]
    if key in BOOKS["paid"]:
        raise takeback.VerifyFailed("another amount was moved", receipt=BOOKS["paid"][key])


def _given_back(receipt: Any) -> None:
    BOOKS["refunds"].append(receipt)
    if BOOKS["dies"]:
        raise SystemExit


@takeback.action(verify=_moved, undo=_given_back, name="tests.pay_wrongly")
def pay_wrongly(key: str) -> str:
    BOOKS["paid"][key] = f"paid {key}"
    return f"paid {key}"


@pytest.mark.parametrize("dies", [False, True])
def test_what_may_not_be_called_twice_is_called_once_however_often_it_is_recovered(
    tb: takeback.Takeback, dies: bool
) -> None:
    BOOKS.update(paid={}, refunds=[], dies=dies)
    with pytest.raises(takeback.Stuck), tb.run("buy") as run:
        run.call(pay_wrongly, key="k")
    assert BOOKS["refunds"] == ["paid k"]
    for _ in range(3):
        tb.recover()
    assert BOOKS["refunds"] == ["paid k"]
    BOOKS["seems right"] = True
    tb.recover()
    del BOOKS["seems right"]
    assert BOOKS["refunds"] == ["paid k"]
    (effect,) = tb.effects()
    assert effect.state is State.STUCK
    assert "Its undo was started" in effect.note
    tb.settle(effect, False)
    assert tb.effect(effect.id).state is State.ABORTED


def test_a_process_that_dies_while_it_makes_up_for_a_call_has_made_up_for_it_once(
    tb: takeback.Takeback, tmp_path: Path
) -> None:
    """Of the next ones none begins again: nobody can tell whether it happened."""
    BOOKS.update(paid={}, refunds=[], dies=False)
    told = tmp_path / "refunds"

    def dying(_: Tell) -> None:
        def refund(receipt: Any) -> None:
            told.write_text(told.read_text() + "!" if told.exists() else "!")
            os._exit(9)

        BOOKS["refunds"] = type("Dying", (list,), {"append": lambda _, receipt: refund(receipt)})()
        with takeback.open(tb.store.name) as other, other.run("buy") as run:
            run.call(pay_wrongly, key="k")

    traced(dying, 0)
    BOOKS["paid"]["k"] = "paid k"
    assert told.read_text() == "!"
    for _ in range(3):
        tb.recover()
    assert (told.read_text(), BOOKS["refunds"]) == ("!", [])
    assert [one.state for one in tb.effects()] == [State.STUCK]


def test_what_cannot_be_said_first_is_not_begun_and_not_called_again(
    tb: takeback.Takeback, monkeypatch: pytest.MonkeyPatch
) -> None:
    BOOKS.update(paid={}, refunds=[], dies=False)
    append = tb.store.journal.append

    def busy(lease: Any, drafts: Any) -> Any:
        if drafts[0].kind == "stick":
            raise takeback.StoreBusy("Another process has been writing to the store for too long.")
        return append(lease, drafts)

    with tb.run("buy", on_death="accept") as run:
        monkeypatch.setattr(tb.store.journal, "append", busy)
        with pytest.raises(takeback.InDoubt, match="could not be recorded"):
            run.call(pay_wrongly, key="k")
        assert (BOOKS["refunds"], list(BOOKS["paid"])) == ([], ["k"])
        monkeypatch.undo()
        tb.settle(tb.effects()[0], False)


DESK: dict[str, Any] = {}


def _credited(receipt: Any) -> Any:
    return receipt if receipt in DESK["credits"] else None


def _credit(receipt: Any) -> None:
    DESK["asked"] += 1
    if DESK["closed"]:
        raise RuntimeError("409: conflict")
    DESK["credits"].append(receipt)


def _debited(key: str) -> Any:
    return f"debit {key}" if key in DESK["debits"] else None


@takeback.action(verify=_debited, name="tests.debit_at_a_desk")
def debit_at_a_desk(key: str) -> str:
    DESK["debits"].append(key)
    return f"debit {key}"


debit_at_a_desk.undo(_credit, verify=_credited, retries=0)


def test_finding_1_recover_tries_a_stuck_undo_again_and_never_drops_it(tb: takeback.Takeback) -> None:
    DESK.update(debits=[], credits=[], asked=0, closed=True)
    with tb.run("pay") as run:
        run.call(debit_at_a_desk, key="k")
    (effect,) = tb.effects()
    assert tb.undo(run).outcome != "done"
    assert len(tb.effects(state="stuck")) == 1

    before = DESK["asked"]
    (still,) = tb.recover()
    assert (still.outcome, tb.effect(still.effect).state) == ("stuck", State.STUCK)
    assert DESK["asked"] > before and not DESK["credits"]
    assert tb.effect(effect.id).state is State.DONE

    DESK["closed"] = False
    (settled,) = tb.recover()
    assert (settled.outcome, settled.cause.value) == ("done", "undo_finished")
    assert tb.effect(effect.id).state is State.UNDONE and DESK["credits"] == ["debit k"]
    assert tb.recover() == ()
    assert DESK["credits"] == ["debit k"]


def test_finding_1_a_stuck_undo_that_is_found_made_is_recorded_and_not_made_again(
    tb: takeback.Takeback,
) -> None:
    DESK.update(debits=[], credits=[], asked=0, closed=True)
    with tb.run("pay") as run:
        run.call(debit_at_a_desk, key="k")
    assert tb.undo(run).outcome != "done"
    DESK["credits"].append("debit k")  # by hand
    asked = DESK["asked"]
    tb.recover()
    assert DESK["asked"] == asked
    assert [one.state for one in tb.effects() if not one.is_undo] == [State.UNDONE]
