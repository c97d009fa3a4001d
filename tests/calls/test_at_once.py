"""Several processes that ask for the same payment at once."""

import json
from pathlib import Path

import pytest

import takeback
from examples.office import BankOffice
from tests.calls.programs import payer, said

MANY = 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize("action", ["pay", "pay_blindly"])
@pytest.mark.parametrize("how", ["ok", "answer late 0.5", "late 0.5"])
def test_the_same_key_asked_for_by_several_at_once_is_paid_once(
    store: Path, bank: BankOffice, action: str, how: str
) -> None:
    takeback.open(store).close()
    bank.fund("anna", 10_000)
    bank.misbehave(f"always {how}")
    for turn in range(2):
        key = f"order-{turn}"
        ends = [said(one) for one in [payer(store, action, key) for _ in range(MANY)]]
        (paid,) = bank.with_key(key)
        receipts = [json.loads(one) for one in ends if one.startswith("{")]
        assert receipts and all(one == paid for one in receipts)
        # Whoever came too early was told that someone is at it.
        others = [one.split()[0] for one in ends if not one.startswith("{")]
        assert set(others) <= {"StoreBusy"}, ends
