"""Removing many files: the names in order, the blocks in threads where that is worth it."""

import os
import threading
from pathlib import Path

import pytest

from takeback.adapters.file import kernel
from takeback.adapters.file.kernel import Freeing


def _plant(directory: Path, count: int) -> list[str]:
    names = [f"f{number}" for number in range(count)]
    for name in names:
        (directory / name).write_text("something")
    return names


@pytest.mark.parametrize("slow", [-1.0, 1000.0])
def test_files_are_gone_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: float
) -> None:
    monkeypatch.setattr(kernel, "_SLOW", slow)
    names = _plant(tmp_path, 300)
    fd = os.open(tmp_path, os.O_RDONLY)
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    try:
        with Freeing() as removing:
            for name in names:
                removing.unlink(name, dir_fd=fd)
                assert not (tmp_path / name).exists()
            if slow < 0:
                assert threading.active_count() > threads
        assert os.listdir(tmp_path) == []
        assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (before, threads)
    finally:
        os.close(fd)


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_SLOW", -1.0)
    names = _plant(tmp_path, 30)
    (tmp_path / "directory").mkdir()
    fd = os.open(tmp_path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    try:
        for odd, kind in (("missing", FileNotFoundError), ("directory", IsADirectoryError)):
            with pytest.raises(kind), Freeing() as removing:
                for name in (*names[:20], odd):
                    removing.unlink(name, dir_fd=fd)
            names = _plant(tmp_path, 30)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        os.close(fd)


def test_a_link_is_removed_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_SLOW", -1.0)
    names = _plant(tmp_path, 20)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to("kept")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with Freeing() as removing:
            for name in (*names, "link"):
                removing.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    assert os.listdir(tmp_path) == ["kept"]
