"""What all agents have in common: the calls a scene makes, what a hook is, and what a driver must know of its agent."""

import json
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from takeback.frontends.agents import launch

AGENTS = Path(__file__).parents[2] / ".agents"  # made by tools/set-up agents
Words = tuple[str, Any]  # name and input of a tool call


class Shell(NamedTuple):
    command: str
    background: bool = False  # the host goes on while it runs, where the host can do that


class Write(NamedTuple):
    path: str  # from the project
    text: str


class Edit(NamedTuple):
    path: str
    old: str
    new: str


class Read(NamedTuple):
    path: str


class Delegate(NamedTuple):
    """A subagent does what a prompt of the same scene says."""

    prompt: str


class Notebook(NamedTuple):
    """A cell of a notebook gets this source."""

    path: str
    cell: str
    source: str


Deed = Shell | Write | Edit | Read | Delegate | Notebook


class Hooks(NamedTuple):
    """One command for all events of an agent. Its words follow `command`: the agent's name, then the event's."""

    command: Sequence[str]
    blocks: bool = True  # a hook that fails before a call denies it, where the host has such a setting
    seconds: int = 60
    events: Sequence[str] = ()  # only these; all that the driver knows where empty


class Rules(NamedTuple):
    """With approvals on: a command that begins with one of these words is denied, asked for, or allowed."""

    denied: str = ""
    asked: str = ""
    allowed: str = ""


class Start(NamedTuple):
    """How to start an agent for one prompt."""

    words: Sequence[str]
    environment: Mapping[str, str]
    seconds: int  # until it hangs


class Agent(ABC):
    name: str
    events: Sequence[str]  # all that takeback could listen to
    before: str  # the one before a call

    def call(self, deed: Deed, project: Path) -> Words:
        match deed:
            case Shell(command, background):
                return self.shell(command, background)
            case Write(path, text):
                return self.write(self.path(project, path), text)
            case Edit(path, old, new):
                return self.edit(self.path(project, path), old, new)
            case Read(path):
                return self.read(self.path(project, path))
            case Delegate(prompt):
                return self.delegate(prompt)
            case Notebook(path, cell, source):
                return self.notebook(self.path(project, path), cell, source)

    def turn(self, deeds: Sequence[Deed], project: Path) -> list[Words]:
        """What the model says at once."""
        return [self.call(deed, project) for deed in deeds]

    def path(self, project: Path, path: str) -> str:
        """As its calls name a file of the project."""
        return str(project / path)

    @abstractmethod
    def shell(self, command: str, background: bool) -> Words: ...

    @abstractmethod
    def write(self, path: str, text: str) -> Words: ...

    @abstractmethod
    def edit(self, path: str, old: str, new: str) -> Words: ...

    @abstractmethod
    def read(self, path: str) -> Words: ...

    @abstractmethod
    def delegate(self, prompt: str) -> Words: ...

    def notebook(self, path: str, cell: str, source: str) -> Words:
        raise NotImplementedError(f"{self.name} has no tool for notebooks")

    @abstractmethod
    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        """Write what only a file in the home can say. A file of takeback's installer stays as it is."""

    @abstractmethod
    def start(self, home: Path, port: int, prompt: str, again: bool, rules: Rules | None) -> Start:
        """`again`: the conversation before goes on."""


def binary(path: str) -> str:
    """Of the installed packages; `{cpu}` is as npm names it, `{machine}` as the kernel does."""
    cpu = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return str(AGENTS / path.format(cpu=cpu, machine=platform.machine()))


def surroundings(home: Path) -> dict[str, str]:
    """What every agent gets: nothing of the user's, no way into the network."""
    kept = ("TAKEBACK_STORE", "XDG_RUNTIME_DIR", "GIT_CONFIG_GLOBAL")
    found = launch.surroundings(str(home), "", os.environ) | {"SHELL": "/bin/bash"}
    return found | {name: os.environ[name] for name in kept if name in os.environ}


def read_settings(place: Path) -> dict[str, Any]:
    return json.loads(place.read_text()) if place.exists() else {}


def write_settings(place: Path, found: dict[str, Any]) -> None:
    """Only where they say something that is not there already: else they stay as an installer wrote them."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists() or found != read_settings(place):
        place.write_text(json.dumps(found, indent=2) + "\n")
