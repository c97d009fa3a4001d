"""Feeds are hints: with them a look finds what a look at the whole tree finds; when they lose something it is that."""

import mmap
import os
import random
import shutil
import sqlite3
import subprocess
from contextlib import contextmanager

import pytest

from takeback.adapters.watch.fanotify import Fanotify
from takeback.adapters.watch.inotify import Inotify, open_feed
from takeback.adapters.watch.roots import root_of
from takeback.adapters.watch.scan import Bounds
from takeback.adapters.watch.watched_root import WatchedRoot
from takeback.errors import Refused

FEEDS = [pytest.param(Fanotify, marks=pytest.mark.root), Inotify]


def queue(kind):
    """How many events the kernel keeps before it drops them."""
    with open(f"/proc/sys/fs/{kind}/max_queued_events") as file:
        return int(file.read())


@pytest.fixture(params=FEEDS)
def fed(request, scene):
    scene.write("dir/sub/file", "x")
    scene.write("top", "y")
    scene.watched.follow(request.param(scene.watched.root.path))
    # On a slow machine a beginning looks twice; the first time it is at everything.
    looks = []
    told = scene.watched._told
    scene.watched._told = lambda looked, whole: looks.append(whole) or told(looked, whole)
    scene.begin()
    del scene.watched._told
    assert looks[0]
    return scene


def told(scene, baseline):
    """The changes as a feed finds them, which are those that a look at everything finds."""
    by_feed = scene.watched.changes(baseline)
    whole = scene.watched.last.whole
    feed, scene.watched.feed = scene.watched.feed, None
    by_scan = scene.watched.changes(baseline)
    scene.watched.feed = feed  # it kept on listening
    assert known(by_feed) == known(by_scan)
    return by_feed, whole


def quiet(scene, whole):
    """That only part was looked at. What others do on the same filesystem may be too much for the queue of fanotify, or
    leave it in doubt: then everything is looked at, and that is right too."""
    return not whole or scene.watched.crowded or isinstance(scene.watched.feed, Fanotify)


def known(compared):
    return [(one.resource, {**one.before, "ctime": 0}, {**one.after, "ctime": 0}) for one in compared.targets]


def test_only_what_changed_is_looked_at(fed):
    baseline = fed.begin()
    (fed.tree / "dir" / "sub" / "file").write_text("changed")
    found, whole = told(fed, baseline)

    assert quiet(fed, whole)
    assert [one.resource.rpartition("/")[2] for one in found.targets if one.after["type"] == "file"] == [
        "file"
    ]


def test_the_time_of_a_directory_does_not_make_all_that_is_in_it_be_looked_at(scene):
    scene.write("dir/file", "x")
    feed = Inotify(scene.watched.root.path)
    try:
        os.utime(scene.tree / "dir", ns=(1, 1))
        assert feed.drain() == {"dir": {b""}}
    finally:
        feed.close()


def test_the_mode_and_the_time_of_a_directory_are_told(fed):
    baseline = fed.begin()
    os.chmod(fed.tree / "dir" / "sub", 0o750)
    os.utime(fed.tree / "dir", ns=(1, 1))
    found, whole = told(fed, baseline)

    assert quiet(fed, whole)
    assert {os.path.basename(one.resource): one.after["mode"] for one in found.targets}["sub"] == 0o750


def test_nothing_changed_is_nothing_looked_at(fed):
    baseline = fed.begin()

    assert fed.changes(baseline) == {} and quiet(fed, fed.watched.last.whole)


def test_a_feed_spares_looks_at_everything(fed):
    for number in range(50):
        fed.write("top", str(number))
        fed.begin()
        if not fed.watched.last.whole:
            return

    raise AssertionError("each look was at everything")


def test_new_directories_are_followed_and_moved_ones_too(fed):
    baseline = fed.begin()
    fed.write("new/deep/er/file", "1")
    told(fed, baseline)
    (fed.tree / "new" / "deep" / "er" / "file").write_text("2")
    told(fed, baseline)
    os.rename(fed.tree / "new" / "deep", fed.tree / "dir" / "moved")
    told(fed, baseline)
    (fed.tree / "dir" / "moved" / "er" / "file").write_text("3")
    found, whole = told(fed, baseline)

    assert quiet(fed, whole)
    assert any(one.resource.endswith("dir/moved/er/file") for one in found.targets)


def test_a_directory_moved_out_and_another_in_its_place(fed):
    baseline = fed.begin()
    os.rename(fed.tree / "dir", fed.tree.parent / "out")
    (fed.tree.parent / "out" / "sub" / "file").write_text("not ours any more")
    fed.write("dir/sub/file", "another")

    found, _ = told(fed, baseline)

    (change,) = [one for one in found.targets if one.resource.endswith("/file")]
    assert fed.content(change.before) == b"x" and fed.content(change.after) == b"another"


def test_modes_attributes_and_times_are_told(fed):
    (fed.tree / "empty").mkdir()
    baseline = fed.begin()
    (fed.tree / "top").chmod(0o600)
    (fed.tree / "dir" / "sub").chmod(0o700)
    os.setxattr(fed.tree / "dir" / "sub" / "file", "user.a", b"b")
    os.utime(fed.tree / "empty", ns=(5, 5))
    found, whole = told(fed, baseline)

    assert quiet(fed, whole)
    names = {one.resource.rpartition("/")[2] for one in found.targets}
    assert {"top", "sub", "file", "empty"} <= names


def test_a_write_through_another_name_of_a_file_is_seen(fed):
    os.link(fed.tree / "top", fed.tree / "dir" / "twin")
    os.link(fed.tree / "dir" / "sub" / "file", fed.tree.parent / "outside")
    baseline = fed.begin()
    (fed.tree / "dir" / "twin").write_text("through the twin")
    (fed.tree.parent / "outside").write_text("through a name elsewhere")
    found, _ = told(fed, baseline)

    after = {one.resource.rpartition("/")[2]: one.after for one in found.targets}
    assert fed.content(after["top"]) == b"through the twin"
    assert fed.content(after["file"]) == b"through a name elsewhere"


@pytest.mark.root
def test_a_write_through_a_name_elsewhere_that_came_and_went_is_seen_by_root(scene):
    scene.write("dir/file", "before")
    scene.watched.follow(Fanotify(scene.watched.root.path))
    baseline = scene.begin()
    os.link(scene.tree / "dir" / "file", scene.tree.parent / "outside")
    (scene.tree.parent / "outside").write_text("through it")
    os.unlink(scene.tree.parent / "outside")
    found, _ = told(scene, baseline)

    assert "file" in {one.resource.rpartition("/")[2] for one in found.targets}


def test_a_file_that_gets_a_second_name_and_is_written_through_it(fed):
    fed.begin()
    os.link(fed.tree / "top", fed.tree / "dir" / "twin")
    baseline = fed.begin()
    (fed.tree / "dir" / "twin").write_text("through the twin")
    found, _ = told(fed, baseline)

    assert {one.resource.rpartition("/")[2] for one in found.targets} >= {"top", "twin"}


def test_directories_that_are_moved_and_made_anew_are_known_where_they_are(fed):
    baseline = fed.begin()
    for round in range(4):
        (fed.tree / "dir" / "sub" / "file").write_text(f"round {round}")
        told(fed, baseline)  # from now on it is remembered where these directories are
        os.rename(fed.tree / "dir", fed.tree / "aside")
        (fed.tree / "aside" / "sub" / "file").write_text(f"aside {round}")
        told(fed, baseline)
        (fed.tree / "dir" / "sub").mkdir(parents=True)
        (fed.tree / "dir" / "sub" / "file").write_text(f"anew {round}")
        (fed.tree / "aside" / "sub" / "file").write_text(f"again {round}")
        told(fed, baseline)
        shutil.rmtree(fed.tree / "aside")
        told(fed, baseline)


@pytest.mark.root
def test_where_others_fill_the_queue_of_the_filesystem_the_next_feed_listens_to_the_tree_alone(scene):
    scene.write("dir/file", "x")
    feed = Fanotify(scene.watched.root.path)
    scene.watched.follow(feed)
    scene.begin()
    outside = scene.tree.parent / "outside"
    outside.mkdir()
    for number in range(queue("fanotify") + 10):
        os.mknod(outside / str(number))
    baseline = scene.begin()

    assert scene.watched.last.whole and scene.watched.crowded and scene.watched.feed is None
    scene.watched.follow(open_feed(scene.watched.root, again=True, crowded=scene.watched.crowded))
    assert isinstance(scene.watched.feed, Inotify)
    scene.write("dir/file", "changed")
    assert "dir/file" in scene.changes(baseline)


def test_an_overflow_falls_back_to_a_look_at_everything(fed):
    (fed.tree / "many").mkdir()
    baseline = fed.begin()
    place = os.fsencode(fed.tree / "many")
    for number in range(max(queue("inotify"), queue("fanotify")) + 200):
        os.mknod(b"%b/%d" % (place, number))
    fed.write("last", "last")
    shutil.rmtree(fed.tree / "many")
    found, whole = told(fed, baseline)

    assert whole
    assert [one.resource.rpartition("/")[2] for one in found.targets if one.after["type"] == "file"] == [
        "last"
    ]
    fed.write("more", "more")
    assert "more" in {one.resource.rpartition("/")[2] for one in told(fed, baseline)[0].targets}


def test_a_feed_that_loses_events_and_says_so_loses_nothing(scene):
    class Lossy:
        """Every other time it lost something."""

        broken, crowded, unsure = False, False, frozenset()

        def open_book(self):
            return None

        def close_book(self, book):
            pass

        def __init__(self, feed):
            self.feed, self.times = feed, 0

        def drain(self):
            self.times += 1
            heard = self.feed.drain()
            return None if self.times % 2 else heard

        def close(self):
            self.feed.close()

    scene.write("a/file", "x")
    scene.watched.feed = Lossy(Inotify(scene.watched.root.path))
    baseline = scene.begin()
    for round in range(6):
        scene.write("a/file", f"round {round}")
        scene.write(f"b{round}/new", "n")
        told(scene, baseline)


@contextmanager
def deep_below(place, levels=20):
    """Deeper than the kernel can tell the path of."""
    handles = [os.open(place, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for _ in range(levels):
            os.mkdir("d" * 250, dir_fd=handles[-1])
            handles.append(os.open("d" * 250, os.O_RDONLY | os.O_DIRECTORY, dir_fd=handles[-1]))
        yield handles[-1]
    finally:
        for handle in handles:
            os.close(handle)
        subprocess.run(["rm", "-rf", os.path.join(place, "d" * 250)], check=True, timeout=240)


@pytest.mark.parametrize("where", ["tree", "."])
def test_what_happens_at_the_end_of_a_path_too_long_to_be_told(fed, where):
    with deep_below(fed.tree.parent / where) as deep:
        baseline = fed.begin()
        os.close(os.open("far", os.O_WRONLY | os.O_CREAT, dir_fd=deep))
        fed.write("top", "changed")
        found, _ = told(fed, baseline)

    names = [one.resource.rpartition("/")[2] for one in found.targets if one.after["type"] == "file"]
    assert names == (["far", "top"] if where == "tree" else ["top"])


def test_a_feed_that_starts_late_begins_with_a_look_at_everything(scene):
    scene.write("file", "x")
    baseline = scene.begin()
    scene.write("file", "changed before anyone listened")
    scene.watched.follow(Inotify(scene.watched.root.path))

    assert "file" in scene.changes(baseline) and scene.watched.last.whole


def test_a_feed_that_names_what_nobody_knows_is_doubted(scene):
    class Wrong:
        broken, crowded, unsure = False, False, frozenset()

        def open_book(self):
            return None

        def close_book(self, book):
            pass

        def drain(self):
            return {"no/such/place": {b"x"}}

        def close(self):
            pass

    scene.write("file", "x")
    scene.watched.feed = Wrong()
    baseline = scene.begin()
    scene.write("file", "changed")

    assert "file" in scene.changes(baseline) and scene.watched.last.whole


def test_a_root_replaced_by_another_directory_is_looked_at_whole(fed):
    baseline = fed.begin()
    os.rename(fed.tree, fed.tree.parent / "old")
    fed.tree.mkdir()
    (fed.tree / "top").write_text("another tree")
    found, whole = told(fed, baseline)

    assert whole
    types = {one.resource.rpartition("/")[2]: one.after["type"] for one in found.targets}
    assert (types["top"], types["dir"]) == ("file", "absent")


def test_one_around_the_root_replaced_by_another_is_looked_at_whole(scene):
    scene.write("around/root/top", "x")
    watched = WatchedRoot(root_of(scene.tree / "around" / "root"), scene.place)
    try:
        watched.follow(Inotify(watched.root.path))
        baseline = watched.begin({}, Bounds())
        os.rename(scene.tree / "around", scene.tree / "old")
        scene.write("around/root/top", "another tree")
        found = watched.changes(baseline)
    finally:
        watched.close()

    assert [one.resource.rpartition("/")[2] for one in found.targets if "digest" in one.after] == ["top"]


def test_what_was_told_for_a_look_that_failed_is_not_forgotten(fed):
    (fed.tree / "top").write_text("changed before the look that fails")
    with pytest.raises(Refused):
        fed.begin(Bounds(bytes=1))
    (fed.tree / "dir" / "sub" / "file").write_text("changed after it")
    baseline = fed.begin()
    (fed.tree / "top").write_text("changed again")

    (before, _) = fed.changes(baseline)["top"]
    assert fed.content(before) == b"changed before the look that fails"


@pytest.mark.parametrize("early", [True, False], ids=["dirty before", "mapped meanwhile"])
@pytest.mark.parametrize("follow", [True, False], ids=["feed", "scan"])
def test_what_is_written_through_memory_is_seen_while_it_is_mapped(scene, follow, early):
    path = scene.write("dir/odd\nname", "before")
    if follow:
        scene.watched.follow(Inotify(scene.watched.root.path))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0 if early else 6) as memory:
        if early:
            memory[0:1] = b"B"
        scene.begin()
        baseline = scene.begin()
        memory[0:6] = b"AFTER!"
        ((before, after),) = scene.changes(baseline).values()

    assert scene.content(before) == (b"Before" if early else b"before")
    assert scene.content(after) == b"AFTER!"


def test_where_changes_do_not_go_through_this_kernel_there_is_no_feed(tmp_path):
    assert open_feed(root_of("/proc/self"), again=True) is None
    feed = open_feed(root_of(tmp_path), again=True)
    if feed:
        feed.close()


def test_a_database_in_use_is_read_again_though_nobody_reports_its_shared_memory(fed):
    path = fed.tree / "app.db"
    db = sqlite3.connect(path)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t (x)")
        db.commit()
        baseline = fed.begin()
        db.execute("INSERT INTO t VALUES (1)")
        db.commit()
        found, _ = told(fed, baseline)
    finally:
        db.close()

    members = {one.resource.rpartition("/")[2]: one for one in found.targets if "app.db" in one.resource}
    assert set(members) == {"app.db", "app.db-wal", "app.db-shm"}
    assert {one.after["unit"] for one in members.values()} == {members["app.db"].resource}


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_are_told_as_by_a_look_at_everything(fed, seed):
    history(fed, random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_many_random_histories_are_told_as_by_a_look_at_everything(fed, part):
    for seed in range(100 * part + 100, 100 * part + 115):
        history(fed, random.Random(seed))


def history(fed, chance):
    baseline = fed.begin()
    for _ in range(12):
        for _ in range(chance.randint(1, 6)):
            step(chance, fed.tree)
        told(fed, baseline)
        if chance.random() < 0.3:
            fed.watched.index.release([baseline.token])
            baseline = fed.begin()


def step(chance, tree):
    """One random change below."""
    paths = [os.path.join(d, n) for d, folders, names in os.walk(tree) for n in (*folders, *names)]
    folders = [str(tree)] + [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
    files = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    target = os.path.join(chance.choice(folders), chance.choice("abcdef"))
    kind = chance.choice(("write", "write", "mkdir", "remove", "move", "link", "symlink", "chmod", "append"))
    try:
        if kind == "write":
            with open(target, "w") as file:
                file.write(str(chance.random()))
        elif kind == "append" and files:
            with open(chance.choice(files), "a") as file:
                file.write("more")
        elif kind == "mkdir":
            os.makedirs(os.path.join(target, chance.choice("abc")))
        elif kind == "remove" and paths:
            victim = chance.choice(paths)
            shutil.rmtree(victim) if os.path.isdir(victim) and not os.path.islink(victim) else os.unlink(
                victim
            )
        elif kind == "move" and paths:
            os.rename(chance.choice(paths), target)
        elif kind == "link" and files:
            os.link(chance.choice(files), target)
        elif kind == "symlink":
            os.symlink("nowhere", target)
        elif kind == "chmod" and paths:
            victim = chance.choice(paths)
            if not os.path.islink(victim):
                os.chmod(victim, chance.choice((0o700, 0o750, 0o755)))
    except OSError:
        return  # a directory into itself, a name that is taken: nothing happened


def test_two_processes_may_look_at_one_tree_and_each_feed_stays_right(fed, scene):
    other = WatchedRoot(fed.watched.root, fed.place)
    try:
        baseline = fed.begin()
        (fed.tree / "top").write_text("seen by the other first")
        theirs = other.begin({}, bounds())
        told(fed, baseline)
        (fed.tree / "top").write_text("seen by both")
        told(fed, baseline)
        assert [
            one.resource.rpartition("/")[2]
            for one in other.changes(theirs).targets
            if one.after["type"] == "file"
        ] == ["top"]
    finally:
        other.close()


def bounds():
    from takeback.adapters.watch.scan import Bounds

    return Bounds()
