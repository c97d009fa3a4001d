"""`takeback run`: a command as one effect, in a sandbox."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import takeback as library
from takeback.engine.parts import Parts
from takeback.frontends.cli.answer import answer
from takeback.model.effect import Effect
from takeback.model.run import Lease
from takeback.runs import held as decided
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.e2e.test_telling import python
from tests.world import World

LONG = 120  # seconds that nothing here takes on any machine


def shell(line: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", line)


@contextmanager
def running(world: World, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in the background, with pipes; ended with all it started, whatever happens."""
    child = subprocess.Popen(
        [*COMMAND, "run", *words], cwd=world.root, env=surroundings(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        with child:
            yield child
    finally:
        child.kill()
        child.wait(LONG)


def test_what_a_command_changed_is_one_effect_and_undo_takes_it_back(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("old\n")
    (world / "gone").write_text("bye\n")
    before = world.picture()
    said = takeback.done("run", *shell("echo new > a; rm gone; mkdir d; echo x > d/b; echo hello"))
    assert said.out == "hello\n"
    assert "2 added, 1 modified, 1 deleted" in said.err
    after = world.picture()
    assert (world / "d" / "b").read_text() == "x\n"
    assert not (world / "gone").exists()
    takeback.done("undo")
    assert world.picture() == before
    takeback.done("redo")
    assert world.picture() == after


def test_a_failing_command_changes_nothing_and_its_exit_code_is_ours(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("old\n")
    before = world.picture()
    said = takeback("run", *shell("echo new > a; rm -rf /; exit 7"))
    assert said.code == 7
    assert "so nothing was changed" in said.err
    assert world.picture() == before
    assert takeback.done("log", "--json").json == []


def test_what_changes_nothing_is_no_effect(takeback: CommandLine, world: World) -> None:
    takeback.done("run", "--", "ls", "/")
    assert takeback("run", "--", "false").code == 1
    assert takeback.done("log", "--json").json == []
    assert takeback.done("status", "--json").json["runs"] == {"open": 0, "suspended": 0}


def test_what_is_held_waits_until_it_is_kept(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("old\n")
    said = takeback.done("run", "--hold", *shell("echo new > a; echo b > b"))
    assert "held" in said.err
    assert (world / "a").read_text() == "old\n"
    assert takeback.done("status", "--json").json["effects"]["held"] == 1
    assert "+new" in takeback.done("diff", "@").out
    takeback.done("apply", "@")
    assert (world / "a").read_text() == "new\n"
    takeback.done("undo", "@")
    assert (world / "a").read_text() == "old\n"
    assert not (world / "b").exists()


def test_what_is_held_is_dropped_by_discard_and_not_by_undo(takeback: CommandLine, world: World) -> None:
    takeback.done("run", "--hold", *shell("echo b > b"))
    for words in (("undo",), ("undo", "@"), ("accept", "@"), ("pin", "@")):
        said = takeback(*words)
        assert said.code == 3 and "is held and was not made" in said.err and "takeback discard" in said.err
    assert takeback.done("discard", "@", "--dry-run").out.startswith("Would discard")
    takeback.done("discard", "@")
    assert not (world / "b").exists()
    assert takeback.done("status", "--json").json["effects"]["held"] == 0
    assert takeback("apply", "@~0").code != 0


def test_a_run_takes_what_it_holds_with_it(takeback: CommandLine, world: World) -> None:
    takeback.done("write", "w", input="1")
    takeback.done("run", "--hold", *shell("echo b > b"))
    held, done = takeback.done("log", "--json").json

    takeback.done("undo", held["run"], done["id"])

    assert not (world / "w").exists()
    assert takeback.done("status", "--json").json["effects"]["held"] == 0


@pytest.mark.parametrize("word", ["apply", "discard"])
def test_what_a_run_holds_is_found_by_its_name(takeback: CommandLine, world: World, word: str) -> None:
    takeback.done("run", "--hold", *shell("echo b > b"))
    run = takeback.done("log", "--json").json[0]["run"]

    takeback.done(word, "--run", run)

    assert (world / "b").exists() == (word == "apply")
    assert takeback.done("status", "--json").json["effects"]["held"] == 0


def test_of_several_that_are_held_those_made_before_one_that_cannot_be_are_told(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "--hold", *shell("echo a > a"))
    takeback.done("run", "--hold", *shell("echo b > b"))
    second, first = (one["id"] for one in takeback.done("log", "--json").json)
    (world / "b").write_text("mine\n")

    tried = takeback("apply", first, second, "--dry-run")
    assert tried.code == 3 and "b is not what it was" in tried.err and not (world / "a").exists()

    said = takeback("apply", first, second)

    assert said.code == 1 and f"Applied {first[:8]}" in said.out
    assert f"error: 1 of 2 was applied ({first[:8]}). b is not what it was" in said.err
    assert "Nothing was changed" not in said.err
    assert (world / "a").exists() and (world / "b").read_text() == "mine\n"
    assert takeback.done("show", first, "--json").json["accepted_by"] == "person"


def test_of_several_that_are_held_json_has_those_made_before_one_that_cannot_be(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "--hold", *shell("echo a > a"))
    takeback.done("run", "--hold", *shell("echo b > b"))
    second, first = (one["id"] for one in takeback.done("log", "--json").json)
    (world / "b").write_text("mine\n")

    said = takeback("apply", first, second, "--json")

    assert said.code == 1 and [one["id"] for one in said.json["effects"]] == [first]
    assert said.error["exit_code"] == 1 and said.error["message"].startswith("1 of 2 was applied")


def test_a_dry_run_of_several_says_which_depends_on_an_earlier_one(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "--hold", *shell("echo a > a"))
    takeback.done("run", "--hold", *shell("echo b > a"))
    second, first = (one["id"] for one in takeback.done("log", "--json").json)

    said = takeback.done("apply", first, second, "--dry-run")

    assert f"Would apply {second[:8]}" in said.out and f": depends on {first[:8]}" in said.out
    assert not (world / "a").exists()


def test_a_discard_of_several_that_fails_in_between_is_not_told_as_refused(
    takeback: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    takeback.done("run", "--hold", *shell("echo a > a"))
    takeback.done("run", "--hold", *shell("echo b > b"))
    second, first = (one["id"] for one in takeback.done("log", "--json").json)
    discard = decided.discard_held

    def second_is_refused(parts: Parts, lease: Lease, effect: Effect) -> Effect:
        if effect.id == second:
            raise library.Refused("It is locked.", hint="Nothing was changed. Wait.")
        return discard(parts, lease, effect)

    monkeypatch.setattr(decided, "discard_held", second_is_refused)
    assert answer(["discard", first, second, "--json"]) == 1

    said = json.loads(capsys.readouterr().out)
    assert [(one["id"], one["state"]) for one in said["effects"]] == [(first, "dropped")]
    assert said["error"]["message"] == f"1 of 2 was discarded ({first[:8]}). It is locked."
    assert said["error"]["hint"] == "Wait."


def test_what_was_held_first_and_made_last_is_the_newest(takeback: CommandLine, world: World) -> None:
    takeback.done("run", "--hold", *shell("echo late > a"))
    held = takeback.done("log", "--json").json[0]["id"]
    for number in range(25):
        takeback.done("write", f"w{number}", input="1")
    takeback.done("apply", held)

    assert takeback.done("show", "@", "--json").json["id"] == held
    takeback.done("undo")

    assert not (world / "a").exists()
    assert (world / "w24").exists()
    takeback.done("undo")
    assert not (world / "w24").exists()


def test_what_is_held_is_not_made_over_what_someone_wrote_since(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("old\n")
    takeback.done("run", "--hold", *shell("echo new > a"))
    (world / "a").write_text("mine\n")
    said = takeback("apply", "@")
    assert said.code == 3
    assert "a" in said.err
    assert (world / "a").read_text() == "mine\n"
    takeback.done("discard", "@")


@pytest.mark.parametrize(("policy", "left"), [("undo", False), ("leave", True), ("hold", False)])
def test_what_becomes_of_the_changes_of_a_failing_command(
    takeback: CommandLine, world: World, policy: str, left: bool
) -> None:
    assert takeback("run", "--on-failure", policy, *shell("echo x > a; exit 3")).code == 3
    assert (world / "a").exists() is left
    assert takeback.done("status", "--json").json["effects"]["held"] == int(policy == "hold")


def test_a_dry_run_tells_and_changes_nothing(takeback: CommandLine, world: World) -> None:
    said = takeback.done("run", "--dry-run", *shell("echo x > a"))
    assert "would change: 1 added" in said.err
    assert "  + a\n" in said.err
    assert not (world / "a").exists()


def test_second_eyes_14_a_dry_run_of_a_command_that_fails_says_that_it_would_be_dropped(
    takeback: CommandLine, world: World
) -> None:
    said = takeback("run", "--dry-run", *shell("echo x > a; exit 3"))
    assert said.code == 3
    assert (
        "it failed (exit code 3), so its changes would be dropped: 1 added; nothing was changed." in said.err
    )
    assert "would change" not in said.err and not (world / "a").exists()
    said = takeback("run", "--dry-run", "--on-failure", "leave", *shell("echo x > a; exit 3"))
    assert "would change: 1 added" in said.err


def test_the_answer_as_json(takeback: CommandLine, world: World) -> None:
    answer = takeback.done("run", "--json", *shell("echo out; echo err >&2; echo x > a")).json
    assert (answer["exit_code"], answer["stdout"], answer["stderr"]) == (0, "out\n", "err\n")
    assert [(one["kind"], one["size"]) for one in answer["changes"]] == [("added", 2)]
    assert answer["effect"]["state"] == "done"
    assert answer["effect"]["targets"][0]["resource"] == f"file://{world / 'a'}"


def test_words_of_the_command_are_not_ours(takeback: CommandLine, world: World) -> None:
    assert takeback.done("run", "--", "echo", "--json", "--store", "x").out == "--json --store x\n"
    assert takeback("run", "--", "sh", "-c", "exit 5", "--json").code == 5


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "No command"),
        (("--",), "No command"),
        (("--timeout", "0", "--", "true"), "time limit"),
        (("--timeout", "-1", "--", "true"), "time limit"),
        (("--timeout", "nan", "--", "true"), "time limit"),
        (("--root", ".", "--", "true"), "--in-place"),
        (("--ask", "--", "true"), "terminal"),
        (("--on-failure", "shrug", "--", "true"), "shrug"),
    ],
)
def test_what_cannot_be_asked_for_is_told_with_our_own_exit_code(
    takeback: CommandLine, words: tuple[str, ...], what: str
) -> None:
    said = takeback("run", *words)
    assert said.code == 125
    assert what in said.err
    assert "hint:" in said.err


def test_exit_codes_are_those_of_a_shell(takeback: CommandLine, world: World) -> None:
    (world / "plain").write_text("x")
    assert takeback("run", "--", "no-such-program-anywhere").code == 127
    assert takeback("run", "--", "./plain").code == 126
    assert takeback("run", *shell("kill -9 $$")).code == 137


def test_a_time_limit_ends_it_and_nothing_was_changed(takeback: CommandLine, world: World) -> None:
    said = takeback("run", "--timeout", "0.5", *shell("echo x > a; sleep 1000"))
    assert said.code == 124
    assert not (world / "a").exists()


def test_what_someone_else_changed_meanwhile_is_a_conflict_and_the_work_is_held(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("old\n")
    (world / "d").mkdir()
    with running(world, *shell("echo y > d/y; echo ready; read go; echo theirs > a")) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        (world / "a").write_text("mine\n")
        (world / "d").rename(world / "moved")
        _, err = child.communicate("go\n", timeout=LONG)
    assert child.returncode == 125
    assert "  ! a: " in err
    assert "  ! d" in err
    assert (world / "a").read_text() == "mine\n"
    assert not (world / "d").exists()
    assert takeback.done("status", "--json").json["effects"]["held"] == 1
    said = takeback("apply", "@")
    assert said.code == 3
    assert "--force" in said.err
    assert (world / "a").read_text() == "mine\n"


def test_what_conflicts_is_made_by_force_and_undo_brings_back_what_was_there(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("old\n")
    with running(world, *shell("echo ready; read go; echo theirs > a; echo b > b")) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        (world / "a").write_text("mine\n")
        child.communicate("go\n", timeout=LONG)
    (world / "a").write_text("mine, later\n")
    takeback.done("apply", "--force", "@")
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("theirs\n", "b\n")
    takeback.done("undo", "@")
    assert (world / "a").read_text() == "mine, later\n"
    assert not (world / "b").exists()


def test_the_store_is_out_of_reach_inside(takeback: CommandLine, world: World, store: Path) -> None:
    takeback.write("a", "one")
    line = f"rm -rf {store} 2>/dev/null; echo x > {store}/journal.db; ls -A {store} | wc -l; true"
    takeback("run", *shell(line))
    assert takeback.done("verify", "--read-data").code == 0
    takeback.done("undo", takeback.done("log", "--path", "a", "--json").json[-1]["id"])
    assert not (world / "a").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_nothing_was_changed(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    with running(world, *shell("echo x > a; echo ready; sleep 1000")) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        _, told = child.communicate(timeout=LONG)
    assert child.returncode == 128 + number
    (drop,) = takeback.done("log", "--held", "--json").json
    assert told == (
        "Interrupted; what the command had changed is dropped; nothing was changed; "
        f"`takeback apply {drop['id'][:8]}` makes what it had done so far.\n"
    )
    assert not (world / "a").exists()
    assert takeback.done("status", "--json").json["runs"] == {"open": 0, "suspended": 0}
    assert drop["dropped"]["reason"] == "interrupted"
    takeback.done("apply", drop["id"])
    assert (world / "a").read_text() == "x\n"


def test_a_killed_one_leaves_nothing_behind(takeback: CommandLine, world: World, store: Path) -> None:
    (world / "a").write_text("old\n")
    with running(world, *shell("echo x > a; echo $$ > b; echo ready; sleep 1000.25")) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        child.kill()
        assert child.stdout.read() == ""  # comes only when all who held it are gone
        child.wait(LONG)
    takeback.done("run", "--", "true")
    assert (world / "a").read_text() == "old\n"
    assert os.listdir(store / "commands") == []
    assert str(store) not in Path("/proc/self/mounts").read_text()
    assert takeback.done("verify").code == 0


def test_commands_of_one_user_run_at_the_same_time(takeback: CommandLine, world: World) -> None:
    with running(world, *shell("echo ready; read go; echo 1 > one")) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        takeback.done("run", *shell("echo 2 > two"))
        takeback.write("three", "3")
        child.communicate("go\n", timeout=LONG)
    assert child.returncode == 0
    assert sorted(os.listdir(world.root)) == ["one", "three", "two"]


def test_what_it_leaves_in_the_background_is_ended_and_told(takeback: CommandLine, world: World) -> None:
    said = takeback.done("run", *shell("sleep 1000 & echo mine > a"))
    assert "1 process that it had left in the background was ended with it." in said.err
    assert (world / "a").read_text() == "mine\n"


def test_the_input_of_the_command_is_ours(takeback: CommandLine, world: World) -> None:
    takeback.done("run", *shell("cat > a"), input=b"\0bytes\n" * 100_000)
    assert (world / "a").read_bytes() == b"\0bytes\n" * 100_000


DEEP = "import os\nfor _ in range(300): os.mkdir('d' * 20); os.chdir('d' * 20)"


def test_a_path_too_long_for_a_layer_is_refused_in_words(takeback: CommandLine, world: World) -> None:
    said = takeback("run", "--", sys.executable, "-c", DEEP)
    assert said.code == 125
    assert "4,096 bytes" in said.err and "bug" not in said.err
    assert os.listdir(world.root) == []
    assert takeback("run", "--", sys.executable, "-c", DEEP + "\nraise SystemExit(7)").code == 7


def test_explain_tells_before_anything_runs(takeback: CommandLine, world: World) -> None:
    said = takeback.done("explain", "--", "git", "push")
    assert "sandbox" in said.out
    assert "git push" in said.out
    answer = takeback.done("explain", "--json", "--in-place", "--", "make").json
    assert answer["engine"] == "in place"
    assert str(world.root) in answer["coverage"]
    assert takeback("explain").code == 2


@pytest.mark.parametrize("command", ["run", "explain"])
def test_roots_are_refused_where_everything_is_covered(takeback: CommandLine, command: str) -> None:
    said = takeback(command, "--root", ".", "--", "make")
    assert said.code == (2 if command == "explain" else 125)
    assert "--root is for --in-place" in said.err


def test_explain_refuses_roots_that_would_not_be_watched(takeback: CommandLine, world: World) -> None:
    for root, code, said in (("/", 3, "the whole filesystem"), ("nosuch", 2, "is not a directory")):
        told = takeback("explain", "--in-place", "--root", root, "--", "make")
        assert (told.code, said in told.err) == (code, True), told
        assert takeback("run", "--in-place", "--root", root, "--", "make").err.splitlines()[0] in told.err
    forced = takeback.done("explain", "--in-place", "--any-root", "--root", "/", "--json", "--", "make").json
    assert "covered below /," in forced["coverage"]


# A signal comes when what the command changed is being put in place.
SIGNALLED = """
import os, sys
from takeback.adapters.tree.apply import Carrier
from takeback.frontends.cli.answer import answer
clear = Carrier._clear
def signalled(*given):
    Carrier._clear = clear
    os.kill(os.getpid(), int(sys.argv[1]))
    return clear(*given)
Carrier._clear = signalled
sys.exit(answer(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_a_merge_is_heard_when_it_is_whole_and_all_is_taken_back(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    (world / "a").write_text("old\n")
    before = world.picture()

    said = python(world, SIGNALLED, str(int(number)), "run", *shell("echo new > a; echo new > b"))

    assert (said.code, said.err) == (
        128 + number,
        "Interrupted; what it had changed was taken back: 2 paths.\n",
    )
    assert world.picture() == before
    assert takeback.done("status", "--json").json["runs"] == {"open": 0, "suspended": 0}


def test_a_signal_while_what_is_held_is_recorded_leaves_it_held_and_says_so(
    takeback: CommandLine, world: World
) -> None:
    late = SIGNALLED.replace(
        "takeback.adapters.tree.apply import Carrier", "takeback.runs.commands import execute"
    )
    late = late.replace("Carrier._clear", "execute.hold_change").replace(
        "    os.kill(os.getpid(), int(sys.argv[1]))\n    return clear(*given)",
        "    held = clear(*given)\n    os.kill(os.getpid(), int(sys.argv[1]))\n    return held",
    )

    said = python(world, late, str(int(signal.SIGTERM)), "run", "--hold", *shell("echo new > b"))

    id = takeback.effect("@")["id"][:8]
    assert said.code == 143
    assert said.err == (
        "Interrupted; nothing was changed, and what it did is held: "
        f"`takeback apply {id}` makes it, `takeback discard {id}` drops it.\n"
    )
    takeback.done("apply", id)
    assert (world / "b").read_text() == "new\n"
