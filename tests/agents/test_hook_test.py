"""`takeback hook test` says only what it saw, in every way in which an agent may disappoint, and leaves nothing."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from takeback.errors import Failed
from takeback.frontends.agents import trial
from takeback.frontends.agents.install import settings_of
from takeback.frontends.agents.proof import last_proof
from takeback.frontends.agents.settings import compiled_shim
from takeback.frontends.agents.trial import Program, TrialPoint, hooks_to_test, tried
from tests.agents import puppet
from tests.agents.family import AGENTS, binary
from tests.agents.test_hook_status import findings
from tests.e2e.conftest import CommandLine
from tests.world import World, picture

CALLS = ["shell", "edit", "undo", "shell without takeback", "edit without takeback"]


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No directory of the test, and no process with a home in it."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert list(place.iterdir()) == []
    left = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            left += [name] if f"HOME={place}".encode() in Path(f"/proc/{name}/environ").read_bytes() else []
        except OSError:
            continue
    assert left == []


def program(directory: Path, fault: str = "", version: str = "2.1.400") -> str:
    place = directory / "agent" / version
    place.parent.mkdir(exist_ok=True)
    root = Path(puppet.__file__).parents[2]
    place.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from tests.agents.puppet import main\nmain({fault!r})\n"
    )
    place.chmod(0o755)
    return str(place)


def points(tmp_path: Path, fault: str = "") -> dict[str, TrialPoint]:
    settings = settings_of("claude-code", True, os.environ, str(tmp_path))
    found = tried(settings, hooks_to_test(settings), Program(program(tmp_path, fault), "2.1.400"), os.environ)
    return {one.name: one for one in found}


def test_hooks_that_work_are_proven_and_the_proof_is_kept(
    takeback: CommandLine, world: World, home: Path, tmp_path: Path
) -> None:
    takeback.done("hook", "install", "claude-code")
    before = picture(os.fsencode(home)), world.picture(), takeback.done("log", "--json", "--all").json

    told = takeback.done("hook", "test", "claude-code", "--program", program(tmp_path), "--json").json

    assert told["proven"] is True
    assert [(one["name"], one["held"]) for one in told["checks"]] == [(name, True) for name in CALLS]
    assert (told["agent_version"], told["obstacles"]) == ("2.1.400", [])
    assert (
        picture(os.fsencode(home)),
        world.picture(),
        takeback.done("log", "--json", "--all").json,
    ) == before
    (agent,) = takeback.done("hook", "status", "claude-code", "--json").json["agents"]
    assert agent["files"][0]["proof"]["last"] == {
        key: told[key] for key in agent["files"][0]["proof"]["last"]
    }


@pytest.mark.parametrize(
    ("fault", "missed"),
    [
        ("runs no hooks", CALLS),
        ("runs what was denied", ["shell without takeback", "edit without takeback"]),
        ("refuses Bash", ["shell", "undo", "shell without takeback"]),
        ("refuses Edit", ["edit", "undo", "edit without takeback"]),
        ("does more", ["undo"]),
    ],
)
@pytest.mark.sampled(3)
def test_what_does_not_hold_is_not_claimed(
    fault: str, missed: list[str], takeback: CommandLine, tmp_path: Path
) -> None:
    takeback.done("hook", "install", "claude-code")

    found = points(tmp_path, fault)

    assert list(found) == CALLS
    assert [name for name, one in found.items() if not one.held] == missed
    if fault == "refuses Bash":
        assert found["shell"].detail.endswith("It said: The user does not want that.")
        assert "could not be seen" in found["shell without takeback"].detail


def test_a_failed_test_ends_with_1_and_is_kept_too(
    takeback: CommandLine, store: Path, tmp_path: Path
) -> None:
    takeback.done("hook", "install", "claude-code")
    broken = program(tmp_path, "runs no hooks")

    said = takeback("hook", "test", "claude-code", "--program", broken)

    assert said.code == 1
    assert "5 checks of 5 did not hold" in said.err
    proof = last_proof(str(store), settings_of("claude-code", True, os.environ, ""))
    assert proof is not None
    assert not proof.proven
    assert "failed: The shell call was made" in takeback.done("hook", "status", "claude-code").out


def test_an_agent_that_ends_before_it_asks(takeback: CommandLine, store: Path, tmp_path: Path) -> None:
    takeback.done("hook", "install", "claude-code")

    said = takeback("hook", "test", "claude-code", "--program", program(tmp_path, "ends at once"), "--json")

    assert said.code == 1
    assert said.error["message"] == (
        "Claude Code 2.1.400 ended with exit code 1 before it asked the model for anything."
    )
    assert said.error["hint"].startswith("Start `claude` yourself")
    assert said.error["hint"].endswith("Its last words: Please log in first.")
    old = takeback("hook", "test", "claude-code", "--program", program(tmp_path, "ends at once", "1.0.3"))
    assert "hint: takeback was tried with 2.1.325; update Claude Code, then test again." in old.err
    assert not (store / "hooks/proofs").exists()  # nothing was seen


def test_an_agent_that_hangs_is_killed_with_its_children(
    takeback: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takeback.done("hook", "install", "claude-code")
    monkeypatch.setattr(trial, "SECONDS", 1)

    with pytest.raises(Failed, match="did not end within 1 s"):
        points(tmp_path, "hangs")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("cursor",), 3, "Cursor cannot be run without a person"),
        (("codex",), 3, "takeback has no hooks in"),
        (("claude-code", "--project"), 3, "takeback has no hooks in"),
        (("claude-code",), 3, "There is no `claude` on your PATH"),
        (("claude-code", "--program", "/nonexistent"), 2, "no program that can be started"),
        (("claude-code", "--program", ""), 2, "--program is empty"),
        (("claude-code", "--user", "--project"), 2, "exclude each other"),
        ((), 2, "AGENT"),
        (("vim",), 2, "vim"),
    ],
)
def test_what_cannot_be_tested_is_refused(
    words: tuple[str, ...], code: int, message: str, takeback: CommandLine, store: Path
) -> None:
    takeback.done("hook", "install", "claude-code")

    said = takeback("hook", "test", *words, PATH="/usr/bin:/bin")

    assert (said.code, message in said.err, "hint:" in said.err) == (code, True, True), said
    assert not (store / "hooks/proofs").exists()


def test_a_program_that_the_kernel_does_not_start(takeback: CommandLine, tmp_path: Path) -> None:
    takeback.done("hook", "install", "claude-code")
    (tmp_path / "claude").write_bytes(b"\x7fELF broken")
    (tmp_path / "claude").chmod(0o755)

    said = takeback("hook", "test", "claude-code", "--program", tmp_path / "claude")

    assert (said.code, "cannot be started" in said.err) == (3, True)


def test_only_our_hooks_are_copied_and_their_store_is_not_the_users(
    takeback: CommandLine, home: Path, store: Path, tmp_path: Path
) -> None:
    """A hook of somebody else would act outside of the test, and a named store is not for a test."""
    named = tmp_path / "it's named"
    takeback.done("hook", "install", "claude-code", "--store", str(named))
    place = home / ".claude/settings.json"
    document = json.loads(place.read_text())
    foreign = {"type": "command", "command": f"touch {tmp_path}/foreign"}
    document["hooks"]["PreToolUse"].insert(0, {"matcher": "*", "hooks": [foreign]})
    document["hooks"]["PreToolUse"][1]["hooks"].append(foreign)
    document["env"] = {"ANTHROPIC_BASE_URL": "http://elsewhere.invalid"}
    place.write_text(json.dumps(document))
    before = takeback.done("log", "--json", "--all", "--store", str(named)).json

    said = takeback.done("hook", "test", "claude-code", "--program", program(tmp_path)).out

    assert said.splitlines() == [
        f"Claude Code 2.1.400, hooks of ~/.claude/settings.json (shim: {'compiled' if compiled_shim() else 'python'}):",
        "  yes  The shell call was recorded, with the 4 paths that it changed.",
        "  yes  The edit was recorded, with the file that it changed.",
        *(
            line
            for line in said.splitlines()
            if line.startswith("  yes  Undo brought everything back exactly")
        ),
        "  yes  With takeback unable to record, the shell call was denied.",
        "  yes  With takeback unable to record, the edit was denied.",
    ]
    assert not (tmp_path / "foreign").exists()
    assert takeback.done("log", "--json", "--all", "--store", str(named)).json == before


def proven(takeback: CommandLine, **environment: str) -> tuple[bool, str]:
    (told,) = takeback.done("hook", "status", "claude-code", "--json", **environment).json["agents"]
    return told["files"][0]["proof"]["proven"], told["files"][0]["proof"]["detail"]


def test_a_proof_ends_with_what_it_was_about(
    takeback: CommandLine, home: Path, store: Path, tmp_path: Path
) -> None:
    takeback.done("hook", "install", "claude-code")
    assert proven(takeback) == (False, "never proven")
    path = program(tmp_path)
    (tmp_path / "bin").mkdir()
    claude = tmp_path / "bin/claude"
    claude.symlink_to(path)
    here = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    takeback.done("hook", "test", "claude-code", **here)
    held, detail = proven(takeback, **here)
    assert (held, detail.startswith("proven on 20")) == (True, True)
    assert [one[0] for one in findings(takeback, **here)] == ["good"]

    claude.unlink()
    claude.symlink_to(program(tmp_path, version="2.1.401"))
    held, detail = proven(takeback, **here)
    assert (held, detail.endswith("; Claude Code is 2.1.401 now")) == (False, True)
    assert [one[0] for one in findings(takeback, **here)] == ["weak"]
    claude.unlink()
    claude.symlink_to(path)
    settings = home / ".claude/settings.json"
    settings.write_text(
        settings.read_text().replace("python -I", "python -I -S", 1).replace("-I -S", "-S -I", 1)
    )
    assert proven(takeback, **here)[1].endswith("; the hooks were changed since")
    for damage in ("", "{}", "[]", '{"at": "x"}', "[" * 100_000):
        next((store / "hooks/proofs").iterdir()).write_text(damage)
        assert proven(takeback, **here) == (False, "never proven")


PROGRAMS = {
    "claude-code": "node_modules/@anthropic-ai/claude-code-linux-{cpu}/claude",
    "codex": "node_modules/@openai/codex-linux-{cpu}/vendor/{machine}-unknown-linux-musl/bin/codex",
    "gemini": "node_modules/.bin/gemini",
    "opencode": "node_modules/opencode-linux-{cpu}/bin/opencode",
}


IN_SANDBOX = [*CALLS[:2], "sandbox", *CALLS[2:]]


@pytest.mark.parametrize("fault", ["", "runs commands without a program before them"])
def test_mode_sandbox_is_proven_by_where_the_command_ran(
    fault: str, takeback: CommandLine, home: Path, tmp_path: Path
) -> None:
    takeback.done("hook", "install", "claude-code")
    takeback.done("hook", "mode", "sandbox", "claude-code")

    said = takeback("hook", "test", "claude-code", "--program", program(tmp_path, fault), "--json")

    held = {one["name"]: one["held"] for one in said.json["checks"]}
    assert list(held) == IN_SANDBOX
    assert [name for name in held if not held[name]] == (["sandbox"] if fault else []), said.out
    assert said.json["mode"] == "sandbox"
    assert "the mode is" not in proven(takeback)[1]
    takeback.done("hook", "mode", "watch", "claude-code")
    if not fault:
        assert proven(takeback)[1].endswith(", the mode is watch now")


@pytest.mark.agents
@pytest.mark.each_share
def test_the_real_claude_code_is_proven_in_sandbox_mode(takeback: CommandLine, tmp_path: Path) -> None:
    takeback.done("hook", "install", "claude-code")
    takeback.done("hook", "mode", "sandbox", "claude-code")

    told = takeback.done(
        "hook", "test", "claude-code", "--json", "--program", binary(PROGRAMS["claude-code"])
    ).json

    assert [(one["name"], one["held"]) for one in told["checks"]] == [(name, True) for name in IN_SANDBOX]


@pytest.mark.agents
@pytest.mark.parametrize(
    "agent",
    [pytest.param(one, marks=pytest.mark.each_share if one == "claude-code" else ()) for one in PROGRAMS],
)
def test_the_real_agents_are_proven(agent: str, takeback: CommandLine, tmp_path: Path) -> None:
    takeback.done("hook", "install", agent)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/node").symlink_to(AGENTS / "node")

    words = ("hook", "test", agent, "--json", "--program", binary(PROGRAMS[agent]))
    told = takeback.done(*words, PATH=f"{tmp_path}/bin:{os.environ['PATH']}").json

    assert [(one["name"], one["held"]) for one in told["checks"]] == [(name, True) for name in CALLS]
    assert told["agent_version"]


@pytest.mark.agents
@pytest.mark.each_share
def test_the_real_claude_code_without_hooks_is_not_proven(takeback: CommandLine, home: Path) -> None:
    """Installed, and switched off."""
    place = home / ".claude/settings.json"
    place.parent.mkdir()
    place.write_text('{"disableAllHooks": true}')
    takeback.done("hook", "install", "claude-code")

    said = takeback("hook", "test", "claude-code", "--json", "--program", binary(PROGRAMS["claude-code"]))

    assert said.code == 1
    assert [one["held"] for one in said.json["checks"]] == [False] * 5
    assert "`disableAllHooks` is set" in said.json["obstacles"][0]
