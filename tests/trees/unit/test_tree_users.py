"""As an ordinary user: directories that are closed even to their owner, and what takes root."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[3] / "src")
ROOT = str(Path(__file__).parents[3])

_HEAD = f"""
    import os, sys, stat, shutil
    sys.path[:0] = [{SOURCE!r}, {ROOT!r}]
    from pathlib import Path
    from takeback.adapters.file import kernel
    from takeback.adapters.tree.targets import command_change
    from takeback.adapters.tree import adapter, layer
    from takeback.adapters.config import adapter as unused
    from takeback.errors import *
    from takeback.model.change import OnConflict
    from takeback.model.plan import Standing
    from takeback.testing.adapter_suite import Desk, settle, undo_of
    from takeback.testing.crash import killed_at
    from tests.trees.unit import moment
    from tests.trees.unit.scene import Story, TreeScene
    import subprocess, hashlib, difflib, tempfile
    import takeback.adapters.tree.git.undo
    kernel.libc()
    # Everything is imported by now: the interpreter's own files may be closed to an ordinary user.
    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    os.umask(0o022)
    place = Path(sys.argv[1])

    def modes(scene):
        found = {{}}
        for path in [scene.root, *sorted(scene.root.rglob("*"))]:
            found[str(path.relative_to(scene.root))] = oct(path.lstat().st_mode)
        return found
"""


def as_user(place: Path, code: str) -> str:
    """What a child says that gave up its rights."""
    room = place / "room"
    room.mkdir()
    if os.geteuid() == 0:
        os.chown(room, 65534, 65534)
    for directory in [room, *room.parents]:
        directory.chmod(directory.stat().st_mode | 0o011) if str(directory).startswith("/tmp/") else None
    text = textwrap.dedent(_HEAD) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text, str(room)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_CLOSED = """
    def begin(root):
        (root / "closed" / "inner").mkdir(parents=True)
        (root / "closed" / "file").write_bytes(b"before")
        (root / "closed" / "inner" / "file").write_bytes(b"inner")
        (root / "closed" / "inner").chmod(0o555)
        (root / "closed").chmod(0o555)

    def command(root):
        # As a command does that is root in its own namespace.
        (root / "closed").chmod(0o755)
        (root / "closed" / "inner").chmod(0o755)
        (root / "closed" / "file").write_bytes(b"after")
        (root / "closed" / "new").write_bytes(b"new")
        shutil.rmtree(root / "closed" / "inner")
        (root / "closed").chmod(0o555)

    class Scene(TreeScene):
        def reset(self):
            for path in [self.root, *self.root.rglob("*")]:
                path.chmod(0o755) if path.is_dir() else None
            super().reset()

    scene = Scene(place, Story("", begin, command, lambda root: None))
"""


def test_a_directory_closed_to_its_owner_is_opened_for_the_moment_and_closed_again(tmp_path: Path) -> None:
    told = as_user(
        tmp_path,
        _CLOSED
        + """
    before, first = scene.world(), modes(scene)
    effect = Desk(scene.adapter()).do(scene.change())
    print(oct((scene.root / "closed").stat().st_mode), sorted(os.listdir(scene.root / "closed")))
    Desk(scene.adapter()).undo(effect)
    print(scene.world() == before, modes(scene) == first)
    """,
    )
    assert told == "0o40555 ['file', 'new']\nTrue True"


def test_who_dies_while_a_directory_is_open_leaves_it_to_recovery_to_close_it(tmp_path: Path) -> None:
    told = as_user(
        tmp_path,
        _CLOSED
        + """
    before, first = scene.world(), modes(scene)
    Desk(scene.adapter()).do(scene.change())
    last = modes(scene)
    ends = set()
    for point in range(1, 100_000, 37):
        scene.reset()
        adapter = scene.adapter()
        effect = Desk(adapter).intend(scene.change())
        dead = killed_at(point, lambda: adapter.apply(effect))
        standing = settle(scene.adapter(), effect)
        ends.add(standing.value)
        assert modes(scene) == {Standing.BEFORE: first, Standing.AFTER: last}[standing], (point, standing)
        if not dead:
            break
    print(sorted(ends))
    """,
    )
    assert told == "['after', 'before']"


def test_a_directory_that_comes_or_goes_closed_is_built_and_removed(tmp_path: Path) -> None:
    told = as_user(
        tmp_path,
        """
    def command(root):
        (root / "new" / "inner").mkdir(parents=True)
        (root / "new" / "inner" / "file").write_bytes(b"file")
        (root / "new" / "inner").chmod(0o500)
        (root / "new").chmod(0o500)

    scene = TreeScene(place, Story("", lambda root: None, command, lambda root: None))
    before = scene.world()
    effect = Desk(scene.adapter()).do(scene.change())
    print(oct((scene.root / "new").stat().st_mode), oct((scene.root / "new" / "inner").stat().st_mode))
    back = Desk(scene.adapter()).undo(effect)
    print(scene.world() == before)
    Desk(scene.adapter()).undo(back)
    print((scene.root / "new" / "inner" / "file").read_bytes())
    """,
    )
    assert told == "0o40500 0o40500\nTrue\nb'file'"


@pytest.mark.root
def test_what_an_ordinary_user_could_not_make_or_bring_back_is_told_by_name(tmp_path: Path) -> None:
    told = as_user(
        tmp_path,
        """
    from collections import namedtuple
    Left = namedtuple("Left", "path source below lost", defaults=(b"",))
    from tests.memory import MemoryBlobs
    world, upper = place / "world", place / "upper"
    world.mkdir(); upper.mkdir()
    (world / "secret").write_bytes(b"secret"); (world / "secret").chmod(0)
    (upper / "unreadable").write_bytes(b"x"); (upper / "unreadable").chmod(0o200)
    (world / "other").write_bytes(b"x")
    since = moment.begin()
    lefts = [
        Left(os.fsencode(world / "secret"), None, True),
        Left(os.fsencode(world / "unreadable"), os.fsencode(upper / "unreadable"), False),
        Left(os.fsencode(world / "other"), None, True),
    ]
    found = layer.read_layer(lefts, "/", since, MemoryBlobs())
    print(len(found.targets))
    for sentence in found.lost:
        print(sentence.replace(str(world), ""))
    print(oct((upper / "unreadable").stat().st_mode))
    """,
    )
    assert told.splitlines() == [
        "1",
        "/secret cannot be kept: it is not readable",
        "/unreadable could not be read again with mode 0200 to see that it was written",
        "0o100200",
    ]


def test_a_file_that_a_command_closed_to_its_owner_is_closed_and_opened_again(tmp_path: Path) -> None:
    told = as_user(
        tmp_path,
        """
    from collections import namedtuple
    Left = namedtuple("Left", "path source below lost", defaults=(b"",))
    from tests.memory import MemoryBlobs
    world, upper, held = place / "world", place / "upper", place / "held"
    world.mkdir(); upper.mkdir(); held.mkdir()
    (world / "file").write_bytes(b"x")
    shutil.copy2(world / "file", upper / "file"); (upper / "file").chmod(0)
    since, blobs = moment.begin(), MemoryBlobs()
    left = Left(os.fsencode(world / "file"), os.fsencode(upper / "file"), True)
    found = layer.read_layer([left], "/", since, blobs)
    change = command_change(blobs, str(world), "chmod 0 file", found.targets)
    desk = Desk(adapter.TreeAdapter("command", blobs, str(held)))
    effect = desk.do(change)
    print(found.lost, oct((world / "file").stat().st_mode))
    desk.undo(effect)
    print(oct((world / "file").stat().st_mode), (world / "file").read_bytes())
    """,
    )
    assert told == "() 0o100000\n0o100644 b'x'"
