"""A stand-in for Claude Code, which cannot be made to fail: it asks the model, runs the hooks and makes the calls.

`main(FAULT)`: empty, or what it does wrong. It is put on disk as a program of its own by `test_hook_test.py`.
"""

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

SESSION = "00000000-0000-4000-8000-000000000001"


def main(fault: str) -> None:
    if fault == "ends at once":
        sys.exit("Please log in first.")
    if fault == "hangs":
        subprocess.run(["sleep", "86400"], start_new_session=True, check=False)
    os.environ |= {**settings().get("env", {}), "CLAUDE_CODE_SESSION_ID": SESSION}
    hook("SessionStart", fault, source="startup")
    hook("UserPromptSubmit", fault, prompt="go")
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        (block,) = asked(said)["content"]
        if block["type"] == "text":
            break
        said.append({"role": "assistant", "content": [block]})
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": called(block, fault)}
        said.append({"role": "user", "content": [result]})
    hook("SessionEnd", fault, reason="other")
    if fault == "does more":
        Path("kept.txt").chmod(0o600)


def asked(said: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"messages": said, "tools": [{"name": "Bash"}]}).encode()
    with urllib.request.urlopen(f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages", body) as answer:
        return json.load(answer)


def called(block: dict[str, Any], fault: str) -> str:
    name, given = block["name"], block["input"]
    about = {"tool_name": name, "tool_input": given, "tool_use_id": block["id"]}
    if name == "Read":
        return Path(given["file_path"]).read_text()
    if fault == f"refuses {name}":
        return "The user does not want that."
    if not hook("PreToolUse", fault, **about) and fault != "runs what was denied":
        return "denied by a hook"
    if name == "Bash":
        subprocess.run(["sh", "-c", line_of(given["command"], fault)], check=False)
    else:
        path = Path(given["file_path"])
        path.write_text(path.read_text().replace(given["old_string"], given["new_string"]))
    hook("PostToolUse", fault, **about)
    return "done"


def line_of(command: str, fault: str) -> str:
    """With the program before it that the settings name, in the form of Claude Code."""
    prefix = os.environ.get("CLAUDE_CODE_SHELL_PREFIX", "")
    if not prefix or fault == "runs commands without a program before them":
        return command
    note = Path(os.environ["HOME"], "tmp/claude-1a2b-cwd")
    whole = f"source /dev/null && eval {shlex.quote(command)} < /dev/null && pwd -P >| {note}"
    return f"{prefix} {shlex.quote(whole)}"


def settings() -> dict[str, Any]:
    return json.loads(Path(os.environ["HOME"], ".claude/settings.json").read_text())


def hook(event: str, fault: str, **more: Any) -> bool:
    """Whether the call may run."""
    if fault == "runs no hooks":
        return True
    payload = {"session_id": SESSION, "cwd": os.getcwd(), "hook_event_name": event, **more}
    environment = {**os.environ, "CLAUDE_PID": str(os.getpid()), "CLAUDE_PROJECT_DIR": os.getcwd()}
    for group in settings()["hooks"].get(event, ()):
        for one in group["hooks"]:
            command = ["/bin/sh", "-c", one["command"]]
            done = subprocess.run(
                command, input=json.dumps(payload).encode(), env=environment, capture_output=True, check=False
            )
            if done.returncode == 2:
                return False
    return True
