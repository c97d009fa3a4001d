"""The programs of `tests/bench/peers`: ours and those of the peers, each in a process and an environment of its own."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.bench.effects_postgres import server
from tests.bench.measure import Wishes

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().with_name("peers")
ENVIRONMENT = ROOT / ".venv-peers"  # `tools/set-up bench` makes it; nothing of it is in the package's own
PATIENCE = 60  # seconds
MISSING = "DBOS and LangGraph are not installed here and were not measured: `make bench` installs them"


class Program(NamedTuple):
    """Who is measured: a file of `tests/bench/peers`, where it keeps its state, and in which way."""

    name: str
    store: str
    flavour: str = ""

    @property
    def ours(self) -> bool:
        return self.name == "takeback"

    def command(self, mode: str, step: int = 0) -> list[str]:
        python = sys.executable if self.ours else str(ENVIRONMENT / "bin" / "python")
        return [python, str(PROGRAMS / f"{self.name}_steps.py"), mode, self.store, str(step), self.flavour]


class Child:
    """A program that runs, asked line by line."""

    def __init__(self, program: Program, mode: str, step: int = 0) -> None:
        self._program = program
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        # Neither may ask the network who uses it.
        environment |= {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
        self._process = subprocess.Popen(
            program.command(mode, step),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if mode == "steps" else subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def hear(self) -> dict[str, Any]:
        pipe = _pipe(self._process.stdout)
        if not select.select([pipe], [], [], PATIENCE)[0]:
            raise SystemExit(f"{' '.join(self._process.args)} said nothing for {PATIENCE} s.")
        line = pipe.readline()
        if not line:
            said = self._process.stderr.read() if self._process.stderr else ""
            raise SystemExit(f"{self._program.name} ended with {self._process.wait()}: {said.strip()}")
        return json.loads(line)

    def ask(self, number: int) -> dict[str, Any]:
        pipe = _pipe(self._process.stdin)
        pipe.write(f"{number}\n")
        pipe.flush()
        return self.hear()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


def _pipe(pipe: "IO[str] | None") -> "IO[str]":
    assert pipe is not None
    return pipe


@contextmanager
def child(program: Program, mode: str, step: int = 0) -> Iterator[Child]:
    one = Child(program, mode, step)
    try:
        yield one
    finally:
        one.kill()


def peers_are_here() -> bool:
    return (ENVIRONMENT / ".ready").exists()


@contextmanager
def databases(wishes: Wishes) -> Iterator[Any]:
    """A name, and the address of an empty database of one and the same server."""
    with server(wishes) as database:
        yield lambda name: database.server.fresh(name).url
