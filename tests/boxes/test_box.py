"""A box as an agent uses it: one command after another, each with a way back."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.errors import KeyReused, Misuse, Refused, StoreBusy
from takeback.runs.boxes.box import Box
from takeback.runs.run import Run
from tests.boxes.rootfs import make_rootfs
from tests.world import World

pytestmark = pytest.mark.root
LIMIT = 240


def names(box: Box, directory: object = ".") -> list[str]:
    return box.run(["ls", str(directory)]).stdout.decode().split()


def test_what_a_command_leaves_is_there_for_the_next_and_nobody_else(box: Box, world: World) -> None:
    outcome = box.run("echo one > a && mkdir d && echo two > d/b")

    assert outcome.ok and outcome.effect and outcome.effect.state == "done"
    assert box.run("cat a d/b").stdout == b"one\ntwo\n"
    assert os.listdir(world.root) == []
    assert [(one.kind, os.path.relpath(one.path, world.root)) for one in outcome.changes] == [
        ("added", "a"),
        ("added", "d"),
        ("added", "d/b"),
    ]


def test_a_failing_command_leaves_nothing_and_says_so(box: Box, world: World) -> None:
    box.run("echo good > a")

    outcome = box.run("echo bad > a; touch b; cd /; export X=1; exit 3")

    assert (outcome.exit_code, outcome.effect, outcome.dropped) == (3, None, True)
    assert "exit code 3" in outcome.text and "dropped" in outcome.text and str(world.root) in outcome.text
    assert box.run("cat a; ls; pwd; echo $X").stdout.decode().split() == ["good", "a", str(world.root)]


def test_a_failing_command_may_be_kept(box: Box) -> None:
    outcome = box.run("echo half > a; exit 1", on_failure="leave")

    assert outcome.exit_code == 1 and outcome.effect
    assert names(box) == ["a"]


@pytest.mark.parametrize("line", ["true", "cat /etc/passwd", "exit 4", "touch x; rm x", "ls /nowhere"])
def test_a_command_that_changes_nothing_leaves_no_layer_and_no_effect(
    box: Box, tb: Takeback, line: str
) -> None:
    outcome = box.run(line)

    assert outcome.effect is None and not outcome.dropped
    assert "changed nothing" in outcome.text
    assert box.history() == ()
    box.close()
    assert [one for one in os.scandir(Path(tb.path) / "layers" / box.id) if one.is_dir()] == []


def test_directory_and_variables_follow_and_go_back(box: Box, world: World) -> None:
    box.run("mkdir d; cd d; export NAME='a b' OTHER=x")
    assert box.cwd == str(world.root / "d")
    assert box.run('pwd; echo "$NAME"').stdout.decode() == f"{world.root}/d\na b\n"
    box.run("unset OTHER; export NAME=c; cd ..")
    assert box.run("echo $NAME ${OTHER-gone}").stdout == b"c gone\n"

    box.undo()

    assert box.run('pwd; echo "$NAME" $OTHER').stdout.decode() == f"{world.root}/d\na b x\n"
    box.undo()
    assert box.run("pwd; echo ${NAME-gone}").stdout.decode() == f"{world.root}\ngone\n"


def test_variables_given_for_one_command_are_not_kept(box: Box) -> None:
    assert box.run("echo $ONCE; echo x > a", env={"ONCE": "now"}).stdout == b"now\n"
    assert box.run("echo ${ONCE-gone}").stdout == b"gone\n"


WIPE = "rm -rf * .[!.]* ../* ../../*; find . .. ../.. ../../.. -mindepth 1; touch x ../x && echo made; cd ..; ls -A"


@pytest.mark.parametrize("how", ["removed", "moved", "a file", "a loop"])
@pytest.mark.parametrize("program", ["sh", "bash"])
def test_a_command_whose_directory_is_gone_has_an_empty_one(
    box: Box, world: World, how: str, program: str
) -> None:
    place = world / "d" / "e"
    place.mkdir(parents=True)
    (world / "precious").write_text("x")
    box.run(f"cd {place}")
    if how == "moved":
        place.rename(world / "aside")
    else:
        place.rmdir()
        if how == "a file":
            place.write_text("")
        elif how == "a loop":
            place.symlink_to("e")

    outcome = box.run([program, "-c", WIPE], on_failure="leave")

    assert outcome.stdout == b"", outcome
    assert outcome.gone == box.cwd == str(place)
    assert "cannot be entered any more" in outcome.text and "`cd`" in outcome.text
    assert [one for one in box.changes() if "precious" in one.path] == []
    assert box.run(f"cd {world.root}; pwd").stdout.decode() == f"{world.root}\n"
    assert "precious" in names(box) and box.cwd == str(world.root)


@pytest.mark.parametrize("program", ["sh", "bash"])
def test_a_command_that_removes_its_own_directory_leads_to_no_other(
    box: Box, world: World, program: str
) -> None:
    (world / "precious").write_text("x")
    box.run(
        [
            program,
            "-c",
            'mkdir t; cd t; touch y; rm -r ../t; export LEFT=over; [ -z "$BASH_VERSION" ] || set -o posix',
        ]
    )

    outcome = box.run("rm -rf *; echo $LEFT")

    assert outcome.stdout == b"over\n" and box.cwd == outcome.gone == str(world / "t")
    assert box.changes() == ()
    box.run(f"mkdir {world / 't'}")
    assert box.run("pwd; touch made").stdout.decode() == f"{world / 't'}\n"
    assert names(box, world / "t") == ["made"]


def test_a_directory_that_is_gone_from_another_base_is_no_other_place(
    run: Run, world: World, tmp_path: Path
) -> None:
    base = make_rootfs(tmp_path / "root")
    with run.sandbox(base) as box:
        box.run("mkdir /t; cd /t; rm -r /t; touch /precious")

        outcome = box.run("rm -rf *; rm -rf ../*")

        assert outcome.gone == "/t" and [one.path for one in box.changes()] == [
            str(tmp_path / "root/precious")
        ]


FORKS = """
import os, sys, takeback
with takeback.open(sys.argv[1]) as tb, tb.run("parent") as run, run.sandbox(cwd=sys.argv[2]) as box:
    box.run("touch a")
    if not (child := os.fork()):
        try:
            box.run("touch never")
        except takeback.Misuse as error:
            sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print(box.run("ls").stdout)
    with tb.store.layers().alone(box.id) as mine:
        print(mine)
    box.run("touch b")
    box.commit()
"""


def test_a_forked_child_ends_nothing_of_its_parent(store: Path, world: World) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORKS, store, world.root],
        timeout=LIMIT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (said.returncode, said.stdout, said.stderr) == (0, "7\nb'a\\n'\nFalse\n", "")
    assert sorted(os.listdir(world.root)) == ["a", "b"]


def test_steps_are_taken_back_and_brought_back(box: Box, tb: Takeback) -> None:
    for name in "abcd":
        box.run(f"touch {name}")

    result = box.undo(2)
    assert result.outcome == "done" and names(box) == ["a", "b"]

    assert [step.state for step in box.history()] == ["done", "done", "undone", "undone"]
    box.run("touch e")
    assert names(box) == ["a", "b", "e"]
    box.undo(to=box.history()[0])
    assert names(box) == ["a"]


def test_undo_goes_to_a_step_or_a_checkpoint(box: Box, run: Run) -> None:
    first = box.run("touch a").effect
    run.checkpoint("two files soon")
    box.run("touch b")
    box.run("touch c")

    box.undo(to="two files soon")
    assert names(box) == ["a"]
    box.run("touch d")
    assert first
    box.undo(to=first)
    assert names(box) == ["a"]


def test_more_steps_than_there_are_cannot_be_taken_back(box: Box) -> None:
    with pytest.raises(Refused, match="no step"):
        box.undo()
    box.run("touch a")
    with pytest.raises(Refused, match="only 1 step"):
        box.undo(2)
    with pytest.raises(Misuse):
        box.undo(0)
    assert names(box) == ["a"]


def test_two_branches_go_on_from_one_point(box: Box) -> None:
    box.run("echo both > a; cd /tmp; export X=1; cd -")
    with box.branch() as other:
        other.run("echo other > b")
        box.run("echo mine > c")

        assert other.run("cat a b; ls; echo $X").stdout == b"both\nother\na\nb\n1\n"
        assert box.run("cat a c; ls").stdout == b"both\nmine\na\nc\n"
        other.undo()
        assert names(other) == ["a"]
    assert names(box) == ["a", "c"]


def test_a_run_that_fails_takes_the_box_back(tb: Takeback, world: World) -> None:
    with pytest.raises(RuntimeError), tb.run("fails") as run:
        box = run.sandbox(cwd=world.root)
        box.run("touch a")
        box.run("cd /")
        box.close()
        raise RuntimeError
    with tb.run("looks") as run, run.sandbox(box=box.id) as again:
        assert names(again) == [] and again.cwd == str(world.root)
        assert [step.state for step in again.history()] == ["undone", "undone"]


def test_a_box_is_gone_on_with_by_another_process(store: Path, world: World) -> None:
    with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo 1 > a; export X=1; mkdir d; cd d")
        id = box.id
    with takeback.open(store) as tb, tb.run("second") as run, run.sandbox(box=id[:8]) as box:
        assert box.run("cat ../a; echo $X; pwd").stdout.decode() == f"1\n1\n{world.root}/d\n"
        box.run("touch b")
        box.undo(2)
        assert names(box) == []


def test_undo_from_outside_moves_the_box(box: Box, tb: Takeback) -> None:
    box.run("touch a")
    effect = box.run("touch b").effect
    assert effect

    result = tb.undo(effect)
    assert names(box) == ["a"]

    tb.undo(result.undo[0])
    assert names(box) == ["a", "b"]


def test_an_earlier_step_alone_is_blocked_by_the_later_ones(box: Box, tb: Takeback) -> None:
    first = box.run("touch a").effect
    box.run("touch b")
    assert first
    with pytest.raises(Refused, match="Later effects"):
        tb.undo(first)
    tb.undo(first, cascade=True)
    assert names(box) == []


def test_a_key_is_done_once(box: Box) -> None:
    box.run("echo x >> a", key="once")
    again = box.run("echo x >> a", key="once")

    assert again.effect and again.exit_code == 0
    assert box.run("cat a").stdout == b"x\n"
    with pytest.raises(KeyReused):
        box.run("echo y >> a", key="once")


def test_output_and_input_are_the_commands_own(box: Box) -> None:
    outcome = box.run("cat; echo err >&2; echo more > /dev/stderr; echo again > /dev/stdout", stdin=b"in\xff")

    assert outcome.stdout == b"in\xffagain\n"
    assert outcome.stderr == b"err\nmore\n"
    assert len(box.run("head -c 3000000 /dev/zero").stdout) == 3_000_000


def test_what_makes_no_sense_is_refused(box: Box) -> None:
    for wrong in ({"timeout": -1}, {"timeout": float("nan")}, {"memory": -1}, {"on_failure": "hold"}):
        with pytest.raises(Misuse):
            box.run("true", **wrong)  # type: ignore[arg-type]
    for command in ("", [], ["a\0b"]):
        with pytest.raises(Misuse):
            box.run(command)
    box.close()
    with pytest.raises(Misuse, match="closed"):
        box.run("true")


def test_a_time_limit_ends_it_and_drops_what_it_did(box: Box) -> None:
    outcome = box.run("touch a; sleep 300", timeout=0.3)

    assert outcome.stopped == "time" and outcome.dropped and outcome.exit_code == 124
    assert "longer" in outcome.text
    assert names(box) == []


def test_processes_in_the_background_end_with_their_command(box: Box) -> None:
    outcome = box.run("(sleep 300; touch late) & touch a")

    assert outcome.ok and outcome.leftover and "background" in outcome.text
    assert names(box) == ["a"]


def test_one_command_at_a_time(box: Box, run: Run) -> None:
    with run.sandbox(box=box.id) as same:
        inside, go_on = threading.Event(), threading.Event()
        held = box._layers.working(box.id)  # pyright: ignore[reportPrivateUsage]

        def hold() -> None:
            with held:
                inside.set()
                go_on.wait(120)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            assert inside.wait(120)
            with pytest.raises(StoreBusy):
                same.run("true")
        finally:
            go_on.set()
            thread.join(120)
        assert same.run("true").ok


def test_several_boxes_work_at_the_same_time(run: Run, world: World) -> None:
    boxes = [run.sandbox(cwd=world.root) for _ in range(3)]
    try:
        threads = [
            threading.Thread(target=lambda box=box, n=n: [box.run(f"echo {n} >> a") for _ in range(3)])
            for n, box in enumerate(boxes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert [box.run("cat a").stdout for box in boxes] == [b"0\n" * 3, b"1\n" * 3, b"2\n" * 3]
    finally:
        for box in boxes:
            box.close()


def test_the_store_is_not_visible_inside(box: Box, tb: Takeback) -> None:
    assert box.run(["ls", "-A", tb.path]).stdout == b""
    assert not box.run(f"rm -rf {tb.path}/* && echo x > {tb.path}/journal.db").ok
    assert tb.verify().sound


def test_everything_is_discarded_in_one_step_which_can_be_taken_back(box: Box, world: World) -> None:
    assert box.discard() is None
    box.run("touch a; cd /; export X=1")
    box.run("touch /tmp/takeback-test-b")

    assert box.discard()
    assert names(box) == [] and box.cwd == str(world.root) and "X" not in box.env

    box.undo()
    assert box.cwd == "/" and names(box, world.root) == ["a"]


def test_a_root_filesystem_of_its_own(run: Run, tmp_path: Path) -> None:
    root = make_rootfs(tmp_path / "rootfs")
    with run.sandbox(root) as box:
        assert box.cwd == "/"
        assert box.run("cat /etc/name; ls /").stdout.decode().split()[:2] == ["small", "bin"]
        changed = box.run("echo changed > /etc/name; mv /usr /opt; mkdir /srv; cd /srv").changes
        assert {os.path.relpath(one.path, root) for one in changed} >= {"etc/name", "usr", "opt", "srv"}
        assert box.run("pwd; cat /etc/name; ls -d /usr /opt").stdout == b"/srv\nchanged\n/opt\n"
        assert (root / "etc" / "name").read_text() == "small\n"
        box.undo()
        assert box.run("cat /etc/name").stdout == b"small\n"
