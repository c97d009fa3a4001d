"""The file adapter keeps every law, for every kind of change."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from takeback.adapters.file import changes
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.changes import NewFile
from takeback.model.change import Change
from takeback.testing.adapter_suite import AdapterSuite
from tests.memory import MemoryBlobs
from tests.world import Picture, World


class Story(NamedTuple):
    """A world to begin with, a change, and what someone else does to it."""

    name: str
    begin: Callable[["FileScene"], None]
    change: Callable[["FileScene"], Change]
    disturb: Callable[["FileScene"], None]


class FileScene:
    def __init__(self, directory: Path, far: Path, story: Story) -> None:
        self.root = directory / "world"
        self.far = far / "world"  # on another filesystem, where there is one
        self.held = directory / "held"
        self.blobs = MemoryBlobs()
        self.story = story
        self.reset()

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def adapter(self) -> FileAdapter:
        return FileAdapter(self.blobs, held=str(self.held))

    def change(self) -> Change:
        return self.story.change(self)

    def put(self, content: bytes) -> tuple[str, int]:
        return self.blobs.put(content), len(content)

    def world(self) -> Picture:
        """With the number of names of each file: one of ours in the store would show."""
        everything: Picture = {}
        for root in (self.root, self.far):
            seen = World(root).picture()
            for path, properties in seen.items():
                if not properties["mode"].startswith("d"):
                    properties["names"] = os.lstat(root / os.fsdecode(path)).st_nlink
                everything[path if root == self.root else b"far/" + path] = properties
        return everything

    def reset(self) -> None:
        for directory in (self.root, self.held, self.far):
            if directory.exists():
                shutil.rmtree(directory)
            directory.mkdir()
        self.story.begin(self)
        for path in [*self.root.rglob("*"), self.root, *self.far.rglob("*"), self.far]:
            os.utime(path, ns=(10**18, 10**18 + 123_456_789), follow_symlinks=False)

    def disturb(self) -> None:
        self.story.disturb(self)


def a_file(scene: FileScene) -> None:
    (scene / "file").write_bytes(b"before\n")
    (scene / "file").chmod(0o640)
    (scene / "bystander").write_bytes(b"not mine\n")


def three_files(scene: FileScene) -> None:
    for name in ("a", "b"):
        (scene / name).write_bytes(b"before " + name.encode())


def two_names(scene: FileScene) -> None:
    a_file(scene)
    os.link(scene / "file", scene / "other name")


def a_tree(scene: FileScene) -> None:
    (scene / "tree" / "deep" / "deeper").mkdir(parents=True)
    (scene / "tree" / "empty").mkdir()
    (scene / "tree" / "one").write_bytes(b"1")
    (scene / "tree" / "deep" / "two").write_bytes(b"22")
    os.link(scene / "tree" / "one", scene / "tree" / "deep" / "one again")
    os.symlink("nowhere", scene / "tree" / "link")
    os.mkfifo(scene / "tree" / "deep" / "fifo")
    (scene / "tree" / "deep").chmod(0o2750)


def a_tree_with_names_outside(scene: FileScene) -> None:
    a_tree(scene)
    os.link(scene / "tree" / "one", scene / "one outside")
    os.link(scene / "tree" / "deep" / "two", scene / "two outside")


def a_file_on_each_side(scene: FileScene) -> None:
    a_file(scene)
    (scene.far / "moved").write_bytes(b"in the way\n")


def across(name: str) -> Callable[[FileScene], Change]:
    return lambda scene: changes.move_change(scene / name, scene.far / "moved", replace=True)


def edit_far(scene: FileScene) -> None:
    if (scene.far / "moved").is_dir():
        shutil.rmtree(scene.far / "moved")
    (scene.far / "moved").unlink(missing_ok=True)
    (scene.far / "moved").write_bytes(b"someone else's\n")


def write(scene: FileScene) -> Change:
    return changes.write_change(scene / "file", *scene.put(b"after\n"))


def edit(scene: FileScene, name: str = "file") -> None:
    (scene / name).unlink(missing_ok=True)
    (scene / name).write_bytes(b"someone else's\n")


def edit_in_place(scene: FileScene, name: str = "file") -> None:
    with (scene / name).open("r+b") as file:
        file.write(b"SOME")


def new_tree_entry(scene: FileScene) -> None:
    (scene / "tree" / "deep").mkdir(parents=True, exist_ok=True)
    (scene / "tree" / "deep" / "mine").write_bytes(b"someone else's\n")


def two_of_three(scene: FileScene) -> Change:
    files = [NewFile(scene / name, *scene.put(b"after " + name.encode()), None) for name in ("a", "b", "new")]
    return changes.write_all_change(files)


STORIES = [
    Story("write over a file", a_file, write, edit),
    Story("write over a file, edited in place", a_file, write, edit_in_place),
    Story("write a new file", lambda scene: None, write, edit),
    Story("write over a file of two names", two_names, write, edit),
    Story("write the same bytes with another mode", a_file,
          lambda scene: changes.write_change(scene / "file", *scene.put(b"before\n"), 0o755), edit),
    Story("write several", three_files, two_of_three, lambda scene: edit(scene, "b")),
    Story("delete a file", a_file, lambda scene: changes.delete_change(scene / "file"), edit),
    Story("delete one of two names", two_names, lambda scene: changes.delete_change(scene / "file"), edit),
    Story("delete a tree with names outside", a_tree_with_names_outside,
          lambda scene: changes.delete_change(scene / "tree"), new_tree_entry),
    Story("delete a tree", a_tree, lambda scene: changes.delete_change(scene / "tree"), new_tree_entry),
    Story("delete a link", a_tree, lambda scene: changes.delete_change(scene / "tree" / "link"),
          lambda scene: edit(scene, "tree/link")),
    Story("delete a FIFO", a_tree, lambda scene: changes.delete_change(scene / "tree" / "deep" / "fifo"),
          lambda scene: edit(scene, "tree/deep/fifo")),
    Story("move a file", a_file, lambda scene: changes.move_change(scene / "file", scene / "moved"),
          lambda scene: (edit(scene, "moved"), (scene / "file").unlink(missing_ok=True))[0]),
    Story("move a directory", a_tree, lambda scene: changes.move_change(scene / "tree", scene / "moved"),
          lambda scene: (shutil.rmtree(scene / "tree", ignore_errors=True),
                         shutil.rmtree(scene / "moved", ignore_errors=True), edit(scene, "moved"))[0]),
    Story("move over a file", a_file,
          lambda scene: changes.move_change(scene / "file", scene / "bystander", replace=True),
          lambda scene: edit(scene, "bystander")),
    Story("move a tree over a file", lambda scene: (a_tree(scene), a_file(scene))[0],
          lambda scene: changes.move_change(scene / "tree", scene / "file", replace=True),
          lambda scene: (shutil.rmtree(scene / "file") if (scene / "file").is_dir() else None, edit(scene))[0]),
    Story("move a file across", a_file, across("file"), edit_far),
    Story("move a file across, over another", a_file_on_each_side, across("file"), edit_far),
    Story("move one of two names across", two_names, across("file"), edit_far),
    Story("move a tree across", a_tree_with_names_outside, across("tree"), edit_far),
    Story("move a tree across, where someone is at work", a_tree, across("tree"), new_tree_entry),
    Story("make a directory", a_file, lambda scene: changes.mkdir_change(scene / "tree"), new_tree_entry),
    Story("make directories", a_file,
          lambda scene: changes.mkdir_change(scene / "tree" / "x" / "y", 0o711, parents=True), new_tree_entry),
    Story("make a link", a_file, lambda scene: changes.symlink_change(scene / "link", b"to\xff"),
          lambda scene: edit(scene, "link")),
    Story("change a mode", a_file, lambda scene: changes.chmod_change(scene / "file", 0o4711),
          lambda scene: (scene / "file").chmod(0o600)),
    Story("change a directory's mode", a_tree, lambda scene: changes.chmod_change(scene / "tree", 0o1700),
          lambda scene: (scene / "tree").chmod(0o711)),
]  # fmt: skip


@pytest.fixture
def quick_place() -> Iterator[Path]:
    """In memory where possible: a sweep syncs thousands of times, and a kill is not a power cut."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        yield Path(place)


@pytest.fixture
def far_place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


@pytest.mark.sampled(40, always=("write over a file",), only=("killed", "let_go_of"))
class TestFileAdapter(AdapterSuite):
    stride = 7  # every kill point is taken by the slow class below

    @pytest.fixture(params=STORIES, ids=[story.name for story in STORIES])
    def scene(self, request: pytest.FixtureRequest, quick_place: Path, far_place: Path) -> FileScene:
        return FileScene(quick_place, far_place, request.param)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestFileAdapterAtEveryPoint(TestFileAdapter):
    stride = 1
