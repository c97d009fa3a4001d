"""`rewind`: choose a prompt or a call of a coding agent in a list, see what would go back, and take it back."""

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from takeback.api import opened_of
from takeback.errors import InDoubt, Misuse, Refused, StoreBusy, Stuck
from takeback.frontends.agents.client import RECORD
from takeback.frontends.cli.command import ALL_PROJECTS, Asked, Command, option, parser_of
from takeback.frontends.cli.commands.undo import COMMAND as UNDO
from takeback.frontends.cli.commands.undo import taken_back
from takeback.frontends.cli.output.full_screen import FullScreen
from takeback.frontends.cli.output.screen import Screen, warn
from takeback.frontends.cli.output.undo_report import tell_refused, tell_result
from takeback.frontends.cli.session.rewind_list import (
    ON_CONFLICT,
    Line,
    Preview,
    RewindEntry,
    entries_of,
    line_of,
    opened_entries,
    preview,
    titled,
)
from takeback.frontends.cli.session.store import agent_of, existing
from takeback.frontends.cli.session.undo_session import wanted_part
from takeback.model.progress import SILENT
from takeback.runs.prompts import AgentSession, last_session, session_named
from takeback.storage.daemon_socket import ask

if TYPE_CHECKING:
    from takeback.api import Takeback

_SOON = 0.1  # seconds without a key until it is looked at what would go back
_HELP = "Enter: take back  q: leave  up/down: choose  right/left: open, close  PgUp/PgDn: scroll"
_REVERSED = "\x1b[7m"
_PLAIN = "\x1b[0m"
_LEAVES = ("q", "escape", "gone")


class Picker:
    """What is on the screen, and what a key changes about it."""

    def __init__(self, tb: "Takeback", session: AgentSession, screen: Screen) -> None:
        self._tb = tb
        self._session = session
        self._screen = screen
        self._entries = entries_of(tb, session)
        self._open: set[str] = set()
        self._at = 0
        self._scrolled = 0
        self._previews: dict[str, Preview] = {}
        self._pane = 1
        self.question = ""
        self.shown = opened_entries(self._entries, self._open)

    @property
    def chosen(self) -> RewindEntry:
        return self.shown[self._at]

    @property
    def is_looked_at(self) -> bool:
        return self.chosen.key in self._previews

    def look(self, afresh: bool = False) -> Preview:
        """What would go back from the chosen line."""
        key = self.chosen.key
        if afresh or key not in self._previews:
            self._previews[key] = preview(self._tb, self.chosen.part)
        return self._previews[key]

    def press(self, key: str) -> None:
        page = max(1, self._pane - 1)
        moves = {"up": -1, "down": 1, "home": -len(self.shown), "end": len(self.shown)}
        if key in moves:
            self._at = min(max(self._at + moves[key], 0), len(self.shown) - 1)
            self._scrolled = 0
        elif key == "page down" and self.is_looked_at:
            self._scrolled = min(self._scrolled + page, max(0, len(self.look().lines) - self._pane))
        elif key == "page up":
            self._scrolled = max(self._scrolled - page, 0)
        elif key in ("right", " ") and not self.chosen.is_call and self.chosen.key not in self._open:
            self._list(self._open | {self.chosen.key})
        elif key in ("left", " "):
            self._close()

    def _close(self) -> None:
        """The prompt itself, or the one around a call."""
        while self.chosen.is_call:
            self._at -= 1
        self._list(self._open - {self.chosen.key})

    def _list(self, keys: set[str]) -> None:
        self._open, self._scrolled = keys, 0
        self.shown = opened_entries(self._entries, keys)

    def frame(self, rows: int, columns: int) -> list[str]:
        """What fits: first the chosen line, then the others, then what would go back."""
        titles = 1 if rows > 3 else 0
        body = max(rows - titles - 1, 0)
        listed = min(len(self.shown), max((body + 1) // 2, 1), body)
        rules = 1 if body - listed > 1 else 0
        self._pane = max(body - listed - rules, 0)
        first = max(0, min(self._at - listed // 2, len(self.shown) - listed))
        lines = [self._painted(Line(titled(self._session), "bold"), columns)] * titles
        for place, entry in enumerate(self.shown[first : first + listed], first):
            lines.append(self._row(entry, place == self._at, columns))
        lines += ["-" * columns] * rules
        found = self.look().lines if self.is_looked_at else (Line("Looking…", "dim"),)
        wrapped = [piece for line in found for piece in line.wrapped(columns)]
        lines += [self._painted(line, columns) for line in wrapped[self._scrolled :][: self._pane]]
        lines += [""] * (rows - 1 - len(lines))
        last = Line(f"{self.question} y/N", "yellow") if self.question else Line(_HELP, "dim")
        return [*lines[: rows - 1], self._painted(last, columns)]

    def _row(self, entry: RewindEntry, is_chosen: bool, columns: int) -> str:
        line = line_of(entry, self._open)
        if not is_chosen:
            return self._painted(line._replace(text=f"  {line.text}"), columns)
        text = _cut(f"> {line.text}", columns)
        return f"{_REVERSED}{text.ljust(columns)}{_PLAIN}" if self._screen.colour else text

    def _painted(self, line: Line, columns: int) -> str:
        return self._screen.paint(_cut(line.text, columns), line.style)


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


def _pick(picker: Picker) -> "tuple[RewindEntry, Preview] | str":
    """The point to go back to, with what it said would go back; or the key that left the list."""
    with FullScreen(sys.stdin.fileno(), sys.stdout.fileno()) as full:
        while True:
            full.draw(picker.frame(*full.size()))
            key = full.key(None if picker.is_looked_at else _SOON)
            if not key:
                picker.look()
            elif key in ("interrupt", "gone"):
                return key
            elif picker.question:
                if key in ("y", "Y"):
                    return picker.chosen, picker.look()
                picker.question = picker.question if key in ("resize", "redraw") else ""
            elif key in _LEAVES:
                return key
            elif key == "enter":
                picker.question = picker.look(afresh=True).question
            else:
                picker.press(key)


def _rewind(asked: Asked) -> int:
    _refuse_without_terminal(asked)
    with existing(asked, lambda tb: _session(asked, tb)) as tb:
        opened_of(tb).progress, tb.tell = SILENT, _unheard
        ask(tb.path, RECORD)  # what its processes did since its last call counts too
        picked = _pick(Picker(tb, _session(asked, tb), asked.screen))
    if isinstance(picked, str):
        warn("Nothing was changed.")
        return 130 if picked == "interrupt" else 0
    return _taken_back(asked, *picked)


def _unheard(words: str) -> None:
    """Nothing may be drawn across the list."""


def _session(asked: Asked, tb: "Takeback") -> AgentSession:
    journal, scope = tb.store.journal, opened_of(tb).here()
    named = asked.options.session
    return session_named(journal, named, scope) if named else last_session(journal, scope)


def _taken_back(asked: Asked, entry: RewindEntry, seen: Preview) -> int:
    """As `undo` does it, with its words."""
    words = ["--merge", "--skip-conflicts", *(["--all"] if asked.options.all else [])]
    options = parser_of("undo", UNDO).understood(words, mixed=False)
    options.paths, options.store = None, asked.options.store
    asked = asked._replace(options=options, looking=False)
    wishes: dict[str, Any] = {"dry_run": False, "on_conflict": ON_CONFLICT, "agent": agent_of(asked)}
    with existing(asked) as tb:
        ask(tb.path, RECORD)
        try:
            plan = tb.undo(entry.part, dry_run=True, on_conflict=ON_CONFLICT)
            if not {one.id for one in plan.effects} <= set(seen.effects):
                raise StoreBusy(
                    "The agent did something else in the meantime.",
                    hint="Nothing was changed. Run `takeback rewind` again.",
                )
            wanted = wanted_part(asked, tb, entry.part)
            return tell_result(asked, tb, wanted, *taken_back(asked, tb, wanted, wishes))
        except (InDoubt, Refused, Stuck, StoreBusy) as error:
            return tell_refused(asked, tb, error)


def _refuse_without_terminal(asked: Asked) -> None:
    streams = (sys.stdin, sys.stdout)
    there = all(one is not None and one.isatty() for one in streams)  # pyright: ignore[reportUnnecessaryComparison]
    if there and not asked.screen.json and os.environ.get("TERM", "") not in ("", "dumb"):
        return
    raise Misuse(
        "`takeback rewind` needs a terminal that can move the cursor.",
        hint="`takeback log` lists the prompts with their numbers. `takeback undo --prompt N --dry-run` shows what "
        "would go back, and `takeback undo --prompt N --merge --skip-conflicts` takes it back.",
    )


def _looks_first(options: Namespace) -> bool:
    """Nothing is settled, nor changed, before something was chosen."""
    return True


_ARGUMENTS = (
    option(
        "--session",
        "S",
        "of this session: its id, or the beginning of it; else the one that changed something last",
    ),
    ALL_PROJECTS,
)
COMMAND = Command(_rewind, _ARGUMENTS, only_looks=_looks_first)
