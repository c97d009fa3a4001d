"""The site of `make docs`: its navigation is the index in docs/README.md, then the decisions.

`make docs-generate` writes it into zensical.toml.
"""

import re
from pathlib import Path

from tests.docs.pages import DOCS, ROOT

CONFIGURATION = ROOT / "zensical.toml"
_NAVIGATION = re.compile(r"^nav = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)


def index() -> dict[str, list[tuple[str, str]]]:
    """By heading of docs/README.md: the title and the page of each line."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (DOCS / "README.md").read_text().splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        elif entry := re.match(r"- \[(.+?)\]\((\S+\.md)\)", line):
            found[list(found)[-1]].append((entry[1], entry[2]))
    return found


def navigation() -> str:
    lines = ["nav = [", _entry(1, "Start here", "README.md")]
    sections = index()
    sections["Decisions"] += [
        (_title(page), f"decisions/{page.name}") for page in sorted((DOCS / "decisions").glob("[0-9]*.md"))
    ]
    for heading, entries in sections.items():
        lines += [f'  {{ "{heading}" = [', *(_entry(2, *entry) for entry in entries), "  ] },"]
    return "\n".join([*lines, "]\n"])


def _entry(depth: int, title: str, page: str) -> str:
    return f'{"  " * depth}{{ "{title}" = "{page}" }},'


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ").replace('"', "'")


def write() -> None:
    old = CONFIGURATION.read_text()
    new = with_navigation(old)
    if new != old:
        CONFIGURATION.write_text(new)


def with_navigation(text: str) -> str:
    return _NAVIGATION.sub(lambda _: navigation(), text)
