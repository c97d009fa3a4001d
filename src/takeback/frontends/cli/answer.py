"""The command line: finds the command, builds the parser of that one alone, and turns errors into exit codes."""

import gc
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise

from takeback.errors import Failed, InDoubt, Misuse, Renamed, TakebackError
from takeback.frontends.cli.command import (
    COMMANDS,
    OURS,
    Command,
    command_named,
    parser_of,
    refuse_nameless,
    short_help,
    top_parser,
)
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
    Unprintable,
    aim,
    choose_colour,
    printing,
    put,
    screen_for,
    show_secrets,
    warn,
)

RUNNING = ("run", "shell")  # commands that end with the exit code of what they ran
_ENDED_BY_SIGNAL = (129, 143)  # 128 + SIGHUP, 128 + SIGTERM

# What a person decides about, so that a coding agent cannot: of some commands only these subcommands.
OF_A_PERSON: Mapping[str, tuple[str, ...]] = {
    "console": (), "forget": (), "sweep": (), "discard": (), "approve": (), "deny": (), "settle": (), "pin": (),
    "unpin": (), "approver": ("new", "sign"),
    "hook": ("install", "uninstall", "mode"), "store": ("make", "copy", "reopen", "trust"),
    "config": ("set", "unset"),
}  # fmt: skip


def answer(argv: Sequence[str]) -> int:
    """Carry out one command line; its exit code."""
    words, made, code = list(argv), list[str](), 0
    own, name, began = _own_words(words), _name_in(words), time.time_ns() // 1000
    try:
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="backslashreplace")  # a name that its encoding lacks is not refused
        choose_colour("never" if "--no-color" in own else _said(own, "--color", "auto"))
        aim(_store_in(own))
        show_secrets(False)
        code = _guarded(words, made)
        if sys.stdout:
            with printing():
                sys.stdout.flush()
        return code
    except BrokenPipeError:
        swallow_output()
        return 141  # as a program killed by SIGPIPE: the reader has closed the pipe
    except Unprintable as error:
        swallow_output()
        tell_unprintable(str(error), made)
        return code or Failed.exit_code
    except (KeyboardInterrupt, SystemExit) as signal:
        if isinstance(signal, SystemExit) and signal.code not in _ENDED_BY_SIGNAL:
            raise
        swallow_output()
        _tell_interrupted(name, _store_in(own), began, made, signal)
        return int(signal.code or 0) if isinstance(signal, SystemExit) else 130


def _tell_interrupted(name: str, store: str, began: int, made: list[str], error: BaseException) -> None:
    """A signal may come between a change and what is said of it, so the store is asked what was done."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    group, unfinished = COMMANDS[name].group if name in COMMANDS else "Look", False
    # What it leaves open: whether the world was changed, something of ours, or nothing.
    at_stake = "" if group == "Look" else "store"
    if name in ("undo", "redo", "apply", "run", "hook") or group == "Change":
        from takeback.frontends.cli.programs.interruption import done_here

        at_stake = "world"
        made, unfinished, waits = done_here(store, began, made)
        if waits and not made:
            error.add_note(waits)
    tell_interrupted(at_stake, made, error, unfinished)


def _name_in(words: list[str]) -> str:
    place = _place_of_command(words)
    return words[place] if place is not None else ""


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


def tell_lost(words: Sequence[str]) -> int:
    """The end of a command that the daemon's starter carried out."""
    own = _own_words(list(words))
    error = InDoubt(
        "The process of takeback's daemon that carried this command out has ended before it said how it went.",
        hint="`takeback status` shows how it stands, and `takeback recover` settles it.",
    )
    return _as_ours(own, aimed(error, _store_in(own)))


def _store_in(words: list[str]) -> str:
    return printable(_said(words, "--store"))


def _said(words: list[str], name: str, otherwise: str = "") -> str:
    """Asked of the words, because an error may come before they are understood."""
    for word, after in pairwise([*words, ""]):
        if word == name or word.startswith(f"{name}="):
            return after if word == name else word.partition("=")[2]
    return otherwise


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
            hint="`takeback accept ID` accepts a change that was made, `takeback apply ID` makes a held one, "
            "`takeback pin ID` never deletes its undo data.",
        )
    if name not in COMMANDS:
        from takeback.frontends.cli.help import command_meant

        known = [one for one in COMMANDS if not one.startswith("_")]
        raise Misuse(f"There is no command {name!r}.", hint=command_meant(name, known))
    command = command_named(name)
    options = _options(name, command, words)
    refuse_nameless(_own_words(words), options)
    if name in OF_A_PERSON or name == "pending":
        from takeback.frontends.cli.session.for_a_person import refuse_of_agent, work_as_owner

        if name in OF_A_PERSON:
            refuse_of_agent(name, OF_A_PERSON[name], options)
        if COMMANDS[name].group == "People":
            work_as_owner(options)
    if getattr(options, "secrets", False):
        from takeback.frontends.cli.session.for_a_person import refuse_secrets

        refuse_secrets(options)
        show_secrets(True)
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
        parser_of(name, command).understood(words, mixed=False)
        raise Misuse(
            f"`takeback {name}` needs a subcommand: {', '.join(command.parts)}.",
            hint=f"`takeback {name} --help` shows what they do.",
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


def _paged(command: Command, options: Namespace) -> AbstractContextManager[None]:
    terminal = bool(sys.stdout and sys.stdout.isatty())
    if not (command.long and terminal) or options.json or options.quiet or options.no_pager:
        return nullcontext()
    from takeback.frontends.cli.output.terminal import paged

    return paged()


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


def _without_command(words: list[str]) -> int:
    if not words:
        warn(short_help())
        return Misuse.exit_code
    if top_parser().understood(words, mixed=False).version:
        import takeback

        put(f"takeback {takeback.__version__}")
        return 0
    raise Misuse("No command was given.", hint="`takeback help` lists them.")
