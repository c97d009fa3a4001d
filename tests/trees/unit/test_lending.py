"""Files of a layer become part of the world as they are; where that may not be, they are written once more."""

import os
from pathlib import Path

import pytest

import takeback
from takeback.adapters.file.paths import Place
from takeback.adapters.tree.build import Lent
from takeback.adapters.tree.states import see
from takeback.adapters.tree.swap import Swap

RESOURCE = "file:///somewhere/name"


def _taken(directory: Path, source: Path, state: dict[str, object], durable: bool = False) -> bool:
    fd = os.open(directory, os.O_RDONLY)
    try:
        return Lent({RESOURCE: os.fsencode(source)}).take(RESOURCE, Place(fd, b"ready", ""), state, durable)
    finally:
        os.close(fd)


def _state(path: Path) -> dict[str, object]:
    fd = os.open(path.parent, os.O_RDONLY)
    try:
        return see(Place(fd, os.fsencode(path.name), ""))
    finally:
        os.close(fd)


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_taken_as_it_is(tmp_path: Path, durable: bool) -> None:
    source = tmp_path / "left"
    source.write_text("content")
    assert _taken(tmp_path, source, _state(source), durable)
    assert (tmp_path / "ready").stat().st_ino == source.stat().st_ino


@pytest.mark.parametrize("why", ["size", "mtime", "mode", "uid"])
def test_a_file_that_is_another_is_not_taken(tmp_path: Path, why: str) -> None:
    source = tmp_path / "left"
    source.write_text("content")
    state = _state(source)
    assert not _taken(tmp_path, source, state | {why: 5})
    assert not (tmp_path / "ready").exists()


def test_what_is_gone_a_link_or_has_other_names_is_not_taken(tmp_path: Path) -> None:
    source = tmp_path / "left"
    source.write_text("content")
    state = _state(source)
    os.link(source, tmp_path / "other")
    assert not _taken(tmp_path, source, state)
    (tmp_path / "link").symlink_to("other")
    assert not _taken(tmp_path, tmp_path / "link", state)
    assert not _taken(tmp_path, tmp_path / "missing", state)
    assert not (tmp_path / "ready").exists()


def test_what_overlay_noted_does_not_get_into_the_world(tmp_path: Path) -> None:
    source = tmp_path / "left"
    source.write_text("content")
    os.setxattr(source, "trusted.overlay.origin", b"note")
    state = _state(source)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        lent = Lent({RESOURCE: os.fsencode(source)})
        assert lent.take(RESOURCE, Place(fd, b"ready", ""), state, False)
        assert os.listxattr(tmp_path / "ready") == []
        os.unlink(tmp_path / "ready")
        lent.give_back()
        assert os.getxattr(source, "trusted.overlay.origin") == b"note"
        os.setxattr(source, "trusted.overlay.metacopy", b"")
        assert not lent.take(RESOURCE, Place(fd, b"ready", ""), state, False)
    finally:
        os.close(fd)


def test_a_merge_leaves_plain_files_with_one_name(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(40):
        (tree / f"old{number}").write_text("old")
    with takeback.open(tmp_path / "store") as tb, tb.run("merge") as run:
        line = "for f in old*; do echo new >> $f; done; mkdir sub; for i in 1 2 3; do echo new > sub/$i; done"
        outcome = run.command(line, cwd=tree)
        assert outcome.effect and len(outcome.changes) == 44
        files = [path for path in tree.rglob("*") if path.is_file()]
        assert all(path.read_text() in ("oldnew\n", "new\n") for path in files)
        assert all((path.stat().st_nlink, os.listxattr(path)) == (1, []) for path in files)
        tb.undo(outcome.effect.id)
        assert all((tree / f"old{number}").read_text() == "old" for number in range(40))
        assert not (tree / "sub").exists()


def test_a_merge_that_someone_else_prevents_finds_the_layer_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("one", "two", "three"):
        (tree / name).write_text("old")
    swap = Swap.swap

    def quicker(self: Swap) -> None:
        monkeypatch.setattr(Swap, "swap", swap)
        (tree / "two").write_text("someone else's")
        swap(self)

    with takeback.open(tmp_path / "store") as tb, tb.run("merge") as run:
        monkeypatch.setattr(Swap, "swap", quicker)
        outcome = run.command("for f in one two three; do echo new >> $f; done; echo four > four", cwd=tree)
        assert [one.resource.rpartition("/")[2] for one in outcome.conflicts] == ["two"]
        assert sorted(os.listdir(tree)) == ["one", "three", "two"]
        assert (tree / "one").read_text() == "old"
        assert (tree / "two").read_text() == "someone else's"
