"""Too large, too full, or a kernel that lacks something: refused before, or done in another way."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from takeback.adapters.file import changes, kernel
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.kernel import libc
from takeback.errors import NoRemedy, ResourceUnreachable
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.files import write
from tests.memory import MemoryBlobs
from tests.world import World


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


class TestLimits:
    def test_a_file_over_the_limit_is_declared_and_refused(self, world: World, blobs: MemoryBlobs) -> None:
        (world / "big").write_bytes(bytes(2000))
        desk = Desk(FileAdapter(blobs, max_capture_bytes=1000))
        change = changes.delete_change(world / "big")
        assert "over the limit" in desk.adapter.assess(change).lost[0]
        with pytest.raises(NoRemedy, match="over the limit"):
            desk.do(change)
        assert (world / "big").exists()

    def test_when_allowed_it_goes_and_undo_says_it_was_not_captured(
        self, world: World, blobs: MemoryBlobs
    ) -> None:
        (world / "big").write_bytes(bytes(2000))
        desk = Desk(FileAdapter(blobs, max_capture_bytes=1000))
        effect = desk.do(changes.delete_change(world / "big", allow_inexact=True))
        assert not (world / "big").exists()
        outcomes = desk.adapter.assess(undo_of(effect), effect).outcomes
        assert [each.outcome for each in outcomes] == [Outcome.EXCLUDED]

    def test_a_file_that_changes_while_it_is_read_is_not_captured(self, world, blobs, monkeypatch) -> None:
        path = world / "log"
        path.write_bytes(b"line\n")
        read = os.pread

        def growing(fd: int, length: int, offset: int) -> bytes:
            data = read(fd, length, offset)
            with path.open("ab") as log:
                log.write(b"line\n")
            return data

        monkeypatch.setattr(os, "pread", growing)
        with pytest.raises(NoRemedy, match="changes while it is being read"):
            Desk(FileAdapter(blobs)).intend(changes.delete_change(path))


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_a_full_filesystem_is_refused_before_anything_is_changed(tmp_path: Path, blobs: MemoryBlobs) -> None:
    (tmp_path / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path / "small"], check=True)
    try:
        (tmp_path / "small" / "f").write_bytes(b"before")
        desk = Desk(FileAdapter(blobs))
        with pytest.raises(ResourceUnreachable, match="is full"):
            desk.do(write(blobs, tmp_path / "small" / "f", bytes(200_000)))
        assert os.listdir(tmp_path / "small") == ["f"]
        assert (tmp_path / "small" / "f").read_bytes() == b"before"
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


class TestFallbacks:
    """The same laws where the kernel or the filesystem lacks something."""

    def there_and_back(self, world: World, blobs: MemoryBlobs) -> None:
        (world / "d").mkdir()
        (world / "f").write_bytes(b"before")
        (world / "d" / "x").write_bytes(b"x")
        before = world.picture()
        desk = Desk(FileAdapter(blobs))
        effects = [desk.do(write(blobs, world / "f")), desk.do(write(blobs, world / "new")),
                   desk.do(changes.delete_change(world / "d")), desk.do(changes.mkdir_change(world / "m")),
                   desk.do(changes.move_change(world / "new", world / "newer"))]  # fmt: skip
        for effect in reversed(effects):
            desk.undo(effect)
        assert world.picture() == before

    def test_without_openat2(self, world: World, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(libc(), "has_openat2", False)
        self.there_and_back(world, blobs)

    def test_without_renameat2(
        self, world: World, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(libc(), "has_renameat2", False)
        self.there_and_back(world, blobs)

    def test_without_nameless_files(
        self, world: World, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from takeback.adapters.file import build, capture, stage

        for module in (build, stage, capture):
            monkeypatch.setattr(module, "nameless_file", lambda place, mode=0o600: -1)
        self.there_and_back(world, blobs)

    def test_component_by_component_a_link_is_told_from_a_file(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(libc(), "has_openat2", False)
        (world / "file").write_bytes(b"")
        os.symlink(".", world / "link")
        fd = os.open(world.root, os.O_PATH)
        with pytest.raises(OSError, match="Too many levels"):
            kernel.open_strictly(fd, b"link/x", os.O_RDONLY, True)
        with pytest.raises(NotADirectoryError):
            kernel.open_strictly(fd, b"file/x", os.O_RDONLY, True)
        os.close(fd)


def test_modes_survive_a_named_stage(world: World, blobs: MemoryBlobs) -> None:
    (world / "run.sh").write_bytes(b"#!/bin/sh\n")
    (world / "run.sh").chmod(0o755)
    desk = Desk(FileAdapter(blobs))
    effect = desk.propose(write(blobs, world / "run.sh", b"#!/bin/sh\nexit\n"))
    [staged] = desk.adapter.stage(effect, named=True)
    assert staged.path.endswith(".sh") and stat.S_IMODE(os.stat(staged.path).st_mode) == 0o755 == staged.mode
    desk.adapter.tidy(effect)
    assert os.listdir(world.root) == ["run.sh"]
