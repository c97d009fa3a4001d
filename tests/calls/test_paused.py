"""A process that is stopped in the middle of a call: nobody calls for it, and nobody says that it did not happen."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from examples.office import ROOT, BankOffice
from takeback.api import opened_of
from tests.calls.own import paused_order
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
        adapter = opened_of(tb).parts.adapters["call"]
        with pytest.raises(takeback.InDoubt, match=f"process {paused.pid} is still in the middle"):
            adapter.verify(effect)
        paused.send_signal(signal.SIGKILL)
        os.waitpid(paused.pid, 0)
        assert adapter.verify(effect).standing == "before"


class TestWorker:
    """Whose run is taken over while it is stopped, past its lease."""

    @pytest.fixture
    def workers(self) -> "Iterator[list[subprocess.Popen[str]]]":
        started: list[subprocess.Popen[str]] = []
        yield started
        for one in started:
            one.kill()
            one.communicate()

    @pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
    def test_what_it_was_about_to_call_is_called_once(
        self,
        workers: "list[subprocess.Popen[str]]",
        store: Path,
        bank: BankOffice,
        monkeypatch: pytest.MonkeyPatch,
        then: signal.Signals,
    ) -> None:
        bank.fund("anna", 1000)
        monkeypatch.setenv("WAS_PAUSED", str(store.with_name("was-paused")))
        with takeback.open(store) as tb:
            run = tb.submit(paused_order, KEY, key=KEY)
            (store / "settings.json").write_text('{"lease_seconds": 1}')
            workers.append(_worker(store))
            wait_until(lambda: _state(workers[0].pid) == "T", "it is stopped")
            held = _generation(store)
            workers.append(_worker(store))
            wait_until(lambda: _generation(store) > held, "the other one has the run")
            wait_until(lambda: tb.find_run(run.id).state == "suspended", "it could not be told, and waits")
            assert bank.with_key(KEY) == []
            workers[0].send_signal(then)
            receipt = tb.result(run, timeout=60)
            assert bank.with_key(KEY) == [receipt]
            assert len(bank.with_key(f"{KEY}-postage")) == 1


def _worker(store: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "takeback", "--store", str(store), "worker", "tests.calls.own"]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, text=True)


def _generation(store: Path) -> int:
    with closing(sqlite3.connect(store / "journal.db")) as journal:
        return journal.execute("SELECT max(generation) FROM leases").fetchone()[0]
