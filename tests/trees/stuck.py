"""A takeback that was killed in the middle, and someone who then wrote into what it was at: by which ways a person gets
out of that, and what each of them leaves."""

import os
from collections.abc import Callable, Iterator

import takeback
from takeback.model.effect import OPEN_STATES, State
from takeback.testing.crash import Boundaries, End, in_a_process, open_wrapped, wrap_system_calls
from tests.crash.scenes import Known, in_session
from tests.trees.killing import Murder
from tests.trees.remains import marked, wait_until_gone

THEIRS = b"someone else's\n"
WAYS = ("skip", "force")
# What both the command and the stranger change: a file, one in a directory that comes, one that is new, one that moved.
PATHS = ("run.sh", "made/deep/x", "new", "moved")


def work_of(murder: Murder, name: str) -> Callable[[takeback.Takeback], object]:
    if name == "merge":
        return lambda tb: in_session(tb, murder.command)
    return lambda tb: tb.undo("@")


def dying(murder: Murder, work: Callable[[takeback.Takeback], object], at: int) -> End:
    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(murder.scene.store), boundaries) as tb:
            work(tb)

    with marked(murder.mark):
        end = in_a_process(action, Boundaries(at))
    assert not end.error, end.error
    wait_until_gone(murder.mark)
    return end


def get_stuck(murder: Murder, name: str, first: int, step: int) -> Iterator[tuple[Known, str, str]]:
    """Killed at every so-manieth boundary, with each path in turn written by a stranger: what was before the work and
    after it, which path, and where, whenever something is stuck then. As if the work were a merge: `before` is what an
    undo leads to."""
    prepare = murder.before_it if name == "merge" else murder.after_it
    at = first
    while True:
        path = PATHS[at // step % len(PATHS)]
        known = prepare()
        if not dying(murder, work_of(murder, name), at).killed:
            return
        where = f"{name} killed at boundary {at}, then {path} was written"
        if write(murder, path) and stuck_in(murder):
            yield (known if name == "merge" else Known(known.after, known.before, known.exact)), path, where
        at += step


def write(murder: Murder, path: str) -> bool:
    """By a stranger, if it is there; with its time as it was, so that only the bytes tell."""
    file = murder.scene.world / path
    if not file.is_file() or file.is_symlink():
        return False
    time = os.stat(file).st_mtime_ns
    file.write_bytes(THEIRS)
    os.utime(file, ns=(time, time))
    return True


def stuck_in(murder: Murder) -> tuple[takeback.Effect, ...]:
    with murder.scene.open() as tb:
        return tb.effects(state=State.STUCK)


def way_out(murder: Murder, how: str, dies_at: int) -> None:
    """What a person asks for; killed on the way, and asked for again if it is still stuck then."""
    (stuck,) = stuck_in(murder)
    target = stuck.undoes or stuck.id
    if dies_at:
        dying(murder, lambda tb: tb.undo(target, on_conflict=how), dies_at)
    with murder.scene.open() as tb:
        if tb.effect(target).state is State.UNDONE:
            return
        try:
            tb.undo(target, on_conflict=how)
        except takeback.Refused:
            # Of what could be taken back the one that died had taken back all.
            assert dies_at and how == "skip", target


def assert_out(murder: Murder, where: str) -> None:
    """Nothing is stuck or left over, and whoever comes next changes nothing more."""
    with murder.scene.open() as tb:
        unsettled = [one for one in tb.effects() if one.state in OPEN_STATES]
        assert not unsettled, f"{where}: {unsettled}"
        assert not murder.scene.scratch(), f"{where}: {murder.scene.scratch()}"
        assert not tb.verify(read_data=True).findings, where
    world = murder.scene.picture()
    with murder.scene.open() as tb:
        assert tb.recover() == (), where
    assert murder.scene.picture() == world, where


def left_over(murder: Murder, known: Known, path: str) -> set[str]:
    """Where the world is not as it was before, in anything but the times of directories and of the path itself, nor
    where a directory is only there because of that path."""
    now = murder.scene.picture()
    odd: set[str] = set()
    for name in now.keys() | known.before.keys():
        seen, old = (dict(one.get(name) or {}) for one in (now, known.before))
        for one in (seen, old):
            if one.get("mode", "").startswith("d") or os.fsdecode(name) == path:
                one.pop("mtime", None)
        if seen != old and not (not old and path.startswith(f"{os.fsdecode(name)}/")):
            odd.add(os.fsdecode(name))
    return odd
