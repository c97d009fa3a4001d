"""The command line: finds the command, builds the parser of that one alone, and turns errors into exit codes."""

import gc
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.errors import Failed, InDoubt, Misuse, Renamed, TakebackError
from takeback.frontends.cli.output.errors import (
    aimed,
    complained,
    in_doubt,
    in_our_words,
    printable,
    swallow_output,
    tell_interrupted,
    tell_unprintable,
)
from takeback.frontends.cli.output.screen import (
    Screen,
    Unprintable,
    aim,
    choose_colour,
    printing,
    put,
    screen_for,
    warn,
)
from takeback.frontends.cli.parser import (
    Entry,
    Parser,
    Subcommand,
    parser_for,
    parser_with_parts,
    refuse_nameless,
    short_help,
    top_parser,
)

OURS = 125
RUNNING = ("run", "shell")  # commands that end with the exit code of what they ran
_ENDED_BY_SIGNAL = (129, 143)  # 128 + SIGHUP, 128 + SIGTERM


class Asked(NamedTuple):
    """What a command gets."""

    options: Namespace
    screen: Screen
    made: list[str]  # the effects that the command has made so far, for when it cannot tell them itself
    looking: bool = False  # nothing is settled for it, and nothing changed
    calls: bool = False  # what a crash left is settled for it even where functions must be called


class Does(StrEnum):
    """What a command may do to the world, and so what is settled for it first after a crash."""

    LOOKS = "looks"  # nothing
    CHANGES = "changes"  # what needs no function of anybody
    SETTLES = "settles"  # everything; it says which functions it calls


def _is_dry(options: Namespace) -> bool:
    return getattr(options, "dry_run", False)


class Command(NamedTuple):
    """What the module of a command gives for it."""

    arguments: Callable[[ArgumentParser], None]
    carry_out: Callable[[Asked], int]
    mixed: bool = False  # options may stand between its words
    does: Does = Does.CHANGES
    only_looks: Callable[[Namespace], bool] = _is_dry  # with these options
    parts: Mapping[str, Subcommand] = {}  # its subcommands
    long: bool = False  # its answer may be longer than a screen
    paths: bool = False  # words after -- are paths

    def asked(self, options: Namespace, screen: Screen, made: list[str]) -> Asked:
        looking = self.does is Does.LOOKS or self.only_looks(options)
        return Asked(options, screen, made, looking, calls=self.does is Does.SETTLES)


COMMANDS: dict[str, Entry] = {
    "run": Entry(
        "Run",
        "run",
        "run a command as one effect that can be undone; a failing one changes nothing",
        "takeback run -- make install",
    ),
    "shell": Entry(
        "Run",
        "shell",
        "a session: every command is an effect, a failing one takes itself back",
        "takeback shell",
    ),
    "explain": Entry(
        "Run",
        "explain",
        "what of a command could be taken back, before it runs",
        "takeback explain -- npm install",
    ),
    "write": Entry(
        "Change",
        "write",
        "put what comes on standard input into a file",
        "takeback write app.conf --check 'nginx -t -c {staged}' < new.conf",
    ),
    "rm": Entry("Change", "write", "remove files or whole directories", "takeback rm old.conf build/"),
    "mv": Entry("Change", "write", "move or rename", "takeback mv app.conf app.conf.bak"),
    "edit": Entry(
        "Change",
        "edit",
        "set or delete keys of a JSON, YAML or TOML file",
        "takeback edit config.yaml --set /tls/on=true --delete /legacy",
    ),
    "mkdir": Entry("Change", "write", "make a directory", "takeback mkdir -p conf.d/sites"),
    "ln": Entry("Change", "write", "make a symbolic link", "takeback ln releases/42 current"),
    "chmod": Entry("Change", "write", "set the mode of a file", "takeback chmod 755 run.sh"),
    "sql": Entry(
        "Change",
        "sql",
        "protect a database, see what is covered, run a statement as an effect",
        "takeback sql protect postgresql:///app",
    ),
    "log": Entry(
        "Look", "log", "list effects, newest first: what took hold last", "takeback log -n 5 --path src/"
    ),
    "show": Entry("Look", "show", "everything that is known of one effect, or of a run", "takeback show @"),
    "diff": Entry("Look", "show", "what an effect changed, before to after", "takeback diff @~1"),
    "status": Entry(
        "Look",
        "status",
        "what is open, done, accepted, undone or stuck; the size of the store",
        "takeback status",
    ),
    "runs": Entry("Look", "log", "list runs, newest first", "takeback runs -n 5"),
    "undo": Entry(
        "Take back",
        "undo",
        "take effects back (the newest, if none is named)",
        "takeback undo k3f9a2bq --cascade",
    ),
    "redo": Entry("Take back", "undo", "bring back what was undone", "takeback redo"),
    "accept": Entry(
        "Take back", "accept", "say that effects stay, even if their run fails", "takeback accept @ @~1"
    ),
    "apply": Entry("Take back", "accept", "make a change that is held", "takeback apply k3f9a2bq"),
    "discard": Entry("Take back", "accept", "drop a change that is held", "takeback discard k3f9a2bq"),
    "pin": Entry("Take back", "accept", "never forget the way back of an effect", "takeback pin k3f9a2bq"),
    "unpin": Entry(
        "Take back", "accept", "let a pinned effect be forgotten in time", "takeback unpin k3f9a2bq"
    ),
    "pending": Entry("People", "approve", "what waits for someone to say yes", "takeback pending"),
    "approve": Entry(
        "People", "approve", "say yes to what was proposed, exactly as it was", "takeback approve k3f9a2bq"
    ),
    "deny": Entry("People", "approve", "say no", "takeback deny k3f9a2bq --why 'ask the customer first'"),
    "settle": Entry(
        "People",
        "settle",
        "say of a call that is in doubt whether it happened",
        """takeback settle k3f9a2bq --happened --receipt '{"id": 7}'""",
    ),
    "checkpoint": Entry(
        "Points", "checkpoint", "name this point, to come back to it", "takeback checkpoint before-migrate"
    ),
    "checkpoints": Entry("Points", "checkpoint", "list the named points", "takeback checkpoints"),
    "worker": Entry(
        "Workflows",
        "worker",
        "carry out runs of the workflows in a module",
        "takeback worker app.flows --concurrency 4",
    ),
    "submit": Entry(
        "Workflows",
        "worker",
        "a new run of a workflow",
        "takeback submit app.flows:deploy '\"v42\"' --key release-42",
    ),
    "signal": Entry(
        "Workflows",
        "worker",
        "tell a run what it waits for",
        'takeback signal k3f9a2bq approved \'{"by": "kim"}\'',
    ),
    "resume": Entry(
        "Workflows",
        "worker",
        "make a run of a workflow due again, also from a checkpoint",
        "takeback resume k3f9a2bq --from-checkpoint before-migrate",
    ),
    "recover": Entry(
        "Upkeep", "recover", "settle what a crash left; look again at what is stuck", "takeback recover"
    ),
    "verify": Entry("Upkeep", "verify", "is the store sound?", "takeback verify --read-data"),
    "doctor": Entry("Upkeep", "doctor", "is this machine able?", "takeback doctor"),
    "forget": Entry(
        "Upkeep", "verify", "give up the power to undo, by policy or by name", "takeback forget --dry-run"
    ),
    "sweep": Entry("Upkeep", "verify", "delete the bytes that nothing needs any more", "takeback sweep"),
    "store": Entry(
        "Upkeep",
        "store",
        "make a store, copy one to another place, or use one again that was copied",
        "takeback store copy ~/.local/state/takeback postgresql://host/agents",
    ),
    "completion": Entry(
        "Upkeep", "completion", "print the completion script of a shell", 'eval "$(takeback completion bash)"'
    ),
    "_complete": Entry("", "completion", "", ""),
}


def answer(argv: Sequence[str]) -> int:
    """Carry out one command line; its exit code."""
    words, made, code = list(argv), list[str](), 0
    own, name, began = _own_words(words), _name_in(words), time.time_ns() // 1000
    try:
        _print_anything()
        choose_colour(_colour_in(own))
        aim(_store_in(own))
        code = _guarded(words, made)
        if sys.stdout:
            with printing():
                sys.stdout.flush()
        return code
    except BrokenPipeError:
        swallow_output()
        return 141  # as a program killed by SIGPIPE: whoever read us has had enough
    except Unprintable as error:
        swallow_output()
        tell_unprintable(str(error), made)
        return code or Failed.exit_code
    except KeyboardInterrupt as signal:
        swallow_output()
        _tell_interrupted(name, _store_in(own), began, made, signal)
        return 130
    except SystemExit as signal:
        if signal.code not in _ENDED_BY_SIGNAL:
            raise
        swallow_output()
        _tell_interrupted(name, _store_in(own), began, made, signal)
        return int(signal.code or 0)


def _tell_interrupted(name: str, store: str, began: int, made: list[str], error: BaseException) -> None:
    """A signal may come between a change and what is said of it, so the store is asked what was done."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    at_stake, unfinished = _at_stake(name), False
    if at_stake == "world":
        from takeback.frontends.cli.programs.interruption import done_here

        made, unfinished, waits = done_here(store, began, made)
        if waits and not made:
            error.add_note(waits)
    tell_interrupted(at_stake, made, error, unfinished)


def _name_in(words: list[str]) -> str:
    place = _place_of_command(words)
    return words[place] if place is not None else ""


def _at_stake(name: str) -> str:
    """What an interruption leaves open: whether the world was changed, something of ours, or nothing."""
    group = COMMANDS[name].group if name in COMMANDS else "Look"
    return (
        "world"
        if name in ("undo", "redo", "apply", "run") or group == "Change"
        else ""
        if group == "Look"
        else "store"
    )


def _guarded(words: list[str], made: list[str]) -> int:
    own = _own_words(words)
    try:
        return _run(words, made)
    except Renamed as error:  # also of `run`: nothing was run
        return complained(error, "--json" in own)
    except TakebackError as error:
        return _as_ours(own, aimed(error, _store_in(own)))
    except (BrokenPipeError, KeyboardInterrupt, Unprintable):
        raise
    # The one place that catches everything: a person must never be left with a traceback instead of an answer.
    except Exception as error:
        if os.environ.get("TAKEBACK_DEBUG"):
            raise
        return _as_ours(own, aimed(in_our_words(error), _store_in(own)))


def _own_words(words: list[str]) -> list[str]:
    """Without those of a command that is to be run."""
    return words[: words.index("--")] if "--" in words else list(words)


def _as_ours(words: list[str], error: TakebackError) -> int:
    """Where the exit code is that of the command which was run, trouble of ours has one that commands seldom use."""
    code = complained(error, "--json" in words)
    if _name_in(words) not in RUNNING:
        return code
    if isinstance(error, InDoubt) and "--json" not in words:
        warn(f"takeback: {in_doubt(error)}")
    return OURS


def _store_in(words: list[str]) -> str:
    """As --store names it; asked of the words, because an error may come before they are understood."""
    for place, word in enumerate(words):
        if word == "--store":
            return printable("".join(words[place + 1 : place + 2]))
        if word.startswith("--store="):
            return printable(word.partition("=")[2])
    return ""


def _colour_in(words: list[str]) -> str:
    """As --color says it; asked of the words, because an error may come before they are understood."""
    for place, word in enumerate(words):
        if word == "--no-color":
            return "never"
        name, equals, value = word.partition("=")
        if name == "--color":
            return value if equals else "".join(words[place + 1 : place + 2])
    return "auto"


def _run(words: list[str], made: list[str]) -> int:
    place = _place_of_command(words)
    if place is None:
        return _without_command(words)
    name = words.pop(place)
    if name == "help":
        return _help(words, made)
    if name == "version":
        return _without_command([*words, "--version"])
    if name == "keep":
        raise Renamed(
            "`takeback keep` was renamed.",
            hint="`takeback accept ID` accepts what was made, `takeback apply ID` makes what is held, "
            "`takeback pin ID` never forgets its way back.",
        )
    if name not in COMMANDS:
        raise Misuse(f"There is no command {name!r}.", hint=_suggestion(name))
    command = command_named(name)
    options = _options(name, command, words)
    refuse_nameless(_own_words(words), options)
    gc.enable()
    screen = screen_for(options.json, options.quiet, printable(options.store or ""))
    if COMMANDS[name].group == "Look":  # nothing to lose, and no time either
        with _paged(command, options):
            return command.carry_out(command.asked(options, screen, made))
    with _hearing(), _paged(command, options):
        return command.carry_out(command.asked(options, screen, made))


def _help(words: list[str], made: list[str]) -> int:
    if "--man" not in words:
        return _run([*words, "--help"], made)
    from takeback.frontends.cli.help import page

    words.remove("--man")
    put(page(" ".join(words)), end="")
    return 0


def _options(name: str, command: Command, words: list[str]) -> Namespace:
    if command.paths:
        own = _own_words(words)
        options = parser_of(name, command).understood(own, command.mixed)
        options.paths = words[len(own) + 1 :] if len(own) < len(words) else None
        return options
    if not command.parts:
        return parser_of(name, command).understood(words, command.mixed)
    place = _place_of_command(words)
    if place is None:
        parser_with_parts(name, COMMANDS[name], command.parts).understood(words, mixed=False)
        raise Misuse(
            f"`takeback {name}` needs a subcommand: {', '.join(command.parts)}.",
            hint=f"`takeback {name} --help` tells what they do.",
        )
    action = words.pop(place)
    if action not in command.parts:
        from takeback.model.words import did_you_mean

        listed = f"There are {', '.join(command.parts)}."
        raise Misuse(
            f"There is no `takeback {name} {action}`.",
            hint=did_you_mean(action, command.parts, listed, f"takeback {name} "),
        )
    options = parser_of(f"{name} {action}", command).understood(words, command.mixed)
    options.action = action
    return options


@contextmanager
def _paged(command: Command, options: Namespace) -> Iterator[None]:
    terminal = bool(sys.stdout and sys.stdout.isatty())
    if not (command.long and terminal) or options.json or options.quiet or options.no_pager:
        yield
        return
    from takeback.frontends.cli.output.terminal import paged

    with paged(True):
        yield


@contextmanager
def _hearing() -> Iterator[None]:
    """A signal ends the command with a word, and whatever it started with it; in the middle of an effect it waits."""
    from takeback.runs.lease import shared

    signals = shared()
    signals.watch()
    try:
        yield
    finally:
        signals.release()


def _place_of_command(words: list[str]) -> int | None:
    place = 0
    while place < len(words):
        word = words[place]
        if not word.startswith("-"):
            return place
        place += 2 if word in ("--store", "--color") else 1
    return None


def command_named(name: str) -> Command:
    import importlib

    module: Any = importlib.import_module(f"takeback.frontends.cli.{COMMANDS[name].module}")
    return module.COMMANDS[name]


def parser_of(name: str, command: Command) -> Parser:
    """Of a command, or of a subcommand (`sql exec`)."""
    first, _, part = name.partition(" ")
    if part:
        return parser_for(name, command.parts[part], command.parts[part].arguments)
    if command.parts:
        return parser_with_parts(name, COMMANDS[first], command.parts)
    return parser_for(name, COMMANDS[first], command.arguments)


def _without_command(words: list[str]) -> int:
    if not words:
        warn(short_help())
        return Misuse.exit_code
    parser = top_parser(COMMANDS)
    if parser.understood(words, mixed=False).version:
        import takeback

        put(f"takeback {takeback.__version__}")
        return 0
    raise Misuse("No command was given.", hint="`takeback help` lists them.")


def _suggestion(name: str) -> str:
    from takeback.frontends.cli.help import command_meant

    return command_meant(name, [known for known in COMMANDS if not known.startswith("_")])


def _print_anything() -> None:
    """A name that the terminal's encoding lacks is printed escaped, not refused."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")
