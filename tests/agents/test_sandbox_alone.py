"""Mode `sandbox` without an agent: what the program before each command does, and what no command gets at."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import pytest

from takeback.frontends.agents.settings import shell_prefix
from tests.able import need
from tests.agents.acts import daemons
from tests.agents.stage import Manifest, Place, differences, look
from tests.agents.starters import daemon_words
from tests.agents.talk import takeback_in, until
from tests.agents.test_sandbox_mode import PROGRAM
from tests.sandbox.scenes import USER, give, make_home


def program(line: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", "-S", PROGRAM, line], env=environment, input="said", capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def test_a_hook_runs_as_it_is(tmp_path: Path) -> None:
    done = program(f"cat > {tmp_path}/said; exit 7", {"CLAUDE_PROJECT_DIR": str(tmp_path)})
    assert (done.returncode, (tmp_path / "said").read_text(), done.stderr) == (7, "said", "")


def test_a_line_of_another_form_does_not_run(tmp_path: Path) -> None:
    done = program(f"touch {tmp_path}/made", {"PATH": "/usr/bin"})
    assert done.returncode == 125
    assert "takeback hook mode watch claude-code" in done.stderr
    assert not (tmp_path / "made").exists()


def line_of(command: str, note: Path) -> str:
    return f"true && eval {quote(command)} < /dev/null && pwd -P >| {quote(str(note))}"


def test_a_line_runs_without_an_agent_too(tmp_path: Path) -> None:
    note, environment = tmp_path / "with space/claude-1-cwd", {**os.environ, "SHELL": "/bin/bash"}
    note.parent.mkdir()
    environment.pop("CLAUDE_PROJECT_DIR", None)
    done = program(line_of(f"cd {tmp_path} && echo ' && eval ' > made", note), environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert (note.read_text(), (tmp_path / "made").read_text()) == (f"{tmp_path}\n", " && eval \n")
    failed = program(line_of(f"cd /; echo more > {tmp_path}/made; false", note), environment)
    assert failed.returncode == 1
    assert (note.read_text(), (tmp_path / "made").read_text()) == (f"{tmp_path}\n", " && eval \n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_interrupted_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    words = [
        sys.executable,
        "-I",
        "-S",
        PROGRAM,
        line_of("echo half > half; echo begun; sleep 60", tmp_path / "claude-1-cwd"),
    ]
    running = subprocess.Popen(
        words, cwd=tmp_path, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout
    assert running.stdout.readline() == "begun\n"

    running.send_signal(number)
    _, said = running.communicate(timeout=20)

    assert running.returncode not in (0, 125)
    assert "Traceback" not in said
    assert not (tmp_path / "half").exists()


# An agent that tries to get at the store, at the settings or at the daemon: what each way does is Python, with `store`,
# `home` and `daemon`. Whether it says that it failed does not count.

WALLS = {  # each ends with an error
    "the store is removed": "store.joinpath('journal.db').unlink()",
    "the store is emptied": "os.remove(next(store.iterdir()))",
    "the store is moved away": "store.rename(home / 'elsewhere')",
    "the journal is exchanged": "(store / 'journal.db').write_bytes(b'')",
    "records are deleted": "sqlite3.connect(store / 'journal.db').execute('DELETE FROM records')",
    "contents are removed": "shutil.rmtree(store / 'blobs')",
    "the store is opened to others": "store.chmod(0o777)",
    "its cover is taken away": "subprocess.run(['umount', store], check=True)",
    "something is mounted over it": "subprocess.run(['mount', '-t', 'tmpfs', 'none', store], check=True)",
    "the daemon is killed": "os.kill(daemon, 9)",
    "the daemon is spoken to": "socket.socket(socket.AF_UNIX).connect(str(store / 'hooks/socket'))",
    "its memory is written": "open(f'/proc/{daemon}/mem', 'wb')",
}
WAYS = {  # what some of them change is not made
    "every process is killed": "os.kill(-1, 9)",
    "another root is gone to": "shutil.rmtree(f'/proc/1/root{store}')",
    "what is above the store is moved away": "store.parent.rename(home / 'elsewhere')",
    "all is removed": "subprocess.run(['rm', '-rf', home])",
    "the notes about the store are removed": "shutil.rmtree(notes)",
    "a note is written": "next(notes.iterdir()).write_text('{}')",
    "the settings are emptied": "settings.write_text('{}')",
    "the settings are removed": "settings.unlink()",
    "the settings are exchanged": "(home / 'new').write_text('{}'); (home / 'new').rename(settings)",
    "the settings are closed": "settings.chmod(0)",
    "a link takes the place of what is above the settings": (
        "settings.parent.rename(home / 'elsewhere'); (home / 'empty').mkdir(); settings.parent.symlink_to('empty')"
    ),
    "hooks are switched off in the project": (
        "os.mkdir('.claude'); pathlib.Path('.claude/settings.json').write_text(json.dumps({'disableAllHooks': True}))"
    ),
    "the sandbox is switched off in the project": (
        "os.mkdir('.claude'); pathlib.Path('.claude/settings.local.json').write_text(json.dumps("
        "{'env': {'CLAUDE_CODE_SHELL_PREFIX': '/bin/true'}}))"
    ),
    "the program before each command is emptied": "pathlib.Path(program).write_text('')",
}  # fmt: skip


class Boxed(NamedTuple):
    """Sandbox mode without an agent, by root or by an ordinary user, with the store where it usually is."""

    place: Place
    python: tuple[str, ...]  # with the words that make it another user's
    library: str

    @property
    def is_user(self) -> bool:
        return self.python[0] == "setpriv"

    @property
    def store(self) -> Path:
        return self.place.home / ".local/state/takeback"

    def takeback(self, *words: str) -> "subprocess.CompletedProcess[str]":
        code = f"import sys; sys.path[:0] = [{self.library!r}]; from takeback.frontends.cli.main import main; main()"
        done = self._ran("-I", "-B", "-c", code, *words)
        assert done.returncode == 0, done.stderr
        return done

    def hook(self, event: str, **more: object) -> None:
        said = {"session_id": "s-1", "cwd": str(self.place.project), "hook_event_name": event, **more}
        done = self._ran("-I", "-S", self.program("shim.py"), "claude-code", event, input=json.dumps(said))
        assert done.returncode == 0, done.stderr

    def command(self, command: str) -> "subprocess.CompletedProcess[str]":
        line = line_of(command, self.place.home / "tmp/claude-1-cwd")
        more = {"SHELL": "/bin/bash", "CLAUDE_CODE_SESSION_ID": "s-1"}
        return self._ran("-I", "-S", self.program("sandboxed.py"), str(self.store), line, **more)

    def program(self, name: str) -> str:
        return f"{self.library}/takeback/frontends/agents/{name}"

    def _ran(self, *words: str, input: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self.place.home), "TAKEBACK_STORE": str(self.store),
            "CLAUDE_PID": str(os.getpid()), "CLAUDE_CODE_SHELL_PREFIX": self.program("sandboxed.py"),
        }  # fmt: skip
        if input:
            environment["CLAUDE_PROJECT_DIR"] = str(self.place.project)
        return subprocess.run(
            [*self.python, *words], cwd=self.place.project, env=environment | more, input=input, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip


@pytest.fixture(
    params=[
        (False, False), (False, True), *(pytest.param((True, one), marks=pytest.mark.root) for one in (False, True))
    ],
    ids=["myself", "myself, by the starter", "an ordinary user", "an ordinary user, by the starter"],
)  # fmt: skip
def boxed(request: pytest.FixtureRequest, open_place: Place) -> Iterator[Boxed]:
    is_user, by_starter = request.param
    if is_user:
        need("user namespaces")
    place, made = open_place, make_home() if is_user else None
    started: subprocess.Popen[bytes] | None = None
    (place.home / "tmp").mkdir()
    source = str(Path(PROGRAM).parents[3])
    one = Boxed(place, (sys.executable,), source)
    if made:
        rights = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", made.python)
        one = Boxed(place, rights, str(made.library))
        for path in (place.top, place.home):
            give(path)
    try:
        one.takeback("hook", "install", "claude-code")
        one.takeback("hook", "mode", "sandbox", "claude-code")
        if by_starter:
            words = [*one.python[:-1], *daemon_words(one.python[-1], Path(one.library), one.store)]
            started = subprocess.Popen(words, cwd="/", start_new_session=True, stderr=subprocess.DEVNULL)
            until((one.store / "hooks/socket").exists)
            until(lambda: not one.command("grep -q agents.starter /proc/1/cmdline").returncode, seconds=90)
        one.hook("SessionStart", source="startup")
        yield one
    finally:
        for process in daemons(str(one.store)):
            os.kill(process, 9)
        if started:
            started.wait()
        if made:
            shutil.rmtree(made.directory)


@pytest.mark.root
@pytest.mark.able("user namespaces")
def test_where_there_is_no_sandbox_nothing_runs_and_it_is_said(place: Place) -> None:
    without = (
        "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "unshare", "-U", "sh", "-c",
        'echo 0 2>/dev/null >/proc/sys/user/max_user_namespaces; exec "$@"', "sh", sys.executable,
    )  # fmt: skip

    def ran(*words: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "HOME": str(place.home)}
        environment.pop("CLAUDE_PROJECT_DIR", None)
        return subprocess.run(
            [*without, *words], cwd=place.project, env=environment, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip

    takeback_in(place, "hook", "install", "claude-code")
    before = (place.home / ".claude/settings.json").read_bytes()
    chosen = ran("-m", "takeback", "hook", "mode", "sandbox", "claude-code")
    assert chosen.returncode == 3
    assert "There is no sandbox here: The sandbox could not be set up" in chosen.stderr
    assert chosen.stderr.count("othing was changed") == 1
    assert (place.home / ".claude/settings.json").read_bytes() == before

    command = ran("-I", "-S", PROGRAM, line_of("echo x > made", place.home / "claude-1-cwd"))
    assert command.returncode == 125
    assert "There is no sandbox here, so the command did not run: " in command.stderr
    assert "`takeback hook mode watch claude-code` lets commands run without a sandbox." in command.stderr
    assert not (place.project / "made").exists()


def test_what_a_person_typed_is_no_effect_of_the_session(boxed: Boxed) -> None:
    boxed.hook("UserPromptSubmit", prompt="go")
    boxed.command("echo typed > typed.txt")
    call = {"tool_name": "Bash", "tool_use_id": "call-1", "tool_input": {"command": "echo made > made.txt"}}
    boxed.hook("PreToolUse", **call)
    boxed.command("echo made > made.txt")
    (boxed.place.project / "beside.txt").write_text("by someone else\n")
    boxed.hook("PostToolUse", **call)

    effects = {one["summary"]: one for one in json.loads(boxed.takeback("log", "--json").stdout)}
    assert effects["Bash: echo made > made.txt"]["prompt"]["number"] == 1
    assert effects["Bash: echo typed > typed.txt"]["prompt"] is None
    boxed.takeback("undo", "--session")
    assert not (boxed.place.project / "made.txt").exists()
    assert (boxed.place.project / "typed.txt").read_text() == "typed\n"
    if boxed.is_user:  # of root the kernel says that this process, the agent, wrote it
        assert (boxed.place.project / "beside.txt").exists(), "nor is what others did during the call"


def test_a_commit_is_one_effect_though_it_moves_the_times_of_directories(boxed: Boxed) -> None:
    commit = "git add --all && git -c user.name=a -c user.email=a@b commit --quiet --message agent"
    for number in range(150):  # some of their objects come into directories that are there
        (boxed.place.project / f"docs/{number}").write_text(f"{number}\n")
    call = {"tool_name": "Bash", "tool_use_id": "call-1", "tool_input": {"command": commit}}
    boxed.hook("UserPromptSubmit", prompt="go")
    boxed.hook("PreToolUse", **call)
    assert boxed.command(commit).returncode == 0
    boxed.hook("PostToolUse", **call)

    effects = json.loads(boxed.takeback("log", "--json").stdout)
    assert [one["summary"] for one in effects if one["prompt"]] == [f"Bash: {commit}"]
    boxed.takeback("undo", "--prompt")


def test_what_is_left_running_is_ended_and_it_is_said_how_it_stays(boxed: Boxed) -> None:
    done = boxed.command("setsid sleep 60 > /dev/null 2>&1 &")
    assert "1 process that it had left in the background was ended with it." in done.stderr
    assert "must keep running is started with `run_in_background`" in done.stderr


@pytest.mark.sampled(2)  # root, or an ordinary user
def test_no_way_leads_to_the_store_the_settings_or_the_daemon(boxed: Boxed) -> None:
    place, home = boxed.place, boxed.place.home
    program = boxed.program("sandboxed.py")
    (daemon,) = daemons(str(boxed.store))
    start = (
        "import json, os, pathlib, shutil, socket, sqlite3, subprocess\n"
        f"home, program, daemon = pathlib.Path({str(home)!r}), {program!r}, {daemon}\n"
        "store, settings = home / '.local/state/takeback', home / '.claude/settings.json'\n"
        "notes = store.parent / 'takeback-known'\n"
    )

    def seen() -> Manifest:
        own = (".local/state/takeback", ".local/state/takeback-known", "tmp")
        return {**place.look(), **look(home, place.project, tuple(f"../../home/{one}" for one in own))}

    before, whole = seen(), Path(program).read_bytes()
    lines = [
        f"python3 -c {quote(start + does)} 2> /dev/null && echo {quote(name)}" for name, does in WALLS.items()
    ]
    assert boxed.command("\n".join([*lines, "true"])).stdout == "", "each was refused by the kernel"
    for name, does in {"they leave nothing": "", **WAYS}.items():
        boxed.command(f"python3 -c {quote(start + does)}; true")

        assert daemons(str(boxed.store)) == [daemon], name
        assert differences(before, seen(), times=False) == {}, name
        assert Path(program).read_bytes() == whole, name
    boxed.takeback("verify")
    assert boxed.takeback("status").stderr == ""


@pytest.fixture
def settings(place: Place) -> Path:
    file = place.home / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "env": {"A": "1"},  \n  "model": "x"\n}\n')
    return file


def test_a_mode_is_chosen_shown_and_taken_back(place: Place, settings: Path) -> None:
    first = settings.read_bytes()
    assert takeback_in(place, "hook", "mode", "sandbox", "claude-code").returncode == 3  # no hooks yet
    assert takeback_in(place, "hook", "install", "claude-code").returncode == 0
    hooks = settings.read_bytes()
    assert "mode watch" in takeback_in(place, "hook", "mode", "claude-code").stdout

    assert takeback_in(place, "hook", "mode", "sandbox", "claude-code").returncode == 0
    chosen = settings.read_bytes()
    assert json.loads(chosen)["env"] == {"A": "1", "CLAUDE_CODE_SHELL_PREFIX": shell_prefix()}
    assert not json.loads(takeback_in(place, "hook", "mode", "sandbox", "claude-code", "--json").stdout)[
        "changed"
    ]
    assert "installed already" in takeback_in(place, "hook", "install", "claude-code").stdout
    assert settings.read_bytes() == chosen
    assert "mode     sandbox" in takeback_in(place, "hook", "status", "claude-code").stdout

    assert takeback_in(place, "hook", "mode", "watch", "claude-code").returncode == 0
    assert json.loads(settings.read_bytes()) == json.loads(hooks)
    takeback_in(place, "hook", "mode", "sandbox", "claude-code")
    assert takeback_in(place, "hook", "uninstall", "claude-code").returncode == 0
    assert settings.read_bytes() == first


def test_what_another_program_has_there_stays(place: Place, settings: Path) -> None:
    settings.write_text('{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/usr/bin/nice -n"}}')
    takeback_in(place, "hook", "install", "claude-code")
    before = settings.read_bytes()
    refused = takeback_in(place, "hook", "mode", "sandbox", "claude-code")
    assert refused.returncode == 3
    assert "CLAUDE_CODE_SHELL_PREFIX already" in refused.stderr
    assert takeback_in(place, "hook", "mode", "watch", "claude-code").returncode == 0
    assert settings.read_bytes() == before


@pytest.mark.parametrize("agent", ["codex", "gemini", "opencode", "cursor"])
def test_other_agents_are_watched_and_it_says_why(place: Place, agent: str) -> None:
    before = takeback_in(place, "hook", "mode", agent)
    assert "mode watch" not in before.stdout and "has no hooks of takeback" in before.stdout, (
        "nothing is watched"
    )
    takeback_in(place, "hook", "install", agent)
    refused = takeback_in(place, "hook", "mode", "sandbox", agent)
    assert refused.returncode == 3
    assert "cannot run its commands in a sandbox" in refused.stderr
    (told,) = json.loads(takeback_in(place, "hook", "status", agent, "--json").stdout)["agents"]
    assert told["mode"] == "watch"
    assert told["why"].startswith("because ")
