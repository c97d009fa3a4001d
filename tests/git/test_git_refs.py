"""Refs and reflogs, packed or loose, are taken back one by one; those of the user stay."""

import pytest

import takeback
from tests.git.agent import PROMPT, WHAT_AGENTS_DO, Agent, files, redo, undo
from tests.git.repository import Repository, variables

pytestmark = [pytest.mark.needs("git"), pytest.mark.sampled(2, whole=True)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("what", ["commit", "reset", "rebase", "merge", "amend"])
def test_commits_of_the_user_on_another_branch_stay(
    run: takeback.Run, agent: Agent, repository: Repository, what: str
) -> None:
    before = repository.facts()
    effect = agent(WHAT_AGENTS_DO[what])
    repository.sh("git switch -q -c users; echo mine > mine; git add mine; git commit -qm mine")
    mine = repository.git("rev-parse", "HEAD").strip()

    assert undo(run, effect).outcome == "done"

    there = repository.facts()
    assert there.refs == before.refs | {"refs/heads/users": mine}
    assert there.head == "refs/heads/users"
    assert any(line.endswith("commit: mine") for line in there.reflog)
    repository.assert_sound([mine])


@pytest.mark.parametrize("what", ["commit", "reset"])
def test_a_branch_that_the_user_moved_since_is_refused_by_name(
    run: takeback.Run, agent: Agent, repository: Repository, what: str
) -> None:
    effect = agent(WHAT_AGENTS_DO[what])
    repository.sh("echo mine > mine; git add mine; git commit -qm mine")
    there, contents = repository.facts(), files(repository)

    with pytest.raises(takeback.Conflict, match="refs/heads/main was moved since"):
        undo(run, effect)

    assert repository.facts() == there
    assert files(repository) == contents


@pytest.mark.sampled(12)
@pytest.mark.parametrize("between", ["git pack-refs --all --prune", "git gc -q", "git tag users", PROMPT])
@pytest.mark.parametrize(
    "line",
    [
        "git branch made; git tag made-tag; git tag -a -m t made-annotated",
        "git branch -D packed; git tag -d v0",
        "git branch -D other; git branch other/below main",
        "git update-ref refs/heads/packed main; git commit -q --allow-empty -m empty",
    ],
)
def test_refs_are_taken_back_one_by_one_though_git_packed_them(
    run: takeback.Run, agent: Agent, repository: Repository, line: str, between: str
) -> None:
    before = repository.facts()
    effect = agent(line)
    after = repository.facts()
    repository.sh(between)
    users = {name: oid for name, oid in repository.facts().refs.items() if name.startswith("refs/tags/users")}

    result = undo(run, effect)

    assert result.outcome == "done"
    assert repository.facts().refs == before.refs | users
    repository.assert_sound()
    redo(run, result)
    assert repository.facts().refs == after.refs | users
    repository.assert_sound()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("packed", ["", "git pack-refs --all --prune"])
@pytest.mark.parametrize("name", ["packed", "other"])
@pytest.mark.parametrize(
    ("made", "refusal"), [("NAME", "was moved since"), ("NAME/below", "cannot come back")]
)
def test_a_branch_does_not_come_back_over_one_that_the_user_made(
    run: takeback.Run, agent: Agent, repository: Repository, name: str, made: str, refusal: str, packed: str
) -> None:
    effect = agent(f"git branch -q -D {name}")
    repository.sh(
        f"git branch {made.replace('NAME', name)} v0; git commit -q --allow-empty -m mine; {packed}"
    )
    repository.sh(f"git branch -f {made.replace('NAME', name)} main")
    there = repository.facts()

    with pytest.raises(takeback.Conflict, match=refusal):
        undo(run, effect)

    assert repository.facts() == there
    repository.assert_sound()


def test_a_branch_that_the_user_deleted_after_a_gc_stays_deleted(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    effect = agent("git gc -q")
    repository.sh("git branch -D other; git commit -q --allow-empty -m mine")
    now = repository.facts()

    undo(run, effect)

    assert repository.facts().refs == now.refs
    repository.assert_sound()


def test_a_dropped_stash_comes_back_below_newer_ones(
    run: takeback.Run, agent: Agent, repository: Repository
) -> None:
    repository.sh("echo one > file1; git stash -q -m one; echo two > file1; git stash -q -m two")
    effect = agent("git stash drop -q")
    repository.sh("echo three > file1; git stash -q -m three")

    assert undo(run, effect).outcome == "done"

    told = [line.rpartition(": ")[2] for line in repository.git("stash", "list").splitlines()]
    assert told == ["three", "two", "one"]
    repository.sh("git stash drop -q; git stash pop -q")
    assert (repository.root / "file1").read_text() == "two\n"
    repository.assert_sound()


def test_reftables_are_files_that_stay_or_go_together(run: takeback.Run, repository: Repository) -> None:
    tables = repository.root / ".git/reftable"
    tables.mkdir()
    (tables / "tables.list").write_text("0x01-0x01-a.ref\n")
    (tables / "0x01-0x01-a.ref").write_bytes(b"REFT one")
    line = "cd .git/reftable; echo two > 0x02-0x02-b.ref; echo 0x02-0x02-b.ref >> tables.list; rm 0x01-0x01-a.ref"
    outcome = run.command(["sh", "-c", line], cwd=str(repository.root), env=variables())
    assert outcome.effect is not None
    (tables / "tables.list").write_text("0x02-0x02-b.ref\n0x03-0x03-c.ref\n")

    result = None
    with pytest.raises(takeback.Conflict):
        result = run.undo(outcome.effect, on_conflict="skip")

    assert result is None
    assert (tables / "0x02-0x02-b.ref").exists() and not (tables / "0x01-0x01-a.ref").exists()
    (tables / "tables.list").write_text("0x01-0x01-a.ref\n0x02-0x02-b.ref\n")
    assert run.undo(outcome.effect).outcome == "done"
    assert (tables / "tables.list").read_text() == "0x01-0x01-a.ref\n"
