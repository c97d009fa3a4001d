"""opencode: a native program (Bun). It has plugins instead of hooks; ours hands every event to a command."""

import json
from pathlib import Path

from tests.agents.family import Agent, Hooks, Rules, Start, Words, binary, surroundings, write_settings


class Opencode(Agent):
    name = "opencode"
    before = "tool.execute.before"
    events = ("session.created", "chat.message", "tool.execute.before", "tool.execute.after", "session.idle")

    def shell(self, command: str, background: bool) -> Words:
        command = f"({command}) >/dev/null 2>&1 &" if background else command  # it has no word for that
        return "bash", {"command": command, "description": "as the scene says"}

    def write(self, path: str, text: str) -> Words:
        return "write", {"filePath": path, "content": text}

    def edit(self, path: str, old: str, new: str) -> Words:
        return "edit", {"filePath": path, "oldString": old, "newString": new}

    def read(self, path: str) -> Words:
        return "read", {"filePath": path}

    def delegate(self, prompt: str) -> Words:
        return "task", {"description": "part of it", "prompt": prompt, "subagent_type": "general"}

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
        write_settings(home / "rig/opencode.json", own)
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
