"""A store that cannot be written in the middle of a call: nothing fires without its intent, nothing done is lost."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from examples.office import BankOffice
from takeback.model.effect import State
from tests.calls.programs import payer, said
from tests.crash.mounts import fill, tmpfs
from tests.servers.process import wait_until


@pytest.fixture
def ready(store: Path, bank: BankOffice) -> Path:
    takeback.open(store).close()
    bank.fund("anna", 10**6)
    assert said(payer(store, "pay", "first")).startswith("{")
    return store


def recorded(store: Path, key: str) -> str:
    """What the journal says, read by a process that settles nothing."""
    with takeback.open(store, recover=False) as tb:
        return next((one.state.value for one in tb.effects() if one.key == key), "")


def settled(store: Path, bank: BankOffice, key: str) -> None:
    """Once the disk is well again and everything was read: a store whose disk failed is not trusted before that."""
    with takeback.open(store, recover=False) as tb:
        assert tb.verify(read_data=True).sound
    answer = said(payer(store, "pay", key))
    assert answer.startswith("{"), answer
    assert bank.with_key(key) == [json.loads(answer)]
    with takeback.open(store) as tb:
        assert not tb.effects(state=("intended", "stuck"))


def failed_everywhere(ready: Path, bank: BankOffice, call: str, error: str, lasting: str) -> set[str]:
    """The n-th call of that kind, for n = 1, 2, … until none is left; how it stood each time."""
    log = ready.with_name("trace")
    seen: set[str] = set()
    for number in range(1, 100):
        key = f"{call}-{number}"
        inject = f"inject={call}:error={error}:when={number}{lasting}"
        answer = said(payer(ready, "pay", key, "strace", "-f", "-qq", "-o", str(log), "-e", inject))
        standing, paid = recorded(ready, key), bank.with_key(key)
        # Nothing at the bank of which the journal does not know at least that it was about to happen.
        assert standing or not paid, f"{number}: {answer}"
        if answer.startswith("{"):
            assert [json.loads(answer)] == paid
            assert standing == State.DONE
        if paid and standing == State.INTENDED:
            assert answer.startswith("InDoubt "), f"{number}: {answer}"
        settled(ready, bank, key)
        if "INJECTED" not in log.read_text(errors="replace"):
            assert answer.startswith("{")
            return seen
        seen.add(f"{standing or 'nothing'}, {'paid' if paid else 'not paid'}")
    raise AssertionError("it never ended")


@pytest.mark.needs("strace")
def test_a_disk_that_fails_during_the_intent_or_during_done_neither_lets_fire_nor_loses(
    ready: Path, bank: BankOffice
) -> None:
    seen = failed_everywhere(ready, bank, "fdatasync", "EIO", "+")
    assert {"nothing, not paid", "intended, paid"} <= seen, seen


@pytest.mark.slow
@pytest.mark.needs("strace")
@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "for ever"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", ["fdatasync", "fsync", "pwrite64"])
def test_a_write_that_fails_anywhere_neither_fires_nor_loses(
    ready: Path, bank: BankOffice, call: str, error: str, lasting: str
) -> None:
    failed_everywhere(ready, bank, call, error, lasting)


# A disk without room.


@pytest.fixture
def small(swift_path: Path, bank: BankOffice) -> Iterator[Path]:
    with tmpfs(swift_path / "small", "size=24m") as place:
        store = place / "store"
        takeback.open(store).close()
        bank.fund("anna", 10**6)
        assert said(payer(store, "pay", "first")).startswith("{")
        yield store


@pytest.mark.root
def test_a_full_disk_before_the_intent_lets_nothing_fire(small: Path, bank: BankOffice) -> None:
    filler = fill(small.parent, leave=0)
    answer = said(payer(small, "pay", "order-7"))
    assert "full" in answer or "room" in answer, answer
    assert bank.with_key("order-7") == []
    filler.unlink()
    settled(small, bank, "order-7")


@pytest.mark.root
def test_a_disk_that_fills_up_during_the_call_leaves_it_in_doubt_and_the_bank_is_asked(
    small: Path, bank: BankOffice
) -> None:
    bank.misbehave("answer late 1.5")
    paying = payer(small, "pay", "order-7")
    wait_until(lambda: bool(bank.with_key("order-7")), "the bank has acted")
    filler = fill(small.parent, leave=0)
    answer = said(paying)
    assert not answer.startswith("{"), "what could not be recorded was told as done"
    filler.unlink()
    # It may have had room for that it is done, and not for that the run has ended.
    standing = recorded(small, "order-7")
    assert standing in (State.INTENDED, State.DONE)
    if standing == State.INTENDED:
        assert answer.startswith("InDoubt "), answer
        assert "was called, but the outcome could not be recorded: The disk" in answer
    settled(small, bank, "order-7")
