"""What a script exports is there for the next one, byte for byte, whichever shell it was written for."""

import shutil

import pytest

from takeback.runs.boxes.box import Box
from takeback.sandbox.shell_state import _exports
from tests.world import World

pytestmark = pytest.mark.root

ODD = [
    "",
    " ",
    "'",
    "''",
    "'a'b''",
    '"',
    "\\",
    "\\'",
    "$HOME `x`",
    "a\nexport B='c'\n",
    "=",
    "ä€",
    "\udcff\x01\x7f",
    "'\n'",
]
SHELLS = [name for name in ("sh", "bash", "busybox", "zsh") if shutil.which(name)]


@pytest.mark.parametrize("shell", SHELLS)
def test_odd_values_are_there_for_the_next_command(box: Box, world: World, shell: str) -> None:
    program = shutil.which(shell) or ""
    if shell == "busybox":
        (world.root / "ash").symlink_to(program)
        program = str(world.root / "ash")
    given = {f"ODD_{number}": value for number, value in enumerate(ODD)}
    lines = [f'export KEPT_{number}="$ODD_{number}"' for number in range(len(ODD))]
    box.run([program, "-c", "set -eu; export NOTHING; " + "; ".join(lines) + "; exit 0"], env=given)
    kept = {name: value for name, value in box.env.items() if name.startswith("KEPT_")}
    assert kept == {f"KEPT_{number}": value for number, value in enumerate(ODD)}
    assert "NOTHING" not in box.env and not any("takeback" in name for name in box.env)


@pytest.mark.parametrize(
    "script",
    [
        "set -e; false",
        "set -eu; cd /; rmdir /nowhere",
        "read() { exit 3; }; exit 1",
        "set -C; exit 1",
        "kill -9 $$",
    ],
)
def test_telling_does_not_change_how_a_script_ends(box: Box, script: str) -> None:
    assert box.run(script, on_failure="leave").exit_code == (137 if "kill" in script else 1)


def test_every_variable_may_be_exported(box: Box) -> None:
    box.run("set -a; one=1; cd /")
    assert box.env["one"] == "1" and box.cwd == "/"
    assert not any("takeback" in name for name in box.env)


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        (b"export A='1'\nexport B\nexport C='a'\"'\"'b\n'\n", {"A": "1", "C": "a'b\n"}),
        (b"export A='it'\\''s'\n", {"A": "it's"}),
        (b"export A=$'\\n'\n", {"A": "\n"}),
        (b"export A='1'\ndeclare -x B=\"2\"\n", {"A": "1", "B": "2"}),
        (b"export A='1'\nexport -T PATH path=( /bin /usr/bin )\n", {}),
        (b"export A='1", {}),
        (b"", {}),
    ],
)
def test_only_what_is_understood_is_taken(told: bytes, meant: dict[str, str]) -> None:
    assert _exports(told) == meant
