"""How an agent is started on its own against a model on loopback, and how it calls its tools. For `hook test`."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

_CLOSED = "http://127.0.0.1:9"  # the network, for an agent that looks for it: refused at once
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")


class ModelCall(NamedTuple):
    """A tool call in the words of one agent."""

    name: str
    input: Any  # a mapping, or the text of a tool that takes text (Codex)


class Start(NamedTuple):
    """The command line and the environment of one prompt without a person."""

    words: Sequence[str]
    environment: Mapping[str, str]


class Launcher(Protocol):
    """An agent that can be run without a person."""

    TRIED: str  # the version that the facts are from

    def start(self, program: str, home: str, port: int, prompt: str) -> Start: ...

    def shell(self, command: str) -> ModelCall: ...

    def edit(self, path: str, old: str, new: str) -> Sequence[ModelCall]:
        """Some agents edit only a file that they have read."""
        ...


def launcher(name: str) -> Launcher | None:
    """None of an agent that cannot be run here without a person."""
    known: dict[str, type[Launcher]] = {
        "claude-code": _ClaudeCode, "codex": _Codex, "gemini": _Gemini, "opencode": _Opencode
    }  # fmt: skip
    return known[name]() if name in known else None


def surroundings(home: str, store: str, env: Mapping[str, str]) -> dict[str, str]:
    """What every agent gets: nothing of the user's but the PATH, and no way into the network."""
    closed = {f"{name}_PROXY": _CLOSED for name in ("HTTP", "HTTPS", "ALL")}
    closed |= {name.lower(): _CLOSED for name in closed}
    return {
        **{name: env[name] for name in _KEPT if name in env}, **closed, "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost", "HOME": home, "TMPDIR": os.path.join(home, "tmp"), "TERM": "dumb",
        "SHELL": "/bin/sh", "TAKEBACK_STORE": store,
        "npm_config_fetch_retries": "0", "npm_config_offline": "true",
    }  # fmt: skip


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _put(path: str, content: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


class _ClaudeCode:
    TRIED: str = "2.1.325"

    def start(self, program: str, home: str, port: int, prompt: str) -> Start:
        words = [program, "-p", prompt, "--output-format", "json", "--allowedTools", "Bash,Read,Edit,Write"]
        more = {
            "ANTHROPIC_BASE_URL": _url(port), "ANTHROPIC_API_KEY": "sk-none",
            "CLAUDE_CODE_TMPDIR": os.path.join(home, "tmp"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
        }  # fmt: skip
        return Start(words, more)

    def shell(self, command: str) -> ModelCall:
        return ModelCall("Bash", {"command": command, "description": "a test of takeback"})

    def edit(self, path: str, old: str, new: str) -> Sequence[ModelCall]:
        change = {"file_path": path, "old_string": old, "new_string": new}
        return ModelCall("Read", {"file_path": path}), ModelCall("Edit", change)


class _Codex:
    TRIED: str = "0.166.0"

    def start(self, program: str, home: str, port: int, prompt: str) -> Start:
        provider = (
            f'name="takeback",base_url="{_url(port)}/v1",wire_api="responses",env_key="TAKEBACK_TEST_KEY"'
        )
        settings = {
            "model": '"gpt-5.5"', "model_provider": '"takeback"', "check_for_update_on_startup": "false",
            "analytics.enabled": "false", "model_providers.takeback": f"{{{provider},supports_websockets=false}}",
        }  # fmt: skip
        words = [program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
        words += ["--dangerously-bypass-approvals-and-sandbox"]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Start([*words, prompt], {"TAKEBACK_TEST_KEY": "none"})

    def shell(self, command: str) -> ModelCall:
        return ModelCall("exec_command", {"cmd": command, "yield_time_ms": 30_000})

    def edit(self, path: str, old: str, new: str) -> Sequence[ModelCall]:
        body = f"*** Update File: {path}\n@@\n-{old}\n+{new}\n"
        return (ModelCall("apply_patch", f"*** Begin Patch\n{body}*** End Patch\n"),)


class _Gemini:
    TRIED: str = "0.61.0"

    def start(self, program: str, home: str, port: int, prompt: str) -> Start:
        more = {
            "GOOGLE_GEMINI_BASE_URL": _url(port), "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_TELEMETRY_ENABLED": "false",
        }  # fmt: skip
        # With a model elsewhere it asks which kind of key it has; no variable can say it.
        place = os.path.join(home, ".gemini", "settings.json")
        found: dict[str, Any] = {}
        if os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                found = json.load(file)
        found.setdefault("security", {}).setdefault("auth", {})["selectedType"] = "gemini-api-key"
        _put(place, found)
        return Start([program, "-m", "gemini-2.5-flash", "-y", "-p", prompt, "-o", "json"], more)

    def shell(self, command: str) -> ModelCall:
        return ModelCall("run_shell_command", {"command": command, "description": "a test of takeback"})

    def edit(self, path: str, old: str, new: str) -> Sequence[ModelCall]:
        change = {
            "file_path": path,
            "old_string": old,
            "new_string": new,
            "instruction": "a test of takeback",
        }
        return ModelCall("read_file", {"file_path": path}), ModelCall("replace", change)


class _Opencode:
    TRIED: str = "1.18.18"

    def start(self, program: str, home: str, port: int, prompt: str) -> Start:
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "takeback",
            "models": {"model": {"name": "model", "tool_call": True}},
            "options": {"baseURL": f"{_url(port)}/v1", "apiKey": "none"},
        }  # fmt: skip
        place = os.path.join(home, "tmp", "opencode.json")
        own = {"provider": {"takeback": provider}, "model": "takeback/model", "permission": "allow"}
        _put(place, {**own, "autoupdate": False, "share": "disabled"})
        more = {
            "OPENCODE_CONFIG": place, "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }  # fmt: skip
        return Start([program, "run", "--format", "json", prompt], more)

    def shell(self, command: str) -> ModelCall:
        return ModelCall("bash", {"command": command, "description": "a test of takeback"})

    def edit(self, path: str, old: str, new: str) -> Sequence[ModelCall]:
        change = {"filePath": path, "oldString": old, "newString": new}
        return ModelCall("read", {"filePath": path}), ModelCall("edit", change)
