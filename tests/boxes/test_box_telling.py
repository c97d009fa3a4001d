"""Which directory and variables a command leaves to the next one; what cannot be left is told."""

import shutil
from pathlib import Path

import pytest

from takeback.runs.boxes.box import Box
from takeback.runs.run import Run
from tests.boxes.rootfs import make_rootfs
from tests.world import World

pytestmark = pytest.mark.root

ENDINGS = {
    "trap 'echo bye $?' EXIT; cd sub; export A=1; exit 0": b"bye 0\n",
    "trap 'echo bye' EXIT INT; cd sub; export A=1": b"bye\n",
    "set -eu; trap 'echo bye' 0; cd sub; export A=1; exit": b"bye\n",
    "trap 'echo no' EXIT; trap - EXIT; cd sub; export A=1; exit": b"",
    "f() { trap 'echo in f' EXIT; }; f; cd sub; export A=1; exit": b"in f\n",
    "(trap 'echo inner' EXIT; cd /; exit 4); cd sub; export A=1; exit 0": b"inner\n",
    "command trap 'echo bye' EXIT; cd sub; export A=1": b"bye\n",
}


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("script", ENDINGS)
def test_a_trap_of_its_own_takes_nothing_away(box: Box, world: World, shell: str, script: str) -> None:
    (world / "sub").mkdir()

    outcome = box.run([shell, "-c", script])

    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, ENDINGS[script], b"")
    assert outcome.cwd == str(world / "sub") and box.env["A"] == "1"
    assert outcome.untold == ""


def test_the_exit_code_is_that_of_the_trap_or_of_the_script(box: Box) -> None:
    assert box.run("trap 'echo $?; exit 7' EXIT; exit 3").exit_code == 7
    outcome = box.run("set -e; trap 'echo $?' EXIT; false; echo no")
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (1, b"1\n", b"")


def test_long_values_are_kept_and_those_that_no_program_takes_are_named(box: Box, world: World) -> None:
    (world / "sub").mkdir()
    long = box.run("export LONG=$(head -c 100000 /dev/zero | tr '\\0' x)")
    assert long.untold == "" and box.env["LONG"] == "x" * 100_000

    outcome = box.run(
        'export TOO_LONG=$(head -c 140000 /dev/zero | tr "\\0" x); export A="it\'s \\"\\$x\\\\" B=\'a\nb\'; cd sub'
    )

    assert outcome.exit_code == 0 and outcome.cwd == str(world / "sub")
    assert "TOO_LONG" not in box.env and (box.env["A"], box.env["B"]) == ("it's \"$x\\", "a\nb")
    assert box.env["LONG"] == "x" * 100_000
    assert outcome.text.endswith("Too long to be given to another command, and not kept: TOO_LONG.")
    assert box.run('printf "%s" "$A"').stdout == b"it's \"$x\\"


def test_bash_tells_odd_characters_too(box: Box) -> None:
    line = (
        "export L=$(head -c 140000 /dev/zero | tr '\\0' x) A=$'\\t\\e[1m\\x01é\\n\\'\"'; declare -x B='`$x`'"
    )
    assert box.run(["bash", "-c", line]).exit_code == 0
    assert (box.env["A"], box.env["B"]) == ("\t\x1b[1m\x01é\n'\"", "`$x`")


def test_a_shell_that_is_replaced_says_so(box: Box) -> None:
    outcome = box.run("cd /; exec true")

    assert outcome.cwd == box.cwd != "/"
    assert "Directory and variables are as they were before it" in outcome.text
    assert box.run(["true"]).untold == ""


def test_a_root_filesystem_without_dev_runs_commands_and_says_what_it_cannot_keep(
    run: Run, tmp_path: Path
) -> None:
    root = make_rootfs(tmp_path / "rootfs")
    shutil.rmtree(root / "dev", ignore_errors=True)
    with run.sandbox(root) as box:
        outcome = box.run("cd /etc; echo new > name")
        assert (outcome.exit_code, outcome.stderr) == (0, b"") and outcome.effect
        assert box.cwd == "/" and "no directory /dev" in outcome.text
        assert box.run("cat /etc/name").stdout == b"new\n"


def test_what_could_not_be_started_is_told(run: Run, box: Box, tmp_path: Path) -> None:
    outcome = box.run(["no-such-program"])
    assert outcome.exit_code == 127 and "could not be started (it was not found)" in outcome.text
    (tmp_path / "empty").mkdir()
    with run.sandbox(tmp_path / "empty") as other:
        outcome = other.run("true")
        assert outcome.exit_code == 127 and "could not be started" in outcome.text
