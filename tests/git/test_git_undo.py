"""What an agent did to a repository is taken back after git itself has gone on in it."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import takeback
from takeback.model.remedy import Target
from tests.git.repository import Repository, fresh, variables

pytestmark = pytest.mark.needs("git")
Agent = Callable[[str], takeback.Effect]
PROMPT = "touch file1 file2 file3; git status -s > /dev/null"


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    return fresh(tmp_path / "work/main", f"--object-format={request.param}")


@pytest.fixture
def run(store: Path) -> Iterator[takeback.Run]:
    with takeback.open(str(store)) as tb, tb.run("agent") as run:
        yield run


@pytest.fixture(params=["sandbox", "watch", "box"])
def agent(request: pytest.FixtureRequest, run: takeback.Run, repository: Repository) -> Agent:
    """Does one line in the repository, as one effect."""
    cwd = str(repository.root)

    def act(line: str) -> takeback.Effect:
        argv = ["/bin/sh", "-ec", line]
        if request.param == "sandbox":
            outcome = run.command(argv, cwd=cwd, env=variables())
            assert outcome.exit_code == 0, outcome.stderr
            effect = outcome.effect
        elif request.param == "box":
            with run.sandbox(cwd=cwd, env=variables()) as box:
                assert box.run(argv).exit_code == 0
                effect = box.commit().effect
        else:
            with run.watch(str(repository.root.parent), force=True) as watch:
                repository.sh(line)
            effect = watch.effect
        assert effect is not None
        return effect

    return act


def undo(run: takeback.Run, effect: takeback.Effect, on_conflict: str = "refuse") -> takeback.UndoResult:
    """Where a box stands hangs on its commit, and goes back with it."""
    return run.undo(effect, cascade="box" in effect.change.summary, on_conflict=on_conflict)


def redo(run: takeback.Run, result: takeback.UndoResult) -> None:
    for each in reversed(result.undo):
        run.undo(each)


def files(repository: Repository) -> dict[str, bytes]:
    """All but the objects, and the index, which every `git status` writes."""
    paths = (path for path in repository.root.rglob("*") if path.is_file() and path.name != "index")
    return {str(path): path.read_bytes() for path in paths if "/.git/objects/" not in str(path)}


WHAT_AGENTS_DO = {
    "commit": "echo agent > file1; git commit -qam agent",
    "rebase": "git rebase -q other",
    "reset": "git reset -q --hard HEAD~1",
    "branch delete": "git branch -q -D other",
    "branch delete, packed": "git branch -q -D packed",
    "branch rename": "git branch -m packed renamed",
    "tag delete": "git tag -d v0",
    "stash drop": "git stash drop -q",
    "stash pop": "git stash pop -q",
    "stash push": "echo s > file2; git stash -q",
    "gc": "git gc -q",
    "gc prune": "git reflog expire --expire=now --all; git gc -q --prune=now",
    "merge": "git merge -q --no-edit other",
    "checkout": "git checkout -q other",
    "checkout detached": "git checkout -q --detach",
    "add": "echo more > file2; git add file2; echo n > n; git add -N n",
    "amend": "git commit -q --amend -m amended",
    "pick": "git cherry-pick other",
    "pack refs": "git pack-refs --all --prune",
}


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
    from takeback.adapters.tree.carrying import Carrier

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
    with run.watch(str(repository.root), force=True) as watch:
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
