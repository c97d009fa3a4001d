"""Objects are never removed by an undo, and what a pruning agent removed comes back."""

import pytest

import takeback
from tests.git.agent import PROMPT, Agent, undo
from tests.git.repository import Repository, variables

pytestmark = pytest.mark.needs("git")


def test_objects_that_the_user_built_on_stay(run: takeback.Run, agent: Agent, repository: Repository) -> None:
    effect = agent("echo shared > shared; git add shared; git commit -qm agent; git branch from")
    repository.sh(
        "git switch -q other; git checkout -q from -- shared; git commit -qm 'with a blob of the agent'"
    )
    mine = repository.git("rev-parse", "HEAD").strip()

    result = undo(run, effect, on_conflict="skip")

    repository.sh("git switch -q -f other")
    repository.assert_sound([mine])
    staying = [one for one in result.targets if "git object" in one.detail]
    assert len(staying) == 1
    assert effect.remedy is not None and "git object" in effect.remedy.residue


def test_a_ref_does_not_go_back_to_what_the_user_pruned(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    effect = agent("git branch -D other")
    repository.sh("git reflog expire --expire=now --all; git gc -q --prune=now")
    there = repository.facts()

    with pytest.raises(takeback.Conflict, match="no longer has"):
        undo(run, effect)
    with pytest.raises(takeback.Conflict, match="no longer has"):
        undo(run, effect, on_conflict="force")

    assert repository.facts() == there
    repository.assert_sound()


def test_what_a_pruning_agent_removed_comes_back(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    other = repository.git("rev-parse", "other").strip()
    before = repository.facts()
    effect = agent("git branch -D other; git reflog expire --expire=now --all; git gc -q --prune=now")
    assert not repository.has(other)
    repository.sh(f"{PROMPT}; git tag users")

    assert undo(run, effect).outcome == "done"

    assert repository.facts().refs == before.refs | {"refs/tags/users": before.refs["refs/heads/main"]}
    assert repository.has(other)
    repository.assert_sound([other])


@pytest.mark.parametrize("gone", ["git gc -q", "git repack -adq"])
def test_objects_at_an_alternate_count(run: takeback.Run, repository: Repository, gone: str) -> None:
    repository.sh(
        "git clone -q -s . ../borrower; cd ../borrower; git config gc.auto 0; git branch kept origin/other"
    )
    borrower = Repository(repository.root.parent / "borrower")
    before = borrower.facts()
    line = "git branch -D kept; git reset -q --hard HEAD~1"
    outcome = run.command(["sh", "-ec", line], cwd=str(borrower.root), env=variables())
    assert outcome.effect is not None
    repository.sh(gone)
    borrower.sh(f"{PROMPT}; git gc -q")

    assert run.undo(outcome.effect).outcome == "done"

    assert borrower.facts() == before
    borrower.assert_sound()
