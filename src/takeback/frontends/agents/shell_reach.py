"""Which paths and processes a shell command names in order to delete, change or end them. Nothing is run.

Only what stands in the text counts: a value that only a shell would know is left out, and so is a program that is not
listed here. What it leaves out is noticed afterwards, by the state of the store and of the settings.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from takeback.frontends.agents.shell_programs import WRAPPERS, Named, Touch, Value, operands, touched
from takeback.frontends.agents.shell_text import Part, Simple, Word, parsed

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
_OPENS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "coproc"))
_CLOSES = frozenset(("fi", "done", "esac", "}"))
_WRITES = frozenset((">", ">>", ">|", "&>", "&>>", "<>", ">&"))
_MOST = 200  # values of one word
_LOCAL = frozenset(("export", "local", "declare", "readonly", "typeset"))


class ShellState(NamedTuple):
    """Where a command runs, as far as is known."""

    directories: tuple[str, ...]  # one of them; none if unknown
    values: Mapping[str, tuple[Value, ...]]  # of variables


def reached(
    command: str, cwd: str, environment: Mapping[str, str], depth: int = 0
) -> Iterator[tuple[Named, str]]:
    """Everything that the command would touch, with the simple command that does. Raises `Unparsed`."""
    values = {name: (Value(value),) for name, value in environment.items()}
    values |= {"PWD": (Value(cwd),)} if cwd else {}
    yield from _Walk(ShellState((cwd,) if cwd else (), values), depth).through(command)


class _Walk:
    def __init__(self, place: ShellState, depth: int) -> None:
        self.place = place
        self._depth = depth

    def through(self, command: str) -> Iterator[tuple[Named, str]]:
        items = parsed(command, self._depth)
        around: list[ShellState] = []
        piped: tuple[str, ...] = ()
        for at, item in enumerate(items):
            if item == "(":
                around.append(self.place)
            elif item == ")" and around:
                self.place = around.pop()
            if isinstance(item, str):
                continue
            before, after = items[at - 1] if at else "", items[at + 1] if at + 1 < len(items) else ""
            in_pipe = before in ("|", "|&") or after in ("|", "|&")
            place = self.place
            yield from self._simple(item, piped if before in ("|", "|&") else ())
            piped = (*item.documents, *self._printed(item)) if after in ("|", "|&") else ()
            if in_pipe or after == "&":
                self.place = place  # each part of a pipe has a shell of its own

    def _printed(self, simple: Simple) -> tuple[str, ...]:
        words = self._values(simple.words)
        if words and words[0] and words[0].text in ("echo", "printf"):
            return ("\n".join(word.text for word in words[1:] if word),)
        return ()

    def _simple(self, simple: Simple, piped: tuple[str, ...]) -> Iterator[tuple[Named, str]]:
        for inner in simple.inner:
            yield from self._deeper(inner)
        for operator, target in simple.redirections:
            if operator in _WRITES:
                for value in self._expanded(target):
                    if value and not (operator == ">&" and (value.text.isdigit() or value.text == "-")):
                        yield from self._placed((Touch(value, follows=True),), simple.text)
        words = self._without_keywords(list(simple.words))
        while words and (name := _assigned(words[0])):
            self._assign(name, words.pop(0))
        arguments = self._values(words)
        if arguments:
            yield from self._program(arguments, simple, piped)

    def _without_keywords(self, words: list[Word]) -> list[Word]:
        while words and len(words[0]) == 1 and not words[0][0].quoted:
            text = words[0][0].text
            if text == "for" and len(words) > 2 and words[2] == (Part("in"),):
                values = tuple(value for value in self._values(words[3:]) if value)
                self._set(words[1][0].text, values)
                return []
            if text in _CLOSES or text in ("for", "case", "function", "[["):
                return []
            if text not in _OPENS:
                break
            words.pop(0)
        return words

    def _program(
        self, arguments: "list[Value | None]", simple: Simple, piped: tuple[str, ...]
    ) -> Iterator[tuple[Named, str]]:
        arguments = _unwrapped(arguments)
        if not arguments or arguments[0] is None:
            return
        name, rest = os.path.basename(arguments[0].text), arguments[1:]
        if name in ("cd", "pushd"):
            self._move(rest)
        elif name in _LOCAL:
            for value in rest:
                if value and "=" in value.text:
                    variable, _, content = value.text.partition("=")
                    self._set(variable, (Value(content),))
        elif name in _SHELLS:
            yield from self._shell(rest, (*simple.documents, *piped))
        elif name == "eval":
            yield from self._deeper(" ".join(value.text for value in rest if value), shared=True)
        else:
            yield from self._placed(touched(name, rest, piped), simple.text)

    def _shell(self, rest: "list[Value | None]", read: tuple[str, ...]) -> Iterator[tuple[Named, str]]:
        """`sh -c TEXT`, or a script that it reads; a script in a file is not looked at."""
        given = [value.text if value else "" for value in rest]
        flags = [word for word in given if word.startswith("-") and not word.startswith("--")]
        if any("c" in word[1:] for word in flags):
            script = next((word for word in given if word and not word.startswith(("-", "+"))), "")
            yield from self._deeper(script)
        elif all(word.startswith("-") for word in given):
            for text in read:
                yield from self._deeper(text)

    def _deeper(self, command: str, shared: bool = False) -> Iterator[tuple[Named, str]]:
        inner = _Walk(self.place, self._depth + 1)
        yield from inner.through(command)
        if shared:
            self.place = inner.place

    def _placed(self, named: Iterator[Named] | Sequence[Named], shown: str) -> Iterator[tuple[Named, str]]:
        """With whole paths; a relative one may be in each of several directories."""
        for one in named:
            if not isinstance(one, Touch):
                yield one, shown
                continue
            starts = ("",) if one.path.text.startswith("/") else self.place.directories
            for start in starts:
                yield one._replace(path=one.path.below(start) if start else one.path), shown

    def _move(self, rest: "list[Value | None]") -> None:
        if any(value is None for value in rest):
            self.place = self.place._replace(directories=())
            return
        words = [value for value in operands(rest) if value]
        targets = words[:1] or list(self._variable("HOME"))[:1]
        if not targets or targets[0].text == "-" or targets[0].is_pattern:
            self.place = self.place._replace(directories=())
            return
        found: list[str] = []
        for start in self.place.directories or ("",):
            path = os.path.normpath(os.path.join(start, targets[0].text))
            if os.path.isabs(path):
                found += [path] if os.path.isdir(path) else [path, *filter(None, [start])]
        self.place = self.place._replace(directories=tuple(dict.fromkeys(found)))

    # Words.

    def _values(self, words: Sequence[Word]) -> "list[Value | None]":
        """All words; None for one that only a shell would know."""
        return [value for word in words for value in self._expanded(word)]

    def _expanded(self, word: Word) -> "list[Value | None]":
        """With values for variables and `~`, and each choice of braces."""
        choices: list[list[Value | None]] = []
        for at, part in enumerate(word):
            if part.unknown:
                return [None]
            if part.variable:
                values = self._variable(part.text)
                if not values:
                    return [None]
                choices.append([*values])
            elif part.quoted:
                choices.append([Value(part.text)])
            else:
                text = part.text
                if at == 0 and text.startswith("~"):
                    text = self._home(text)
                choices.append([Value.unquoted(one) for one in _braced(text)])
        if _size(choices) > _MOST:
            return [None]
        return [Value.joined(one) for one in product(*choices)]

    def _home(self, text: str) -> str:
        name, slash, rest = text.partition("/")
        if name == "~" and (known := self._variable("HOME")):
            return known[0].text + slash + rest
        return os.path.expanduser(name) + slash + rest if name != "~" else text

    def _variable(self, name: str) -> tuple[Value, ...]:
        if name == "PWD" and self.place.directories:
            return tuple(map(Value, self.place.directories))
        return self.place.values.get(name, ())

    def _assign(self, name: str, word: Word) -> None:
        first = word[0]._replace(text=word[0].text[len(name) + 1 :])
        values = self._expanded((first, *word[1:]))
        self._set(name, tuple(value for value in values if value))

    def _set(self, name: str, values: tuple[Value, ...]) -> None:
        self.place = self.place._replace(values={**self.place.values, name: values})


def _assigned(word: Word) -> str:
    """The variable, if the word sets one."""
    first = word[0]
    name, equals, _ = first.text.partition("=")
    return name if equals and not first.quoted and not first.variable and name.isidentifier() else ""


def _unwrapped(arguments: "list[Value | None]") -> "list[Value | None]":
    """Without `sudo`, `env` and the like before the program."""
    while arguments and (first := arguments[0]) and (known := WRAPPERS.get(os.path.basename(first.text))):
        rest = arguments[1:]
        while rest and (word := rest[0]) is not None:
            if word.text == "--":
                rest = rest[1:]
                break
            if word.text.startswith("-") and len(word.text) > 1:
                rest = rest[2:] if word.text in known.takes else rest[1:]
            elif known.assigns and "=" in word.text:
                rest = rest[1:]
            else:
                break
        arguments = rest[known.skips :]
    return arguments


_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def _braced(text: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`; as it is if there are too many choices."""
    found = [""]
    end = 0
    for braces in _BRACES.finditer(text):
        choices = braces[1].split(",")
        if len(found) * len(choices) > _MOST:
            return [text]
        found = [start + text[end : braces.start()] + one for start in found for one in choices]
        end = braces.end()
    return [start + text[end:] for start in found]


def _size(choices: "list[list[Value | None]]") -> int:
    size = 1
    for one in choices:
        size *= len(one)
    return size
