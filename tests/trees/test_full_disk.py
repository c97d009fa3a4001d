"""No room in the store, or none where the tree is: nothing is lost or half-made, and the work is not dropped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import takeback
from tests.crash.mounts import fill, tmpfs
from tests.trees.scenes import differences, manifest, without_directory_times

ENOUGH = 120
NOISE = Random(9).randbytes(1 << 20)

pytestmark = pytest.mark.root


@pytest.fixture
def small_target(tmp_path: Path) -> Iterator[Path]:
    """A tree on a filesystem of its own, of 32 MB."""
    with tmpfs(tmp_path / "disk", "size=32m") as place:
        tree = place / "tree"
        tree.mkdir()
        (tree / "keep").write_bytes(NOISE)
        (tree / "change").write_bytes(b"before\n" * 1000)
        (tree / "dir").mkdir()
        (tree / "dir" / "x").write_bytes(b"x\n")
        yield tree


def put_in(tree: Path, source: Path, megabytes: int) -> str:
    """A command that changes some and adds much; what it adds does not compress."""
    copies = "".join(f"cp '{source}' new{n} && " for n in range(megabytes))
    return f"echo after > change && rm -r dir && {copies} echo all done > last"


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    path = tmp_path / "noise"
    path.write_bytes(NOISE)
    return path


def same(before: dict, tree: Path) -> str:
    return differences(without_directory_times(before), without_directory_times(manifest(tree)))


def test_a_merge_for_which_the_tree_has_no_room_changes_nothing_and_is_held_until_there_is(
    small_target: Path, store: Path, noise: Path
) -> None:
    filler = fill(small_target.parent, leave=6 << 20)
    before = manifest(small_target)
    with takeback.open(str(store)) as tb:
        with tb.run("too much") as run:
            line = put_in(small_target, noise, 12)
            with pytest.raises(takeback.TakebackError) as full:
                run.command(["/bin/sh", "-c", line], cwd=str(small_target), timeout=ENOUGH)
            held = full.value.effect
            assert full.value.hint
        assert not same(before, small_target)
        assert held, "twelve megabytes of work were thrown away"
        filler.unlink()
        (kept,) = tb.apply([held])
        assert (small_target / "last").read_bytes() == b"all done\n"
        assert all((small_target / f"new{n}").read_bytes() == NOISE for n in range(12))
        tb.undo(kept.id)
        assert not same(before, small_target)
        assert not tb.verify().findings
    assert not list(small_target.rglob(".takeback-*"))


def test_an_undo_for_which_the_tree_has_no_room_changes_nothing_and_works_when_there_is(
    small_target: Path, store: Path
) -> None:
    (small_target / "large").write_bytes(NOISE * 12)
    before = manifest(small_target)
    with takeback.open(str(store)) as tb:
        with tb.run("remove") as run:
            line = "rm large && echo after > change && mkdir new"
            effect = run.command(["/bin/sh", "-c", line], cwd=str(small_target), timeout=ENOUGH).effect
        assert effect
        after = manifest(small_target)
        filler = fill(small_target.parent, leave=4 << 20)
        with pytest.raises(takeback.TakebackError) as full:
            tb.undo(effect.id)
        assert full.value.hint
        assert not same(after, small_target), "an undo without room left something between"
        filler.unlink()
        tb.recover()
        if tb.effect(effect.id).state != "undone":
            tb.undo(effect.id)
        assert not same(before, small_target)
    assert not list(small_target.rglob(".takeback-*"))


@pytest.mark.parametrize("left", [200_000, 3 << 20])
def test_a_store_without_room_refuses_the_command_or_its_merge_and_nothing_changes(
    tmp_path: Path, noise: Path, left: int
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "change").write_bytes(b"before\n" * 1000)
    (tree / "dir").mkdir()
    before = manifest(tree)
    with tmpfs(tmp_path / "small", "size=48m") as place:
        store = place / "store"
        with takeback.open(str(store)) as tb:
            filler = fill(place, leave=left)
            line = put_in(tree, noise, 8)
            ended: int | None = None
            with suppress(takeback.TakebackError), tb.run("too much") as run:
                # `cp` fails inside when the layer cannot grow; a failing command is dropped.
                ended = run.command(["/bin/sh", "-c", line], cwd=str(tree), timeout=ENOUGH).exit_code
            assert ended != 0, "a command that could not write all it wanted ended well"
            assert not same(before, tree)
            filler.unlink()
            with tb.run("again") as run:
                outcome = run.command(["/bin/sh", "-c", line], cwd=str(tree), timeout=ENOUGH)
            assert outcome.exit_code == 0, outcome
            assert outcome.effect
            tb.undo(outcome.effect.id)
            assert not same(before, tree)
            assert not tb.verify().findings
    assert not list(tree.rglob(".takeback-*"))


def test_a_watch_for_which_the_store_has_no_room_refuses_before_anything_runs(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(8):
        (tree / f"{number}").write_bytes(Random(number).randbytes(1 << 20))
    before = manifest(tree)
    with tmpfs(tmp_path / "small", "size=48m") as place, takeback.open(str(place / "store")) as tb:
        fill(place, leave=3 << 20)
        began = False
        with pytest.raises(takeback.TakebackError) as full:  # noqa: SIM117
            with tb.run("watch") as run, run.watch(str(tree)):
                began = True
                subprocess.run(["rm", "-rf", *[os.fspath(p) for p in tree.iterdir()]], check=True)
        assert full.value.hint
        assert not began, "a watch began without a complete before"
    assert not same(before, tree)


KILLED = """
import os, signal, sys, takeback
with takeback.open().run("watched") as run, run.watch(sys.argv[1]):
    open(os.path.join(sys.argv[1], "new"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("words", [["log"], ["status"], ["show", "@"], ["runs"], ["diff", "@", "--json"]])
def test_what_a_crash_left_does_not_keep_anyone_from_looking_at_a_full_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Its write-ahead file is there, so the store is not only read. Looking settles nothing, and tells of it."""
    tree = tmp_path / "tree"
    tree.mkdir()

    def told(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words],
            cwd=tree,
            capture_output=True,
            text=True,
            timeout=2 * ENOUGH,
            check=False,
        )

    with tmpfs(tmp_path / "small", "size=24m") as place:
        monkeypatch.setenv("TAKEBACK_STORE", str(place / "store"))
        assert told("-c", KILLED, str(tree)).returncode == -signal.SIGKILL
        filler = fill(place, leave=0)
        looked = told("-m", "takeback", *words)
        assert looked.returncode == 0, looked
        assert looked.stderr == "", looked.stderr
        if words[0] in ("log", "runs", "status"):
            assert "1 run died" in looked.stdout or "Dead" in looked.stdout, looked.stdout
        filler.unlink()
        assert "is recorded and stays" in told("-m", "takeback", "recover").stdout
        assert told("-m", "takeback", "undo").returncode == 0
    assert not list(tree.iterdir())


FILL = "for f in f*; do head -c 600000 /dev/zero > $f; done; head -c 40M /dev/urandom > big"


def in_place(tree: Path, store: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "takeback", *words], cwd=tree, env={**os.environ, "TAKEBACK_STORE": str(store)},
        capture_output=True, text=True, timeout=ENOUGH, check=False,
    )  # fmt: skip


def test_finding_r1_a_command_in_place_that_filled_the_disk_is_taken_back_its_new_files_first(
    small_target: Path, store: Path
) -> None:
    for number in range(12):
        (small_target / f"f{number}").write_bytes(NOISE[:500_000])
    before = manifest(small_target)
    ran = in_place(small_target, store, "run", "--in-place", "--", "sh", "-c", FILL)
    assert ran.returncode == 1, ran
    assert "taken back" in ran.stderr
    assert not same(before, small_target)


def test_finding_r1_what_went_first_comes_back_if_there_is_still_no_room(
    small_target: Path, store: Path
) -> None:
    """What goes does not make room enough for what comes: nothing is changed."""
    for number in range(12):
        (small_target / f"f{number}").write_bytes(NOISE[:500_000])
    line = "for f in f*; do : > $f; done; echo small > new"
    assert in_place(small_target, store, "run", "--in-place", "--", "sh", "-c", line).returncode == 0
    filler = fill(small_target.parent, leave=1 << 20)
    after = manifest(small_target)
    said = in_place(small_target, store, "undo")
    assert said.returncode == 5, said
    assert not same(after, small_target)
    assert (small_target / "new").read_text() == "small\n"
    filler.unlink()
    assert in_place(small_target, store, "undo").returncode == 0
    assert (small_target / "f3").stat().st_size == 500_000
    assert not (small_target / "new").exists()
