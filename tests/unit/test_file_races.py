"""Nobody's work is lost and nothing outside is touched, however unlucky the moment."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from takeback.adapters.file import changes, kernel, paths, swap
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.kernel import libc
from takeback.errors import Drifted, Misuse, NoRemedy, Refused, ResourceUnreachable, TakebackError
from takeback.model.plan import OnConflict, Outcome
from takeback.model.standing import Standing
from takeback.storage.memory_blobs import MemoryBlobs
from takeback.testing.adapter_suite import Desk, killed_at, settle, undo_of
from tests.world import World

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


def write(blobs: MemoryBlobs, path: Path, content: bytes = b"after"):
    return changes.write_change(path, blobs.put(content), len(content))


def leftovers(world: World) -> list[str]:
    return [str(path) for path in world.root.rglob(".takeback-*")]


class TestTheMomentBeforeTheSwap:
    """Someone writes between the last look and the exchange."""

    @pytest.fixture
    def at_the_last_moment(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
        def arrange(act: Callable[[], None]) -> None:
            def glance(*args: object) -> bool:
                act()
                return True

            monkeypatch.setattr(swap, "unchanged_at_a_glance", glance)

        return arrange

    def test_an_edit_is_put_back_and_the_write_refused(self, world, blobs, at_the_last_moment) -> None:
        (world / "f").write_bytes(b"before")
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(write(blobs, world / "f"))
        at_the_last_moment(lambda: (world / "f").write_bytes(b"foreign") and None)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        assert (world / "f").read_bytes() == b"foreign" and not leftovers(world)

    def test_a_file_created_there_stays(self, world, blobs, at_the_last_moment) -> None:
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(write(blobs, world / "f"))
        at_the_last_moment(lambda: (world / "f").write_bytes(b"foreign") and None)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        assert (world / "f").read_bytes() == b"foreign" and not leftovers(world)

    @pytest.mark.parametrize("where", ["tree/new", "tree/sub/old"])
    def test_an_edit_inside_a_tree_being_deleted_is_put_back(
        self, world, blobs, at_the_last_moment, where
    ) -> None:
        (world / "tree" / "sub").mkdir(parents=True)
        (world / "tree" / "sub" / "old").write_bytes(b"before")
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(changes.delete_change(world / "tree"))
        at_the_last_moment(lambda: (world / where).write_bytes(b"foreign") and None)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        assert (world / where).read_bytes() == b"foreign" and not leftovers(world)

    def test_a_file_that_appears_while_the_tree_is_removed_brings_all_of_it_back(
        self, world, blobs, monkeypatch
    ) -> None:
        for number in range(20):
            (world / "tree" / f"d{number:02}").mkdir(parents=True)
            (world / "tree" / f"d{number:02}" / "f").write_bytes(b"%d" % number)
        inside = os.open(world / "tree" / "d15", os.O_RDONLY)  # someone whose shell stands there
        before = world.picture()
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(changes.delete_change(world / "tree"))
        unlink, count = os.unlink, 0

        def slow_unlink(*args, **kwargs):
            nonlocal count
            count += 1
            if count == 5:
                os.close(os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
            return unlink(*args, **kwargs)

        monkeypatch.setattr(os, "unlink", slow_unlink)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        monkeypatch.undo()
        after = world.picture()
        assert after.pop(b"tree/d15/late")
        assert after == before and not leftovers(world)
        os.close(inside)


def test_foreign_bytes_displaced_by_a_killed_process_are_given_back(world: World, blobs: MemoryBlobs) -> None:
    """Exchange, then SIGKILL, and what came out was not what was captured: recovery must not delete it."""
    (world / "f").write_bytes(b"before")
    desk = Desk(FileAdapter(blobs))
    effect = desk.intend(write(blobs, world / "f"))
    (world / f".takeback-{effect.id}-0").write_bytes(b"foreign")
    (world / "f").write_bytes(b"after")
    fresh = FileAdapter(blobs)
    assert fresh.verify(effect).standing is Standing.BETWEEN

    with pytest.raises(Drifted):
        fresh.undo(effect)
    fresh.tidy(effect)

    assert (world / "f").read_bytes() == b"foreign" and not leftovers(world)


def test_tidy_leaves_scratch_that_is_in_no_store(world: World, blobs: MemoryBlobs) -> None:
    (world / "f").write_bytes(b"before")
    effect = Desk(FileAdapter(blobs)).intend(write(blobs, world / "f"))
    (world / f".takeback-{effect.id}-0").write_bytes(b"foreign")
    FileAdapter(blobs).tidy(effect)
    assert (world / f".takeback-{effect.id}-0").read_bytes() == b"foreign"


def test_killed_while_a_large_tree_is_removed_it_settles(world: World, blobs: MemoryBlobs) -> None:
    def begin() -> None:
        shutil.rmtree(world / "tree", ignore_errors=True)
        for number in range(30):
            (world / "tree" / str(number % 3)).mkdir(parents=True, exist_ok=True)
            (world / "tree" / str(number % 3) / f"f{number}").write_bytes(b"%d" % number)
            os.utime(world / "tree" / str(number % 3) / f"f{number}", ns=(5, 5))

    begin()
    before = world.picture()
    for point in range(1, 10_000, 23):
        shutil.rmtree(world / "tree", ignore_errors=True)
        begin()
        adapter = FileAdapter(blobs)
        effect = Desk(adapter).intend(changes.delete_change(world / "tree"))
        dead = killed_at(point, lambda adapter=adapter, effect=effect: adapter.apply(effect))
        fresh = FileAdapter(blobs)
        standing = settle(fresh, effect)
        if standing is Standing.AFTER:
            assert not os.listdir(world.root)
            fresh.undo(effect)
        assert world.picture() == before and not leftovers(world)
        if not dead:
            return
    raise AssertionError("the sweep did not end")


class TestOutside:
    """Paths that try to lead elsewhere."""

    def test_a_directory_that_became_a_link_is_refused(self, world: World, blobs: MemoryBlobs) -> None:
        (world / "d").mkdir()
        (world / "outside").mkdir()
        (world / "d" / "f").write_bytes(b"before")
        (world / "outside" / "f").write_bytes(b"precious")
        desk = Desk(FileAdapter(blobs))
        done = desk.do(write(blobs, world / "d" / "f"))
        os.rename(world / "d", world / "was d")
        os.symlink("outside", world / "d")
        before = world.picture()
        for attempt in (
            lambda: desk.undo(done, OnConflict.FORCE),
            lambda: desk.adapter.undo(done),
            lambda: desk.adapter.apply(done),
        ):
            with pytest.raises(Refused, match="symbolic link"):
                attempt()
        assert desk.adapter.verify(done).standing is Standing.UNKNOWN
        assert world.picture() == before

    @pytest.mark.parametrize("new_call", [True, False], ids=["openat2", "by component"])
    def test_a_racing_symlink_never_leads_outside(
        self, world: World, blobs: MemoryBlobs, new_call: bool
    ) -> None:
        """A racer swaps a directory and a link to the outside as fast as it can."""
        (world / "d").mkdir()
        (world / "outside").mkdir()
        (world / "outside" / "f").write_bytes(b"precious")
        os.symlink("outside", world / "link")
        (world / "d" / "f").write_bytes(b"before")
        racer = textwrap.dedent(f"""
            import ctypes, os
            rename = ctypes.CDLL(None).renameat2
            one, other = {os.fsencode(world / "d")!r}, {os.fsencode(world / "link")!r}
            print("go", flush=True)
            while True:
                rename(-100, one, -100, other, 2)
        """)
        outside = (world / "outside" / "f").stat()
        done = refused = 0
        desk = Desk(FileAdapter(blobs))
        change = write(blobs, world / "d" / "f")
        had, libc().has_openat2 = libc().has_openat2, new_call
        process = subprocess.Popen([sys.executable, "-c", racer], stdout=subprocess.PIPE)
        try:
            assert process.stdout and process.stdout.readline()
            for _ in range(1500):
                try:
                    effect = desk.do(change)
                    desk.undo(effect)
                    done += 1
                except TakebackError:
                    refused += 1
                except AssertionError:
                    refused += 1  # verify met the link
        finally:
            libc().has_openat2 = had
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout and process.stdout.close()
        now = (world / "outside" / "f").stat()
        assert (world / "outside" / "f").read_bytes() == b"precious"
        assert (now.st_ctime_ns, now.st_ino) == (outside.st_ctime_ns, outside.st_ino)
        assert os.listdir(world / "outside") == ["f"]
        assert refused, "the racer never got in between: the test proves nothing"

    def test_a_write_through_a_link_changes_the_file_it_points_to(
        self, world: World, blobs: MemoryBlobs
    ) -> None:
        (world / "real").write_bytes(b"before")
        os.symlink("real", world / "link")
        before = world.picture()
        effect = Desk(FileAdapter(blobs)).do(write(blobs, world / "link"))
        assert (world / "link").is_symlink() and (world / "real").read_bytes() == b"after"
        Desk(FileAdapter(blobs)).undo(effect)
        assert world.picture() == before

    def test_deleting_a_link_leaves_what_it_points_to(self, world: World, blobs: MemoryBlobs) -> None:
        (world / "real").mkdir()
        (world / "real" / "f").write_bytes(b"1")
        os.symlink("real", world / "link")
        before = world.picture()
        effect = Desk(FileAdapter(blobs)).do(changes.delete_change(world / "link"))
        assert (world / "real" / "f").exists() and not (world / "link").is_symlink()
        Desk(FileAdapter(blobs)).undo(effect)
        assert world.picture() == before

    @pytest.mark.root
    @pytest.mark.needs("mount", "umount")
    @pytest.mark.parametrize("what", ["directory", "file"])
    def test_a_mount_inside_a_tree_is_refused_by_name(
        self, world: World, blobs: MemoryBlobs, what: str
    ) -> None:
        (world / "tree").mkdir()
        (world / "precious").mkdir()
        (world / "precious" / "f").write_bytes(b"precious")
        source, point = world / "precious", world / "tree" / "mounted here"
        if what == "file":
            source = source / "f"
            point.write_bytes(b"")
        else:
            point.mkdir()
        subprocess.run(["mount", "--bind", source, point], check=True)
        try:
            with pytest.raises(NoRemedy, match="mounted here"):
                FileAdapter(blobs).assess(changes.delete_change(world / "tree"))
        finally:
            subprocess.run(["umount", point], check=True)
        assert (world / "precious" / "f").read_bytes() == b"precious"

    @pytest.mark.root
    @pytest.mark.needs("mount", "umount")
    def test_a_mount_that_appears_after_the_look_stops_the_removal(
        self, world: World, blobs: MemoryBlobs
    ) -> None:
        (world / "tree" / "point").mkdir(parents=True)
        (world / "precious").mkdir()
        (world / "precious" / "f").write_bytes(b"precious")
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(changes.delete_change(world / "tree"))
        subprocess.run(["mount", "--bind", world / "precious", world / "tree" / "point"], check=True)
        try:
            with pytest.raises(TakebackError):
                desk.adapter.apply(effect)
            assert (world / "precious" / "f").read_bytes() == b"precious"
        finally:
            subprocess.run(["umount", world / "tree" / "point"], check=True)
        assert not leftovers(world)


@pytest.mark.root
@pytest.mark.needs("chattr")
@pytest.mark.parametrize("flag", ["i", "a"])
def test_a_protected_file_gives_a_clear_error_and_stays(world: World, blobs: MemoryBlobs, flag: str) -> None:
    (world / "f").write_bytes(b"before")
    subprocess.run(["chattr", f"+{flag}", world / "f"], check=True)
    word = "immutable" if flag == "i" else "append-only"
    try:
        for change in (
            write(blobs, world / "f"),
            changes.delete_change(world / "f"),
            changes.move_change(world / "f", world / "g"),
        ):
            desk = Desk(FileAdapter(blobs))
            with pytest.raises(ResourceUnreachable, match=word):
                desk.do(change)
            assert sorted(os.listdir(world.root)) == ["f"]
    finally:
        subprocess.run(["chattr", f"-{flag}", world / "f"], check=True)
    assert (world / "f").read_bytes() == b"before"


@pytest.mark.root
class TestAsAnOrdinaryUser:
    """In a child that gave up its rights."""

    def run(self, world: World, code: str) -> str:
        head = f"""
            import fcntl, os, sys
            sys.path.insert(0, {SOURCE!r})
            from takeback.adapters.file import changes, kernel
            from takeback.adapters.file.adapter import FileAdapter
            from takeback.storage.memory_blobs import MemoryBlobs
            from takeback.testing.adapter_suite import Desk, undo_of
            from takeback.model.plan import OnConflict
            from takeback.errors import *
            blobs = MemoryBlobs(); desk = Desk(FileAdapter(blobs)); kernel.libc()
            # Everything is imported by now: the interpreter's own files may be closed to an ordinary user.
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            os.chdir({str(world.root)!r})
        """
        for directory in [world.root, *world.root.parents]:
            directory.chmod(directory.stat().st_mode | 0o011) if str(directory).startswith("/tmp/") else None
        text = textwrap.dedent(head) + textwrap.dedent(code)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tree_with_a_secret(self, world: World) -> None:
        (world / "tree").mkdir()
        os.chown(world.root, 65534, 65534)
        for name, mode in (("open", 0o644), ("secret", 0o000)):
            (world / "tree" / name).write_bytes(name.encode())
            (world / "tree" / name).chmod(mode)
            os.chown(world / "tree" / name, 65534, 65534)
        os.chown(world / "tree", 65534, 65534)

    def test_an_unreadable_file_in_a_tree_is_declared_and_refused(self, world: World) -> None:
        self.tree_with_a_secret(world)
        out = self.run(
            world,
            """
            change = changes.delete_change("tree")
            print(desk.adapter.assess(change).lost)
            try:
                desk.do(change)
            except NoRemedy as refusal:
                print(refusal)
        """,
        )
        assert out.count("tree/secret") == 2 and out.count("not readable") == 2
        assert sorted(os.listdir(world / "tree")) == ["open", "secret"]

    def test_when_allowed_the_rest_comes_back_and_the_residue_is_named(self, world: World) -> None:
        self.tree_with_a_secret(world)
        out = self.run(
            world,
            """
            effect = desk.do(changes.delete_change("tree", allow_inexact=True))
            print(effect.remedy.exact, effect.remedy.residue)
            desk.undo(effect)
        """,
        )
        assert out.startswith("False") and "tree/secret was not captured: it is not readable" in out
        assert os.listdir(world / "tree") == ["open"]
        assert (world / "tree" / "open").read_bytes() == b"open"

    def test_a_write_over_an_unreadable_file_is_not_undone_but_excluded(self, world: World) -> None:
        self.tree_with_a_secret(world)
        os.chown(world / "tree" / "secret", 0, 0)
        (world / "tree" / "secret").chmod(0o600)
        out = self.run(
            world,
            """
            change = changes.write_change("tree/secret", blobs.put(b"new"), 3, allow_inexact=True)
            effect = desk.do(change)
            outcomes = desk.adapter.assess(undo_of(effect, OnConflict.FORCE), effect).outcomes
            print([each.outcome.value for each in outcomes])
        """,
        )
        assert out.strip() == f"['{Outcome.EXCLUDED.value}']"
        assert (world / "tree" / "secret").read_bytes() == b"new"

    def test_a_file_of_someone_else_cannot_be_replaced_unnoticed(self, world: World) -> None:
        os.chown(world.root, 65534, 65534)
        (world / "theirs").write_bytes(b"root's")
        out = self.run(
            world,
            """
            change = changes.write_change("theirs", blobs.put(b"new"), 3)
            print(desk.adapter.assess(change).lost)
            try:
                desk.do(change)
            except NoRemedy as refusal:
                print(refusal)
        """,
        )
        assert out.count("owner") == 2
        assert (world / "theirs").read_bytes() == b"root's" and (world / "theirs").stat().st_uid == 0

    def test_a_directory_it_may_not_write_gives_a_clear_error(self, world: World) -> None:
        world.root.chmod(0o755)
        out = self.run(
            world,
            """
            try:
                desk.do(changes.write_change("new", blobs.put(b"new"), 3))
            except ResourceUnreachable as refusal:
                print(refusal, refusal.hint)
        """,
        )
        assert "Permission" in out

    def test_whole_round_trips_work(self, world: World) -> None:
        os.chown(world.root, 65534, 65534)
        out = self.run(
            world,
            """
            written = desk.do(changes.write_change("f", blobs.put(b"1"), 1))
            moved = desk.do(changes.move_change("f", "g"))
            deleted = desk.do(changes.delete_change("g"))
            made = desk.do(changes.mkdir_change("d/e", parents=True))
            for effect in (made, deleted, moved, written):
                desk.undo(effect)
            print(os.listdir("."))
        """,
        )
        assert out.strip() == "[]"


class TestFallbacks:
    """The same laws where the kernel or the filesystem lacks something."""

    def there_and_back(self, world: World, blobs: MemoryBlobs) -> None:
        (world / "d").mkdir()
        (world / "f").write_bytes(b"before")
        (world / "d" / "x").write_bytes(b"x")
        before = world.picture()
        desk = Desk(FileAdapter(blobs))
        effects = [desk.do(write(blobs, world / "f")), desk.do(write(blobs, world / "new")),
                   desk.do(changes.delete_change(world / "d")), desk.do(changes.mkdir_change(world / "m")),
                   desk.do(changes.move_change(world / "new", world / "newer"))]  # fmt: skip
        for effect in reversed(effects):
            desk.undo(effect)
        assert world.picture() == before

    def test_without_openat2(self, world: World, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(libc(), "has_openat2", False)
        self.there_and_back(world, blobs)

    def test_without_renameat2(
        self, world: World, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(libc(), "has_renameat2", False)
        self.there_and_back(world, blobs)

    def test_without_nameless_files(
        self, world: World, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from takeback.adapters.file import build, capturing, staging

        for module in (build, staging, capturing):
            monkeypatch.setattr(module, "nameless_file", lambda place, mode=0o600: -1)
        self.there_and_back(world, blobs)

    def test_component_by_component_a_link_is_told_from_a_file(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(libc(), "has_openat2", False)
        (world / "file").write_bytes(b"")
        os.symlink(".", world / "link")
        fd = os.open(world.root, os.O_PATH)
        with pytest.raises(OSError, match="Too many levels"):
            kernel.open_strictly(fd, b"link/x", os.O_RDONLY, True)
        with pytest.raises(NotADirectoryError):
            kernel.open_strictly(fd, b"file/x", os.O_RDONLY, True)
        os.close(fd)


class TestPaths:
    def test_links_and_dots_are_resolved_once_but_not_the_last_name(self, world: World) -> None:
        (world / "real" / "sub").mkdir(parents=True)
        os.symlink("real", world / "link")
        os.symlink("nowhere", world / "real" / "sub" / "last")
        shown = f"{world.root}/link/./sub/../sub/last"
        assert paths.resolve(shown).endswith("/real/sub/last")
        assert paths.resolve(shown, follow=True).endswith("/real/sub/nowhere")

    def test_relative_paths_start_at_the_working_directory(self, world: World) -> None:
        os.chdir(world.root)
        assert paths.resolve("x") == paths.resolve(str(world / "x")) == paths.resolve(b"./x")

    @pytest.mark.parametrize(
        ("path", "words"),
        [("", "empty"), ("/", "root directory"), ("missing/f", "does not exist"), ("file/f", "not a directory"),
         ("loop/f", "circles"), ("n" * 300 + "/f", "255 bytes")],
    )  # fmt: skip
    def test_bad_paths_are_one_sentence_and_a_hint(self, world: World, path: str, words: str) -> None:
        os.chdir(world.root)
        (world / "file").write_bytes(b"")
        os.symlink("loop", world / "loop")
        with pytest.raises(Misuse, match=words) as refusal:
            paths.resolve(path)
        assert refusal.value.hint

    @pytest.mark.parametrize(
        ("build", "words"),
        [(lambda w, b: write(b, w / "d"), "is a directory"), (lambda w, b: write(b, w / "fifo"), "not a regular file"),
         (lambda w, b: changes.delete_change(w / "nothing"), "does not exist"),
         (lambda w, b: changes.move_change(w / "nothing", w / "x"), "does not exist"),
         (lambda w, b: changes.move_change(w / "f", w / "d"), "exists already"),
         (lambda w, b: changes.move_change(w / "d", w / "d" / "x"), "into itself"),
         (lambda w, b: changes.mkdir_change(w / "d"), "exists already"),
         (lambda w, b: changes.symlink_change(w / "f", "x"), "exists already"),
         (lambda w, b: changes.chmod_change(w / "nothing", 0o600), "does not exist")],
    )  # fmt: skip
    def test_bad_changes_are_refused_before_anything_happens(self, world, blobs, build, words) -> None:
        (world / "d").mkdir()
        (world / "f").write_bytes(b"1")
        os.mkfifo(world / "fifo")
        before = world.picture()
        with pytest.raises(Misuse, match=words) as refusal:
            Desk(FileAdapter(blobs)).do(build(world, blobs))
        assert refusal.value.hint and world.picture() == before

    def test_a_move_to_another_filesystem_is_refused_with_advice(
        self, world: World, blobs: MemoryBlobs
    ) -> None:
        (world / "f").write_bytes(b"1")
        if os.stat("/dev/shm").st_dev == os.stat(world.root).st_dev:
            pytest.fail("this test needs two filesystems")
        with pytest.raises(NoRemedy, match="different filesystems"):
            FileAdapter(blobs).assess(changes.move_change(world / "f", f"/dev/shm/takeback-{os.getpid()}"))


class TestLimits:
    def test_a_file_over_the_limit_is_declared_and_refused(self, world: World, blobs: MemoryBlobs) -> None:
        (world / "big").write_bytes(bytes(2000))
        desk = Desk(FileAdapter(blobs, max_capture_bytes=1000))
        change = changes.delete_change(world / "big")
        assert "over the limit" in desk.adapter.assess(change).lost[0]
        with pytest.raises(NoRemedy, match="over the limit"):
            desk.do(change)
        assert (world / "big").exists()

    def test_when_allowed_it_goes_and_undo_says_it_was_not_captured(
        self, world: World, blobs: MemoryBlobs
    ) -> None:
        (world / "big").write_bytes(bytes(2000))
        desk = Desk(FileAdapter(blobs, max_capture_bytes=1000))
        effect = desk.do(changes.delete_change(world / "big", allow_inexact=True))
        assert not (world / "big").exists()
        outcomes = desk.adapter.assess(undo_of(effect), effect).outcomes
        assert [each.outcome for each in outcomes] == [Outcome.EXCLUDED]

    def test_a_file_that_changes_while_it_is_read_is_not_captured(self, world, blobs, monkeypatch) -> None:
        path = world / "log"
        path.write_bytes(b"line\n")
        read = os.pread

        def growing(fd: int, length: int, offset: int) -> bytes:
            data = read(fd, length, offset)
            with path.open("ab") as log:
                log.write(b"line\n")
            return data

        monkeypatch.setattr(os, "pread", growing)
        with pytest.raises(NoRemedy, match="changes while it is being read"):
            Desk(FileAdapter(blobs)).intend(changes.delete_change(path))


@pytest.mark.root
@pytest.mark.needs("mount", "umount")
def test_a_full_filesystem_is_refused_before_anything_is_changed(tmp_path: Path, blobs: MemoryBlobs) -> None:
    (tmp_path / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path / "small"], check=True)
    try:
        (tmp_path / "small" / "f").write_bytes(b"before")
        desk = Desk(FileAdapter(blobs))
        with pytest.raises(ResourceUnreachable, match="no space"):
            desk.do(write(blobs, tmp_path / "small" / "f", bytes(200_000)))
        assert os.listdir(tmp_path / "small") == ["f"]
        assert (tmp_path / "small" / "f").read_bytes() == b"before"
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


def test_modes_survive_a_named_stage(world: World, blobs: MemoryBlobs) -> None:
    (world / "run.sh").write_bytes(b"#!/bin/sh\n")
    (world / "run.sh").chmod(0o755)
    desk = Desk(FileAdapter(blobs))
    effect = desk.propose(write(blobs, world / "run.sh", b"#!/bin/sh\nexit\n"))
    [staged] = desk.adapter.stage(effect, named=True)
    assert staged.path.endswith(".sh") and stat.S_IMODE(os.stat(staged.path).st_mode) == 0o755 == staged.mode
    desk.adapter.tidy(effect)
    assert os.listdir(world.root) == ["run.sh"]
