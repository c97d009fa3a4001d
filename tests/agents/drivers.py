"""One driver for each agent: its words for a call, its settings, how it is started without a person."""

import json
import shlex
from pathlib import Path
from typing import Any

from tests.agents.family import (
    Agent,
    Deed,
    Delegate,
    Edit,
    Hooks,
    Notebook,
    Read,
    Rules,
    Shell,
    Start,
    Write,
    binary,
    surroundings,
)


class ClaudeCode:
    name = "claude-code"
    before = "PreToolUse"
    events = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch",
        "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
    )  # fmt: skip

    def call(self, deed: Deed, project: Path) -> tuple[str, Any]:
        match deed:
            case Shell(command, background):
                more = {"run_in_background": True} if background else {}
                return "Bash", {"command": command, "description": "as the scene says", **more}
            case Write(path, text):
                return "Write", {"file_path": str(project / path), "content": text}
            case Edit(path, old, new):
                return "Edit", {"file_path": str(project / path), "old_string": old, "new_string": new}
            case Read(path):
                return "Read", {"file_path": str(project / path)}
            case Delegate(prompt):
                kind = {"subagent_type": "general-purpose", "run_in_background": False}
                return "Agent", {"description": "part of it", "prompt": prompt, **kind}
            case Notebook(path, cell, source):
                words = {"cell_id": cell, "new_source": source, "edit_mode": "replace"}
                return "NotebookEdit", {"notebook_path": str(project / path), **words}

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        place = home / ".claude/settings.json"
        found = read(place)
        if hooks:
            found["hooks"] = {event: [self._hook(hooks, event)] for event in hooks.events or self.events}
        if rules:
            found["permissions"] = {
                "deny": [f"Bash({rules.denied} *)"], "ask": [f"Bash({rules.asked} *)"],
                "allow": [f"Bash({rules.allowed} *)"],
            }  # fmt: skip
        write(place, found)

    def _hook(self, hooks: Hooks, event: str) -> dict[str, Any]:
        command, *words = [*hooks.command, self.name, event]
        more = {"onFailure": "block"} if hooks.blocks and event == "PreToolUse" else {}
        hook = {"type": "command", "command": command, "args": words, "timeout": hooks.seconds, **more}
        return {"matcher": "*", "hooks": [hook]} if "ToolUse" in event else {"hooks": [hook]}

    def start(self, home: Path, port: int, prompt: str, again: bool, rules: Rules | None) -> Start:
        mode = "default" if rules else "bypassPermissions"
        words = [binary("node_modules/@anthropic-ai/claude-code-linux-{cpu}/claude"), "-p", prompt]
        words += ["--output-format", "stream-json", "--verbose", "--permission-mode", mode]
        environment = {
            **surroundings(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": "sk-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1",
            "CLAUDE_CODE_TMPDIR": str(home / "tmp"),
        }  # fmt: skip
        return Start([*words, *(["--continue"] if again else [])], environment, 120)


class Codex:
    name = "codex"
    before = "PreToolUse"
    events = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PermissionRequest",
        "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
    )  # fmt: skip

    def call(self, deed: Deed, project: Path) -> tuple[str, Any]:
        match deed:
            case Shell(command, background):
                return "exec_command", {"cmd": command, "yield_time_ms": 250 if background else 30_000}
            case Write(path, text):
                body = "".join(f"+{line}\n" for line in text.splitlines())
                return self._patch(f"*** Add File: {path}\n{body}")
            case Edit(path, old, new):
                return self._patch(f"*** Update File: {path}\n@@\n-{old}\n+{new}\n")
            case Read(path):
                return "exec_command", {"cmd": f"cat {shlex.quote(path)}"}
            case Delegate(prompt):
                return "multi_agent_v1/spawn_agent", {"message": prompt}
            case Notebook():
                raise NotImplementedError(f"{self.name} has no tool for notebooks")

    def _patch(self, body: str) -> tuple[str, Any]:
        return "apply_patch", f"*** Begin Patch\n{body}*** End Patch\n"

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        place = home / ".codex/hooks.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        if hooks:
            write(
                place, {"hooks": {event: [self._hook(hooks, event)] for event in hooks.events or self.events}}
            )
        if rules:
            decisions = ((rules.denied, "forbidden"), (rules.asked, "prompt"), (rules.allowed, "allow"))
            lines = [f'prefix_rule(pattern = ["{word}"], decision = "{kind}")\n' for word, kind in decisions]
            (home / ".codex/rules").mkdir(exist_ok=True)
            (home / ".codex/rules/default.rules").write_text("".join(lines))

    def _hook(self, hooks: Hooks, event: str) -> dict[str, Any]:
        command = shlex.join([*hooks.command, self.name, event])
        hook = {"type": "command", "command": command, "timeout": hooks.seconds}
        return {"matcher": "*", "hooks": [hook]} if "ToolUse" in event else {"hooks": [hook]}

    def start(self, home: Path, port: int, prompt: str, again: bool, rules: Rules | None) -> Start:
        vendor = "node_modules/@openai/codex-linux-{cpu}/vendor/{machine}-unknown-linux-musl/bin/codex"
        provider = (
            f'{{name="mock",base_url="http://127.0.0.1:{port}/v1",wire_api="responses",env_key="MOCK_KEY"'
        )
        settings = {
            "model": '"gpt-5.5"', "model_provider": '"mock"', "approval_policy": '"on-request"' if rules else '"never"',
            "sandbox_mode": '"danger-full-access"', "check_for_update_on_startup": "false",
            "analytics.enabled": "false",
            "model_providers.mock": f"{provider},supports_websockets=false}}",
        }  # fmt: skip
        words = [
            binary(vendor),
            "exec",
            *(["resume", "--last"] if again else []),
            "--json",
            "--skip-git-repo-check",
        ]
        words += ["--dangerously-bypass-hook-trust"]
        words += [] if rules else ["--dangerously-bypass-approvals-and-sandbox"]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Start([*words, prompt], {**surroundings(home), "MOCK_KEY": "none"}, 120)


class Gemini:
    name = "gemini"
    before = "BeforeTool"
    events = ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")

    def call(self, deed: Deed, project: Path) -> tuple[str, Any]:
        match deed:
            case Shell(command, background):
                more = {"is_background": True} if background else {}
                return "run_shell_command", {"command": command, "description": "as the scene says", **more}
            case Write(path, text):
                return "write_file", {"file_path": str(project / path), "content": text}
            case Edit(path, old, new):
                words = {"old_string": old, "new_string": new, "instruction": "as the scene says"}
                return "replace", {"file_path": str(project / path), **words}
            case Read(path):
                return "read_file", {"file_path": str(project / path)}
            case Delegate(prompt):
                return "invoke_agent", {"agent_name": "generalist", "prompt": prompt}
            case Notebook():
                raise NotImplementedError(f"{self.name} has no tool for notebooks")

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        place = home / ".gemini/settings.json"
        found = read(place)
        # Of what no variable can say: with a model elsewhere it asks which kind of key it has.
        found.setdefault("security", {}).setdefault("auth", {})["selectedType"] = "gemini-api-key"
        if hooks:
            found["hooks"] = {event: [self._hook(hooks, event)] for event in hooks.events or self.events}
        write(place, found)
        if rules:
            decisions = (
                (rules.denied, "deny", 900),
                (rules.asked, "ask_user", 800),
                (rules.allowed, "allow", 700),
            )
            text = "".join(
                f'[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "{word}"\n'
                f'decision = "{kind}"\npriority = {priority}\n'
                for word, kind, priority in decisions
            )
            (home / ".gemini/policies").mkdir(exist_ok=True)
            (home / ".gemini/policies/rig.toml").write_text(text)

    def _hook(self, hooks: Hooks, event: str) -> dict[str, Any]:
        command = shlex.join([*hooks.command, self.name, event])
        hook = {"name": "rig", "type": "command", "command": command, "timeout": hooks.seconds * 1000}
        return {"matcher": "*", "hooks": [hook]} if event.endswith("Tool") else {"hooks": [hook]}

    def start(self, home: Path, port: int, prompt: str, again: bool, rules: Rules | None) -> Start:
        words = [
            binary("node"),
            binary("node_modules/@google/gemini-cli/bundle/gemini.js"),
            "-m",
            "gemini-2.5-flash",
        ]
        words += ["--resume", "latest"] if again else []
        words += [] if rules else ["-y"]
        environment = {
            **surroundings(home), "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}", "GEMINI_API_KEY": "none",
            "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true",
            "GEMINI_TELEMETRY_ENABLED": "false",
        }  # fmt: skip
        return Start([*words, "-p", prompt, "-o", "json"], environment, 180)


class Opencode:
    name = "opencode"
    before = "tool.execute.before"
    events = ("session.created", "chat.message", "tool.execute.before", "tool.execute.after", "session.idle")

    def call(self, deed: Deed, project: Path) -> tuple[str, Any]:
        match deed:
            case Shell(command, background):
                command = (
                    f"({command}) >/dev/null 2>&1 &" if background else command
                )  # it has no word for that
                return "bash", {"command": command, "description": "as the scene says"}
            case Write(path, text):
                return "write", {"filePath": str(project / path), "content": text}
            case Edit(path, old, new):
                return "edit", {"filePath": str(project / path), "oldString": old, "newString": new}
            case Read(path):
                return "read", {"filePath": str(project / path)}
            case Delegate(prompt):
                return "task", {"description": "part of it", "prompt": prompt, "subagent_type": "general"}
            case Notebook():
                raise NotImplementedError(f"{self.name} has no tool for notebooks")

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        bash = dict(self._decisions(rules))
        model = {"name": "model", "tool_call": True}
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "mock", "models": {"model": model},
            "options": {"baseURL": "{env:RIG_MODEL}", "apiKey": "none"},
        }  # fmt: skip
        own = {
            "provider": {"mock": provider}, "model": "mock/model", "autoupdate": False, "share": "disabled",
            "permission": {"bash": bash} if rules else "allow",
        }  # fmt: skip
        write(home / "rig/opencode.json", own)
        if hooks:
            text = (Path(__file__).parent / "capture_plugin.js").read_text()
            place = home / ".config/opencode/plugin/rig.js"
            place.parent.mkdir(parents=True, exist_ok=True)
            text = text.replace('"COMMAND"', json.dumps([*hooks.command, self.name]))
            place.write_text(text.replace('"EVENTS"', json.dumps([*(hooks.events or self.events)])))

    def _decisions(self, rules: Rules | None) -> list[tuple[str, str]]:
        if not rules:
            return []
        return [(f"{rules.denied} *", "deny"), (f"{rules.asked} *", "ask"), (f"{rules.allowed} *", "allow")]

    def start(self, home: Path, port: int, prompt: str, again: bool, rules: Rules | None) -> Start:
        words = [binary("node_modules/opencode-linux-{cpu}/bin/opencode"), "run", "--format", "json"]
        environment = {
            **surroundings(home), "RIG_MODEL": f"http://127.0.0.1:{port}/v1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_CONFIG": str(home / "rig/opencode.json"),
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }  # fmt: skip
        return Start([*words, *(["--continue"] if again else []), prompt], environment, 180)


def read(place: Path) -> dict[str, Any]:
    return json.loads(place.read_text()) if place.exists() else {}


def write(place: Path, found: dict[str, Any]) -> None:
    """Only where it says something that is not there already."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if found != read(place) or not place.exists():
        place.write_text(json.dumps(found, indent=2) + "\n")


DRIVERS: dict[str, Agent] = {one.name: one for one in (ClaudeCode(), Codex(), Gemini(), Opencode())}
