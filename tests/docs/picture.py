"""The pictures of a terminal: commands that are really run, drawn with what they really print.

`make docs-generate` draws it anew when a sentence in it has changed; ids and times alone do not count.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tests.docs.pages import DOCS

PICTURE = DOCS / "terminal.svg"
TITLE = "An agent deletes a directory; takeback undo brings it back"
COMMANDS = (
    "ls",
    "takeback run --agent claude -- sh -c 'rm -r src; echo 80 > port.txt'",
    "ls",
    "takeback log",
    "takeback undo",
    "ls",
)
_SCENE = "mkdir src; echo 'print(1)' > src/app.py; echo 'print(2)' > src/db.py; echo 8000 > port.txt"
# With the real Claude Code and a model that says what we want: only where the coding agents are installed.
AGENT_PICTURE = DOCS / "coding-agents.svg"
AGENT_TITLE = "Claude Code deletes a directory by shell; takeback undo --prompt brings it back"
AGENT_COMMANDS = (
    "takeback hook install claude-code",
    "claude -p 'Clean up'",
    "ls",
    "takeback log -n 1",
    "takeback undo --prompt",
    "ls",
)
_AGENT_DOES = "rm -rf src; echo 80 > port.txt"
_COLUMNS, _WIDTH, _HEIGHT, _MARGIN = 90, 8.4, 20, 20
_COLOURS = {
    "1": "#ffffff",
    "2": "#8b949e",
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "36": "#79c0ff",
}
_VARYING = re.compile(
    r"((?:\): |@ +|redo |json: |claude-code ))[0-9a-z]{8}\b|in [\d.]+ m?s|\d\d:\d\d:\d\d|(?:just now|\d+ s ago) *"
)
_ANSI = re.compile(r"\x1b\[(\d*)m")


def session(commands: Sequence[str] = COMMANDS, model: int = 0) -> list[str]:
    """What a terminal shows, with its colours. `model`: the port of the one that an agent asks."""
    from tests.docs.examples import Reader

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        reader = Reader(Path(place) / "you")
        reader.printed(_SCENE)
        if model:
            _give_claude(reader.home, model)
        lines: list[str] = []
        for command in commands:
            coloured = command.replace("takeback ", "takeback --color always ", 1)
            lines += [
                f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m",
                *reader.printed(f"COLUMNS={_COLUMNS} {coloured}"),
            ]
        return lines


def _give_claude(home: Path, port: int) -> None:
    """The real one, as `claude`."""
    from tests.agents.drivers import DRIVERS

    start = DRIVERS["claude-code"].start(home, port, "", again=False, rules=None)
    (home / "tmp").mkdir()
    told = {"IS_SANDBOX": "1"} | {name: text for name, text in start.environment.items() if name != "PATH"}
    words = ["exec", "env", *(f"{name}={text}" for name, text in told.items()), start.words[0]]
    program = home / ".programs/claude"
    program.write_text(f'#!/bin/sh\n{shlex.join(words)} --permission-mode bypassPermissions "$@"\n')
    program.chmod(0o755)


def agent_session(commands: Sequence[str] = AGENT_COMMANDS) -> list[str]:
    from tests.agents.acts import daemons
    from tests.agents.model import Model

    turn = [("Bash", {"command": _AGENT_DOES, "description": "clean up"})]
    with Model({"Clean up": [turn]}) as model:
        try:
            return session(commands, model.port)
        finally:
            for process in daemons(f"{os.environ['HOME']}/.local/state/takeback"):
                os.kill(process, 9)


def drawn(lines: list[str], title: str = TITLE) -> str:
    width, height = round(_COLUMNS * _WIDTH + 2 * _MARGIN), len(lines) * _HEIGHT + 2 * _MARGIN
    rows = (
        f'<text x="{_MARGIN}" y="{_MARGIN + number * _HEIGHT + 14}">{_spans(line)}</text>\n'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<title>{title}</title>\n"
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
    import tests.agents.acts  # noqa: F401 - now: a session leaves this process in a directory that is gone
    from tests.agents.family import AGENTS
    from tests.agents.talk import knows_authors

    _keep(PICTURE, drawn(session()))
    if (AGENTS / ".ready").exists() and knows_authors(DOCS):
        _keep(AGENT_PICTURE, drawn(agent_session(), AGENT_TITLE))


def _keep(picture: Path, fresh: str) -> None:
    if not picture.exists() or said(picture.read_text()) != said(fresh):
        picture.write_text(fresh)
