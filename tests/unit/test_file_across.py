"""A move to another filesystem is as exact as any other change, whole or not at all, and comes back."""

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.adapters.file import changes, swap
from takeback.adapters.file import move as across
from takeback.adapters.file.adapter import FileAdapter
from takeback.errors import Conflict, Drifted, NoRemedy, ResourceUnreachable, VerifyFailed
from takeback.model.change import NO_FACTS, Facts, OnConflict
from takeback.model.effect import Effect
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import settle, undo_of
from tests.files import OLD, Files, as_an_ordinary_user, leftovers
from tests.world import World


@pytest.fixture
def far() -> Iterator[World]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        yield World(Path(place))


@pytest.fixture
def files(world: World, tmp_path: Path, far: World) -> Files:
    if os.stat(far.root).st_dev == os.stat(world.root).st_dev:
        pytest.fail("these tests need two filesystems")
    (tmp_path / "held").mkdir()
    return Files(world, tmp_path / "held")


def move(files: Files, far: World, name: str, replace: bool = False) -> Effect:
    return files.do(changes.move_change(files / name, far / name, replace=replace))


def a_tree(files: Files) -> None:
    top = files / "tree"
    (top / "deep" / "empty").mkdir(parents=True)
    (top / "one").write_bytes(b"1" * 5000)
    os.link(top / "one", top / "deep" / "same")
    os.link(top / "one", files / "outside")
    (top / "sparse").touch()
    os.truncate(top / "sparse", 4 << 20)
    (top / "dangling").symlink_to("nowhere")
    os.mkfifo(top / "pipe")
    (top / "deep").chmod(0o2750)
    os.setxattr(top / "deep", "trusted.note", b"kept")
    os.chown(top / "one", 1234, 4321)
    for number, path in enumerate(sorted(top.rglob("*"), reverse=True)):
        os.utime(path, ns=(OLD + number, OLD + number), follow_symlinks=False)
    os.utime(top, ns=(OLD, OLD))


@pytest.mark.root
def test_everything_of_a_tree_arrives_and_everything_comes_back(files: Files, far: World) -> None:
    a_tree(files)
    here = World(files / "tree").picture(directory_times=True)
    before = files.world.picture()
    effect = move(files, far, "tree")
    assert World(far / "tree").picture(directory_times=True) == here
    assert not (files / "tree").exists() and (far / "tree" / "sparse").stat().st_blocks < 100
    undo = files.undo(effect)
    assert files.world.picture() == before and os.path.samefile(files / "tree" / "one", files / "outside")
    assert World(files / "tree").picture(directory_times=True) == here
    assert not os.listdir(far.root)
    files.undo(undo)
    assert World(far / "tree").picture(directory_times=True) == here and not (files / "tree").exists()
    assert not leftovers(files.world) and not leftovers(far)


def test_what_it_replaces_comes_back_too(files: Files, far: World) -> None:
    files.make("f", b"moves")
    (far / "f").write_bytes(b"replaced")
    effect = move(files, far, "f", replace=True)
    assert (far / "f").read_bytes() == b"moves"
    files.undo(effect)
    assert (far / "f").read_bytes() == b"replaced" and (files / "f").read_bytes() == b"moves"


def test_a_change_of_the_source_while_it_is_copied_stays_and_the_copy_goes(files: Files, far: World) -> None:
    (files / "tree").mkdir()
    files.make("tree/f")
    desk = files.desk()
    effect = desk.intend(changes.move_change(files / "tree", far / "tree"))
    (files / "tree" / "new").write_bytes(b"someone's")
    with pytest.raises(Drifted):
        desk.adapter.apply(effect)
    assert sorted(os.listdir(files / "tree")) == ["f", "new"] and not os.listdir(far.root)
    assert not leftovers(files.world)


def test_what_appears_in_the_source_while_it_is_removed_stays_and_the_copy_goes(
    files: Files, far: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "tree").mkdir()
    files.make("tree/f")
    real = os.unlink

    def at_work(name: str, *, dir_fd: int | None = None) -> None:
        if name == "f":
            monkeypatch.setattr(os, "unlink", real)
            os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=dir_fd))
        real(name, dir_fd=dir_fd)

    desk = files.desk()
    effect = desk.intend(changes.move_change(files / "tree", far / "tree"))
    monkeypatch.setattr(os, "unlink", at_work)
    with pytest.raises(Drifted):
        desk.adapter.apply(effect)
    assert sorted(os.listdir(files / "tree")) == ["f", "new"] and not os.listdir(far.root)


@pytest.mark.parametrize("on_conflict", [OnConflict.REFUSE, OnConflict.SKIP])
def test_if_its_old_name_is_taken_the_new_one_stays(
    files: Files, far: World, on_conflict: OnConflict
) -> None:
    files.make("f", b"moves")
    effect = move(files, far, "f")
    files.make("f", b"someone else's")
    outcomes = files.desk().adapter.assess(undo_of(effect, on_conflict), effect).outcomes
    assert {each.outcome for each in outcomes} == {Outcome.CONFLICT}
    if on_conflict is OnConflict.REFUSE:
        with pytest.raises(Conflict):
            files.undo(effect)
    assert (far / "f").read_bytes() == b"moves"


def test_a_copy_that_is_not_exact_is_taken_away_and_the_original_stays(
    files: Files, far: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a filesystem with coarser times."""
    (files / "tree").mkdir()
    files.make("tree/f")
    before = files.world.picture(directory_times=True)
    real = os.utime

    def coarse(path: int, *, ns: tuple[int, int]) -> None:
        real(path, ns=(ns[0], ns[1] // 2_000_000_000 * 2_000_000_000))

    desk = files.desk()
    effect = desk.intend(changes.move_change(files / "tree", far / "tree"))
    monkeypatch.setattr(os, "utime", coarse)
    with pytest.raises(VerifyFailed, match="not exact: it differs in f"):
        desk.adapter.apply(effect)
    monkeypatch.undo()
    assert files.world.picture(directory_times=True).keys() == before.keys()
    assert World(files / "tree").picture(directory_times=True)[b"f"] == before[b"tree/f"]
    assert not os.listdir(far.root)


def test_a_copy_is_not_taken_away_while_the_original_could_not_be_given_back(
    files: Files, far: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "tree").mkdir()
    files.make("tree/f")
    files.make("tree/g")
    before = files.world.picture()
    desk = files.desk()
    effect = desk.intend(changes.move_change(files / "tree", far / "tree"))
    real = os.unlink

    def failing(name: str, *, dir_fd: int | None = None) -> None:
        if name == "g":
            raise PermissionError(errno.EPERM, "no", name)
        real(name, dir_fd=dir_fd)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing)
        patch.setattr(swap, "_make_whole", full)
        with pytest.raises(ResourceUnreachable):
            desk.adapter.apply(effect)
    assert not (files / "tree").exists() and sorted(os.listdir(far / "tree")) == ["f", "g"]
    desk.adapter.undo(effect)
    desk.adapter.tidy(effect)
    assert files.world.picture() == before and not os.listdir(far.root)


@pytest.mark.parametrize("died", ["copying", "copied", "aside", "removing", "removed"])
def test_it_is_settled_wherever_it_died(files: Files, far: World, died: str) -> None:
    """The states between, made by hand; the sweeps of tests/crash make them by killing."""
    from takeback.adapters.file.paths import scratch

    (files / "tree").mkdir()
    files.make("tree/f")
    files.make("tree/g")
    effect = files.desk().intend(changes.move_change(files / "tree", far / "tree"))
    building, names = scratch(effect.id, 0, b"tree").building, scratch(effect.id, 1, b"tree")
    if died == "copying":
        (far / building).mkdir()
        (far / building / "f").write_bytes(b"half")
    else:
        subprocess.run(["cp", "-a", files / "tree", far / "tree"], check=True)
    if died == "aside":
        (files / "tree").rename(files / names.swapping)
    if died in ("removing", "removed"):
        (files / "tree").rename(files / names.going)
        (files / names.going / "f").unlink()
    if died == "removed":
        (files / names.going / "g").unlink()
        (files / names.going).rmdir()
    settle(FileAdapter(files.blobs, held=str(files.held)), effect)
    here, there = sorted(os.listdir(files.world.root)), os.listdir(far.root)
    forward = died in ("aside", "removing", "removed")
    assert (here, there) == (([], ["tree"]) if forward else (["tree"], []))
    whole = far / "tree" if forward else files / "tree"
    assert sorted(os.listdir(whole)) == ["f", "g"] and (whole / "f").read_bytes() == b"before\n"


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_two_mounts_of_one_filesystem_are_two(files: Files, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "bound").mkdir()
    files.make("f", b"moves")
    subprocess.run(["mount", "--bind", tmp_path / "real", tmp_path / "bound"], check=True)
    try:
        effect = files.do(changes.move_change(files / "f", tmp_path / "bound" / "f"))
        assert across.goes_across(effect) and (tmp_path / "real" / "f").read_bytes() == b"moves"
        files.undo(effect)
        assert (files / "f").read_bytes() == b"moves" and not os.listdir(tmp_path / "real")
    finally:
        subprocess.run(["umount", tmp_path / "bound"], check=True)


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_without_room_over_there_nothing_has_moved(files: Files, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (files / "tree").mkdir()
    files.make("tree/f", os.urandom(200_000))
    before = files.world.picture()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path / "small"], check=True)
    try:
        desk = files.desk()
        effect = desk.intend(changes.move_change(files / "tree", tmp_path / "small" / "tree"))
        with pytest.raises(ResourceUnreachable, match="is full"):
            desk.adapter.apply(effect)
        assert not os.listdir(tmp_path / "small") and files.world.picture() == before
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


@pytest.mark.root
def test_what_an_ordinary_user_could_not_copy_whole_is_refused(world: World, far: World) -> None:
    os.chown(world.root, 65534, 65534)
    os.chown(far.root, 65534, 65534)
    (world / "theirs").write_bytes(b"theirs")
    said = as_an_ordinary_user(
        world,
        f"""
        os.mkdir("t"); open("t/open", "w").close(); open("t/secret", "w").close(); os.chmod("t/secret", 0)
        for name in ("t", "theirs"):
            try:
                desk.do(changes.move_change(name, {str(far.root)!r} + "/" + name))
            except NoRemedy as error:
                print(error, error.hint)
        os.unlink("t/secret")
        effect = desk.do(changes.move_change("t", {str(far.root)!r} + "/t"))
        print(os.path.exists("t"), os.listdir({str(far.root)!r}))
        desk.undo(effect)
        print(os.listdir("t"), os.listdir({str(far.root)!r}))
        """,
    ).splitlines()
    assert "t/secret: it is not readable" in said[0] and "theirs: its owner" in said[1]
    assert said[2:] == ["False ['t']", "['open'] []"]


def test_over_the_limit_it_is_refused_and_cannot_be_allowed(files: Files, far: World) -> None:
    files.make("big", bytes(2000))
    adapter = FileAdapter(files.blobs, max_capture_bytes=1000)
    change = changes.move_change(files / "big", far / "big")
    for facts in (NO_FACTS, Facts(allow_inexact=True)):
        with pytest.raises(NoRemedy, match="cannot be copied whole"):
            adapter.assess(change._replace(facts=facts))


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_a_directory_of_a_lower_layer_stays_and_the_hint_names_the_overlay(
    files: Files, far: World, tmp_path: Path
) -> None:
    """The kernel renames no such directory; found in containers, where the image is the lower layer."""
    for name in ("lower/d", "upper", "work", "merged"):
        (far / name).mkdir(parents=True)
    (far / "lower/d/f").write_bytes(b"from the image")
    layers = f"lowerdir={far / 'lower'},upperdir={far / 'upper'},workdir={far / 'work'},redirect_dir=off"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, far / "merged"], check=True)
    try:
        place = far / "merged" / "d"
        for change in (
            changes.delete_change(place),
            changes.move_change(place, far / "merged" / "e"),
            changes.move_change(place, tmp_path / "e"),
        ):
            desk = files.desk()
            effect = desk.intend(change)
            with pytest.raises(NoRemedy, match="overlay"):
                desk.adapter.apply(effect)
            desk.adapter.tidy(effect)
            assert os.listdir(place) == ["f"] and os.listdir(far / "merged") == ["d"]
            assert not (tmp_path / "e").exists()
    finally:
        subprocess.run(["umount", far / "merged"], check=True)
