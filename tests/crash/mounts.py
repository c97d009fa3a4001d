"""Filesystems of our own: small ones that fill up, and one whose power can be cut."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, the same for XFS
WITHOUT_FLUSHING_THE_LOG = 2


@contextmanager
def tmpfs(place: Path, *options: str) -> Iterator[Path]:
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", ",".join(("mode=0700", *options)), "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    _mount("-o", f"remount,{options}", str(place))


class Disk:
    """A file with ext4 in it, mounted; after a cut the file is all that is left."""

    def __init__(self, directory: Path, megabytes: int = 96) -> None:
        self.image = directory / "disk.img"
        self.place = directory / "disk"
        self.place.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-qF", str(self.image)], check=True)
        self._attach(self.image)

    def _attach(self, image: Path) -> None:
        mounted = subprocess.run(
            ["mount", "-o", "loop", str(image), str(self.place)], check=False, capture_output=True, text=True
        )
        if mounted.returncode:
            pytest.skip(f"no loop devices: {mounted.stderr.strip()}")

    def cut(self) -> None:
        """Whatever the kernel holds back is lost. The caller has frozen all writers: one that goes on would take
        answers of a dead filesystem for promises."""
        handle = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(handle)

    def power_on(self) -> None:
        """On a copy: mounting the same file again may find the dead filesystem still in memory."""
        after = self.image.with_suffix(".after")
        subprocess.run(["cp", "--sparse=always", str(self.image), str(after)], check=True)
        self.detach()
        self._attach(after)

    def detach(self) -> None:
        subprocess.run(["umount", str(self.place)], check=False, capture_output=True)

    def remove(self) -> None:
        self.detach()
        for image in (self.image, self.image.with_suffix(".after")):
            image.unlink(missing_ok=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def fill(place: Path, leave: int) -> Path:
    """Until so many bytes are left."""
    filler = place / "filler"
    free = shutil.disk_usage(place).free
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - leave))
    return filler
