"""The daemon: never two, killed at any moment, out of the way of another version, a sentence for each trouble."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import takeback
from takeback.model.effect import State
from tests.agents.talk import Talk, talking, until

ROOT = Path(takeback.__file__).parent
pytestmark = pytest.mark.needs("cc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")


@pytest.fixture(params=["python", "compiled"])
def talk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Talk]:
    """Through both hook programs."""
    with talking(tmp_path) as talk:
        if request.param == "compiled":
            talk.compiled = request.getfixturevalue("compiled")
        (talk.project / "one").write_text("1\n")
        yield talk


def _daemons(store: Path) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(store) in words and any(b"agents.daemon" in word for word in words):
            found.append(int(name))
    return found


def test_many_first_hooks_start_one_daemon(talk: Talk):
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: talk.before("Bash", {"command": "x"}, call="same")[0], range(8)))
    assert not any(one.refusal for one in said)
    until(lambda: _daemons(talk.store) == [talk.daemon()])


def test_threads_are_used_again(talk: Talk):
    talk.starts()
    talk.shell("true")
    tasks = Path(f"/proc/{talk.daemon()}/task")
    few = len(os.listdir(tasks))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: talk.says("UserPromptSubmit", prompt="go"), range(16)))
    until(lambda: len(os.listdir(tasks)) <= few + 1)
    talk.shell("echo a > a")
    assert talk.summaries() == ["Bash: echo a > a"]


def test_its_place_is_private(talk: Talk):
    talk.starts()
    place = talk.store / "hooks"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "socket").stat().st_mode) == 0o600
    pid = talk.daemon()
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"CLAUDE" not in environment and os.getsid(pid) != os.getsid(0)


@pytest.mark.parametrize("when", ["before the command", "after the command"])
def test_killed_in_the_middle_of_a_call(talk: Talk, when: str):
    talk.starts()
    talk.prompts("go")
    given = {"command": "x"}
    _, call = talk.before("Bash", given)
    if when == "before the command":
        talk.kill_daemon()
    talk.agent.does("echo a > a; echo more >> one")
    if when == "after the command":
        talk.kill_daemon()
    talk.after("Bash", given, call)
    (effect,) = talk.effects()
    assert effect.state is State.DONE
    talk.undo(effect, ".")
    assert talk.files() == {"one": "1\n"}


def test_killed_in_the_middle_of_an_edit(talk: Talk):
    talk.starts()
    given = {"file_path": str(talk.project / "one"), "content": "new"}
    _, call = talk.before("Write", given)
    talk.kill_daemon()
    (talk.project / "one").write_text("new")
    talk.after("Write", given, call)
    (effect,) = talk.effects()
    talk.undo(effect)
    assert talk.files() == {"one": "1\n"}


def test_killed_between_two_calls(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo a > a")
    talk.user.does(f"echo first > {talk.project}/first")
    talk.kill_daemon()
    talk.user.does(f"echo second > {talk.project}/second")
    talk.shell("echo b > b")
    first, between, second = talk.effects()
    assert [target.resource.rpartition("/")[2] for target in between.targets] == ["first", "second"]
    assert between.change.facts.others
    assert [target.resource[-1] for target in (*first.targets, *second.targets)] == ["a", "b"]


def test_killed_between_two_calls_what_the_call_changed_is_not_mixed_with_a_later_edit(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo agent > one")
    talk.kill_daemon()
    talk.user.does(f"echo user > {talk.project}/one")
    talk.shell("echo b > b")
    first, between, _ = talk.effects()
    assert between.targets[0].before["digest"] == first.targets[0].after["digest"]
    assert "excluded" not in between.targets[0].before and "mixed" not in str(between.targets[0].after)
    talk.undo(between, "one")
    assert talk.files()["one"] == "agent\n"


def test_killed_in_a_call_what_was_watched_before_it_is_not_watched_twice(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo a > a")
    _, call = talk.before("Bash", {"command": "x"})  # it has taken over what was claimed between the calls
    talk.kill_daemon()
    talk.agent.does("echo agent > one")
    talk.after("Bash", {"command": "x"}, call)
    talk.user.does(f"echo user > {talk.project}/two")
    talk.shell("echo b > b")
    names = [sorted(target.resource.rpartition("/")[2] for target in one.targets) for one in talk.effects()]
    assert names == [["a"], ["one"], ["two"], ["b"]]


def test_an_agent_that_dies_leaves_nothing_open(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.before("Bash", {"command": "x"})
    talk.agent.does("echo a > a")
    talk.agent.dies()
    until(lambda: any(one.state is State.DONE for one in talk.effects()))
    (effect,) = talk.effects()
    assert effect.change.args["closed"] == "the agent's process ended"
    talk.undo(effect, ".")
    assert talk.files() == {"one": "1\n"}


def test_an_agent_and_the_daemon_that_die_together_leave_it_to_the_next_command(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.before("Bash", {"command": "x"})
    talk.agent.does("echo a > a")
    talk.kill_daemon()
    talk.agent.dies()
    with takeback.open(talk.store) as tb:
        tb.recover()
    (effect,) = talk.effects()
    assert effect.state is State.DONE and [one.resource[-1] for one in effect.targets] == ["a"]


def test_a_signal_ends_it_and_the_next_goes_on(talk: Talk):
    talk.starts()
    talk.prompts("go")
    _, call = talk.before("Bash", {"command": "x"})
    talk.kill_daemon(signal.SIGTERM)
    assert not (talk.store / "hooks/socket").exists()
    talk.agent.does("echo a > a")
    talk.after("Bash", {"command": "x"}, call)
    assert [one.state for one in talk.effects()] == [State.DONE]


def test_a_socket_that_was_left_is_replaced(talk: Talk):
    talk.starts()
    talk.kill_daemon()
    assert (talk.store / "hooks/socket").exists()
    talk.shell("echo a > a")
    assert talk.summaries() == ["Bash: echo a > a"]


def test_another_version_takes_over(talk: Talk, tmp_path: Path):
    talk.starts()
    talk.prompts("go")
    _, call = talk.before("Bash", {"command": "x"})
    first = talk.daemon()
    shutil.copytree(ROOT, tmp_path / "newer/takeback", ignore=shutil.ignore_patterns("__pycache__"))
    talk.shim = str(tmp_path / "newer/takeback/frontends/agents/shim.py")
    talk.agent.does("echo a > a")
    talk.after("Bash", {"command": "x"}, call)
    assert talk.daemon() == first, "as long as a call is open"
    talk.prompts("more")
    assert talk.daemon() not in (0, first)
    talk.shell("echo b > b")
    assert talk.summaries() == ["Bash: x", "Bash: echo b > b"]


def test_a_call_is_denied_when_there_can_be_no_daemon(talk: Talk, tmp_path: Path):
    for path, why in (("/proc/none", "takeback"), (str(tmp_path / "file"), "takeback")):
        (tmp_path / "file").write_text("in the way")
        talk.environment["TAKEBACK_STORE"] = path
        said, _ = talk.before("Bash", {"command": "x"})
        assert why in said.refusal and "takeback hook uninstall claude-code" in said.refusal
        assert "Traceback" not in said.refusal
        assert talk.after("Bash", {"command": "x"}, "call").code == 0
        assert talk.prompts("go").code == 0


def test_a_home_that_is_not_known(talk: Talk):
    for name in ("HOME", "TAKEBACK_STORE", "XDG_STATE_HOME"):
        talk.environment.pop(name, None)
    said, _ = talk.before("Bash", {"command": "x"})
    assert "HOME is not set" in said.refusal


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"session_id": 7}', "[" * 100_000])
def test_what_it_does_not_understand(talk: Talk, text: str):
    talk.starts()
    first = talk.daemon()
    said = talk.sends("PreToolUse", text)
    assert "Traceback" not in said.text + said.err
    assert said.refusal or text.startswith("{"), "what names no call is none"
    assert talk.sends("Stop", text).code == 0
    assert talk.daemon() == first


def test_noise_on_the_socket(talk: Talk):
    talk.starts()
    for noise in (
        b"",
        b"\n",
        b"x" * 200_000,
        b"takeback 1 a b c d e f\n",
        b"takeback 1 a b 1 999999999999 1 /\n",
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(_short(talk.store / "hooks/socket"))
            connection.settimeout(20)
            try:
                connection.sendall(noise)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(100) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
    talk.shell("echo a > a")
    assert talk.summaries() == ["Bash: echo a > a"]


def _short(path: Path) -> str:
    os.chdir(path.parent)
    return path.name


def test_it_ends_when_nobody_needs_it(talk: Talk):
    code = "import sys; from takeback.frontends.agents import daemon as d; d.IDLE_SECONDS = 0.5; d.main(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    process = subprocess.Popen([sys.executable, "-c", code, str(talk.store)], env=environment)
    until((talk.store / "hooks/socket").exists)
    talk.starts()
    assert talk.daemon() == process.pid
    talk.agent.dies()
    assert process.wait(20) == 0
    assert not (talk.store / "hooks/socket").exists()


def test_a_file_that_is_too_large_to_capture_is_not_edited(talk: Talk):
    with takeback.open(talk.store):
        (talk.store / "settings.json").write_text('{"max_capture_bytes": 1000}')
    (talk.project / "big").write_bytes(b"x" * 1001)
    talk.starts()
    said, _ = talk.before("Write", {"file_path": str(talk.project / "big"), "content": "x"})
    assert "big" in said.refusal and "takeback hook uninstall claude-code" in said.refusal
