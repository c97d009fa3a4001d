"""The parser and the help of each command, and arguments that name nothing."""

import argparse
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple, NoReturn

from takeback.errors import Misuse

_NAMES = (
    "by",
    "answer",
    "why",
    "id",
    "ids",
    "run",
    "to",
    "agent",
    "key",
    "needs",
    "label",
    "summary",
    "sets",
    "delete",
    "name",
    "event",
)
_NAMING = (
    "--store", "--run", "--to", "--key", "--agent", "--name", "--box", "--needs", "--by", "--from-checkpoint",
)  # fmt: skip


def refuse_nameless(words: list[str], options: Namespace) -> None:
    """An option whose variable was not set is not one that was left away: without --run, `undo` takes back something
    else."""
    for option, value in pairwise([*words, "none"]):
        name, equals, rest = option.partition("=")
        if name in _NAMING and (rest == "" if equals else value == ""):
            raise Misuse(f"{name} is empty.", hint=f"Say which is meant, or leave {name} away.")
    for name in _NAMES:
        given = getattr(options, name, None) or ()
        if not all(word.isascii() for word in given):
            from takeback.model.record import canonical

            canonical(given)  # refuses what the journal cannot hold


COLOURS = ("auto", "always", "never")
# Help is in English. To look for a translation argparse would load `locale` at every start.
argparse._ = str  # pyright: ignore[reportAttributeAccessIssue]
START_HERE = (
    ("takeback run -- make install", "run a command so that it can be undone"),
    ("takeback log", "see what happened, newest first"),
    ("takeback diff @", "see what the newest effect changed"),
    ("takeback undo", "take the newest effect back"),
    ("takeback redo", "bring back what was undone last"),
)


class Entry(NamedTuple):
    """A command in the list of all."""

    group: str
    help: str
    example: str


class Subcommand(NamedTuple):
    """A subcommand."""

    help: str
    example: str
    arguments: Callable[[ArgumentParser], None]


def filled(text: str) -> str:
    """For an argument that means something else when it is left out: a variable of a shell may be empty."""
    if not text.strip():
        raise ArgumentTypeError("it is empty")
    return text


class _Formatter(RawDescriptionHelpFormatter):
    """With a width of its own: argparse would import shutil at every start to ask for one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=_width())


def _width() -> int:
    try:
        return min(os.get_terminal_size(1).columns - 2, 110)
    except OSError:
        return 100


class Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misuse(f"{message[0].upper()}{message[1:]}.", hint=f"`{self.prog} --help` shows an example.")

    def understood(self, words: list[str], mixed: bool) -> Namespace:
        """The words as options. `mixed`: options may stand between other words."""
        parse = self.parse_known_intermixed_args if mixed else self.parse_known_args
        options, unknown = parse(words)
        if unknown:
            self._refuse(unknown[0])
        return options

    def _refuse(self, word: str) -> NoReturn:
        if word.startswith("-") and word != "-":
            from takeback.model.words import did_you_mean

            name = word.partition("=")[0]
            lists = f"`{self.prog} --help` lists them."
            raise Misuse(
                f"There is no option {name}.", hint=did_you_mean(name, self._option_string_actions, lists)
            )
        raise Misuse(f"One word too many: {word!r}.", hint=f"`{self.prog} --help` shows an example.")


def parser_for(name: str, entry: "Entry | Subcommand", arguments: Callable[[ArgumentParser], None]) -> Parser:
    parser = Parser(
        prog=f"takeback {name}",
        description=as_sentence(entry.help),
        epilog=f"example:\n  {entry.example}",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    arguments(parser)
    add_global_options(parser)
    return parser


def parser_with_parts(name: str, entry: Entry, parts: Mapping[str, Subcommand]) -> Parser:
    """Of a command that is nothing without a subcommand: only its help is ever asked for."""
    listed = "\n".join(f"  {part:<10} {told.help}" for part, told in parts.items())
    parser = Parser(
        prog=f"takeback {name}",
        usage=f"takeback {name} {{{','.join(parts)}}} …",
        description=f"{as_sentence(entry.help)}\n\nsubcommands:\n{listed}",
        epilog=f"example:\n  {entry.example}\n\n`takeback {name} SUBCOMMAND --help` shows the options of a subcommand.",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    add_global_options(parser)
    return parser


def as_sentence(help: str) -> str:
    return help[:1].upper() + help[1:] + ("" if help.endswith("?") else ".")


def add_global_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("everywhere")
    group.add_argument(
        "--store", metavar="PATH", help="the store; else TAKEBACK_STORE, else ~/.local/state/takeback"
    )
    group.add_argument("--json", action="store_true", help="the answer as JSON")
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    group.add_argument(
        "--color", metavar="WHEN", choices=COLOURS, help="colour: auto (on a terminal), always or never"
    )
    group.add_argument("--no-color", action="store_true", help="no colour, even on a terminal")
    group.add_argument("--no-pager", action="store_true", help="print long answers without a pager")


def top_parser(entries: Mapping[str, Entry]) -> Parser:
    parser = Parser(
        prog="takeback",
        usage="takeback COMMAND [options]",
        description="Undo for what AI agents do: every change gets a way back before it is made.\n\n"
        + _start_here(),
        epilog=_overview(entries),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    add_global_options(parser)
    return parser


def short_help() -> str:
    """For someone who typed nothing but the name."""
    return (
        f"takeback: undo for what AI agents do.\n\n{_start_here()}\n\n"
        "`takeback help` lists all commands, `takeback help COMMAND` explains one."
    )


def _start_here() -> str:
    return "Start here:\n" + "\n".join(f"  {command:<30} {told}" for command, told in START_HERE)


def _overview(entries: Mapping[str, Entry]) -> str:
    lines: list[str] = []
    group = ""
    for name, entry in entries.items():
        if not entry.group:
            continue
        if entry.group != group:
            group = entry.group
            lines.append(f"{group}:" if not lines else f"\n{group}:")
        lines.append(f"  {name:<12} {entry.help}")
    lines.append("\n`takeback COMMAND --help` shows the options of a command and an example.")
    lines.append(
        "An effect is named by its id, any unique beginning of it, @ (the newest) or @~2 (the second before it)."
    )
    return "\n".join(lines)
