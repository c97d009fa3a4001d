"""Cursor, as far as its published contract goes: a program of ours that does what the contract says."""

import sys
from pathlib import Path

from tests.agents import cursor_puppet
from tests.agents.family import Agent, Hooks, Rules, Start, Words, surroundings, write_settings


class Cursor(Agent):
    name = "cursor"
    before = "preToolUse"
    events = (
        "sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure", "subagentStart",
        "subagentStop", "stop", "sessionEnd",
    )  # fmt: skip

    def shell(self, command: str, background: bool) -> Words:
        more = {"is_background": True} if background else {}
        return "Shell", {"command": command, "cwd": "", **more}

    def write(self, path: str, text: str) -> Words:
        return "Write", {"path": path, "contents": text}

    def edit(self, path: str, old: str, new: str) -> Words:
        return "StrReplace", {"path": path, "old_string": old, "new_string": new}

    def read(self, path: str) -> Words:
        return "Read", {"path": path}

    def delegate(self, prompt: str) -> Words:
        return "Task", {"prompt": prompt, "subagent_type": "generalPurpose"}

    def notebook(self, path: str, cell: str, source: str) -> Words:
        return "EditNotebook", {"target_notebook": path, "cell_idx": 0, "new_string": source}

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        if hooks:
            raise NotImplementedError("it runs what is installed")
        (home / ".cursor").mkdir(exist_ok=True)
        if rules:
            decided = {rules.denied: "deny", rules.asked: "ask", rules.allowed: "allow"}
            write_settings(home / ".cursor/rules.json", decided)

    def start(self, home: Path, port: int, prompt: str, again: bool, rules: Rules | None) -> Start:
        words = [sys.executable, "-I", "-S", cursor_puppet.__file__, f"http://127.0.0.1:{port}/v1", prompt]
        return Start([*words, *(["again"] if again else [])], surroundings(home), 120)
