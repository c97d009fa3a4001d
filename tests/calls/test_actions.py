"""Actions as a user of the library meets them, at a real bank."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from examples.office import BankOffice
from examples.payments import pay, pay_blindly, pay_keyed
from takeback.model.effect import State
from tests.calls.own import pay_and_lose_sight

BOTH = ("anna", "shop")


@pytest.fixture
def tb(store: str) -> takeback.Takeback:
    return takeback.open(store)


def paid(bank: BankOffice) -> list[int]:
    return [cents for source, _, cents in bank.payments() if source == "anna"]


class TestCall:
    def test_it_is_called_once_and_its_result_is_returned(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.fund("anna", 1000)
        with tb.run("buy", agent="shopper") as run:
            receipt = run.call(pay, "anna", "shop", cents=300)
        assert paid(bank) == [300]
        assert receipt["cents"] == 300
        (effect,) = tb.effects()
        assert effect.state is State.DONE and effect.remedy
        assert effect.remedy.strategy == "compensation"

    def test_the_same_key_again_returns_the_recorded_result(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.fund("anna", 1000)
        with tb.run("buy") as run:
            first = run.call(pay, *BOTH, 300, key="order-7")
            assert run.call(pay, *BOTH, 300, key="order-7") == first
        with tb.run("buy again") as run:
            assert run.call(pay, *BOTH, cents=300, key="order-7") == first
        assert paid(bank) == [300]

    def test_the_same_key_for_something_else_is_refused(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.fund("anna", 1000)
        with tb.run("buy") as run:
            run.call(pay, *BOTH, 300, key="order-7")
            with pytest.raises(takeback.KeyReused):
                run.call(pay, *BOTH, 301, key="order-7")
        assert paid(bank) == [300]

    def test_what_it_expects_is_asked_right_before_and_nothing_fires_when_it_does_not_hold(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.fund("anna", 100)
        with tb.run("buy") as run, pytest.raises(takeback.PreconditionFailed, match="covered"):
            run.call(pay, *BOTH, 300)
        assert paid(bank) == []
        assert tb.effects() == ()

    def test_a_run_that_fails_makes_up_for_it(self, tb: takeback.Takeback, bank: BankOffice) -> None:
        bank.fund("anna", 1000)
        with pytest.raises(ZeroDivisionError), tb.run("buy") as run:
            run.call(pay, *BOTH, 300)
            run.call(pay, *BOTH, 200)
            raise ZeroDivisionError
        assert paid(bank) == []
        reversed_in = [row["reverses"] for row in bank.ledger() if row["reverses"]]
        assert reversed_in == sorted(reversed_in, reverse=True)  # the newest first

    def test_it_can_be_undone_later_by_name(self, tb: takeback.Takeback, bank: BankOffice) -> None:
        bank.fund("anna", 1000)
        with tb.run("buy") as run:
            run.call(pay, *BOTH, 300)
        (effect,) = tb.effects()
        assert tb.undo(effect).outcome == "done"
        assert paid(bank) == []
        assert tb.effect(effect.id).state is State.UNDONE
        with pytest.raises(takeback.Refused):
            tb.redo(effect)
        assert paid(bank) == []


class TestDoubt:
    @pytest.mark.parametrize("how", ["lost", "500 after"])
    def test_a_lost_answer_is_found_again_by_asking(
        self, tb: takeback.Takeback, bank: BankOffice, how: str
    ) -> None:
        bank.fund("anna", 1000)
        bank.misbehave(how)
        with tb.run("buy") as run:
            receipt = run.call(pay, *BOTH, 300)
        assert paid(bank) == [300]
        assert receipt["id"] == bank.ledger()[-1]["id"]
        assert tb.undo(tb.effects()[0]).outcome == "done"
        assert paid(bank) == []

    @pytest.mark.parametrize("how", ["reset", "500"])
    def test_what_did_not_happen_is_told_so_and_can_be_called_again(
        self, tb: takeback.Takeback, bank: BankOffice, how: str
    ) -> None:
        bank.fund("anna", 1000)
        bank.misbehave(how)
        with tb.run("buy") as run:
            with pytest.raises(takeback.ApplyFailed, match="outcome is unknown"):
                run.call(pay, *BOTH, 300, key="order-7")
            run.call(pay, *BOTH, 300, key="order-7")
        assert paid(bank) == [300]
        assert [one.state for one in tb.effects()] == [State.ABORTED, State.DONE]

    def test_where_nobody_can_be_asked_it_waits_for_a_person(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.misbehave("lost")
        with tb.run("buy") as run:
            with pytest.raises(takeback.Stuck) as told:
                run.call(pay_blindly, *BOTH, 300, key="order-7")
            assert "takeback settle" in told.value.hint
            with pytest.raises(takeback.Stuck):
                run.call(pay_blindly, *BOTH, 300, key="order-7")
        assert paid(bank) == [300]
        (effect,) = tb.effects()
        assert effect.state is State.STUCK
        assert tb.recover()[0].outcome == "stuck"
        assert paid(bank) == [300]

    def test_where_keys_are_honoured_it_is_called_again_with_the_same_key(
        self, tb: takeback.Takeback, keyed_bank: BankOffice
    ) -> None:
        keyed_bank.misbehave("lost", "500", "500 after")
        with tb.run("buy") as run:
            receipt = run.call(pay_keyed, *BOTH, 300)
        assert paid(keyed_bank) == [300]
        assert receipt["cents"] == 300

    @pytest.mark.parametrize("caught", [True, False])
    def test_a_run_with_a_call_that_nobody_can_tell_about_says_so_and_is_ended_by_whoever_can(
        self, tb: takeback.Takeback, bank: BankOffice, monkeypatch: pytest.MonkeyPatch, caught: bool
    ) -> None:
        with pytest.raises(takeback.InDoubt), tb.run("buy", on_death="accept") as run:
            try:
                run.call(pay_and_lose_sight, *BOTH, 300, key="order-7")
            except takeback.InDoubt:
                if not caught:
                    raise
        assert tb.runs()[0].state == "open"
        monkeypatch.setenv("BANK_URL", bank.url)
        assert [one.outcome for one in tb.recover()] == ["done"]
        assert tb.runs()[0].state == "accepted"
        assert paid(bank) == [300]

    def test_what_the_bank_declines_did_not_happen(self, tb: takeback.Takeback, bank: BankOffice) -> None:
        with tb.run("buy") as run, pytest.raises(takeback.DidNotHappen, match="no amount"):
            run.call(pay_blindly, *BOTH, -5)
        (effect,) = tb.effects()
        assert effect.state is State.ABORTED


class TestVerification:
    def test_what_was_not_done_is_not_believed(self, tb: takeback.Takeback, bank: BankOffice) -> None:
        bank.fund("anna", 10_000)
        bank.misbehave("hollow")
        with tb.run("buy") as run, pytest.raises(takeback.TakebackError):
            run.call(pay, *BOTH, 300)
        assert paid(bank) == []

    def test_what_is_not_as_it_was_asked_for_is_made_up_for(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        """It stays in the ledger, beside its reversal: that is no reason to call a person."""
        bank.fund("anna", 10_000)
        bank.misbehave("wrong")
        with tb.run("buy") as run, pytest.raises(takeback.VerifyFailed, match="3000 cents instead of 300"):
            run.call(pay, *BOTH, 300, key="order-7")
        assert paid(bank) == []
        assert [one.state for one in tb.effects()] == [State.ABORTED]


class TestSettling:
    def test_a_person_says_that_it_happened_and_it_can_be_undone(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.misbehave("lost")
        with tb.run("buy") as run, pytest.raises(takeback.Stuck):
            run.call(pay_blindly, *BOTH, 300, key="order-7")
        (effect,) = tb.effects()
        settled = tb.settle(effect, True, receipt={"id": bank.ledger()[-1]["id"]}, by="bea")
        assert settled.state is State.DONE and "bea" in settled.note
        with tb.run("look again") as run:
            assert run.call(pay_blindly, *BOTH, 300, key="order-7") == {"id": bank.ledger()[-1]["id"]}
        assert tb.undo(effect).outcome == "done"
        assert paid(bank) == []

    def test_a_person_says_that_it_did_not_and_it_can_be_called_again(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.misbehave("reset")
        with tb.run("buy") as run, pytest.raises(takeback.Stuck):
            run.call(pay_blindly, *BOTH, 300, key="order-7")
        (effect,) = tb.effects()
        assert tb.settle(effect, False).state is State.ABORTED
        with tb.run("try again") as run:
            run.call(pay_blindly, *BOTH, 300, key="order-7")
        assert paid(bank) == [300]

    def test_a_run_that_failed_goes_on_being_taken_back_when_its_doubt_is_settled(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        with pytest.raises(takeback.Stuck), tb.run("buy") as run:
            run.call(pay_blindly, *BOTH, 100)
            bank.misbehave("lost")
            run.call(pay_blindly, *BOTH, 300)
        assert paid(bank) == [300]  # everything else went back at once
        doubtful = next(one for one in tb.effects() if one.state is State.STUCK)
        settled = tb.settle(doubtful, True, receipt={"id": 2})
        assert settled.state is State.UNDONE
        assert paid(bank) == []
        assert tb.runs()[0].state == "undone"

    def test_what_is_not_in_doubt_is_refused(self, tb: takeback.Takeback, bank: BankOffice) -> None:
        with tb.run("buy") as run:
            run.call(pay_blindly, *BOTH, 300)
        with pytest.raises(takeback.Refused, match="done"):
            tb.settle(tb.effects()[0], False)


class TestInbox:
    def test_what_is_in_doubt_is_told_with_what_a_person_needs(
        self, tb: takeback.Takeback, bank: BankOffice
    ) -> None:
        bank.misbehave("lost")
        with tb.run("buy") as run, pytest.raises(takeback.Stuck):
            run.call(pay_blindly, *BOTH, 300, key="order-7")
        (effect,) = tb.effects()
        assert command(tb, "status", "--json").json["in_doubt"] == [effect.id]
        status = command(tb, "status").out
        assert "In doubt" in status and "takeback settle" in status
        shown = command(tb, "show", effect.id).out
        for fact in ("order-7", '"cents":300', "in doubt", "ConnectionError", "takeback settle"):
            assert fact in shown.replace("RemoteDisconnected", "ConnectionError"), fact
        assert command(tb, "settle", effect.id, "--happened", "--receipt", "{").code == 2
        assert command(tb, "settle", effect.id, "--did-not-happen", "--receipt", "{}").code == 2
        assert command(tb, "settle", effect.id).code == 2
        assert command(tb, "settle", effect.id, "--happened", "--dry-run").code == 0
        assert tb.effect(effect.id).state is State.STUCK
        told = command(tb, "settle", effect.id, "--happened", "--receipt", '{"id": 1}', "--by", "bea")
        assert (told.code, told.out.count("recorded as done")) == (0, 1)
        assert command(tb, "status", "--json").json["in_doubt"] == []
        assert command(tb, "show", "--json", effect.id).json["result"] == {"id": 1}
        assert command(tb, "settle", effect.id, "--did-not-happen").code == 3

    def test_a_call_is_undone_from_the_command_line_by_its_registered_name(
        self, tb: takeback.Takeback, bank: BankOffice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with tb.run("buy") as run:
            run.call(pay_blindly, *BOTH, 300)
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("PYTHONPATH")
        told = command(tb, "undo", tb.effects()[0].id)
        assert (told.code, paid(bank)) == (0, []), told

    def test_a_function_that_is_gone_is_told_loudly_and_nothing_is_called(
        self, tb: takeback.Takeback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = tmp_path / "shop_actions.py"
        made = tmp_path / "made"
        monkeypatch.setenv("MADE", str(made))
        module.write_text(MODULE)
        script = tmp_path / "agent.py"
        script.write_text(AGENT)
        ran = subprocess.run(
            [sys.executable, script], env=os.environ | {"TAKEBACK_STORE": tb.path}, check=False
        )
        assert (ran.returncode, made.read_text()) == (0, "made\n")
        for change in ("shop.order", "@order.undo", "version=1"):
            other = {
                "shop.order": "shop.moved.away",
                "@order.undo": "@takeback.MANUAL",
                "version=1": "version=22",
            }[change]
            module.write_text(MODULE.replace(change, other))
            told = command(tb, "undo", "@")
            assert told.code == 5 and "order" in told.err, told
            assert made.read_text() == "made\n"
        module.unlink()
        assert command(tb, "undo", "@").code == 5
        (tmp_path / "moved").mkdir()
        (tmp_path / "moved" / "new_place.py").write_text(MODULE)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "moved"))
        monkeypatch.setenv("TAKEBACK_ACTIONS", "new_place")
        assert command(tb, "undo", "@").code == 0
        assert made.read_text() == "made\ncancelled\n"


MODULE = """
import os, takeback

def note(word):
    with open(os.environ["MADE"], "a") as out:
        out.write(word + "\\n")

@takeback.action(name="shop.order", version=1)
def order():
    note("made")

@order.undo
def cancel(receipt):
    note("cancelled")
"""
AGENT = """
import takeback, shop_actions
with takeback.open() as tb, tb.run("shop") as run:
    run.call(shop_actions.order)
"""


class Told(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(tb: takeback.Takeback, *words: str) -> Told:
    done = subprocess.run(
        [sys.executable, "-m", "takeback", *words], capture_output=True, text=True, check=False,
        env=os.environ | {"TAKEBACK_STORE": tb.path},
    )  # fmt: skip
    return Told(done.returncode, done.stdout, done.stderr)


def test_every_look_at_a_call_says_what_it_was(tb: takeback.Takeback, bank: BankOffice) -> None:
    with tb.run("buy") as run:
        run.call(pay_blindly, *BOTH, 300, key="order-7")
    for words in (("show", "@"), ("diff", "@")):
        told = command(tb, *words)
        assert told.code == 0 and '"cents":300' in told.out, told
        assert command(tb, *words, "--json").json
    told = command(tb, "undo", "@")
    assert told.code == 0 and "Took back 1 call" in told.out and "redo" not in told.out, told
    assert command(tb, "redo").code == 3
    for words in (("log",), ("status",), ("runs",), ("verify",)):
        assert command(tb, *words).code == 0
