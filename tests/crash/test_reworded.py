"""No decision is read out of a sentence: with other English everywhere, recovery, undo, workflows and the command line
do the same, whether the records were written in the old words or in the new ones."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from takeback.model.format_1 import with_fields
from takeback.model.record import Kind
from tests.crash.reworded import is_sentence, reworded
from tests.crash.worded_scenes import SCENES

pytestmark = pytest.mark.real  # a process that is forked with takeback loaded has it in today's words

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("worded_scenes.py")


# What comes of each scene, whatever the words.
COMES: dict[str, dict[str, Any]] = {
    "refund": {"effects": [["call", "stuck"]], "files": {"refunds.txt": "refund\n"}},
    "given_up": {
        "effects": [["write", "undone"], ["undo", "aborted"], ["undo", "done"]],
        "undone in": [2],  # by the run of the way that the person chose
        "settled": [["undone", "undo_finished"]],
        "files": {"a.txt": "before"},
    },
    "workflow": {
        "effects": [["write", "undone"], ["call", "undone"], ["undo", "done"], ["undo", "done"]],
        "undone in": [1, 2],
        "files": {"recalled.txt": "letter 7"},
    },
    "watched": {"effects": [["watch", "done"]], "settled": [["done", "unwatched"]], "there": True},
    "interrupted": {
        "effects": [["delete", "done"], ["delete", "undone"], ["undo", "done"]],
        "files": {"b.txt": "content"},
        "code": 0,
    },
    "in_doubt": {
        "effects": [["call", "intended"]],
        "settled": [["left", "in_doubt"]],
        "files": {"caught.txt": "InDoubt InDoubt"},
    },
    "dropped": {"reasons": ["failed", "discarded"], "files": {"a.txt": "1\n", "b.txt": "2\n"}},
    "conflict": {
        "effects": [["write_all", "done"], ["undo", "done"]],
        "outcomes": [["conflict", "undone"], ["conflict", "undone"]],
        "outcome": "partial",
        "code": 3,
        "files": {"b.txt": "someone else's"},
    },
}


def played(scene: str, place: Path, words: str) -> Any:
    """The first step in the words of now, or of a later release; all others in those of the later one. What the last
    one printed."""
    place.mkdir()
    said = None
    for number, step in enumerate(SCENES[scene][1]):
        rewording = ["-m", "tests.crash.reworded"] if number or words == "later" else []
        said = subprocess.run(
            [sys.executable, *rewording, str(SCRIPT)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "SCENE": scene, "STEP": step, "PLACE": str(place)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert said.returncode in (0, 9), said.stderr
    assert said and said.returncode == 0, said
    return json.loads(said.stdout.splitlines()[-1])


@pytest.fixture(scope="session", autouse=True)
def reworded_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each module is read in other words once, for all processes of all scenes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWORDED", str(tmp_path_factory.mktemp("reworded")))
        yield


@pytest.mark.parametrize("words", ["now", "later"])
@pytest.mark.parametrize("scene", SCENES)
def test_finding_10_no_sentence_decides(scene: str, words: str, tmp_path: Path) -> None:
    came = played(scene, tmp_path / "place", words)
    assert {name: came[name] for name in COMES[scene]} == COMES[scene]


def test_finding_10_a_sentence_is_told_from_what_is_none() -> None:
    assert is_sentence("is being taken back") and reworded("a b c") != "a b c"
    assert not is_sentence("partly undone") and not is_sentence("SELECT id FROM records WHERE kind")


@pytest.mark.parametrize(
    ("kind", "why", "field"),
    [
        (Kind.STICK, "No. Taking it back was begun; whether that has happened is not known.", "begun"),
        (Kind.ABORT, "It was stuck, and given up for another way back that a person chose.", "given_up"),
        (Kind.CLOSE, "is being taken back", "taking_back"),
    ],
)
def test_finding_10_what_format_1_said_in_a_sentence_is_a_field(kind: Kind, why: str, field: str) -> None:
    """These sentences are in the stores of people; they mean what they meant."""
    assert with_fields(kind, {"why": why}) == {"why": why, field: True}
    assert with_fields(kind, {"why": "Something else happened."}) == {"why": "Something else happened."}
    assert with_fields(Kind.DONE, {"why": why}) == {"why": why}
