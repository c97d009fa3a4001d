"""The real command in a process of its own, as a user types it; most have the package loaded before they start."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tests.world import World

COMMAND = (sys.executable, "-m", "takeback")


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class CommandLine:
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __call__(self, *words: str | os.PathLike[str], input: str | bytes = b"", **environment: str) -> Said:
        done = subprocess.run(
            [*COMMAND, *words],
            input=input.encode() if isinstance(input, str) else input,
            capture_output=True, cwd=self.directory, env=surroundings() | environment, timeout=300, check=False,
        )  # fmt: skip
        out, err = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
        assert "Traceback" not in err, err
        return Said(done.returncode, out, err)

    def done(self, *words: str | os.PathLike[str], input: str | bytes = b"", **environment: str) -> Said:
        """A command that must succeed."""
        said = self(*words, input=input, **environment)
        assert said.code == 0, said
        return said

    def write(self, path: str | os.PathLike[str], content: str | bytes, *words: str) -> dict[str, Any]:
        """The effect of a write."""
        return self.done("write", path, "--json", *words, input=content).json

    def effect(self, name: str = "@") -> dict[str, Any]:
        return self.done("show", name, "--json").json


def surroundings() -> dict[str, str]:
    # The child finds the package where this process did, installed or not.
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture
def takeback(world: World) -> CommandLine:
    return CommandLine(os.fspath(world.root))
