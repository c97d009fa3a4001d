"""`hook test`: the agent itself makes a shell call and an edit with the user's hooks, apart from all that is theirs.

It runs in a home, a project and a store that are removed afterwards, against a model on loopback. What is said of it is
what was found on the disk and in that store, never what the agent or takeback said about themselves.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from takeback.errors import Failed, Refused
from takeback.frontends.agents.install import (
    SANDBOX,
    HookSettings,
    content_of,
    found_in,
    mode_in,
    settings_of,
)
from takeback.frontends.agents.launch import Launcher, ModelCall, launcher, surroundings
from takeback.frontends.agents.model import Model
from takeback.frontends.agents.obstacles import numbers_of
from takeback.frontends.agents.relay import ROOT
from takeback.frontends.agents.settings import only_hooks

SECONDS = 60  # for each of the two prompts
_PROMPT = "takeback tests its hooks"
_SHELL = "printf 'by the shell\\n' > shell.txt && rm gone.txt && mkdir made && printf 'new\\n' > made/new.txt"
_BY_SHELL = ("gone.txt", "made", "made/new.txt", "shell.txt")
_EDITED = "edited.txt"
_WHERE = "where.txt"
_SAYS_WHERE = f"readlink /proc/self/ns/mnt > {_WHERE}"  # in a sandbox it is another one
_FILES = {
    "shell.txt": "before\n", "gone.txt": "will be removed\n", _EDITED: "one\ntwo\nthree\n", "kept.txt": "kept\n"
}  # fmt: skip
_OLD = 1_700_000_000  # seconds: a time that no change of today has


class TrialPoint(NamedTuple):
    """What the test looked for, and whether it was so."""

    name: str
    held: bool
    detail: str  # what was seen, as a sentence
    made: bool = False  # a call that the agent has made


class Program(NamedTuple):
    """The agent that is run."""

    path: str
    version: str

    def shown(self, title: str) -> str:
        return f"{title} {self.version}" if self.version else title


class _Stage(NamedTuple):
    """Where all of it happens."""

    home: str
    project: str
    store: str
    blocked: str  # a store that cannot be opened
    settings: HookSettings
    mode: str
    program: Program
    agent: Launcher
    env: Mapping[str, str]

    @property
    def shown(self) -> str:
        return self.program.shown(self.settings.host.TITLE)


class _Played(NamedTuple):
    results: Sequence[str]  # of the tool calls, as the model heard them
    words: str  # the last that the agent printed


def hooks_to_test(settings: HookSettings, plugin: str = "") -> bytes:
    """The content of the settings; refused if no test can be made with it. `plugin`: one that is enabled."""
    name, title = settings.host.NAME, settings.host.TITLE
    if launcher(name) is None:
        raise Refused(
            f"{title} cannot be run without a person, so its hooks cannot be tested.",
            hint=f"`takeback hook status {name}` shows what can be read in its settings.",
        )
    data = content_of(settings.file)
    if data is None or not found_in(settings, data):
        level = "" if settings.user else " --project"
        if plugin:
            raise Refused(
                f"takeback has no hooks in {settings.file}, and the hooks of a plugin ({plugin}) cannot be tested.",
                hint=f"`takeback hook status {name}` shows whether the plugin is enabled.",
            )
        raise Refused(
            f"takeback has no hooks in {settings.file}.",
            hint=f"`takeback hook install {name}{level}` installs them.",
        )
    return data


def tried(
    settings: HookSettings, data: bytes, program: Program, env: Mapping[str, str]
) -> tuple[TrialPoint, ...]:
    """What held and what did not; failed if the agent did not get as far as that."""
    agent = launcher(settings.host.NAME)
    assert agent is not None
    with tempfile.TemporaryDirectory(prefix="takeback-hook-test-", ignore_cleanup_errors=True) as top:
        top = os.path.realpath(top)
        home, project, store = (os.path.join(top, name) for name in ("home", "project", "store"))
        blocked = os.path.join(top, "blocked")
        os.makedirs(os.path.join(home, "tmp"))
        with open(blocked, "w", encoding="utf-8"):
            pass  # a file, so no store can be below it
        stage = _Stage(
            home,
            project,
            store,
            os.path.join(blocked, "store"),
            settings,
            mode_in(settings, data),
            program,
            agent,
            env,
        )
        _copy_hooks(stage, data)
        try:
            seen = _recorded_and_undone(stage)
            return (*seen, *_denied_when_broken(stage, [one.name for one in seen if one.made]))
        finally:
            _end_all(home)


def _copy_hooks(stage: _Stage, data: bytes) -> None:
    """Ours only, and the switches beside them: what else is in the settings may reach out of the test."""
    user = stage.settings.user
    place = settings_of(stage.settings.host.NAME, user, {"HOME": stage.home}, stage.project).file
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "wb") as file:
        file.write(only_hooks(stage.settings.host, stage.settings.file, data, stage.settings.is_plugin))


# The first prompt: what is recorded, and whether it comes back.


def _recorded_and_undone(stage: _Stage) -> list[TrialPoint]:
    _lay_out(stage.project)
    edited = os.path.join(stage.project, _EDITED)
    before = _look(stage)
    edit = stage.agent.edit(edited, "two", "two, edited")
    inside = [stage.agent.shell(_SAYS_WHERE)] if stage.mode == SANDBOX else []
    script = (stage.agent.shell(_SHELL), *edit, *inside)
    played = _play(stage, script, stage.store)
    after = _look(stage)
    effects = _effects(stage)
    told = {
        frozenset(os.path.relpath(path, stage.project) for path in map(_path, one["targets"])): one
        for one in effects
    }
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    checks = [
        _was_recorded("shell", "shell call", _BY_SHELL, changed, told, played.results[:1], stage),
        _was_recorded("edit", "edit", (_EDITED,), changed, told, played.results[1 : len(edit) + 1], stage),
    ]
    where = [_was_inside(stage.project)] if inside else []
    if not all(one.held for one in checks):
        return [
            *checks,
            *where,
            TrialPoint("undo", False, "Undo was not tried: not all calls were recorded."),
        ]
    return [*checks, *where, _comes_back(stage, before)]


def _was_inside(project: str) -> TrialPoint:
    """By what the command itself has seen."""
    try:
        with open(os.path.join(project, _WHERE), encoding="utf-8", errors="replace") as file:
            seen = file.read().strip()
    except OSError:
        seen = ""
    if not seen:
        return TrialPoint("sandbox", False, "Whether shell calls run in the sandbox could not be seen.")
    if seen == os.readlink("/proc/self/ns/mnt"):
        return TrialPoint(
            "sandbox", False, "The shell call ran outside of the sandbox, although that is its mode."
        )
    return TrialPoint("sandbox", True, "The shell call ran in the sandbox, and its change was applied.")


def _was_recorded(
    name: str,
    what: str,
    paths: Sequence[str],
    changed: set[str],
    told: Mapping[frozenset[str], Mapping[str, Any]],
    results: Sequence[str],
    stage: _Stage,
) -> TrialPoint:
    if not changed.issuperset(paths):
        said = f" It said: {_short(results[-1])}" if results and results[-1].strip() else ""
        return TrialPoint(name, False, f"{stage.settings.host.TITLE} did not make the {what}.{said}")
    found = told.get(frozenset(paths))
    if found is None:
        missed = f"The {what} was made, and takeback has no record of it with what it changed."
        return TrialPoint(name, False, missed, made=True)
    files = f"{len(paths)} paths" if len(paths) > 1 else "file"
    return TrialPoint(name, True, f"The {what} was recorded, with the {files} that it changed.", made=True)


def _comes_back(stage: _Stage, before: Mapping[str, object]) -> TrialPoint:
    """Where the kernel does not say who made a change, undo takes only what is named."""
    for named in ((), ("--", stage.project)):
        code, _, complaint = _takeback(stage, "undo", "--session", "--json", *named)
        after = _look(stage)
        left = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        if code == 0 and not left:
            with_name = (
                " (with the project named: here the kernel does not say who made a change)" if named else ""
            )
            return TrialPoint("undo", True, f"Undo brought everything back exactly{with_name}.")
    said = f" {_short(complaint)}" if complaint.strip() else ""
    not_back = f" Not as before: {', '.join(left[:5])}." if left else ""
    return TrialPoint("undo", False, f"Undo ended with exit code {code}.{not_back}{said}")


def _lay_out(project: str) -> None:
    os.makedirs(project, exist_ok=True)
    for name, text in _FILES.items():
        path = os.path.join(project, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o640)
        os.utime(path, (_OLD, _OLD))


def _look(stage: _Stage) -> dict[str, object]:
    """Content, mode, owner and time of everything in the project, but for the agent's own directory."""
    found: dict[str, object] = {}
    for directory, names, files in os.walk(stage.project):
        if directory == stage.project:
            names[:] = [name for name in names if name != stage.settings.host.PROJECT]
        for name in (*names, *files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content = b""
            if name in files and not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
            about = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
            found[os.path.relpath(path, stage.project)] = about
    return found


def _effects(stage: _Stage) -> list[dict[str, Any]]:
    code, out, _ = _takeback(stage, "log", "--json", "--all", "-n", "0")
    with suppress(ValueError):
        found = cast("list[dict[str, Any]]", json.loads(out)) if code == 0 else []
        return [one for one in found if one["state"] == "done" and not one["undoes"]]
    return []


def _path(target: Mapping[str, Any]) -> str:
    from takeback.model.resource import path_of

    return os.fsdecode(path_of(target["resource"]))


# The second prompt: takeback cannot record anything.


def _denied_when_broken(stage: _Stage, made: Sequence[str]) -> list[TrialPoint]:
    """`made`: the calls that the agent made when takeback worked. Of others a denial would say nothing."""
    _lay_out(stage.project)
    edited = os.path.join(stage.project, _EDITED)
    edit = stage.agent.edit(edited, "three", "three, edited")
    played = _play(stage, (stage.agent.shell("printf 'ran\\n' > ran.txt"), *edit), stage.blocked)
    with open(edited, encoding="utf-8") as file:
        is_edited = file.read() != _FILES[_EDITED]
    has_run, answers = os.path.exists(os.path.join(stage.project, "ran.txt")), len(played.results)
    return [
        _was_denied("shell", "shell call", has_run, "shell" in made and answers > 0, stage),
        _was_denied("edit", "edit", is_edited, "edit" in made and answers > len(edit), stage),
    ]


def _was_denied(name: str, what: str, happened: bool, can_be_seen: bool, stage: _Stage) -> TrialPoint:
    name, title = f"{name} without takeback", stage.settings.host.TITLE
    if happened:
        said = f"With takeback unable to record, {title} made the {what} all the same: it does not deny it."
        return TrialPoint(name, False, said)
    if not can_be_seen:
        return TrialPoint(name, False, f"Whether the {what} is denied without takeback could not be seen.")
    return TrialPoint(name, True, f"With takeback unable to record, the {what} was denied.")


# Processes.


def _play(stage: _Stage, script: Sequence[ModelCall], store: str) -> _Played:
    """One prompt, to its end."""
    env = surroundings(stage.home, store, stage.env)
    names = [os.path.join(stage.home, "tmp", name) for name in ("out", "err")]
    with Model(script) as model, open(names[0], "wb") as out, open(names[1], "wb") as err:
        start = stage.agent.start(stage.program.path, stage.home, model.port, _PROMPT)
        try:
            process = subprocess.Popen(
                start.words, cwd=stage.project, env={**env, **start.environment}, stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Refused(
                f"{stage.program.path} cannot be started: {error.strerror}.",
                hint="Check the program, or name another one with --program.",
            ) from None
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    words = _last_words(names)
    if code is None:
        _end_all(stage.home)
        raise Failed(
            f"{stage.shown} did not end within {SECONDS} s. It was killed, with all that it had started.",
            hint=_advice(stage, words),
        )
    if not model.turns:
        raise Failed(
            f"{stage.shown} ended with exit code {code} before it asked the model for anything.",
            hint=_advice(stage, words),
        )
    return _Played(model.results, words)


def _advice(stage: _Stage, words: str) -> str:
    tried_with = stage.agent.TRIED
    is_older = stage.program.version and numbers_of(stage.program.version) < numbers_of(tried_with)
    told = f" Its last words: {words}" if words else ""
    if is_older:
        return f"takeback was tried with {tried_with}; update {stage.settings.host.TITLE}, then test again.{told}"
    return (
        f"Start `{stage.settings.host.PROGRAM}` yourself and see whether it asks for something, such as a login or "
        f"its terms; then test again.{told}"
    )


def _last_words(names: Sequence[str]) -> str:
    """Of the standard error, else of the output."""
    for name in reversed(names):
        with open(name, "rb") as file:
            lines = file.read().decode("utf-8", "replace").split("\n")
        if said := [line.strip() for line in lines if line.strip()]:
            return _short(said[-1])
    return ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:299]}…"


def _takeback(stage: _Stage, *words: str) -> tuple[int, str, str]:
    """The command line of this installation, in the home and with the store of the test."""
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from takeback.frontends.cli.main import main; "
        "sys.exit(main())"
    )
    env = surroundings(stage.home, stage.store, stage.env)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, ROOT, *words], cwd=stage.project, env=env, capture_output=True,
            text=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, "", f"takeback did not end within {SECONDS} s."
    return done.returncode, done.stdout, done.stderr


def _end_all(home: str) -> None:
    """Every process with this home: what the agent left, and the daemon of the test. No one else has such a home."""
    mark = os.fsencode(f"HOME={home}")
    for _ in range(3):  # one that is found may start another before it ends
        found: list[int] = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(name))
        for process in found:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
