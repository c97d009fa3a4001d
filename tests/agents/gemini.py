"""Gemini CLI: a program for Node. Hooks are in its settings; calls have no ids."""

import shlex
from pathlib import Path
from typing import Any

from tests.agents.family import (
    Agent,
    Hooks,
    Rules,
    Start,
    Words,
    binary,
    read_settings,
    surroundings,
    write_settings,
)


class Gemini(Agent):
    name = "gemini"
    before = "BeforeTool"
    events = ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")

    def shell(self, command: str, background: bool) -> Words:
        more = {"is_background": True} if background else {}
        return "run_shell_command", {"command": command, "description": "as the scene says", **more}

    def write(self, path: str, text: str) -> Words:
        return "write_file", {"file_path": path, "content": text}

    def edit(self, path: str, old: str, new: str) -> Words:
        words = {"old_string": old, "new_string": new, "instruction": "as the scene says"}
        return "replace", {"file_path": path, **words}

    def read(self, path: str) -> Words:
        return "read_file", {"file_path": path}

    def delegate(self, prompt: str) -> Words:
        return "invoke_agent", {"agent_name": "generalist", "prompt": prompt}

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        place = home / ".gemini/settings.json"
        found = read_settings(place)
        # Of what no variable can say: with a model elsewhere it asks which kind of key it has.
        found.setdefault("security", {}).setdefault("auth", {})["selectedType"] = "gemini-api-key"
        if hooks:
            found["hooks"] = {event: [self._hook(hooks, event)] for event in hooks.events or self.events}
        write_settings(place, found)
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
