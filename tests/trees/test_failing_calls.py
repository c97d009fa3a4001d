"""No room at the n-th system call of a merge or an undo, for n = 1, 2, 3 …; once, and from there on: it ends with a
clean error or well, the tree is before or after, and the next command finds nothing left over."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.testing.crash import Boundaries, in_a_process, wrap_system_calls
from tests.trees.killing import Murder
from tests.trees.test_killed import WORK

Count = Callable[[str, object], None]

PARTS = 4

pytestmark = pytest.mark.root


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def only_files(boundaries: Boundaries) -> None:
    """A pipe needs no room on a disk, and a time needs none either."""
    into_pipes, utime = os.write, os.utime
    wrap_system_calls(boundaries)
    into_files, os.utime = os.write, utime
    os.write = lambda fd, data: (into_files if stat.S_ISREG(os.fstat(fd).st_mode) else into_pipes)(fd, data)


def failed_at(murder: Murder, name: str, at: int, lasting: bool, said: Path) -> bool:
    """One death of a call; False when the work ended before it."""
    prepare, work = WORK[name]
    known = prepare(murder)

    def action(boundaries: Boundaries) -> None:
        only_files(boundaries)
        try:
            with takeback.open(str(murder.scene.store)) as tb:
                result = work(murder)(tb)
                outcome = str(getattr(result, "outcome", "done"))
        except takeback.TakebackError as trouble:
            outcome = f"{type(trouble).__name__}: {trouble} {trouble.hint}"
        said.write_text(outcome)

    end = in_a_process(action, Boundaries(at, no_room, persistent=lasting))
    where = (
        f"no room at call {at} of {name} ({end.passed[at - 1] if len(end.passed) >= at else 'not reached'})"
    )
    assert not end.error, f"{where}: {end.error}"
    with murder.scene.open() as tb:
        assert not tb.verify(read_data=True).findings, where
        tb.recover()
    seen = murder.check(known, where)
    assert said.read_text() != "done" or seen == "after", f"{where}: it said done, and the tree is {seen}"
    return len(end.passed) >= at


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", WORK)
def test_every_call_without_room_leaves_nothing_half_made(
    tmp_path: Path, name: str, lasting: bool, part: int, record_property: Count
) -> None:
    murder = Murder(tmp_path)
    at = part + 1
    while failed_at(murder, name, at, lasting, tmp_path / "said"):
        at += PARTS
    assert at > PARTS * 5
    record_property("calls without room over trees", at // PARTS)
