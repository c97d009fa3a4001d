"""`ln`: make a symbolic link."""

from takeback.frontends.cli.command import Asked, Command, flag, positional
from takeback.frontends.cli.session.change import CHANGING, one_change

_ARGUMENTS = (
    flag("-s, --symbolic", "accepted; links are always symbolic"),
    positional("target", "TARGET", "the path that the link points to, stored unchanged"),
    positional("path", "LINK", "the new link"),
    *CHANGING,
)


def _ln(asked: Asked) -> int:
    from takeback.adapters.file.changes import symlink_change

    return one_change(asked, lambda tb: symlink_change(asked.options.path, asked.options.target))


COMMAND = Command(_ln, _ARGUMENTS)
