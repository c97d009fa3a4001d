"""Someone else changes the tree while a sandboxed command runs: what both touched is a conflict, the command's work is
held, and nobody's bytes are overwritten."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from tests.trees.meeting import ENOUGH, Meeting
from tests.trees.scenes import differences, manifest, without_directory_times
from tests.world import World

pytestmark = pytest.mark.root


@pytest.fixture
def tb(store: Path) -> Iterator[takeback.Takeback]:
    with takeback.open(str(store)) as tb:
        yield tb


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with Meeting() as meeting:
        yield meeting


@pytest.fixture
def tree(world: World) -> Path:
    root = world.root
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "file").write_bytes(b"as it was\n")
    (root / "other").write_bytes(b"other\n")
    (root / "dir" / "inside").write_bytes(b"inside\n")
    (root / "dir" / "sub" / "deep").write_bytes(b"deep\n")
    for path in [*root.rglob("*"), root]:
        os.utime(path, ns=(10**18, 10**18))
    return root


def met(
    tb: takeback.Takeback,
    meeting: Meeting,
    tree: Path,
    line: str,
    act: Callable[[], object],
    first: str = ":",
) -> Any:
    """The outcome of a command during which someone acted."""
    meeting.while_it_runs(act)
    with tb.run("an agent") as run:
        outcome = run.command(["/bin/sh", "-c", meeting.line(line, first)], cwd=str(tree), timeout=ENOUGH)
    meeting.over()
    assert outcome.exit_code == 0, outcome
    return outcome


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


# Each: what the command does first, what the stranger does, what the command does then, and the path of the conflict.
CONFLICTS: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "both write a file": (":", lambda t: write(t / "file", b"mine"), "echo theirs > file", "file"),
    "written before and after": (
        "echo theirs > file",
        lambda t: write(t / "file", b"mine"),
        "echo more >> file",
        "file",
    ),
    "the same bytes in length": (
        ":",
        lambda t: write(t / "file", b"as it WAS\n"),
        "printf 'theirs..\\n\\n' > file",
        "file",
    ),
    "the stranger removes it": ("echo theirs >> file", lambda t: (t / "file").unlink(), ":", "file"),
    "the command removes it": (":", lambda t: write(t / "file", b"mine"), "rm file", "file"),
    "both make it": (":", lambda t: write(t / "new", b"mine"), "rm -f new; echo theirs > new", "new"),
    "made first by the command": ("echo theirs > new", lambda t: write(t / "new", b"mine"), ":", "new"),
    "the stranger changes its mode": (":", lambda t: (t / "file").chmod(0o600), "echo theirs > file", "file"),
    "the stranger replaces it": (
        "sed -i s/as/AS/ file",
        lambda t: (write(t / "tmp", b"mine"), os.rename(t / "tmp", t / "file")),
        ":",
        "file",
    ),
    "the directory is moved away": (
        "echo theirs > dir/new",
        lambda t: os.rename(t / "dir", t / "elsewhere"),
        ":",
        "dir",
    ),
    "the directory is removed": (
        "echo theirs > dir/sub/new",
        lambda t: ((t / "dir/sub/deep").unlink(), (t / "dir/sub").rmdir()),
        ":",
        "dir/sub",
    ),
    "a directory became a file": (
        "echo theirs > dir/sub/new",
        lambda t: ((t / "dir/sub/deep").unlink(), (t / "dir/sub").rmdir(), write(t / "dir/sub", b"mine")),
        ":",
        "dir/sub",
    ),
    "a directory became a link": (
        "echo theirs > dir/sub/new",
        lambda t: (os.rename(t / "dir/sub", t / "aside"), os.symlink("../aside", t / "dir/sub")),
        ":",
        "dir/sub",
    ),
    "removed with what was added": (
        ":",
        lambda t: write(t / "dir" / "added", b"mine"),
        "rm -rf dir",
        "dir/added",
    ),
    "moved with what was changed": (
        "mv dir moved",
        lambda t: write(t / "dir" / "inside", b"mine"),
        ":",
        "dir/inside",
    ),
    "moved with what was added": (
        "mv dir moved",
        lambda t: write(t / "dir" / "added", b"mine"),
        ":",
        "dir/added",
    ),
    "both change the mode": (":", lambda t: (t / "dir").chmod(0o700), "chmod 711 dir", "dir"),
    "another mode, and a name in it": (
        "echo theirs > dir/new",
        lambda t: ((t / "dir").chmod(0o700), write(t / "dir" / "mine", b"mine")),
        ":",
        "dir",
    ),
    "both change where it began": ("chmod 711 .", lambda t: t.chmod(0o700), ":", ""),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_what_someone_else_changed_meanwhile_is_a_conflict_and_is_not_overwritten(
    tb: takeback.Takeback, meeting: Meeting, tree: Path, name: str
) -> None:
    first, act, then, path = CONFLICTS[name]
    theirs: dict[bytes, dict[str, Any]] = {}

    def meet() -> None:
        act(tree)
        theirs.update(manifest(tree))

    outcome = met(tb, meeting, tree, then, meet, first)

    assert not differences(theirs, manifest(tree)), "the stranger's tree was touched"
    assert outcome.held, outcome
    named = [one.resource for one in outcome.conflicts]
    assert any(resource.endswith(f"/world/{path}".rstrip("/")) for resource in named), named
    tb.discard(outcome.effect.id)
    assert not differences(theirs, manifest(tree))


def test_what_is_held_for_a_conflict_is_refused_and_by_force_made_over_what_undo_brings_back(
    tb: takeback.Takeback, meeting: Meeting, tree: Path
) -> None:
    outcome = met(tb, meeting, tree, "echo theirs > new; rm other", lambda: write(tree / "new", b"mine"))
    assert outcome.held
    with pytest.raises(takeback.Conflict, match="new was"):
        tb.apply([outcome.effect.id])
    assert (tree / "new").read_bytes() == b"mine" and (tree / "other").exists()
    (kept,) = tb.apply([outcome.effect.id], force=True)
    assert (tree / "new").read_bytes() == b"theirs\n" and not (tree / "other").exists()
    tb.undo(kept.id)
    assert (tree / "new").read_bytes() == b"mine" and (tree / "other").read_bytes() == b"other\n"


def test_what_a_stranger_does_elsewhere_is_no_conflict_and_stays(
    tb: takeback.Takeback, meeting: Meeting, tree: Path
) -> None:
    def act() -> None:
        write(tree / "dir" / "mine", b"mine")
        write(tree / "other", b"mine too")

    outcome = met(tb, meeting, tree, "echo theirs > file; echo theirs > dir/theirs", act)
    assert not outcome.conflicts and not outcome.held, outcome
    assert (tree / "dir/mine").read_bytes() == b"mine" and (tree / "other").read_bytes() == b"mine too"
    assert (tree / "file").read_bytes() == b"theirs\n" == (tree / "dir/theirs").read_bytes()
    assert tb.undo(outcome.effect.id).outcome == "done"
    assert (tree / "dir/mine").read_bytes() == b"mine" and (tree / "other").read_bytes() == b"mine too"
    assert (tree / "file").read_bytes() == b"as it was\n" and not (tree / "dir/theirs").exists()


@pytest.mark.parametrize("also", [False, True])
def test_what_a_stranger_changes_of_the_directories_above_is_no_conflict_and_stays(
    tb: takeback.Takeback, meeting: Meeting, tree: Path, also: bool
) -> None:
    def act() -> None:
        tree.chmod(0o750)
        tree.parent.chmod(0o711)
        os.utime(tree, ns=(10**18 + 5, 10**18 + 5))
        if also:
            write(tree / "mine", b"mine")

    outcome = met(tb, meeting, tree, "echo theirs > dir/theirs", act, first="echo theirs > file")
    assert not outcome.conflicts and not outcome.held, outcome
    assert (tree / "file").read_bytes() == b"theirs\n" == (tree / "dir/theirs").read_bytes()
    assert (stat.S_IMODE(tree.stat().st_mode), stat.S_IMODE(tree.parent.stat().st_mode)) == (0o750, 0o711)
    assert tb.undo(outcome.effect.id).outcome == "done"
    assert (stat.S_IMODE(tree.stat().st_mode), stat.S_IMODE(tree.parent.stat().st_mode)) == (0o750, 0o711)


def test_the_world_does_not_see_a_command_before_it_has_ended(
    tb: takeback.Takeback, meeting: Meeting, tree: Path
) -> None:
    before, during = manifest(tree), {}
    outcome = met(
        tb, meeting, tree, ":", lambda: during.update(manifest(tree)), first="rm -rf dir; echo x > file"
    )
    assert during == before
    assert outcome.effect and not (tree / "dir").exists()


def test_a_file_written_a_moment_before_the_command_is_no_conflict(tb: takeback.Takeback, tree: Path) -> None:
    """An agent writes a file and at once runs a command that changes it."""
    with tb.run("an agent") as run:
        for number in range(5):
            write(tree / "file", b"%d" % number)
            outcome = run.command(["/bin/sh", "-c", "echo more >> file"], cwd=str(tree))
            assert not outcome.conflicts, outcome.conflicts
            assert (tree / "file").read_bytes() == b"%dmore\n" % number


def test_commands_one_after_the_other_and_their_undo_in_any_order_of_paths(
    tb: takeback.Takeback, tree: Path
) -> None:
    before = manifest(tree)
    with tb.run("an agent") as run:
        effects = [
            run.command(["/bin/sh", "-c", line], cwd=str(tree)).effect
            for line in (
                "echo 1 > one",
                "rm -rf dir",
                "mkdir dir; echo 2 > dir/two",
                "mv dir three",
                "rm file",
            )
        ]
        assert all(effects)
        run.undo(effects[0])  # independent of the others
        assert not (tree / "one").exists() and (tree / "three/two").exists()
        for effect in reversed(effects[1:]):
            run.undo(effect)
    assert not differences(without_directory_times(before), without_directory_times(manifest(tree)))


def test_two_agents_at_once_in_one_directory_each_get_their_own(
    tb: takeback.Takeback, store: Path, meeting: Meeting, tree: Path
) -> None:
    """Both in sandboxes: neither sees the other, and both are merged if they touch different files."""
    inner: list[Any] = []

    def act() -> None:
        with takeback.open(str(store)) as other, other.run("another agent") as run:
            inner.append(run.command(["/bin/sh", "-c", "echo b > b; rm other; ls > seen"], cwd=str(tree)))

    outcome = met(tb, meeting, tree, "echo c > c", act, first="echo a > a")
    assert not outcome.conflicts and not inner[0].conflicts
    assert sorted(os.listdir(tree)) == ["a", "b", "c", "dir", "file", "seen"]
    assert (tree / "seen").read_text().split() == ["b", "dir", "file", "seen"]
    for effect, own in ((outcome.effect, {"a", "c"}), (inner[0].effect, {"b", "other", "seen"})):
        assert {target.resource.rpartition("/")[2] for target in tb.effect(effect.id).targets} - {
            "world"
        } == own
    tb.undo(outcome.effect.id)
    assert sorted(os.listdir(tree)) == ["b", "dir", "file", "seen"]
    tb.undo(inner[0].effect.id)
    assert sorted(os.listdir(tree)) == ["dir", "file", "other"]


def test_two_agents_at_once_on_the_same_file_the_second_is_held(
    tb: takeback.Takeback, store: Path, meeting: Meeting, tree: Path
) -> None:
    inner: list[Any] = []

    def act() -> None:
        with takeback.open(str(store)) as other, other.run("another agent") as run:
            inner.append(run.command(["/bin/sh", "-c", "echo quicker > file"], cwd=str(tree)))

    outcome = met(tb, meeting, tree, "echo slower > file", act)
    assert not inner[0].conflicts and outcome.held
    assert (tree / "file").read_bytes() == b"quicker\n"


def test_undo_refuses_what_someone_changed_after_the_command(tb: takeback.Takeback, tree: Path) -> None:
    with tb.run("an agent") as run:
        effect = run.command(
            ["/bin/sh", "-c", "echo x > file; rm other; echo n > dir/new"], cwd=str(tree)
        ).effect
    write(tree / "file", b"someone's work")
    before = manifest(tree)
    with pytest.raises(takeback.Refused):
        tb.undo(effect.id)
    assert not differences(before, manifest(tree)), "a refused undo changes nothing"
    result = tb.undo(effect.id, on_conflict="skip")
    assert (tree / "file").read_bytes() == b"someone's work"
    assert (tree / "other").read_bytes() == b"other\n" and not (tree / "dir/new").exists()
    assert [str(one.outcome) for one in result.targets if one.resource.endswith("/file")] == ["conflict"]


def test_the_work_of_others_in_a_directory_that_the_command_made_survives_undo(
    tb: takeback.Takeback, tree: Path
) -> None:
    with tb.run("an agent") as run:
        effect = run.command(["/bin/sh", "-c", "mkdir made; echo a > made/a"], cwd=str(tree)).effect
    write(tree / "made" / "thesis", b"years")
    for wish in ("refuse", "skip", "merge"):
        try:
            tb.undo(effect.id, on_conflict=wish)
        except takeback.Refused:
            pass
        assert (tree / "made" / "thesis").read_bytes() == b"years", wish


def test_no_process_of_a_command_outlives_it(tb: takeback.Takeback, tree: Path) -> None:
    """One left in the background can write no more, inside or outside."""
    line = "(trap '' HUP TERM; while :; do echo x >> file 2>/dev/null; done) & echo started"
    with tb.run("an agent") as run:
        outcome = run.command(["/bin/sh", "-c", line], cwd=str(tree), timeout=ENOUGH)
    first = manifest(tree)
    subprocess.run(["sync", "-f", str(tree)], check=True)
    assert manifest(tree) == first
    assert outcome.exit_code == 0
