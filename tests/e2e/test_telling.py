"""What did not happen is said on standard error, with the true reason; what a hint tells to do can be done."""

import os
import re
import shlex
import sqlite3
import subprocess
import sys

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, Said, surroundings
from tests.world import World

# The change of one file is made and then reported as failed, and cannot be taken back either.
STICKING = """
import sys
from takeback.adapters.file.adapter import FileAdapter
from takeback.frontends.cli.answer import answer
apply, undo = FileAdapter.apply, FileAdapter.undo
def failing(what):
    def act(self, effect):
        if effect.change.resource.endswith("/stuck"):
            if what is apply: apply(self, effect)
            raise OSError(5, "Input/output error")
        return what(self, effect)
    return act
FileAdapter.apply, FileAdapter.undo = failing(apply), failing(undo)
sys.exit(answer(sys.argv[1:]))
"""

# Dies when the file is replaced and that is not recorded yet.
DYING = """
import os, signal, sys, takeback
run = takeback.open().session(sys.argv[1], "cli")
run.write(sys.argv[2], "2", checks=[takeback.checks.after(lambda: os.kill(os.getpid(), signal.SIGKILL))])
"""

# An undo of several is killed before its second effect.
KILLED_UNDO = """
import os, signal, sys, takeback, takeback.engine.undo as undoing
tb, real, calls = takeback.open(), undoing.do, []
def do(*given):
    calls.append(1)
    if len(calls) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given)
undoing.do = do
tb.redo() if sys.argv[1] == "redo" else tb.undo(tb.find_run("deploy"), on_conflict=sys.argv[2])
"""

DEAD_RUN = """
import os, signal, takeback
run = takeback.open().run("dead")
run.write("a", "new")
os.kill(os.getpid(), signal.SIGKILL)
"""


def python(world: World, code: str, *words: str) -> Said:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=world.root, env=surroundings(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return Said(done.returncode, done.stdout, done.stderr)


def pasted(takeback: CommandLine, said: Said) -> list[str]:
    """Follows every command that was printed; which ones."""
    commands = re.findall(r"`takeback ([^`]+)`", said.out + said.err)
    for command in commands:
        takeback.done(*shlex.split(command))
    return commands


def make_stuck(takeback: CommandLine, world: World, run: str = "command line", name: str = "b") -> str:
    python(world, DYING, run, str(world / name))
    (world / name).write_text("someone else's")
    assert takeback("recover").code == 4
    return takeback.effect("@")["id"]


def lose_the_blobs() -> None:
    journal = sqlite3.connect(os.path.join(os.environ["TAKEBACK_STORE"], "journal.db"))
    journal.execute("DELETE FROM blobs")
    journal.commit()
    journal.close()


def damage_the_newest_intent() -> None:
    journal = sqlite3.connect(os.path.join(os.environ["TAKEBACK_STORE"], "journal.db"))
    journal.execute("DROP TRIGGER records_are_final")
    journal.execute(
        "UPDATE records SET body = replace(body, 'summary', 'summarx')"
        " WHERE seq = (SELECT max(seq) FROM records WHERE kind = 'intent')"
    )
    journal.commit()
    journal.close()


def said_why(said: Said, as_json: Said) -> None:
    error, hint = said.err.splitlines()[-2:]
    assert said.code == as_json.code == as_json.json["error"]["exit_code"] != 0
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert as_json.json["error"]["message"]
    assert as_json.json["error"]["hint"]


def test_a_redo_that_gets_stuck_says_so_on_standard_error(takeback: CommandLine, world: World) -> None:
    takeback.write("stuck", "1")
    takeback.done("undo")

    said = python(world, STICKING, "redo")
    stuck = takeback.done("log", "--json").json[0]

    assert (said.code, stuck["state"]) == (4, "stuck")
    assert f"error: Effect {stuck['id'][:8]}" in said.err
    assert " is stuck: " in said.err
    assert "show " + stuck["id"][:8] in pasted(takeback, said)


def test_an_undo_of_which_one_effect_gets_stuck_tells_both(takeback: CommandLine, world: World) -> None:
    first, second = takeback.write("stuck", "1"), takeback.write("fine", "1")

    said = python(world, STICKING, "undo", first["id"], second["id"], "--json")
    stuck = takeback.done("log", "--json").json[0]

    assert (said.code, said.json["outcome"], said.json["error"]["type"]) == (4, "stuck", "Stuck")
    assert said.json["error"]["effect"] == stuck["id"]
    assert not (world / "fine").exists()


def test_an_undo_that_leaves_something_out_says_so_on_standard_error(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1\n")
    takeback.write("b", "1\n")
    (world / "a").write_text("mine\n")

    said = takeback("undo", "@", "@~1", "--skip-conflicts")

    assert said.code == 1
    assert said.out.startswith("Took back 1 of 2 files in ")
    assert "error: Not all of it was taken back: a is now 5 bytes" in said.err
    assert pasted(takeback, said) == [f"undo {takeback.effect('@~1')['id'][:8]} --force"]
    assert not (world / "a").exists()


@pytest.mark.parametrize("words", [("--run", "deploy"), ("deploy",), ("--to", "start")], ids=str)
def test_undo_of_a_run_takes_back_what_it_can_and_names_what_is_stuck(
    takeback: CommandLine, world: World, words: tuple[str, ...]
) -> None:
    takeback.done("checkpoint", "start", "--run", "deploy")
    takeback.write("a", "1", "--run", "deploy")
    stuck = make_stuck(takeback, world, "deploy")

    rehearsed = takeback("undo", *words, "--dry-run")
    assert (world / "a").exists()
    said = takeback("undo", *words)
    again = takeback("undo", *words, "--json")

    assert (rehearsed.code, said.code, again.code) == (4, 4, 4)
    assert f"error: Effect {stuck[:8]} (write b (1 byte)) is stuck, so it was left out: " in said.err
    assert again.json["error"]["effect"] == stuck
    assert not (world / "a").exists()
    (world / "b").unlink()
    takeback.done("recover")


def test_undo_of_a_run_that_is_still_at_work_says_what_was_left_out(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1", "--run", "deploy")
    os.mkfifo(world / "started")
    os.mkfifo(world / "go on")
    check = "sh -c 'test -f {staged}; echo > started; cat \"go on\"'"
    child = subprocess.Popen(
        [*COMMAND, "write", "b", "--run", "deploy", "--check", check], cwd=world.root, env=surroundings(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with open(world / "started") as waiting:
        waiting.read()

    said = takeback("undo", "--run", "deploy")

    with open(world / "go on", "w"):
        pass
    assert child.wait(30) == 0
    assert (said.code, (world / "a").exists()) == (5, False)
    assert "is still being made, so it was left out." in said.err


# Hints.

# Someone writes after the plan was made and before what is there is captured.
LATE = """
import sys
from takeback.adapters.file.adapter import FileAdapter
from takeback.frontends.cli.answer import answer
capture = FileAdapter.capture
def late(self, effect, offer):
    open(sys.argv[1], "w").write(f"someone else's, before {sys.argv[2]}")
    return capture(self, effect, offer)
FileAdapter.capture = late
sys.exit(answer(sys.argv[2:]))
"""


def test_a_late_conflict_of_a_redo_speaks_of_redo(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    undone = python(world, LATE, str(world / "a"), "undo")
    takeback.done("undo", "--force")
    redone = python(world, LATE, str(world / "a"), "redo")

    assert (undone.code, redone.code) == (3, 3)
    assert re.match(r"error: Modified after this effect, so undo would overwrite those changes: ", undone.err)
    assert re.match(r"error: Modified after this effect, so redo would overwrite those changes: ", redone.err)
    assert (world / "a").read_text() == "someone else's, before redo"


def test_what_a_refused_undo_offers_works(takeback: CommandLine, world: World) -> None:
    takeback.write("other", "1\n")
    takeback.write("a", "1\n")
    (world / "a").write_text("mine\n")

    said = takeback("undo")

    assert said.code == 3
    assert pasted(takeback, said) == [f"undo {takeback.effect('@')['id'][:8]} --force"]
    assert not (world / "a").exists()


@pytest.mark.needs("git")
def test_merge_is_offered_where_it_works(takeback: CommandLine, world: World) -> None:
    lines = [f"{n}\n" for n in range(20)]
    takeback.write("a", "".join(lines))
    takeback.write("a", "".join(["agent\n", *lines[1:]]))
    (world / "a").write_text("".join(["agent\n", *lines[1:19], "mine\n"]))

    assert "--merge` keeps both" in takeback("undo").err


def gone_directory(takeback: CommandLine, world: World, *words: str) -> None:
    (world / "d").mkdir()
    (world / "d" / "a").write_text("a")
    takeback.done(*words)
    for path in (world / "d").iterdir():
        path.unlink()
    (world / "d").rmdir()


def test_force_is_not_offered_where_it_cannot_work(takeback: CommandLine, world: World) -> None:
    earlier = takeback.write("earlier", "1")["id"][:8]
    gone_directory(takeback, world, "rm", "d/a")
    removed = takeback("undo")
    gone_directory(takeback, world, "mv", "d/a", "b")
    moved, forced = takeback("undo"), takeback("undo", "--force")

    for said in (removed, moved, forced):
        assert said.code == 3
        assert "captures the present content" not in said.err
        assert "Make the missing directory again, then undo again." in said.err
        assert f"`takeback undo {earlier}`" in said.err
    assert pasted(takeback, moved) == [f"undo {earlier}"]
    (world / "d").mkdir()
    takeback.done("undo")


def test_a_place_that_is_taken_by_now_has_to_be_cleared_by_hand(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a")
    takeback.done("mv", "a", "b")
    (world / "a").write_text("someone else's")

    said = takeback("undo")
    assert "--merge and --force cannot help here" in said.err
    (world / "a").rename(world / "aside")

    takeback.done("undo")


def test_hints_are_about_the_store_that_was_named(takeback: CommandLine, world: World) -> None:
    takeback.done("write", "a", "--store", "other store", input="1\n")
    (world / "a").write_text("mine\n")

    refused = takeback("undo", "--store", "other store")
    done = takeback.done("undo", "--force", "--store=other store")

    assert "`takeback --store 'other store' undo " in refused.err
    assert len(pasted(takeback, done)) == 1
    assert (world / "a").read_text() == "mine\n"


def test_mv_into_a_directory_that_is_missing_says_how_to_make_it(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a")

    said = takeback("mv", "a", "not there/")

    assert pasted(takeback, said) == ["mkdir -p 'not there/'"]
    takeback.done("mv", "a", "not there/")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["for real", "dry run"])
def test_mv_does_not_speak_of_an_option_that_it_lacks(
    takeback: CommandLine, world: World, dry: tuple[str, ...]
) -> None:
    takeback.write("small", "1")
    with open(os.path.join(os.environ["TAKEBACK_STORE"], "settings.json"), "w") as file:
        file.write('{"max_capture_bytes": 10}')
    (world / "large").write_text("x" * 100)

    said = takeback("mv", "-f", "small", "large", *dry)
    removed = takeback("rm", "large", *dry)

    assert (said.code, removed.code) == (3, 3)
    assert "inexact" not in said.err
    assert "--allow-inexact" in removed.err
    said_why(said, takeback("mv", "-f", "small", "large", *dry, "--json"))
    takeback.done("rm", "large", "--allow-inexact")


# Past the newest.


def test_undo_without_a_name_tells_the_way_past_what_was_not_captured(
    takeback: CommandLine, world: World
) -> None:
    earlier = takeback.write("a", "1")["id"][:8]
    with open(os.path.join(os.environ["TAKEBACK_STORE"], "settings.json"), "w") as file:
        file.write('{"max_capture_bytes": 10}')
    (world / "large").write_text("x" * 100)
    takeback.done("rm", "large", "--allow-inexact")

    said = takeback("undo")

    said_why(said, takeback("undo", "--json"))
    assert said.code == 3
    assert pasted(takeback, said)[-1] == f"undo {earlier}"


def test_undo_without_a_name_tells_the_way_past_what_is_damaged(takeback: CommandLine) -> None:
    earlier = takeback.write("a", "1")["id"][:8]
    takeback.write("b", "1")
    damage_the_newest_intent()

    said = takeback("undo")

    assert said.code == 6
    assert f"To undo an earlier change: `takeback undo {earlier}`." in said.err
    takeback.done("undo", earlier)


def test_the_time_of_a_damaged_effect_is_not_known(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    damage_the_newest_intent()

    listed = takeback.done("log").out

    assert "1970" not in listed
    assert re.match(r"@  \w{8}  \?  ", listed)


FAILING = ["verify", "recover", "write a --check false --dry-run", "rm none nothing", "undo @", "mv none b"]


@pytest.mark.parametrize("command", FAILING)
def test_no_command_fails_without_an_error_and_a_hint(
    takeback: CommandLine, world: World, command: str
) -> None:
    takeback.write("a", "1")
    make_stuck(takeback, world)
    damage_the_newest_intent()

    said_why(takeback(*command.split()), takeback(*command.split(), "--json"))
