"""A store on a disk without a byte or an inode left: its user can still free it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.mounts import fill, tmpfs
from tests.e2e.conftest import CommandLine
from tests.world import World

LARGE = os.urandom(8 << 20)

pytestmark = [pytest.mark.root, pytest.mark.needs("mount", "umount")]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The disk of the store: 48 MB, 200 inodes."""
    with tmpfs(tmp_path / "small", "size=48m", "nr_inodes=200") as place:
        monkeypatch.setenv("TAKEBACK_STORE", str(place / "store"))
        yield place


def without_bytes(place: Path) -> None:
    (place / "filler").unlink(missing_ok=True)
    fill(place, leave=0)
    assert os.statvfs(place).f_bavail == 0


def without_inodes(place: Path) -> None:
    while os.statvfs(place).f_favail:
        os.close(os.open(place / f"inode{len(os.listdir(place))}", os.O_CREAT | os.O_EXCL))


full = pytest.mark.parametrize("filled", [without_bytes, without_inodes])


@full
def test_finding_r1_forget_and_sweep_free_a_full_disk(
    takeback: CommandLine, world: World, small: Path, filled: Callable[[Path], None]
) -> None:
    (world / "large").write_bytes(LARGE)
    takeback.done("rm", "large")
    gone = takeback.effect()["id"]
    filled(small)
    assert takeback("write", "new", input="x").code == 5
    takeback.done("forget", gone)
    filled(small)
    takeback.done("sweep", "--grace", "0")
    free = os.statvfs(small)
    assert free.f_bavail * free.f_frsize > len(LARGE) - (1 << 20) or filled is without_inodes
    takeback.done("verify", "--read-data")
    assert len(os.listdir(small / "store" / "spare")) == 4, "the room that is kept for the next time"


@full
def test_finding_r1_what_is_held_can_be_discarded_on_a_full_disk(
    takeback: CommandLine, small: Path, filled: Callable[[Path], None]
) -> None:
    ran = takeback.done("run", "--hold", "--json", "--", "sh", "-c", "head -c 4M /dev/urandom > work")
    held = ran.json["effect"]["id"]
    filled(small)
    takeback.done("discard", held)
    assert takeback.effect(held)["state"] == "dropped"
    filled(small)
    takeback.done("discard", "--now", held)
    free = os.statvfs(small)
    assert free.f_bavail * free.f_frsize > 3 << 20 or filled is without_inodes


@full
def test_finding_r1_a_change_can_be_taken_back_on_a_full_disk(
    takeback: CommandLine, world: World, small: Path, filled: Callable[[Path], None]
) -> None:
    """The file that fills the disk is the agent's: taking it back frees it."""
    takeback.done("write", "note", input="the agent's")
    filled(small)
    takeback.done("undo")
    assert not (world / "note").exists()
    takeback.done("verify")


def test_finding_r1_nothing_but_what_frees_space_uses_the_room_that_is_kept_for_it(
    takeback: CommandLine, world: World, small: Path
) -> None:
    takeback.done("write", "note", input="1")
    without_bytes(small)
    before = sorted(os.listdir(small / "store" / "spare"))
    for words in (
        ["write", "note"],
        ["log"],
        ["status"],
        ["undo", "--dry-run"],
        ["pin", "@"],
        ["forget", "--dry-run"],
    ):
        takeback(*words, input="2")
    assert sorted(os.listdir(small / "store" / "spare")) == before
    assert len(before) == 4
    assert (world / "note").read_text() == "1"
    assert not takeback.effect()["pinned"]


def test_finding_r7_a_full_store_says_how_full_it_is(takeback: CommandLine, small: Path) -> None:
    takeback.done("write", "note", input="1")
    without_bytes(small)
    said = takeback("write", "note", input="2")
    assert said.code == 5
    assert "is full: 0 bytes free, and a record may need 128 KB" in said.err, said
    (small / "filler").unlink()
    without_inodes(small)
    said = takeback("write", "note", input="2")
    assert said.code == 5
    assert "has no inodes left" in said.err, said
    assert "bytes free" not in said.err


def test_second_eyes_3_a_command_in_place_that_the_store_has_no_room_for_leaves_no_torn_pack(
    takeback: CommandLine, world: World, small: Path
) -> None:
    """Before, its own half-written pack filled the disk, and no command of takeback could free it."""
    (world / "before").write_bytes(os.urandom(500_000))
    ran = takeback("run", "--in-place", "--", "sh", "-c", "head -c 60000000 /dev/urandom > large; exit 1")
    assert ran.code == 125 and "is full" in ran.err
    free = os.statvfs(small)
    assert free.f_bavail * free.f_frsize > 40 << 20

    recovered = takeback("recover")
    assert recovered.code == 5 and "1 effect is not recorded yet" in recovered.err
    takeback.done("sweep")
    (world / "large").unlink()
    takeback.done("recover")
    takeback.done("verify", "--read-data")


def test_second_eyes_3_a_sweep_cuts_off_what_a_dead_writer_left(
    takeback: CommandLine, world: World, small: Path
) -> None:
    (world / "large").write_bytes(LARGE)
    takeback.done("rm", "large")
    (pack,) = (small / "store" / "blobs" / "packs").iterdir()
    whole = pack.read_bytes()
    with pack.open("ab") as file:
        file.write(os.urandom(len(LARGE)))
    without_bytes(small)

    takeback.done("sweep")
    assert pack.read_bytes() == whole
    takeback.done("undo")
    assert (world / "large").read_bytes() == LARGE


def test_a_limit_of_the_caller_is_no_failure_of_the_disk(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    words = (
        "sh",
        "-c",
        'ulimit -f 50; exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "takeback",
        "run",
        "--",
        "sh",
        "-c",
        "echo b > b",
    )
    done = subprocess.run(words, cwd=world.root, capture_output=True, text=True, check=False)
    assert (
        done.returncode == 125
        and "may not write files larger than" in done.stderr
        and "ulimit -f" in done.stderr
    )
    assert not (world / "b").exists()
    assert takeback("write", "b", input="2").code == 0
