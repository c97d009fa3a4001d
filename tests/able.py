"""What this machine lets a test do, found by looking once. In a container much is missing, and that is no failure.

`@pytest.mark.able("user namespaces")`, or `need("fanotify")` in a fixture: where it is missing the test is not run, and
the end of the session says once what this machine has not and how many tests that are.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

HAS_NO = "this machine has no "
_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30


def need(*names: str) -> None:
    for name in names:
        if not is_able(name):
            pytest.skip(HAS_NO + name)


@cache
def is_able(name: str) -> bool:
    return _ABILITIES[name]()


def place_for_tests() -> None:
    """A container's own filesystem is an overlay, which holds no layers of another and cannot be watched as a whole.
    Temporary directories are made in memory there, where there is enough."""
    if "PYTEST_XDIST_WORKER" in os.environ or _filesystem(tempfile.gettempdir()) != "overlay":
        return
    if _filesystem(str(_MEMORY)) == "tmpfs" and shutil.disk_usage(_MEMORY).free > _ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="takeback-tests-", dir=_MEMORY)
        os.chmod(tempfile.tempdir, 0o1777)
        atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)


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
