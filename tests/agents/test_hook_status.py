"""`takeback hook status` finds what keeps installed hooks from running, and starts and changes nothing."""

import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from takeback.frontends.agents.settings import compiled_shim, shim_path
from tests.e2e.conftest import CommandLine
from tests.world import World, picture


def status(takeback: CommandLine, name: str, **environment: str) -> dict[str, Any]:
    (told,) = takeback.done("hook", "status", name, "--json", **environment).json["agents"]
    return told


def put(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def program(
    directory: Path, name: str, package: dict[str, Any] | None = None, target: str = ""
) -> dict[str, str]:
    """A program that must not be started, on a PATH of its own."""
    place = directory / "lib" / (target or name)
    put(place, f"#!/bin/sh\ntouch '{directory}/started'\n")
    place.chmod(0o755)
    if package:
        put(directory / "lib" / "package.json", package)
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / name).symlink_to(place)
    return {"PATH": f"{directory}/bin:/usr/bin:/bin"}


def test_looking_changes_and_starts_nothing(
    takeback: CommandLine, world: World, home: Path, tmp_path: Path
) -> None:
    for name in ("claude-code", "codex", "gemini", "opencode", "cursor"):
        takeback.done("hook", "install", name)
    path = program(tmp_path, "claude", target="2.1.325")
    before = picture(os.fsencode(home)), world.picture()

    told = takeback.done("hook", "status", **path)

    assert (picture(os.fsencode(home)), world.picture()) == before
    assert not (tmp_path / "started").exists()
    assert "Claude Code 2.1.325" in told.out


def test_nothing_installed_is_no_error(takeback: CommandLine) -> None:
    said = takeback.done("hook", "status", PATH="/usr/bin:/bin")
    assert "No coding agent was found" in said.out
    assert takeback.done("hook", "status", "--json").json["daemon"] == {"running": False}


def test_an_agent_without_hooks_is_offered_them(takeback: CommandLine, home: Path) -> None:
    (home / ".codex").mkdir()
    assert "`takeback hook install codex`" in takeback.done("hook", "status").out


@pytest.mark.parametrize(
    "file", [".claude/settings.json", "project/.claude/settings.json", "project/.claude/settings.local.json"]
)
def test_hooks_that_claude_was_asked_not_to_run(
    takeback: CommandLine, world: World, home: Path, file: str
) -> None:
    place = world.root / file.removeprefix("project/") if file.startswith("project") else home / file
    put(place, {"disableAllHooks": True})
    takeback.done("hook", "install", "claude-code")

    (obstacle,) = status(takeback, "claude-code")["obstacles"]
    assert obstacle == f"`disableAllHooks` is set in {place}: Claude Code runs no hooks."


def test_a_file_that_claude_ignores_is_named(takeback: CommandLine, world: World) -> None:
    takeback.done("hook", "install", "claude-code")
    put(world / ".claude/settings.json", '{\n "a": 1 // one\n}')

    (obstacle,) = status(takeback, "claude-code")["obstacles"]
    assert "is not valid JSON: line 2" in obstacle


def test_versions_of_claude_by_their_place(takeback: CommandLine, tmp_path: Path) -> None:
    takeback.done("hook", "install", "claude-code")
    old = program(tmp_path / "a", "claude", target="2.1.197")
    assert status(takeback, "claude-code", **old)["version"] == "2.1.197"
    assert "may ignore `onFailure`" in status(takeback, "claude-code", **old)["obstacles"][0]
    new = program(tmp_path / "b", "claude", {"name": "claude", "version": "2.1.325"}, "cli.js")
    assert status(takeback, "claude-code", **new)["version"] == "2.1.325"
    assert status(takeback, "claude-code", **new)["obstacles"] == []


def test_hooks_without_trust_in_codex(takeback: CommandLine, home: Path) -> None:
    takeback.done("hook", "install", "codex")
    (obstacle,) = status(takeback, "codex")["obstacles"]
    assert "no trust noted for 8 of takeback's hooks" in obstacle
    hooks = home / ".codex" / "hooks.json"
    events = {
        "SessionStart": "session_start", "UserPromptSubmit": "user_prompt_submit", "PreToolUse": "pre_tool_use",
        "PostToolUse": "post_tool_use", "SubagentStart": "subagent_start", "SubagentStop": "subagent_stop",
        "Stop": "stop", "SessionEnd": "session_end",
    }  # fmt: skip
    trusted = "".join(
        f'[hooks.state."{hooks}:{label}:0:0"]\ntrusted_hash = "sha256:x"\n' for label in events.values()
    )
    put(home / ".codex" / "config.toml", trusted)
    assert status(takeback, "codex")["obstacles"] == []

    put(home / ".codex" / "config.toml", trusted.replace('stop:0:0"]\n', 'stop:0:0"]\nenabled = false\n', 1))
    (obstacle,) = status(takeback, "codex")["obstacles"]
    assert "1 of takeback's hooks" in obstacle
    put(home / ".codex" / "config.toml", trusted + "[features]\nhooks = false\n")
    assert "`features.hooks` is false" in status(takeback, "codex")["obstacles"][0]
    put(home / ".codex" / "config.toml", "broken [")
    assert "not valid TOML" in status(takeback, "codex")["obstacles"][0]


def test_hooks_in_the_toml_of_codex(takeback: CommandLine, world: World, home: Path) -> None:
    """Someone put them there: takeback reads them, and never writes that file."""
    config, document = home / ".codex/config.toml", home / ".codex/hooks.json"
    takeback.done("hook", "install", "codex")
    groups = json.loads(document.read_text())["hooks"]
    written = "# mine\n" + "".join(
        f"[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = 'command'\n"
        f"command = {json.dumps(one['hooks'][0]['command'])}\n"
        for event, (one,) in groups.items()
    )
    config.write_text(written)
    told = status(takeback, "codex")
    assert [one["file"] for one in told["files"] if one["events"]] == [str(document), str(config)]
    assert f"Codex reads hooks of takeback in {config} too: each event is asked twice" in told["obstacles"][0]
    assert any(f"8 of takeback's hooks in {config} (" in one for one in told["obstacles"])
    assert told["files"][2]["proof"]["detail"].startswith("cannot be proven")

    hint = f"hint: Remove takeback's hooks from {'~/.codex/config.toml'} yourself"
    assert hint in takeback.done("hook", "uninstall", "codex").out
    assert (config.read_text(), document.exists()) == (written, False)
    told = status(takeback, "codex")
    assert told["installed"] and not [one for one in told["obstacles"] if "twice" in one]
    assert ("weak", f"{config}: {told['files'][2]['proof']['detail']}") in findings(takeback)
    config.write_text(
        written.replace("[[hooks.Stop]]", "[[hooks.Stopped]]").replace("[[hooks.Stop.", "[[hooks.Stopped.")
    )
    assert "No hook for Stop." in status(takeback, "codex")["files"][2]["problems"]
    config.write_text(written.replace("\n[[hooks.Stop]]", "\n[[hooks.Stop]"))
    (obstacle,) = takeback.done("hook", "status", "codex", "--json").json["agents"][0]["obstacles"] or ("",)
    assert obstacle == ""  # without hooks nothing keeps them from running

    config.unlink()
    takeback.done("hook", "install", "codex")
    put(world / ".codex/config.toml", "[features]\nhooks = false\n")
    assert (
        f"`features.hooks` is false in {world / '.codex/config.toml'}"
        in status(takeback, "codex")["obstacles"][0]
    )


def test_what_gemini_was_asked_not_to_run(takeback: CommandLine, world: World, home: Path) -> None:
    settings, folders = home / ".gemini" / "settings.json", home / ".gemini" / "trustedFolders.json"
    takeback.done("hook", "install", "gemini")
    (obstacle,) = status(takeback, "gemini")["obstacles"]
    assert obstacle == f"Gemini CLI does not trust {world.root}: it runs no hooks there."
    assert status(takeback, "gemini", GEMINI_CLI_TRUST_WORKSPACE="true")["obstacles"] == []
    put(folders, {os.fspath(world.root.parent): "TRUST_FOLDER"})
    assert status(takeback, "gemini")["obstacles"] == []
    put(folders, {os.fspath(world.root.parent): "TRUST_FOLDER", os.fspath(world.root): "DO_NOT_TRUST"})
    assert len(status(takeback, "gemini")["obstacles"]) == 1

    document = json.loads(settings.read_text())
    put(
        settings,
        {**document, "security": {"folderTrust": {"enabled": False}}, "hooksConfig": {"enabled": False}},
    )
    (obstacle,) = status(takeback, "gemini")["obstacles"]
    assert "`hooksConfig.enabled` is false" in obstacle
    put(settings, {**document, "security": {"folderTrust": {"enabled": False}}})
    put(world / ".gemini" / "settings.json", {"hooksConfig": {"disabled": ["takeback"]}})
    (obstacle,) = status(takeback, "gemini")["obstacles"]
    assert "names takeback" in obstacle


def findings(takeback: CommandLine, **environment: str) -> list[tuple[str, str]]:
    """Of the agents, in `doctor`."""
    told = takeback.done("doctor", "--json", **environment).json["findings"]
    return [(one["level"], one["detail"]) for one in told if one["name"].endswith(": hooks")]


def test_doctor_names_hooks_without_proof_and_starts_no_agent(
    takeback: CommandLine, world: World, home: Path, tmp_path: Path
) -> None:
    path = program(tmp_path, "claude", target="2.1.197")
    assert findings(takeback, **path) == []
    takeback.done("hook", "install", "claude-code")
    takeback.done("hook", "install", "cursor", "--project")
    put(home / ".codex/hooks.json", "{broken")
    put(world / ".claude/settings.json", {"disableAllHooks": True})
    before = picture(os.fsencode(home)), world.picture()

    found = findings(takeback, **path)

    project = os.fspath(world.root)
    assert found == [
        ("weak", f"{home}/.claude/settings.json: never proven"),
        ("weak", f"`disableAllHooks` is set in {project}/.claude/settings.json: Claude Code runs no hooks."),
        ("weak", found[2][1]),
        (
            "weak",
            f"{home}/.codex/hooks.json is not valid JSON: line 1, column 2: {found[3][1].split(': ')[-1]}",
        ),
        ("weak", f"{project}/.cursor/hooks.json: cannot be proven: Cursor cannot be run without a person"),
    ]
    assert "may ignore `onFailure`" in found[2][1]
    assert "takeback hook test claude-code" in takeback.done("doctor", **path).out
    assert (picture(os.fsencode(home)), world.picture()) == before
    assert not (tmp_path / "started").exists()


def test_entries_that_are_broken_are_named(takeback: CommandLine, home: Path) -> None:
    takeback.done("hook", "install", "claude-code")
    file = home / ".claude" / "settings.json"
    document = json.loads(file.read_text())
    del document["hooks"]["Stop"]
    text = json.dumps(document).replace(shim_path(), "/opt/old/takeback/frontends/agents/shim.py")
    file.write_text(text.replace(f"{sys.executable} -I", "/gone/python -I"))

    problems = " ".join(status(takeback, "claude-code")["files"][0]["problems"])

    assert "No hook for Stop." in problems
    assert "The interpreter /gone/python does not exist." in problems
    assert "The hook program /opt/old/takeback/frontends/agents/shim.py does not exist." in problems
    assert "another installation" in problems


def test_status_says_which_hook_program_is_used(takeback: CommandLine, home: Path, tmp_path: Path) -> None:
    takeback.done("hook", "install", "claude-code")
    file = home / ".claude/settings.json"
    fast = tmp_path / "a fast shim"
    put(fast, "")
    here = f"{compiled_shim()} " if compiled_shim() else ""

    def told(before: str) -> tuple[str, list[str], str]:
        document = json.loads(file.read_text())
        for entry in (
            one for groups in document["hooks"].values() for group in groups for one in group["hooks"]
        ):
            first, flag, inner = shlex.split(entry["command"])
            inner = before + inner[inner.index(f"{sys.executable} -I") :]
            entry["command"] = shlex.join([first, flag, inner])
        file.write_text(json.dumps(document))
        found = status(takeback, "claude-code")["files"][0]
        return found["shim"], found["problems"], takeback.done("hook", "status", "claude-code").out

    shim, problems, out = told(f"{shlex.quote(str(fast))} ")
    assert (shim, problems) == ("compiled", [])
    assert "  shim     compiled\n" in out
    fast.unlink()
    shim, problems, _ = told(f"{shlex.quote(str(fast))} ")
    assert (shim, problems) == ("compiled", [f"The compiled hook program {fast} does not exist."])
    shim, problems, out = told("")
    assert (shim, problems) == ("python", [])
    assert ("`takeback hook install` again" in out) is bool(here)
    takeback.done("hook", "install", "claude-code")
    assert (here in file.read_text(), str(fast) in file.read_text()) == (True, False)


def test_a_daemon_that_answers_is_seen(takeback: CommandLine, store: Path) -> None:
    takeback.done("hook", "install", "codex")
    place = store / "hooks"
    place.mkdir(mode=0o700)
    here = os.getcwd()
    os.chdir(place)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("socket")
        os.chdir(here)
        assert "not running" in takeback.done("hook", "status").out
        listener.listen(1)
        assert "The daemon is running." in takeback.done("hook", "status").out
