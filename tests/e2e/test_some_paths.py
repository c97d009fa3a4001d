"""`undo ID -- PATH`: as a user types it, and what log, show and status say of it then."""

import os
import signal
import subprocess

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World

NAMES = ("a", "b", "c")


def command(takeback: CommandLine, world: World) -> str:
    """One command that writes three files; its effect."""
    for name in NAMES:
        (world / name).write_text("old\n")
    takeback.done("run", "--", "sh", "-c", "for name in a b c; do echo new > $name; done")
    return takeback.effect()["id"]


def texts(world: World) -> str:
    return " ".join((world / name).read_text().strip() for name in NAMES)


def test_the_paths_named_go_and_everything_says_partly_undone(takeback: CommandLine, world: World) -> None:
    effect = command(takeback, world)

    said = takeback.done("undo", effect[:8], "--", "b", "./c")

    assert texts(world) == "new old old"
    assert f"{effect[:8]} is partly undone: 1 of 3 paths still stand." in said.out
    assert f"`takeback undo {effect[:8]}` takes back the rest." in said.out
    assert "(partly undone)" in takeback.done("log").out
    assert takeback.done("log", "--format", "{state}").out == "partly undone\n"
    shown = takeback.done("show", effect).out
    assert "partly undone: 2 of 3 paths taken back" in shown
    assert shown.count("(undone)") == 2
    assert "1 done (1 partly undone)" in takeback.done("status").out
    assert takeback.done("status", "--json").json["effects"]["partly_undone"] == 1
    names = [f"file://{world / name}" for name in ("b", "c")]
    assert takeback.done("show", effect, "--json").json["partly_undone"] == names
    listed = takeback.done("log", "--json").json
    assert [one["partly_undone"] for one in listed if one["id"] == effect] == [names]
    assert takeback.done("log", "--stat").out.count("(undone)") == 2

    takeback.done("undo", effect)
    assert texts(world) == "old old old"
    assert "(undone)" in takeback.done("log").out
    takeback.done("redo")
    takeback.done("redo")
    assert texts(world) == "new new new"


def test_the_answer_as_json_names_what_went_along(takeback: CommandLine, world: World) -> None:
    (world / "old").write_text("moved")
    takeback.done("run", "--", "sh", "-c", "mv old new; echo x > y")

    said = takeback.done("undo", "@", "--json", "--", "new").json

    assert said["along"] == [
        {"resource": f"file://{world / 'old'}", "with": f"file://{world / 'new'}", "bond": "move"}
    ]
    assert len(said["effects"][0]["partly_undone"]) == 2


def test_a_path_that_it_did_not_touch_is_a_usage_error(takeback: CommandLine, world: World) -> None:
    effect = command(takeback, world)

    said = takeback("undo", effect, "--", "a", "nothing")

    assert (said.code, texts(world)) == (2, "new new new")
    assert "did not touch" in said.err
    assert all(name in said.err.partition("It touched")[2] for name in "abc")


@pytest.mark.parametrize(
    "words",
    ["undo -- a", "undo @ @ -- a", "undo --run commands -- a", "undo --to x -- a", "undo --since 1h -- a",
     "undo @ --cascade -- a", "undo @ --with-needs -- a", "undo @ --all -- a", "undo @ --"],
)  # fmt: skip
def test_combinations_that_mean_nothing_are_refused(takeback: CommandLine, world: World, words: str) -> None:
    command(takeback, world)

    said = takeback(*words.split())

    assert (said.code, texts(world)) == (2, "new new new")
    assert "path" in said.err.lower()


def test_a_conflict_offers_only_what_works_with_the_same_paths(takeback: CommandLine, world: World) -> None:
    effect = command(takeback, world)
    (world / "b").write_text("someone's\n")

    said = takeback("undo", effect[:8], "--", "b", "c")

    assert said.code == 3
    assert f"`takeback undo {effect[:8]} --skip-conflicts -- b c`" in said.err
    takeback("undo", effect[:8], "--skip-conflicts", "--", "b", "c")
    assert texts(world) == "new someone's old"
    takeback.done("undo", effect[:8], "--force", "--", "b")
    assert texts(world) == "new old old"


def test_a_name_that_looks_like_an_option_is_a_path_after_two_dashes(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "--", "sh", "-c", "echo x > ./--force; echo y > z")

    takeback.done("undo", "@", "--", "--force")

    assert (not (world / "--force").exists(), (world / "z").exists()) == (True, True)


def test_killed_and_asked_for_again_it_is_finished_once(takeback: CommandLine, world: World) -> None:
    """The first one dies when all that is recorded is which paths are meant."""
    effect = command(takeback, world)
    script = (
        "import os, signal, sys\n"
        "from takeback.storage.sqlite.journal import SqliteJournal\n"
        "append = SqliteJournal.append\n"
        "def dying(self, lease, drafts):\n"
        "    if drafts[0].body.get('undoes'):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return append(self, lease, drafts)\n"
        "SqliteJournal.append = dying\n"
        "from takeback.frontends.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    died = subprocess.run(
        [COMMAND[0], "-c", script, "undo", effect, "--", "a"],
        cwd=world.root, env=surroundings(), capture_output=True, check=False,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died
    assert texts(world) == "new new new"

    said = takeback.done("undo", effect, "--", "a")

    assert "what was interrupted is finished" in said.out
    assert texts(world) == "old new new"
    assert takeback("undo", effect, "--", "a").code == 3
    takeback.done("undo", effect)
    assert texts(world) == "old old old"


def test_undo_without_a_name_takes_back_what_a_redo_of_some_paths_brought_back(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("earlier", "1")
    effect = command(takeback, world)
    some = takeback.done("undo", effect, "--json", "--", "a").json["undo"][0]
    takeback.done("undo", effect)
    takeback.done("redo", some)
    assert texts(world) == "new old old"
    assert "(partly undone)" in takeback.done("log").out

    takeback.done("undo")

    assert texts(world) == "old old old"
    assert (world / "earlier").exists()


def test_paths_outside_the_project_work(
    takeback: CommandLine, world: World, tmp_path: os.PathLike[str]
) -> None:
    there = os.path.join(tmp_path, "elsewhere")
    takeback.done("run", "--", "sh", "-c", f"echo x > {there}; echo y > here")
    effect = takeback.effect()["id"]

    takeback.done("undo", effect, "--", there)

    assert (os.path.exists(there), (world / "here").exists()) == (False, True)
