"""The index, refs and reflogs as git itself writes them."""

import hashlib
import random
import subprocess
from pathlib import Path

import pytest

from takeback.adapters.tree.git.formats import (
    cached_trees,
    in_the_way,
    loose_value,
    meaning_of,
    oids_in,
    packed_values,
    packed_without,
    parse_index,
    without_changes,
    without_lines,
    written,
)
from takeback.adapters.tree.git.repository import GitObjects, is_whole
from tests.git.repository import Repository, fresh

pytestmark = pytest.mark.needs("git")
FORMATS = ("sha1", "sha256")


@pytest.fixture(params=[(version, kind) for version in (2, 3, 4) for kind in FORMATS], ids=str)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    version, kind = request.param
    made = fresh(tmp_path / "main", f"--object-format={kind}")
    made.sh("mkdir -p a/b; for n in $(seq 60); do echo $n > a/b/name$n; echo $n > a/n$n; done; git add a")
    if version == 3:
        made.git("update-index", "--skip-worktree", "file1")
        made.sh("echo later > later; git add -N later")
    else:
        made.git("update-index", "--index-version", str(version))
    made.git("update-index", "--assume-unchanged", "file2")
    return made


def index_of(repository: Repository) -> bytes:
    return (repository.root / ".git/index").read_bytes()


def test_every_entry_is_read_as_git_lists_it(repository: Repository) -> None:
    index = parse_index(index_of(repository))
    assert index is not None
    told = {f"{key[0].decode()} {key[1]} {one.mode:o} {one.oid.hex()}" for key, one in index.entries.items()}
    listed = (line.split("\t") for line in repository.git("ls-files", "-s").splitlines())
    wanted = {f"{name} {what.split()[2]} {what.split()[0]} {what.split()[1]}" for what, name in listed}
    assert told == wanted


def test_an_index_written_again_means_the_same_to_git_and_to_us(repository: Repository) -> None:
    data = index_of(repository)
    index = parse_index(data)
    assert index is not None
    again = written(index, index.entries, ())
    assert meaning_of(again) == meaning_of(data)
    before = repository.git("ls-files", "-s", "-v", "--debug")
    (repository.root / ".git/index").write_bytes(again)
    assert repository.git("ls-files", "-s", "-v", "--debug") == before
    repository.assert_sound()


def test_a_refreshed_stat_cache_means_the_same(repository: Repository) -> None:
    data = index_of(repository)
    repository.sh("touch -d 2001-01-01 a/n* file3; git status -s > /dev/null")
    assert index_of(repository) != data
    assert meaning_of(index_of(repository)) == meaning_of(data)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "line",
    [
        "echo new > a/n1; git add a/n1",
        "git update-index --chmod=+x a/n2",
        "git rm -q --cached a/n3",
        "git update-index --skip-worktree a/n4",
        "git update-index --no-assume-unchanged file2",
        "echo x > x; git add -N x",
        "git update-index --split-index",
        "git reset -q; git commit -qam all; echo c > o; git add o; git commit -qm o; git merge -q other",
    ],
)
def test_what_is_content_means_something_else(repository: Repository, line: str) -> None:
    data = index_of(repository)
    repository.sh(line, check=False)
    assert meaning_of(index_of(repository)) != meaning_of(data)


def test_a_damaged_index_is_no_index(repository: Repository) -> None:
    data = index_of(repository)
    chance = random.Random(1)
    for _ in range(60):
        at = chance.randrange(len(data))
        damaged = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        assert meaning_of(damaged) == ""
    for size in (0, 3, 12, 40, len(data) - 1):
        assert meaning_of(data[:size]) == ""


def test_random_bytes_with_a_good_checksum_are_read_or_refused_but_never_fail() -> None:
    chance = random.Random(2)
    for _ in range(400):
        body = b"DIRC\0\0\0" + bytes([chance.choice((2, 3, 4, 5))]) + chance.randbytes(chance.randrange(200))
        meaning_of(body + hashlib.sha256(body).digest())


def test_changes_are_taken_out_entry_by_entry(repository: Repository) -> None:
    before = index_of(repository)
    repository.sh("echo agent > a/n1; git add a/n1; git rm -q --cached a/n2; echo new > new; git add new")
    after = index_of(repository)
    repository.sh("echo user > a/n9; git add a/n9; echo u > u; git add u")
    was, left, now = (parse_index(one) for one in (before, after, index_of(repository)))
    assert was and left and now
    taken = without_changes(was, left, now)
    assert taken and not taken.conflicts and len(taken.restored) == 3
    (repository.root / ".git/index").write_bytes(written(now, taken.entries, taken.restored))
    assert repository.git("diff", "--cached", "--name-only", "HEAD", "--", "a/n1", "a/n2", "new") == (
        "a/n1\na/n2\n"
    )  # as before: not committed yet
    assert "u\n" in repository.git("ls-files") and "new\n" not in repository.git("ls-files")
    repository.assert_sound()


def test_an_entry_staged_again_since_is_a_conflict(repository: Repository) -> None:
    before = index_of(repository)
    repository.sh("echo agent > a/n1; git add a/n1")
    after = index_of(repository)
    repository.sh("echo user > a/n1; git add a/n1")
    was, left, now = (parse_index(one) for one in (before, after, index_of(repository)))
    assert was and left and now
    taken = without_changes(was, left, now)
    assert taken and taken.conflicts == (b"a/n1",)


def test_a_file_does_not_come_back_under_a_name_that_is_a_directory_now(repository: Repository) -> None:
    before = index_of(repository)
    repository.sh("git rm -q --cached file3; rm file3")
    after = index_of(repository)
    repository.sh("mkdir file3; echo in > file3/in; git add file3/in")
    was, left, now = (parse_index(one) for one in (before, after, index_of(repository)))
    assert was and left and now
    taken = without_changes(was, left, now)
    assert taken and taken.conflicts == (b"file3",)


def test_cached_trees_are_those_that_git_wrote(repository: Repository) -> None:
    repository.sh("git rm -q --cached later || true; git commit -qm all")
    index = parse_index(index_of(repository))
    assert index is not None
    trees = {one.hex() for one in cached_trees(index)}
    assert repository.git("rev-parse", "HEAD^{tree}").strip() in trees
    assert all(repository.git("cat-file", "-t", one).strip() == "tree" for one in trees)


@pytest.mark.parametrize("kind", FORMATS)
def test_objects_are_found_loose_packed_and_at_alternates(tmp_path: Path, kind: str) -> None:
    first = fresh(tmp_path / "first", f"--object-format={kind}")
    oids = first.git("rev-list", "--all", "--objects", "--no-object-names").split()
    directory = bytes(first.root / ".git/objects")
    assert all(GitObjects(directory).has(oid) for oid in oids)
    loose = first.root / ".git/objects" / oids[0][:2] / oids[0][2:]
    assert is_whole(oids[0], loose.read_bytes())
    assert not is_whole(oids[1], loose.read_bytes())
    first.git("gc", "-q")
    assert not loose.exists()
    assert all(GitObjects(directory).has(oid) for oid in oids)
    subprocess.run(["git", "clone", "-q", "-s", first.root, tmp_path / "second"], check=True)
    store = GitObjects(bytes(tmp_path / "second/.git/objects"))
    assert all(store.has(oid) for oid in oids)
    assert store.missing([oids[0], "ab" * (len(oids[0]) // 2)]) == "ab" * (len(oids[0]) // 2)


def test_packed_refs_lose_one_ref_and_no_other_byte(tmp_path: Path) -> None:
    repository = fresh(tmp_path / "main")
    repository.sh("git tag -a -m t annotated; git pack-refs --all")
    content = (repository.root / ".git/packed-refs").read_bytes()
    values = packed_values(content)
    assert values is not None and "refs/tags/annotated" in values
    rest = packed_without(content, {"refs/tags/annotated"})
    assert packed_values(rest) == {name: oid for name, oid in values.items() if name != "refs/tags/annotated"}
    assert len(content.splitlines()) - len(rest.splitlines()) == 2
    assert packed_values(b"no refs\n") is None


def test_loose_refs_are_ids_or_names() -> None:
    assert loose_value(b"ref: refs/heads/main\n") == "ref: refs/heads/main"
    assert loose_value(b"0123456789" * 4 + b"\n") == "0123456789" * 4
    assert loose_value(b"") is None
    assert loose_value(b"something else\n") is None
    assert in_the_way("refs/heads/a/b", {"refs/heads/a": ""}) == "refs/heads/a"
    assert in_the_way("refs/heads/a", {"refs/heads/a/b": ""}) == "refs/heads/a/b"
    assert in_the_way("refs/heads/a", {"refs/heads/ab": ""}) == ""


def test_only_the_lines_of_the_effect_leave_a_reflog() -> None:
    assert without_lines(b"1\n", b"1\n2\n", b"1\n2\n3\n").content == b"1\n3\n"
    assert without_lines(b"1\n", b"1\n2\n", b"2\n3\n").content == b"3\n"  # the user let old lines expire
    assert without_lines(b"1\n2\n", b"2\n", b"2\n3\n") == (b"1\n2\n3\n", (b"1\n", b"2\n"))
    assert without_lines(b"1\n2\n", b"2\n", b"9\n").content is None
    assert without_lines(b"", b"1\n", b"1\n2\n").content == b"2\n"
    assert oids_in(b"0" * 40 + b" " + b"a" * 40 + b" me <m@x> 1 +0000\tcommit: x") == ("a" * 40,)
