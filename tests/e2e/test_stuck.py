"""Killed in the middle of a merge or of taking one back, and then someone wrote into the same file: a person gets out
of that, path by path, and nobody's bytes are lost."""

import os
import pwd
import re
from collections.abc import Callable

import pytest

from tests.e2e.conftest import CommandLine
from tests.e2e.test_telling import make_stuck, pasted, python
from tests.world import World

pytestmark = pytest.mark.root

# Dies when everything is in place and nothing of what it displaced is removed.
DYING = """
import os, signal, sys
from takeback.adapters.tree.apply import Carrier
from takeback.frontends.cli.answer import answer
Carrier._clear = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(answer(sys.argv[1:]))
"""
GetStuck = Callable[[CommandLine, World], str]
LINE = "echo new > a; sed -i s/old/new/ b; chmod 600 c; mkdir d; echo new > d/e"


def files(world: World) -> dict[str, str]:
    found = {path.relative_to(world.root).as_posix(): path for path in world.root.rglob("*")}
    return {name: path.read_text() if path.is_file() else "" for name, path in sorted(found.items())}


def before(world: World) -> dict[str, str]:
    for name in "abc":
        (world / name).write_text("old\n" + 5 * "more\n")
    return files(world)


def add_mine(world: World) -> None:
    (world / "b").write_text((world / "b").read_text() + "mine\n")


def killed(world: World, *words: str) -> None:
    assert python(world, DYING, *words).code == -9


def stuck_merge(takeback: CommandLine, world: World) -> str:
    """Half-merged, and someone changed b since."""
    killed(world, "run", "--", "sh", "-c", LINE)
    add_mine(world)
    assert takeback("recover").code == 4
    (effect,) = takeback.done("log", "--json").json
    assert effect["state"] == "stuck"
    return effect["id"]


def stuck_undo(takeback: CommandLine, world: World) -> str:
    takeback.done("run", "--", "sh", "-c", LINE)
    id = takeback.effect("@")["id"]
    killed(world, "undo")
    add_mine(world)
    assert takeback("recover").code == 4
    return id


def states(takeback: CommandLine) -> list[str]:
    return sorted(one["state"] for one in takeback.done("log", "--json").json)


def test_recover_names_the_path_that_is_someone_elses_and_the_ways_out(
    takeback: CommandLine, world: World
) -> None:
    before(world)
    id = stuck_merge(takeback, world)[:8]

    said = takeback("recover")

    assert said.code == 4
    assert ": needs a person: b is now 34 bytes" in said.out
    assert f"`takeback undo {id} --force` captures the present content and overwrites it" in said.err
    assert f"`takeback undo {id} --skip-conflicts` does the rest" in said.err


def test_undo_of_a_half_merged_command_refuses_for_the_one_path_and_touches_nothing(
    takeback: CommandLine, world: World
) -> None:
    before(world)
    id = stuck_merge(takeback, world)
    now = files(world)

    said = takeback("undo", id)

    assert (said.code, files(world)) == (3, now)
    assert "b is now 34 bytes" in said.err
    assert takeback.effect(id)["state"] == "stuck"


@pytest.mark.parametrize("get_stuck", [stuck_merge, stuck_undo])
def test_force_ends_it_and_redo_gives_back_what_was_overwritten(
    takeback: CommandLine, world: World, get_stuck: GetStuck
) -> None:
    old = before(world)
    id = get_stuck(takeback, world)
    half = files(world)
    assert "mine" in half["b"]

    said = takeback.done("undo", id, "--force")

    assert files(world) == old
    assert (world / "c").stat().st_mode & 0o777 == 0o644
    assert " is no longer stuck." in said.out
    assert takeback.effect(id)["state"] == "undone"
    assert "stuck" not in states(takeback)
    assert re.fullmatch(r"Run \S+ \(.*\): ended; .*\n", takeback.done("recover").out)
    assert takeback.done("recover").out == "Nothing to recover: every effect is settled.\n"
    takeback.done("redo")
    assert files(world)["b"] == half["b"]


@pytest.mark.parametrize("get_stuck", [stuck_merge, stuck_undo])
def test_skip_ends_it_and_leaves_that_path_alone(
    takeback: CommandLine, world: World, get_stuck: GetStuck
) -> None:
    old = before(world)
    id = get_stuck(takeback, world)
    mine = files(world)["b"]

    said = takeback("undo", id, "--skip-conflicts", "--json")

    assert (said.code, said.json["outcome"]) == (1, "partial")
    assert [
        one["resource"].rpartition("/")[2] for one in said.json["targets"] if one["outcome"] == "conflict"
    ] == ["b"]
    assert said.json["settled"]
    assert files(world) == old | {"b": mine}
    assert "stuck" not in states(takeback)
    takeback.write("b", "goes on")


@pytest.mark.parametrize("get_stuck", [stuck_merge, stuck_undo])
def test_merge_keeps_what_someone_added(takeback: CommandLine, world: World, get_stuck: GetStuck) -> None:
    old = before(world)
    id = get_stuck(takeback, world)

    takeback.done("undo", id, "--merge")

    assert files(world) == old | {"b": old["b"] + "mine\n"}
    assert "stuck" not in states(takeback)


def test_a_stuck_undo_can_be_taken_back_itself_so_that_all_stays(takeback: CommandLine, world: World) -> None:
    before(world)
    id = stuck_undo(takeback, world)
    (undo,) = [one["id"] for one in takeback.done("log", "--json").json if one["state"] == "stuck"]

    takeback.done("undo", undo, "--force")

    assert (files(world)["a"], files(world)["b"], files(world)["d/e"]) == (
        "new\n",
        "new\n" + 5 * "more\n",
        "new\n",
    )
    assert takeback.effect(id)["state"] == "done"
    takeback.done("log")
    takeback("recover")
    assert files(world)["a"] == "new\n", "the undo that was given up went on by itself"


def test_one_file_that_someone_else_wrote_is_left_or_overwritten_as_a_person_says(
    takeback: CommandLine, world: World
) -> None:
    (world / "b").write_text("1")
    id = make_stuck(takeback, world)
    assert takeback("write", "b", input="3").code == 3

    left = takeback("undo", id, "--skip-conflicts")

    assert ("no longer stuck" in left.out, (world / "b").read_text()) == (True, "someone else's")
    takeback.done("undo", id, "--force")
    assert (world / "b").read_text() == "1"
    takeback.write("b", "3")


def test_what_someone_put_right_by_hand_is_settled_by_undo_too(takeback: CommandLine, world: World) -> None:
    (world / "b").write_text("1")
    id = make_stuck(takeback, world)
    (world / "b").write_text("1")

    assert takeback.done("undo", id).out.startswith("Nothing to take back")
    assert takeback.effect(id)["state"] == "aborted"


def test_every_way_out_that_is_told_can_be_gone(takeback: CommandLine, world: World) -> None:
    before(world)
    stuck_merge(takeback, world)
    said = takeback("recover")
    said = said._replace(
        out="", err=said.err.split(", `takeback undo")[0]
    )  # the first way; then there is no other

    assert pasted(takeback, said)
    assert "stuck" not in states(takeback)


# The ladder: each rung is recorded, and the last one is a person's.


def rungs(takeback: CommandLine, id: str) -> list[tuple[str, str]]:
    return [(one["rung"], one["outcome"]) for one in takeback.done("show", id, "--json").json["ladder"]]


@pytest.mark.parametrize("stuck", [stuck_merge, stuck_undo], ids=["merge", "undo"])
def test_every_rung_is_recorded_and_shown(
    takeback: CommandLine, world: World, stuck: Callable[[CommandLine, World], str]
) -> None:
    before(world)
    id = stuck(takeback, world)  # recovery has found it stuck
    for _ in range(5):
        assert takeback("recover").code == 4
    tried = [("retry", "stuck")] * 3 + [("person", "asked")]
    assert rungs(takeback, id) == tried
    status = takeback.done("status")
    assert "tried last: person: asked" in status.out
    assert takeback.done("status", "--json").json["ladder"][-1]["rung"] == "person"

    takeback.done("undo", id, "--force")
    assert rungs(takeback, id) == [*tried, ("another way", "done")]
    assert takeback.done("status", "--json").json["ladder"] == []
    assert "another way: done: undo, on_conflict=force" in takeback.done("show", id).out


@pytest.mark.parametrize("stuck", [stuck_merge, stuck_undo], ids=["merge", "undo"])
def test_what_is_left_is_accepted_by_a_person_with_a_reason(
    takeback: CommandLine, world: World, stuck: Callable[[CommandLine, World], str]
) -> None:
    before(world)
    id = stuck(takeback, world)
    now = files(world)
    assert "--accept-residue" in takeback.done("show", id).out or stuck is stuck_undo
    for refused, code in (
        (("--accept-residue",), 2),
        (("--accept-residue", "--happened", "--why", "so"), 2),
        (("--happened", "--why", "so"), 2),
    ):
        assert takeback("settle", id, *refused).code == code
    said = takeback("settle", id, "--accept-residue", "--why", "so", CLAUDECODE="1")
    assert (said.code, "is for a person" in said.err) == (3, True)
    assert takeback.done("settle", id, "--accept-residue", "--why", "so", "--dry-run").out.endswith(
        "would be accepted.\n"
    )
    assert "stuck" in states(takeback)

    takeback.done("settle", id, "--accept-residue", "--why", "the host is gone", "--by", "bea")

    assert "stuck" not in states(takeback)
    assert rungs(takeback, id)[-1] == ("accepted residue", "accepted")
    shown = takeback.done("show", id)
    me = pwd.getpwuid(os.getuid()).pw_name
    assert f"accepted residue: accepted by {me}: the host is gone" in shown.out
    assert "accepted" in shown.out
    left = {name: text for name, text in files(world).items() if ".takeback" not in name}
    assert left == {name: text for name, text in now.items() if ".takeback" not in name}
    assert takeback.done("recover").code == 0
    assert takeback("settle", id, "--accept-residue", "--why", "again").code == 3
    takeback.done("verify", "--read-data")


def test_nothing_is_left_of_what_is_not_stuck(takeback: CommandLine) -> None:
    takeback.write("a", "x")
    said = takeback("settle", "@", "--accept-residue", "--why", "so")
    assert said.code == 3
    assert "no undo of it is stuck" in said.err
