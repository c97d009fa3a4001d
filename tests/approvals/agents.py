"""An agent of another user than the person: what it asks for, and what it tries."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

AGENT = 1000  # its uid
LIMIT = 120
_ASKS = """
import json, os, sys
import takeback
from tests.approvals.asking import asks, writes
from tests.calls.post import send_mail
with takeback.open() as tb:
    if sys.argv[1:2] == ["resume"]:
        run = tb.resume(tb.runs()[0])
    else:
        run = tb.run("work", agent="writer")
    try:
        with run:
            run.call(send_mail, "anna", key="mail-1")
        print("sent")
    except takeback.TakebackError as error:
        print(type(error).__name__, error)
"""


class Place(NamedTuple):
    """The agent's home with its store, and the person's."""

    directory: Path
    person: Path

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def sent(self) -> list[str]:
        out = self.directory / "post"
        return out.read_text().splitlines() if out.exists() else []

    def environment(self, home: Path) -> dict[str, str]:
        given = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        root = str(Path(__file__).parents[2])
        given["PYTHONPATH"] = os.pathsep.join([root, given.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return {
            **given, "HOME": str(home), "TAKEBACK_STORE": str(self.store), "POST": str(self.directory / "post"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def agent(self, *words: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        """A process of the agent's user."""
        as_agent = ["setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups", *words]
        given = {
            "cwd": self.directory,
            "env": self.environment(self.directory),
            "stdin": subprocess.DEVNULL,
            **more,
        }
        return subprocess.run(as_agent, capture_output=True, text=True, check=False, timeout=LIMIT, **given)

    def agent_does(self, program: str, *words: str) -> str:
        done = self.agent(sys.executable, "-c", program, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def asks(self, *words: str) -> str:
        return self.agent_does(_ASKS, *words)

    def takeback(self, *words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
        """The person, who is root here."""
        return subprocess.run(
            [sys.executable, "-m", "takeback", *words], cwd=self.person, env=self.environment(self.person),
            input=typed, capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip

    def pending(self) -> Any:
        done = self.takeback("pending", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "agent", tmp_path / "person")
    for path in (made.directory, made.person):
        path.mkdir(mode=0o700)
    os.chown(made.directory, AGENT, AGENT)
    for above in tmp_path.parents:
        if os.stat(above).st_uid == 0 and above != Path("/"):
            above.chmod(os.stat(above).st_mode | 0o011)
    tmp_path.chmod(0o755)
    return made
