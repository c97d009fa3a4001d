"""Who we are, and who else is still there."""

import os
import signal
import subprocess
import sys

import pytest

from takeback.model.boot_clock import since_boot
from takeback.model.run import Owner
from takeback.storage.owners import alive, alive_beside, myself


def test_we_are_alive_and_a_child_is_someone_else() -> None:
    me = myself()
    assert alive(me) is True
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        own = myself()
        os.write(theirs, f"{own.pid} {own.started}".encode())
        signal.pause()
    try:
        pid, started = os.read(ours, 100).decode().split()
        assert int(pid) == child != me.pid
        assert alive(me._replace(pid=child, started=started)) is True
        assert alive(me._replace(pid=child, started="1")) is False
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
        os.close(theirs)
    assert alive(me._replace(pid=child, started=started)) is False


def test_of_what_cannot_be_seen_nothing_is_known_but_that_an_earlier_boot_is_over() -> None:
    me = myself()
    for elsewhere in (me._replace(space="pid:[1]"), me._replace(boot="")):
        assert alive(elsewhere) is None
        assert alive_beside(elsewhere) is None
    earlier = me._replace(boot="another")
    assert alive(earlier) is None
    assert alive_beside(earlier) is False


_IN_ANOTHER_TIME = """
import sys
from takeback.model.boot_clock import since_boot
from takeback.storage.owners import myself
print(*myself(), since_boot(), flush=True)
sys.stdin.read()
"""


@pytest.mark.able("user namespaces")
@pytest.mark.needs("unshare")
@pytest.mark.parametrize("offset", [[], ["--boottime", "86400", "--monotonic", "86400"]])
def test_finding_4_a_process_in_another_time_namespace_is_alive_and_its_clock_is_ours(
    offset: list[str],
) -> None:
    words = ["unshare", "--map-root-user", "--time", *offset, "--fork", "--kill-child=SIGKILL"]
    child = subprocess.Popen(
        [*words, sys.executable, "-c", _IN_ANOTHER_TIME],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin and child.stdout
    with child:
        boot, space, pid, started, clock = child.stdout.readline().split()
        owner = Owner(boot, space, int(pid), started)
        assert abs(since_boot() - int(clock)) < 600_000_000  # ten minutes; the namespace is a day ahead
        assert alive(owner) is True
        child.stdin.close()
    assert alive(owner) is False
