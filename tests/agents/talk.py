"""Speak to the shim as an agent does, with the daemon for real: a scripted conversation without an agent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import takeback
from takeback.adapters.watch.inotify import open_feed
from takeback.adapters.watch.roots import roots_of
from takeback.frontends.agents.settings import shim_path
from takeback.model.effect import Effect, State
from tests.agents.shims import words_of
from tests.agents.stage import Place

SHIM = shim_path()
REFUSED = 2


def until(holds: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        Event().wait(0.02)


class Hand:
    """A process that does what it is told: the agent's shell, or somebody else's."""

    def __init__(self, cwd: Path) -> None:
        self._process = subprocess.Popen(
            ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=cwd,
            start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid

    def does(self, command: str) -> None:
        """In a child, as an agent starts one for each command."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"sh -c {_quoted(command)}\necho done\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def dies(self) -> None:
        with_all = os.getpgid(self.pid)
        os.killpg(with_all, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self.dies()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()


def _quoted(command: str) -> str:
    import shlex

    return shlex.quote(command)


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.err = code, err
        self.answer: dict[str, Any] = json.loads(out) if out.strip() else {}
        self.text = out

    @property
    def refusal(self) -> str:
        """Why the call is not let through; empty if it is."""
        if self.code == REFUSED:
            return self.err
        more = self.answer.get("hookSpecificOutput", {})
        return more.get("permissionDecisionReason", "") if more.get("permissionDecision") == "deny" else ""

    @property
    def context(self) -> str:
        return self.answer.get("hookSpecificOutput", {}).get("additionalContext", "")


def takeback_in(place: Place, *words: str) -> "subprocess.CompletedProcess[str]":
    return ran([sys.executable, "-m", "takeback", *words], place.project, HOME=str(place.home))


def ran(
    words: Sequence[str], where: Path, environment: Mapping[str, str] | None = None, **more: str
) -> "subprocess.CompletedProcess[str]":
    env = {**(os.environ if environment is None else environment), **more}
    return subprocess.run(words, cwd=where, env=env, capture_output=True, text=True, check=False, timeout=120)


class Talk:
    """A conversation with Claude Code about a project, and the user beside it."""

    def __init__(self, place: Path, session: str = "s-1", project: str = "project") -> None:
        self.place, self.session = place, session
        self.project = place / project
        self.project.mkdir(exist_ok=True)
        self.store = Path(os.environ["TAKEBACK_STORE"])
        self.agent, self.user = Hand(self.project), Hand(place)
        self._calls = 0
        self.environment = {
            **os.environ,
            "CLAUDE_PROJECT_DIR": str(self.project),
            "CLAUDE_PID": str(self.agent.pid),
        }
        self.shim = SHIM
        self.compiled: Path | None = None
        self.rights: Sequence[str] = ()  # of the hooks and of the daemon that they start
        self.knows = knows_authors(self.project)

    def loses_authors(self) -> None:
        """From now on the kernel reports no one who changes what, as for an ordinary user."""
        self.knows = False
        if os.geteuid() == 0:
            without = "-sys_admin,-net_admin"
            self.rights = ("setpriv", f"--bounding-set={without}", f"--inh-caps={without}")

    def says(self, event: str, **more: Any) -> Said:
        payload = {"session_id": self.session, "cwd": str(self.project), "hook_event_name": event, **more}
        return self.sends(event, json.dumps(payload))

    def sends(self, event: str, text: str) -> Said:
        words = [*self.rights, *words_of(self.compiled, self.shim, "claude-code", event)]
        done = subprocess.run(
            words, input=text, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def starts(self) -> Said:
        return self.says("SessionStart", source="startup")

    def prompts(self, text: str, turn: str = "") -> Said:
        return self.says("UserPromptSubmit", prompt=text, **({"prompt_id": turn} if turn else {}))

    def before(self, tool: str, given: dict[str, Any], call: str = "", **more: Any) -> tuple[Said, str]:
        self._calls += 1
        call = call or f"call-{self.session}-{self._calls}"
        said = self.says("PreToolUse", tool_name=tool, tool_input=given, tool_use_id=call, **more)
        return said, call

    def after(self, tool: str, given: dict[str, Any], call: str, failed: bool = False, **more: Any) -> Said:
        event = "PostToolUseFailure" if failed else "PostToolUse"
        return self.says(event, tool_name=tool, tool_input=given, tool_use_id=call, tool_response={}, **more)

    def shell(self, command: str, meanwhile: str = "", **more: Any) -> Said:
        """A whole call; `meanwhile`: what the user does before it ends."""
        given = {"command": command}
        said, call = self.before("Bash", given, **more)
        assert not said.refusal, said.refusal
        self.agent.does(command)
        if meanwhile:
            self.user.does(meanwhile)
        return self.after("Bash", given, call, **more)

    def write(self, path: str, text: str, **more: Any) -> Said:
        given = {"file_path": str(self.project / path), "content": text}
        said, call = self.before("Write", given, **more)
        assert not said.refusal, said.refusal
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self.after("Write", given, call, **more)

    # What is recorded.

    def takeback(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return ran([sys.executable, "-m", "takeback", *words], self.project)

    def effects(self) -> list[Effect]:
        with takeback.open(self.store) as tb:
            return [one for one in tb.effects() if not one.is_undo and one.state is not State.ABORTED]

    def summaries(self) -> list[str]:
        return [one.change.summary for one in self.effects()]

    def undo(self, effect: Effect, *paths: str) -> list[tuple[str, str]]:
        """Where no one knows who made a change, only what is named goes back: then all of it is."""
        named: list[str] | None = [str(self.project / one) for one in paths] or None
        if named is None and not self.knows:
            named = [str(self.project)]
        with takeback.open(self.store) as tb:
            result = tb.undo(effect.id, paths=named)
        return [(one.resource.rpartition("/")[2], one.outcome.value) for one in result.targets]

    def files(self) -> dict[str, str]:
        found = sorted(one for one in self.project.rglob("*") if one.is_file())
        return {str(one.relative_to(self.project)): one.read_text() for one in found}

    # The daemon.

    def log(self) -> str:
        log = self.store / "hooks" / "log"
        return log.read_text() if log.exists() else ""

    def daemon(self) -> int:
        """Its process; 0 if there is none."""
        lock = self.store / "hooks" / "lock"
        pid = int(lock.read_text() or 0) if lock.exists() else 0
        return pid if pid and Path(f"/proc/{pid}/stat").exists() and not _is_dead(pid) else 0

    def kill_daemon(self, number: int = signal.SIGKILL) -> None:
        pid = self.daemon()
        os.kill(pid, number)
        until(lambda: not self.daemon())

    def close(self) -> None:
        self.agent.close()
        self.user.close()
        if self.daemon():
            self.kill_daemon()


def _is_dead(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def knows_authors(directory: Path) -> bool:
    """Whether the kernel tells us who changes what there, and who starts whom."""
    from takeback.adapters.watch.processes import open_lineage

    lineage = open_lineage()
    if lineage is None:
        return False
    lineage.close()
    (root,) = roots_of([directory])
    feed = open_feed(root, again=False)
    if feed is None:
        return False
    book = feed.open_book()
    feed.close()
    return book is not None


@contextmanager
def talking(place: Path, **more: Any) -> Iterator[Talk]:
    talk = Talk(place, **more)
    try:
        yield talk
        assert "Traceback" not in talk.log(), talk.log()
    finally:
        talk.close()
