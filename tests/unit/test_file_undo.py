"""Taking file effects back: compare and swap, conflicts by name, merge, skip, force, redo."""

import os
import shutil
from pathlib import Path

import pytest

from takeback.adapters.file import changes
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.changes import NewFile
from takeback.errors import Conflict, Drifted
from takeback.model.change import Change, OnConflict
from takeback.model.effect import Effect
from takeback.model.plan import Outcome, Standing
from takeback.testing.adapter_suite import Desk, undo_of
from tests.memory import MemoryBlobs
from tests.world import World

LINES = b"".join(b"line %d\n" % number for number in range(1, 21))


class Files:
    def __init__(self, world: World, held: Path) -> None:
        self.world = world
        self.blobs = MemoryBlobs()
        self.desk = Desk(FileAdapter(self.blobs, held=str(held)))

    def __truediv__(self, name: str) -> Path:
        return self.world / name

    def write(self, name: str, content: bytes, mode: int | None = None) -> Effect:
        return self.desk.do(changes.write_change(self / name, self.blobs.put(content), len(content), mode))

    def write_all(self, contents: dict[str, bytes]) -> Effect:
        files = [
            NewFile(self / name, self.blobs.put(content), len(content)) for name, content in contents.items()
        ]
        return self.desk.do(changes.write_all_change(files))

    def do(self, change: Change) -> Effect:
        return self.desk.do(change)

    def undo(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Effect:
        return self.desk.undo(effect, on_conflict)

    def outcomes(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> dict[str, Outcome]:
        found = self.desk.adapter.assess(undo_of(effect, on_conflict), effect).outcomes
        return {os.path.basename(each.resource): each.outcome for each in found}

    def details(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> str:
        return " ".join(
            each.detail for each in self.desk.adapter.assess(undo_of(effect, on_conflict), effect).outcomes
        )


@pytest.fixture
def files(world: World, tmp_path: Path) -> Files:
    (tmp_path / "held").mkdir()
    return Files(world, tmp_path / "held")


def test_an_edit_since_is_a_conflict_that_names_the_path_and_both_sizes(files: Files) -> None:
    (files / "f").write_bytes(b"before")
    effect = files.write("f", b"x" * 1204)
    (files / "f").write_bytes(b"y" * 1310)

    with pytest.raises(Conflict) as refusal:
        files.undo(effect)

    assert str(files / "f") in str(refusal.value)
    assert "1,204 bytes" in str(refusal.value) and "1,310 bytes" in str(refusal.value)
    assert (files / "f").read_bytes() == b"y" * 1310
    sighting = files.desk.adapter.verify(effect)
    assert sighting.standing is Standing.FOREIGN and "1,310 bytes from " in sighting.detail


def test_other_content_of_the_same_size_is_told_as_such(files: Files) -> None:
    effect = files.write("f", b"one way of 24 bytes.....")
    (files / "f").write_bytes(b"another way of 24 bytes.")
    says = f"has other content than effect {effect.id[:8]} left (the same size, 24 bytes)"
    assert files.details(effect) == says
    assert says in files.desk.adapter.verify(effect).detail
    with pytest.raises(Drifted, match=r"it has other content than expected \(the same size, 24 bytes\)"):
        files.desk.adapter.undo(effect)


@pytest.mark.parametrize(
    ("disturb", "says"),
    [(lambda path: path.chmod(0o600), "has mode 0600, and effect {} left mode 0644"),
     (lambda path: os.setxattr(path, "user.x", b"1"), "has other attributes than effect {} left"),
     (lambda path: path.unlink(), "is gone, and effect {} left 1 byte from "),
     (lambda path: (path.unlink(), path.symlink_to("there")), "is now a symbolic link to there, and effect"),
     (lambda path: (path.unlink(), path.mkdir(), (path / "x").mkdir()), "is now a directory of 1 entry, and effect"),
     (lambda path: path.write_bytes(b"12"), "is now 2 bytes from ")],
)  # fmt: skip
def test_a_conflict_continues_a_sentence_that_begins_with_the_path(files: Files, disturb, says) -> None:
    (files / "f").write_bytes(b"before")
    effect = files.write("f", b"1")
    assert effect.change.summary.endswith("(1 byte)")
    disturb(files / "f")
    assert files.details(effect).startswith(says.format(effect.id[:8]))


@pytest.mark.parametrize(
    ("disturb", "says"),
    [(lambda path: (path / "new").mkdir(),
      "is now a directory of 2 entries, and effect {} left a directory of 1 entry"),
     (lambda path: (path / "sub").chmod(0o711), "is not as effect {} left it inside"),
     (lambda path: path.chmod(0o711), "has mode 0711, and effect {} left mode 0755")],
)  # fmt: skip
def test_a_conflict_about_a_directory_says_what_is_different(files: Files, disturb, says) -> None:
    effect = files.do(changes.mkdir_change(files / "d" / "sub", parents=True))
    disturb(files / "d")
    assert files.details(effect) == says.format(effect.id[:8])


def test_both_names_of_a_move_say_what_is_in_the_way(files: Files) -> None:
    (files / "a").write_bytes(b"1")
    effect = files.do(changes.move_change(files / "a", files / "b"))
    (files / "a").write_bytes(b"someone else's")
    a, b = files.desk.adapter.assess(undo_of(effect), effect).outcomes
    assert a.detail == "is taken by something else now"
    assert b.detail == f"stays unchanged: {files / 'a'} is taken by something else now"
    (files / "a").unlink()
    (files / "b").unlink()
    a, b = files.desk.adapter.assess(undo_of(effect), effect).outcomes
    assert a.detail == f"stays unchanged: {files / 'b'} is no longer there"
    assert b.detail == f"is no longer there, so it cannot be moved back to {files / 'a'}"


def test_a_change_of_mode_or_owner_since_is_a_conflict_too(files: Files) -> None:
    effect = files.write("f", b"x")
    (files / "f").chmod(0o600)
    assert files.outcomes(effect) == {"f": Outcome.CONFLICT}
    assert "mode" in files.details(effect)


def test_a_touched_file_is_no_conflict(files: Files) -> None:
    (files / "f").write_bytes(b"before")
    effect = files.write("f", b"after")
    os.utime(files / "f", ns=(1, 1))
    files.undo(effect)
    assert (files / "f").read_bytes() == b"before"


def test_what_is_as_before_already_needs_nothing(files: Files) -> None:
    (files / "f").write_bytes(b"before")
    effect = files.write("f", b"after")
    (files / "f").write_bytes(b"before")
    assert files.outcomes(effect) == {"f": Outcome.ALREADY}
    assert files.desk.adapter.assess(undo_of(effect), effect).changes_nothing


class TestMerge:
    def test_edits_elsewhere_in_the_file_stay(self, files: Files) -> None:
        (files / "f").write_bytes(LINES)
        effect = files.write("f", LINES.replace(b"line 3\n", b"line three\n"), 0o640)
        (files / "f").write_bytes((files / "f").read_bytes().replace(b"line 18\n", b"mine\n"))
        assert files.outcomes(effect) == {"f": Outcome.CONFLICT}

        files.undo(effect, OnConflict.MERGE)

        assert (files / "f").read_bytes() == LINES.replace(b"line 18\n", b"mine\n")

    def test_redo_after_a_merge_brings_back_what_was_there(self, files: Files) -> None:
        (files / "f").write_bytes(LINES)
        effect = files.write("f", LINES.replace(b"line 3\n", b"line three\n"))
        (files / "f").write_bytes((files / "f").read_bytes().replace(b"line 18\n", b"mine\n"))
        edited = (files / "f").read_bytes()
        files.undo(files.undo(effect, OnConflict.MERGE))
        assert (files / "f").read_bytes() == edited

    @pytest.mark.parametrize("edited", [LINES.replace(b"line 3\n", b"mine\n"), b"\0binary", b""])
    def test_what_does_not_merge_stays_as_it_is_without_markers(self, files: Files, edited: bytes) -> None:
        (files / "f").write_bytes(LINES)
        effect = files.write("f", LINES.replace(b"line 3\n", b"line three\n"))
        (files / "f").write_bytes(edited)
        with pytest.raises(Conflict):
            files.undo(effect, OnConflict.MERGE)
        assert (files / "f").read_bytes() == edited

    def test_it_needs_no_program(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        (files / "f").write_bytes(LINES)
        effect = files.write("f", LINES.replace(b"line 3\n", b"line three\n"))
        (files / "f").write_bytes((files / "f").read_bytes() + b"mine\n")
        monkeypatch.setenv("PATH", "/nonexistent")
        files.undo(effect, OnConflict.MERGE)
        assert (files / "f").read_bytes() == LINES + b"mine\n"

    def test_a_deleted_file_does_not_merge(self, files: Files) -> None:
        (files / "f").write_bytes(LINES)
        effect = files.write("f", LINES + b"more\n")
        (files / "f").unlink()
        assert files.outcomes(effect, OnConflict.MERGE) == {"f": Outcome.CONFLICT}


class TestSeveral:
    def test_one_conflict_refuses_all_by_default(self, files: Files) -> None:
        effect = files.write_all({"a": b"1", "b": b"2"})
        (files / "b").write_bytes(b"mine")
        with pytest.raises(Conflict) as refusal:
            files.undo(effect)
        assert [os.path.basename(name) for name in refusal.value.resources] == ["b"]
        assert (files / "a").read_bytes() == b"1"

    def test_skip_does_the_rest(self, files: Files) -> None:
        effect = files.write_all({"a": b"1", "b": b"2"})
        (files / "b").write_bytes(b"mine")
        assert files.outcomes(effect, OnConflict.SKIP) == {"a": Outcome.UNDONE, "b": Outcome.CONFLICT}
        undo = files.undo(effect, OnConflict.SKIP)
        assert not (files / "a").exists() and (files / "b").read_bytes() == b"mine"
        assert [os.path.basename(target.resource) for target in undo.targets] == ["a"]

    def test_a_drifted_one_takes_back_those_before_it(self, files: Files) -> None:
        (files / "b").write_bytes(b"before")
        new = [NewFile(files / name, files.blobs.put(name.encode()), 1) for name in ("a", "b", "c")]
        effect = files.desk.intend(changes.write_all_change(new))
        (files / "b").write_bytes(b"someone")
        before = files.world.picture()
        with pytest.raises(Exception, match="is not what it was"):
            files.desk.adapter.apply(effect)
        files.desk.adapter.tidy(effect)
        assert files.world.picture() == before


class TestForce:
    @pytest.mark.parametrize("foreign", ["file", "directory", "link", "nothing"])
    def test_what_is_there_is_kept_for_redo(self, files: Files, foreign: str) -> None:
        (files / "f").write_bytes(b"before")
        effect = files.write("f", b"after")
        (files / "f").unlink()
        if foreign == "file":
            (files / "f").write_bytes(b"mine")
        elif foreign == "directory":
            (files / "f" / "sub").mkdir(parents=True)
            (files / "f" / "sub" / "x").write_bytes(b"mine")
        elif foreign == "link":
            os.symlink("elsewhere", files / "f")
        disturbed = files.world.picture()

        undo = files.undo(effect, OnConflict.FORCE)
        assert (files / "f").read_bytes() == b"before"
        files.undo(undo)

        assert files.world.picture() == disturbed

    def test_a_directory_full_of_new_work_can_be_forced_away_and_brought_back(self, files: Files) -> None:
        effect = files.do(changes.mkdir_change(files / "d"))
        (files / "d" / "work").write_bytes(b"hours of it")
        assert files.outcomes(effect) == {"d": Outcome.CONFLICT}
        disturbed = files.world.picture()
        undo = files.undo(effect, OnConflict.FORCE)
        assert not (files / "d").exists()
        files.undo(undo)
        assert files.world.picture() == disturbed


class TestMoves:
    def test_what_was_edited_meanwhile_comes_along(self, files: Files) -> None:
        (files / "d").mkdir()
        (files / "d" / "x").write_bytes(b"1")
        effect = files.do(changes.move_change(files / "d", files / "e"))
        (files / "e" / "x").write_bytes(b"edited")
        (files / "e" / "new").write_bytes(b"new")

        files.undo(effect)

        assert (files / "d" / "x").read_bytes() == b"edited" and (files / "d" / "new").exists()
        assert not (files / "e").exists()

    def test_nothing_in_a_moved_directory_is_read(self, files: Files) -> None:
        (files / "d").mkdir()
        (files / "d" / "big").write_bytes(os.urandom(5000))
        kept = len(files.blobs.kept)
        files.do(changes.move_change(files / "d", files / "e"))
        assert len(files.blobs.kept) == kept

    def test_undo_of_an_edit_whose_file_was_moved_names_the_path_and_makes_no_second_file(
        self, files: Files
    ) -> None:
        (files / "old").write_bytes(b"before")
        edit = files.write("old", b"after")
        files.do(changes.move_change(files / "old", files / "new"))
        for policy in (OnConflict.REFUSE, OnConflict.MERGE):
            with pytest.raises(Conflict, match="old"):
                files.undo(edit, policy)
        assert files.outcomes(edit, OnConflict.SKIP) == {"old": Outcome.CONFLICT}
        assert sorted(os.listdir(files / ".")) == ["new"]

    def test_newest_first_works_through_moves_edits_and_deletions(self, files: Files) -> None:
        (files / "d").mkdir()
        (files / "d" / "f").write_bytes(b"before")
        before = files.world.picture()
        effects = [
            files.write("d/f", b"after"),
            files.do(changes.move_change(files / "d", files / "e")),
            files.write("e/g", b"new"),
            files.do(changes.move_change(files / "e" / "f", files / "f")),
            files.write("f", b"again"),
            files.do(changes.delete_change(files / "e")),
            files.do(changes.move_change(files / "f", files / "g")),
            files.do(changes.delete_change(files / "g")),
        ]
        for effect in reversed(effects):
            files.undo(effect)
        assert files.world.picture() == before

    def test_a_place_taken_meanwhile_is_a_conflict(self, files: Files) -> None:
        (files / "a").write_bytes(b"1")
        effect = files.do(changes.move_change(files / "a", files / "b"))
        (files / "a").write_bytes(b"someone else's")
        with pytest.raises(Conflict, match="is taken by something else now"):
            files.undo(effect)
        assert (files / "a").read_bytes() == b"someone else's"

    def test_a_moved_file_that_was_replaced_moves_back_only_by_force(self, files: Files) -> None:
        (files / "a").write_bytes(b"1")
        effect = files.do(changes.move_change(files / "a", files / "b"))
        (files / "b").unlink()
        (files / "b").write_bytes(b"replaced by an editor")
        with pytest.raises(Conflict):
            files.undo(effect)
        files.undo(effect, OnConflict.FORCE)
        assert (files / "a").read_bytes() == b"replaced by an editor" and not (files / "b").exists()


def test_a_vanished_directory_is_a_conflict(files: Files) -> None:
    (files / "d").mkdir()
    (files / "d" / "f").write_bytes(b"before")
    effect = files.write("d/f", b"after")
    shutil.rmtree(files / "d")
    with pytest.raises(Conflict, match="the directory it was in is gone"):
        files.undo(effect, OnConflict.FORCE)


def test_undo_of_chmod_leaves_later_content_alone(files: Files) -> None:
    (files / "f").write_bytes(b"1")
    (files / "f").chmod(0o644)
    effect = files.do(changes.chmod_change(files / "f", 0o600))
    (files / "f").write_bytes(b"2")
    files.undo(effect)
    assert (files / "f").read_bytes() == b"2" and (files / "f").stat().st_mode & 0o777 == 0o644


def test_a_damaged_or_missing_blob_is_found_before_the_file_is_touched(files: Files) -> None:
    (files / "f").write_bytes(b"before")
    effect = files.write("f", b"after")
    assert effect.remedy
    del files.blobs.kept[effect.remedy.targets[0].before["digest"]]
    before = files.world.picture()
    with pytest.raises(Exception, match=r"blob|store"):
        files.undo(effect)
    assert files.world.picture() == before
