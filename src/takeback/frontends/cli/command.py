"""A command: its entry in the list of all, its options, and its input."""

import argparse
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from takeback.errors import Misuse, Renamed
from takeback.frontends.cli.output.screen import Screen

_NAMES = (
    "by", "answer", "why", "id", "ids", "run", "to", "agent", "key", "needs", "label", "summary", "sets", "delete",
    "name", "event",
)  # fmt: skip
_NAMING = (
    "--store", "--run", "--to", "--key", "--agent", "--name", "--box", "--needs", "--by", "--from-checkpoint",
    "--prompt", "--session", "--program",
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


# Help is in English. To look for a translation argparse would load `locale` at every start.
argparse._ = str  # pyright: ignore[reportAttributeAccessIssue]
START_HERE = (
    ("takeback run -- make install", "run a command so that it can be undone"),
    ("takeback log", "see what happened, newest first"),
    ("takeback diff @", "see what the newest effect changed"),
    ("takeback undo", "take the newest effect back"),
    ("takeback redo", "bring back what was undone last"),
)


class Argument(NamedTuple):
    """A word or an option of a command. The parser, the help, the manual and the completion all read it here."""

    names: tuple[str, ...]
    settings: dict[str, Any]  # as argparse takes them
    group: str = ""  # in the help


def positional(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    return Argument((name,), {"metavar": metavar, "help": help, **settings})


def flag(names: str, help: str, group: str = "", **settings: Any) -> Argument:
    """`names` as the help lists them: `-p, --patch`."""
    return Argument(tuple(names.split(", ")), {"help": help, "action": "store_true", **settings}, group)


def option(names: str, metavar: str, help: str, group: str = "", **settings: Any) -> Argument:
    return Argument(tuple(names.split(", ")), {"metavar": metavar, "help": help, **settings}, group)


def repeated(names: str, metavar: str, help: str, group: str = "", **settings: Any) -> Argument:
    """An option that may be given several times."""
    return option(names, metavar, help, group, **{"action": "append", "default": [], **settings})


def filled(text: str) -> str:
    """For an argument that means something else when it is left out: a variable of a shell may be empty."""
    if not text.strip():
        raise ArgumentTypeError("it is empty")
    return text


def number_of(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text.lstrip("0")[:9] or "0")  # more than there can ever be


COLOURS = ("auto", "always", "never")
EVERYWHERE = (
    option("--store", "PATH", "the store; else TAKEBACK_STORE, else ~/.local/state/takeback", "everywhere"),
    flag("--json", "the answer as JSON", "everywhere"),
    flag("-q, --quiet", "print nothing but errors", "everywhere"),
    option("--color", "WHEN", "colour: auto (on a terminal), always or never", "everywhere", choices=COLOURS),
    flag("--no-color", "no colour, even on a terminal", "everywhere"),
    flag("--no-pager", "print long answers without a pager", "everywhere"),
)
# What means the same in every command that has it.
DRY_RUN = flag("--dry-run", "only say what would happen")
AGENT = option("--agent", "A", "who does it (else TAKEBACK_AGENT, else cli)")
YES = flag("--yes", "do not ask")
ALL_PROJECTS = flag("--all", "of all projects, not only of this one")
RUN = option("--run", "R", "make it part of this run (a new one if there is none)")
NUMBER = option("-n", "N", "at most N (20; 0: all)", type=number_of, default=20, dest="number")
SECRETS = flag("--secrets", "show secrets, which are masked otherwise; not below an agent")
BY = option("--by", "NAME", "a remark on who decides; the account of this process is what counts", default="")
NO_NETWORK = flag("--no-network", "without network")
TIMEOUT = option("--timeout", "S", "end it after this many seconds")
# An option of another name, before there was one word for one thing: what it is called now.
RENAMED = {
    "run --force": "--any-root", "explain --force": "--any-root", "rm --force": "--ignore-missing",
    "shell --stop": "--stop-on-failure", "settle --did-not": "--did-not-happen", "sql exec --most": "--max-rows",
    "sql exec --review": "--hold, or --ask at a terminal",
}  # fmt: skip


class Entry(NamedTuple):
    group: str
    help: str
    example: str


class Subcommand(NamedTuple):
    help: str
    example: str
    arguments: tuple[Argument, ...]


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
    def __init__(
        self, prog: str, description: str, epilog: str, arguments: tuple[Argument, ...], usage: str = ""
    ) -> None:
        super().__init__(
            prog=prog, usage=usage or None, description=description, epilog=epilog, formatter_class=_Formatter,
            allow_abbrev=False,
        )  # fmt: skip
        groups: dict[str, Any] = {"": self}
        for one in (*arguments, *EVERYWHERE):
            if one.group not in groups:
                groups[one.group] = self.add_argument_group(one.group)
            groups[one.group].add_argument(*one.names, **one.settings)

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
            if now := RENAMED.get(f"{self.prog.removeprefix('takeback ')} {name}"):
                raise Renamed(f"{name} of `{self.prog}` was renamed.", hint=f"It is called {now} now.")
            lists = f"`{self.prog} --help` lists them."
            raise Misuse(
                f"There is no option {name}.", hint=did_you_mean(name, self._option_string_actions, lists)
            )
        raise Misuse(f"One word too many: {word!r}.", hint=f"`{self.prog} --help` shows an example.")


def _parser_with_parts(name: str, entry: Entry, parts: Mapping[str, Subcommand]) -> Parser:
    """Of a command that is nothing without a subcommand: only its help is ever asked for."""
    listed = "\n".join(f"  {part:<10} {told.help}" for part, told in parts.items())
    more = f"`takeback {name} SUBCOMMAND --help` shows the options of a subcommand."
    return Parser(
        f"takeback {name}",
        f"{as_sentence(entry.help)}\n\nsubcommands:\n{listed}",
        f"example:\n  {entry.example}\n\n{more}",
        (),
        f"takeback {name} {{{','.join(parts)}}} …",
    )


def as_sentence(help: str) -> str:
    return help[:1].upper() + help[1:] + ("" if help.endswith("?") else ".")


def top_parser() -> Parser:
    does = "Undo for what AI agents do: every change gets a way back before it is made."
    version = flag("-V, --version", "print the version")
    groups = (
        "\n".join((f"{group}:", *(f"  {name:<12} {help}" for name, (help, _) in members.items())))
        for group, members in GROUPS.items()
    )
    more = (
        "`takeback COMMAND --help` shows the options of a command and an example.\n"
        "An effect is named by its id, any unique beginning of it, @ (the newest) or @~2 (the second before it)."
    )
    listed = "\n\n".join((*groups, more))
    return Parser("takeback", f"{does}\n\n{_start_here()}", listed, (version,), "takeback COMMAND [options]")


def short_help() -> str:
    """For someone who typed nothing but the name."""
    return (
        f"takeback: undo for what AI agents do.\n\n{_start_here()}\n\n"
        "`takeback help` lists all commands, `takeback help COMMAND` explains one."
    )


def _start_here() -> str:
    return "Start here:\n" + "\n".join(f"  {command:<30} {told}" for command, told in START_HERE)


OURS = 125


class Asked(NamedTuple):
    options: Namespace
    screen: Screen
    made: list[str]  # the effects that the command has made so far, for when it cannot tell them itself
    looking: bool = False  # nothing is settled for it, and nothing changed
    calls: bool = False  # what a crash left is settled for it even where functions must be called

    def would(self, told: Mapping[str, Any], said: str) -> int:
        """The answer of a dry run."""
        self.screen.give({"dry_run": True, **told})
        self.screen.say(said)
        return 0


class Does(StrEnum):
    """What a command may do to the world, and so what is settled for it first after a crash."""

    LOOKS = "looks"  # nothing
    CHANGES = "changes"  # what needs no function of anybody
    SETTLES = "settles"  # everything; it says which functions it calls


def _is_dry(options: Namespace) -> bool:
    return getattr(options, "dry_run", False)


class Command(NamedTuple):
    carry_out: Callable[[Asked], int]
    arguments: tuple[Argument, ...] = ()
    usage: str = ""  # where argparse cannot say it
    mixed: bool = False  # options may stand between its words
    does: Does = Does.CHANGES
    only_looks: Callable[[Namespace], bool] = _is_dry  # with these options
    parts: Mapping[str, Subcommand] = {}  # its subcommands
    long: bool = False  # its answer may be longer than a screen
    paths: bool = False  # words after -- are paths

    def asked(self, options: Namespace, screen: Screen, made: list[str]) -> Asked:
        looking = self.does is Does.LOOKS or self.only_looks(options)
        return Asked(options, screen, made, looking, calls=self.does is Does.SETTLES)


GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "run": (
            "run a command as one effect that can be undone; a failing one changes nothing",
            "takeback run -- make install",
        ),
        "shell": (
            "a session of commands: each is an effect, and a failing one changes nothing",
            "takeback shell",
        ),
        "explain": (
            "show what you could undo of a command, without running it",
            "takeback explain -- npm install",
        ),
    },
    "Agents": {
        "hook": (
            "let takeback follow a coding agent: each of its calls can be undone",
            "takeback hook install claude-code",
        ),
    },
    "Change": {
        "write": (
            "write standard input to a file",
            "takeback write app.conf --check 'nginx -t -c {staged}' < new.conf",
        ),
        "rm": ("remove files or whole directories", "takeback rm old.conf build/"),
        "mv": ("move or rename", "takeback mv app.conf app.conf.bak"),
        "edit": (
            "set or delete keys of a JSON, YAML or TOML file",
            "takeback edit config.yaml --set /tls/on=true --delete /legacy",
        ),
        "mkdir": ("make a directory", "takeback mkdir -p conf.d/sites"),
        "ln": ("make a symbolic link", "takeback ln releases/42 current"),
        "chmod": ("set the mode of a file", "takeback chmod 755 run.sh"),
        "sql": (
            "protect a database, see what is covered, run a statement as an effect",
            "takeback sql protect postgresql:///app",
        ),
    },
    "Look": {
        "log": ("list effects, newest first", "takeback log -n 5 --path src/"),
        "show": ("show the details of an effect or a run", "takeback show @"),
        "diff": ("show what an effect changed", "takeback diff @~1"),
        "status": (
            "show open, done, accepted, undone and stuck effects, and the size of the store",
            "takeback status",
        ),
        "runs": ("list runs, newest first", "takeback runs -n 5"),
        "events": (
            "print what happened as JSON lines, follow it, or print metrics",
            "takeback events --follow --after 4711",
        ),
    },
    "Console": {
        "console": ("show everything in the browser, approve and take back there", "takeback console --open"),
    },
    "Take back": {
        "undo": ("undo effects (default: the newest)", "takeback undo k3f9a2bq --cascade"),
        "redo": ("redo what was undone", "takeback redo"),
        "rewind": (
            "choose a prompt of a coding agent, see what would go back, and take it back",
            "takeback rewind",
        ),
        "accept": ("accept effects: they stay, even if their run fails", "takeback accept @ @~1"),
        "apply": ("apply a held change", "takeback apply k3f9a2bq"),
        "discard": ("drop a held change", "takeback discard k3f9a2bq"),
        "pin": ("never delete the undo data of an effect", "takeback pin k3f9a2bq"),
        "unpin": ("let the undo data of a pinned effect expire", "takeback unpin k3f9a2bq"),
    },
    "People": {
        "pending": ("list the calls that wait for an approval", "takeback pending"),
        "approve": ("approve a proposed call", "takeback approve k3f9a2bq"),
        "deny": ("deny a proposed call", "takeback deny k3f9a2bq --why 'ask the customer first'"),
        "stop": (
            "stop an agent, a run or everything, until a person lifts it",
            "takeback stop --agent claude-code --why 'it deletes too much'",
        ),
        "approver": ("who may approve, and the keys with which they prove it", "takeback approver new bea"),
        "settle": (
            "record whether a call in doubt happened",
            "takeback settle k3f9a2bq --happened --receipt '{\"id\": 7}'",
        ),
    },
    "Proof": {
        "audit": (
            "show who did what by whose leave; prove that the journal was not changed",
            "takeback audit report",
        ),
    },
    "Rules": {
        "policy": ("look at the rules, test them, let a file of a project count", "takeback policy check"),
        "config": (
            "read and change settings, and see which file sets them",
            "takeback config set audit_days 183",
        ),
    },
    "Points": {
        "checkpoint": ("name the current state, to return to it later", "takeback checkpoint before-migrate"),
        "checkpoints": ("list the checkpoints", "takeback checkpoints"),
    },
    "Workflows": {
        "worker": (
            "carry out runs of the workflows in a module",
            "takeback worker app.flows --concurrency 4",
        ),
        "submit": (
            "submit a run of a workflow",
            "takeback submit app.flows:deploy '\"v42\"' --key release-42",
        ),
        "signal": (
            "send a run the event that it waits for",
            'takeback signal k3f9a2bq approved \'{"by": "kim"}\'',
        ),
        "resume": (
            "continue a workflow, also from a checkpoint",
            "takeback resume k3f9a2bq --from-checkpoint before-migrate",
        ),
    },
    "Upkeep": {
        "recover": ("recover after a crash; retry stuck effects", "takeback recover"),
        "verify": ("check the store for damage", "takeback verify --read-data"),
        "doctor": ("check what works on this machine", "takeback doctor"),
        "rehearse": ("try on a copy whether effects can be undone", "takeback rehearse @ --cascade"),
        "forget": ("delete undo data, by policy or by name", "takeback forget --dry-run"),
        "sweep": ("delete bytes that nothing needs any more", "takeback sweep"),
        "redact": ("erase content and words for good", "takeback redact --match - --dry-run < secret.txt"),
        "store": (
            "create a store, copy it, or use a copied one again",
            "takeback store copy ~/.local/state/takeback postgresql://host/agents",
        ),
        "completion": ("print the completion script of a shell", 'eval "$(takeback completion bash)"'),
    },
}
COMMANDS: dict[str, Entry] = {
    name: Entry(group, *told) for group, members in GROUPS.items() for name, told in members.items()
} | {"_complete": Entry("", "", "")}


def command_named(name: str) -> Command:
    """Each has a module of its name, loaded only when it is asked for, so that `log` does not pay for `undo`."""
    import importlib

    hidden = name == "_complete"
    module: Any = importlib.import_module(f"{__package__}.commands.{'completion' if hidden else name}")
    return module.COMPLETE if hidden else module.COMMAND


def parser_of(name: str, command: Command) -> Parser:
    """Of a command, or of a subcommand (`sql exec`)."""
    first, _, part = name.partition(" ")
    if command.parts and not part:
        return _parser_with_parts(name, COMMANDS[first], command.parts)
    entry = command.parts[part] if part else COMMANDS[first]
    arguments, usage = (command.parts[part].arguments, "") if part else (command.arguments, command.usage)
    return Parser(
        f"takeback {name}", as_sentence(entry.help), f"example:\n  {entry.example}", arguments, usage
    )
