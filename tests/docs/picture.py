"""The picture of a terminal in the README: commands that are really run, drawn with what they really print.

`make docs-generate` draws it anew when a sentence in it has changed; ids and times alone do not count.
"""

import re
import tempfile
from html import escape
from pathlib import Path

from tests.docs.pages import DOCS

PICTURE = DOCS / "terminal.svg"
COMMANDS = (
    "ls",
    "takeback run --agent claude -- sh -c 'rm -r src; echo 80 > port.txt'",
    "ls",
    "takeback log",
    "takeback undo",
    "ls",
)
_SCENE = "mkdir src; echo 'print(1)' > src/app.py; echo 'print(2)' > src/db.py; echo 8000 > port.txt"
_COLUMNS, _WIDTH, _HEIGHT, _MARGIN = 90, 8.4, 20, 20
_COLOURS = {
    "1": "#ffffff",
    "2": "#8b949e",
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "36": "#79c0ff",
}
_VARYING = re.compile(r"((?:\): |@  |redo ))[0-9a-z]{8}\b|in [\d.]+ m?s|\d\d:\d\d:\d\d")
_ANSI = re.compile(r"\x1b\[(\d*)m")


def session() -> list[str]:
    """What a terminal shows, with its colours."""
    from tests.docs.examples import Reader

    with tempfile.TemporaryDirectory() as place:
        reader = Reader(Path(place) / "you")
        reader.printed(_SCENE)
        lines: list[str] = []
        for command in COMMANDS:
            coloured = command.replace("takeback ", "takeback --color always ", 1)
            lines += [
                f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m",
                *reader.printed(f"COLUMNS={_COLUMNS} {coloured}"),
            ]
        return lines


def drawn(lines: list[str]) -> str:
    width, height = round(_COLUMNS * _WIDTH + 2 * _MARGIN), len(lines) * _HEIGHT + 2 * _MARGIN
    rows = (
        f'<text x="{_MARGIN}" y="{_MARGIN + number * _HEIGHT + 14}">{_spans(line)}</text>\n'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        "<title>An agent deletes a directory; takeback undo brings it back</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#e6edf3" '
        f'xml:space="preserve">\n{"".join(rows)}</g>\n</svg>\n'
    )


def _spans(line: str) -> str:
    text, colour = "", ""
    for number, part in enumerate(_ANSI.split(line)):
        if number % 2:
            colour = _COLOURS.get(part, "")
        elif part:
            text += f'<tspan fill="{colour}">{escape(part)}</tspan>' if colour else escape(part)
    return text


def said(picture: str) -> list[str]:
    """Its text without ids and times, to compare two pictures."""
    lines = re.findall(r"<text [^>]*>(.*)</text>", picture)
    plain = (re.sub(r"<[^>]*>", "", line) for line in lines)
    return [_VARYING.sub(r"\1…", line) for line in plain]


def draw() -> None:
    fresh = drawn(session())
    if not PICTURE.exists() or said(PICTURE.read_text()) != said(fresh):
        PICTURE.write_text(fresh)
