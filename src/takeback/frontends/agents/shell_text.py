"""A command of a shell, as far as its text tells: simple commands, their words and redirections. Nothing is run.

The shells of agents are bash and what is like it. A text that is not understood raises `Unparsed`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPERATOR = re.compile(r"&&|\|\||;;|\|&|;|\||&(?!>)|\n|\(|\)")
_REDIRECTION = re.compile(r"<<<|<<-|&>>|<<|>>|>\||<>|&>|>&|<&|>|<")
_NUMBER = re.compile(r"\d+(?=[<>])")
_PLAIN = re.compile(r"[^ \t\n;&|<>()\\'\"`$]*")
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DEEPEST = 20


class Unparsed(ValueError):
    """The text is no command that this reader understands."""


class Part(NamedTuple):
    """Of a word. The value of a variable, and of what a shell would run first, is not in the text."""

    text: str
    quoted: bool = False
    variable: bool = False  # `text` is its name
    unknown: bool = False


Word = tuple[Part, ...]


class Redirection(NamedTuple):
    operator: str
    target: Word


class Simple(NamedTuple):
    """One program and its words."""

    words: tuple[Word, ...]
    redirections: tuple[Redirection, ...] = ()
    inner: tuple[str, ...] = ()  # commands that run for the value of a word
    documents: tuple[str, ...] = ()  # here-documents, which it reads
    text: str = ""


class _Draft:
    def __init__(self, start: int) -> None:
        self.start = start
        self.words: list[Word] = []
        self.redirections: list[Redirection] = []
        self.inner: list[str] = []
        self.documents: list[str] = []


def parsed(text: str, depth: int = 0) -> list[Simple | str]:
    """Simple commands and the operators between them, in the order of the text."""
    if depth > _DEEPEST:
        raise Unparsed("nested too deeply")
    return list(_Reader(text.replace("\\\n", "")).items())


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._waiting: list[tuple[_Draft, str, bool]] = []  # here-documents that begin after the line

    def items(self) -> Iterator[Simple | str]:
        """Here-documents come after the line of their command, so all is read before the first is given."""
        found: list[_Draft | str] = []
        ends: dict[int, int] = {}
        draft = _Draft(0)
        while True:
            self._skip_blank()
            operator = self._one_of(_OPERATOR)
            if not draft.words and self._skipped_arithmetic():
                continue
            if operator or self.at >= len(self.text):
                ends[id(draft)] = self.at
                found.append(draft)
                if not operator:
                    break
                self.at += len(operator)
                found.append(operator)
                if operator == "\n":
                    self._read_documents()
                draft = _Draft(self.at)
            else:
                self._read_into(draft)
        for one in found:
            if isinstance(one, str):
                yield one
            elif one.words or one.redirections:
                shown = " ".join(self.text[one.start : ends[id(one)]].split())
                yield Simple(
                    tuple(one.words), tuple(one.redirections), tuple(one.inner), tuple(one.documents), shown
                )

    def _one_of(self, signs: re.Pattern[str]) -> str:
        found = signs.match(self.text, self.at)
        return found.group() if found else ""

    def _skip_blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r":
            self.at += 1
        if self.text.startswith("#", self.at):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def _read_into(self, draft: _Draft) -> None:
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
        operator = self._one_of(_REDIRECTION)
        if operator in ("<", ">") and self.text.startswith(f"{operator}(", self.at):
            operator = ""  # the output of a command as a file
        if not operator:
            draft.words.append(self._word(draft))
            return
        self.at += len(operator)
        self._skip_blank()
        target = self._word(draft)
        tests = draft.words and draft.words[0] == (Part("[["),)
        if operator in ("<<", "<<-"):
            end = "".join(part.text for part in target)
            self._waiting.append((draft, end, operator == "<<-"))
        elif operator == "<<<":
            draft.documents.append("".join(part.text for part in target))
        elif not tests:
            draft.redirections.append(Redirection(operator, target))

    def _read_documents(self) -> None:
        for draft, end, stripped in self._waiting:
            lines: list[str] = []
            while True:
                if self.at >= len(self.text):
                    break  # as a shell takes it: the end of the text ends it too
                newline = self.text.find("\n", self.at)
                line = self.text[self.at : newline if newline >= 0 else None]
                self.at += len(line) + 1
                line = line.lstrip("\t") if stripped else line
                if line == end:
                    break
                lines.append(line)
            draft.documents.append("\n".join(lines))
        self._waiting.clear()

    def _skipped_arithmetic(self) -> bool:
        """Whether there was a sum in double parentheses; two subshells have commands in them."""
        end = self.text.find("))", self.at) if self.text.startswith("((", self.at) else -1
        if end < 0 or any(sign in ";\n" for sign in self.text[self.at : end]):
            return False
        self.at = end + 2
        return True

    # Words.

    def _word(self, draft: _Draft) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign in "<>" and self.text.startswith("(", self.at + 1):
                self.at += 2
                draft.inner.append(self._until_closed())
                parts.append(Part("", unknown=True))
            elif sign in _ENDS_WORD:
                break
            else:
                parts += self._part(sign, draft)
        if not parts:
            raise Unparsed(f"a word is missing at {self.at}")
        return tuple(parts)

    def _part(self, sign: str, draft: _Draft) -> list[Part]:
        self.at += 1
        if sign == "\\":
            self.at += 1
            return [Part(self.text[self.at - 1 : self.at], quoted=True)]
        if sign == "'":
            return [Part(self._until("'"), quoted=True)]
        if sign == '"':
            return self._quoted(draft)
        if sign == "`":
            draft.inner.append(self._until("`"))
            return [Part("", unknown=True)]
        if sign == "$":
            return [self._value(draft, quoted=False)]
        start = self.at - 1
        self.at += len(self._one_of(_PLAIN))
        return [Part(self.text[start : self.at])]

    def _until(self, sign: str) -> str:
        end = self.text.find(sign, self.at)
        if end < 0:
            raise Unparsed(f"{sign} has no end")
        start, self.at = self.at, end + 1
        return self.text[start:end]

    def _quoted(self, draft: _Draft) -> list[Part]:
        parts, said = list[Part](), ""
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            if sign == '"':
                return [*parts, Part(said, quoted=True)]
            if sign == "\\" and self.text[self.at : self.at + 1] in tuple('"\\$`'):
                said += self.text[self.at]
                self.at += 1
            elif sign in "$`":
                parts.append(Part(said, quoted=True))
                said = ""
                if sign == "`":
                    draft.inner.append(self._until("`"))
                    parts.append(Part("", quoted=True, unknown=True))
                else:
                    parts.append(self._value(draft, quoted=True))
            else:
                said += sign
        raise Unparsed('" has no end')

    def _value(self, draft: _Draft, quoted: bool) -> Part:
        """After a dollar sign."""
        if self._skipped_arithmetic():
            return Part("", quoted, unknown=True)
        if self.text.startswith("(", self.at):
            self.at += 1
            draft.inner.append(self._until_closed())
            return Part("", quoted, unknown=True)
        if self.text.startswith("{", self.at):
            self.at += 1
            name, _, more = self._until("}").partition(":")
            plain = _NAME.fullmatch(name) and more[:1] in ("", "?")
            return Part(name, quoted, variable=True) if plain else Part("", quoted, unknown=True)
        if not quoted and self.text.startswith("'", self.at):
            self.at += 1
            said = self._until("'")
            return Part(said, quoted=True, unknown="\\" in said)
        if name := _NAME.match(self.text, self.at):
            self.at = name.end()
            return Part(name.group(), quoted, variable=True)
        return Part("$", quoted=True)

    def _until_closed(self) -> str:
        """The text up to the parenthesis that ends it, which the quotes in it do not."""
        start, open_ones, quote = self.at, 1, ""
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            if sign == "\\" and quote != "'":
                self.at += 1
            elif quote:
                quote = "" if sign == quote else quote
            elif sign in "'\"":
                quote = sign
            elif sign in "()":
                open_ones += 1 if sign == "(" else -1
                if not open_ones:
                    return self.text[start : self.at - 1]
        raise Unparsed("( has no end")
