"""The documents as the tests see them: pages, their code blocks, their tables, their links, their generated parts."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->\s*\Z")
_GENERATED = re.compile(r"(<!-- generated: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of its first line of text, counted from 1
    not_run: str = (
        ""  # why no test runs it, as the comment above it says: `<!-- not run: it needs a server -->`
    )


def pages() -> list[Path]:
    """Every document of the project that users read."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return _blocks(page.read_text())


def _blocks(text: str) -> list[Block]:
    found: list[Block] = []
    for fence in _FENCE.finditer(text):
        why = _NOT_RUN.search(text, 0, fence.start())
        line = text.count("\n", 0, fence.start()) + 2
        found.append(Block(fence[1], fence[2], line, why[1] if why else ""))
    return found


def outputs(page: Path) -> dict[int, Block]:
    """By the line of a shell block: the block of text right after it, which is what it prints."""
    text = page.read_text()
    found: dict[int, Block] = {}
    for (script, block), (output, printed) in pairwise(
        zip(_FENCE.finditer(text), _blocks(text), strict=True)
    ):
        between = text[script.end() : output.start()].strip()
        if block.language == "sh" and printed.language == "text" and not between:
            found[block.line] = printed
    return found


def prose(page: Path) -> str:
    """Without code blocks."""
    return _FENCE.sub("", page.read_text())


def plain_prose(page: Path) -> str:
    """Line by line, without code and headings. Parts printed from the code count only in docs/reference."""
    text = page.read_text()
    printed = () if page.is_relative_to(DOCS / "reference") else (_GENERATED,)
    for hidden in (*printed, _FENCE, re.compile(r"`[^`\n]*`"), re.compile(r"^#+ .*$", re.MULTILINE)):
        text = hidden.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


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
