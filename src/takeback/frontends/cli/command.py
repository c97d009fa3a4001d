"""What a command is: its entry in the list of all, its options, and what it gets when it is carried out."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.frontends.cli.output.screen import Screen
from takeback.frontends.cli.parser import Entry, Parser, Subcommand, parser_for, parser_with_parts

OURS = 125


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


_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "run": (
            "run a command as one effect that can be undone; a failing one changes nothing",
            "takeback run -- make install",
        ),
        "shell": ("a session: every command is an effect, a failing one takes itself back", "takeback shell"),
        "explain": (
            "what of a command could be taken back, before it runs",
            "takeback explain -- npm install",
        ),
    },
    "Change": {
        "write": (
            "put what comes on standard input into a file",
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
        "log": ("list effects, newest first: what took hold last", "takeback log -n 5 --path src/"),
        "show": ("everything that is known of one effect, or of a run", "takeback show @"),
        "diff": ("what an effect changed, before to after", "takeback diff @~1"),
        "status": ("what is open, done, accepted, undone or stuck; the size of the store", "takeback status"),
        "runs": ("list runs, newest first", "takeback runs -n 5"),
    },
    "Take back": {
        "undo": ("take effects back (the newest, if none is named)", "takeback undo k3f9a2bq --cascade"),
        "redo": ("bring back what was undone", "takeback redo"),
        "accept": ("say that effects stay, even if their run fails", "takeback accept @ @~1"),
        "apply": ("make a change that is held", "takeback apply k3f9a2bq"),
        "discard": ("drop a change that is held", "takeback discard k3f9a2bq"),
        "pin": ("never forget the way back of an effect", "takeback pin k3f9a2bq"),
        "unpin": ("let a pinned effect be forgotten in time", "takeback unpin k3f9a2bq"),
    },
    "People": {
        "pending": ("what waits for someone to say yes", "takeback pending"),
        "approve": ("say yes to what was proposed, exactly as it was", "takeback approve k3f9a2bq"),
        "deny": ("say no", "takeback deny k3f9a2bq --why 'ask the customer first'"),
        "settle": (
            "say of a call that is in doubt whether it happened",
            "takeback settle k3f9a2bq --happened --receipt '{\"id\": 7}'",
        ),
    },
    "Points": {
        "checkpoint": ("name this point, to come back to it", "takeback checkpoint before-migrate"),
        "checkpoints": ("list the named points", "takeback checkpoints"),
    },
    "Workflows": {
        "worker": (
            "carry out runs of the workflows in a module",
            "takeback worker app.flows --concurrency 4",
        ),
        "submit": ("a new run of a workflow", "takeback submit app.flows:deploy '\"v42\"' --key release-42"),
        "signal": ("tell a run what it waits for", 'takeback signal k3f9a2bq approved \'{"by": "kim"}\''),
        "resume": (
            "make a run of a workflow due again, also from a checkpoint",
            "takeback resume k3f9a2bq --from-checkpoint before-migrate",
        ),
    },
    "Upkeep": {
        "recover": ("settle what a crash left; look again at what is stuck", "takeback recover"),
        "verify": ("is the store sound?", "takeback verify --read-data"),
        "doctor": ("is this machine able?", "takeback doctor"),
        "forget": ("give up the power to undo, by policy or by name", "takeback forget --dry-run"),
        "sweep": ("delete the bytes that nothing needs any more", "takeback sweep"),
        "store": (
            "make a store, copy one to another place, or use one again that was copied",
            "takeback store copy ~/.local/state/takeback postgresql://host/agents",
        ),
        "completion": ("print the completion script of a shell", 'eval "$(takeback completion bash)"'),
    },
}
COMMANDS: dict[str, Entry] = {
    name: Entry(group, *told) for group, members in _GROUPS.items() for name, told in members.items()
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
    if part:
        return parser_for(name, command.parts[part], command.parts[part].arguments)
    if command.parts:
        return parser_with_parts(name, COMMANDS[first], command.parts)
    return parser_for(name, COMMANDS[first], command.arguments)
