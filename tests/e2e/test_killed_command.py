"""takeback is killed while a command runs in the sandbox: what the command had changed becomes a drop, once."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import takeback as api
from takeback.model.effect import DropReason, State
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.e2e.test_running_as_user import Person, home, person  # noqa: F401 fixtures
from tests.sandbox.scenes import USER
from tests.world import World

WORK = "echo new > a; mkdir d; echo x > d/y; rm gone; echo ready; "
FOR_EVER = WORK + "exec sleep 600"


@pytest.fixture
def store(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAKEBACK_STORE", str(store))
    return store


@pytest.fixture
def before(world: World) -> Any:
    (world / "a").write_text("old\n")
    (world / "gone").write_text("there\n")
    return world.picture()


def killed_while(world: World, *words: str) -> None:
    """A command that says `ready`; then its takeback is killed."""
    with subprocess.Popen(
        words, cwd=world.root, env=surroundings(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        process.kill()


def killed_at(world: World, patch: str, *words: str) -> None:
    """The command line, in a process that kills itself where the patch says so."""
    code = f"""
import os, signal, sys
from takeback.frontends.cli.main import main

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
sys.argv = ["takeback", *sys.argv[1:]]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=world.root, env=surroundings(), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done


def made(world: World) -> bool:
    there = (world / "a").read_text() == "new\n" and (world / "d" / "y").read_text() == "x\n"
    return there and not (world / "gone").exists()


def drops(store: Path) -> list[api.Effect]:
    with api.open(store) as tb:
        return list(tb.effects(state="dropped"))


def test_what_a_killed_command_had_changed_is_shown_and_then_dropped(
    takeback: CommandLine, world: World, store: Path, before: Any
) -> None:
    killed_while(world, *COMMAND, "run", "--", "sh", "-c", FOR_EVER)
    assert world.picture() == before
    status = takeback.done("status")
    assert (
        "saves the changes of its command as a drop; `takeback apply` can make them"
        in status.out + status.err
    )
    assert takeback.done("status", "--json").json["dead"][0]["command"].startswith("sh -c")
    dry = takeback.done("recover", "--dry-run")
    assert "the changes of its killed command (sh -c" in dry.out
    assert not drops(store), "looking records nothing"

    said = takeback.done("recover")
    (drop,) = drops(store)
    assert f"dropped, and `takeback apply {drop.id[:8]}` makes it" in said.out
    assert drop.dropped and drop.dropped.reason is DropReason.KILLED
    assert world.picture() == before
    assert os.listdir(store / "commands") == []
    assert "Nothing to recover" in takeback.done("recover").out

    takeback.done("apply", drop.id)
    assert made(world)
    takeback.done("undo")
    assert world.picture() == before


def test_the_next_change_drops_it_too(takeback: CommandLine, world: World, store: Path, before: Any) -> None:
    killed_while(world, *COMMAND, "run", "--", "sh", "-c", FOR_EVER)
    takeback.done("run", "--dry-run", "--", "true")
    assert not drops(store), "a dry run leaves it where it is"
    said = takeback.done("write", "b", input="b\n")
    (drop,) = drops(store)
    assert f"takeback apply {drop.id[:8]}" in said.err
    takeback.done("apply", drop.id)
    assert made(world)


AT_ITS_END = "import takeback.runs.commands.execute as execute; execute._merged = die"
BEFORE_THE_RECORD = "from takeback.runs.commands import merge; merge.drop = die"
AFTER_THE_RECORD = "from takeback.runs.commands import merge; merge.remove_all = die"
AFTER_THE_MERGE = "from takeback.runs.commands import scratch; scratch.remove_all = die"


@pytest.mark.parametrize("code", [0, 1])
def test_killed_when_the_command_had_just_ended(
    takeback: CommandLine, world: World, store: Path, before: Any, code: int
) -> None:
    killed_at(world, AT_ITS_END, "run", "--", "sh", "-c", f"{WORK} exit {code}")
    assert world.picture() == before
    takeback.done("recover")
    (drop,) = drops(store)
    takeback.done("apply", drop.id)
    assert made(world)


def test_recovery_that_is_killed_twice_drops_it_once(
    takeback: CommandLine, world: World, store: Path, before: Any
) -> None:
    killed_while(world, *COMMAND, "run", "--", "sh", "-c", FOR_EVER)
    killed_at(world, BEFORE_THE_RECORD, "recover")
    assert not drops(store)
    killed_at(world, AFTER_THE_RECORD, "recover")
    (drop,) = drops(store)
    takeback.done("recover")
    assert [one.id for one in drops(store)] == [drop.id]
    assert os.listdir(store / "commands") == []
    takeback.done("apply", drop.id)
    assert made(world)
    assert takeback.done("verify").code == 0


@pytest.mark.parametrize("code", [0, 1])
def test_what_was_merged_or_dropped_before_the_kill_is_not_dropped_again(
    takeback: CommandLine, world: World, store: Path, before: Any, code: int
) -> None:
    killed_at(world, AFTER_THE_MERGE, "run", "--", "sh", "-c", f"{WORK} exit {code}")
    known = [one.id for one in drops(store)]
    assert len(known) == code
    takeback.done("recover")
    assert [one.id for one in drops(store)] == known
    assert os.listdir(store / "commands") == []


def test_killed_at_random_moments_it_is_dropped_or_nothing_was_begun(
    takeback: CommandLine, world: World, store: Path, before: Any
) -> None:
    """The command goes on writing; a drop holds a beginning of what it wrote, without a gap."""
    script = "n=0; while :; do n=$((n+1)); echo $n > n$n; echo $n; done"
    for lines in (1, 2, 5, 20, 100):
        with subprocess.Popen(
            [*COMMAND, "run", "--", "sh", "-c", script], cwd=world.root, env=surroundings(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout
            for _ in range(lines):
                process.stdout.readline()
            process.kill()
        assert world.picture() == before
        takeback.done("recover")
        drop = max(drops(store), key=lambda one: one.seq)
        names = {one.resource.rpartition("/")[2] for one in drop.targets} - {world.root.name}
        assert len(names) >= lines
        assert names == {f"n{number + 1}" for number in range(len(names))}
    assert len(drops(store)) == 5


def test_while_something_still_works_there_it_is_left_and_said(
    takeback: CommandLine, world: World, store: Path, before: Any
) -> None:
    killed_while(world, *COMMAND, "run", "--", "sh", "-c", FOR_EVER)
    (name,) = os.listdir(store / "commands")
    directory = os.open(store / "commands" / name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_SH)  # it waits for the process that ends the command
        said = takeback("recover")
        assert "has not ended yet; `takeback recover` looks again" in said.err
        assert not drops(store)
    finally:
        os.close(directory)
    takeback.done("recover")
    assert len(drops(store)) == 1


def test_no_process_of_the_command_is_left_when_it_is_dropped(
    takeback: CommandLine, world: World, store: Path, before: Any
) -> None:
    pipe = world / "pipe"
    os.mkfifo(pipe)
    script = f"exec 3<>{pipe}; (sleep 600 & sleep 600 &) ; {FOR_EVER}"
    killed_while(world, *COMMAND, "run", "--", "sh", "-c", script)
    takeback.done("recover")
    assert len(drops(store)) == 1
    found = [one for one in os.listdir("/proc") if one.isdigit() and b"sleep\x00600" in command_of(one)]
    assert not found


def command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_where_nothing_may_be_dropped_it_is_said_and_cleared(
    takeback: CommandLine, world: World, store: Path, before: Any
) -> None:
    takeback.done("write", "b", input="b\n")
    (store / "settings.json").write_text('{"dropped_seconds": 0}')
    killed_while(world, *COMMAND, "run", "--", "sh", "-c", FOR_EVER)
    said = takeback.done("recover")
    assert "are lost: `dropped_seconds` is 0" in said.err
    assert not drops(store)
    assert os.listdir(store / "commands") == []


def test_a_killed_run_of_a_program_drops_what_its_command_had_changed(
    world: World, store: Path, before: Any
) -> None:
    """Effects of the run go back, what its command had changed is a drop."""
    code = f"""
import sys, takeback
tb = takeback.open({str(store)!r})
with tb.run("agent", on_death="undo") as run:
    run.write({str(world / "b")!r}, "b")
    run.command({FOR_EVER!r}, capture=False)
"""
    killed_while(world, sys.executable, "-c", code)
    with api.open(store) as tb:
        (dead,) = tb.dead_runs()
        assert dead.command.startswith("echo new > a")
        assert {one.outcome for one in tb.recover()} == {"undone", "dropped"}
        assert world.picture() == before
        (drop,) = tb.effects(state="dropped")
        tb.apply(drop)
        assert made(world)
        assert tb.effect(drop.id).state is State.DONE


@pytest.mark.root
@pytest.mark.able("user namespaces")
def test_of_an_ordinary_user_too(person: Person) -> None:  # noqa: F811
    (person.work / "a").write_text("old\n")
    (person.work / "gone").write_text("there\n")
    for name in ("a", "gone"):
        os.chown(person.work / name, USER, USER)
    # The command cannot reach its takeback: another process of the user ends it.
    watcher = (
        f'{person.home.python} -I -B -c \'import sys; sys.path[:0] = ["{person.home.library}"]; '
        "from takeback.frontends.cli.main import main; main()' run -- sh -c '"
        + FOR_EVER
        + "' > said & p=$!; "
        "until grep -q ready said; do :; done; kill -9 $p; wait $p; rm said"
    )
    person.does("sh", "-c", watcher)
    assert (person.work / "a").read_text() == "old\n"
    said = person.takeback("recover")
    assert "` makes it" in said.stdout, said
    name = said.stdout.split("takeback apply ")[1].split("`")[0]
    assert person.takeback("apply", name).returncode == 0
    assert (person.work / "a").read_text() == "new\n"
    assert not (person.work / "gone").exists()
