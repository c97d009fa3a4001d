"""undo redo keep checkpoint checkpoints, as a user types them."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World


def test_undo_without_a_name_takes_back_the_newest_and_then_the_one_before(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")
    takeback.write("a", "2")

    takeback.done("undo")
    assert (world / "a").read_text() == "1"
    takeback.done("undo")

    assert not (world / "a").exists()
    nothing = takeback("undo")
    assert (nothing.code, "nothing to undo" in nothing.err) == (3, True)


def test_undo_says_how_many_files_it_took_back_and_how_to_redo(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")

    said = takeback.done("undo")

    assert said.out.startswith("Took back 1 file in ")
    assert "hint: `takeback redo " in said.out


def test_redo_brings_back_what_was_undone_last(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    takeback.done("undo")

    said = takeback.done("redo")

    assert said.out.startswith("Brought back 1 file in ")
    assert (world / "a").read_text() == "1"
    assert takeback.effect()["state"] == "done"


def test_redo_brings_back_an_undo_of_several_as_the_hint_says(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    second = takeback.write("a", "2")
    undone = takeback.done("undo", first["id"], "--cascade")

    redone = takeback.done("redo")
    assert (world / "a").read_text() == "2"
    takeback.done("undo", first["id"], second["id"])

    assert undone.out.splitlines()[-1] == "hint: `takeback redo` brings them back."
    assert redone.out.splitlines()[-1].endswith(" takes them back again.")
    assert {first["id"][:8], second["id"][:8]} <= set(redone.out.splitlines()[-1].replace("`", " ").split())
    assert not (world / "a").exists()


def test_redo_by_the_id_of_what_was_undone(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1")
    takeback.done("undo", first["id"][:8])
    takeback.done("undo")

    takeback.done("redo", first["id"][:8])

    assert ((world / "a").exists(), (world / "b").exists()) == (True, False)


def test_redo_of_what_was_not_undone_is_refused(takeback: CommandLine) -> None:
    takeback.write("a", "1")

    assert takeback("redo").code == 3
    assert takeback("redo", "@").code == 3


def test_the_result_of_an_undo_as_json(takeback: CommandLine, world: World) -> None:
    effect = takeback.write("a", "1")

    result = takeback.done("undo", "@", "--json").json

    assert result["outcome"] == "done"
    assert result["effects"] == [{"id": effect["id"], "state": "undone"}]
    (target,) = result["targets"]
    assert (target["resource"], target["outcome"]) == (f"file://{world / 'a'}", "undone")


def test_undo_of_an_early_effect_leaves_later_independent_ones(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1")

    takeback.done("undo", first["id"])

    assert ((world / "a").exists(), (world / "b").exists()) == (False, True)


def test_undo_of_what_later_effects_stand_on_is_refused_and_names_them(
    takeback: CommandLine, world: World
) -> None:
    first = takeback.write("a", "1")
    second = takeback.write("a", "2")

    refused = takeback("undo", first["id"], "--json")
    assert (refused.code, refused.json["outcome"]) == (3, "refused")
    assert refused.json["blocked_by"] == [second["id"]]
    assert second["id"][:8] in takeback("undo", first["id"]).err
    takeback.done("undo", first["id"], "--cascade")

    assert not (world / "a").exists()


def test_undo_of_something_edited_since_is_refused_and_names_the_path(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1\n")
    (world / "a").write_text("mine\n")

    said = takeback("undo")
    as_json = takeback("undo", "--json")

    assert said.code == 3
    assert ": a is now 5 bytes" in said.err
    assert (as_json.code, as_json.json["outcome"]) == (3, "refused")
    assert [target["outcome"] for target in as_json.json["targets"]] == ["conflict"]
    assert (world / "a").read_text() == "mine\n"


def test_force_overwrites_and_redo_brings_the_foreign_edit_back(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1\n")
    takeback.write("a", "2\n")
    (world / "a").write_text("mine\n")

    takeback.done("undo", "--force")
    assert (world / "a").read_text() == "1\n"
    said = takeback.done("redo")

    assert (world / "a").read_text() == "mine\n"
    # The foreign edit is there again, so plain undo would be refused again; what the hint says is not.
    (hint,) = re.findall(r"^hint: `takeback (.+)` takes it back again\.$", said.out, re.MULTILINE)
    assert hint.endswith(" --force")
    takeback.done(*hint.split())
    assert (world / "a").read_text() == "1\n"


@pytest.mark.needs("git")
def test_merge_keeps_both_edits(takeback: CommandLine, world: World) -> None:
    lines = [f"{n}\n" for n in range(20)]
    takeback.write("a", "".join(lines))
    takeback.write("a", "".join(["agent\n", *lines[1:]]))
    (world / "a").write_text("".join(["agent\n", *lines[1:19], "mine\n"]))

    takeback.done("undo", "--merge")

    assert (world / "a").read_text() == "".join([*lines[:19], "mine\n"])


@pytest.mark.needs("git")
@pytest.mark.parametrize("way", [["run"], ["run", "--in-place"]], ids=" ".join)
def test_first_day_8_a_commit_is_taken_back_after_git_status(
    takeback: CommandLine, world: World, way: list[str]
) -> None:
    git = "git -c user.name=a -c user.email=a@example.org"
    repository = world / "repository"
    repository.mkdir()
    line = f"git init -q; echo 1 > a; {git} add a; {git} commit -qm first"
    subprocess.run(["sh", "-ec", line], cwd=repository, check=True)
    first = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True
    ).stdout
    second = f"cd repository; echo 2 > a; git add a; {git} commit -qm second"
    takeback.done(*way, "--", "sh", "-ec", second)
    subprocess.run(["sh", "-ec", "touch a; git status"], cwd=repository, check=True, capture_output=True)

    said = takeback.done("undo")

    assert (repository / "a").read_text() == "1\n"
    now = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True).stdout
    assert now == first
    assert len(re.findall("git objects", said.out)) == 1
    status = subprocess.run(["git", "status", "-s"], cwd=repository, check=True, capture_output=True).stdout
    assert status == b""


@pytest.mark.parametrize("later", [["run", "--", "mv", "b", "c"], ["mv", "b", "c"], ["mv", "d", "c"]])
def test_no_merge_brings_back_what_a_later_effect_moved_on(
    takeback: CommandLine, world: World, later: list[str]
) -> None:
    """It would be there twice."""
    (world / "d").mkdir()
    (world / "a").write_text("a\n")
    takeback.done("run", "--", "mv", "a", "d/b" if "d" in later else "b")
    takeback.done(*later)
    before = world.picture()

    said = takeback("undo", "@~1", "--merge")

    assert (said.code, world.picture()) == (3, before)
    assert "Later effects depend on this one" in said.err
    takeback.done("undo", "@~1", "--cascade")
    assert (world / "a").read_text() == "a\n"
    assert not (world / "c").exists()


def test_an_edit_of_a_moved_file_travels_back_with_it(takeback: CommandLine, world: World) -> None:
    """So it stands in the README and in docs/concepts/undo.md."""
    (world / "a").write_text("a\n")
    (world / "b").write_text("b\n")
    takeback.done("mv", "-f", "a", "b")
    (world / "b").write_text("a\nmine\n")

    takeback.done("undo")

    assert ((world / "a").read_text(), (world / "b").read_text()) == ("a\nmine\n", "b\n")


def test_a_file_in_the_place_of_a_moved_one_is_said_to_be_another(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("a\n")
    takeback.done("mv", "a", "b")
    (world / "new").write_text("b\n")
    os.replace(world / "new", world / "b")  # as `sed -i` does

    said = takeback("undo")

    assert said.code == 3
    assert "error: b was replaced since and is not what was moved there." in said.err
    assert "--force` moves the present one instead." in said.err
    takeback.done("undo", "--force")
    assert ((world / "a").read_text(), (world / "b").exists()) == ("b\n", False)


def test_skip_conflicts_does_the_rest_and_exits_with_1(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    second = takeback.write("b", "1")
    (world / "a").write_text("mine")

    said = takeback("undo", first["id"], second["id"], "--skip-conflicts", "--json")

    assert (said.code, said.json["outcome"]) == (1, "partial")
    assert ((world / "a").read_text(), (world / "b").exists()) == ("mine", False)


def test_skipping_everything_is_refused_and_exits_with_3(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    (world / "a").write_text("mine")

    said = takeback("undo", "--skip-conflicts", "--json")

    assert (said.code, said.json["outcome"]) == (3, "refused")


def test_a_redo_that_would_destroy_someones_work_speaks_of_redo(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1\n")
    takeback.done("undo")
    (world / "a").write_text("mine\n")

    said = takeback("redo")

    assert said.code == 3
    assert "so redo would overwrite those changes" in said.err


def test_a_redo_under_later_effects_does_not_speak_of_options_it_lacks(takeback: CommandLine) -> None:
    first = takeback.write("a", "1\n")
    takeback.done("undo")
    takeback.write("a", "2\n")

    said = takeback("redo", first["id"])

    assert said.code == 3
    assert "--cascade" not in said.err


def test_a_dry_run_of_undo_and_redo_changes_nothing(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    before = world.picture(directory_times=True)

    said = takeback.done("undo", "--dry-run")
    assert said.out.startswith("Would take back 1 effect")
    assert takeback.done("undo", "--dry-run", "--json").json["outcome"] == "planned"
    assert world.picture(directory_times=True) == before
    takeback.done("undo")

    assert takeback.done("redo", "--dry-run").out.startswith("Would bring back 1 effect")
    assert not (world / "a").exists()


def test_undo_of_a_whole_run(takeback: CommandLine, world: World) -> None:
    for name in "abc":
        takeback.write(name, "1", "--run", "deploy")
    takeback.write("other", "1")

    takeback.done("undo", "--run", "deploy")

    assert sorted(path.name for path in world.root.iterdir()) == ["other"]


def test_undo_takes_a_run_by_its_name_too_but_ids_come_first(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1", "--run", first["id"][:8])
    takeback.write("c", "1", "--run", "of Tuesday")

    takeback.done("undo", "of Tuesday")
    assert sorted(path.name for path in world.root.iterdir()) == ["a", "b"]
    takeback.done("undo", first["id"][:8])

    assert [path.name for path in world.root.iterdir()] == ["b"]


def test_a_run_that_is_not_there_is_to_be_found_among_the_runs(takeback: CommandLine) -> None:
    takeback.write("a", "1")

    said = takeback("undo", "--run", "zz")

    assert (said.code, said.err.splitlines()[1]) == (2, "hint: `takeback runs` lists them.")


# Dies when the file is replaced and that is not recorded yet.
DYING = """
import os, signal, sys, takeback
run = takeback.open().session("command line", "cli")
run.write(sys.argv[1], "2", checks=[takeback.checks.after(lambda: os.kill(os.getpid(), signal.SIGKILL))])
"""


def test_undo_without_a_name_does_not_pass_over_what_is_stuck(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    subprocess.run([sys.executable, "-c", DYING, world / "b"], env=surroundings(), check=False)
    (world / "b").write_text("someone else's")

    said = takeback("undo")
    as_json = takeback("undo", "--json")

    stuck = takeback.effect("@")
    assert (stuck["state"], said.code, as_json.code) == ("stuck", 4, 4)
    assert f"The newest effect, {stuck['id'][:8]} (write b" in said.err
    assert f"`takeback show {stuck['id'][:8]}`" in said.err
    assert (as_json.json["outcome"], as_json.json["error"]["effect"]) == ("stuck", stuck["id"])
    assert (world / "a").read_text() == "1"
    takeback.done("undo", first["id"])
    (world / "b").unlink()
    takeback.done("recover")
    assert "nothing to undo" in takeback("undo").err


def test_undo_without_a_name_does_not_pass_over_what_is_being_made(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")
    os.mkfifo(world / "started")
    os.mkfifo(world / "go on")
    check = "sh -c 'test -f {staged}; echo > started; cat \"go on\"'"
    child = subprocess.Popen(
        [*COMMAND, "write", "b", "--run", "other", "--check", check], cwd=world.root, env=surroundings(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with open(world / "started") as waiting:
        waiting.read()

    said = takeback("undo")

    with open(world / "go on", "w"):
        pass
    assert child.wait(30) == 0
    assert (said.code, "is still being made" in said.err) == (5, True)
    assert (world / "a").read_text() == "1"


def test_undo_with_needs_takes_what_it_was_built_on(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    second = takeback.write("b", "1", "--needs", first["id"])

    assert takeback("undo", first["id"]).code == 3
    takeback.done("undo", second["id"], "--with-needs")

    assert list(world.root.iterdir()) == []


def test_undo_twice_is_refused_with_a_hint(takeback: CommandLine) -> None:
    effect = takeback.write("a", "1")
    takeback.done("undo", effect["id"])

    said = takeback("undo", effect["id"])

    assert said.code == 3
    assert "already undone" in said.err
    assert "hint: " in said.err


@pytest.mark.parametrize(
    "words", [("undo", "nosuchid"), ("undo", ""), ("undo", "@~99"), ("undo", "@x"), ("show", "nosuchid"),
              ("accept",), ("undo", "@", "--run", "x"), ("undo", "--merge", "--force"), ("diff", "zzzz")],
)  # fmt: skip
def test_an_effect_that_cannot_be_meant_is_misuse(takeback: CommandLine, words: tuple[str, ...]) -> None:
    takeback.write("a", "1")

    said = takeback(*words)

    assert said.code == 2, said
    assert "hint: " in said.err


def test_an_ambiguous_beginning_is_told(takeback: CommandLine) -> None:
    ids: list[str] = []
    while not any(a[0] == b[0] for n, a in enumerate(ids) for b in ids[:n]):
        ids.append(takeback.write(f"f{len(ids)}", "1")["id"])
    twice = next(a[0] for n, a in enumerate(ids) for b in ids[:n] if a[0] == b[0])

    said = takeback("show", twice)

    assert (said.code, "ambiguous" in said.err) == (2, True)


def test_keep_marks_effects_and_undo_of_the_run_leaves_them(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1")

    (kept,) = takeback.done("accept", first["id"], "--json").json
    takeback.done("undo", "--run", "command line")

    assert (kept["accepted"], kept["id"]) == (True, first["id"])
    assert ((world / "a").exists(), (world / "b").exists()) == (True, False)


def test_keep_takes_runs_by_name_beside_effects_as_undo_does(takeback: CommandLine) -> None:
    ours = [takeback.write(name, "1", "--run", "deploy")["id"] for name in ("a", "b")]
    other, left = (takeback.write(name, "1", "--run", "other")["id"] for name in ("c", "d"))

    kept = takeback.done("accept", "deploy", ours[1], other, "--json").json

    assert [one["id"] for one in kept] == [*ours, other]
    assert not takeback.effect(left)["accepted"]
    assert takeback("accept", "nobody").code == 2


def test_keep_of_a_run_keeps_everything_it_did(takeback: CommandLine) -> None:
    for name in "ab":
        takeback.write(name, "1", "--run", "deploy")

    takeback.done("accept", "--run", "deploy")

    assert [one["accepted"] for one in takeback.done("log", "--json").json] == [True, True]


def test_checkpoint_and_back_to_it_with_the_agents_state(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    (world / "state.json").write_text('{"step": 4, "rate": 0.5}')
    point = takeback.done("checkpoint", "before", "--state", "state.json", "--json").json
    takeback.write("a", "2")
    takeback.write("b", "1")

    result = takeback.done("undo", "--to", "before", "--json").json

    assert point["label"] == "before"
    assert result["state"] == {"step": 4, "rate": 0.5}
    assert ((world / "a").read_text(), (world / "b").exists()) == ("1", False)


def test_going_back_to_a_point_with_nothing_after_it_is_no_error(takeback: CommandLine) -> None:
    takeback.done("checkpoint", "here")

    assert "Nothing to take back" in takeback.done("undo", "--to", "here").out


def test_checkpoints_are_listed_newest_first(takeback: CommandLine) -> None:
    for label in ("one", "two"):
        takeback.done("checkpoint", label)

    listed = takeback.done("checkpoints")
    assert [point["label"] for point in takeback.done("checkpoints", "--json").json] == ["two", "one"]
    assert listed.out.index("two") < listed.out.index("one")


def test_a_checkpoint_in_another_run(takeback: CommandLine) -> None:
    effect = takeback.write("a", "1", "--run", "deploy")

    point = takeback.done("checkpoint", "p", "--run", "deploy", "--json").json

    assert point["run"] == effect["run"]
    assert [one["label"] for one in takeback.done("checkpoints", "--run", "deploy", "--json").json] == ["p"]


@pytest.mark.parametrize("state", ["{ not json", ""])
def test_a_state_that_is_not_json_is_misuse(takeback: CommandLine, world: World, state: str) -> None:
    (world / "state.json").write_text(state)

    assert takeback("checkpoint", "p", "--state", "state.json").code == 2
    assert takeback("checkpoint", "p", "--state", "missing.json").code == 2
    assert takeback("checkpoint", "p", "--state", "-", input=state).code == 2
    assert takeback("checkpoint", " ").code == 2


def test_the_name_of_a_checkpoint_is_escaped_once_and_the_hint_can_be_typed(takeback: CommandLine) -> None:
    odd = takeback.done("checkpoint", "a\x1b[31m").out
    spaced = takeback.done("checkpoint", "before all").out

    assert odd.startswith("Created checkpoint 'a\\x1b[31m' (")
    assert "`takeback undo --to 'before all'` returns to it." in spaced
    takeback.done("undo", *odd.splitlines()[1].split("`")[1].split()[2:])


def test_an_unknown_checkpoint_is_misuse_as_any_other_name_is(takeback: CommandLine) -> None:
    takeback.write("a", "1")

    said = takeback("undo", "--to", "nowhere", "--json")

    assert said.code == 2
    assert json.loads(said.out)["error"]["message"] == "There is no checkpoint 'nowhere' in this project."
