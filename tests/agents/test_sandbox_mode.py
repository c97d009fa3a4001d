"""Mode `sandbox`: the real Claude Code runs its commands through takeback, and its rules do not notice."""

import json
import os
import shutil
import subprocess

import pytest

from takeback.frontends.agents.settings import shell_prefix
from tests.agents.acts import daemons
from tests.agents.family import Shell
from tests.agents.play import Played, Scene, play
from tests.agents.scenes import ASKED, DENIED, RULES, scene
from tests.agents.stage import Place, differences
from tests.agents.talk import ran, takeback_in
from tests.sandbox.scenes import USER, give, make_home

pytestmark = pytest.mark.usefixtures("no_daemon_stays")

PROGRAM = shell_prefix().split(" -IS ")[1]


def played(place: Place, one: Scene) -> Played:
    for words in (("install", "claude-code"), ("mode", "sandbox", "claude-code")):
        done = takeback_in(place, "hook", *words)
        assert done.returncode == 0, done.stderr
    return play("claude-code", one, place.home, place.project)


def effects(place: Place) -> list[str]:
    """What is in force, as `log` calls it."""
    found = json.loads(takeback_in(place, "log", "--json").stdout)
    return [one["summary"] for one in found if one["summary"].startswith("Bash")]


@pytest.mark.agents
def test_a_command_is_one_effect_and_the_next_begins_where_it_ended(place: Place) -> None:
    before = place.look()

    made = played(
        place,
        scene(
            "cd", Shell("cd docs; echo one > one.txt"), Shell("pwd; echo two > 'two \"words'.txt"), wants={}
        ),
    )

    assert made.results[1].strip() == str(place.project / "docs")
    assert sorted(effects(place)) == [
        "Bash: cd docs; echo one > one.txt",
        "Bash: pwd; echo two > 'two \"words'.txt",
    ]
    assert (place.project / "docs/one.txt").read_text() == "one\n"
    undone = takeback_in(place, "undo", "--session")
    assert undone.returncode == 0, undone.stderr
    assert differences(before, place.look()) == {}


@pytest.mark.agents
def test_a_failing_command_leaves_nothing(place: Place) -> None:
    before = place.look()

    made = played(place, scene("fail", Shell("echo half > half.txt; rm docs/a.md; exit 3"), wants={}))

    assert made.results[0].startswith("Exit code 3")
    assert "Its changes were dropped" in made.results[0]
    assert differences(before, place.look()) == {}


@pytest.mark.agents
def test_the_rules_judge_the_command_that_the_model_asked_for(place: Place) -> None:
    turns = (Shell("rm docs/a.md"), Shell("touch asked.txt"), Shell("mkdir made"))
    before = place.look()

    made = played(place, scene("rules", *turns, wants={}, rules=RULES))

    assert DENIED["claude-code"] in made.results[0]
    assert ASKED["claude-code"] in made.results[1]
    assert differences(before, place.look(), times=False) == {"made": "added"}


@pytest.mark.agents
def test_a_command_in_the_background_is_seen_at_once(place: Place) -> None:
    seen: dict[str, bool] = {}

    def look(now: object) -> None:
        seen["begun"] = (place.project / "begun.txt").exists()

    one = scene(
        "job",
        Shell("echo begun > begun.txt; {job}; echo late > late.txt", background=True),
        wants={},
        meetings={"job": look},
    )
    played(place, one)

    assert seen == {"begun": True}


@pytest.mark.agents
@pytest.mark.root
def test_of_parallel_commands_of_an_ordinary_user_each_has_its_own(open_place: Place) -> None:
    place, made = open_place, make_home()
    store = made.directory / "store"

    def takeback(*words: str) -> "subprocess.CompletedProcess[str]":
        code = (
            f"import sys; sys.path[:0] = [{str(made.library)!r}]; "
            "from takeback.frontends.cli.main import main; main()"
        )
        rights = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        done = ran(
            [*rights, made.python, "-I", "-B", "-c", code, *words], place.project,
            {"PATH": os.environ["PATH"], "TAKEBACK_STORE": str(store)}, HOME=str(place.home),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    try:
        store.mkdir(0o700)
        for path in (place.top, place.home, store):
            give(path)
        os.environ["TAKEBACK_STORE"] = str(store)
        takeback("hook", "install", "claude-code")
        takeback("hook", "mode", "sandbox", "claude-code")
        before = place.look()
        # Those that only read, as Claude Code sees it, run at the same time: it does not look into `sed`.
        turn = tuple(Shell(f"cat README.md; sleep 1; echo {one} > {one}.txt") for one in "ab")

        play("claude-code", scene("two", turn, wants={}), place.home, place.project, user=USER)

        assert differences(before, place.look(), times=False) == {"a.txt": "added", "b.txt": "added"}
        (one,) = (one for one in json.loads(takeback("log", "--json").stdout) if "a.txt" in one["summary"])
        takeback("undo", one["id"])
        assert differences(before, place.look(), times=False) == {"b.txt": "added"}
        takeback("undo", "--session")
        assert differences(before, place.look(), times=False) == {}
        for process in daemons(str(store)):
            os.kill(process, 9)
    finally:
        shutil.rmtree(made.directory)
