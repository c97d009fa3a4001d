"""What this machine lets a test do, found by looking once. In a container much is missing, and that is no failure.

`@pytest.mark.able("user namespaces")`, or `need("fanotify")` in a fixture: where it is missing the test is not run, and
the end of the session says once what this machine has not and how many tests that are.
"""

import atexit
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache

import pytest

HAS_NO = "this machine has no "
_ENOUGH = 8 << 30
_NEW_MOUNTS, _PRIVATE, _LATER = 0x00020000, 0x44000, 2  # CLONE_NEWNS; MS_REC | MS_PRIVATE; MNT_DETACH


def need(*names: str) -> None:
    for name in names:
        if not is_able(name):
            pytest.skip(HAS_NO + name)


@cache
def is_able(name: str) -> bool:
    return _ABILITIES[name]()


def place_for_tests() -> None:
    """A container's own filesystem is an overlay, which holds no layers of another and cannot be watched as a whole.
    Where we may mount, temporary directories are made in memory there, and no other process sees that."""
    place = tempfile.gettempdir()
    if "PYTEST_XDIST_WORKER" in os.environ or os.geteuid() != 0 or _filesystem(place) != "overlay":
        return
    libc, size = ctypes.CDLL(None), f"size={_available() // 2},mode=1777".encode()
    if _available() > _ENOUGH and not libc.unshare(_NEW_MOUNTS):
        own = tempfile.mkdtemp(prefix="takeback-tests-")
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        private = libc.mount(b"none", b"/", None, _PRIVATE, None)
        if not private and not libc.mount(b"tests", os.fsencode(own), b"tmpfs", 0, size):
            atexit.register(libc.umount2, os.fsencode(own), _LATER)
            os.environ["TMPDIR"] = tempfile.tempdir = own


def _available() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024


def _filesystem(path: str) -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [(line.split()[4], line.partition(" - ")[2].split()[0]) for line in file]
    path = os.path.realpath(path)
    above = [(point, kind) for point, kind in mounts if f"{path}/".startswith(f"{point.rstrip('/')}/")]
    return max(above, key=lambda mount: len(mount[0]), default=("", ""))[1]


def _in_another_process(code: str, *before: str) -> bool:
    """Whether it ends well."""
    words = [
        *before,
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import ctypes, os\nlibc = ctypes.CDLL(None)\n{code}",
    ]
    try:
        return not subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, check=False
        ).returncode
    except OSError:
        return False


def _user_namespaces() -> bool:
    """As an ordinary user, who needs them most."""
    give_up = "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)"
    return _in_another_process(
        f"if os.getuid() == 0: {give_up}\nassert not libc.unshare(0x10000000 | 0x00020000)"
    )


def _mounts() -> bool:
    """In a namespace of one's own."""
    return os.geteuid() == 0 and _in_another_process(
        "assert not libc.unshare(0x00020000)\n"
        "assert not libc.mount(b'none', b'/', None, 0x44000, None)\n"
        "assert not libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)"
    )


def _overlays() -> bool:
    """Layers where the tests are."""
    from takeback.sandbox.ability import ability

    with tempfile.TemporaryDirectory() as place:
        found = ability(place)
        return bool(found.engine) and found.layers_at == os.path.realpath(place)


def _fanotify() -> bool:
    from takeback.adapters.watch.fanotify import Fanotify

    with tempfile.TemporaryDirectory() as place:
        try:
            Fanotify(os.fsencode(place)).close()
        except OSError:
            return False
    return True


def _own_network() -> bool:
    return os.geteuid() == 0 and _in_another_process("assert not libc.unshare(0x40000000)")


def _plain_root() -> bool:
    """Three overlays on top of each other are one too many."""
    return _filesystem("/") != "overlay"


_ABILITIES: dict[str, Callable[[], bool]] = {
    "user namespaces": _user_namespaces,
    "mounts": _mounts,
    "overlays": _overlays,
    "fanotify": _fanotify,
    "networks of its own": _own_network,
    "root directory on a disk": _plain_root,
}
