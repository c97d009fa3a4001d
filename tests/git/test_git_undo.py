"""What an agent did to a repository is taken back after git itself has gone on in it."""

from collections.abc import Sequence

import pytest

import takeback
from takeback.model.remedy import Target
from tests.git.agent import PROMPT, WHAT_AGENTS_DO, Agent, files, redo, undo
from tests.git.repository import Repository, variables

pytestmark = pytest.mark.needs("git")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("what", WHAT_AGENTS_DO)
def test_what_an_agent_did_is_taken_back_after_git_status(
    run: takeback.Run, agent: Agent, repository: Repository, what: str
) -> None:
    repository.sh("echo stashed > file3; git stash -q; echo stashed > file2; git stash -q")
    before, contents = repository.facts(), files(repository)
    effect = agent(WHAT_AGENTS_DO[what])
    after = repository.facts()
    repository.sh(PROMPT)

    result = undo(run, effect)

    assert result.outcome == "done"
    assert repository.facts() == before
    assert files(repository) == contents
    repository.assert_sound()
    repository.sh(PROMPT)
    redo(run, result)
    assert repository.facts() == after
    repository.assert_sound()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("what", ["commit", "reset", "merge", "add", "gc"])
def test_nothing_but_objects_differs_when_nobody_came_between(
    run: takeback.Run, agent: Agent, repository: Repository, what: str
) -> None:
    index = (repository.root / ".git/index").read_bytes()
    before = files(repository)
    effect = agent(WHAT_AGENTS_DO[what])

    undo(run, effect)

    assert files(repository) == before
    assert (repository.root / ".git/index").read_bytes() == index


def test_what_the_user_staged_since_stays_staged(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    effect = agent("echo agent > file1; git add file1; git rm -q --cached file2")
    repository.sh("echo mine > mine; git add mine")

    assert undo(run, effect).outcome == "done"

    assert repository.git("diff", "--cached", "--name-status").split() == ["A", "mine"]
    repository.assert_sound()


def test_an_entry_that_the_user_staged_otherwise_since_is_refused_by_name(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    effect = agent(
        "echo agent > file1; git add file1; git checkout -q HEAD -- file2; git show HEAD:file1 > file1"
    )
    repository.sh("cp file1 kept; echo mine > file1; git add file1; cp kept file1; rm kept")

    with pytest.raises(takeback.Conflict, match="staged otherwise since: file1"):
        undo(run, effect)


def test_several_effects_are_taken_back_with_the_prompt_in_between(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    before = repository.facts()
    first = agent("echo one > file1; git commit -qam one")
    repository.sh(PROMPT)
    agent("echo two > file2; git commit -qam two")
    repository.sh(PROMPT)
    agent("echo three > file3; git add file3")
    repository.sh(PROMPT)

    with pytest.raises(takeback.Blocked):
        run.undo(first)
    assert run.undo(first, cascade=True).outcome == "done"

    assert repository.facts() == before
    repository.assert_sound()


def test_looking_at_a_repository_is_no_change(run: takeback.Run, repository: Repository) -> None:
    repository.sh("touch file1 file2 file3")
    outcome = run.command(["git", "status"], cwd=str(repository.root), env=variables())
    assert outcome.effect is None
    repository.sh("touch -d 2001-01-01 file1 file2 file3")
    with run.watch(str(repository.root), any_root=True) as watch:
        repository.sh("git status -s > /dev/null")
    assert watch.effect is None


def test_what_was_captured_before_there_were_meanings_is_read_too(
    run: takeback.Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from takeback.adapters.tree import layer

    def without(targets: Sequence[Target], blobs: object) -> list[Target]:
        return list(targets)

    monkeypatch.setattr(layer, "with_meaning", without)
    before = repository.facts()
    outcome = run.command(["sh", "-c", WHAT_AGENTS_DO["commit"]], cwd=str(repository.root), env=variables())
    assert outcome.effect is not None
    repository.sh(PROMPT)

    assert run.undo(outcome.effect).outcome == "done"

    assert repository.facts() == before
    repository.assert_sound()


def test_an_index_that_is_none_is_compared_by_its_bytes(run: takeback.Run, repository: Repository) -> None:
    index = repository.root / ".git/index"
    whole = index.read_bytes()
    outcome = run.command(
        ["sh", "-c", "echo no index > .git/index"], cwd=str(repository.root), env=variables()
    )
    assert outcome.effect is not None
    index.write_bytes(b"no index either\n")

    with pytest.raises(takeback.Conflict, match="index"):
        run.undo(outcome.effect)
    index.write_bytes(b"no index\n")
    assert run.undo(outcome.effect).outcome == "done"

    assert index.read_bytes() == whole
