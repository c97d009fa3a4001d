"""The lines of a session: from a terminal, a script, or the command line; what belongs together comes as one."""

import re
import sys
from collections.abc import Callable, Iterator

_MAY_GO_ON = re.compile(r"""['"`(){}\\]|\b(for|while|until|if|case|do|then|else)\b|(\||&&)\s*$""")
_NOT_AT_ITS_END = re.compile(r"end of file|unterminated|EOF", re.IGNORECASE)
_HERE = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")


def commands(next_line: Callable[[bool], str | None]) -> Iterator[str]:
    """Each as a shell would take it. `next_line` gets whether a command continues; None: no more."""
    while (line := next_line(False)) is not None:
        text = line
        while goes_on(text) and (line := next_line(True)) is not None:
            text = f"{text}\n{line}"
        if text.strip() and not text.lstrip().startswith("#"):
            yield text


def goes_on(text: str) -> bool:
    """Whether more must come: an open quote, a loop without its end, a text that was announced with `<<`."""
    if text.startswith(":"):
        return False
    if any(not _closed(text, match) for match in _HERE.finditer(text)):
        return True
    if len(text) - len(text.rstrip("\\")) & 1:
        return True
    return bool(_MAY_GO_ON.search(text)) and _shell_waits(text)


def _closed(text: str, announced: "re.Match[str]") -> bool:
    strip, _, word = announced.groups()
    rest = text[announced.end() :].split("\n")[1:]
    return word in ([line.lstrip("\t") for line in rest] if strip else rest)


def _shell_waits(text: str) -> bool:
    import subprocess

    asked = subprocess.run(
        ["/bin/sh", "-n"], input=text.encode("utf-8", "surrogateescape"), capture_output=True, check=False
    )
    return asked.returncode != 0 and bool(_NOT_AT_ITS_END.search(asked.stderr.decode("utf-8", "replace")))


def from_list(lines: list[str]) -> Callable[[bool], str | None]:
    left = [part for line in lines for part in line.split("\n")][::-1]
    return lambda more: left.pop() if left else None


def from_script() -> Callable[[bool], str | None]:
    if not sys.stdin:
        return from_list([])

    def next_line(more: bool) -> str | None:
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    return next_line


def from_terminal(prompt: Callable[[], str]) -> Callable[[bool], str | None]:
    import importlib

    importlib.import_module("readline")  # gives input() its editing

    def next_line(more: bool) -> str | None:
        try:
            return input("> " if more else prompt())
        except EOFError:
            sys.stderr.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            return ""

    return next_line
