"""No link, mount or odd path leads a change or an undo outside what was named."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from takeback.adapters.file import changes, paths
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.kernel import libc
from takeback.errors import Misuse, NoRemedy, Refused, TakebackError
from takeback.model.change import OnConflict
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk
from tests.files import leftovers, write
from tests.memory import MemoryBlobs
from tests.world import World


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


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
         (lambda w, b: changes.move_change(w / "nothing", w / "nothing"), "does not exist"),
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
