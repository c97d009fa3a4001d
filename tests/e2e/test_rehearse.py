"""`takeback rehearse`, as a person at a shell sees it."""

import pytest

from tests.e2e.conftest import CommandLine
from tests.world import World


@pytest.fixture
def two(takeback: CommandLine, world: World) -> CommandLine:
    takeback.write("a.conf", "one\n")
    takeback.write("a.conf", "two\n")
    return takeback


def test_the_newest_effect_is_rehearsed_and_stays(two: CommandLine, world: World) -> None:
    before = world.picture(directory_times=True)

    said = two.done("rehearse")

    line, summary = said.out.splitlines()
    assert "works  write a.conf (4 bytes) (file, snapshot, " in line
    assert summary.startswith("Rehearsed 1 effect in ") and summary.endswith(
        ": 1 works. Nothing was changed."
    )
    assert world.picture(directory_times=True) == before
    assert two.done("log", "--json").json[0]["state"] == "done"


def test_the_answer_as_json_and_the_exit_codes(two: CommandLine, world: World) -> None:
    older = two.effect("@~1")["id"]

    alone, cascade = two("rehearse", older, "--json"), two("rehearse", older, "--cascade", "--json")
    (world / "a.conf").write_text("person\n")
    broken, looked = two("rehearse", "--json"), two("rehearse", "--check", "--json")

    assert [one.code for one in (alone, cascade, broken, looked)] == [3, 0, 1, 1]
    assert [one.json["outcome"] for one in (alone, cascade, broken)] == ["partial", "works", "fails"]
    assert [one["outcome"] for one in cascade.json["effects"]] == ["works", "works"]
    assert alone.error["exit_code"] == 3
    told = broken.json["effects"][0]
    assert (told["adapter"], told["strategy"], told["targets"][0]["outcome"]) == ("file", "snapshot", "fails")
    assert (looked.json["check"], broken.json["check"]) == (True, False)


def test_status_shows_when_each_kind_was_proven_and_what_is_unfit(two: CommandLine, world: World) -> None:
    assert "never tried" in two.done("rehearse", "--status").out
    two.done("rehearse", "--due")
    assert two.done("rehearse", "--due").out == "Nothing is due: each kind of remedy was proven.\n"
    (told,) = two.done("rehearse", "--status", "--json").json["kinds"]
    assert (told["adapter"], told["strategy"], told["outcome"]) == ("file", "snapshot", "works")
    assert told["tried_at"] == told["worked_at"]
    assert "1 kind proven by a rehearsal" in two("doctor").out

    (world / "a.conf").write_text("person\n")
    two("rehearse")

    (unfit,) = two.done("rehearse", "--status", "--json").json["unfit"]
    assert unfit["id"] == two.effect()["id"]
    assert "Unfit " in two.done("status").out
    assert two.done("status", "--json").json["unfit"][0]["effect"] == unfit["id"]
    assert "1 way back failed when last tried" in two("doctor").out


def test_a_dry_run_says_what_would_be_tried(two: CommandLine) -> None:
    records = two.done("status", "--json").json["records"]

    said = two.done("rehearse", "--all", "--dry-run")

    assert said.out.endswith("Would rehearse 2 effects of 2.\n")
    assert two.done("status", "--json").json["records"] == records


def test_a_plan_is_rehearsed(two: CommandLine, world: World) -> None:
    (world / "plan.toml").write_text('[[step]]\nrun = "rm a.conf"\n')

    said = two.done("rehearse", "--plan", "plan.toml")

    assert "planned   works  run rm a.conf (tree, snapshot, " in said.out
    assert (world / "a.conf").read_text() == "two\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--all", "--plan", "x"), ("@", "--all"), ("--run", "x", "--due"), ("--plan", "x", "--check"),
        ("--plan", ""), ("--status", "--all"), ("absent",), ("--plan", "absent"), ("--run", "absent"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_makes_no_sense_is_refused(two: CommandLine, words: tuple[str, ...]) -> None:
    said = two("rehearse", *words)
    assert said.code == 2
    assert said.err.count("\n") == 2  # a sentence and a hint


def test_without_a_store_there_is_nothing_to_rehearse(takeback: CommandLine, tmp_path: object) -> None:
    said = takeback("rehearse", "--all", TAKEBACK_STORE="", XDG_STATE_HOME=f"{tmp_path}/state")
    assert (said.code, said.out.startswith("Nothing recorded yet")) == (0, True)
    assert takeback("rehearse", TAKEBACK_STORE="", XDG_STATE_HOME=f"{tmp_path}/state").code == 2
