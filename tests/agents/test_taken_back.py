"""Every scene in the real agent with takeback installed: one command brings the project back, and the user keeps what
the user did."""

import json
import os
from pathlib import Path

import pytest

import takeback as takeback_store
from takeback.frontends.agents.install import settings_of
from takeback.frontends.agents.settings import shim_path
from tests.agents.family import Edit, Read, Shell, Write
from tests.agents.play import Prompt, Scene, play
from tests.agents.scenes import ASKED, DENIED, SCENES, expect, scene
from tests.agents.stage import Manifest, Place, differences, git
from tests.agents.talk import knows_authors, takeback_in
from tests.agents.test_rig import ALL, CASES

pytestmark = [pytest.mark.agents, pytest.mark.usefixtures("no_daemon_stays")]

# What stays after `undo --session --merge` where the kernel tells who made a change: the user's, and what is elsewhere.
_STAYS = {
    "write outside by shell": {"../other/x.txt": "x\n"},
    "user edits the same file": {"docs/a.md": "a\nagent\nuser\nmore\n"},
    "user edits another file": {"docs/b.md": "user\n"},
    "user edits between calls": {"docs/a.md": "a\nuser\n", "docs/note.txt": "user\n"},
}
# What the user wrote in a scene: it must be there afterwards, whoever may know whose it is.
_OF_THE_USER = {
    "user edits the same file": {"docs/a.md": "user\n"},
    "user edits another file": {"docs/b.md": "user\n"},
    "user edits between calls": {"docs/a.md": "user\n", "docs/note.txt": "user\n"},
}
# The same in sandbox mode, where what others do during a command is no part of it, and nothing is outside.
_STAYS_BESIDE = {
    "user edits the same file": {"docs/a.md": "a\nuser\n"},
    "user edits another file": {"docs/b.md": "user\n"},
    "user edits between calls": {"docs/a.md": "a\nuser\n", "docs/note.txt": "user\n"},
}
_ENDED_WITH_IT = ("leave a program running",)  # its own test is in `test_sandbox_mode.py`
_EACH_TIME = (
    "fail in the shell", "delete a tree", "work in the background", "user edits the same file", "agent is killed",
    "daemon is killed",
)  # fmt: skip
SANDBOXED = [
    pytest.param(
        one, id=one.name.replace(" ", "-"), marks=pytest.mark.each_share if one.name in _EACH_TIME else ()
    )
    for one in SCENES
    if "claude-code" not in one.without and one.name not in _ENDED_WITH_IT
]
_AFTER_ITS_DEATH = {"agent is killed": "late.txt"}
# Where authors are not known, what such a program wrote after its call is not counted to the agent.
_IN_THE_BACKGROUND = ("leave a program running", "work in the background")


def _git(project: Path) -> list[str]:
    return [git(project, *words.split()) for words in ("log --oneline", "diff --cached", "stash list")]


# Cursor by its contract; see `cursor.py`.
EVERY = [*ALL, pytest.param("cursor", id="cursor", marks=pytest.mark.each_share)]
CASES = [
    *CASES,
    *(
        pytest.param("cursor", one, id=f"cursor-{one.name.replace(' ', '-')}", marks=pytest.mark.each_share)
        for one in SCENES
    ),
]


def installed(agent: str, place: Place) -> None:
    done = takeback_in(place, "hook", "install", agent.removesuffix("-script"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("agent", "scene"), CASES)
def test_one_command_brings_it_back(agent: str, scene: Scene, place: Place):
    installed(agent, place)
    before, history = place.look(), _git(place.project)

    played = play(agent, scene, place.home, place.project)

    changed = differences(before, place.look(), times=False)
    expect(
        place, scene.world(agent), changed
    )  # as without takeback: what was denied is denied, what is asked is asked
    words = {"denied": DENIED, "asked": ASKED}.get(scene.name, {}).get(agent, "")
    assert words in "\n".join(played.results) + played.errors
    changed = changed or _git(place.project) != history
    knows = knows_authors(place.project)
    # Nor is it known of a call during which the daemon was killed.
    whole = (
        []
        if (knows and scene.name != "daemon is killed") or scene.name in _OF_THE_USER
        else ["--", str(place.top)]
    )
    undone = takeback_in(place, "undo", "--session", "--merge", "--skip-conflicts", *whole)
    assert "Traceback" not in undone.stderr + _log()
    said = f"{undone.stdout}{undone.stderr}{takeback_in(place, 'log', '--all').stdout}{_log()}"
    after = place.look()
    elsewhere = (
        _STAYS.get(scene.name, {}).keys() - before.keys() if scene.name.startswith("write outside") else ()
    )
    assert set(_told_outside(place)) <= {*elsewhere}, "what the agent keeps for itself is not told"
    for path, text in _OF_THE_USER.get(scene.name, {}).items():
        assert text in (place.project / path).read_text(), said
    if knows or scene.name not in _OF_THE_USER:
        _compare(place, scene, before, after, said, knows)
        assert _git(place.project) == history
    if not changed or scene.name == "write outside by shell":
        assert undone.returncode in (1, 3), said  # there is nothing to take back
    elif scene.name not in _OF_THE_USER:
        assert undone.returncode == 0, said


@pytest.mark.parametrize("scene", SANDBOXED)
def test_one_command_brings_it_back_in_sandbox_mode(scene: Scene, place: Place):
    for words in (("install", "claude-code"), ("mode", "sandbox", "claude-code")):
        done = takeback_in(place, "hook", *words)
        assert done.returncode == 0, done.stderr
    before, history = place.look(), _git(place.project)

    play("claude-code", scene, place.home, place.project)

    changed = differences(before, place.look(), times=False) or _git(place.project) != history
    undone = takeback_in(place, "undo", "--session", "--merge", "--skip-conflicts")
    said = f"{undone.stdout}{undone.stderr}{takeback_in(place, 'log', '--all').stdout}{_log()}"
    assert "Traceback" not in said
    assert _told_outside(place) == []
    stays = _STAYS_BESIDE.get(scene.name, {})
    around = {_name(os.path.dirname(path)) for path in stays}
    if scene.name == "work in the background":  # that is watched, beside what is in a sandbox
        around |= {_name("")}
    found = differences(before, place.look())
    assert {path for path, how in found.items() if how != "mtime" or path not in around} == stays.keys(), said
    for path, text in stays.items():
        assert (place.project / path).read_text() == text, said
    assert _git(place.project) == history, said
    if changed.keys() - stays.keys() if isinstance(changed, dict) else changed:
        assert undone.returncode == 0, said


IN_TWO_PROMPTS = Scene(
    "two prompts",
    (
        Prompt(
            "do the first part",
            (
                (Shell("rm -r docs"),),
                (Read("src/app.py"),),
                (Edit("src/app.py", "    return 1", "    return 2"),),
            ),
        ),
        Prompt("do the rest", ((Shell("echo made > made.txt; rm notes.txt"),), (Write("new.md", "new\n"),))),
    ),
    {},
)


@pytest.mark.parametrize("agent", EVERY)
def test_one_call_goes_back_then_a_prompt_then_all(agent: str, place: Place):
    installed(agent, place)
    before = place.look()
    named = [] if knows_authors(place.project) else ["--", str(place.project)]

    def takes_back(*words: str) -> dict[str, str]:
        done = takeback_in(place, "undo", *words, *named)
        assert done.returncode == 0, done.stdout + done.stderr
        return differences(before, place.look())

    play(agent, IN_TWO_PROMPTS, place.home, place.project)

    of_first, of_second = {"src/app.py"}, {"made.txt", "notes.txt", "twin.txt", "new.md"}
    told = json.loads(takeback_in(place, "log", "--json").stdout)
    (call,) = (one["id"] for one in told if "rm -r docs" in one["summary"])
    # Times of directories too: the one around is as the calls that stay have left it.
    assert takes_back(call).keys() - {".", "src"} == of_first | of_second
    assert takes_back("--prompt").keys() - {".", "src"} == of_first
    # The first call went back before those that came later, so no undo knows the time of this directory before it.
    assert takes_back("--session").keys() <= {"."}


@pytest.mark.parametrize("fault", ["missing", "broken"])
@pytest.mark.parametrize("agent", EVERY)
def test_no_call_runs_when_the_hook_program_is(agent: str, fault: str, place: Place, tmp_path: Path):
    installed(agent, place)
    elsewhere = tmp_path / "takeback/frontends/agents"
    elsewhere.mkdir(parents=True)
    if fault == "broken":
        (elsewhere / "shim.py").write_text("raise SystemExit(1)\n")
    file = settings_of(agent.removesuffix("-script"), True, {"HOME": str(place.home)}, "").file
    text = Path(file).read_text()
    Path(file).write_text(text.replace(os.path.dirname(shim_path()), str(elsewhere)))
    before = place.look()

    played = play(agent, WRECK, place.home, place.project)

    assert differences(before, place.look()) == {}
    off = f"takeback hook uninstall {agent.removesuffix('-script')}"
    assert all(off in one for one in played.results[:2]), played.results


WRECK = scene("wreck", Shell("rm -r docs"), Write("new.md", "new\n"), wants={})


# Of calls at the same time nobody knows which moved the time of a directory.
_AT_ONCE = ("work in the background", "two at the same time", "several at once")


def _compare(place: Place, scene: Scene, before: Manifest, after: Manifest, said: str, knows: bool) -> None:
    stays = _STAYS.get(scene.name, {})
    late = _AFTER_ITS_DEATH.get(scene.name)
    if not knows and scene.name in _IN_THE_BACKGROUND:
        late = "late.txt"
    found = differences(before, after)
    around = {_name(os.path.dirname(path)) for path in (*stays, *([late] if late else ()))}
    times = scene.name in _AT_ONCE
    found = {path: how for path, how in found.items() if not (how == "mtime" and (times or path in around))}
    assert found.keys() - {late} == stays.keys(), f"{found}\n{said}"
    for path, text in stays.items():
        assert (place.project / path).read_text() == text, said


def _told_outside(place: Place) -> list[str]:
    with takeback_store.open(os.environ["TAKEBACK_STORE"]) as tb:
        told = [path for effect in tb.effects() for path in effect.change.args.get("outside", ())]
    return sorted({os.path.relpath(path, place.project) for path in told})


def _name(directory: str) -> str:
    """As the look calls it."""
    return os.path.normpath(directory)


def _log() -> str:
    log = Path(os.environ["TAKEBACK_STORE"], "hooks/log")
    return log.read_text() if log.exists() else ""
