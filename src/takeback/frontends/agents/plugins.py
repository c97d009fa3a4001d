"""The plugin of takeback in Claude Code, as far as its settings say that it is there. Nothing is started."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from takeback.frontends.agents.hosts import host
from takeback.frontends.agents.settings import bytes_at

CLAUDE = "claude-code"
_NAME = "takeback"
TWICE = (
    "Its hooks are in the settings and in the plugin: each event is asked twice and recorded once. "
    "`takeback hook uninstall claude-code` or `claude plugin disable takeback@takeback` removes one of them."
)
PLUGIN_STAYS = (
    "The plugin of takeback is still enabled: `claude plugin disable takeback@takeback` switches it off."
)


_DIGESTED = (".claude-plugin", "hooks")  # what decides whether calls are covered


class EnabledPlugin(NamedTuple):
    """A plugin that brings hooks of takeback."""

    name: str  # with the marketplace that it is from
    file: str  # the settings that enable it


def plugins_in(env: Mapping[str, str], project: str) -> tuple[EnabledPlugin, ...]:
    """Those that are enabled for this project; settings that come later count more."""
    user = host(CLAUDE).user_directory(env)
    found: dict[str, str] = {}
    places = [os.path.join(user, "settings.json")]
    if project:
        places += (
            os.path.join(project, ".claude", name) for name in ("settings.json", "settings.local.json")
        )
    for place in places:
        for name, value in _enabled(place).items():
            if name.partition("@")[0] == _NAME:
                found.pop(name, None)
                if value is True:
                    found[name] = place
    return tuple(EnabledPlugin(name, file) for name, file in found.items())


def place_of(env: Mapping[str, str]) -> str:
    """Where the plugin lies whose hook this is; empty if it is no plugin's."""
    root = env.get("CLAUDE_PLUGIN_ROOT", "")
    return root if os.path.isabs(root) and os.path.isfile(os.path.join(root, "hooks", "takeback.sh")) else ""


def files_of(root: str) -> list[str]:
    """Of its hooks."""
    found: list[str] = []
    for name in _DIGESTED:
        with suppress(OSError):
            found += (os.path.join(root, name, one) for one in sorted(os.listdir(os.path.join(root, name))))
    return found


def digest_at(root: str) -> str:
    """Of its hooks; empty if there are none."""
    import hashlib

    said = hashlib.sha256()
    files = files_of(root)
    for path in files:
        said.update(os.fsencode(os.path.relpath(path, root)) + b"\0")
        with suppress(OSError):
            said.update(hashlib.sha256(bytes_at(path)).digest())
    return said.hexdigest() if files else ""


def is_enabled(name: str, place: str) -> bool:
    return _enabled(place).get(name) is True


def _enabled(place: str) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        whole: Any = json.loads(bytes_at(place).decode("utf-8-sig"))
        told: Any = cast("dict[str, Any]", whole).get("enabledPlugins") if isinstance(whole, dict) else None
        return cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    return {}
