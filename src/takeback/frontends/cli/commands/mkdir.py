"""`mkdir`: make a directory."""

from takeback.frontends.cli.command import Asked, Command, flag, option, positional
from takeback.frontends.cli.session.change import CHANGING, mode_of, one_change

_ARGUMENTS = (
    positional("path", "PATH", "the new directory"),
    flag("-p, --parents", "also make missing parent directories"),
    option("--mode", "M", "octal, such as 750"),
    *CHANGING,
)


def _mkdir(asked: Asked) -> int:
    from takeback.adapters.file.changes import mkdir_change

    options = asked.options
    mode = mode_of(options.mode) if options.mode is not None else None
    return one_change(asked, lambda tb: mkdir_change(options.path, mode, parents=options.parents))


COMMAND = Command(_mkdir, _ARGUMENTS)
