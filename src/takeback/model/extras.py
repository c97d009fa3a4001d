"""How the optional parts of takeback are installed here: as takeback itself was."""

import json
import os
from typing import Any


def install_hint(extra: str) -> str:
    """A hint that works: a checkout is named by its directory, because an index may not know takeback at all."""
    return f"Install it: pip install '{_named(extra)}'."


def _named(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        told = distribution("takeback").read_text("direct_url.json")
    except PackageNotFoundError:
        told = None
    origin = _understood(told)
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        kind, commit = origin["vcs_info"].get("vcs", "git"), origin["vcs_info"].get("commit_id", "")
        return f"takeback[{extra}] @ {kind}+{url}" + (f"@{commit}" if commit else "")
    if "dir_info" in origin and url.startswith("file://"):
        return f"{_path(url)}[{extra}]"
    if url:
        return f"takeback[{extra}] @ {url}"
    if checkout := _checkout():
        return f"{checkout}[{extra}]"
    return f"takeback[{extra}]"


def _understood(told: str | None) -> dict[str, Any]:
    try:
        return dict(json.loads(told or "{}"))
    except (ValueError, TypeError):
        return {}


def _path(url: str) -> str:
    from urllib.parse import unquote

    return unquote(url.removeprefix("file://"))


def _checkout() -> str:
    """Where this very file comes from, if it was never installed."""
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    return root if os.path.isfile(os.path.join(root, "pyproject.toml")) else ""
