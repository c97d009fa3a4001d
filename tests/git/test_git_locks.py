"""Git's own locks: an undo waits for nobody and takes them, so that git does not write meanwhile."""

import subprocess

import pytest

import takeback
from tests.git.agent import WHAT_AGENTS_DO, Agent, undo
from tests.git.repository import Repository, variables

pytestmark = pytest.mark.needs("git")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock"])
def test_undo_is_refused_while_git_runs(
    run: takeback.Run, agent: Agent, repository: Repository, lock: str
) -> None:
    effect = agent(WHAT_AGENTS_DO["commit"])
    there = repository.facts()
    (repository.root / ".git" / lock).write_bytes(b"git's own")

    with pytest.raises(takeback.StoreBusy, match=lock.rpartition("/")[2]):
        undo(run, effect)
    with pytest.raises(takeback.StoreBusy):
        undo(run, effect, on_conflict="force")

    assert (repository.root / ".git" / lock).read_bytes() == b"git's own"
    (repository.root / ".git" / lock).unlink()
    assert repository.facts() == there
    assert undo(run, effect).outcome == "done"
    repository.assert_sound()


def test_git_cannot_write_while_an_undo_holds_its_locks(
    run: takeback.Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from takeback.adapters.tree.apply import Carrier

    outcome = run.command(["sh", "-c", WHAT_AGENTS_DO["commit"]], cwd=str(repository.root), env=variables())
    assert outcome.effect is not None
    said: list[str] = []
    carry = Carrier.carry

    def while_carrying(self: Carrier, *args: object) -> None:
        for words in (["commit", "-qam", "x"], ["branch", "-f", "main", "HEAD~1"], ["add", "."]):
            done = subprocess.run(
                ["git", *words],
                cwd=repository.root,
                env=variables(),
                capture_output=True,
                text=True,
                check=False,
            )
            said.append(done.stderr)
            assert done.returncode != 0, words
        carry(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Carrier, "carry", while_carrying)
    run.undo(outcome.effect)
    assert all("File exists" in one for one in (said[0], said[2])), said
    repository.assert_sound()


def test_a_command_that_meets_a_lock_of_git_is_held_and_not_lost(
    run: takeback.Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from takeback.adapters.tree.adapter import TreeAdapter

    lock = repository.root / ".git/index.lock"
    before = repository.facts()
    apply = TreeAdapter.apply

    def while_git_runs(self: TreeAdapter, effect: takeback.Effect) -> object:
        lock.write_bytes(b"")
        return apply(self, effect)

    monkeypatch.setattr(TreeAdapter, "apply", while_git_runs)
    with pytest.raises(takeback.StoreBusy, match=r"index\.lock") as caught:
        run.command(["sh", "-ec", WHAT_AGENTS_DO["commit"]], cwd=str(repository.root), env=variables())
    monkeypatch.undo()
    assert repository.facts() == before
    lock.unlink()

    held = caught.value.effect
    assert held is not None
    run.apply(held)

    assert repository.git("log", "-1", "--format=%s").strip() == "agent"
    repository.assert_sound()
