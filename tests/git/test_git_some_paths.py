"""Some paths of what an agent did to a repository are taken back: git finds it sound, and the rest goes back later."""

from pathlib import Path

import pytest

import takeback
from takeback.model.plan import Bond
from tests.git.agent import PROMPT, WHAT_AGENTS_DO, Agent, files, redo, undo
from tests.git.repository import Repository

pytestmark = pytest.mark.needs("git")


@pytest.fixture(params=["sha1"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    from tests.git.repository import fresh

    return fresh(tmp_path / "work/main", f"--object-format={request.param}")


def touched(repository: Repository, effect: takeback.Effect, gits: bool) -> list[Path]:
    names = (Path(one.resource.removeprefix("file://")) for one in effect.targets)
    return [one for one in names if (repository.root / ".git" in (one, *one.parents)) is gits]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("first", ["files", "git"])
@pytest.mark.parametrize("what", ["commit", "reset", "merge", "stash push", "checkout", "add"])
def test_first_the_files_or_first_the_repository_then_the_rest(
    run: takeback.Run, agent: Agent, repository: Repository, what: str, first: str
) -> None:
    before, contents = repository.facts(), files(repository)
    effect = agent(WHAT_AGENTS_DO[what])
    after = repository.facts()
    paths = touched(repository, effect, gits=first == "git")
    if not paths:
        return
    repository.sh(PROMPT)

    result = run.undo(effect, paths=paths)

    assert result.outcome == "done"
    repository.assert_sound()
    assert repository.facts() == (before if first == "git" else after)
    rest = undo(run, effect)
    assert repository.facts() == before
    assert files(repository) == contents
    repository.assert_sound()
    redo(run, rest)
    redo(run, result)
    assert repository.facts() == after
    repository.assert_sound()


def test_a_ref_goes_with_its_reflog(run: takeback.Run, agent: Agent, repository: Repository) -> None:
    repository.sh("git branch -q side")
    effect = agent(
        "echo agent > file1; git commit -qam agent; git branch -qf other; echo x > file2; git add file2"
    )
    before = repository.facts()
    home = repository.root / ".git"

    result = run.undo(effect, paths=[home / "logs/refs/heads/other"])

    along = {Path(one.resource.removeprefix("file://")): one.bond for one in result.along}
    assert along == {home / "refs/heads/other": Bond.REF}
    now = repository.facts()
    moved = {name for name in before.refs if before.refs[name] != now.refs.get(name)}
    assert moved == {"refs/heads/other"}
    assert now.staged == before.staged
    repository.assert_sound()
    redo(run, result)
    assert repository.facts() == before


def test_packed_refs_go_with_all_refs(run: takeback.Run, agent: Agent, repository: Repository) -> None:
    before = repository.facts()
    effect = agent("git pack-refs --all --prune; echo x > file2")

    result = run.undo(effect, paths=[repository.root / ".git/packed-refs"])

    assert {one.bond for one in result.along} == {Bond.REF}
    assert (repository.root / "file2").read_text() == "x\n"
    assert repository.facts().refs == before.refs
    repository.assert_sound()
