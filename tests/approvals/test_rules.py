"""Rules in a real file of configuration, through the command line: two people for a write, a budget that stops."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.agents import Place, place

_ = place
CLI = (sys.executable, "-m", "takeback")
RULE = """
[[rule]]
name = "two people"
match = {path = "conf"}
then = "ask"
asks = {people = 2, of = ["bea", "kim"], within = "1h"}
"""
BUDGET = '[[budget]]\nname = "writes"\nmatch = {kind = "write"}\nmost = 2\nper = "1h"\n'
WHEN = (
    '[[rule]]\nname = "big"\nmatch = {kind = "write"}\nwhen = "bytes > 3"\nthen = "deny"\nwhy = "too much"\n'
)


class Office:
    """A program of the agent's user, with a configuration that only root writes; each key is read by root alone."""

    def __init__(self, place: Place, tmp_path: Path) -> None:
        self.place = place
        self.config = tmp_path / "configuration/takeback/config.toml"
        self.config.parent.mkdir(parents=True, mode=0o755)
        self.here = place.environment(place.directory) | {"XDG_CONFIG_HOME": str(self.config.parents[1])}

    def rules(self, text: str) -> None:
        self.config.write_text(text)
        self.config.chmod(0o644)

    def agent(self, *words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
        return self.place.agent(*CLI, *words, env=self.here, stdin=None, input=typed)

    def new_key(self, name: str) -> str:
        """The lines for the configuration."""
        key = str(self.place.person / f"{name}.key")
        made = self.place.takeback("approver", "new", name, "--key", key, "--no-passphrase", "--json")
        assert made.returncode == 0, made
        return json.loads(made.stdout)["lines"] + "\n"

    def says_yes(self, id: str, name: str) -> "subprocess.CompletedProcess[str]":
        """Signed where the agent cannot look, taken by whoever."""
        shown = self.agent("approve", id, "--show-request")
        key = str(self.place.person / f"{name}.key")
        signed = self.place.takeback("approver", "sign", "-", "--by", name, "--key", key, typed=shown.stdout)
        assert signed.returncode == 0, signed
        return self.agent("approve", "--answer-file", "-", typed=signed.stdout)

    def content(self) -> str | None:
        conf = self.place.directory / "conf"
        return conf.read_text() if conf.exists() else None


@pytest.fixture
def office(place: Place, tmp_path: Path) -> Office:
    return Office(place, tmp_path)


@pytest.mark.root
def test_a_rule_holds_a_write_until_two_keys_of_people_approved_it(office: Office) -> None:
    office.rules(RULE + office.new_key("bea") + office.new_key("kim"))

    asked = office.agent("write", "conf", "--agent", "writer", "--json", typed="x")
    assert asked.returncode == 5, asked
    id: Any = json.loads(asked.stdout)["error"]["effect"]
    said = office.agent("approve", id, "--by", "bea")
    assert said.returncode == 3 and "needs 2 of bea, kim" in said.stderr

    for _ in range(2):  # the same person once more is no second one
        office.says_yes(id, "bea")
        refused = office.agent("apply", id)
        assert (refused.returncode, office.content()) == (3, None), refused
    done = office.says_yes(id, "kim")
    assert done.returncode == 0, done
    applied = office.agent("apply", id)

    assert applied.returncode == 0, applied
    assert office.content() == "x"


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """The surroundings of a command with a configuration of its own."""
    (tmp_path / "takeback").mkdir()
    path = os.pathsep.join(path for path in sys.path if path)
    return os.environ | {"XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": path}


def write(name: Path, content: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    words = [*CLI, "write", str(name), "--agent", "eve"]
    return subprocess.run(words, env=environment, input=content, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_budget_stops_the_agent_of_commands(tmp_path: Path, alone: dict[str, str], store: str) -> None:
    (tmp_path / "takeback/config.toml").write_text(BUDGET)

    done = [write(tmp_path / name, "x", alone) for name in ("a", "b", "c", "d")]

    assert [one.returncode for one in done] == [0, 0, 3, 3], done
    assert "budget 'writes'" in done[2].stderr and "stopped" in done[3].stderr
    assert sorted(one.name for one in tmp_path.iterdir() if one.name in "abcd") == ["a", "b"]


@pytest.mark.slow
def test_a_condition_decides_over_a_write(tmp_path: Path, alone: dict[str, str], store: str) -> None:
    (tmp_path / "takeback/config.toml").write_text(WHEN)

    small, big = (write(tmp_path / name, name, alone) for name in ("abc", "abcd"))

    assert (small.returncode, big.returncode) == (0, 3), (small, big)
    assert "too much" in big.stderr and not (tmp_path / "abcd").exists()
