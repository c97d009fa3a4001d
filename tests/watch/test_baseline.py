"""A baseline holds everything that is there; comparing with it finds what changed and nothing else."""

import os
import shutil

import pytest

from takeback.adapters.watch.index import digests_in
from takeback.adapters.watch.roots import root_of
from takeback.adapters.watch.scan import Bounds
from takeback.adapters.watch.watched_root import WatchedRoot
from takeback.errors import Misuse, Refused


def test_everything_that_is_there_is_in_the_store_before_the_first_change(scene):
    scene.write("a/b/deep", "deep")
    scene.write("top", "top")
    baseline = scene.begin()
    shutil.rmtree(scene.tree / "a")
    (scene.tree / "top").write_text("other")

    changes = scene.changes(baseline)

    assert scene.content(changes["a/b/deep"][0]) == b"deep"
    assert scene.content(changes["top"][0]) == b"top"
    assert scene.content(changes["top"][1]) == b"other"
    assert changes["a"][0]["shell"] and changes["a"][1]["type"] == "absent"
    assert set(changes) == {"a", "a/b", "a/b/deep", "top"}


def test_what_did_not_change_is_not_listed(scene):
    scene.write("one")
    scene.write("dir/two")
    os.symlink("one", scene.tree / "link")
    os.mkfifo(scene.tree / "fifo")

    assert scene.changes(scene.begin()) == {}


def test_a_second_baseline_reads_only_what_changed(scene):
    for number in range(20):
        scene.write(f"d{number}/file", f"content {number}")
    read_again_because_it_was_young(scene)
    (scene.tree / "d3" / "file").write_text("changed")
    scene.begin()
    only = scene.watched.last
    wait_until_old(scene)
    scene.begin()
    scene.begin()

    assert only.read == 1
    assert scene.watched.last.read == 0 and scene.watched.last.bytes == 0


def read_again_because_it_was_young(scene):
    """A busy machine may take so long from the write to the look that the file is not young any more."""
    for attempt in range(50):
        scene.write("young", f"attempt {attempt}")
        scene.begin()
        wait_until_old(scene)
        scene.begin()
        if scene.watched.last.bytes:
            return
    raise AssertionError("no look met a young file")


def wait_until_old(scene):
    """By the clock of the filesystem, which is the one that counts."""
    from time import monotonic, time_ns

    last = max(
        os.lstat(os.path.join(directory, name)).st_ctime_ns
        for directory, folders, names in os.walk(scene.tree)
        for name in (*folders, *names)
    )
    until = monotonic() + 120
    while time_ns() - last < 100_000_000 and monotonic() < until:
        os.sched_yield()


def test_a_change_within_the_same_clock_tick_is_seen(scene):
    path = scene.write("file", "aaaa")
    for round in range(50):
        baseline = scene.begin()
        path.write_text(f"{round:04d}")
        assert scene.content(scene.changes(baseline)["file"][1]) == f"{round:04d}".encode()
        scene.watched.index.release([baseline.token])


def test_a_change_whose_times_were_put_back_is_seen(scene):
    path = scene.write("file", "before")
    scene.settle()
    baseline = scene.begin()
    status = path.stat()
    path.write_text("after!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert scene.content(scene.changes(baseline)["file"][1]) == b"after!"


def test_types_may_change_places(scene):
    scene.write("file", "was a file")
    scene.write("dir/inside", "was in a directory")
    os.symlink("file", scene.tree / "link")
    baseline = scene.begin()
    (scene.tree / "file").unlink()
    (scene.tree / "file").mkdir()
    scene.write("file/new", "new")
    shutil.rmtree(scene.tree / "dir")
    (scene.tree / "dir").write_text("is a file")
    (scene.tree / "link").unlink()
    os.mkfifo(scene.tree / "link")

    kinds = {path: (one["type"], other["type"]) for path, (one, other) in scene.changes(baseline).items()}

    assert kinds == {
        "file": ("file", "dir"),
        "file/new": ("absent", "file"),
        "dir": ("dir", "file"),
        "dir/inside": ("file", "absent"),
        "link": ("symlink", "fifo"),
    }


def test_modes_attributes_and_times_are_changes_too(scene):
    scene.write("mode")
    scene.write("time")
    scene.write("attribute")
    (scene.tree / "dir").mkdir()
    baseline = scene.begin()
    (scene.tree / "mode").chmod(0o600)
    os.utime(scene.tree / "time", ns=(1, 1))
    os.setxattr(scene.tree / "attribute", "user.colour", b"red")
    (scene.tree / "dir").chmod(0o700)

    changes = scene.changes(baseline)

    assert set(changes) == {"mode", "time", "attribute", "dir"}
    assert changes["attribute"][1]["xattrs"]["user.colour"] and "xattrs" not in changes["attribute"][0]


def test_names_of_one_file_are_told_to_be_twins(scene):
    scene.write("one", "shared")
    os.link(scene.tree / "one", scene.tree / "two")
    baseline = scene.begin()
    (scene.tree / "two").unlink()

    before, after = scene.changes(baseline)["two"]

    assert before["twin"].endswith("/one") and after["type"] == "absent"


@pytest.mark.parametrize("name", [b"line\nbreak", b"\xff\xfe not utf-8", b" ", b"%41", b"a" * 255, b"-wal"])
def test_any_name_will_do(scene, name):
    path = os.path.join(os.fsencode(scene.tree), name)
    with open(path, "wb") as file:
        file.write(b"before")
    baseline = scene.begin()
    os.unlink(path)

    ((before, after),) = scene.changes(baseline).values()

    assert scene.content(before) == b"before" and after["type"] == "absent"


def test_two_watches_at_once_each_compare_with_their_own_beginning(scene):
    path = scene.write("file", "one")
    first = scene.begin()
    path.write_text("two")
    second = scene.begin()
    path.write_text("three")

    assert scene.content(scene.changes(first)["file"][0]) == b"one"
    assert scene.content(scene.changes(second)["file"][0]) == b"two"
    scene.watched.index.release([first.token])
    assert scene.content(scene.changes(second)["file"][0]) == b"two"
    scene.watched.index.release([second.token])
    assert scene.watched.index.changed_since(0) == {}


def test_the_root_itself_may_go(scene):
    scene.write("file", "kept")
    baseline = scene.begin()
    shutil.rmtree(scene.tree)

    changes = {one.resource: one for one in scene.watched.changes(baseline).targets}

    root = scene.watched.root.resource
    assert set(changes) == {root, f"{root}/file"}
    assert changes[root].after == {"type": "absent"}


@pytest.mark.parametrize("kind", ["symlink", "file", "fifo"])
def test_something_else_may_be_where_the_root_was(scene, kind):
    scene.write("dir/file", "kept")
    baseline = scene.begin()
    os.rename(scene.tree, scene.tree.parent / "away")
    if kind == "symlink":
        scene.tree.symlink_to("away")
    elif kind == "file":
        scene.tree.write_text("instead")
    else:
        os.mkfifo(scene.tree)

    changes = {one.resource: one for one in scene.watched.changes(baseline).targets}

    root = scene.watched.root.resource
    assert set(changes) == {root, f"{root}/dir", f"{root}/dir/file"}
    assert changes[root].after["type"] == kind
    assert kind != "file" or scene.content(changes[root].after) == b"instead"
    assert changes[f"{root}/dir/file"].after == {"type": "absent"}
    with pytest.raises(Misuse):
        scene.begin()


def test_a_tree_beyond_its_bounds_is_refused_without_a_byte_written(scene):
    for number in range(20):
        scene.write(f"file{number}", "x" * 100)
    store = sorted(path.name for path in scene.tree.parent.joinpath("store").iterdir())

    with pytest.raises(Refused, match="more than 5 entries"):
        scene.begin(Bounds(entries=5))
    with pytest.raises(Refused, match="bytes"):
        scene.begin(Bounds(bytes=1000))

    left = [name for name in os.listdir(scene.place.directory) if not name.endswith(".lock")]
    assert left == []
    assert sorted(path.name for path in scene.tree.parent.joinpath("store").iterdir()) == [*store, "watch"]


def test_a_baseline_whose_index_was_lost_is_told_not_guessed(scene):
    scene.write("file")
    baseline = scene.begin()
    scene.watched.close()
    for name in os.listdir(scene.place.directory):
        os.unlink(os.path.join(scene.place.directory, name))

    with pytest.raises(Refused, match="baseline"):
        scene.watched.changes(baseline)


def test_an_index_that_is_damaged_is_made_anew(scene):
    scene.write("file", "content")
    scene.begin()
    scene.watched.close()
    (database,) = [name for name in os.listdir(scene.place.directory) if name.endswith(".db")]
    with open(os.path.join(scene.place.directory, database), "r+b") as file:
        file.write(b"\0" * 4096)
    for suffix in ("-wal", "-shm"):
        if os.path.exists(os.path.join(scene.place.directory, database + suffix)):
            os.unlink(os.path.join(scene.place.directory, database + suffix))

    baseline = scene.begin()
    (scene.tree / "file").unlink()

    assert scene.content(scene.changes(baseline)["file"][0]) == b"content"


def test_a_store_begun_anew_under_an_old_index_reads_everything_again(scene):
    scene.write("file", "content")
    scene.settle()
    scene.begin()
    wait_until_old(scene)
    scene.begin()
    scene.store.blobs.sweep(lambda: (), 0)

    baseline = scene.begin()
    (scene.tree / "file").unlink()

    assert scene.content(scene.changes(baseline)["file"][0]) == b"content"


def test_a_sweep_is_told_what_the_index_needs(scene):
    scene.write("file", "content")
    baseline = scene.begin()
    scene.store.blobs.sweep(lambda: digests_in(scene.place.directory), 0)
    (scene.tree / "file").unlink()

    assert scene.content(scene.changes(baseline)["file"][0]) == b"content"


def test_a_first_look_at_much_reads_all_of_it(scene):
    """Several threads read; each file is there once, and right."""
    for number in range(12):
        path = scene.tree / f"d{number}"
        path.mkdir()
        for name in ("one", "two"):
            (path / name).write_bytes(os.urandom(400_000) if number % 2 else b"text\n" * 80_000)
    wanted = {path: path.read_bytes() for path in scene.tree.rglob("*") if path.is_file()}
    baseline = scene.begin()
    shutil.rmtree(scene.tree)
    scene.tree.mkdir()

    changes = scene.changes(baseline)

    for path, content in wanted.items():
        assert scene.content(changes[str(path.relative_to(scene.tree))][0]) == content


def test_what_changes_while_the_first_look_reads_is_known_as_it_is_at_the_beginning(scene, monkeypatch):
    scene.write("a", "first")
    scene.settle()
    written = scene.watched._written
    edits = iter(("second", "third"))

    def meanwhile(*given):
        done = written(*given)
        for text in edits:
            scene.write("a", text)
            break
        return done

    monkeypatch.setattr("takeback.adapters.watch.watched_root._BRIEF", 0.0)
    monkeypatch.setattr(scene.watched, "_written", meanwhile)
    baseline = scene.begin()
    monkeypatch.undo()
    scene.write("a", "by the command")

    (before, _) = scene.changes(baseline)["a"]
    assert scene.content(before) == b"third"


def test_content_that_was_to_be_recorded_when_its_process_was_killed_is_read_again(scene):
    """The index names it before the journal does, and only the journal's commit makes it durable."""
    scene.write("file", "before")
    scene.write("beside", "beside")
    baseline = scene.begin()
    scene.write("file", "after")
    wait_until_old(scene)
    scene.watched.changes(baseline, ("following", {}), kept=False)
    scene.store.blobs.discard()
    scene.watched.close()

    scene.watched = WatchedRoot(root_of(scene.tree), scene.place)
    again = scene.begin()
    (scene.tree / "file").unlink()
    assert scene.content(scene.changes(again)["file"][0]) == b"after"
    assert scene.content(scene.changes(baseline)["file"][0]) == b"before"


def test_content_that_was_recorded_is_not_read_again(scene):
    scene.write("file", "before")
    baseline = scene.begin()
    scene.write("file", "after")
    wait_until_old(scene)
    scene.watched.changes(baseline, ("following", {}), kept=False)
    scene.store.blobs.sync()
    scene.watched.close()

    scene.watched = WatchedRoot(root_of(scene.tree), scene.place)
    scene.begin()
    assert scene.watched.last.bytes == 0
