"""Cursor by its published contract: asks the model on loopback, runs the hooks of `hooks.json`, makes the calls.

Cursor itself cannot be driven without an account. What this program does is in the source of @cursor/sdk 1.0.18: names
and fields of the events, matchers, `failClosed`, how the answers of several hooks become one, that it runs the hooks of
Claude Code as well, and that a hook gets its payload as a here-document. It knows nothing of takeback.

`cursor_puppet.py MODEL PROMPT [again]`, in the project.
"""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERSION = "3.1.0"
END = "CURSOR_HOOK_EOF"
HOME, PROJECT = Path(os.environ["HOME"]), os.getcwd()
OWN = HOME / ".cursor/puppet"  # what it keeps between two prompts
# As Cursor names the events of Claude Code. A hook that fails there denies nothing.
OF_CLAUDE = {
    "SessionStart": "sessionStart", "UserPromptSubmit": "beforeSubmitPrompt", "PreToolUse": "preToolUse",
    "PostToolUse": "postToolUse", "SubagentStop": "subagentStop", "Stop": "stop", "SessionEnd": "sessionEnd",
}  # fmt: skip
# Not the last command of the shell, so the shell stays: what follows keeps its state.
SHELL = ("/bin/bash", "-O", "extglob", "-c", 'builtin eval "$1"; code=$?; : state; exit $code', "bash")
DECISIONS = ("deny", "ask", "allow")  # the first that a hook or a rule says counts


class Conversation:
    def __init__(self, model: str, again: bool) -> None:
        self.model = model
        kept = json.loads(OWN.read_text()) if again else {"id": str(uuid.uuid4()), "messages": []}
        self.id, self.messages = kept["id"], kept["messages"]
        self.generation = str(uuid.uuid4())
        rules = OWN.with_name("rules.json")
        self.rules: dict[str, str] = json.loads(rules.read_text()) if rules.exists() else {}

    def play(self, prompt: str) -> None:
        self.hook("sessionStart")
        if self.hook("beforeSubmitPrompt", prompt=prompt, attachments=[]).get("continue") is False:
            sys.exit("a hook stopped the prompt")
        self.messages.append({"role": "user", "content": prompt})
        self.go_on(self.messages)
        self.hook("stop", status="completed", loop_count=0)
        OWN.write_text(json.dumps({"id": self.id, "messages": self.messages}))
        self.hook("sessionEnd", reason="completed", duration_ms=0)

    def go_on(self, messages: list[dict[str, Any]], who: str = "") -> None:
        """Until the model has nothing more to do; the calls of a turn run at the same time."""
        while calls := self.asked(messages):
            results: dict[str, str] = {}
            threads = [threading.Thread(target=self.call, args=(call, results, who)) for call in calls]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": results[call["id"]]} for call in calls
            ]

    def asked(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body = {"messages": messages, "tools": [{"type": "function", "function": {"name": "Shell"}}]}
        request = urllib.request.Request(f"{self.model}/chat/completions", json.dumps(body).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            message = json.load(answer)["choices"][0]["message"]
        messages.append(message)
        return message.get("tool_calls", [])

    def call(self, call: Mapping[str, Any], results: dict[str, str], who: str) -> None:
        name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
        about = {"tool_name": name, "tool_input": given, "tool_use_id": call["id"]}
        try:
            results[call["id"]] = self.made(name, given, about, who)
        except Exception as error:  # noqa: BLE001 the model reads it
            results[call["id"]] = repr(error)

    def made(self, name: str, given: Mapping[str, Any], about: Mapping[str, Any], who: str) -> str:
        said = self.hook("preToolUse", who, **about, cwd=PROJECT)
        decisions = said["decisions"] + ([self.rule(given["command"])] if name == "Shell" else [])
        decision = next((one for one in DECISIONS if one in decisions), "allow")
        if decision != "allow":
            return said.get("agent_message") or f"not allowed: {decision}"
        failed, result = self.done(name, given)
        if failed:
            more = {"error_message": result, "failure_type": "error", "is_interrupt": False}
            told = self.hook("postToolUseFailure", who, **about, **more, duration=1)
        else:
            told = self.hook("postToolUse", who, **about, tool_output=json.dumps(result), duration=1)
        return "\n".join(filter(None, (result, told.get("additional_context"))))

    def rule(self, command: str) -> str:
        return self.rules.get(command.split(maxsplit=1)[0], "")

    def done(self, name: str, given: Mapping[str, Any]) -> tuple[bool, str]:
        """Whether it failed, and what it says."""
        if name == "Shell":
            return shell(given)
        if name == "Task":
            # Its conversation has its id: by that its transcript is found.
            who = {"subagent_id": str(uuid.uuid4()), "subagent_type": "generalPurpose"}
            self.hook("subagentStart", **who, task=given["prompt"], parent_conversation_id=self.id)
            self.go_on([{"role": "user", "content": given["prompt"]}], who["subagent_id"])
            self.hook("subagentStop", **who, status="completed", parent_conversation_id=self.id)
            return False, "done"
        place = Path(given.get("path") or given["target_notebook"])
        if name == "Read":
            return False, place.read_text()
        if name == "Write":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(given["contents"])
        elif name == "StrReplace":
            if given["old_string"] not in place.read_text():
                return True, "The string is not in the file."
            place.write_text(place.read_text().replace(given["old_string"], given["new_string"]))
        elif name == "EditNotebook":
            book = json.loads(place.read_text())
            book["cells"][given["cell_idx"]]["source"] = given["new_string"]
            place.write_text(json.dumps(book))
        return False, "done"

    # Hooks.

    def hook(self, event: str, who: str = "", **more: Any) -> dict[str, Any]:
        """The answers of all hooks, as one."""
        base = {
            "conversation_id": who or self.id, "session_id": who or self.id, "generation_id": self.generation,
            "model": "model",
            "cursor_version": VERSION, "workspace_roots": [PROJECT], "user_email": None, "transcript_path": None,
        }  # fmt: skip
        whole: dict[str, Any] = {"decisions": []}
        for name, one in hooks_for(event):
            if not re.search(one.get("matcher") or "", more.get("tool_name", "")):
                continue
            said = answered(one, {**base, "hook_event_name": name, **more})
            whole["decisions"].append(said.pop("permission", ""))
            whole |= said
        return whole


def hooks_for(event: str) -> list[tuple[str, dict[str, Any]]]:
    """Of the user and of the project; then those of Claude Code, by the names that it has for events."""
    found: list[tuple[str, dict[str, Any]]] = []
    for place in (HOME / ".cursor/hooks.json", Path(PROJECT, ".cursor/hooks.json")):
        found += [(event, one) for one in read(place).get("hooks", {}).get(event, ())]
    for place in (HOME / ".claude/settings.json", Path(PROJECT, ".claude/settings.local.json")):
        for theirs, groups in read(place).get("hooks", {}).items():
            if OF_CLAUDE.get(theirs) == event:
                inner = [{**one, "failClosed": False} for group in groups for one in group["hooks"]]
                found += [(theirs, one) for one in inner]
    return found


def read(place: Path) -> dict[str, Any]:
    return json.loads(place.read_text()) if place.exists() else {}


def answered(one: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """A hook that fails, hangs or says nothing denies where it is `failClosed`; exit code 2 denies everywhere."""
    line = f"{one['command']} <<'{END}'\n{json.dumps(payload)}\n{END}"
    more = {"CURSOR_PROJECT_DIR": PROJECT, "CURSOR_VERSION": VERSION, "CLAUDE_PROJECT_DIR": PROJECT}
    try:
        done = subprocess.run(
            [*SHELL, line], env={**os.environ, **more}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=one.get("timeout", 60), check=False,
        )  # fmt: skip
        if done.returncode == 2:
            return {"permission": "deny", "agent_message": done.stderr.decode()}
        if done.returncode == 0:
            said = json.loads(done.stdout)
            if isinstance(said, dict):
                return said
    except (subprocess.TimeoutExpired, ValueError):
        pass
    return {"permission": "deny", "agent_message": "a hook failed"} if one.get("failClosed") else {}


def shell(given: Mapping[str, Any]) -> tuple[bool, str]:
    words = ["/bin/bash", "-c", given["command"]]
    where = given.get("cwd") or PROJECT
    if given.get("is_background"):
        quiet = subprocess.DEVNULL
        subprocess.Popen(words, cwd=where, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        return False, "It runs in the background."
    done = subprocess.run(
        words, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode != 0, f"{done.stdout}{done.stderr}exit code {done.returncode}"


def main(words: Sequence[str]) -> None:
    model, prompt, *again = words
    Conversation(model, bool(again)).play(prompt)


if __name__ == "__main__":
    main(sys.argv[1:])
