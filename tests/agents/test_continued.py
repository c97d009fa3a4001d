"""What becomes of a conversation: cleared, compacted, forked, resumed; with the real agents."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests.agents.drivers import DRIVERS
from tests.agents.family import Shell
from tests.agents.model import Model, Turn
from tests.agents.play import Prompt, Scene, play
from tests.agents.stage import Place, differences
from tests.agents.talk import knows_authors, takeback_in
from tests.agents.test_rig import ALL

pytestmark = [pytest.mark.agents, pytest.mark.usefixtures("no_daemon_stays")]
CLAUDE = DRIVERS["claude-code"]
SOURCE = Path(__file__).parents[2] / "src"


class Terminal:
    """One process of Claude Code, to which several prompts are given, as a person does."""

    def __init__(self, place: Place, script: dict[str, list[Turn]]) -> None:
        self.place, self._model = place, Model(script)

    def __enter__(self) -> "Terminal":
        self._model.__enter__()
        start = CLAUDE.start(self.place.home, self._model.port, "", False, None)
        words = [word for word in start.words if word]
        self._process = subprocess.Popen(
            [*words, "--input-format", "stream-json"], cwd=self.place.project, env=start.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        said, heard = self._pipes()
        said.close()
        self._process.wait(60)
        heard.close()
        self._model.__exit__()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin and self._process.stdout
        return self._process.stdin, self._process.stdout

    def says(self, text: str) -> str:
        """The id of the conversation afterwards."""
        said, heard = self._pipes()
        message = {"type": "user", "message": {"role": "user", "content": text}}
        said.write(json.dumps(message) + "\n")
        said.flush()
        found = (json.loads(line) for line in heard)
        return next(one for one in found if one.get("type") == "result")["session_id"]

    def forks(self, text: str) -> None:
        start = CLAUDE.start(self.place.home, self._model.port, text, True, None)
        subprocess.run(
            [*start.words, "--fork-session"], cwd=self.place.project, env=start.environment, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip


def takeback(place: Place, *words: str) -> str:
    whole = [] if words[0] != "undo" or knows_authors(place.project) else ["--", str(place.project)]
    done = takeback_in(place, *words, *whole)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(place: Place) -> set[str]:
    return {one.stem for one in place.project.glob("made-*")}


def listed(place: Place) -> list[tuple[str, int, str]]:
    """Session, number and words of the prompt of each call, newest first."""
    found: Sequence[dict[str, Any]] = json.loads(takeback(place, "log", "--json"))
    return [
        (one["session"].split()[1], one["prompt"]["number"], one["prompt"]["text"])
        for one in found
        if one["session"]
    ]


@pytest.mark.each_share
def test_a_conversation_is_cleared_compacted_and_forked(place: Place) -> None:
    script = {
        f"make {one}": [CLAUDE.turn([Shell(f"echo x > made-{one}")], place.project)]
        for one in ("one", "two", "three", "four")
    }
    takeback(place, "hook", "install", "claude-code")
    before = place.look()
    with Terminal(place, script) as claude:
        first = claude.says("make one")
        second = claude.says("/clear")
        assert second != first
        # Right after it the new conversation has done nothing yet: the last prompt is of the one before.
        takeback(place, "undo", "--prompt")
        assert made(place) == set()
        takeback(place, "redo")
        claude.says("make two")
        assert claude.says("/compact") == second
        claude.says("make three")
        assert listed(place) == [
            (second, 2, "make three"),
            (second, 1, "make two"),
            (first, 1, "make one"),
        ]
        takeback(place, "undo", "--session")
        assert made(place) == {"made-one"}
        takeback(place, "redo")
        claude.forks("make four")
    third = listed(place)[0][0]
    assert third not in (first, second) and listed(place)[0] == (third, 1, "make four")
    takeback(place, "undo", "--prompt", "--session", second)
    assert made(place) == {"made-one", "made-two", "made-four"}
    takeback(place, "undo", "--session")
    assert made(place) == {"made-one", "made-two"}
    for session in (second, first):
        takeback(place, "undo", "--session", session)
    assert differences(before, place.look(), times=False) == {}


@pytest.mark.parametrize("agent", ALL)
def test_the_agent_undoes_what_it_did(agent: str, place: Place) -> None:
    whole = "" if knows_authors(place.project) else f" -- {place.project}"
    asks = f"PYTHONPATH={SOURCE} {sys.executable} -m takeback undo --prompt{whole}"
    wrecks = Prompt("wreck it", ((Shell("rm -r docs; echo x > made-x"),), (Shell("rm notes.txt"),)))
    scene = Scene("undo it", (wrecks, Prompt("undo it", ((Shell(asks),),))), {})
    takeback(place, "hook", "install", agent.removesuffix("-script"))
    before = place.look()

    played = play(agent, scene, place.home, place.project)

    (said,) = played.results[-1:]
    assert "Took back" in said and "Left out" in said, said
    assert differences(before, place.look(), times=False) == {}, said
    listed = json.loads(takeback(place, "log", "--json", "--all"))
    own = [one for one in listed if one["kind"] == "watch" and "takeback undo" in one["summary"]]
    shown = [takeback(place, "show", one["id"]) for one in own if one["state"] != "aborted"]
    assert shown == [], "it changed nothing itself"
