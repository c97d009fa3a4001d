"""`pin`: never forget the way back of an effect."""

from takeback.frontends.cli.commands.accept import PIN, command_of

COMMAND = command_of(PIN)
