"""Messages lost and late, before and after the bank has acted, on a network that nobody else is on."""

import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from examples.office import BankOffice
from tests.calls.killing import alone
from tests.calls.programs import payer, said
from tests.calls.tracer import Tell
from tests.servers.process import wait_until

pytestmark = [pytest.mark.root, pytest.mark.needs("ip", "iptables")]
CLONE_NEWNET = 0x40000000
KEY = "order-7"


class Town:
    """A bank and a store in a network namespace of their own."""

    def __init__(self, place: Path) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        _do("ip", "link", "set", "lo", "up")
        self.store = place / "store"
        self.bank = BankOffice(place)
        os.environ["BANK_URL"] = self.bank.url
        self._port = self.bank.url.rpartition(":")[2]
        self.bank.fund("anna", 10_000)
        takeback.open(self.store).close()

    def lose(self, what: str) -> None:
        """What goes to the bank ("dport"), or what comes from it ("sport")."""
        _do("iptables", "-A", "INPUT", "-p", "tcp", f"--{what}", self._port, "-j", "DROP")

    def heal(self) -> None:
        _do("iptables", "-F", "INPUT")

    def pays(self) -> "subprocess.Popen[str]":
        return payer(self.store, "pay_in_time", KEY)

    def bank_has_acted(self) -> None:
        wait_until(lambda: bool(self.bank.with_key(KEY)), "the bank has acted")

    def paid_once(self, answer: str) -> None:
        wait_until(self.bank.idle, "nothing is under way any more")
        assert self.bank.with_key(KEY) == [json.loads(answer)], answer
        with takeback.open(self.store) as tb:
            assert [one.state for one in tb.effects() if one.state != "aborted"] == ["done"]


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def in_a_town(place: Path, story: Callable[[Town], None]) -> None:
    """In a process of its own, which takes its network with it."""

    def work(tell: Tell) -> None:
        town = Town(place)
        try:
            story(town)
        finally:
            town.bank.close()

    alone(work)


def test_a_request_that_is_lost_has_not_happened_and_is_made_once(swift_path: Path) -> None:
    def story(town: Town) -> None:
        town.lose("dport")
        answer = said(town.pays())
        assert answer.startswith("InDoubt"), answer
        town.heal()
        assert town.bank.with_key(KEY) == []
        town.paid_once(said(town.pays()))

    in_a_town(swift_path, story)


def test_an_answer_that_is_lost_is_asked_for_when_the_network_is_back(swift_path: Path) -> None:
    def story(town: Town) -> None:
        town.bank.misbehave("answer late 0.7")
        paying = town.pays()
        town.bank_has_acted()
        town.lose("sport")
        answer = said(paying)
        assert answer.startswith("InDoubt"), answer
        town.heal()
        town.paid_once(said(town.pays()))

    in_a_town(swift_path, story)


@pytest.mark.parametrize("how", ["late 3", "answer late 3"])
def test_what_is_late_by_three_seconds_is_found(swift_path: Path, how: str) -> None:
    def story(town: Town) -> None:
        town.bank.misbehave(how)
        town.paid_once(said(town.pays()))

    in_a_town(swift_path, story)


@pytest.mark.parametrize("how", ["late 3", "answer late 3"])
def test_what_is_late_and_whose_sender_was_killed_is_found(swift_path: Path, how: str) -> None:
    """The request is at the bank, nobody waits for the answer any more, and it will happen all the same."""

    def story(town: Town) -> None:
        town.bank.misbehave(how)
        paying = town.pays()
        wait_until(lambda: town.bank.expected() == 0, "the bank has the request")
        paying.send_signal(signal.SIGKILL)
        paying.communicate()
        town.paid_once(said(town.pays()))

    in_a_town(swift_path, story)
