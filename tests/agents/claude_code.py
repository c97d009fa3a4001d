"""Claude Code: one native program. Hooks are in its settings, each with words of its own, without a shell."""

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


class ClaudeCode(Agent):
    name = "claude-code"
    before = "PreToolUse"
    events = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch",
        "PermissionRequest", "PermissionDenied",
        "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
    )  # fmt: skip

    def shell(self, command: str, background: bool) -> Words:
        more = {"run_in_background": True} if background else {}
        return "Bash", {"command": command, "description": "as the scene says", **more}

    def write(self, path: str, text: str) -> Words:
        return "Write", {"file_path": path, "content": text}

    def edit(self, path: str, old: str, new: str) -> Words:
        return "Edit", {"file_path": path, "old_string": old, "new_string": new}

    def read(self, path: str) -> Words:
        return "Read", {"file_path": path}

    def delegate(self, prompt: str) -> Words:
        kind = {"subagent_type": "general-purpose", "run_in_background": False}
        return "Agent", {"description": "part of it", "prompt": prompt, **kind}

    def notebook(self, path: str, cell: str, source: str) -> Words:
        return "NotebookEdit", {
            "notebook_path": path, "cell_id": cell, "new_source": source, "edit_mode": "replace"
        }  # fmt: skip

    def settle(self, home: Path, hooks: Hooks | None, rules: Rules | None) -> None:
        place = home / ".claude/settings.json"
        found = read_settings(place)
        if hooks:
            found["hooks"] = {event: [self._hook(hooks, event)] for event in hooks.events or self.events}
        if rules:
            found["permissions"] = {
                "deny": [f"Bash({rules.denied} *)"], "ask": [f"Bash({rules.asked} *)"],
                "allow": [f"Bash({rules.allowed} *)"],
            }  # fmt: skip
        write_settings(place, found)

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
