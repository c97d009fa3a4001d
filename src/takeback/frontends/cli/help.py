"""Manual pages (`takeback help --man`), and *did you mean* for a command that does not exist."""

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterable, Iterator

from takeback import __version__
from takeback.errors import Misuse
from takeback.frontends.cli.command import (
    COMMANDS,
    GROUPS,
    START_HERE,
    Entry,
    Subcommand,
    as_sentence,
    command_named,
    parser_of,
    top_parser,
)
from takeback.model.words import did_you_mean

# What people type who come from git, jj, restic, Docker or a database.
_MEANT = {
    "takeback undo": "revert restore rollback reset back",
    "takeback redo": "unstash",
    "takeback log": "history list ls",
    "takeback log --all": "reflog",
    "takeback runs": "ps",
    "takeback show": "info",
    "takeback status": "st",
    "takeback sweep": "gc prune clean",
    "takeback verify": "check fsck",
    "takeback store make": "init",
    "takeback store copy": "clone",
    "takeback store copy --backup": "backup",
    "takeback run": "exec do sandbox",
    "takeback shell": "bash sh",
    "takeback rm": "delete del remove",
    "takeback mv": "move rename",
    "takeback ln": "link",
    "takeback checkpoint": "snapshot tag savepoint save",
    "takeback resume": "continue",
    "takeback approve": "yes",
    "takeback deny": "no reject",
    "takeback help --man": "man",
}
ELSEWHERE = {word: command for command, words in _MEANT.items() for word in words.split()}
# What is no command here at all: a sentence.
_ELSEWHERE_IN_WORDS = {
    "settings": "`takeback config list` lists all settings, `takeback config set NAME VALUE` changes one.",
    "commit": "`takeback accept` keeps what a run did; changes need no commit.",
    "login": "There is no account: `takeback status` shows the store.",
}


def command_meant(word: str, known: Iterable[str]) -> str:
    """A hint, by meaning first: `revert` is nearer to `undo` than to `recover`, whatever its letters say."""
    lower = word.lower()
    if lower in known:
        return f"Did you mean `takeback {lower}`?"
    if lower in ELSEWHERE:
        return f"Did you mean `{ELSEWHERE[lower]}`?"
    if lower in _ELSEWHERE_IN_WORDS:
        return _ELSEWHERE_IN_WORDS[lower]
    return did_you_mean(lower, known, "`takeback help` lists them.", "takeback ")


_EXITS = (
    ("0", "all that was asked for happened"),
    ("1", "failed, the state of the world is known"),
    ("2", "the command line is wrong"),
    ("3", "refused, nothing was changed"),
    ("4", "stuck, a person is needed"),
    ("5", "not now, trying again is safe"),
    ("6", "the store is damaged"),
    ("7", "in doubt: look first, do not simply repeat it"),
    ("125", "of `run` and `shell`: takeback itself failed; else the exit code of the command"),
)
_VARIABLES = (
    ("TAKEBACK_STORE", "the store, unless --store names one"),
    ("TAKEBACK_AGENT", "who does it, unless --agent says so"),
    ("TAKEBACK_PAGER, PAGER", "the pager for long answers on a terminal (less -FRX)"),
    ("NO_COLOR", "no colour"),
    ("FORCE_COLOR, CLICOLOR_FORCE", "colour also where there is no terminal"),
)


def names() -> Iterator[str]:
    """Of all pages: "" is the first one, then commands and subcommands."""
    yield ""
    for name in (name for members in GROUPS.values() for name in members):
        yield name
        yield from (f"{name} {part}" for part in command_named(name).parts)


def page(name: str) -> str:
    """In the language of man(7)."""
    lines = _first_page() if not name else _page_of(name)
    return "\n".join(lines) + "\n"


def _first_page() -> Iterator[str]:
    yield from _head("takeback", "undo for what AI agents do")
    yield from ("\\fBtakeback\\fR \\fICOMMAND\\fR [options]", ".SH DESCRIPTION")
    yield _text("Every change gets a way back before it is made.")
    yield from _pairs("START HERE", START_HERE)
    for group, members in GROUPS.items():
        yield f".SH {_text(group.upper())}"
        for name, (told, _) in members.items():
            yield from (".TP", f"\\fBtakeback\\-{_text(name)}\\fR(1)", _text(as_sentence(told)))
    yield from _options(top_parser())
    yield from _pairs("ENVIRONMENT", _VARIABLES)
    yield from _pairs("EXIT STATUS", _EXITS)


def _page_of(name: str) -> Iterator[str]:
    first, _, part = name.partition(" ")
    if first not in COMMANDS or not COMMANDS[first].group:
        raise Misuse(f"There is no command {first!r}.", hint=command_meant(first, COMMANDS))
    command = command_named(first)
    if part and part not in command.parts:
        hint = did_you_mean(
            part, command.parts, f"`takeback {first} --help` lists them.", f"takeback {first} "
        )
        raise Misuse(f"There is no `takeback {name}`.", hint=hint)
    entry: Entry | Subcommand = command.parts[part] if part else COMMANDS[first]
    parser = parser_of(name, command)
    yield from _head(f"takeback-{name.replace(' ', '-')}", entry.help)
    usage = parser.format_usage().removeprefix("usage: ")
    yield from (_text(" ".join(usage.split())), ".SH DESCRIPTION", _text(as_sentence(entry.help)))
    for inner, told in command.parts.items() if not part else ():
        yield from (".TP", f"\\fBtakeback\\-{_text(f'{name}-{inner}')}\\fR(1)", _text(as_sentence(told.help)))
    yield from _options(parser)
    yield from (".SH EXAMPLE", ".nf", _text(entry.example), ".fi", ".SH SEE ALSO", "\\fBtakeback\\fR(1)")


def _head(name: str, told: str) -> Iterator[str]:
    yield f'.TH "{_text(name.upper())}" 1 "" "takeback {__version__}" "takeback"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(told)}", ".SH SYNOPSIS")


def _pairs(title: str, pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield f".SH {title}"
    for name, told in pairs:
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(told))


def _options(parser: ArgumentParser) -> Iterator[str]:
    yield ".SH OPTIONS"
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no public way to ask
        if action.help != SUPPRESS:
            value = str(action.metavar or "") if action.nargs != 0 else ""
            spelled = f"{', '.join(action.option_strings)} {value}".strip() or action.dest
            yield from (".TP", f"\\fB{_text(spelled)}\\fR", _text(action.help or ""))


def _text(plain: str) -> str:
    quoted = plain.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{quoted}" if quoted.startswith(".") else quoted
