"""Objects of git are known by their names at the beginning of a watch; what becomes of one during it is seen."""

from pathlib import Path

import pytest

from takeback.adapters.watch.scan import only_objects
from tests.agents.stage import git
from tests.watch.test_baseline import wait_until_old


@pytest.fixture
def project(scene):
    for number in range(5):
        scene.write(f"file{number}", f"content {number}")
    git(scene.tree, "init", "--quiet")
    git(scene.tree, "add", "--all")
    git(scene.tree, "commit", "--quiet", "--message", "first")
    scene.settle()
    wait_until_old(scene)
    return scene


def loose(scene) -> list[Path]:
    return sorted(scene.tree.glob(".git/objects/[0-9a-f][0-9a-f]/*"))


def path_in(scene, file: Path) -> str:
    return str(file.relative_to(scene.tree))


def test_only_the_directories_of_objects_are_known_by_names(project):
    project.watched.index.release([project.begin().token])
    index = project.watched.index
    known = {path: only_objects(path, row, index.row) for path, row in index.rows().items()}
    assert {path for path, only in known.items() if only} == {
        *(path_in(project, one.parent) for one in loose(project)),
        ".git/objects/pack",
    }


def test_an_object_that_a_command_removes_goes_back(project):
    project.watched.index.release([project.begin().token])
    gone, *_ = loose(project)
    before = gone.read_bytes()
    baseline = project.begin()
    gone.unlink()
    assert project.content(project.changes(baseline)[path_in(project, gone)][0]) == before


def test_an_object_that_a_command_writes_into_is_a_change(project):
    project.watched.index.release([project.begin().token])
    written, *_ = loose(project)
    before = written.read_bytes()
    baseline = project.begin()
    written.chmod(0o600)
    written.write_bytes(b"no object")
    then, now = project.changes(baseline)[path_in(project, written)]
    assert (project.content(then), project.content(now)) == (before, b"no object")


def test_what_is_no_object_is_looked_at(project):
    beside = project.tree / ".git/objects/ab"
    beside.mkdir(exist_ok=True)
    (beside / "note").write_text("one")
    project.settle()
    wait_until_old(project)
    project.watched.index.release([project.begin().token])
    (beside / "note").write_text("two")
    assert project.changes(project.begin()) == {}
    digest = {
        name: entry.digest for name, entry in project.watched.index.listing(".git/objects/ab").by_name.items()
    }
    assert b"".join(project.store.blobs.read(digest[b"note"].hex())) == b"two"
