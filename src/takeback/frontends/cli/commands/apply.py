"""`apply`: make a change that is held."""

from takeback.frontends.cli.commands.accept import APPLY, command_of

COMMAND = command_of(APPLY)
