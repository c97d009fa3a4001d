"""Plays a scene in a real agent: the model says its turns, and at the agreed moments the scene acts on the world."""

import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.drivers import PLAYED
from tests.agents.family import Agent, Deed, Hooks, Rules, Shell, Start
from tests.agents.model import Model, Request

_SOON = 120.0  # seconds until a moment must have come


class Now(NamedTuple):
    """What an act finds, and how it waits for a call or lets it go on."""

    project: Path
    home: Path
    agent: int  # the number of its process
    meet: Callable[
        [str], int
    ]  # waits until a call is at the meeting of that name; the number of the process there
    asked: Callable[[str, int], None]  # waits until that turn of that prompt was asked for
    release: Callable[[str], None]  # lets the call at that meeting go on, and waits until its shell has ended


Act = Callable[[Now], None]


class Prompt(NamedTuple):
    text: str
    turns: tuple[tuple[Deed, ...], ...] = ()
    by: str = "user"  # or "agent": a subagent gets it


Worlds = Mapping[
    str, Any
]  # path from the project: its content, None where it is gone, ... for any other difference


class Scene(NamedTuple):
    """What the model does, what others do at which moment, and what is different afterwards.

    A command that holds `{name}` of a meeting waits there until the act of that name has been done; where there is no
    act, until another act releases it. `wants` names every path that differs afterwards, but for what is in `.git`.
    """

    name: str
    prompts: tuple[Prompt, ...]
    wants: Worlds
    meetings: Mapping[str, Act | None] = {}
    between: Mapping[tuple[str, int], Act] = {}  # before that turn of that prompt is said
    rules: Rules | None = None
    killed: bool = False  # the agent does not come to its end
    broken_off: tuple[str, ...] = ()  # agents that stop asking the model there
    instead: Mapping[str, Worlds] = {}  # of an agent that does otherwise
    without: tuple[str, ...] = ()  # agents that have no such thing

    def world(self, agent: str) -> Worlds:
        return self.instead.get(agent, self.wants)


class Played(NamedTuple):
    requests: list[Request]
    output: str
    errors: str
    exit: int  # of the last prompt; negative for a signal

    @property
    def results(self) -> list[str]:
        """What the tools gave back, as the model heard it at the end."""
        last = [request for request in self.requests if request.prompt]
        return last[-1].results if last else []


class NotPlayed(AssertionError):
    """The agent hung, did not end well, or a moment never came."""


def play(
    agent: str,
    scene: Scene,
    home: Path,
    project: Path,
    hooks: Hooks | None = None,
    *,
    acts: Mapping[str, Act] | None = None,
    after: Callable[[str], None] = lambda prompt: None,
    user: int | None = None,
) -> Played:
    """`acts` replaces acts at meetings by name; `after` is called when a prompt has ended.

    Without `hooks` the settings in the home stay as they are, so an installer's hooks are in force. Root may let
    another `user` play; the home becomes theirs, the project must be.
    """
    driver = PLAYED[agent]
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    driver.settle(home, hooks, scene.rules)
    if user is not None:
        _give(home, user)
    return _Performance(driver, scene, home, project, dict(scene.meetings) | dict(acts or {}), user).play(
        after
    )


class _Performance:
    def __init__(
        self,
        driver: Agent,
        scene: Scene,
        home: Path,
        project: Path,
        meetings: Mapping[str, Act | None],
        user: int | None,
    ) -> None:
        self.driver, self.scene, self.home, self.project, self.user = driver, scene, home, project, user
        # A sleep of its own length is found in any sandbox, and says nothing to the agent.
        self.sleeps = {name: f"86400.{secrets.randbelow(10**9):09}" for name in meetings}
        self.meetings = meetings
        self.met: dict[str, tuple[int, int]] = {}  # who sleeps there, and the shell that waits for it
        self.agent = 0
        self.troubles: list[BaseException] = []
        self.over = threading.Event()

    def play(self, after: Callable[[str], None]) -> Played:
        script = {
            prompt.text: [
                self.driver.turn([self._placed(deed) for deed in turn], self.project) for turn in prompt.turns
            ]
            for prompt in self.scene.prompts
        }
        output, errors, code, again = "", "", 0, False
        threads = [
            threading.Thread(target=self._meet, args=(name, act))
            for name, act in self.meetings.items()
            if act
        ]
        with Model(script, self._between) as model:
            self.model = model
            for thread in threads:
                thread.start()
            try:
                for prompt in self.scene.prompts:
                    if prompt.by == "user":
                        start = self.driver.start(self.home, model.port, prompt.text, again, self.scene.rules)
                        code, said, complaint = self._run(start)
                        output, errors, again = output + said, errors + complaint, True
                        after(prompt.text)
            finally:
                self.over.set()
                for thread in threads:
                    thread.join()
        played = Played(model.requests, output, errors, code)
        self._judge(played, [*model.troubles, *self.troubles])
        return played

    def _placed(self, deed: Deed) -> Deed:
        """With the meetings in its command."""
        if not isinstance(deed, Shell):
            return deed
        command = deed.command
        for name, sleep in self.sleeps.items():
            command = command.replace(f"{{{name}}}", f"sleep {sleep}")
        return deed._replace(command=command)

    def _run(self, start: Start) -> tuple[int, str, str]:
        rights = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        process = subprocess.Popen(
            start.words, cwd=self.project, env=start.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, umask=0o022, **rights,
        )  # fmt: skip
        self.agent = process.pid
        try:
            output, errors = process.communicate(timeout=start.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            raise NotPlayed(
                f"{self.driver.name} hung in {self.scene.name}:\n{output[-2000:]}\n{errors[-2000:]}"
            ) from None
        return process.returncode, output, errors

    def _judge(self, played: Played, troubles: list[BaseException]) -> None:
        tail = f"\n{played.output[-2000:]}\n{played.errors[-2000:]}"
        where = f"{self.driver.name}, {self.scene.name}: "
        if troubles:
            raise NotPlayed(f"{where}{troubles!r}{tail}") from troubles[0]
        if not self.scene.killed and played.exit != 0:
            raise NotPlayed(f"{where}exit {played.exit}{tail}")
        said = self.model.asked()
        cut = self.scene.killed or self.driver.name in self.scene.broken_off
        for prompt in self.scene.prompts if not cut else ():
            if prompt.turns and (prompt.text, len(prompt.turns)) not in said:
                raise NotPlayed(
                    f"{where}the turns of {prompt.text!r} were not all asked for: {sorted(said)}{tail}"
                )

    def _now(self) -> Now:
        return Now(self.project, self.home, self.agent, self._at, self._asked, self._release)

    def _between(self, prompt: str, turn: int) -> None:
        if act := self.scene.between.get((prompt, turn)):
            act(self._now())

    def _meet(self, name: str, act: Act) -> None:
        """Waits for the process that sleeps so long, acts, and lets it go on."""
        try:
            self._at(name)
            act(self._now())
            self._release(name) if self.scene.killed else self._wake(name)
        except Exception as error:  # noqa: BLE001 - it is raised again where the test is
            self.troubles.append(error)
            if self.agent and not self.over.is_set():  # it would wait for us until its own time is over
                with suppress(ProcessLookupError):
                    os.killpg(self.agent, signal.SIGKILL)

    def _at(self, name: str) -> int:
        self._wait_for(
            lambda: name in self.met or self._look_for(name), f"no call came to the meeting {name!r}"
        )
        return self.met[name][0]

    def _look_for(self, name: str) -> bool:
        if found := sleeper(self.sleeps[name]):
            self.met[name] = found, parent_of(found)
        return bool(found)

    def _asked(self, prompt: str, turn: int) -> None:
        self._wait_for(
            lambda: (prompt, turn) in self.model.asked(), f"turn {turn} of {prompt!r} was not asked for"
        )

    def _wait_for(self, come: Callable[[], object], complaint: str) -> None:
        until = time.monotonic() + _SOON
        while not come():
            if self.over.wait(0.02) or time.monotonic() > until:
                raise NotPlayed(complaint)

    def _wake(self, name: str) -> None:
        with suppress(ProcessLookupError):  # killed with the agent
            os.kill(self._at(name), signal.SIGTERM)

    def _release(self, name: str) -> None:
        self._wake(name)
        ended(self.met[name][1])


def sleeper(length: str) -> int:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().split(b"\0")[:2] == [b"sleep", length.encode()]:
                    return int(name)
        except OSError:
            continue
    return 0


def parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def ended(process: int) -> None:
    """Waits until a process of others has ended."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        if not select.select([handle], [], [], _SOON)[0]:
            raise NotPlayed(f"process {process} did not end")
    finally:
        os.close(handle)


def _give(home: Path, user: int) -> None:
    for directory, names, files in os.walk(home):
        for name in (".", *names, *files):
            os.lchown(os.path.join(directory, name), user, user)
