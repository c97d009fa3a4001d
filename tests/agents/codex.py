"""Codex: a native program. Hooks are in a file of their own, which it must trust; here it is told not to ask."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.agents.family import (
    Agent,
    Deed,
    Delegate,
    Hooks,
    Rules,
    Start,
    Words,
    binary,
    surroundings,
    write_settings,
)


class Codex(Agent):
    name = "codex"
    model = "gpt-5.5"
    before = "PreToolUse"
    events = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PermissionRequest",
        "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
    )  # fmt: skip

    def path(self, project: Path, path: str) -> str:
        return path

    def shell(self, command: str, background: bool) -> Words:
        return "exec_command", {"cmd": command, "yield_time_ms": 250 if background else 30_000}

    def write(self, path: str, text: str) -> Words:
        body = "".join(f"+{line}\n" for line in text.splitlines())
        return self._patch(f"*** Add File: {path}\n{body}")

    def edit(self, path: str, old: str, new: str) -> Words:
        return self._patch(f"*** Update File: {path}\n@@\n-{old}\n+{new}\n")

    def read(self, path: str) -> Words:
        return "exec_command", {"cmd": f"cat {shlex.quote(path)}"}

    def delegate(self, prompt: str) -> Words:
        return "multi_agent_v1/spawn_agent", {"message": prompt}

    def _patch(self, body: str) -> Words:
        return "apply_patch", f"*** Begin Patch\n{body}*** End Patch\n"

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        place = home / ".codex/hooks.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        if hooks:
            write_settings(
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
            "model": f'"{self.model}"', "model_provider": '"mock"',
            "approval_policy": '"on-request"' if rules else '"never"',
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


class CodexScript(Codex):
    """With models from gpt-5.6 on the model says a script, and what the script calls are the tools."""

    name = "codex-script"
    model = "gpt-6.1-sol"

    def turn(self, deeds: Sequence[Deed], project: Path) -> list[Words]:
        if parts := [deed.prompt for deed in deeds if isinstance(deed, Delegate)]:
            names = ("part", "other_part")
            return [
                ("collaboration/spawn_agent", {"task_name": name, "message": prompt})
                for name, prompt in zip(names, parts, strict=False)
            ]
        calls = [
            f"tools.{name.rpartition('/')[2]}({json.dumps(words)})"
            for name, words in (self.call(deed, project) for deed in deeds)
        ]
        return [("exec", f"text(JSON.stringify(await Promise.all([{', '.join(calls)}])))")]
