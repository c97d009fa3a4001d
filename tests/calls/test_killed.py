"""SIGKILL at every system call of a process that pays: paid once, what was answered stays, nobody is asked in vain."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples import payments
from examples.office import BankOffice
from tests.calls import own
from tests.calls.killing import CALLED, INTENDED, PHASES, Murders, Variant, WorkerMurders

SAMPLE = 14  # points of each variant that every commit pays for

VARIANTS = {
    "pay": Variant(payments.pay),
    "pay blindly": Variant(payments.pay_blindly, parks=True),
    "pay keyed": Variant(payments.pay_keyed),
    "answers lost": Variant(payments.pay, manners="lost"),
    "done wrong": Variant(own.pay_once, manners="wrong"),
    "worker": Variant(payments.pay),
    "pay, PostgreSQL": Variant(payments.pay),
    "taken back": Variant(payments.pay, on_death="undo"),
    "undo": Variant(own.pay_once, undo=True),
}
BANKS = {"pay keyed": "keyed_bank", "undo": "forgetful_bank", "done wrong": "forgetful_bank"}


@pytest.fixture
def murders(
    request: pytest.FixtureRequest, swift_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Murders]:
    name: str = request.param
    bank: BankOffice = request.getfixturevalue(BANKS.get(name, "bank"))
    url: str = request.getfixturevalue("pg_database").url if "PostgreSQL" in name else ""
    made = (WorkerMurders if name == "worker" else Murders)(VARIANTS[name], bank, swift_path, url)
    yield made
    for what, number in made.counts.items():
        record_property(f"{name}: {what}", number)


@pytest.mark.sampled(8, always=("pay", "done wrong"))
@pytest.mark.parametrize("murders", VARIANTS, indirect=True)
def test_a_payment_whose_process_is_killed_is_made_once(murders: Murders) -> None:
    calls = murders.calls()
    intent = murders.intent(calls)
    murders.sweep(range(intent, calls + 1, max(1, (calls - intent) // SAMPLE)))
    murders.sweep_what_was_missed()
    assert murders.counts["killed"] >= SAMPLE * 0.9
    assert all(murders.counts[phase] for phase in PHASES), murders.counts


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("murders", VARIANTS, indirect=True)
def test_a_payment_whose_process_is_killed_at_any_system_call_is_made_once(murders: Murders) -> None:
    calls = murders.calls()
    murders.sweep(range(1, calls + 1))
    counts = murders.counts
    assert counts["killed"] >= calls * 0.9, "too few points to be a sweep"
    assert all(counts[phase] >= 10 for phase in PHASES), counts
    expected = counts[INTENDED] + counts[CALLED] if murders.variant.parks else 0
    assert counts["parked for a person"] == expected
