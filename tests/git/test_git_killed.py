"""An undo inside a repository that is killed: the next command settles it, no lock keeps git out, fsck is clean."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.model.effect import OPEN_STATES
from takeback.testing.crash import Boundaries, in_a_process, open_wrapped, wrap_system_calls
from tests.git.repository import Facts, Repository, fresh, variables

pytestmark = pytest.mark.needs("git")
SAMPLE = 6  # deaths of each that every commit pays for
PARTS = 4
# What the agent did, and what the user did since: a plain undo, refs in a list, lines and entries one by one.
STORIES = {
    "commit": ("echo agent > file1; git commit -qam agent", "touch file1; git status -s"),
    "packed": (
        "git branch made; git tag made-tag; git branch -D packed",
        "git pack-refs --all; git tag users",
    ),
    "mixed": (
        "echo agent > file1; git commit -qam agent; git branch deep/er",
        "git switch -q -c users; echo u > u; git add u; git commit -qm users; echo v > v; git add v",
    ),
}


class Scenario:
    """Made once and copied for every death."""

    def __init__(self, directory: Path, agent: str, user: str) -> None:
        self.place = directory / "place"
        self.kept = directory / "kept"
        repository = fresh(self.place / "main")
        self.before = repository.facts()
        with takeback.open(str(self.place / "store")) as tb, tb.run("agent") as run:
            outcome = run.command(["sh", "-ec", agent], cwd=str(repository.root), env=variables())
            assert outcome.effect is not None
            self.effect = outcome.effect.id
        repository.sh(user)
        self.after = repository.facts()
        self.commits = repository.commits()
        shutil.copytree(self.place, self.kept, symlinks=True)

    def renew(self) -> Repository:
        shutil.rmtree(self.place)
        # An older copy is put back on purpose: nothing outside may remember the newer one.
        shutil.rmtree(os.path.join(os.environ["XDG_STATE_HOME"], "takeback-known"), ignore_errors=True)
        shutil.copytree(self.kept, self.place, symlinks=True)
        return Repository(self.place / "main")

    def undo(self, boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(self.place / "store"), boundaries) as tb:
            tb.undo(self.effect)

    def undone(self) -> Facts:
        repository = self.renew()
        end = in_a_process(self.undo, Boundaries())
        assert not end.error, end.error
        repository.assert_sound(self.commits)
        return repository.facts()


@pytest.fixture(params=STORIES)
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Scenario:
    return Scenario(tmp_path, *STORIES[request.param])


def killed_at(scenario: Scenario, wanted: Facts, at: int) -> bool:
    """Whether it was killed at all. After the next command it is before or after, and git can work on."""
    repository = scenario.renew()
    end = in_a_process(scenario.undo, Boundaries(at))
    assert not end.error, f"killed at {at}: {end.error}"
    with takeback.open(str(scenario.place / "store")) as tb:
        tb.recover()
        open_ones = [one for one in tb.effects() if one.state in OPEN_STATES]
        assert not open_ones, f"killed at {at}: {open_ones}"
        assert not tb.verify(read_data=True).findings
    repository.assert_sound(scenario.commits)
    there = repository.facts()
    assert there in (scenario.after, wanted), f"killed at {at}: {there}"
    repository.sh("git commit -q --allow-empty -m 'goes on'; git branch goes-on; git pack-refs --all")
    return end.killed


def test_an_undo_that_was_killed_is_settled_and_leaves_no_lock(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    wanted = scenario.undone()
    assert wanted != scenario.after
    scenario.renew()
    whole = len(in_a_process(scenario.undo, Boundaries()).passed)
    step = max(1, whole // SAMPLE)
    died = sum(killed_at(scenario, wanted, at) for at in range(step // 2 + 1, whole + 1, step))
    assert died >= SAMPLE - 1
    record_property("undos killed inside a repository", died)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_an_undo_that_was_killed_anywhere_is_settled_and_leaves_no_lock(
    scenario: Scenario, part: int, record_property: Callable[[str, object], None]
) -> None:
    wanted = scenario.undone()
    scenario.renew()
    whole = len(in_a_process(scenario.undo, Boundaries()).passed)
    died = sum(killed_at(scenario, wanted, at) for at in range(part + 1, whole + 2, PARTS))
    record_property("undos killed inside a repository", died)


def test_a_lock_that_a_dead_takeback_left_is_removed_and_no_other(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, *STORIES["commit"])
    wanted = scenario.undone()
    repository = scenario.renew()
    lock = repository.root / ".git/index.lock"
    at, whole = 0, len(in_a_process(scenario.undo, Boundaries()).passed)
    while not lock.is_symlink():  # the first boundary at which the locks are held
        at += 1
        assert at <= whole, "no lock was ever held"
        repository = scenario.renew()
        in_a_process(scenario.undo, Boundaries(at))
    other = repository.root / ".git/refs/heads/other.lock"
    other.write_bytes(b"")
    with takeback.open(str(scenario.place / "store")) as tb:
        tb.recover()
    assert not lock.is_symlink() and not lock.exists()
    assert other.exists()
    other.unlink()
    assert repository.facts() in (scenario.after, wanted)
    repository.assert_sound(scenario.commits)
