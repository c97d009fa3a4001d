"""Mode `sandbox`: the real Claude Code runs its commands through takeback, and its rules do not notice."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import pytest

from takeback.frontends.agents.settings import shell_prefix
from tests.agents.acts import daemons
from tests.agents.family import Shell
from tests.agents.play import Played, Scene, play
from tests.agents.scenes import ASKED, DENIED, RULES, scene
from tests.agents.stage import Manifest, Place, differences, look
from tests.sandbox.scenes import USER, give, make_home

PROGRAM = shell_prefix().split(" -IS ")[1]


@pytest.fixture(autouse=True)
def no_daemon_stays() -> Iterator[None]:
    yield
    for process in daemons(os.environ["TAKEBACK_STORE"]):
        os.kill(process, 9)


def takeback(place: Place, *words: str) -> "subprocess.CompletedProcess[str]":
    return ran([sys.executable, "-m", "takeback", *words], place, os.environ)


def ran(
    words: Sequence[str], place: Place, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, cwd=place.project, env={**environment, "HOME": str(place.home)}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


def played(place: Place, one: Scene) -> Played:
    for words in (("install", "claude-code"), ("mode", "sandbox", "claude-code")):
        done = takeback(place, "hook", *words)
        assert done.returncode == 0, done.stderr
    return play("claude-code", one, place.home, place.project)


def effects(place: Place) -> list[str]:
    """What is in force, as `log` calls it."""
    found = json.loads(takeback(place, "log", "--json").stdout)
    return [one["summary"] for one in found if one["summary"].startswith("Bash")]


@pytest.mark.agents
def test_a_command_is_one_effect_and_the_next_begins_where_it_ended(place: Place) -> None:
    before = place.look()

    made = played(
        place,
        scene(
            "cd", Shell("cd docs; echo one > one.txt"), Shell("pwd; echo two > 'two \"words'.txt"), wants={}
        ),
    )

    assert made.results[1].strip() == str(place.project / "docs")
    assert sorted(effects(place)) == [
        "Bash: cd docs; echo one > one.txt",
        "Bash: pwd; echo two > 'two \"words'.txt",
    ]
    assert (place.project / "docs/one.txt").read_text() == "one\n"
    undone = takeback(place, "undo", "--session")
    assert undone.returncode == 0, undone.stderr
    assert differences(before, place.look()) == {}


@pytest.mark.agents
def test_a_failing_command_leaves_nothing(place: Place) -> None:
    before = place.look()

    made = played(place, scene("fail", Shell("echo half > half.txt; rm docs/a.md; exit 3"), wants={}))

    assert made.results[0].startswith("Exit code 3")
    assert "Its changes were dropped" in made.results[0]
    assert differences(before, place.look()) == {}


@pytest.mark.agents
def test_the_rules_judge_the_command_that_the_model_asked_for(place: Place) -> None:
    turns = (Shell("rm docs/a.md"), Shell("touch asked.txt"), Shell("mkdir made"))
    before = place.look()

    made = played(place, scene("rules", *turns, wants={}, rules=RULES))

    assert DENIED["claude-code"] in made.results[0]
    assert ASKED["claude-code"] in made.results[1]
    assert differences(before, place.look(), times=False) == {"made": "added"}


@pytest.mark.agents
def test_a_command_in_the_background_is_seen_at_once(place: Place) -> None:
    seen: dict[str, bool] = {}

    def look(now: object) -> None:
        seen["begun"] = (place.project / "begun.txt").exists()

    one = scene(
        "job",
        Shell("echo begun > begun.txt; {job}; echo late > late.txt", background=True),
        wants={},
        meetings={"job": look},
    )
    played(place, one)

    assert seen == {"begun": True}


@pytest.mark.agents
@pytest.mark.root
def test_of_parallel_commands_of_an_ordinary_user_each_has_its_own(open_place: Place) -> None:
    place, made = open_place, make_home()
    store = made.directory / "store"

    def takeback(*words: str) -> "subprocess.CompletedProcess[str]":
        code = (
            f"import sys; sys.path[:0] = [{str(made.library)!r}]; "
            "from takeback.frontends.cli.main import main; main()"
        )
        rights = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        done = ran(
            [*rights, made.python, "-I", "-B", "-c", code, *words], place,
            {"PATH": os.environ["PATH"], "TAKEBACK_STORE": str(store)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    try:
        store.mkdir(0o700)
        for path in (place.top, place.home, store):
            give(path)
        os.environ["TAKEBACK_STORE"] = str(store)
        takeback("hook", "install", "claude-code")
        takeback("hook", "mode", "sandbox", "claude-code")
        before = place.look()
        # Those that only read, as Claude Code sees it, run at the same time: it does not look into `sed`.
        turn = tuple(Shell(f"cat README.md; sleep 1; echo {one} > {one}.txt") for one in "ab")

        play("claude-code", scene("two", turn, wants={}), place.home, place.project, user=USER)

        assert differences(before, place.look(), times=False) == {"a.txt": "added", "b.txt": "added"}
        (one,) = (one for one in json.loads(takeback("log", "--json").stdout) if "a.txt" in one["summary"])
        takeback("undo", one["id"])
        assert differences(before, place.look(), times=False) == {"b.txt": "added"}
        takeback("undo", "--session")
        assert differences(before, place.look(), times=False) == {}
        for process in daemons(str(store)):
            os.kill(process, 9)
    finally:
        shutil.rmtree(made.directory)


# Without an agent.


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
    def store(self) -> Path:
        return self.place.home / ".local/state/takeback"

    def takeback(self, *words: str) -> "subprocess.CompletedProcess[str]":
        code = f"import sys; sys.path[:0] = [{self.library!r}]; from takeback.frontends.cli.main import main; main()"
        done = self._ran("-I", "-B", "-c", code, *words)
        assert done.returncode == 0, done.stderr
        return done

    def hook(self, event: str, **more: str) -> None:
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
            "CLAUDE_PID": str(os.getpid()), **({"CLAUDE_PROJECT_DIR": str(self.place.project)} if input else {}),
        }  # fmt: skip
        return subprocess.run(
            [*self.python, *words], cwd=self.place.project, env=environment | more, input=input, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.root)], ids=["myself", "an ordinary user"]
)
def boxed(request: pytest.FixtureRequest, open_place: Place) -> Iterator[Boxed]:
    place, made = open_place, make_home() if request.param else None
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
        one.hook("SessionStart", source="startup")
        yield one
    finally:
        for process in daemons(str(one.store)):
            os.kill(process, 9)
        if made:
            shutil.rmtree(made.directory)


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
    assert takeback(place, "hook", "mode", "sandbox", "claude-code").returncode == 3  # no hooks yet
    assert takeback(place, "hook", "install", "claude-code").returncode == 0
    hooks = settings.read_bytes()
    assert "mode watch" in takeback(place, "hook", "mode", "claude-code").stdout

    assert takeback(place, "hook", "mode", "sandbox", "claude-code").returncode == 0
    chosen = settings.read_bytes()
    assert json.loads(chosen)["env"] == {"A": "1", "CLAUDE_CODE_SHELL_PREFIX": shell_prefix()}
    assert not json.loads(takeback(place, "hook", "mode", "sandbox", "claude-code", "--json").stdout)[
        "changed"
    ]
    assert "installed already" in takeback(place, "hook", "install", "claude-code").stdout
    assert settings.read_bytes() == chosen
    assert "mode     sandbox" in takeback(place, "hook", "status", "claude-code").stdout

    assert takeback(place, "hook", "mode", "watch", "claude-code").returncode == 0
    assert json.loads(settings.read_bytes()) == json.loads(hooks)
    takeback(place, "hook", "mode", "sandbox", "claude-code")
    assert takeback(place, "hook", "uninstall", "claude-code").returncode == 0
    assert settings.read_bytes() == first


def test_what_another_program_has_there_stays(place: Place, settings: Path) -> None:
    settings.write_text('{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/usr/bin/nice -n"}}')
    takeback(place, "hook", "install", "claude-code")
    before = settings.read_bytes()
    refused = takeback(place, "hook", "mode", "sandbox", "claude-code")
    assert refused.returncode == 3
    assert "CLAUDE_CODE_SHELL_PREFIX already" in refused.stderr
    assert takeback(place, "hook", "mode", "watch", "claude-code").returncode == 0
    assert settings.read_bytes() == before


@pytest.mark.parametrize("agent", ["codex", "gemini", "opencode", "cursor"])
def test_other_agents_are_watched_and_it_says_why(place: Place, agent: str) -> None:
    before = takeback(place, "hook", "mode", agent)
    assert "mode watch" not in before.stdout and "has no hooks of takeback" in before.stdout, (
        "nothing is watched"
    )
    takeback(place, "hook", "install", agent)
    refused = takeback(place, "hook", "mode", "sandbox", agent)
    assert refused.returncode == 3
    assert "cannot run its commands in a sandbox" in refused.stderr
    (told,) = json.loads(takeback(place, "hook", "status", agent, "--json").stdout)["agents"]
    assert told["mode"] == "watch"
    assert told["why"].startswith("because ")
