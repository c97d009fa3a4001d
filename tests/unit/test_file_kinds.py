"""Links, directories and special modes: each kind of change does what its name says, and undo takes back just that."""

import os
import stat
from pathlib import Path

import pytest

from takeback.adapters.file import changes
from takeback.errors import Misuse
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import undo_of
from tests.files import Files
from tests.world import World


@pytest.fixture
def files(world: World, tmp_path: Path) -> Files:
    (tmp_path / "held").mkdir()
    return Files(world, tmp_path / "held")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestLinks:
    def test_a_write_to_a_dangling_link_makes_the_file_it_points_to(self, files: Files) -> None:
        (files / "d").mkdir()
        os.symlink("d/not yet", files / "link")
        before = files.world.picture()

        effect = files.write("link")

        assert (files / "link").is_symlink() and (files / "d" / "not yet").read_bytes() == b"after"
        assert effect.change.resource.endswith("/d/not%20yet")
        files.undo(effect)
        assert files.world.picture() == before

    def test_a_write_to_a_link_into_nowhere_is_refused_by_the_missing_directory(self, files: Files) -> None:
        os.symlink("no such directory/file", files / "link")
        before = files.world.picture()
        with pytest.raises(Misuse, match="does not exist") as refusal:
            files.write("link")
        assert refusal.value.hint and files.world.picture() == before

    def test_a_write_to_a_link_that_points_to_itself_is_refused(self, files: Files) -> None:
        os.symlink("link", files / "link")
        with pytest.raises(Misuse, match="circles"):
            files.write("link")

    @pytest.mark.parametrize("target", ["directory", "nowhere"])
    def test_a_link_moves_as_a_link(self, files: Files, target: str) -> None:
        (files / "directory").mkdir()
        files.make("directory/inside")
        os.symlink(target, files / "link")
        before = files.world.picture()

        effect = files.do(changes.move_change(files / "link", files / "moved"))

        assert os.readlink(files / "moved") == target and not os.path.lexists(files / "link")
        assert (files / "directory" / "inside").exists()
        files.undo(effect)
        assert files.world.picture() == before

    def test_a_moved_link_that_points_elsewhere_since_is_a_conflict(self, files: Files) -> None:
        os.symlink("here", files / "link")
        effect = files.do(changes.move_change(files / "link", files / "moved"))
        (files / "moved").unlink()
        os.symlink("there", files / "moved")
        outcomes = files.desk().adapter.assess(undo_of(effect), effect).outcomes
        assert {each.outcome for each in outcomes} == {Outcome.CONFLICT}

    def test_a_link_to_a_directory_is_deleted_without_the_directory(self, files: Files) -> None:
        (files / "directory").mkdir()
        files.make("directory/inside")
        os.symlink("directory", files / "link")
        before = files.world.picture()

        effect = files.delete("link")

        assert (files / "directory" / "inside").exists() and not os.path.lexists(files / "link")
        files.undo(effect)
        assert files.world.picture() == before

    def test_chmod_of_a_link_is_chmod_of_what_it_points_to(self, files: Files) -> None:
        files.make("file")
        os.symlink("file", files / "link")
        effect = files.do(changes.chmod_change(files / "link", 0o600))
        assert mode_of(files / "file") == 0o600
        files.undo(effect)
        assert mode_of(files / "file") == 0o644


class TestDirectories:
    def test_chmod_of_a_directory_leaves_what_is_in_it_alone(self, files: Files) -> None:
        (files / "d").mkdir(mode=0o755)
        inside = files.make("d/inside")
        seen = inside.stat()

        effect = files.do(changes.chmod_change(files / "d", 0o2750))
        assert mode_of(files / "d") == 0o2750
        files.make("d/later")
        files.undo(effect)

        assert mode_of(files / "d") == 0o755 and (files / "d" / "later").exists()
        assert inside.stat().st_ctime_ns == seen.st_ctime_ns

    @pytest.mark.parametrize("mode", [0o2755, 0o2770, 0o1777, 0o3711, 0o755, 0o500])
    def test_a_new_directory_gets_the_mode_that_was_asked_for(self, files: Files, mode: int) -> None:
        effect = files.do(changes.mkdir_change(files / "d", mode))
        assert mode_of(files / "d") == mode
        files.undo(effect)
        assert not (files / "d").exists()

    @pytest.mark.root
    def test_a_group_directory_hands_down_its_group_and_the_bit_only_if_no_mode_is_given(
        self, files: Files
    ) -> None:
        (files / "shared").mkdir()
        os.chown(files / "shared", 0, 4321)
        (files / "shared").chmod(0o2775)

        files.do(changes.mkdir_change(files / "shared" / "natural"))
        files.do(changes.mkdir_change(files / "shared" / "asked", 0o755))
        files.do(changes.mkdir_change(files / "shared" / "on" / "the way", 0o700, parents=True))

        found = {name: (files / "shared" / name).stat() for name in ("natural", "asked", "on", "on/the way")}
        assert {status.st_gid for status in found.values()} == {4321}
        assert {name: stat.S_IMODE(status.st_mode) for name, status in found.items()} == {
            "natural": 0o2755, "asked": 0o755, "on": 0o2755, "on/the way": 0o700
        }  # fmt: skip


class TestModes:
    def test_a_program_can_be_written_with_the_set_user_id_bit(self, files: Files) -> None:
        files.make("run", b"#!/bin/sh\n")
        before = files.world.picture()
        effect = files.write("run", b"#!/bin/sh\nexit\n", mode=0o4755)
        assert mode_of(files / "run") == 0o4755
        files.undo(effect)
        assert files.world.picture() == before

    def test_the_set_user_id_bit_is_set_on_the_same_bytes_too(self, files: Files) -> None:
        files.make("run", b"#!/bin/sh\n")
        before = files.world.picture()
        inode = (files / "run").stat().st_ino
        effect = files.write("run", b"#!/bin/sh\n", mode=0o4755)
        assert mode_of(files / "run") == 0o4755 and (files / "run").stat().st_ino == inode
        files.undo(effect)
        assert files.world.picture() == before

    def test_a_write_over_a_set_user_id_program_drops_the_bit_and_undo_brings_it_back(
        self, files: Files
    ) -> None:
        files.make("run", b"#!/bin/sh\n")
        (files / "run").chmod(0o4755)
        before = files.world.picture()
        effect = files.write("run", b"#!/bin/sh\nexit\n")
        assert mode_of(files / "run") == 0o755
        files.undo(effect)
        assert files.world.picture() == before
