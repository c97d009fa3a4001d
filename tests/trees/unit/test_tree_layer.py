"""From what a command left to what would change: path by path, and whatever others did meanwhile is a conflict."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from takeback.adapters.file.states import FileState
from takeback.adapters.tree.adapter import TreeAdapter
from takeback.adapters.tree.layer import LayerTargets, read_layer
from takeback.adapters.tree.rebase import renewed
from takeback.adapters.tree.targets import command_change
from takeback.model.resource import display, file_resource
from takeback.testing.adapter_suite import Desk
from tests.memory import MemoryBlobs
from tests.trees.unit.moment import begin
from tests.world import Picture, World


class Left(NamedTuple):
    path: bytes
    source: bytes | None
    below: bool
    lost: bytes = b""


class Layered:
    """A world, and a directory in which lies what a command left."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "world"
        self.layer = directory / "layer"
        self.held = directory / "held"
        for each in (self.root, self.layer, self.held):
            each.mkdir()
        self.blobs = MemoryBlobs()
        self.lefts: list[Left] = []
        (self.root / "tree" / "deep").mkdir(parents=True)
        (self.root / "tree" / "file").write_bytes(b"before\n")
        (self.root / "tree" / "deep" / "gone").write_bytes(b"to be removed\n")
        self.since = begin()

    def writes(self, name: str, content: bytes) -> Path:
        upper = self._upper(name)
        upper.write_bytes(content)
        return upper

    def makes(self, name: str) -> Path:
        upper = self._upper(name)
        upper.mkdir(exist_ok=True)
        return upper

    def removes(self, name: str) -> None:
        self.lefts.append(Left(self._path(name), None, True))

    def _path(self, name: str) -> bytes:
        return os.fsencode(self.root / name)

    def _upper(self, name: str) -> Path:
        upper = self.layer / name
        upper.parent.mkdir(parents=True, exist_ok=True)
        self.lefts.append(Left(self._path(name), os.fsencode(upper), os.path.lexists(self.root / name)))
        return upper

    def read(self, known: bool = False) -> LayerTargets:
        return read_layer(self.lefts, "/", self.since, self.blobs, self._knows if known else None)

    def _knows(self, resource: str, state: FileState) -> bool:
        return state["type"] == "file"

    def names(self, found: LayerTargets) -> dict[str, tuple[str, str]]:
        return {
            os.path.relpath(display(target.resource), self.root): (
                target.before["type"],
                target.after["type"],
            )
            for target in found.targets
        }

    def merge(self, found: LayerTargets) -> tuple[Picture, Picture]:
        """What is there afterwards; and after that was taken back."""
        assert not found.conflicts
        change = command_change(self.blobs, str(self.root), "a command", found.targets)
        effect = Desk(TreeAdapter("command", self.blobs, str(self.held))).do(change)
        after = World(self.root).picture()
        Desk(TreeAdapter("command", self.blobs, str(self.held))).undo(effect)
        return after, World(self.root).picture()


@pytest.fixture
def scene(tmp_path: Path) -> Layered:
    return Layered(tmp_path)


def test_each_path_has_before_and_after_and_their_contents_are_kept(scene: Layered) -> None:
    before = World(scene.root).picture()
    scene.writes("tree/file", b"after\n")
    scene.makes("tree/new")
    scene.writes("tree/new/inside", b"new\n")
    scene.removes("tree/deep")
    scene.removes("tree/deep/gone")

    found = scene.read()

    assert scene.names(found) == {
        "tree/file": ("file", "file"),
        "tree/new": ("absent", "dir"),
        "tree/new/inside": ("absent", "file"),
        "tree/deep": ("dir", "absent"),
        "tree/deep/gone": ("file", "absent"),
    }
    assert (found.lost, found.exact, found.residue) == ((), True, "")
    shutil.rmtree(scene.layer)
    after, back = scene.merge(found)
    assert b"tree/new/inside" in after and b"tree/deep" not in after
    assert back == before


def test_what_is_the_same_is_no_change(scene: Layered) -> None:
    upper = scene.writes("tree/file", b"before\n")
    shutil.copystat(scene.root / "tree" / "file", upper)
    assert scene.read().targets == ()


def test_a_file_of_which_only_the_time_changed_is_a_change(scene: Layered) -> None:
    scene.writes("tree/file", b"before\n")
    assert scene.names(scene.read()) == {"tree/file": ("file", "file")}


@pytest.mark.parametrize(
    ("meanwhile", "words"),
    [
        (lambda file: file.write_bytes(b"someone else's\n"), "was changed by someone else"),
        (lambda file: file.chmod(0o600), "was changed by someone else"),
        (lambda file: file.unlink(), "was removed or moved away"),
        (lambda file: file.rename(file.with_name("elsewhere")), "was removed or moved away"),
    ],
    ids=["edited", "chmod", "removed", "moved"],
)
def test_what_someone_else_did_meanwhile_is_a_conflict(scene: Layered, meanwhile, words: str) -> None:
    scene.writes("tree/file", b"after\n")
    meanwhile(scene.root / "tree" / "file")

    found = scene.read()

    assert list(scene.names(found)) == ["tree/file"]  # it stays part of the work
    assert [display(one.resource) for one in found.conflicts] == [str(scene.root / "tree" / "file")]
    assert words in found.conflicts[0].detail


def test_a_directory_in_which_others_made_something_meanwhile_is_no_conflict(scene: Layered) -> None:
    scene.makes("tree")
    shutil.copymode(scene.root / "tree", scene.layer / "tree")
    (scene.root / "tree" / "theirs").write_bytes(b"theirs\n")
    found = scene.read()
    assert (found.targets, found.conflicts) == ((), ())


def test_what_waited_is_renewed_with_what_is_there_now(scene: Layered) -> None:
    scene.writes("tree/file", b"after\n")
    scene.writes("tree/new", b"new\n")
    (scene.root / "tree" / "file").write_bytes(b"someone else's\n")
    disturbed = World(scene.root).picture()
    found = scene.read()

    again = renewed(scene.blobs, found.targets)

    after, back = scene.merge(LayerTargets(again))
    assert after[b"tree/file"]["size"] == 6
    assert back == disturbed
    (scene.root / "tree" / "new").write_bytes(b"new\n")
    shutil.copystat(scene.layer / "tree" / "new", scene.root / "tree" / "new")
    assert [each.resource[-4:] for each in renewed(scene.blobs, found.targets)] == ["file"]


def test_what_was_written_right_before_the_command_began_is_no_conflict(scene: Layered) -> None:
    (scene.root / "tree" / "file").write_bytes(b"a moment ago\n")
    scene.since = begin()
    scene.writes("tree/file", b"after\n")
    assert scene.read().conflicts == ()


def test_what_was_written_right_after_the_command_began_is_a_conflict(scene: Layered) -> None:
    scene.since = begin()
    (scene.root / "tree" / "file").write_bytes(b"a moment later\n")
    scene.writes("tree/file", b"after\n")
    assert len(scene.read().conflicts) == 1


def test_what_is_known_to_be_ours_is_no_conflict(scene: Layered) -> None:
    (scene.root / "tree" / "file").write_bytes(b"ours\n")
    scene.writes("tree/file", b"after\n")
    assert scene.read(known=True).conflicts == ()


def test_something_new_where_someone_else_made_something_is_a_conflict(scene: Layered) -> None:
    scene.writes("tree/new", b"ours\n")
    (scene.root / "tree" / "new").write_bytes(b"theirs\n")
    assert "was made by someone else" in scene.read().conflicts[0].detail


def test_a_directory_that_someone_moved_away_is_not_made_again(scene: Layered) -> None:
    scene.writes("tree/deep/new", b"new\n")
    (scene.root / "tree" / "deep").rename(scene.root / "moved")

    found = scene.read()

    assert list(scene.names(found)) == ["tree/deep/new"]
    assert "has no directory any more" in found.conflicts[0].detail


def test_a_directory_that_someone_put_there_instead_is_not_written_to(scene: Layered) -> None:
    scene.writes("tree/deep/new", b"new\n")
    (scene.root / "tree" / "deep").rename(scene.root / "moved")
    (scene.root / "tree" / "deep").mkdir()
    assert "someone else made" in scene.read().conflicts[0].detail


def test_a_new_file_of_someone_else_in_a_removed_directory_is_a_conflict(scene: Layered) -> None:
    (scene.root / "tree" / "deep" / "theirs").write_bytes(b"theirs\n")
    scene.removes("tree/deep")
    scene.removes("tree/deep/gone")
    scene.removes("tree/deep/theirs")
    assert [display(one.resource) for one in scene.read().conflicts] == [
        str(scene.root / "tree" / "deep" / "theirs")
    ]


def test_names_made_by_the_command_are_one_file(scene: Layered) -> None:
    upper = scene.writes("tree/one", b"one file\n")
    scene.makes("tree/sub")
    os.link(upper, scene.layer / "tree" / "sub" / "other")
    scene.lefts.append(
        Left(
            os.fsencode(scene.root / "tree" / "sub" / "other"),
            os.fsencode(scene.layer / "tree/sub/other"),
            False,
        )
    )

    after, back = scene.merge(scene.read())

    assert after[b"tree/sub/other"]["same as"] == after[b"tree/one"]["same as"]
    assert b"tree/one" not in back


def test_a_write_through_one_name_is_seen_through_names_the_layer_does_not_have(scene: Layered) -> None:
    os.link(scene.root / "tree" / "file", scene.root / "other name")
    scene.since = begin()
    before = World(scene.root).picture()
    upper = scene.writes("tree/file", b"after\n")
    os.setxattr(upper, "user.overlay.origin", b"copied up")

    found = scene.read()
    after, back = scene.merge(found)

    assert (found.exact, found.residue) == (True, "")
    assert after[b"other name"]["same as"] == after[b"tree/file"]["same as"]
    assert after[b"other name"]["content"] == after[b"tree/file"]["content"]
    assert back == before


def test_a_file_put_in_the_place_of_one_of_several_names_leaves_the_others_alone(scene: Layered) -> None:
    os.link(scene.root / "tree" / "file", scene.root / "other name")
    scene.since = begin()
    before = World(scene.root).picture()
    scene.writes("tree/file", b"after\n")

    after, back = scene.merge(scene.read())

    assert after[b"other name"]["content"] == before[b"other name"]["content"]
    assert back == before


def test_a_file_moved_with_its_directory_stays_one_with_its_other_name(scene: Layered) -> None:
    os.link(scene.root / "tree" / "deep" / "gone", scene.root / "other name")
    scene.since = begin()
    before = World(scene.root).picture()
    scene.removes("tree/deep")
    scene.removes("tree/deep/gone")
    scene.makes("tree/moved")
    old = os.fsencode(scene.root / "tree" / "deep" / "gone")
    scene.lefts.append(Left(os.fsencode(scene.root / "tree" / "moved" / "gone"), old, False))

    after, back = scene.merge(scene.read())

    assert after[b"other name"]["same as"] == after[b"tree/moved/gone"]["same as"]
    assert back == before


def test_a_new_name_of_something_that_is_there_is_no_conflict(scene: Layered) -> None:
    os.symlink("nowhere", scene.root / "tree" / "link")
    scene.since = begin()
    upper = scene.layer / "tree"
    upper.mkdir()
    os.symlink("nowhere", upper / "link")
    os.link(upper / "link", upper / "new", follow_symlinks=False)
    for name in ("link", "new"):
        path = scene.root / "tree" / name
        scene.lefts.append(Left(os.fsencode(path), os.fsencode(upper / name), below=True))
    assert scene.read().conflicts == ()


def test_a_name_too_many_to_be_found_is_told(scene: Layered, monkeypatch: pytest.MonkeyPatch) -> None:
    os.link(scene.root / "tree" / "file", scene.root / "other name")
    scene.since = begin()
    upper = scene.writes("tree/file", b"after\n")
    os.setxattr(upper, "user.overlay.origin", b"copied up")
    monkeypatch.setattr("takeback.adapters.tree.hard_links.find_names", lambda wanted, near: {})

    found = scene.read()

    assert not found.exact
    assert "further names of" in found.residue


def test_paths_are_those_of_the_root_it_ran_over(scene: Layered) -> None:
    upper = scene.layer / "file"
    upper.write_bytes(b"after\n")
    found = read_layer(
        [Left(b"/tree/file", os.fsencode(upper), True)], str(scene.root), scene.since, scene.blobs
    )
    assert [target.resource for target in found.targets] == [file_resource(str(scene.root / "tree/file"))]


def test_a_layer_behind_a_symbolic_link_can_be_read(scene: Layered, tmp_path: Path) -> None:
    scene.writes("tree/file", b"after\n")
    os.symlink(scene.layer, tmp_path / "link")
    [left] = scene.lefts
    assert left.source is not None
    source = left.source.replace(os.fsencode(scene.layer), os.fsencode(tmp_path / "link"))
    found = read_layer([left._replace(source=source)], "/", scene.since, scene.blobs)
    assert len(found.targets) == 1


SPARSE = b"begin".ljust(4096, b"\0") + bytes(300_000 - 4096)


def sparse_file(path: Path, size: int = len(SPARSE)) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(SPARSE[:4096])
        file.truncate(size)


def copied_up(upper: Path) -> None:
    upper.chmod(0o600)
    os.setxattr(upper, "user.overlay.origin", b"there")


def test_zeros_that_were_written_into_a_new_file_are_no_holes(scene: Layered) -> None:
    sparse_file(scene.root / "tree" / "file")
    scene.since = begin()
    scene.writes("tree/file", SPARSE).chmod(0o600)
    (target,) = (one for one in scene.read().targets if one.after["type"] == "file")
    assert "holes" in target.before and "holes" not in target.after


@pytest.mark.parametrize(
    ("content", "holes"),
    [
        (SPARSE, [[4096, 295_904]]),
        (SPARSE + b"x", [[4096, 294_912]]),  # the last block of 4,096 holds something
        (SPARSE[:200_000], [[4096, 195_904]]),
        (SPARSE + bytes(100_000), [[4096, 299_008]]),  # as when it was made longer: the rest is all data here
        (
            SPARSE[:102_400] + b"x" + SPARSE[102_401:],
            [[4096, 98_304], [106_496, 193_504]],
        ),
        (SPARSE.replace(b"\0", b"x"), None),
    ],
)
def test_holes_that_were_filled_on_the_way_to_the_layer_stay_holes(
    scene: Layered, content: bytes, holes: list[list[int]] | None
) -> None:
    sparse_file(scene.root / "tree" / "file")
    scene.since = begin()
    copied_up(scene.writes("tree/file", content))
    (target,) = (one for one in scene.read().targets if one.after["type"] == "file")
    assert target.before["holes"] == [[4096, 295_904]]
    assert target.after.get("holes") == holes


def test_only_the_mode_of_a_file_with_holes_is_changed_where_it_is(scene: Layered) -> None:
    path = scene.root / "tree" / "file"
    sparse_file(path)
    scene.since = begin()
    copied_up(scene.writes("tree/file", SPARSE))
    inode = path.stat().st_ino
    found = scene.read()
    Desk(TreeAdapter("command", scene.blobs, held=str(scene.held))).do(
        command_change(scene.blobs, str(scene.root), "chmod", found.targets)
    )
    status = path.stat()
    assert (status.st_ino, status.st_mode & 0o777, status.st_blocks) == (inode, 0o600, 8)
