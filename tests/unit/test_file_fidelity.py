"""Every property of a file comes back exactly, whatever took it away."""

import os
import select
import shutil
import signal
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from takeback.adapters.file import changes
from takeback.model.record import canonical
from takeback.model.remedy import to_json
from takeback.testing.adapter_suite import Desk
from tests.files import OLD, Files
from tests.servers.process import wait_until
from tests.world import World


@pytest.fixture
def files(world: World, tmp_path: Path) -> Files:
    (tmp_path / "held").mkdir()
    return Files(world, tmp_path / "held")


def acl(mask: int, user: int = 12345) -> bytes:
    """user::rw- user:12345:rwx group::r-- mask::… other::---, as the kernel keeps it."""
    entries = [
        (0x01, 6, 0xFFFFFFFF),
        (0x02, 7, user),
        (0x04, 4, 0xFFFFFFFF),
        (0x10, mask, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service=ep


def with_mode(path: Path) -> None:
    path.chmod(0o6751)


def with_owner(path: Path) -> None:
    os.chown(path, 1234, 5678)


def with_suid_and_owner(path: Path) -> None:
    os.chown(path, 1234, 5678)
    path.chmod(0o4755)


def with_user_xattr(path: Path) -> None:
    os.setxattr(path, "user.note", b"\0\xff binary")
    os.setxattr(path, "user.empty", b"")


def with_trusted_xattr(path: Path) -> None:
    os.setxattr(path, "trusted.ours", b"1")


def with_acl(path: Path) -> None:
    os.setxattr(path, "system.posix_acl_access", acl(mask=5))


def with_capability(path: Path) -> None:
    os.setxattr(path, "security.capability", CAPABILITY)


def with_holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 20)
        for place in (0, 1 << 20, 5 << 20):
            file.seek(place)
            file.write(b"data" * 1024)


def with_many_holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 20)
        for place in range(0, 4 << 20, 16384):
            file.seek(place)
            file.write(b"data" * 1024)


def as_one_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 20)


def with_garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 5000 + os.urandom(70_000))


def empty(path: Path) -> None:
    path.write_bytes(b"")


PROPERTIES = [
    with_mode, with_owner, with_suid_and_owner, with_user_xattr, with_trusted_xattr, with_acl, with_capability,
    with_holes, with_many_holes, as_one_hole, with_garbage, empty,
]  # fmt: skip


@pytest.mark.root
@pytest.mark.parametrize("dress", PROPERTIES)
@pytest.mark.parametrize("how", ["overwrite", "delete", "delete its directory"])
def test_a_file_comes_back_with_everything_it_had(
    files: Files, dress: Callable[[Path], None], how: str
) -> None:
    (files / "d").mkdir()
    path = files.make("d/file")
    dress(path)
    os.utime(path, ns=(OLD, OLD))
    os.utime(files / "d", ns=(OLD, OLD))
    before = files.world.picture()

    if how == "overwrite":
        effect = files.write("d/file")
    else:
        effect = files.delete("d/file" if how == "delete" else "d")
    assert files.world.picture() != before
    files.undo(effect)

    assert files.world.picture() == before


@pytest.mark.root
def test_a_directory_comes_back_with_times_modes_and_attributes_of_its_own(files: Files) -> None:
    (files / "d" / "inner" / "empty").mkdir(parents=True)
    for name, mode in (("d/inner/empty", 0o1777), ("d/inner", 0o2755), ("d", 0o555)):
        os.chown(files / name, 1, 2)
        (files / name).chmod(mode)
        os.setxattr(files / name, "user.is", name.encode())
    os.setxattr(files / "d/inner", "system.posix_acl_default", acl(mask=7))
    for name in ("d/inner/empty", "d/inner", "d"):
        os.utime(files / name, ns=(OLD, OLD - len(name)))
    before = {
        path: value for path, value in files.world.picture(directory_times=True).items() if path != b"."
    }

    effect = files.delete("d")
    files.undo(effect)

    after = files.world.picture(directory_times=True)
    assert {path: value for path, value in after.items() if path != b"."} == before


def test_every_kind_of_entry_in_a_tree_comes_back(files: Files) -> None:
    tree = files / "tree"
    tree.mkdir()
    files.make("tree/a")
    os.link(tree / "a", tree / "b")
    (tree / "sub").mkdir()
    os.link(tree / "a", tree / "sub" / "c")
    os.symlink(b"dangling\xff\n", os.fsencode(tree / "link"))
    os.symlink(tree, tree / "loop")
    os.mkfifo(tree / "fifo", 0o600)
    os.mknod(tree / "socket", stat.S_IFSOCK | 0o755)  # to bind one there takes a path of at most 107 bytes
    if os.geteuid() == 0:
        os.mknod(tree / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(tree / "disk", stat.S_IFBLK | 0o660, os.makedev(7, 99))
        os.chown(tree / "link", 77, 88, follow_symlinks=False)
    for path in tree.rglob("*"):
        os.utime(path, ns=(OLD, OLD), follow_symlinks=False)
    before = files.world.picture()

    files.undo(files.delete("tree"))

    assert files.world.picture() == before


@pytest.mark.root
@pytest.mark.parametrize("how", ["by itself", "with its directory"])
def test_what_cannot_be_opened_comes_back_with_its_attributes(files: Files, how: str) -> None:
    (files / "d").mkdir()
    os.symlink("nowhere", files / "d" / "link")
    os.mkfifo(files / "d" / "fifo", 0o640)
    os.setxattr(files / "d" / "link", "trusted.ours", b"of the link", follow_symlinks=False)
    os.setxattr(files / "d" / "fifo", "trusted.ours", b"of the fifo")
    with_acl(files / "d" / "fifo")
    before = files.world.picture()

    for name in ("d/link", "d/fifo") if how == "by itself" else ("d",):
        files.undo(files.delete(name))

    assert files.world.picture() == before
    assert os.getxattr(files / "d/link", "trusted.ours", follow_symlinks=False) == b"of the link"
    assert os.getxattr(files / "d/fifo", "trusted.ours") == b"of the fifo"
    assert os.getxattr(files / "d/fifo", "system.posix_acl_access") == acl(mask=5)


@pytest.mark.root
def test_an_attribute_added_to_a_link_since_is_a_conflict(files: Files) -> None:
    effect = files.do(changes.symlink_change(files / "link", "nowhere"))
    os.setxattr(files / "link", "trusted.ours", b"1", follow_symlinks=False)
    assert files.told(effect) == f"has other attributes than effect {effect.id[:8]} left"


NAMES = [
    b"plain",
    b"with space",
    b"new\nline",
    b"\xff\xfe not utf-8",
    b"%41",
    b"#frag",
    b'quo"te\\',
    b"-rf",
    b"n" * 255,
    b"\x01",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_written_deleted_and_undone(files: Files, name: bytes) -> None:
    before = files.world.picture()
    written = files.write(name)
    after = files.world.picture()
    files.undo(files.delete(name))
    assert files.world.picture() == after
    files.undo(written)
    assert files.world.picture() == before


def test_a_tree_of_odd_names_comes_back(files: Files) -> None:
    (files / "tree").mkdir()
    for name in NAMES:
        (files / b"tree/" / os.fsdecode(name)).write_bytes(name)
        (files / "tree" / os.fsdecode(name[:200] + b".d")).mkdir()
    before = files.world.picture()
    files.undo(files.delete("tree"))
    assert files.world.picture() == before


def test_paths_over_4096_bytes_are_no_obstacle(files: Files) -> None:
    top = files / "deep"
    top.mkdir()
    inner = os.open(top, os.O_RDONLY)
    for level in range(30):
        name = f"{level:02}".encode() * 120
        os.mkdir(name, dir_fd=inner)
        deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    with open(os.open(b"file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inner), "wb") as file:
        file.write(b"at the bottom")
    before = files.world.picture()
    path = os.fsencode(top) + b"".join(b"/" + f"{level:02}".encode() * 120 for level in range(30)) + b"/file"
    assert len(path) > 4096

    written = files.do(changes.write_change(path, files.blobs.put(b"after"), 5))
    assert files.world.picture() != before
    deleted = files.delete("deep")
    assert not top.exists()
    files.undo(deleted)
    files.undo(written)

    assert files.world.picture() == before
    os.close(inner)


def test_a_tree_a_thousand_levels_deep_comes_back(files: Files) -> None:
    inner = os.open(files / ".", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir(b"d", dir_fd=inner)
        deeper = os.open(b"d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(os.open(b"bottom", os.O_CREAT | os.O_WRONLY, dir_fd=inner))

    files.undo(files.delete("d"))

    fd = os.open(files / ".", os.O_RDONLY)
    for _ in range(1200):
        deeper = os.open(b"d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    assert os.listdir(fd) == ["bottom"]
    os.close(fd)
    os.close(inner)
    subprocess.run(["rm", "-rf", files / "d"], check=True)


def test_ten_thousand_files_come_back_and_make_a_small_record(files: Files) -> None:
    for number in range(10_000):
        directory = files / "many" / str(number // 500)
        if number % 500 == 0:
            directory.mkdir(parents=True)
        (directory / str(number)).write_bytes(b"content %d" % number)
    before = files.world.picture()

    effect = files.delete("many")
    assert effect.remedy and len(canonical(to_json(effect.remedy))) < 2000
    files.undo(effect)

    assert files.world.picture() == before


def test_a_fifo_is_never_opened(files: Files) -> None:
    """Someone waits to write into it; any open for reading would wake them."""
    (files / "tree").mkdir()
    os.mkfifo(files / "tree" / "fifo")
    woken, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(tell, b"?")
            os.open(files / "tree" / "fifo", os.O_WRONLY)
            os.write(tell, b"!")
        finally:
            os._exit(0)
    try:
        assert os.read(woken, 1) == b"?"
        process = Path(f"/proc/{child}/stat")
        wait_until(lambda: process.read_text().rpartition(")")[2].split()[0] == "S", "it waits for a reader")
        files.undo(files.delete("tree"))
        files.undo(files.delete("tree/fifo"))
        files.undo(files.do(changes.chmod_change(files / "tree/fifo", 0o640)))
        files.undo(files.do(changes.move_change(files / "tree/fifo", files / "moved")))
        assert not select.select([woken], [], [], 0)[0]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(woken)
        os.close(tell)


def test_untouched_files_keep_even_their_ctime(files: Files) -> None:
    files.make("mine")
    (files / "d").mkdir()
    bystanders = [files.make("bystander"), files.make("d/inner"), files / "d"]
    os.symlink("mine", files / "link")
    bystanders.append(files / "link")
    before = [os.lstat(path) for path in bystanders]

    files.undo(files.write("mine"))
    files.undo(files.delete("mine"))
    files.undo(files.do(changes.mkdir_change(files / "new")))

    for path, was in zip(bystanders, before, strict=True):
        now = os.lstat(path)
        assert (now.st_ctime_ns, now.st_mtime_ns, now.st_atime_ns, now.st_ino) == (
            was.st_ctime_ns, was.st_mtime_ns, was.st_atime_ns, was.st_ino
        )  # fmt: skip


def test_looking_does_not_even_touch_the_access_time(files: Files) -> None:
    path = files.make("mine")
    os.utime(path, ns=(5, OLD))
    before = path.stat().st_atime_ns
    adapter = files.desk().adapter
    adapter.assess(changes.delete_change(path))
    Desk(adapter).intend(changes.delete_change(path))
    assert path.stat().st_atime_ns == before


@pytest.mark.root
class TestWhatAWriteKeeps:
    def test_owner_mode_acl_and_attributes_stay_privileges_go(self, files: Files) -> None:
        path = files.make()
        os.chown(path, 1234, 5678)
        os.setxattr(path, "user.note", b"stays")
        os.setxattr(path, "security.capability", CAPABILITY)
        path.chmod(0o6755)

        files.write("file")

        status = path.stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 5678, 0o755)
        assert os.listxattr(path) == ["user.note"]

    def test_an_acl_stays(self, files: Files) -> None:
        path = files.make()
        with_acl(path)
        files.write("file")
        assert os.getxattr(path, "system.posix_acl_access") == acl(mask=5)

    def test_a_given_mode_is_taken_as_it_is(self, files: Files) -> None:
        files.make()
        files.write("file", mode=0o4750)
        assert stat.S_IMODE((files / "file").stat().st_mode) == 0o4750

    def test_a_new_file_gets_what_its_directory_dictates(self, files: Files) -> None:
        (files / "d").mkdir()
        os.chown(files / "d", 0, 4321)
        (files / "d").chmod(0o2775)
        os.setxattr(files / "d", "system.posix_acl_default", acl(mask=6))
        (files / "d" / "by the kernel").write_bytes(b"")
        os.mkdir(files / "d" / "made by the kernel")

        files.write("d/new")
        files.do(changes.mkdir_change(files / "d" / "made"))

        for ours, theirs in (("new", "by the kernel"), ("made", "made by the kernel")):
            one, other = files / "d" / ours, files / "d" / theirs
            assert one.stat().st_mode == other.stat().st_mode
            assert one.stat().st_gid == other.stat().st_gid == 4321
            for name in set(os.listxattr(one)) | set(os.listxattr(other)):
                assert os.getxattr(one, name) == os.getxattr(other, name)

    def test_the_umask_counts_for_new_files_and_directories(self, files: Files) -> None:
        os.umask(0o027)
        files.write("new")
        files.do(changes.mkdir_change(files / "d" / "e", parents=True))
        assert stat.S_IMODE((files / "new").stat().st_mode) == 0o640
        assert (
            stat.S_IMODE((files / "d").stat().st_mode)
            == stat.S_IMODE((files / "d/e").stat().st_mode)
            == 0o750
        )


@pytest.mark.needs("cp")
def test_a_copied_system_directory_comes_back(files: Files) -> None:
    """Real files, real links, real modes."""
    source = Path("/etc/alternatives" if os.path.isdir("/etc/alternatives") else "/etc")
    shutil.copytree(source, files / "copy", symlinks=True)
    before = files.world.picture()
    files.undo(files.delete("copy"))
    assert files.world.picture() == before
