"""The documents as the tests see them: pages, their code blocks, their tables, their links, their generated parts."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"(<!-- generated: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of its first line of text, counted from 1


def pages() -> list[Path]:
    """Every document of the project that users read."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in _FENCE.finditer(text)
    ]


def scripts(page: Path) -> dict[int, Block]:
    """Blocks of shell with what they print in the block right after them; by the line of the script, its output."""
    text, found = page.read_text(), dict[int, Block]()
    fences = list(_FENCE.finditer(text))
    for script, output in pairwise(fences):
        if script[1] == "sh" and output[1] == "text" and not text[script.end() : output.start()].strip():
            line = text.count("\n", 0, script.start()) + 2
            found[line] = Block(output[1], output[2], text.count("\n", 0, output.start()) + 2)
    return found


def prose(page: Path) -> str:
    """Without code blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What a `#…` can point to: headings, the way the usual renderers name them."""
    headings = re.findall(r"^#{1,6} +(.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading; code marks removed, the header row left out."""
    text = page.read_text()
    below = text[re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE).end() :]  # type: ignore[union-attr]
    rows: list[list[str]] = []
    for line in below.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def rows(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A table."""
    names = list(head)
    lines = [names, ["---"] * len(names), *body]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def generated(page: Path) -> Iterator[tuple[str, str]]:
    """Name and present text of each part that is printed from the code."""
    for found in _GENERATED.finditer(page.read_text()):
        yield found[2], found[3]


def with_generated(text: str, fresh: dict[str, str]) -> str:
    return _GENERATED.sub(lambda found: found[1] + fresh[found[2]] + found[4], text)
