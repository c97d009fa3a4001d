"""The command lines that stand in the settings, run as the hosts run them, with takeback whole, broken and gone."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from takeback.frontends.agents import settings
from takeback.frontends.agents.hosts import NAMES, HookPoint, host
from takeback.frontends.agents.settings import (
    command_line,
    commands_in,
    parsed_command,
    plugin_commands,
    plugin_text,
    shim_path,
    shim_words,
    with_hooks,
    without_hooks,
)

pytestmark = pytest.mark.needs("cc")

JSON = tuple(name for name in NAMES if name != "opencode")
LONG = b'{"x": "' + b"y" * (1 << 20) + b'"}'  # more than a pipe holds


@pytest.fixture(params=["python", "compiled"], autouse=True)
def shim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both hook programs, whichever lies beside the package."""
    found = "" if request.param == "python" else str(request.getfixturevalue("compiled"))
    monkeypatch.setattr(settings, "compiled_shim", lambda: found)
    return found


def before(name: str) -> HookPoint:
    return next(point for point in host(name).EVENTS if point.before)


def ran(command: str, payload: bytes = b"{}", shell: str = "/bin/sh") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([shell, "-c", command], input=payload, capture_output=True, check=False, timeout=60)


def with_program(tmp_path: Path, name: str, text: str, point: HookPoint) -> str:
    """The command of a hook whose shim is another program."""
    shim = tmp_path / "with ' quote" / "takeback" / "frontends" / "agents" / "shim.py"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(text)
    (first, flag, inner) = shlex.split(command_line(host(name), point))
    return shlex.join([first, flag, inner.replace(shim_path(), shlex.quote(os.fspath(shim)))])


@pytest.mark.parametrize("name", JSON)
def test_without_its_interpreter_a_call_is_denied(name: str) -> None:
    line = command_line(host(name), before(name)).replace(sys.executable, "/nonexistent/python")
    done = ran(line, LONG)  # and all of the input is taken, or the host fails to write it

    assert done.returncode == 2
    assert f"takeback hook uninstall {name}" in done.stderr.decode()


@pytest.mark.parametrize("name", JSON)
def test_without_its_program_a_call_is_denied(name: str) -> None:
    line = command_line(host(name), before(name)).replace("agents/shim.py", "agents/gone/shim.py")
    done = ran(line, LONG)

    assert done.returncode == 2
    assert f"takeback hook uninstall {name}" in done.stderr.decode()


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    "ending", ["raise SystemExit(1)", "import os; os.abort()", "import no_such_module", "("]
)
def test_a_program_that_fails_denies_the_call(tmp_path: Path, name: str, ending: str) -> None:
    done = ran(with_program(tmp_path, name, ending, before(name)), LONG)

    assert done.returncode == 2
    assert f"takeback hook uninstall {name}" in done.stderr.decode()


def test_a_refusal_is_said_as_it_is(tmp_path: Path) -> None:
    text = "import sys; sys.stdin.read(); sys.stderr.write('No.\\n'); sys.exit(2)"
    done = ran(with_program(tmp_path, "codex", text, before("codex")), LONG)

    assert (done.returncode, done.stderr, done.stdout) == (2, b"No.\n", b"")


@pytest.mark.parametrize("name", JSON)
def test_the_payload_gets_through_and_so_does_the_answer(tmp_path: Path, name: str) -> None:
    text = "import sys; print(sys.argv[1:3], sys.stdin.read())"
    line = with_program(tmp_path, name, text, before(name))
    expected = f"['{name}', '{before(name).name}'] {{}}\n".encode()
    assert ran(line).stdout == expected
    # Cursor appends the payload as a here-document.
    done = ran(f"{line} <<'CURSOR_HOOK_EOF'\n{{}}\nCURSOR_HOOK_EOF", b"")
    assert done.stdout.split() == expected.split()
    assert done.returncode == 0


@pytest.mark.needs("fish", "zsh")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_any_shell_of_the_user_runs_it(tmp_path: Path, shell: str) -> None:
    import shutil

    found = shutil.which(shell)
    assert found
    text = "import sys; sys.stdin.read(); sys.stderr.write('No.\\n'); sys.exit(2)"
    line = command_line(host("codex"), before("codex"))
    done = ran(line.replace("agents/shim.py", "agents/gone/shim.py"), LONG, found)
    assert done.returncode == 2
    assert "takeback hook uninstall codex" in done.stderr.decode()
    plain = with_program(tmp_path, "codex", text, before("codex"))
    if shell != "fish":  # which reads a quote in a path in its own way
        assert ran(plain, LONG, found).stderr == b"No.\n"


@pytest.mark.parametrize("name", JSON)
def test_after_a_call_nothing_stops_the_agent(tmp_path: Path, name: str) -> None:
    for point in host(name).EVENTS:
        if not point.before:
            line = command_line(host(name), point)
            assert ran(line.replace("agents/shim.py", "agents/gone/shim.py"), LONG).returncode == 0
            assert ran(with_program(tmp_path, name, "raise SystemExit(2)", point), LONG).returncode == 0


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("ending", ["exit 1", "kill -9 $$", "", "gone", "not executable", "no program"])
def test_a_compiled_program_that_fails_denies_the_call(
    tmp_path: Path, name: str, ending: str, shim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = tmp_path / "it's compiled"
    if ending != "gone":
        fast.write_text("\x7fELF" if ending == "no program" else f"#!/bin/sh\n{ending}\nexit 3\n")
        fast.chmod(0o644 if ending == "not executable" else 0o755)
    monkeypatch.setattr(settings, "compiled_shim", lambda: str(fast))

    done = ran(command_line(host(name), before(name)), LONG)

    assert done.returncode == 2
    assert f"takeback hook uninstall {name}" in done.stderr.decode()
    for point in host(name).EVENTS:
        if not point.before:
            assert ran(command_line(host(name), point), LONG).returncode == 0


def test_a_compiled_program_beside_the_other_is_used_if_it_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(settings, "shim_path", lambda: str(tmp_path / "shim.py"))
    python = [sys.executable, "-I", "-S", str(tmp_path / "shim.py"), "codex"]
    assert shim_words("codex") == python
    (tmp_path / "shim").write_text("")
    assert shim_words("codex") == python
    (tmp_path / "shim").chmod(0o755)
    assert shim_words("codex") == [str(tmp_path / "shim"), *python]


@pytest.mark.parametrize("name", JSON)
def test_an_installation_of_the_python_program_becomes_one_of_the_compiled_program(
    name: str, shim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = host(name)
    theirs: dict[str, Any] = {
        "hooks": {before(name).name: [{"hooks": [{"type": "command", "command": "mine"}]}]}
    }
    monkeypatch.setattr(settings, "compiled_shim", lambda: "")
    old = with_hooks(one, "", theirs)
    monkeypatch.setattr(settings, "compiled_shim", lambda: shim)

    new = with_hooks(one, "", old)

    assert (new == old) is (not shim)
    for document, compiled in ((old, ""), (new, shim)):
        assert {(found.python, found.shim, found.compiled) for found in commands_in(document)} == {
            (sys.executable, shim_path(), compiled)
        }
        assert len(list(commands_in(document))) == len(one.EVENTS)
        assert without_hooks(document)["hooks"] == theirs["hooks"]


def test_the_plugin_of_opencode_is_known_with_both(shim: str) -> None:
    (found,) = plugin_commands(plugin_text(host("opencode"), "/a store"))
    assert (found.python, found.shim, found.store, found.compiled) == (
        sys.executable,
        shim_path(),
        "/a store",
        shim,
    )


def test_a_command_is_read_as_it_was_written(shim: str) -> None:
    for store in ("", "/a store", "/it's", "/a||b"):
        line = command_line(host("claude-code"), before("claude-code"), store)
        found = parsed_command("PreToolUse", line)
        assert found is not None
        assert (found.shim, found.store, found.compiled) == (shim_path(), store, shim)
        assert found.python == sys.executable
    assert parsed_command("PreToolUse", "./mine.sh") is None
    assert parsed_command("PreToolUse", None) is None
    old = "python3 /opt/takeback/frontends/agents/shim.py claude-code PreToolUse"
    found = parsed_command("PreToolUse", old)
    assert found is not None
    assert (found.python, found.compiled) == ("python3", "")
    assert parsed_command("PreToolUse", f"{old} 'unfinished") is not None
