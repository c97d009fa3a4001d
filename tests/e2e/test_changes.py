"""write rm mv mkdir ln chmod edit, as a user types them."""

import json
import os
import re
import stat

import pytest

from tests.e2e.conftest import CommandLine
from tests.world import World


def test_write_puts_standard_input_into_a_file_and_says_so(takeback: CommandLine, world: World) -> None:
    said = takeback.done("write", "a.txt", input="hello\n")

    assert (world / "a.txt").read_bytes() == b"hello\n"
    assert said.out.startswith("Wrote a.txt (6 bytes) in ")
    assert said.err == ""


def test_write_answers_with_the_effect_as_json(takeback: CommandLine, world: World) -> None:
    effect = takeback.write("a.txt", b"hello\n", "--mode", "640")

    assert effect["changed"] is True
    assert effect["state"] == "done"
    assert (effect["kind"], effect["resource"]) == ("write", f"file://{world / 'a.txt'}")
    assert effect["strategy"] == "snapshot"
    assert effect["agent"] == "cli"
    assert effect["targets"][0]["before"] == {"type": "absent"}
    assert stat.S_IMODE((world / "a.txt").stat().st_mode) == 0o640


def test_every_field_that_interface_promises_is_there(takeback: CommandLine) -> None:
    promised = "id run agent seq kind resource summary state accepted pinned strategy reason exact residue"

    effect = takeback.write("a.txt", b"x")

    assert {*promised.split(), "undoes", "undone_by", "needs", "key", "at", "targets"} <= set(effect)
    assert set(effect["targets"][0]) == {"resource", "before", "after"}


def test_writing_what_is_there_already_leaves_no_effect(takeback: CommandLine) -> None:
    takeback.write("a.txt", b"same")

    again = takeback.write("a.txt", b"same")

    assert again == {"changed": False, "id": None}
    assert len(takeback.done("log", "--json").json) == 1


def test_a_check_that_says_no_stops_the_write(takeback: CommandLine, world: World) -> None:
    takeback.write("a.json", b"{}")
    before = world.picture()

    said = takeback("write", "a.json", "--check", "python3 -m json.tool {staged}", input="{ not json")

    assert said.code == 3
    assert said.err.startswith("error: The check ")
    assert "hint: Nothing was changed" in said.err
    assert world.picture() == before


def test_a_check_that_says_yes_lets_it_pass(takeback: CommandLine, world: World) -> None:
    takeback.done("write", "a.json", "--check", "python3 -m json.tool {staged}", input="{}")

    assert (world / "a.json").read_bytes() == b"{}"


def test_content_larger_than_memory_allows_is_streamed(takeback: CommandLine, world: World) -> None:
    content = os.urandom(1 << 20) * 10

    takeback.write("big", content)

    assert (world / "big").read_bytes() == content


def test_empty_content_is_content(takeback: CommandLine, world: World) -> None:
    takeback.write("empty", b"")

    assert (world / "empty").read_bytes() == b""


@pytest.mark.parametrize("words", [("write", "a.txt"), ("rm", "old"), ("mv", "old", "new"), ("mkdir", "d"),
                                   ("ln", "old", "l"), ("chmod", "600", "old"), ("rm", "tree")])  # fmt: skip
def test_a_dry_run_changes_nothing_and_makes_no_store(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    (world / "old").write_text("old")
    (world / "tree" / "inner").mkdir(parents=True)
    before = world.picture(directory_times=True)

    said = takeback.done(*words, "--dry-run", input="new")

    assert said.out.startswith("Would ")
    assert world.picture(directory_times=True) == before
    assert not os.path.exists(os.environ["TAKEBACK_STORE"])


def test_a_dry_run_tells_a_script_what_would_be_touched(takeback: CommandLine, world: World) -> None:
    (world / "old").write_text("old")

    plan = takeback.done("rm", "old", "--dry-run", "--json").json

    assert plan["dry_run"] is True
    assert plan["changes"][0]["resources"] == [f"file://{world / 'old'}"]
    assert plan["changes"][0]["possible"] is True


def test_rm_removes_a_whole_directory_and_undo_brings_it_back(takeback: CommandLine, world: World) -> None:
    for name in ("d/a", "d/e/b"):
        (world / name).parent.mkdir(parents=True, exist_ok=True)
        (world / name).write_text(name)
    before = world.picture()

    takeback.done("rm", "-r", "d")
    assert not (world / "d").exists()
    takeback.done("undo")

    assert world.picture() == before


def test_rm_of_several_paths_does_what_it_can_and_says_what_it_could_not(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("a")
    (world / "b").write_text("b")

    said = takeback("rm", "a", "missing", "b")

    assert said.code == 1
    assert not (world / "a").exists()
    assert not (world / "b").exists()
    assert "error: " in said.err
    assert "missing" in said.err


def test_a_dry_run_of_rm_of_several_paths_ends_as_the_real_one(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("1")

    said = takeback("rm", "a", "missing", "--dry-run")
    as_json = takeback("rm", "a", "missing", "--dry-run", "--json")
    neither = takeback("rm", "gone", "missing", "--dry-run")

    assert "Would delete a; undo would be exact.\nWould be refused: missing does not exist" in said.out
    assert [one["possible"] for one in as_json.json["changes"]] == [True, False]
    assert (neither.code, takeback("rm", "gone", "missing").code) == (2, 2)
    assert (said.code, as_json.code, takeback("rm", "a", "missing").code) == (1, 1, 1)


def test_rm_of_several_paths_as_json_has_effects_and_errors(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a")

    said = takeback("rm", "a", "missing", "--json")

    assert [effect["kind"] for effect in said.json["effects"]] == ["delete"]
    assert [error["exit_code"] for error in said.json["errors"]] == [2]


def test_rm_f_does_not_mind_what_is_not_there(takeback: CommandLine) -> None:
    assert takeback.done("rm", "-rf", "missing", "--json").json == {"changed": False, "id": None}


def test_mv_renames_or_moves_into_a_directory(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a")
    (world / "d").mkdir()

    takeback.done("mv", "a", "b")
    takeback.done("mv", "b", "d")
    assert (world / "d" / "b").read_text() == "a"
    takeback.done("undo")
    takeback.done("undo")

    assert (world / "a").read_text() == "a"


@pytest.mark.parametrize(
    "words",
    [
        ("edit", "x.conf", "--set", "/a=1"),
        ("edit", "bad.json", "--set", "/a=1"),
        ("edit", "bad.toml", "--set", "/a=1"),
        ("edit", "missing.json", "--set", "/a=1"),
        ("edit", "good.json"),
        ("edit", "good.json", "--set", "=1"),
        ("mv", "x.conf", "good.json"),
    ],
)
def test_a_hint_speaks_the_language_of_the_command_line(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    for name, text in (("x.conf", "a"), ("bad.json", "{"), ("bad.toml", "="), ("good.json", "{}")):
        (world / name).write_text(text)

    said = takeback(*words)

    assert said.code in (2, 3)
    assert not re.search(r"\bwrite\(\)|\bGive (format|set)=|Ask for it to be", said.err)


def test_mv_onto_something_is_refused_unless_it_may_replace(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a")
    (world / "b").write_text("b")

    refused = takeback("mv", "a", "b")
    takeback.done("mv", "--replace", "a", "b")

    assert refused.code in (2, 3)
    assert (world / "b").read_text() == "a"
    takeback.done("undo")
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("a", "b")


def test_mkdir_ln_and_chmod_are_made_and_taken_back(takeback: CommandLine, world: World) -> None:
    (world / "run.sh").write_text("#!/bin/sh\n")
    (world / "run.sh").chmod(0o644)
    before = world.picture()

    takeback.done("mkdir", "-p", "x/y")
    takeback.done("ln", "-s", "run.sh", "link")
    takeback.done("chmod", "755", "run.sh")
    assert (world / "x" / "y").is_dir()
    assert os.readlink(world / "link") == "run.sh"
    assert stat.S_IMODE((world / "run.sh").stat().st_mode) == 0o755
    takeback.done("undo", "--run", "command line")

    assert world.picture() == before


def test_edit_sets_and_deletes_keys_and_undo_is_per_key(takeback: CommandLine, world: World) -> None:
    (world / "c.json").write_text('{\n  "a": 1,\n  "b": {"c": [1, 2]}\n}\n')

    first = takeback.done("edit", "c.json", "--set", "/b/d=true", "--json").json
    takeback.done("edit", "c.json", "--delete", "/a")
    takeback.done("undo", first["id"][:8])

    assert (world / "c.json").read_text() == '{\n  "b": {"c": [1, 2]}\n}\n'


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("l.json", "[1,2]", "[1,2,3]"),
        ("l.json", "[]\n", "[3]\n"),
        ("l.json", "[\n  1, // one\n  2\n]\n", "[\n  1, // one\n  2,\n  3\n]\n"),
        ("l.yaml", "- 1\n- 2 # two\n", "- 1\n- 2 # two\n- 3\n"),
    ],
)
def test_edit_appends_to_a_file_that_is_a_list(
    takeback: CommandLine, world: World, name: str, before: str, after: str
) -> None:
    (world / name).write_text(before)
    form = ("--format", "jsonc") if "//" in before else ()

    said = takeback.done("edit", name, "--set", "/-=3", "--json", *form).json
    assert (said["changed"], (world / name).read_text()) == (True, after)
    takeback.done("undo")

    assert (world / name).read_text() == before


def test_undo_of_an_append_finds_its_list_in_a_file_that_was_laid_out_anew(
    takeback: CommandLine, world: World
) -> None:
    (world / "l.json").write_text("[1,2]")
    takeback.done("edit", "l.json", "--set", "/-=3")
    (world / "l.json").write_text("[ 1, 2, 3 ]\n")

    takeback.done("undo")

    assert json.loads((world / "l.json").read_text()) == [1, 2]


def test_a_dry_run_asks_the_checks_and_changes_nothing(takeback: CommandLine, world: World) -> None:
    (world / "c.json").write_text('{"a": 1}')
    (world / "c.json").chmod(0o700)
    before = world.picture(directory_times=True)

    bad = takeback("write", "c.json", "--check", "grep -q good {staged}", "--dry-run", input="bad")
    as_json = takeback(
        "write", "c.json", "--check", "grep -q good {staged}", "--dry-run", "--json", input="bad"
    )
    good = takeback.done(
        "write", "c.json", "--check", "sh -c 'test -x $0 && grep good $0' {staged}", "--dry-run", input="good"
    )
    edited = takeback("edit", "c.json", "--set", "/a=2", "--check", "grep -q 3 {staged}", "--dry-run")
    takeback.done("edit", "c.json", "--set", "/a=3", "--check", "grep -q 3 {staged}", "--dry-run")
    same = takeback.done("write", "c.json", "--check", "false", "--dry-run", input='{"a": 1}')

    assert bad.code == 3
    assert bad.out.startswith("Would be refused: The check 'grep -q good {staged}' failed for ")
    assert (as_json.code, as_json.json["changes"][0]["possible"]) == (3, False)
    assert "failed for" in as_json.json["changes"][0]["refused"]
    assert good.out.startswith("Would write ")
    assert edited.code == 3
    assert same.out.startswith("Would change nothing")  # then the real thing asks nobody either
    assert world.picture(directory_times=True) == before
    assert not os.path.exists(os.environ["TAKEBACK_STORE"])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("edit", "c.json", "--set", "/a=plain"), "is not JSON"),
        (("edit", "c.json", "--set", "a"), "does not set a key"),
        (("edit", "c.json"), "No key"),
        (("write", "a", "--mode", "9"), "is not a file mode"),
        (("chmod", "u+x", "c.json"), "is not a file mode"),
        (("write", "missing/dir/a"), "does not exist"),
        (("write", "."), "is a directory"),
        (("mv", "missing", "b"), "does not exist"),
        (("write", "a", "--needs", "nosuchid"), "There is no effect"),
        (("mv", "c.json", "nodir/"), "is not a directory"),
        (("write", "newf/"), "names a directory"),
        (("edit", "c.json", "--set", "/a=1", "--set", "/a=2"), "is set twice"),
        (("log", "-n", "-1"), "is not a number"),
        (("runs", "-n", "-1"), "is not a number"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_sentence_and_one_hint(
    takeback: CommandLine, world: World, words: tuple[str, ...], part: str
) -> None:
    (world / "c.json").write_text("{}")
    before = world.picture()

    said = takeback(*words)

    assert said.code == 2, said
    assert part in said.err
    assert [line.partition(":")[0] for line in said.err.splitlines()] == ["error", "hint"]
    assert world.picture() == before


def test_commands_of_one_agent_share_one_run_that_stays_open(takeback: CommandLine) -> None:
    runs = {takeback.write(f"f{n}", f"{n}")["run"] for n in range(3)}

    assert len(runs) == 1
    assert [run["state"] for run in takeback.done("runs", "--json").json] == ["open"]


def test_another_run_and_another_agent_are_told_apart(takeback: CommandLine) -> None:
    plain = takeback.write("a", "1")
    named = takeback.write("b", "1", "--run", "deploy")
    again = takeback.write("c", "1", "--run", "deploy")
    other = takeback.done("write", "d", "--json", input="1", TAKEBACK_AGENT="robot").json

    assert named["run"] == again["run"]
    assert len({plain["run"], named["run"], other["run"]}) == 3
    assert other["agent"] == "robot"


def test_a_failed_command_takes_back_nothing_of_the_commands_before_it(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1")

    failed = takeback("write", "b", "--check", "false", input="2")

    assert failed.code == 3
    assert (world / "a").read_text() == "1"
    assert takeback.effect()["state"] == "done"


def test_the_same_key_again_does_nothing_and_says_so(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1", "--key", "once")
    (world / "a").write_text("someone else")

    again = takeback.write("a", "1", "--key", "once")

    assert (again["changed"], again["id"]) == (False, first["id"])
    assert (world / "a").read_text() == "someone else"


def test_a_key_used_for_another_change_is_refused(takeback: CommandLine) -> None:
    takeback.write("a", "1", "--key", "once")

    said = takeback("write", "a", "--key", "once", "--json", input="2")

    assert (said.code, said.error["type"]) == (3, "KeyReused")


def test_names_that_are_not_text_can_be_written_and_undone(takeback: CommandLine, world: World) -> None:
    name = os.fsdecode(b"caf\xe9\n\x1b[31m")

    said = takeback.done("write", name, input="x")
    assert (world / name).read_text() == "x"
    listed = takeback.done("log")
    takeback.done("undo")

    assert "\x1b" not in said.out + listed.out
    assert not (world / name).exists()
