"""Run the examples of a page the way a reader would: one after the other, in one directory, with one store."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.pages import Block

IDS = re.compile(r"\b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-hjkmnp-tv-z]{8}\b")
_HOME = "/home/you"


class Reader:
    """A reader with an empty home directory, standing in ~/project."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True)
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.ids: dict[str, str] = {}  # as the page writes it: as it really is
        programs = home / ".programs"
        programs.mkdir()
        shim = programs / "takeback"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m takeback "$@"\n')
        shim.chmod(0o755)
        (programs / "python").symlink_to(sys.executable)
        # The fixture `private_surroundings` puts all of this back. A reader has the default store, and Python's usual
        # compiled files beside the sources.
        for name in ("TAKEBACK_STORE", "XDG_STATE_HOME", "PYTHONDONTWRITEBYTECODE"):
            os.environ.pop(name, None)
        os.environ["HOME"] = str(home)
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        os.chdir(self.project)

    def read(self, page: Path, block: Block, output: Block | None = None) -> None:
        """`output`: what a shell block prints, as the page says; nothing where the page has no such block."""
        if block.not_run:
            return
        if block.language == "python":
            # Padded, so that a failing line has the number it has in the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
            exec(code, self.names)  # noqa: S102, the page is ours
        elif block.language == "sh":
            expected = [line.rstrip() for line in output.text.splitlines()] if output else []
            self.paste(f"{page.name}:{block.line}", block.text, expected)

    def paste(self, where: str, command: str, expected: list[str]) -> None:
        printed = self.printed(command)
        ids = fitting(expected, printed, self.ids)
        assert ids is not None, _difference(where, command, expected, printed)
        self.ids = ids

    def printed(self, command: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        lines = done.stdout.replace(str(self.home), _HOME).rstrip("\n").split("\n")
        return [] if lines == [""] else [line.rstrip() for line in lines]


def fitting(expected: list[str], printed: list[str], ids: dict[str, str]) -> dict[str, str] | None:
    """The ids known afterwards; None if it does not fit. A line that is only `…` stands for any number of lines."""
    if not expected:
        return None if printed else ids
    if expected[0] == "…":
        tries = (fitting(expected[1:], printed[skipped:], ids) for skipped in range(len(printed) + 1))
        return next((found for found in tries if found is not None), None)
    known = fitting_line(expected[0], printed[0], ids) if printed else None
    return None if known is None else fitting(expected[1:], printed[1:], known)


def fitting_line(expected: str, printed: str, ids: dict[str, str]) -> dict[str, str] | None:
    """`…` is anything; an id is the one that this name stood for before, or a new one."""
    pattern, new, place = "", list[str](), 0
    for found in IDS.finditer(expected):
        pattern += _wild(expected[place : found.start()])
        known = ids.get(found.group())
        pattern += re.escape(known) if known else "([0-9a-hjkmnp-tv-z]{8})"
        new += [] if known else [found.group()]
        place = found.end()
    matched = re.fullmatch(pattern + _wild(expected[place:]), printed)
    return ids | dict(zip(new, matched.groups(), strict=True)) if matched else None


def _wild(text: str) -> str:
    # On a slow machine it is seconds.
    return re.escape(text.replace("… ms", "…")).replace("…", ".*")


def _difference(where: str, command: str, expected: list[str], printed: list[str]) -> str:
    return "\n".join([f"{where}: {command}", "-- the page says:", *expected, "-- it prints:", *printed])
