"""`discard`: drop a change that is held."""

from takeback.frontends.cli.commands.accept import DISCARD, command_of

COMMAND = command_of(DISCARD)
