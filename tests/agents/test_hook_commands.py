"""The command lines that stand in the settings, run as the hosts run them, with takeback whole, broken and gone."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from takeback.frontends.agents.hosts import NAMES, HookPoint, host
from takeback.frontends.agents.settings import command_line, parsed_command, shim_path

JSON = tuple(name for name in NAMES if name != "opencode")
LONG = b'{"x": "' + b"y" * (1 << 20) + b'"}'  # more than a pipe holds


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
    import sys

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
    text = "import sys; print(sys.argv[1:], sys.stdin.read())"
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


def test_a_command_is_read_as_it_was_written() -> None:
    for store in ("", "/a store", "/it's", "/a||b"):
        line = command_line(host("claude-code"), before("claude-code"), store)
        found = parsed_command("PreToolUse", line)
        assert found is not None
        assert (found.shim, found.store) == (shim_path(), store)
        assert os.path.exists(found.python)
    assert parsed_command("PreToolUse", "./mine.sh") is None
    assert parsed_command("PreToolUse", None) is None
    old = "python3 /opt/takeback/frontends/agents/shim.py claude-code PreToolUse"
    assert parsed_command("PreToolUse", old) is not None
    assert parsed_command("PreToolUse", f"{old} 'unfinished") is not None
