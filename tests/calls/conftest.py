"""A real bank for every test that asks for one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.office import ROOT, BankOffice


def _office(directory: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Iterator[BankOffice]:
    office = BankOffice(directory, *options)
    monkeypatch.setenv("BANK_URL", office.url)
    monkeypatch.setenv(
        "PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    )
    try:
        yield office
    finally:
        office.close()


@pytest.fixture
def bank(swift_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BankOffice]:
    """It does not honour keys: a second call is a second payment."""
    yield from _office(swift_path, monkeypatch)


@pytest.fixture
def forgetful_bank(swift_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BankOffice]:
    """It gives money back as often as it is asked to."""
    yield from _office(swift_path, monkeypatch, "--reverses-again")


@pytest.fixture
def keyed_bank(swift_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BankOffice]:
    yield from _office(swift_path, monkeypatch, "--honours-keys")
