"""A process that is stopped in the middle of a call: nobody calls for it, and nobody says that it did not happen."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from examples.office import BankOffice
from tests.calls.programs import payer, said
from tests.servers.process import wait_until

KEY = "order-7"


@pytest.fixture
def paused(store: Path, bank: BankOffice) -> "Iterator[subprocess.Popen[str]]":
    takeback.open(store).close()
    process = payer(store, "pay_after_a_pause", KEY)
    wait_until(lambda: _state(process.pid) == "T", "it is stopped")
    yield process
    process.kill()
    process.communicate()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_who_asks_for_the_same_meanwhile_is_told_so_and_nothing_is_paid_twice(
    paused: "subprocess.Popen[str]", store: Path, bank: BankOffice
) -> None:
    assert said(payer(store, "pay_once", KEY)).startswith("KeyReused")
    assert said(payer(store, "pay_after_a_pause", KEY)).startswith("StoreBusy")
    with takeback.open(store) as tb:
        assert [one.state for one in tb.effects()] == ["intended"]
    assert bank.with_key(KEY) == []
    paused.send_signal(signal.SIGCONT)
    receipt = json.loads(said(paused))
    assert bank.with_key(KEY) == [receipt]
    assert json.loads(said(payer(store, "pay_after_a_pause", KEY))) == receipt
    assert bank.with_key(KEY) == [receipt]


def test_that_it_is_not_there_is_not_believed_while_the_one_who_calls_is_only_stopped(
    paused: "subprocess.Popen[str]", store: Path, bank: BankOffice
) -> None:
    """As someone sees it who has taken over the run, past its lease."""
    with takeback.open(store) as tb:
        (effect,) = tb.effects()
        adapter = tb.parts.adapters["call"]
        with pytest.raises(takeback.InDoubt, match=f"process {paused.pid} is still in the middle"):
            adapter.verify(effect)
        paused.send_signal(signal.SIGKILL)
        os.waitpid(paused.pid, 0)
        assert adapter.verify(effect).standing == "before"
