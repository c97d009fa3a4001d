"""Layers that are only kept for undo are packed, and come back exactly."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

import takeback
from takeback.errors import Corrupt
from takeback.storage.layer_archive import pack, pack_in_place, packed_name, unpack, unpack_in_place
from takeback.testing.crash import Boundaries, in_a_process, wrap_system_calls
from tests.world import World, picture

pytestmark = pytest.mark.root


def strange_tree(top: Path) -> bytes:
    """Everything that a layer may hold."""
    (top / "0" / "deep" / "er").mkdir(parents=True)
    (top / "layer.json").write_text("{}")
    upper = os.fsencode(top / "0")
    with open(upper + b"/not \xff text", "wb") as file:
        file.write(b"content\n" * 1000)
    os.mknod(upper + b"/whiteout", stat.S_IFCHR | 0o000, 0)
    os.mknod(upper + b"/disk", stat.S_IFBLK | 0o640, os.makedev(7, 99))
    os.mkfifo(upper + b"/pipe", 0o622)
    os.symlink(b"no\xffwhere", upper + b"/link")
    os.link(upper + b"/not \xff text", upper + b"/deep/other name")
    os.link(upper + b"/link", upper + b"/deep/other link")
    with open(upper + b"/sparse", "wb") as file:
        file.write(b"begin")
        file.seek(1 << 22)
        file.write(b"end")
        file.truncate(1 << 23)
    with open(upper + b"/hole", "wb") as file:
        file.truncate(1 << 20)
    (top / "0" / "empty").touch()
    os.setxattr(upper + b"/deep", "trusted.overlay.opaque", b"y")
    os.setxattr(upper + b"/empty", "trusted.overlay.origin", bytes(range(256)))
    os.setxattr(upper + b"/empty", "user.lines", b"a=b\n\0c\n")
    os.setxattr(upper + b"/link", "trusted.of.a.link", b"x", follow_symlinks=False)
    subprocess.run(["setcap", "cap_net_raw+ep", upper + b"/sparse"], check=True)
    os.chown(upper + b"/empty", 1234, 4321)
    os.chmod(upper + b"/empty", 0o6755)
    os.utime(upper + b"/pipe", ns=(1_234_567_890, 9_876_543_210_123))
    os.utime(upper + b"/link", ns=(1, -5_000_000_001), follow_symlinks=False)
    os.chmod(upper + b"/deep/er", 0)
    os.chown(upper + b"/deep/er", 99, 98)
    os.utime(upper + b"/deep", ns=(5, 1_000_000_007))
    return upper


def test_everything_comes_back(tmp_path: Path) -> None:
    top = tmp_path / "layer"
    top.mkdir()
    upper = strange_tree(top)
    links = {name: os.listxattr(upper + name, follow_symlinks=False) for name in (b"/link", b"/sparse")}
    before = picture(os.fsencode(top))
    assert pack_in_place(str(top)) < 20_000
    assert not top.exists()
    unpack_in_place(str(top))
    assert picture(os.fsencode(top)) == before
    for name, names in links.items():
        assert os.listxattr(upper + name, follow_symlinks=False) == names
    assert os.lstat(upper + b"/hole").st_blocks == 0 and not os.path.exists(packed_name(str(top)))


def test_what_is_damaged_is_told_of_and_nothing_is_left_of_the_attempt(tmp_path: Path) -> None:
    top = tmp_path / "layer"
    top.mkdir()
    (top / "file").write_bytes(os.urandom(100_000))
    pack(str(top), str(tmp_path / "packed"))
    whole = (tmp_path / "packed").read_bytes()
    for damaged in (whole[:-20], whole[: len(whole) // 2], b"", b"x" + whole[1:]):
        (tmp_path / "other.packed").write_bytes(damaged)
        with pytest.raises(Corrupt):
            unpack_in_place(str(tmp_path / "other"))
        assert sorted(os.listdir(tmp_path)) == ["layer", "other.packed", "packed"]
    unpack(str(tmp_path / "packed"), str(tmp_path / "again"))
    assert picture(os.fsencode(tmp_path / "again")) == picture(os.fsencode(top))


def test_killed_at_any_boundary_one_of_the_two_is_there(tmp_path: Path) -> None:
    top = tmp_path / "box" / "layer"
    top.mkdir(parents=True)
    upper = top / "0"
    upper.mkdir()
    (upper / "a").write_bytes(b"content" * 100)
    (upper / "b").symlink_to("a")
    os.setxattr(upper, "trusted.overlay.opaque", b"y")
    before = picture(os.fsencode(top))

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        pack_in_place(str(top))
        unpack_in_place(str(top))

    at = 1
    while True:
        end = in_a_process(action, Boundaries(at))
        assert not end.error, end.error
        if not top.exists():
            unpack_in_place(str(top))
        assert picture(os.fsencode(top)) == before
        for name in os.listdir(tmp_path / "box"):
            if name != "layer":  # as a sweep does
                subprocess.run(["rm", "-r", tmp_path / "box" / name], check=True)
        if not end.killed:
            return
        at += 1


def forms(store: Path, box: str) -> list[str]:
    """What each layer is on the disk."""
    place = store / "layers" / box
    return sorted("packed" if one.is_file() else "plain" for one in place.iterdir() if _is_layer(one))


def _is_layer(path: Path) -> bool:
    return path.is_dir() or path.name.endswith(".packed")


def test_steps_that_were_taken_back_are_packed_by_a_sweep_and_brought_back_by_redo(
    store: Path, world: World
) -> None:
    fill = "yes {0} | head -c 600000 > {0}"
    with takeback.open(store) as tb, tb.run("builds") as run, run.sandbox(cwd=world.root) as box:
        for name in "abc":
            box.run(fill.format(name))
        box.undo(2)
    with takeback.open(store) as tb:
        assert tb.sweep(grace=3600) == 0  # they may be wanted again in a moment
        assert tb.sweep(grace=0) > 1_000_000
        assert forms(store, box.id) == ["packed", "packed", "plain"]
        assert tb.verify().sound
        assert tb.sweep(grace=0) == 0
        tb.redo()
        with tb.run("looks") as run, run.sandbox(box=box.id) as again:
            made = " ".join(f"(yes {name} | head -c 600000);" for name in "abc")
            assert again.run("cat a b c | md5sum").stdout == again.run(f"({made}) | md5sum").stdout
            assert forms(store, box.id) == ["plain"] * 3
            again.undo(2)
            assert tb.sweep(grace=0) == 0  # someone has it open
        tb.sweep(grace=0)
        assert forms(store, box.id) == ["packed", "packed", "plain"]
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        assert forms(store, box.id) == ["plain"]
