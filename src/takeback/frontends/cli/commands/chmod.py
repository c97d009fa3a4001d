"""`chmod`: set the mode of a file."""

from takeback.frontends.cli.command import Asked, Command, positional
from takeback.frontends.cli.session.change import CHANGING, mode_of, one_change


def _chmod(asked: Asked) -> int:
    from takeback.adapters.file.changes import chmod_change

    mode = mode_of(asked.options.mode)
    return one_change(asked, lambda tb: chmod_change(asked.options.path, mode))


_MODE = positional("mode", "MODE", "octal, such as 755")
COMMAND = Command(_chmod, (_MODE, positional("path", "PATH", "a file or directory"), *CHANGING))
