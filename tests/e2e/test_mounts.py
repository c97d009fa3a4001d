"""A second name of the store, and a mount that came or went between an effect and its undo."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from takeback.model.mounts import mount_of, mounted, other_names, own_path
from tests.e2e.conftest import CommandLine
from tests.world import World


@contextmanager
def bound(source: Path, point: Path) -> Iterator[Path]:
    subprocess.run(["mount", "--bind", source, point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


@contextmanager
def tmpfs(point: Path) -> Iterator[Path]:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


@pytest.fixture
def alias(takeback: CommandLine, world: World, store: Path, tmp_path: Path) -> Iterator[Path]:
    """The directory that holds the store, by a second name; one effect is in the store."""
    (world / "a").write_text("one")
    takeback.write("a", "two")
    point = tmp_path / "alias"
    point.mkdir()
    with bound(store.parent, point):
        yield point / store.name


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
@pytest.mark.parametrize(
    "act",
    [
        "rm {0}/journal.db",
        "rm -rf {0}",
        "mv {0} {0}.gone",
        "truncate -s 0 {0}/journal.db",
        "echo '{{}}' > {0}/settings.json",
    ],
)
def test_finding_30_a_sandboxed_command_does_not_reach_the_store_by_a_second_name(
    takeback: CommandLine, world: World, alias: Path, store: Path, act: str
) -> None:
    names = sorted(os.listdir(store))
    takeback("run", "--", "sh", "-c", f"{act.format(alias)}; true")
    assert set(names) <= set(os.listdir(store))
    assert not (store / "settings.json").exists()
    takeback.done("verify")
    takeback.done("undo")
    assert (world / "a").read_text() == "one"


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
@pytest.mark.parametrize(
    "words",
    [
        ("rm", "{0}/journal.db"),
        ("rm", "-r", "{0}"),
        ("mv", "{0}", "{0}.gone"),
        ("write", "{0}/settings.json"),
    ],
)
def test_finding_30_takeback_itself_does_not_change_the_store_by_a_second_name(
    takeback: CommandLine, alias: Path, store: Path, words: tuple[str, ...]
) -> None:
    before = sorted(os.listdir(store))
    said = takeback(*(word.format(alias) for word in words), input="{}")
    assert said.code == 3, said
    assert "takeback's own store" in said.err
    assert str(store) in said.err, "which store it is"
    assert sorted(os.listdir(store)) == before


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_finding_30_an_undo_does_not_reach_the_store_by_a_name_that_came_since(
    takeback: CommandLine, world: World, store: Path
) -> None:
    point = world / "d"
    point.mkdir()
    (point / "FORMAT").write_text("mine")
    takeback.done("rm", "d/FORMAT")
    before = (store / "FORMAT").read_bytes()
    with bound(store, point):
        said = takeback("undo", "--force")
        assert said.code == 3, said
    assert (store / "FORMAT").read_bytes() == before
    takeback.done("undo")
    assert (point / "FORMAT").read_text() == "mine"


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_finding_30_a_directory_with_a_second_name_of_the_store_is_not_watched(
    takeback: CommandLine, alias: Path
) -> None:
    said = takeback("run", "--in-place", "--root", alias.parent, "--", "true")
    assert "takeback's own store lies in it" in said.err


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
@pytest.mark.parametrize("kind", ["rm", "write", "run", "in place", "mv", "edit"])
def test_finding_15_an_undo_does_not_write_through_a_mount_that_came_since(
    takeback: CommandLine, world: World, tmp_path: Path, kind: str
) -> None:
    point, other = world / "d", tmp_path / "other"
    for directory in (point, other):
        directory.mkdir()
        (directory / "f.toml").write_text("x = 1\n")
        (directory / "f.toml").touch()
    before = world.picture()
    {
        "rm": lambda: takeback.done("rm", "d/f.toml"),
        "write": lambda: takeback.write("d/f.toml", "x = 2\n"),
        "run": lambda: takeback.done("run", "--", "sh", "-c", "echo x = 2 > d/f.toml"),
        "in place": lambda: takeback.done("run", "--in-place", "--", "sh", "-c", "echo x = 2 > d/f.toml"),
        "mv": lambda: takeback.done("mv", "d/f.toml", "d/g"),
        "edit": lambda: takeback.done("edit", "d/f.toml", "--set", "/x=2"),
    }[kind]()
    # What lies under the mount looks the same to the byte.
    subprocess.run(["cp", "-a", f"{point}/.", other], check=True)
    if kind == "rm":
        (other / "f.toml").unlink()
    there = World(other).picture()
    with bound(other, point):
        for words in (("undo",), ("undo", "--force"), ("undo", "--skip-conflicts")):
            said = takeback(*words)
            assert said.code == 3, said
            assert f"mounted at {point.name} since" in said.err, said
        assert World(other).picture() == there
    takeback.done("undo")
    assert world.picture() == before


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_finding_15_an_undo_does_not_write_below_a_mount_point_that_is_empty_now(
    takeback: CommandLine, world: World
) -> None:
    point = world / "d"
    point.mkdir()
    with tmpfs(point):
        (point / "f").write_text("precious")
        takeback.done("rm", "d/f")
    said = takeback("undo")
    assert said.code == 3, said
    assert f"{point.name} was unmounted since" in said.err
    assert os.listdir(point) == []


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_finding_15_the_same_directory_mounted_otherwise_is_no_obstacle(
    takeback: CommandLine, world: World
) -> None:
    """As in a container that has the project mounted at the path it has outside."""
    point = world / "d"
    point.mkdir()
    takeback.write("d/f", "new")
    with bound(point, point):
        takeback.done("undo")
    assert os.listdir(point) == []


TABLE = b"""\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:1 /srv/state /mnt/alias rw - ext4 /dev/sda1 rw
3 1 8:1 / /whole rw - ext4 /dev/sda1 rw
4 1 8:1 /srv/state/store/blobs /a\\040part rw - ext4 /dev/sda1 rw
5 1 8:2 / /home rw - ext4 /dev/sda2 rw
6 1 8:1 /srv /hidden/below rw - ext4 /dev/sda1 rw
7 1 0:40 / /hidden rw - tmpfs tmpfs rw
"""


def test_every_visible_name_of_a_directory_is_found_in_the_table_of_mounts() -> None:
    table = mounted(TABLE)
    assert other_names(table, b"/srv/state/store") == (
        b"/mnt/alias/store",
        b"/whole/srv/state/store",
        b"/a part",
    )
    assert other_names(table, b"/home/u") == ()
    found = mount_of(table, b"/mnt/alias/x/y")
    assert found is not None
    assert own_path(found, b"/mnt/alias/x/y") == b"/srv/state/x/y"
    hidden = mount_of(table, b"/hidden/below/x")
    assert hidden is not None
    assert hidden.kind == b"tmpfs"
