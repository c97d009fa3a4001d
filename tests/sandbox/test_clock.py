"""A moment between what was changed before a command and what is changed after it has begun."""

import time
from pathlib import Path

import pytest

from takeback.sandbox import init
from takeback.sandbox.init import wait_past


def told_apart(directory: Path) -> bool:
    before, after = directory / "before", directory / "after"
    before.write_text("")
    moment = time.time_ns()
    wait_past(moment)
    after.write_text("")
    apart = before.stat().st_ctime_ns <= moment < after.stat().st_ctime_ns
    before.unlink()
    after.unlink()
    return apart


def test_changes_before_and_after_carry_other_times(tmp_path: Path) -> None:
    assert all(told_apart(tmp_path) for _ in range(200))


def test_so_they_do_where_the_kernel_stamps_by_ticks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "_nudged", lambda moment: False)
    assert all(told_apart(tmp_path) for _ in range(20))
