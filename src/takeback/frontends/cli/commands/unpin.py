"""`unpin`: let a pinned effect be forgotten in time."""

from takeback.frontends.cli.commands.accept import UNPIN, command_of

COMMAND = command_of(UNPIN)
