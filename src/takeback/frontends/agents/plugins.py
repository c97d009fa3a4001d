"""The plugin of takeback in Claude Code, as far as its settings say that it is there. Nothing is started."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from takeback.frontends.agents.hosts import host

CLAUDE = "claude-code"
_NAME = "takeback"
TWICE = (
    "Its hooks are in the settings and in the plugin: each event is asked twice and recorded once. "
    "`takeback hook uninstall claude-code` or `claude plugin disable takeback@takeback` removes one of them."
)
PLUGIN_STAYS = (
    "The plugin of takeback is still enabled: `claude plugin disable takeback@takeback` switches it off."
)


class EnabledPlugin(NamedTuple):
    """A plugin that brings hooks of takeback."""

    name: str  # with the marketplace that it is from
    file: str  # the settings that enable it


def plugins_in(env: Mapping[str, str], project: str) -> tuple[EnabledPlugin, ...]:
    """Those that are enabled for this project; settings that come later count more."""
    user = host(CLAUDE).user_directory(env)
    local = os.path.join(project, ".claude")
    found: dict[str, str] = {}
    for place in (
        os.path.join(user, "settings.json"),
        os.path.join(local, "settings.json"),
        os.path.join(local, "settings.local.json"),
    ):
        for name, value in _enabled(place).items():
            if name.partition("@")[0] == _NAME:
                found.pop(name, None)
                if value is True:
                    found[name] = place
    return tuple(EnabledPlugin(name, file) for name, file in found.items())


def _enabled(place: str) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        with open(place, encoding="utf-8-sig") as file:
            whole: Any = json.load(file)
        told: Any = cast("dict[str, Any]", whole).get("enabledPlugins") if isinstance(whole, dict) else None
        return cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    return {}
