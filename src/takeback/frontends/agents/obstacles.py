"""What keeps a host from running hooks that are installed, found by reading its settings. Nothing is started."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from takeback.errors import Refused
from takeback.frontends.agents.hosts import host
from takeback.frontends.agents.settings import bytes_at, document_of, parsed_command

_HONOURS = (2, 1, 325)  # Claude Code: onFailure was seen to block here, and to be ignored in 2.1.197
_MANAGED = "/etc/claude-code"
_CODEX_SYSTEM = "/etc/codex"
_GEMINI_SYSTEM = "/etc/gemini-cli/settings.json"


def obstacles(name: str, env: Mapping[str, str], project: str) -> tuple[str, ...]:
    """A sentence for each."""
    looks: dict[str, Callable[[Mapping[str, str], str], Iterator[str]]] = {
        "claude-code": _claude_code,
        "codex": _codex,
        "gemini": _gemini,
    }
    return tuple(looks[name](env, project)) if name in looks else ()


def version_of(name: str, env: Mapping[str, str]) -> str:
    """Of the program on PATH; empty if that cannot be said without starting it."""
    from shutil import which

    program = which(host(name).PROGRAM, path=env.get("PATH"))
    return version_at(program) if program else ""


def version_at(program: str) -> str:
    """By where it lies: a directory with the version as its name, or a package around it."""
    place = os.path.realpath(program)
    if found := re.fullmatch(r"\d+\.\d+\.\d+[\w.-]*", os.path.basename(place)):
        return found.group()
    for _ in range(4):
        place = os.path.dirname(place)
        about = _document(os.path.join(place, "package.json"))
        if isinstance(version := about.get("version"), str):
            return version
    return ""


def _claude_code(env: Mapping[str, str], project: str) -> Iterator[str]:
    user = host("claude-code").user_directory(env)
    places = [
        os.path.join(user, "settings.json"),
        os.path.join(project, ".claude", "settings.json"),
        os.path.join(project, ".claude", "settings.local.json"),
    ]
    managed = [os.path.join(_MANAGED, "managed-settings.json"), *_listed(f"{_MANAGED}/managed-settings.d")]
    for place in dict.fromkeys((*places, *managed)):
        try:
            settings = _strict("claude-code", place)
        except Refused as error:
            yield str(error)
            continue
        if settings.get("disableAllHooks") is True:
            yield f"`disableAllHooks` is set in {place}: Claude Code runs no hooks."
        if place in managed and settings.get("allowManagedHooksOnly") is True:
            yield f"`allowManagedHooksOnly` is set in {place}: Claude Code runs only the hooks of its administrator."
    version = version_of("claude-code", env)
    if version and numbers_of(version) < _HONOURS:
        yield (
            f"Claude Code {version} may ignore `onFailure`: if a hook times out, the call runs. "
            "Versions from 2.1.325 on deny it."
        )


def _codex(env: Mapping[str, str], project: str) -> Iterator[str]:
    user = host("codex").user_directory(env)
    config = _toml(os.path.join(user, "config.toml"))
    if config is None:
        yield f"{user}/config.toml is not valid TOML: Codex does not start with it."
        return
    for directory in (user, os.path.join(project, ".codex"), _CODEX_SYSTEM):
        place = os.path.join(directory, "config.toml")
        features = _object((_toml(place) or {}).get("features"))
        if features.get("hooks") is False or features.get("codex_hooks") is False:
            yield f"`features.hooks` is false in {place}: Codex runs no hooks."
    managed = _toml(os.path.join(_CODEX_SYSTEM, "requirements.toml")) or {}
    if managed.get("allow_managed_hooks_only") is True:
        yield "`allow_managed_hooks_only` is set: Codex runs only the hooks of its administrator."
    states = _object(_object(config.get("hooks")).get("state"))
    for directory in (user, os.path.join(project, ".codex")):
        for name in ("hooks.json", "config.toml"):
            yield from _untrusted(os.path.join(directory, name), states)


def _untrusted(place: str, states: dict[str, Any]) -> Iterator[str]:
    """Codex notes the trust of each hook by its file, its event and its position."""
    try:
        hooks = _object(_strict("codex", place).get("hooks"))
    except Refused as error:
        yield str(error)
        return
    missing: list[str] = []
    for event, groups in hooks.items():
        label = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(cast("list[Any]", groups) if isinstance(groups, list) else []):
            handlers = _object(group).get("hooks")
            for n, one in enumerate(cast("list[Any]", handlers) if isinstance(handlers, list) else []):
                if not parsed_command(event, _object(one).get("command")):
                    continue
                state = _object(states.get(f"{place}:{label}:{at}:{n}"))
                if not state.get("trusted_hash") or state.get("enabled") is False:
                    missing.append(event)
    if missing:
        yield (
            f"Codex has no trust noted for {len(missing)} of takeback's hooks in {place} ({', '.join(missing)}): "
            "it skips them without a word."
        )


def _gemini(env: Mapping[str, str], project: str) -> Iterator[str]:
    user = host("gemini").user_directory(env)
    trusts = True
    for place in (
        _GEMINI_SYSTEM,
        os.path.join(user, "settings.json"),
        os.path.join(project, ".gemini", "settings.json"),
    ):
        try:
            settings = _strict("gemini", place)
        except Refused as error:
            yield str(error)
            continue
        # `hooks.enabled` and `hooks.disabled` in versions before 0.27.
        switches = [_object(settings.get("hooksConfig")), _object(settings.get("hooks"))]
        if any(one.get("enabled") is False for one in switches):
            yield f"`hooksConfig.enabled` is false in {place}: Gemini CLI runs no hooks."
        disabled = [one.get("disabled") for one in switches]
        if any("takeback" in cast("list[Any]", names) for names in disabled if isinstance(names, list)):
            yield f"`hooksConfig.disabled` in {place} names takeback: Gemini CLI skips its hooks."
        trust = _object(_object(settings.get("security")).get("folderTrust")).get("enabled")
        trusts = trust if isinstance(trust, bool) else trusts
    folders = env.get("GEMINI_CLI_TRUSTED_FOLDERS_PATH") or os.path.join(user, "trustedFolders.json")
    told = env.get("GEMINI_CLI_TRUST_WORKSPACE", "")
    if told == "false" or (trusts and told != "true" and not _is_trusted(_document(folders), project)):
        yield f"Gemini CLI does not trust {project}: it runs no hooks there."


def _is_trusted(folders: dict[str, Any], project: str) -> bool:
    """By the longest path that is named."""
    told = False
    for folder, level in sorted(folders.items(), key=lambda one: len(one[0])):
        top = os.path.dirname(folder) if level == "TRUST_PARENT" else folder
        if os.path.isabs(top) and os.path.commonpath((top, project)) == os.path.normpath(top):
            told = level in ("TRUST_FOLDER", "TRUST_PARENT")
    return told


# Reading.


def _strict(name: str, place: str) -> dict[str, Any]:
    """As the host reads it. Empty if there is no such file, or it cannot be read."""
    try:
        return document_of(host(name), place, bytes_at(place))
    except OSError:
        return {}


def _document(place: str) -> dict[str, Any]:
    try:
        return _object(json.loads(bytes_at(place)))
    except (OSError, ValueError, RecursionError):
        return {}


def _toml(place: str) -> dict[str, Any] | None:
    """None if it is broken."""
    import tomllib

    try:
        return tomllib.loads(bytes_at(place).decode())
    except OSError:
        return {}
    except (ValueError, RecursionError):
        return None


def _listed(directory: str) -> list[str]:
    try:
        return sorted(
            os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".json")
        )
    except OSError:
        return []


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def numbers_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
