"""Worktrees, submodules and clones: a git directory of their own, or one that goes as a whole."""

import pytest

import takeback
from tests.git.agent import PROMPT, Agent, files, undo
from tests.git.repository import Repository, fresh

pytestmark = [pytest.mark.needs("git"), pytest.mark.sampled(2, whole=True)]


def test_a_worktree_is_a_git_directory_too(run: takeback.Run, agent: Agent, repository: Repository) -> None:
    repository.git("worktree", "add", "-q", "../second", "-b", "second")
    second = Repository(repository.root.parent / "second")
    before = repository.facts()
    effect = agent("cd ../second; echo agent > file1; git commit -qam agent")
    second.sh(PROMPT)
    repository.sh("echo mine > mine; git add mine; git commit -qm mine")
    mine = repository.git("rev-parse", "HEAD").strip()

    assert undo(run, effect).outcome == "done"

    assert repository.facts().refs == before.refs | {"refs/heads/main": mine}
    assert second.git("status", "--porcelain") == ""
    repository.assert_sound([mine])


def test_a_worktree_that_the_agent_made_goes_as_a_whole(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    before = repository.facts()
    effect = agent(
        "git worktree add -q ../second -b second; cd ../second; echo x > x; git add x; git commit -qm x"
    )
    repository.sh(PROMPT)
    Repository(repository.root.parent / "second").sh("touch file1; git status -s")

    assert undo(run, effect).outcome == "done"

    assert not (repository.root.parent / "second").exists()
    assert repository.facts() == before
    assert repository.git("worktree", "list").count("\n") == 1
    repository.assert_sound()


def test_one_worktree_goes_and_another_one_stays(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    effect = agent("git worktree add -q ../second -b second")
    repository.git("worktree", "add", "-q", "../third", "-b", "third")

    assert undo(run, effect).outcome == "done"

    assert not (repository.root.parent / "second").exists()
    third = Repository(repository.root.parent / "third")
    third.sh("echo mine > mine; git add mine; git commit -qm mine")
    repository.assert_sound()


def test_a_submodule_is_a_git_directory_too(run: takeback.Run, agent: Agent, repository: Repository) -> None:
    kind = repository.git("rev-parse", "--show-object-format").strip()
    fresh(repository.root.parent / "library", f"--object-format={kind}")
    repository.sh(
        "git -c protocol.file.allow=always submodule add -q ../library library; git commit -qm module"
    )
    module = Repository(repository.root / "library")
    commit = module.git("rev-parse", "HEAD").strip()
    before = repository.facts()
    effect = agent(
        "cd library; echo agent > file1; git commit -qam agent; cd ..; git commit -qam 'moved the module'"
    )
    repository.sh(f"git status -s; cd library; {PROMPT}; git tag users; git pack-refs --all")

    assert undo(run, effect).outcome == "done"

    assert repository.facts() == before
    assert module.git("rev-parse", "HEAD").strip() == commit
    assert repository.git("submodule", "status").startswith(f" {commit}")
    repository.assert_sound()
    assert module.git("fsck", "--full", "--no-dangling") == ""


def test_a_clone_goes_as_a_whole_after_git_status(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    before = files(repository)
    effect = agent("git clone -q . ../clone")
    clone = Repository(repository.root.parent / "clone")
    clone.sh(PROMPT)

    assert undo(run, effect).outcome == "done"

    assert not clone.root.exists()
    assert files(repository) == before


def test_a_clone_stays_once_the_user_committed_in_it(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    effect = agent("git clone -q . ../clone")
    clone = Repository(repository.root.parent / "clone")
    clone.sh("echo mine > mine; git add mine; git commit -qm mine")
    mine = clone.git("rev-parse", "HEAD").strip()

    with pytest.raises(takeback.Conflict):
        undo(run, effect)

    clone.assert_sound([mine])
