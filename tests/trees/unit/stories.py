"""What commands do to trees: every mixture of kinds, each with something that someone else does meanwhile."""

import os
import shutil
from pathlib import Path

import pytest

from tests.trees.unit.scene import Story


def small_tree(root: Path) -> None:
    (root / "tree" / "deep" / "deeper").mkdir(parents=True)
    (root / "tree" / "empty").mkdir()
    (root / "tree" / "one").write_bytes(b"1")
    (root / "tree" / "deep" / "two").write_bytes(b"22\n")
    (root / "tree" / "deep" / "deeper" / "three").write_bytes(b"333")
    os.symlink("nowhere", root / "tree" / "link")
    os.mkfifo(root / "tree" / "deep" / "fifo")
    (root / "tree" / "deep").chmod(0o2750)
    (root / "bystander").write_bytes(b"not mine\n")


def with_names(root: Path) -> None:
    """Several names of one file: all of them inside, and one group with a name that no command touches."""
    small_tree(root)
    os.link(root / "tree" / "one", root / "tree" / "deep" / "one again")
    os.link(root / "bystander", root / "tree" / "bystander too")


def odd_things(root: Path) -> None:
    small_tree(root)
    closed = root / "tree" / "closed"
    closed.mkdir()
    (closed / "secret").write_bytes(b"secret")
    (closed / "secret").chmod(0)
    closed.chmod(0)
    (root / "tree" / os.fsdecode(b"no \xff utf\n8")).write_bytes(b"\xff")
    os.setxattr(root / "tree" / "one", "user.colour", b"blue")
    os.setxattr(root / "tree" / "deep", "user.colour", b"green")
    with (root / "tree" / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 20)
        file.write(b"end")


def edit(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"someone else's\n")


def intrude(root: Path) -> None:
    (root / "tree" / "deep").mkdir(parents=True, exist_ok=True)
    (root / "tree" / "deep" / "mine").write_bytes(b"someone else's\n")


def file_to_directory(root: Path) -> None:
    (root / "tree" / "one").unlink()
    (root / "tree" / "one" / "x" / "y").mkdir(parents=True)
    (root / "tree" / "one" / "x" / "file").write_bytes(b"inside")
    (root / "tree" / "one" / "x" / "y").chmod(0o555)
    os.symlink("../x", root / "tree" / "one" / "x" / "link")


def directory_to_file(root: Path) -> None:
    shutil.rmtree(root / "tree" / "deep")
    (root / "tree" / "deep").write_bytes(b"now a file")


def many_things(root: Path) -> None:
    tree = root / "tree"
    (tree / "one").write_bytes(b"changed in place")
    shutil.rmtree(tree / "deep" / "deeper")
    (tree / "deep" / "two").unlink()
    (tree / "deep" / "new").mkdir(mode=0o700)
    (tree / "deep" / "new" / "file").write_bytes(b"new")
    (tree / "deep").chmod(0o711)
    (tree / "link").unlink()
    os.symlink("somewhere", tree / "link")
    (tree / "empty").rmdir()
    (tree / "empty").write_bytes(b"no longer a directory")
    os.mkfifo(tree / "another fifo", 0o600)
    (tree / "a" / "b" / "c" / "d" / "e").mkdir(parents=True)
    (tree / "a" / "b" / "c" / "d" / "e" / "leaf").write_bytes(b"leaf")


def modes(root: Path) -> None:
    (root / "tree" / "one").chmod(0o4755)
    (root / "tree" / "deep" / "fifo").chmod(0o620)
    (root / "tree" / "deep").chmod(0o700)
    os.utime(root / "tree" / "deep" / "two", ns=(OLDER, OLDER))
    if os.geteuid() == 0:
        os.chown(root / "tree" / "deep" / "two", 1234, 1235)
        os.chown(root / "tree" / "empty", 1234, 1235)


OLDER = 10**18 + 77


def odd_changes(root: Path) -> None:
    tree = root / "tree"
    (tree / "closed").chmod(0o755)
    (tree / "closed" / "secret").write_bytes(b"changed")
    (tree / "closed").chmod(0o100)
    (tree / os.fsdecode(b"no \xff utf\n8")).rename(tree / os.fsdecode(b"other \xfe"))
    os.removexattr(tree / "one", "user.colour")
    os.setxattr(tree / "deep", "user.colour", b"red")
    with (tree / "sparse").open("r+b") as file:
        file.seek(2 << 20)
        file.write(b"more")
    (tree / "locked").mkdir()
    (tree / "locked" / "in").write_bytes(b"in")
    (tree / "locked").chmod(0)


def names(root: Path) -> None:
    """New names, a name less, one file made two."""
    tree = root / "tree"
    os.link(tree / "deep" / "two", tree / "two again")
    (tree / "bystander too").unlink()
    shutil.copy2(tree / "one", tree / "apart")
    (tree / "deep" / "one again").unlink()
    (tree / "apart").rename(tree / "deep" / "one again")
    os.link(tree / "deep" / "deeper" / "three", tree / "empty" / "three too")
    with (tree / "deep" / "deeper" / "three").open("ab") as file:
        file.write(b"more")


def write_into_group(root: Path) -> None:
    """Through one name: the other shows it too."""
    with (root / "tree" / "one").open("ab") as file:
        file.write(b" and more")
    (root / "tree" / "new").write_bytes(b"new")


def links_and_directories(root: Path) -> None:
    """A directory becomes a link to where it went, a link becomes a directory."""
    (root / "tree" / "deep").rename(root / "moved")
    os.symlink("../moved", root / "tree" / "deep")
    (root / "tree" / "link").unlink()
    (root / "tree" / "link" / "inner").mkdir(parents=True)
    (root / "tree" / "link" / "inner" / "file").write_bytes(b"inner")


def names_apart(root: Path) -> None:
    """One name goes with its directory while what it names gets other properties through another."""
    small_tree(root)
    os.link(root / "tree" / "one", root / "tree" / "deep" / "deeper" / "one too")
    os.link(root / "tree" / "deep" / "fifo", root / "tree" / "empty" / "fifo too")
    os.link(root / "tree" / "link", root / "tree" / "link too", follow_symlinks=False)


def other_properties(root: Path) -> None:
    (root / "tree" / "one").chmod(0o600)
    os.setxattr(root / "tree" / "one", "user.colour", b"blue")
    shutil.rmtree(root / "tree" / "deep" / "deeper")
    (root / "tree" / "deep" / "fifo").chmod(0o640)
    os.link(root / "tree" / "link too", root / "tree" / "empty" / "link three", follow_symlinks=False)


def name_and_mode(root: Path) -> None:
    """A further name, and other properties through the one that was there."""
    os.link(root / "tree" / "one", root / "tree" / "other name")
    (root / "tree" / "one").chmod(0o600)


STORIES = [
    Story("links and directories", small_tree, links_and_directories, lambda root: edit(root / "tree" / "link")),
    Story("names and properties", names_apart, other_properties, lambda root: edit(root / "tree" / "one")),
    Story("a name and a mode", small_tree, name_and_mode, lambda root: edit(root / "tree" / "other name")),
    Story("a file to a directory", small_tree, file_to_directory, lambda root: edit(root / "tree" / "one")),
    Story("a directory to a file", small_tree, directory_to_file, lambda root: edit(root / "tree" / "deep")),
    Story("a directory to a file, someone inside", small_tree, directory_to_file,
          lambda root: (edit(root / "tree" / "deep"), (root / "tree" / "deep").unlink(), intrude(root))),
    Story("many things", small_tree, many_things, lambda root: edit(root / "tree" / "link")),
    Story("many things, a new one taken", small_tree, many_things, lambda root: edit(root / "tree" / "a" / "b")),
    Story("remove everything", odd_things, lambda root: shutil.rmtree(root / "tree"), intrude),
    Story("a new tree", lambda root: None, small_tree, intrude),
    Story("move a directory", small_tree, lambda root: (root / "tree" / "deep").rename(root / "moved"),
          lambda root: edit(root / "moved" / "two")),
    Story("modes, owners, times", small_tree, modes, lambda root: (root / "tree" / "deep").chmod(0o777)),
    Story("odd things", odd_things, odd_changes, lambda root: edit(root / "tree" / "sparse")),
    Story("names", with_names, names, lambda root: edit(root / "tree" / "two again")),
    Story("through one of two names", with_names, write_into_group, lambda root: edit(root / "tree" / "one")),
    Story("remove one name", with_names, lambda root: (root / "bystander").unlink(),
          lambda root: edit(root / "bystander")),
]  # fmt: skip

# Only root can read what is closed even to its owner.
PARAMETERS = [
    pytest.param(story, id=story.name, marks=[pytest.mark.root] if story.begin is odd_things else [])
    for story in STORIES
]
