"""`run.command`: a command as one effect, from Python."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import takeback
from takeback.runs.commands.scratch import clear, remove_all, workshop
from tests.world import World


@pytest.fixture
def tb(store: Path) -> "takeback.Takeback":
    with takeback.open(store) as opened:
        yield opened  # pyright: ignore[reportReturnType]


def test_a_command_tells_what_it_said_and_what_it_changed(tb: takeback.Takeback, world: World) -> None:
    with tb.run("build") as run:
        outcome = run.command("cat; echo err >&2; echo hi > new", cwd=world.root, stdin=b"given\n")
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, b"given\n", b"err\n")
    assert [(one.kind, one.path, one.size) for one in outcome.changes] == [("added", str(world / "new"), 3)]
    assert outcome.effect
    assert outcome.effect.change.args["coverage"] == outcome.coverage
    assert "takeback undo" in outcome.text
    assert (world / "new").read_text() == "hi\n"


def test_a_run_that_fails_takes_its_commands_back_with_the_rest(tb: takeback.Takeback, world: World) -> None:
    (world / "a").write_text("old")
    before = world.picture()

    def work() -> None:
        with tb.run("fails") as run:
            run.write(world / "b", "by us")
            run.command("echo new > a; mkdir -p d/e; mv b c", cwd=world.root)
            assert not (world / "b").exists()
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        work()
    assert world.picture() == before


def test_what_a_run_holds_outlives_it(tb: takeback.Takeback, world: World) -> None:
    with tb.run("careful") as run:
        held = run.command("echo x > a", cwd=world.root, hold=True)
        run.write(world / "b", "b")
    assert held.held
    assert held.effect
    assert not (world / "a").exists()
    (kept,) = tb.apply(held.effect)
    assert kept.state is takeback.State.DONE
    assert (world / "a").read_text() == "x\n"
    tb.undo(kept)
    assert not (world / "a").exists()


def test_what_is_held_and_dropped_never_happened(tb: takeback.Takeback, world: World) -> None:
    with tb.run("careful") as run:
        held = run.command("echo x > a", cwd=world.root, hold=True).effect
        assert held
        with pytest.raises(takeback.Refused, match="is held and was not made") as refused:
            run.undo(held)
        assert f"takeback discard {held.id[:8]}" in refused.value.hint
        assert run.discard(held).outcome == "done"
    with pytest.raises(takeback.Refused):
        tb.undo(held)
    assert tb.effect(held.id).state is takeback.State.DROPPED
    assert tb.sweep(grace=0) >= 0


def test_what_an_open_run_holds_is_decided_on_by_the_store_as_well(
    tb: takeback.Takeback, store: Path, world: World
) -> None:
    with tb.run("careful") as run:
        first, second, third = (
            run.command(f"echo {name} > {name}", cwd=world.root, hold=True).effect for name in "abc"
        )
        assert first and second and third
        (kept,) = tb.apply(first)
        assert tb.discard(second)[0].state is takeback.State.DROPPED
        with takeback.open(store) as elsewhere, pytest.raises(takeback.LeaseHeld):
            elsewhere.apply(third)
        run.write(world / "d", "the run goes on")
    assert kept.state is takeback.State.DONE and kept.accepted_by == "person"
    tb.apply(third)
    assert sorted(os.listdir(world.root)) == ["a", "c", "d"]


def test_what_is_held_keeps_its_contents_until_it_is_decided(tb: takeback.Takeback, world: World) -> None:
    content = os.urandom(300_000)
    with tb.run("careful") as run:
        held = run.command("cat > a", cwd=world.root, stdin=content, hold=True).effect
    assert held
    tb.forget()
    tb.sweep(grace=0)
    tb.apply(held)
    assert (world / "a").read_bytes() == content


def test_an_effect_made_while_another_was_held_comes_before_it(tb: takeback.Takeback, world: World) -> None:
    (world / "a").write_text("one")
    with tb.run("first") as run:
        held = run.command("echo x > b", cwd=world.root, hold=True).effect
        between = run.write(world / "b-other", "y")
        assert held
        assert between
    tb.apply(held)
    assert tb.effect(held.id).order > tb.effect(between.id).order > tb.effect(held.id).seq
    tb.undo(between)  # nothing of it stands on the held one


@pytest.mark.parametrize(
    ("command", "options", "what"),
    [
        ("", {}, "empty"),
        ([], {}, "words"),
        (["a\0b"], {}, "zero byte"),
        ("true", {"timeout": -1}, "time limit"),
        ("true", {"timeout": float("nan")}, "time limit"),
        ("true", {"memory": -1}, "memory"),
        ("true", {"cwd": "/nonexistent"}, "directory"),
        ("true", {"on_failure": "pray"}, "pray"),
        ("true", {"env": {"A=B": "c"}}, "environment"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    tb: takeback.Takeback, command: "str | list[str]", options: dict[str, object], what: str
) -> None:
    with tb.run("wrong") as run:
        with pytest.raises(takeback.Misuse, match=what):
            run.command(command, **options)  # pyright: ignore[reportArgumentType]
        assert run.effects() == ()


def test_several_threads_run_commands_of_one_run(tb: takeback.Takeback, world: World) -> None:
    with tb.run("busy") as run:
        outcomes: list[int] = []
        threads = [
            threading.Thread(
                target=lambda n=n: outcomes.append(run.command(f"echo {n} > f{n}", cwd=world.root).exit_code)
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
    assert outcomes == [0] * 4
    assert sorted(os.listdir(world.root)) == ["f0", "f1", "f2", "f3"]


def test_what_a_dead_process_left_in_the_workshop_is_cleared(tmp_path: Path) -> None:
    place = tmp_path / "commands"
    code = (
        "import os, sys\nfrom takeback.runs.commands.scratch import workshop\n"
        "with workshop(sys.argv[1]) as mine:\n    os.mkdir(mine + '/closed', 0)\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(place)], check=True, timeout=120)
    assert len(os.listdir(place)) == 1
    with workshop(str(place)) as mine:
        assert os.listdir(place) == [os.path.basename(mine)]
        assert clear(str(place)) == 0  # ours is alive
    assert os.listdir(place) == []


@pytest.mark.parametrize("order", ["the layer's form first", "another file first"])
def test_half_of_a_layer_is_cleared_and_not_waited_for(tmp_path: Path, order: str) -> None:
    """As a process leaves it that is killed while it removes a merged layer; directories list in any order."""
    place = tmp_path / "commands"
    code = (
        "import os, sys\nfrom takeback.runs.commands.scratch import workshop\n"
        "with workshop(sys.argv[1]) as mine:\n    os.mkdir(mine + '/layer')\n"
        "    open(mine + '/about.json', 'w').close()\n    open(mine + '/layer/file', 'w').close()\n"
        "    open(mine + '/layer/layer.json', 'w').close()\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(place)], check=True, timeout=120)
    (left,) = place.iterdir()
    assert clear(str(place)) == 0 and left.exists()  # whole: it is saved as a drop first
    if order == "another file first":
        removed: list[str] = []

        def unlink(self: object, name: str, *, dir_fd: int) -> None:
            removed.append(name)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("takeback.runs.commands.scratch.Freeing.unlink", unlink)
            remove_all(str(left))
        assert removed
    else:
        (left / "layer" / "layer.json").unlink()
    assert left.exists() and clear(str(place)) == 1 and not left.exists()


def test_a_layer_that_arrives_while_others_are_cleared_is_not_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last process of a killed command puts its layer there: each directory is judged right before it goes."""
    place = tmp_path / "commands"
    code = (
        "import os, sys\nfrom takeback.runs.commands.scratch import workshop\n"
        "with workshop(sys.argv[1]) as mine:\n    open(mine + '/about.json', 'w').close()\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(place)], check=True, timeout=120)
    (first,) = place.iterdir()
    second = place / first.name.replace(".", "0.", 1)
    shutil.copytree(first, second)
    gone: list[str] = []

    def remove(path: str) -> None:
        gone.append(path)
        remove_all(path)
        for left in place.iterdir():
            (left / "layer").mkdir()
            (left / "layer" / "layer.json").touch()

    monkeypatch.setattr("takeback.runs.commands.scratch.remove_all", remove)

    assert clear(str(place)) == 1
    assert len(gone) == 1 and {str(one) for one in place.iterdir()} == {str(first), str(second)} - set(gone)


def test_removing_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("x")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")
    remove_all(str(tmp_path / "inside"))
    assert (tmp_path / "outside" / "precious").read_text() == "x"
    assert not (tmp_path / "inside").exists()


def test_what_is_held_and_could_not_be_made_is_held_again(tb: takeback.Takeback, world: World) -> None:
    (world / "d").mkdir()
    (world / "d" / "old").write_text("old")
    with tb.run("careful") as run:
        held = run.command("mv d e; echo work > result", cwd=world.root, hold=True).effect
    assert held
    (world / "d" / "new").write_text("someone's")
    before = world.picture()
    with pytest.raises(takeback.Refused) as refused:
        tb.apply(held)
    assert world.picture() == before
    (again,) = [one for one in tb.effects() if one.waits_for]
    assert again.id[:8] in refused.value.hint or again.id == held.id
    (world / "d" / "new").unlink()
    tb.apply(again, force=True)
    assert (world / "result").read_text() == "work\n"
    assert (world / "e" / "old").read_text() == "old"
    tb.undo(again)
    assert (world / "d" / "old").read_text() == "old"
    assert not (world / "result").exists()


def test_who_is_killed_while_he_makes_what_was_held_leaves_it_held(
    tb: takeback.Takeback, world: World, store: Path
) -> None:
    with tb.run("careful") as run:
        held = run.command(
            "for n in 1 2 3 4 5 6 7 8 9; do echo $n > f$n; done", cwd=world.root, hold=True
        ).effect
    assert held
    code = (
        "import os, sys, takeback\n"
        "from takeback.adapters.tree.swap import Swap\n"
        "swap, count = Swap.swap, [0]\n"
        "def dying(self):\n"
        "    count[0] += 1\n"
        "    if count[0] == 4: os._exit(9)\n"
        "    return swap(self)\n"
        "Swap.swap = dying\n"
        "takeback.open(sys.argv[1]).apply(sys.argv[2])\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(store), held.id], check=False, timeout=240)
    assert died.returncode == 9
    assert 0 < len(os.listdir(world.root)) < 20
    with takeback.open(store) as again:
        assert again.recover()
        assert os.listdir(world.root) == []
        (waiting,) = [one for one in again.effects() if one.waits_for]
        again.apply(waiting)
        assert len(os.listdir(world.root)) == 9
