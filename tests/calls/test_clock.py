"""Someone sets the clock on the wall by a day, between a call and the question whether it has happened."""

import json
import signal
import time
from pathlib import Path

import pytest

import takeback
from examples.office import BankOffice
from tests.calls.killing import alone
from tests.calls.own import pay_in_time
from tests.calls.programs import payer
from tests.calls.tracer import Tell, Work
from tests.servers.process import wait_until

DAY = 86_400
KEY = "order-7"


def shifted(days: int, work: Work) -> Work:
    """For a process that is thrown away: its wall clock is wrong by that much."""

    def inner(tell: Tell) -> None:
        seconds, nanoseconds = time.time, time.time_ns
        time.time = lambda: seconds() + days * DAY
        time.time_ns = lambda: nanoseconds() + days * DAY * 10**9
        work(tell)

    return inner


@pytest.mark.parametrize("days", [1, -1])
def test_a_payment_that_is_late_is_waited_for_whatever_the_clock_says(
    store: Path, bank: BankOffice, days: int
) -> None:
    """The one who sent it was killed; by a clock that is a day ahead it would have been there long ago."""
    takeback.open(store).close()
    bank.misbehave("late 2")
    paying = payer(store, "pay_in_time", KEY)
    wait_until(lambda: bank.expected() == 0, "the bank has the request")
    paying.send_signal(signal.SIGKILL)
    paying.communicate()

    def again(tell: Tell) -> None:
        with takeback.open(store) as tb, tb.run("again", on_death="accept") as run:
            tell(json.dumps(run.call(pay_in_time, "anna", "shop", 300, key=KEY)).encode())

    receipt = json.loads(alone(shifted(days, again)))
    wait_until(bank.idle, "nothing is under way any more")
    assert bank.with_key(KEY) == [receipt]


@pytest.mark.parametrize("days", [1, -1])
def test_a_run_that_someone_works_on_is_left_alone_whatever_the_clock_says(
    store: Path, bank: BankOffice, days: int
) -> None:
    takeback.open(store).close()
    bank.misbehave("late 1")
    paying = payer(store, "pay_in_time", KEY)
    wait_until(lambda: bank.expected() == 0, "the bank has the request")

    def look(tell: Tell) -> None:
        with takeback.open(store) as tb:
            assert tb.recover() == ()
            assert [one.state for one in tb.effects()] == ["intended"]

    alone(shifted(days, look))
    receipt = json.loads(paying.communicate()[0])
    assert bank.with_key(KEY) == [receipt]
