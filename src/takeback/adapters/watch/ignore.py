"""Whether a directory is ignored by the project it is part of: the rules of `.gitignore`, read as git reads them."""

import os
import re
import stat
from typing import NamedTuple

_LONGEST = 1 << 20  # a longer file of rules is none


class Rule(NamedTuple):
    pattern: re.Pattern[bytes]  # of the path from the directory of its file
    negated: bool


def parsed(text: bytes) -> tuple[Rule, ...]:
    """The rules that can match a directory, in order."""
    rules = (_rule(line) for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return tuple(rule for rule in rules if rule)


def _rule(line: bytes) -> Rule | None:
    line = _without_spaces(line.removesuffix(b"\r"))
    if not line or line.startswith(b"#"):
        return None
    negated = line.startswith(b"!")
    line = line[negated:].removesuffix(b"/")
    if not line:
        return None
    anchored = b"/" in line
    try:
        body = _translated(line.removeprefix(b"/"))
        return Rule(re.compile(body if anchored else rb"(?:.*/)?" + body, re.DOTALL), negated)
    except re.error:
        return None  # git takes a broken pattern for one that matches nothing


def _without_spaces(line: bytes) -> bytes:
    kept = line.rstrip(b" ")
    escapes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if escapes % 2 and len(kept) < len(line) else kept


def _translated(glob: bytes) -> bytes:
    out, at = b"", 0
    while at < len(glob):
        rest = glob[at:]
        stars = len(rest) - len(rest.lstrip(b"*"))
        alone = stars > 1 and (at == 0 or glob[at - 1 : at] == b"/")
        if alone and rest[stars : stars + 1] == b"/":
            out, at = out + rb"(?:.*/)?", at + stars + 1
        elif alone and at and stars == len(rest):
            out, at = out + rb".+", at + stars
        elif stars:
            out, at = out + rb"[^/]*", at + stars
        elif rest.startswith(b"?"):
            out, at = out + rb"[^/]", at + 1
        elif rest.startswith(b"["):
            end = _end_of_class(glob, at)
            out, at = out + _class(glob[at + 1 : end]), end + 1
        elif rest.startswith(b"\\"):
            if len(rest) == 1:
                raise re.error("nothing is escaped")
            out, at = out + re.escape(rest[1:2]), at + 2
        else:
            out, at = out + re.escape(rest[:1]), at + 1
    return out


def _end_of_class(glob: bytes, start: int) -> int:
    at = start + 1 + (glob[start + 1 : start + 2] in (b"!", b"^"))
    at += glob[at : at + 1] == b"]"
    while at < len(glob) and glob[at : at + 1] != b"]":
        at += 2 if glob[at : at + 1] == b"\\" else 1
    if at >= len(glob):
        raise re.error("a class without an end")
    return at


def _class(inside: bytes) -> bytes:
    negated = inside[:1] in (b"!", b"^")
    inside = inside[negated:].replace(b"[", rb"\[")
    if inside.startswith(b"]"):
        inside = b"\\" + inside
    return rb"(?!/)[" + (b"^" if negated else b"") + inside + b"]"


class Ignoring:
    """Answers for one look at a tree; what it has read it does not read again."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._files: dict[bytes, tuple[Rule, ...]] = {}
        self._tops: dict[bytes, bytes] = {}
        self._tracked: dict[bytes, bytes | None] = {}

    def ignored(self, path: bytes) -> bool:
        """An absolute path of a directory. What git tracks is not ignored, whatever the rules say."""
        top = self._top(os.path.dirname(path))
        names = os.path.relpath(path, top).split(b"/")
        for depth in range(1, len(names) + 1):
            if self._one_ignored(top, names[:depth]):
                return not self._tracks(top, b"/".join(names))
        return False

    def _one_ignored(self, top: bytes, names: list[bytes]) -> bool:
        """By the rules nearest to it that say anything of it; the last one in a file counts."""
        for depth in range(len(names) - 1, -1, -1):
            within = b"/".join(names[depth:])
            verdict = _said(self._rules(os.path.join(top, *names[:depth], b".gitignore")), within)
            if verdict is not None:
                return verdict
        return bool(
            _said(self._rules(os.path.join(_git_directory(top), b"info", b"exclude")), b"/".join(names))
        )

    def _rules(self, file: bytes) -> tuple[Rule, ...]:
        if file not in self._files:
            self._files[file] = parsed(_content(file, _LONGEST))
        return self._files[file]

    def _top(self, directory: bytes) -> bytes:
        """Of the repository it is in; without one, the watched root."""
        if directory not in self._tops:
            above: bytes = directory
            while not os.path.lexists(os.path.join(above, b".git")):
                if above in (b"/", b""):
                    above = self._root
                    break
                above = os.path.dirname(above)
            self._tops[directory] = above
        return self._tops[directory]

    def _tracks(self, top: bytes, path: bytes) -> bool:
        """Whether git's index may name something in it. In doubt it does: then it is captured."""
        if top not in self._tracked:
            self._tracked[top] = _index(top)
        index = self._tracked[top]
        return index is None or path + b"/" in index


def _said(rules: tuple[Rule, ...], path: bytes) -> bool | None:
    for rule in reversed(rules):
        if rule.pattern.fullmatch(path):
            return not rule.negated
    return None


def _git_directory(top: bytes) -> bytes:
    """Of a worktree or submodule it lies elsewhere, and a file says where."""
    git = os.path.join(top, b".git")
    said = _content(git, 8192) if os.path.isfile(git) else b""
    return os.path.join(top, said[8:].strip()) if said.startswith(b"gitdir: ") else git


def _index(top: bytes) -> bytes | None:
    """Its bytes, in which the paths stand as they are; None where they are shortened (version 4)."""
    file = os.path.join(_git_directory(top), b"index")
    if not os.path.lexists(file):
        return b""
    data = _content(file, 1 << 30)
    return data if data[:4] == b"DIRC" and data[4:8] in (b"\0\0\0\2", b"\0\0\0\3") else None


def _content(file: bytes, longest: int) -> bytes:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(fd, "rb") as opened:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > longest:
            return b""
        return opened.read()
